//! The users of a server and what it knows of them, from a file.

use super::scram::{Credential, Hash, ITERATIONS_MAX, ITERATIONS_MIN, Known, SALT_BYTES, is_same};
use super::scram_message::{decoded, encoded};
use super::{Mechanism, SaslError, random};
use offsetlog::disk::{Disk, RealDisk, read_whole};
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Largest file of users, in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// The users that a server accepts, and their secrets. Debug output has no secrets.
///
/// A file has a line for each: `name=password`; or, where the password is not to stand in it, `name=SCRAM-SHA-256=salt=…,stored_key=…,
/// server_key=…,iterations=…` in Kafka's own form (`kafka-configs --describe`, ZooKeeper's nodes), a line for each mechanism. Lines that
/// begin with `#` or `!`, and empty ones, mean nothing.
///
/// An unknown name is answered like a known one, and after the same work, if all users have the same kind of secret.
pub struct Users {
    by_name: HashMap<String, User>,
    /// Makes salts, the same each time: for users with passwords, and for unknown names.
    secret: [u8; 32],
    /// Length of the salt and iterations of the first stored credential, for each hash: an unknown name gets the same.
    stored: [Option<(usize, u32)>; 2],
    /// The hash and the most iterations by which a password is checked against a stored credential: each check costs as much.
    costs: Option<(Hash, u32)>,
}

#[derive(Default)]
struct User {
    password: Option<String>,
    credentials: [Option<Credential>; 2],
}

impl User {
    /// The stored credential that tells whether a password is the user's.
    fn checked(&self) -> Option<(Hash, &Credential)> {
        let own = |hash| Some((hash, self.credentials.get(place(hash))?.as_ref()?));
        own(Hash::Sha512).or_else(|| own(Hash::Sha256))
    }
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Users")
            .field("count", &self.by_name.len())
            .finish_non_exhaustive()
    }
}

/// Why a file of users cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum UsersError {
    /// The file cannot be read.
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A line is wrong. Its text is left out: it may be a password.
    Line {
        /// The file.
        path: PathBuf,
        /// Its number, from 1.
        line: usize,
        /// What is wrong.
        reason: String,
    },
    /// The file has no users.
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The system returns no random bytes.
    Random,
}

impl fmt::Display for UsersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, source } => write!(f, "{}: {source}", path.display()),
            Self::Line { path, line, reason } => {
                write!(f, "{}: line {line}: {reason}", path.display())
            }
            Self::Empty { path } => write!(
                f,
                "{}: no user is in it; a line is name=password",
                path.display()
            ),
            Self::Random => f.write_str("the system gives no random bytes"),
        }
    }
}

impl std::error::Error for UsersError {}

impl Users {
    /// Reads a file of users.
    ///
    /// # Errors
    /// `Io`, `Line`, `Empty`.
    pub fn load(path: &Path) -> Result<Self, UsersError> {
        Self::load_from(&RealDisk, path)
    }

    fn load_from(disk: &dyn Disk, path: &Path) -> Result<Self, UsersError> {
        let path_buf = || path.to_path_buf();
        let bytes = read_whole(disk, path, FILE_BYTES_MAX).map_err(|source| UsersError::Io {
            path: path_buf(),
            source,
        })?;
        let text = String::from_utf8(bytes).map_err(|_| UsersError::Line {
            path: path_buf(),
            line: 1,
            reason: "the file is not UTF-8".to_owned(),
        })?;
        let users = Self::of_text(&text).map_err(|(line, reason)| UsersError::Line {
            path: path_buf(),
            line,
            reason,
        })?;
        if users.by_name.is_empty() {
            return Err(UsersError::Empty { path: path_buf() });
        }
        Ok(users)
    }

    /// Users with passwords.
    ///
    /// # Errors
    /// `Random`.
    pub fn of_passwords<'a>(
        passwords: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, UsersError> {
        let mut users = Self::nobody().map_err(|_| UsersError::Random)?;
        for (name, password) in passwords {
            let user = users.by_name.entry(name.to_owned()).or_default();
            user.password = Some(password.to_owned());
        }
        Ok(users)
    }

    #[cfg(test)]
    pub(super) fn of_secret(secret: [u8; 32]) -> Self {
        Self {
            by_name: HashMap::new(),
            secret,
            stored: [None; 2],
            costs: None,
        }
    }

    fn nobody() -> Result<Self, SaslError> {
        Ok(Self {
            by_name: HashMap::new(),
            secret: random()?,
            stored: [None; 2],
            costs: None,
        })
    }

    pub(super) fn of_text(text: &str) -> Result<Self, (usize, String)> {
        let mut users = Self::nobody().map_err(|error| (0, error.to_string()))?;
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with(['#', '!']) {
                continue;
            }
            users.add(line).map_err(|reason| (number, reason))?;
        }
        let only_stored = users
            .by_name
            .values()
            .filter(|user| user.password.is_none());
        let checked = only_stored.filter_map(User::checked);
        let costs = checked.map(|(hash, credential)| (hash, credential.iterations));
        users.costs = costs.max_by_key(|&(_, iterations)| iterations);
        Ok(users)
    }

    fn add(&mut self, line: &str) -> Result<(), String> {
        let (name, secret) = line.split_once('=').ok_or("a line is name=password")?;
        let (name, secret) = (name.trim_end(), secret.trim_start());
        if name.is_empty() || secret.is_empty() {
            return Err("a line is name=password".to_owned());
        }
        let user = self.by_name.entry(name.to_owned()).or_default();
        let scram = secret.strip_prefix("SCRAM-").and_then(|_| {
            let (mechanism, credential) = secret.split_once('=')?;
            Some((mechanism, credential))
        });
        let Some((mechanism, credential)) = scram else {
            if user.password.is_some() {
                return Err("the user has a password already".to_owned());
            }
            user.password = Some(secret.to_owned());
            return Ok(());
        };
        let mechanism: Mechanism = mechanism.parse()?;
        let hash = Hash::of(mechanism).ok_or("not a SCRAM mechanism")?;
        let credential = credential_of(hash, credential.trim())?;
        let place = place(hash);
        let form = (credential.salt.len(), credential.iterations);
        if let Some(own) = user.credentials.get_mut(place)
            && own.is_none()
        {
            *own = Some(credential);
        } else {
            return Err(format!("the user has a credential for {mechanism} already"));
        }
        if let Some(stored) = self.stored.get_mut(place) {
            stored.get_or_insert(form);
        }
        Ok(())
    }

    /// Whether the user has this password. Takes as long for an unknown user.
    pub(super) fn has_password(&self, name: &str, password: &str) -> bool {
        let user = self.by_name.get(name);
        let own = user.and_then(|user| user.password.as_deref());
        let stored = user.filter(|_| own.is_none()).and_then(User::checked);
        let (is_right, spent) = match (own, stored) {
            (Some(own), _) => (is_same(password.as_bytes(), own.as_bytes()), 0),
            (None, Some((hash, credential))) => {
                (credential.is_of(hash, password), credential.iterations)
            }
            // Compared all the same, for the time that it takes.
            (None, None) => {
                let _ = is_same(password.as_bytes(), &self.secret);
                (false, 0)
            }
        };
        if let Some((hash, iterations)) = self.costs
            && iterations > spent
        {
            let _ = hash.salted(password.as_bytes(), &self.secret, iterations - spent);
        }
        is_right
    }

    /// What is known of a user. For an unknown one: something that looks the same and that nobody can prove.
    pub(super) fn known(&self, name: &str, hash: Hash) -> Known {
        let place = place(hash);
        let user = self.by_name.get(name);
        if let Some(stored) = user.and_then(|user| user.credentials.get(place)?.clone()) {
            return Known::Stored(stored);
        }
        if let Some(password) = user.and_then(|user| user.password.clone()) {
            return Known::Password {
                salt: self.salt(name, SALT_BYTES),
                password,
            };
        }
        let unknown = encoded(&self.secret);
        match self.stored.get(place).copied().flatten() {
            Some((length, iterations)) => Known::Nobody(Credential {
                salt: self.salt(name, length),
                iterations,
                stored_key: hash.hmac(&self.secret, unknown.as_bytes()),
                server_key: Vec::new(),
            }),
            None => Known::NobodyWith {
                salt: self.salt(name, SALT_BYTES),
                password: unknown,
            },
        }
    }

    fn salt(&self, name: &str, length: usize) -> Vec<u8> {
        let mut salt = Hash::Sha512.hmac(&self.secret, name.as_bytes());
        salt.truncate(length);
        salt
    }
}

fn place(hash: Hash) -> usize {
    match hash {
        Hash::Sha256 => 0,
        Hash::Sha512 => 1,
    }
}

/// Kafka's form: `salt=…,stored_key=…,server_key=…,iterations=…`, perhaps in brackets.
fn credential_of(hash: Hash, text: &str) -> Result<Credential, String> {
    let text = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(text);
    let fields: HashMap<&str, &str> = text
        .split(',')
        .filter_map(|field| field.trim().split_once('='))
        .collect();
    let bytes = |name: &str| {
        let text = fields.get(name).ok_or(format!("{name} is missing"))?;
        decoded(text).map_err(|error| format!("{name}: {error}"))
    };
    let key = |name: &str| {
        let bytes = bytes(name)?;
        if bytes.len() == hash.size() {
            Ok(bytes)
        } else {
            Err(format!(
                "{name} has {} bytes, not {}",
                bytes.len(),
                hash.size()
            ))
        }
    };
    let iterations = fields.get("iterations").and_then(|text| text.parse().ok());
    let iterations = iterations
        .filter(|count| (ITERATIONS_MIN..=ITERATIONS_MAX).contains(count))
        .ok_or_else(|| {
            format!("iterations is a number from {ITERATIONS_MIN} to {ITERATIONS_MAX}")
        })?;
    Ok(Credential {
        salt: bytes("salt")?,
        iterations,
        stored_key: key("stored_key")?,
        server_key: key("server_key")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_users_is_read() {
        let users =
            Users::of_text("# comment\n\n! another\r\nann = se=cret \nb\u{f6}b=p\n").unwrap();
        assert_eq!(users.by_name.len(), 2);
        assert!(users.has_password("ann", "se=cret"));
        assert!(users.has_password("b\u{f6}b", "p"));
        assert!(!users.has_password("ann", "secret") && !users.has_password("eve", "p"));
        assert!(!format!("{users:?}").contains("cret"));
    }

    #[test]
    fn a_wrong_line_is_told_without_its_text() {
        let key = "A".repeat(43) + "=";
        for (text, expected) in [
            ("ann=a\nsecret", (2, "a line is name=password")),
            ("=x", (1, "a line is name=password")),
            ("ann=a\nann=b", (2, "the user has a password already")),
            (
                "ann=SCRAM-SHA-1=salt=AA==",
                (
                    1,
                    "SASL mechanism SCRAM-SHA-1 is not supported; there are PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512",
                ),
            ),
            (
                "ann=SCRAM-SHA-256=salt=AA==",
                (1, "iterations is a number from 4096 to 2000000"),
            ),
            (
                "ann=SCRAM-SHA-256=salt=AA==,iterations=4096",
                (1, "stored_key is missing"),
            ),
            (
                "ann=SCRAM-SHA-256=salt=AA==,iterations=4096,stored_key=AA==",
                (1, "stored_key has 1 bytes, not 32"),
            ),
        ] {
            let (line, reason) = Users::of_text(text).unwrap_err();
            assert_eq!((line, reason.as_str()), expected);
        }
        let whole = format!(
            "ann=SCRAM-SHA-256=salt=AA==,iterations=4096,stored_key={key},server_key={key}"
        );
        assert!(Users::of_text(&format!("{whole}\n{whole}")).is_err());
        assert!(Users::of_text(&whole).is_ok());
    }

    /// The form of the answer does not show whether a name exists.
    #[test]
    fn a_name_that_nobody_has_is_asked_for_the_same() {
        let key = format!("{}=", "A".repeat(43));
        let stored = format!(
            "ann=SCRAM-SHA-256=salt=AAAA,iterations=8192,stored_key={key},server_key={key}"
        );
        for (text, length, iterations) in [
            ("ann=secret", SALT_BYTES, ITERATIONS_MIN),
            (stored.as_str(), 3, 8192),
        ] {
            let users = Users::of_text(text).unwrap();
            for name in ["ann", "eve"] {
                let known = users.known(name, Hash::Sha256);
                assert_eq!(known.salt().len(), length, "{name}");
                assert_eq!(known.iterations(), iterations, "{name}");
                assert_eq!(known.is_somebody(), name == "ann");
            }
            let salt = |name| users.known(name, Hash::Sha256).salt().to_vec();
            assert_ne!(salt("eve"), salt("eva"));
        }
        // A password costs as much as the dearest check of the file.
        let users = Users::of_text(&format!("{stored}\nbob=secret")).unwrap();
        assert_eq!(users.costs, Some((Hash::Sha256, 8192)));
        assert!(users.has_password("bob", "secret") && !users.has_password("eve", "secret"));
    }

    #[test]
    fn a_file_that_cannot_be_used_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        assert!(matches!(Users::load(&path), Err(UsersError::Io { .. })));
        std::fs::write(&path, "# nobody\n").unwrap();
        assert!(
            Users::load(&path)
                .unwrap_err()
                .to_string()
                .ends_with("a line is name=password")
        );
        std::fs::write(&path, b"ann=\xff").unwrap();
        assert!(
            Users::load(&path)
                .unwrap_err()
                .to_string()
                .contains("UTF-8")
        );
    }

    /// A password can be checked against what was stored for SCRAM.
    #[test]
    fn plain_works_with_stored_credentials() {
        use crate::sasl::scram_message::encoded;
        let stored = Credential::derived(Hash::Sha512, "secret", b"salt", 4096);
        let line = format!(
            "ann=SCRAM-SHA-512=salt={},stored_key={},server_key={},iterations=4096",
            encoded(b"salt"),
            encoded(&stored.stored_key),
            encoded(&stored.server_key)
        );
        let users = Users::of_text(&line).unwrap();
        assert!(users.has_password("ann", "secret") && !users.has_password("ann", "Secret"));
    }
}
