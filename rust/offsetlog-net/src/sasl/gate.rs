//! What a connection may request before its client has authenticated: Kafka's `SaslServerAuthenticator`.

use super::scram::{Asked, Hash, ask};
use super::{Mechanism, SaslError, Users, plain, wrong};
use crate::step::{Piece, Reply};
use offsetlog::format::cursor::Reader;
use offsetlog::format::error::Part;
use offsetlog::format::message::{Struct, Value};
use offsetlog::format::protocol::apis::{API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE};
use offsetlog::format::protocol::{Api, RequestHeader, ResponseHeader};

const UNSUPPORTED_SASL_MECHANISM: i16 = 33;
const ILLEGAL_SASL_STATE: i16 = 34;
const SASL_AUTHENTICATION_FAILED: i16 = 58;

/// Stands before the protocol logic of one connection.
pub(crate) struct Gate<'a> {
    users: Option<&'a Users>,
    state: State,
    user: Option<String>,
}

enum State {
    /// Requests pass.
    Open,
    /// Nothing has been said yet.
    Closed,
    /// A mechanism was chosen. `is_raw`: what follows are its messages without requests around them (`SaslHandshake` 0).
    Chosen { mechanism: Mechanism, is_raw: bool },
    /// SCRAM's first message was answered.
    Asked {
        hash: Hash,
        asked: Box<Asked>,
        is_raw: bool,
    },
}

/// The outcome of a request.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// The protocol logic answers it.
    Pass,
    /// This is the answer.
    Reply(Reply),
    /// This is the answer, if any, and the end of the connection.
    Close {
        reply: Option<Reply>,
        reason: String,
    },
}

impl<'a> Gate<'a> {
    /// Open if there are no users.
    pub(crate) fn new(users: Option<&'a Users>) -> Self {
        Self {
            users,
            state: if users.is_some() {
                State::Closed
            } else {
                State::Open
            },
            user: None,
        }
    }

    /// Whether requests pass.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }

    /// The client's user, if it said so.
    #[cfg(test)]
    fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// Looks at a request.
    pub(crate) fn receive(&mut self, frame: &[u8]) -> Verdict {
        let key = frame.first_chunk().map(|bytes| i16::from_be_bytes(*bytes));
        let is_sasl = key == Some(SASL_HANDSHAKE.key) || key == Some(SASL_AUTHENTICATE.key);
        if self.is_open() && !is_sasl {
            return Verdict::Pass;
        }
        if let State::Chosen { is_raw: true, .. } | State::Asked { is_raw: true, .. } = self.state {
            return match self.step(frame) {
                Ok(message) => Verdict::Reply(bytes(message)),
                Err(error) => closed(error.to_string()),
            };
        }
        let mut reader = Reader::new(frame, Part::Protocol);
        let Ok(header) = RequestHeader::read(&mut reader) else {
            return closed("a request that cannot be read came before authentication");
        };
        if header.api_key == API_VERSIONS.key {
            return Verdict::Pass;
        }
        if !is_sasl {
            return closed(format!(
                "a request of API {} came before authentication",
                header.api_key
            ));
        }
        let api = if header.api_key == SASL_HANDSHAKE.key {
            &SASL_HANDSHAKE
        } else {
            &SASL_AUTHENTICATE
        };
        let version = header.api_version;
        let Ok(request) = api.request.read(version, &mut reader) else {
            return closed(format!("{} that cannot be read", api.name));
        };
        let field = if header.api_key == SASL_HANDSHAKE.key {
            "mechanism"
        } else {
            "authBytes"
        };
        let said = request
            .get(field)
            .and_then(Value::as_bytes)
            .unwrap_or_default();
        let answered = if header.api_key == SASL_HANDSHAKE.key {
            self.handshake(said, version == 0)
        } else {
            self.authenticate(said)
        };
        let mut frame = Vec::new();
        let response_header = ResponseHeader {
            correlation_id: header.correlation_id,
        };
        response_header.write(api, version, &mut frame);
        if write(api, version, &answered.body, &mut frame).is_err() {
            return closed("an answer that cannot be written");
        }
        let reply = bytes(frame);
        match answered.refused {
            None => Verdict::Reply(reply),
            Some(reason) => Verdict::Close {
                reply: Some(reply),
                reason,
            },
        }
    }

    fn handshake(&mut self, name: &[u8], is_raw: bool) -> Answered {
        let names: Vec<Value<'static>> = Mechanism::ALL
            .iter()
            .map(|mechanism| Value::text(mechanism.name().as_bytes()))
            .collect();
        let body = |error_code: i16, names| {
            Struct::new()
                .with("errorCode", error_code)
                .with("mechanisms", Value::Array(names))
        };
        if !matches!(self.state, State::Closed) {
            return Answered {
                body: body(ILLEGAL_SASL_STATE, Vec::new()),
                refused: (!self.is_open()).then(|| "two handshakes".to_owned()),
            };
        }
        match Mechanism::of_name(name) {
            Some(mechanism) => {
                self.state = State::Chosen { mechanism, is_raw };
                Answered {
                    body: body(0, names),
                    refused: None,
                }
            }
            None => Answered {
                body: body(UNSUPPORTED_SASL_MECHANISM, names),
                refused: Some(format!(
                    "mechanism {} is not supported",
                    String::from_utf8_lossy(name)
                )),
            },
        }
    }

    fn authenticate(&mut self, message: &[u8]) -> Answered {
        let failed = |error_code: i16, text: &'static str| {
            Struct::new()
                .with("errorCode", error_code)
                .with("errorMessage", text)
        };
        if self.is_open() {
            return Answered {
                body: failed(
                    ILLEGAL_SASL_STATE,
                    "SaslAuthenticate request received after successful authentication",
                ),
                refused: None,
            };
        }
        if matches!(self.state, State::Closed) {
            return Answered {
                body: failed(ILLEGAL_SASL_STATE, "SaslHandshake comes first"),
                refused: Some("SaslAuthenticate came before SaslHandshake".to_owned()),
            };
        }
        match self.step(message) {
            Ok(message) => Answered {
                body: Struct::new().with("authBytes", Value::Bytes(message.into())),
                refused: None,
            },
            Err(error) => Answered {
                body: failed(
                    SASL_AUTHENTICATION_FAILED,
                    "Authentication failed: wrong user or password",
                ),
                refused: Some(error.to_string()),
            },
        }
    }

    /// Takes a message of the mechanism, and returns the answer.
    fn step(&mut self, message: &[u8]) -> Result<Vec<u8>, SaslError> {
        let Some(users) = self.users else {
            return wrong("there are no users");
        };
        match std::mem::replace(&mut self.state, State::Closed) {
            State::Chosen { mechanism, is_raw } => match Hash::of(mechanism) {
                None => {
                    self.user = Some(plain::check(users, message)?);
                    self.state = State::Open;
                    Ok(Vec::new())
                }
                Some(hash) => {
                    let (asked, answer) = ask(hash, users, message)?;
                    let asked = Box::new(asked);
                    self.state = State::Asked {
                        hash,
                        asked,
                        is_raw,
                    };
                    Ok(answer)
                }
            },
            State::Asked { hash, asked, .. } => {
                let (user, answer) = asked.finish(hash, message)?;
                self.user = Some(user);
                self.state = State::Open;
                Ok(answer)
            }
            State::Open | State::Closed => wrong("no mechanism was chosen"),
        }
    }
}

/// The body of an answer, and why it is the last one.
struct Answered {
    body: Struct<'static>,
    refused: Option<String>,
}

fn write(
    api: &Api,
    version: i16,
    body: &Struct<'_>,
    out: &mut Vec<u8>,
) -> Result<(), offsetlog::format::FormatError> {
    api.response.write(version, body, out).map(drop)
}

fn bytes(bytes: Vec<u8>) -> Reply {
    Reply {
        pieces: vec![Piece::Bytes(bytes)],
    }
}

fn closed(reason: impl Into<String>) -> Verdict {
    Verdict::Close {
        reply: None,
        reason: reason.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sasl::{ClientExchange, Credentials, Progress};

    fn frame(api: &Api, version: i16, body: &Struct<'_>) -> Vec<u8> {
        let header = RequestHeader {
            api_key: api.key,
            api_version: version,
            correlation_id: 7,
            client_id: None,
        };
        let mut frame = Vec::new();
        header.write(&mut frame).unwrap();
        api.request.write(version, body, &mut frame).unwrap();
        frame
    }

    fn sent(reply: Reply) -> Vec<u8> {
        match reply.pieces.into_iter().next() {
            Some(Piece::Bytes(bytes)) => bytes,
            _ => Vec::new(),
        }
    }

    fn answer(api: &Api, version: i16, verdict: Verdict) -> (Struct<'static>, Option<String>) {
        let (reply, reason) = match verdict {
            Verdict::Reply(reply) => (reply, None),
            Verdict::Close { reply, reason } => (reply.unwrap(), Some(reason)),
            Verdict::Pass => panic!("it passed"),
        };
        let bytes = sent(reply);
        let mut reader = Reader::new(&bytes, Part::Protocol);
        let header = ResponseHeader::read(api, version, &mut reader).unwrap();
        assert_eq!(header.correlation_id, 7);
        (
            api.response
                .read(version, &mut reader)
                .unwrap()
                .into_owned(),
            reason,
        )
    }

    fn code(body: &Struct<'_>) -> i64 {
        match body.get("errorCode") {
            Some(Value::Int(code)) => *code,
            other => panic!("{other:?}"),
        }
    }

    fn handshake(
        gate: &mut Gate<'_>,
        version: i16,
        name: &'static str,
    ) -> (Struct<'static>, Option<String>) {
        let body = Struct::new().with("mechanism", name);
        let verdict = gate.receive(&frame(&SASL_HANDSHAKE, version, &body));
        answer(&SASL_HANDSHAKE, version, verdict)
    }

    fn log_in(
        gate: &mut Gate<'_>,
        mechanism: Mechanism,
        password: &str,
        version: i16,
    ) -> Option<String> {
        let credentials = Credentials::new(mechanism, "ann", password);
        let (mut exchange, mut message) = ClientExchange::start(&credentials).unwrap();
        loop {
            let body = Struct::new().with("authBytes", Value::Bytes(message.into()));
            let verdict = gate.receive(&frame(&SASL_AUTHENTICATE, version, &body));
            let (body, refused) = answer(&SASL_AUTHENTICATE, version, verdict);
            if refused.is_some() {
                assert_eq!(code(&body), 58);
                return refused;
            }
            assert_eq!(code(&body), 0);
            match exchange
                .step(body.get("authBytes").unwrap().as_bytes().unwrap())
                .unwrap()
            {
                Progress::Continue(next) => message = next,
                Progress::Done(_) => return None,
            }
        }
    }

    #[test]
    fn who_knows_the_password_gets_in_with_each_mechanism_and_version() {
        let users = Users::of_passwords([("ann", "secret")]).unwrap();
        for (mechanism, version) in Mechanism::ALL.into_iter().zip(0..) {
            let mut gate = Gate::new(Some(&users));
            assert!(!gate.is_open());
            assert_eq!(handshake(&mut gate, 1, mechanism.name()).1, None);
            assert_eq!(log_in(&mut gate, mechanism, "secret", version), None);
            assert_eq!(gate.user(), Some("ann"));
            assert!(matches!(gate.receive(&[0, 3, 0, 1]), Verdict::Pass));
            let mut gate = Gate::new(Some(&users));
            handshake(&mut gate, 1, mechanism.name());
            let refused = log_in(&mut gate, mechanism, "Secret", version).unwrap();
            assert_eq!(refused, "wrong user or password");
            assert!(!gate.is_open());
        }
    }

    /// `SaslHandshake` 0: the mechanism's messages follow by themselves.
    #[test]
    fn messages_without_requests_around_them_work_too() {
        let users = Users::of_passwords([("ann", "secret")]).unwrap();
        let mut gate = Gate::new(Some(&users));
        handshake(&mut gate, 0, "SCRAM-SHA-512");
        let credentials = Credentials::new(Mechanism::ScramSha512, "ann", "secret");
        let (mut exchange, mut message) = ClientExchange::start(&credentials).unwrap();
        loop {
            let Verdict::Reply(reply) = gate.receive(&message) else {
                panic!()
            };
            match exchange.step(&sent(reply)).unwrap() {
                Progress::Continue(next) => message = next,
                Progress::Done(_) => break,
            }
        }
        assert!(gate.is_open());
        let mut gate = Gate::new(Some(&users));
        handshake(&mut gate, 0, "PLAIN");
        assert!(matches!(
            gate.receive(b"\0ann\0wrong"),
            Verdict::Close { reply: None, .. }
        ));
    }

    #[test]
    fn nothing_passes_before_but_api_versions() {
        let users = Users::of_passwords([("ann", "secret")]).unwrap();
        let gate = || Gate::new(Some(&users));
        assert!(matches!(
            gate().receive(&[0, 18, 0, 0, 0, 0, 0, 7, 255, 255]),
            Verdict::Pass
        ));
        for frame in [
            &[][..],
            &[0],
            &[0, 3, 0, 1, 0, 0, 0, 7, 255, 255],
            &[0, 17],
            &[0, 17, 0, 9, 0, 0, 0, 7, 255, 255],
            &[255; 30],
        ] {
            assert!(
                matches!(gate().receive(frame), Verdict::Close { reply: None, .. }),
                "{frame:?}"
            );
        }
        let (body, refused) = handshake(&mut gate(), 1, "GSSAPI");
        assert_eq!((code(&body), refused.is_some()), (33, true));
        assert_eq!(body.get("mechanisms").unwrap().as_array().unwrap().len(), 3);
        let body = Struct::new().with("authBytes", Value::Bytes(b"\0ann\0secret"[..].into()));
        let verdict = gate().receive(&frame(&SASL_AUTHENTICATE, 1, &body));
        assert_eq!(code(&answer(&SASL_AUTHENTICATE, 1, verdict).0), 34);
    }

    /// As Kafka answers on a listener without SASL.
    #[test]
    fn without_users_all_passes_and_sasl_is_refused() {
        let mut gate = Gate::new(None);
        assert!(matches!(gate.receive(&[0, 3, 0, 1]), Verdict::Pass));
        let (body, refused) = handshake(&mut gate, 1, "PLAIN");
        assert_eq!((code(&body), refused), (34, None));
        assert!(gate.is_open());
    }

    #[test]
    fn who_is_somebody_else_is_refused() {
        let users = Users::of_passwords([("ann", "secret"), ("bob", "other")]).unwrap();
        for message in [
            "bob\0ann\0secret",
            "\0ann\0",
            "\0\0secret",
            "\0ann",
            "\0ann\0secret\0",
            "",
        ] {
            let mut gate = Gate::new(Some(&users));
            handshake(&mut gate, 0, "PLAIN");
            assert!(
                matches!(gate.receive(message.as_bytes()), Verdict::Close { .. }),
                "{message:?}"
            );
        }
        let mut gate = Gate::new(Some(&users));
        handshake(&mut gate, 0, "PLAIN");
        assert!(matches!(
            gate.receive(b"ann\0ann\0secret"),
            Verdict::Reply(_)
        ));
    }
}
