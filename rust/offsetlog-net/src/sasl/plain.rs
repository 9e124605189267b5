//! PLAIN (RFC 4616): authorization identity, user name and password, with a zero byte between them.

use super::{SaslError, Users, wrong};

/// Checks what a client says, and returns the user's name.
pub(super) fn check(users: &Users, message: &[u8]) -> Result<String, SaslError> {
    let mut parts = message.split(|&byte| byte == 0);
    let (Some(acting_as), Some(name), Some(password), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return wrong("a PLAIN message has three parts");
    };
    let (Ok(name), Ok(password)) = (std::str::from_utf8(name), std::str::from_utf8(password))
    else {
        return wrong("a PLAIN message is UTF-8");
    };
    if name.is_empty() || password.is_empty() {
        return wrong("a PLAIN message has a user and a password");
    }
    // Checked first, so that a wrong password costs the same for every name.
    let is_right = users.has_password(name, password);
    if !(acting_as.is_empty() || acting_as == name.as_bytes()) {
        return wrong("nobody may act as another user");
    }
    if is_right {
        Ok(name.to_owned())
    } else {
        wrong("wrong user or password")
    }
}

/// What a client says.
pub(super) fn message(username: &str, password: &str) -> Result<Vec<u8>, SaslError> {
    if username.contains('\0') || password.contains('\0') {
        return wrong("a user or a password with a zero byte cannot be said with PLAIN");
    }
    Ok(format!("\0{username}\0{password}").into_bytes())
}
