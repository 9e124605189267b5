//! The client's side of all mechanisms.

use super::scram::{ClientEnd, ClientStart, Hash};
use super::{Mechanism, Progress, SaslError, plain, wrong};
use std::fmt;

/// A client's credentials. Debug output leaves out the password.
#[derive(Clone)]
#[non_exhaustive]
pub struct Credentials {
    /// How it says so.
    pub mechanism: Mechanism,
    /// Its name.
    pub username: String,
    /// Its password.
    pub password: String,
}

impl Credentials {
    /// A user with a password.
    pub fn new(
        mechanism: Mechanism,
        username: impl Into<String>,
        password: impl Into<String>,
    ) -> Self {
        Self {
            mechanism,
            username: username.into(),
            password: password.into(),
        }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("mechanism", &self.mechanism)
            .field("username", &self.username)
            .finish_non_exhaustive()
    }
}

/// An exchange as the client sees it: [`start`](Self::start), then [`step`](Self::step) with each answer.
#[derive(Debug)]
pub struct ClientExchange {
    state: State,
    password: Secret,
}

#[derive(Debug)]
enum State {
    Plain,
    Start(ClientStart),
    End(ClientEnd),
    Done,
}

struct Secret(String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("...")
    }
}

impl ClientExchange {
    /// Begins. Returns the first message too.
    ///
    /// # Errors
    /// A name or password that the mechanism cannot transmit, or no random bytes from the system.
    pub fn start(credentials: &Credentials) -> Result<(Self, Vec<u8>), SaslError> {
        let Credentials {
            username, password, ..
        } = credentials;
        let (state, message) = match Hash::of(credentials.mechanism) {
            None => (State::Plain, plain::message(username, password)?),
            Some(hash) => {
                let (start, message) = ClientStart::new(hash, username)?;
                (State::Start(start), message)
            }
        };
        let password = Secret(password.clone());
        Ok((Self { state, password }, message))
    }

    /// Takes the server's answer.
    ///
    /// # Errors
    /// The server refuses, does not prove that it knows the password, or does not speak the mechanism.
    pub fn step(&mut self, answer: &[u8]) -> Result<Progress, SaslError> {
        match std::mem::replace(&mut self.state, State::Done) {
            // A server has only one answer to PLAIN: success.
            State::Plain => Ok(Progress::Done(Vec::new())),
            State::Start(start) => {
                let (end, message) = start.prove(&self.password.0, answer)?;
                self.state = State::End(end);
                Ok(Progress::Continue(message))
            }
            State::End(end) => end.finish(answer).map(|()| Progress::Done(Vec::new())),
            State::Done => wrong("the exchange is over"),
        }
    }
}
