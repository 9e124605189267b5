//! Authenticates to a broker: `SaslHandshake` 1, then the mechanism's messages in `SaslAuthenticate`, which Kafka has since 1.0.

use super::{ClientError, Connection};
use crate::sasl::{ClientExchange, Credentials, Progress, SaslError};
use offsetlog::format::message::{Struct, Value};
use offsetlog::format::protocol::apis::{SASL_AUTHENTICATE, SASL_HANDSHAKE};

/// Longest answer that is read before the broker has authenticated.
const ANSWER_BYTES_MAX: usize = 64 << 10;

pub(super) fn log_in(
    connection: &mut Connection,
    credentials: &Credentials,
) -> Result<(), ClientError> {
    let address = connection.address().to_owned();
    let refused = |reason: String| ClientError::Sasl {
        address: address.clone(),
        reason,
    };
    let wrong = |error: SaslError| refused(error.to_string());
    let mut buffer = Vec::new();
    let body = Struct::new().with("mechanism", credentials.mechanism.name());
    let answer = connection.request(&SASL_HANDSHAKE, 1, &body, &mut buffer)?;
    if code(&answer) != 0 {
        let offered: Vec<&str> = answer
            .get("mechanisms")
            .and_then(Value::as_array)
            .unwrap_or_default()
            .iter()
            .filter_map(Value::as_str)
            .collect();
        return Err(refused(format!(
            "the broker does not take {} (error {}); it offers {}",
            credentials.mechanism,
            code(&answer),
            if offered.is_empty() {
                "nothing".to_owned()
            } else {
                offered.join(", ")
            }
        )));
    }
    let (mut exchange, mut message) = ClientExchange::start(credentials).map_err(wrong)?;
    loop {
        let body = Struct::new().with("authBytes", Value::Bytes(message.into()));
        let answer = connection.request(&SASL_AUTHENTICATE, 0, &body, &mut buffer)?;
        if code(&answer) != 0 {
            let text = answer.get("errorMessage").and_then(Value::as_str);
            let text = text.unwrap_or("the broker refuses");
            return Err(refused(format!("{text} (error {})", code(&answer))));
        }
        let said = answer.get("authBytes").and_then(Value::as_bytes);
        let said = said.filter(|said| said.len() <= ANSWER_BYTES_MAX);
        let said = said.ok_or_else(|| refused("the broker's message is too long".to_owned()))?;
        match exchange.step(said).map_err(wrong)? {
            Progress::Continue(next) => message = next,
            Progress::Done(_) => return Ok(()),
        }
    }
}

fn code(answer: &Struct<'_>) -> i64 {
    match answer.get("errorCode") {
        Some(Value::Int(code)) => *code,
        _ => -1,
    }
}
