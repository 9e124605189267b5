//! SCRAM with SHA-256 and SHA-512 (RFC 5802, RFC 7677), the server's and the client's side. Passwords are taken as they are, as Kafka
//! does: no `SASLprep`.

use super::scram_message::{ClientFinal, ClientFirst, ServerFirst, encoded, escaped, signature};
use super::{Mechanism, SaslError, Users, random, wrong};
use ring::{digest, hmac, pbkdf2};
use std::num::NonZeroU32;

/// As few iterations as Kafka takes.
pub(super) const ITERATIONS_MIN: u32 = 4096;
/// As many as a client does for a server that it does not know: a second or two.
pub(super) const ITERATIONS_MAX: u32 = 2_000_000;
pub(super) const SALT_BYTES: usize = 20;
const NONCE_BYTES: usize = 18;

/// The hash function of a mechanism.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hash {
    Sha256,
    Sha512,
}

impl Hash {
    pub(super) fn of(mechanism: Mechanism) -> Option<Self> {
        match mechanism {
            Mechanism::Plain => None,
            Mechanism::ScramSha256 => Some(Self::Sha256),
            Mechanism::ScramSha512 => Some(Self::Sha512),
        }
    }

    pub(super) fn size(self) -> usize {
        match self {
            Self::Sha256 => digest::SHA256_OUTPUT_LEN,
            Self::Sha512 => digest::SHA512_OUTPUT_LEN,
        }
    }

    pub(super) fn hmac(self, key: &[u8], message: &[u8]) -> Vec<u8> {
        let algorithm = match self {
            Self::Sha256 => hmac::HMAC_SHA256,
            Self::Sha512 => hmac::HMAC_SHA512,
        };
        let key = hmac::Key::new(algorithm, key);
        hmac::sign(&key, message).as_ref().to_vec()
    }

    fn hash(self, message: &[u8]) -> Vec<u8> {
        let algorithm = match self {
            Self::Sha256 => &digest::SHA256,
            Self::Sha512 => &digest::SHA512,
        };
        digest::digest(algorithm, message).as_ref().to_vec()
    }

    pub(super) fn salted(self, password: &[u8], salt: &[u8], iterations: u32) -> Vec<u8> {
        let algorithm = match self {
            Self::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
            Self::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        };
        let iterations = NonZeroU32::new(iterations).unwrap_or(NonZeroU32::MIN);
        let mut salted = vec![0; self.size()];
        pbkdf2::derive(algorithm, iterations, salt, password, &mut salted);
        salted
    }
}

/// What a server knows of a user: nothing from which the password follows.
#[derive(Clone)]
pub(super) struct Credential {
    pub(super) salt: Vec<u8>,
    pub(super) iterations: u32,
    pub(super) stored_key: Vec<u8>,
    pub(super) server_key: Vec<u8>,
}

impl Credential {
    pub(super) fn derived(hash: Hash, password: &str, salt: &[u8], iterations: u32) -> Self {
        let salted = hash.salted(password.as_bytes(), salt, iterations);
        Self {
            salt: salt.to_vec(),
            iterations,
            stored_key: hash.hash(&hash.hmac(&salted, b"Client Key")),
            server_key: hash.hmac(&salted, b"Server Key"),
        }
    }

    /// Whether this is the password's.
    pub(super) fn is_of(&self, hash: Hash, password: &str) -> bool {
        let other = Self::derived(hash, password, &self.salt, self.iterations);
        is_same(&self.stored_key, &other.stored_key)
    }
}

/// What a server knows of a client that authenticates. Keys are derived from a password only when there is a proof to check, each time, so
/// that timing does not show which names have one.
pub(super) enum Known {
    Stored(Credential),
    Password { salt: Vec<u8>, password: String },
    Nobody(Credential),
    NobodyWith { salt: Vec<u8>, password: String },
}

impl Known {
    pub(super) fn salt(&self) -> &[u8] {
        match self {
            Self::Stored(credential) | Self::Nobody(credential) => &credential.salt,
            Self::Password { salt, .. } | Self::NobodyWith { salt, .. } => salt,
        }
    }

    pub(super) fn iterations(&self) -> u32 {
        match self {
            Self::Stored(credential) | Self::Nobody(credential) => credential.iterations,
            Self::Password { .. } | Self::NobodyWith { .. } => ITERATIONS_MIN,
        }
    }

    pub(super) fn is_somebody(&self) -> bool {
        matches!(self, Self::Stored(_) | Self::Password { .. })
    }

    fn into_credential(self, hash: Hash) -> Credential {
        match self {
            Self::Stored(credential) | Self::Nobody(credential) => credential,
            Self::Password { salt, password } | Self::NobodyWith { salt, password } => {
                Credential::derived(hash, &password, &salt, ITERATIONS_MIN)
            }
        }
    }
}

/// The server's side: what it has asked a client to prove.
pub(super) struct Asked {
    name: String,
    lead: String,
    client_nonce: String,
    nonce: String,
    /// What both sides sign, up to the client's last message.
    signed: String,
    known: Known,
}

/// Answers the client's first message, for an unknown user in the same way.
pub(super) fn ask(
    hash: Hash,
    users: &Users,
    message: &[u8],
) -> Result<(Asked, Vec<u8>), SaslError> {
    let nonce = encoded(&random::<NONCE_BYTES>()?);
    ask_with(hash, users, message, &nonce)
}

fn ask_with(
    hash: Hash,
    users: &Users,
    message: &[u8],
    own_nonce: &str,
) -> Result<(Asked, Vec<u8>), SaslError> {
    let first = ClientFirst::read(message)?;
    let known = users.known(&first.name, hash);
    let nonce = format!("{}{own_nonce}", first.nonce);
    let salt = encoded(known.salt());
    let answer = format!("r={nonce},s={salt},i={}", known.iterations());
    let asked = Asked {
        name: first.name,
        lead: first.lead.to_owned(),
        client_nonce: first.nonce.to_owned(),
        nonce,
        signed: format!("{},{answer}", first.bare),
        known,
    };
    Ok((asked, answer.into_bytes()))
}

impl Asked {
    /// Checks the client's proof. Returns the user and the server's own proof.
    pub(super) fn finish(self, hash: Hash, message: &[u8]) -> Result<(String, Vec<u8>), SaslError> {
        let last = ClientFinal::read(message)?;
        // librdkafka before 2.6.1 puts its own nonce before the whole one a second time, which Kafka took until 3.9. Ours is in it all the
        // same, and the proof is over what was sent.
        let own = last.nonce.strip_prefix(&self.client_nonce);
        let is_of_this = last.nonce == self.nonce || own == Some(&self.nonce);
        if !is_of_this || last.lead != self.lead.as_bytes() {
            return wrong("the last message belongs to another exchange");
        }
        let signed = format!("{},{}", self.signed, last.unproven);
        let is_somebody = self.known.is_somebody();
        let credential = self.known.into_credential(hash);
        let client_signature = hash.hmac(&credential.stored_key, signed.as_bytes());
        if last.proof.len() != client_signature.len() {
            return wrong("the proof has another length");
        }
        let client_key: Vec<u8> = last
            .proof
            .iter()
            .zip(&client_signature)
            .map(|(left, right)| left ^ right)
            .collect();
        let is_proven = is_same(&hash.hash(&client_key), &credential.stored_key);
        if !(is_proven && is_somebody) {
            return wrong("wrong user or password");
        }
        let signature = hash.hmac(&credential.server_key, signed.as_bytes());
        Ok((self.name, format!("v={}", encoded(&signature)).into_bytes()))
    }
}

/// The client's side, before the server has spoken.
#[derive(Debug)]
pub(super) struct ClientStart {
    hash: Hash,
    nonce: String,
    bare: String,
}

impl ClientStart {
    pub(super) fn new(hash: Hash, username: &str) -> Result<(Self, Vec<u8>), SaslError> {
        let nonce = encoded(&random::<NONCE_BYTES>()?);
        Ok(Self::with_nonce(hash, username, nonce))
    }

    fn with_nonce(hash: Hash, username: &str, nonce: String) -> (Self, Vec<u8>) {
        let bare = format!("n={},r={nonce}", escaped(username));
        let message = format!("n,,{bare}").into_bytes();
        (Self { hash, nonce, bare }, message)
    }

    /// Proves that the password is known. Returns what is to come from the server, and the message.
    pub(super) fn prove(
        self,
        password: &str,
        message: &[u8],
    ) -> Result<(ClientEnd, Vec<u8>), SaslError> {
        let (first, text) = ServerFirst::read(message)?;
        if !first.nonce.starts_with(&self.nonce) || first.nonce.len() == self.nonce.len() {
            return wrong("the server's nonce does not begin with ours");
        }
        if !(ITERATIONS_MIN..=ITERATIONS_MAX).contains(&first.iterations) {
            return wrong(format!(
                "{} iterations are asked for; {ITERATIONS_MIN} to {ITERATIONS_MAX} are done",
                first.iterations
            ));
        }
        let hash = self.hash;
        let salted = hash.salted(password.as_bytes(), &first.salt, first.iterations);
        let client_key = hash.hmac(&salted, b"Client Key");
        let unproven = format!("c=biws,r={}", first.nonce);
        let signed = format!("{},{text},{unproven}", self.bare);
        let client_signature = hash.hmac(&hash.hash(&client_key), signed.as_bytes());
        let proof: Vec<u8> = client_key
            .iter()
            .zip(&client_signature)
            .map(|(left, right)| left ^ right)
            .collect();
        let server_key = hash.hmac(&salted, b"Server Key");
        let end = ClientEnd {
            signature: hash.hmac(&server_key, signed.as_bytes()),
        };
        let message = format!("{unproven},p={}", encoded(&proof));
        Ok((end, message.into_bytes()))
    }
}

/// The client's side, which has only to see that the server knows the password too.
#[derive(Debug)]
pub(super) struct ClientEnd {
    signature: Vec<u8>,
}

impl ClientEnd {
    pub(super) fn finish(&self, message: &[u8]) -> Result<(), SaslError> {
        if is_same(&signature(message)?, &self.signature) {
            Ok(())
        } else {
            wrong(
                "the server does not prove that it knows the password: it is not the one it should be",
            )
        }
    }
}

/// Compares in a time that does not tell where they differ.
pub(super) fn is_same(left: &[u8], right: &[u8]) -> bool {
    let key = hmac::Key::new(hmac::HMAC_SHA256, b"compare");
    hmac::verify(&key, left, hmac::sign(&key, right).as_ref()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7677: user `user`, password `pencil`.
    const CLIENT_NONCE: &str = "rOprNGfwEbeRWgbNEkqO";
    const SERVER_NONCE: &str = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
    const SALT: &str = "W22ZaJ0SNY7soEsUEjb6gQ==";
    const MESSAGES: [&str; 4] = [
        "n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    ];

    fn users() -> Users {
        let salt = crate::sasl::scram_message::decoded(SALT).unwrap();
        let credential = Credential::derived(Hash::Sha256, "pencil", &salt, 4096);
        let line = format!(
            "user=SCRAM-SHA-256=[salt={SALT},stored_key={},server_key={},iterations=4096]",
            encoded(&credential.stored_key),
            encoded(&credential.server_key)
        );
        Users::of_text(&line).unwrap()
    }

    #[test]
    fn the_example_of_the_rfc_comes_out_on_both_sides() {
        let [first, challenge, last, verdict] = MESSAGES.map(str::as_bytes);
        let (start, message) =
            ClientStart::with_nonce(Hash::Sha256, "user", CLIENT_NONCE.to_owned());
        assert_eq!(message, first);
        let (asked, message) = ask_with(Hash::Sha256, &users(), first, SERVER_NONCE).unwrap();
        assert_eq!(message, challenge);
        let (end, message) = start.prove("pencil", challenge).unwrap();
        assert_eq!(message, last);
        let (user, message) = asked.finish(Hash::Sha256, last).unwrap();
        assert_eq!((user.as_str(), message.as_slice()), ("user", verdict));
        end.finish(verdict).unwrap();
    }

    #[test]
    fn a_wrong_password_and_nobody_are_refused_alike() {
        for (name, password) in [("user", "pencils"), ("nobody", "pencil")] {
            let (start, first) = ClientStart::new(Hash::Sha256, name).unwrap();
            let (asked, challenge) = ask(Hash::Sha256, &users(), &first).unwrap();
            let (_, last) = start.prove(password, &challenge).unwrap();
            let error = asked.finish(Hash::Sha256, &last).unwrap_err();
            assert_eq!(error.to_string(), "wrong user or password");
        }
        // An unknown user gets the same salt twice, as a known one does.
        let salt = || {
            let (_, challenge) = ask(Hash::Sha256, &users_of(7), b"n,,n=x,r=a").unwrap();
            String::from_utf8(challenge)
                .unwrap()
                .split(',')
                .nth(1)
                .unwrap()
                .to_owned()
        };
        assert_eq!(salt(), salt());
    }

    fn users_of(secret: u8) -> Users {
        Users::of_secret([secret; 32])
    }

    #[test]
    fn hostile_messages_are_refused_on_the_server() {
        for first in [
            "",
            "n",
            "n,,",
            "p=tls-unique,,n=user,r=a",
            "n,a=other,n=user,r=a",
            "n,,n=us=er,r=a",
            "n,,n=user,r=",
            "n,,n=,r=a",
            "n,,r=a,n=user",
            "n,,n=user,r=a,tokenauth=true",
            "x,,n=user,r=a",
        ] {
            assert!(
                ask(Hash::Sha256, &users(), first.as_bytes()).is_err(),
                "{first}"
            );
        }
        assert!(ask(Hash::Sha256, &users(), &vec![b'n'; 5000]).is_err());
        assert!(ask(Hash::Sha256, &users(), b"n,,n=\xff,r=a").is_err());
        let [first, _, last, _] = MESSAGES;
        for (from, to) in [
            ("c=biws", "c=eSws"),
            ("p=dHz", "p=dHa"),
            ("r=rOp", "r=rOq"),
            (",p=", ",q="),
            ("p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=", "p="),
            ("p=dHz", "p=*"),
            ("biws,", "biws,m=x,"),
        ] {
            let asked = ask_with(Hash::Sha256, &users(), first.as_bytes(), SERVER_NONCE)
                .unwrap()
                .0;
            assert!(
                asked
                    .finish(Hash::Sha256, last.replace(from, to).as_bytes())
                    .is_err(),
                "{to}"
            );
        }
    }

    #[test]
    fn hostile_messages_are_refused_by_the_client() {
        let challenge = MESSAGES[1];
        for (from, to) in [
            ("r=rOp", "r=rO"),
            ("%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", ""),
            ("i=4096", "i=4095"),
            ("i=4096", "i=4294967295"),
            ("i=4096", "i=-1"),
            ("i=4096", ""),
            ("s=W22", "s=*"),
            ("r=rOp", "e=rOp"),
        ] {
            let (start, _) = ClientStart::with_nonce(Hash::Sha256, "user", CLIENT_NONCE.to_owned());
            assert!(
                start
                    .prove("pencil", challenge.replace(from, to).as_bytes())
                    .is_err(),
                "{to}"
            );
        }
        let (start, _) = ClientStart::with_nonce(Hash::Sha256, "user", CLIENT_NONCE.to_owned());
        let (end, _) = start.prove("pencil", challenge.as_bytes()).unwrap();
        for verdict in [
            "",
            "v=",
            "v=AAAA",
            "e=other-error",
            "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G5=",
        ] {
            assert!(end.finish(verdict.as_bytes()).is_err(), "{verdict}");
        }
    }

    /// As librdkafka before 2.6.1 sends it.
    #[test]
    fn a_nonce_that_comes_twice_is_taken() {
        let (_, first) = ClientStart::new(Hash::Sha256, "user").unwrap();
        let (asked, _) = ask(Hash::Sha256, &users(), &first).unwrap();
        let nonce = asked.client_nonce.clone();
        let unproven = format!("c=biws,r={nonce}{}", asked.nonce);
        let signed = format!("{},{unproven}", asked.signed);
        let salt = crate::sasl::scram_message::decoded(SALT).unwrap();
        let salted = Hash::Sha256.salted(b"pencil", &salt, 4096);
        let client_key = Hash::Sha256.hmac(&salted, b"Client Key");
        let signature = Hash::Sha256.hmac(&Hash::Sha256.hash(&client_key), signed.as_bytes());
        let proof: Vec<u8> = client_key
            .iter()
            .zip(&signature)
            .map(|(a, b)| a ^ b)
            .collect();
        let last = format!("{unproven},p={}", encoded(&proof));
        assert_eq!(
            asked.finish(Hash::Sha256, last.as_bytes()).unwrap().0,
            "user"
        );
    }

    #[test]
    fn names_with_commas_and_both_hashes_work() {
        let users = Users::of_passwords([("a=b,c", "p\u{e4}ss")]).unwrap();
        for hash in [Hash::Sha256, Hash::Sha512] {
            let (start, first) = ClientStart::new(hash, "a=b,c").unwrap();
            let (asked, challenge) = ask(hash, &users, &first).unwrap();
            let (end, last) = start.prove("p\u{e4}ss", &challenge).unwrap();
            let (user, verdict) = asked.finish(hash, &last).unwrap();
            assert_eq!(user, "a=b,c");
            end.finish(&verdict).unwrap();
        }
    }
}
