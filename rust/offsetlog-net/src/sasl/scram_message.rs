//! SCRAM's messages as text (RFC 5802, section 7).

use super::{SaslError, wrong};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Longest message that is looked at. Kafka's own are a few hundred bytes.
const MESSAGE_BYTES_MAX: usize = 4096;

/// `n,,n=user,r=nonce`.
#[derive(Debug)]
pub(super) struct ClientFirst<'a> {
    /// What comes back in `c=`: up to the second comma, which it includes.
    pub(super) lead: &'a str,
    /// The rest, which both sides sign.
    pub(super) bare: &'a str,
    pub(super) name: String,
    pub(super) nonce: &'a str,
}

impl<'a> ClientFirst<'a> {
    pub(super) fn read(message: &'a [u8]) -> Result<Self, SaslError> {
        let text = text_of(message)?;
        let mut parts = text.splitn(3, ',');
        let (Some(binding), Some(acting_as), Some(bare)) =
            (parts.next(), parts.next(), parts.next())
        else {
            return wrong("the first message has no lead");
        };
        if binding != "n" && binding != "y" {
            return wrong("channel binding is not supported");
        }
        let lead = text.get(..text.len() - bare.len()).unwrap_or_default();
        let mut fields = bare.split(',');
        let name = unescaped(field(fields.next(), 'n')?)?;
        let nonce = field(fields.next(), 'r')?;
        if nonce.is_empty() || name.is_empty() {
            return wrong("the first message has no name or no nonce");
        }
        if fields.any(|field| field == "tokenauth=true") {
            return wrong("delegation tokens are not supported");
        }
        if !acting_as.is_empty() && unescaped(field(Some(acting_as), 'a')?)? != name {
            return wrong("nobody may act as another user");
        }
        Ok(Self {
            lead,
            bare,
            name,
            nonce,
        })
    }
}

/// `r=nonce,s=salt,i=iterations`.
#[derive(Debug)]
pub(super) struct ServerFirst<'a> {
    pub(super) nonce: &'a str,
    pub(super) salt: Vec<u8>,
    pub(super) iterations: u32,
}

impl<'a> ServerFirst<'a> {
    pub(super) fn read(message: &'a [u8]) -> Result<(Self, &'a str), SaslError> {
        let text = text_of(message)?;
        if let Some(error) = text.strip_prefix("e=") {
            return wrong(format!("the server refuses: {error}"));
        }
        let mut fields = text.split(',');
        let nonce = field(fields.next(), 'r')?;
        let salt = decoded(field(fields.next(), 's')?)?;
        let iterations = field(fields.next(), 'i')?;
        let iterations = iterations
            .parse()
            .map_err(|_| SaslError("the number of iterations is not one".to_owned()))?;
        let first = Self {
            nonce,
            salt,
            iterations,
        };
        Ok((first, text))
    }
}

/// `c=lead,r=nonce,p=proof`.
#[derive(Debug)]
pub(super) struct ClientFinal<'a> {
    pub(super) lead: Vec<u8>,
    pub(super) nonce: &'a str,
    pub(super) proof: Vec<u8>,
    /// All before the proof, which both sides sign.
    pub(super) unproven: &'a str,
}

impl<'a> ClientFinal<'a> {
    pub(super) fn read(message: &'a [u8]) -> Result<Self, SaslError> {
        let text = text_of(message)?;
        let Some((unproven, proof)) = text.rsplit_once(",p=") else {
            return wrong("the last message has no proof");
        };
        let mut fields = unproven.split(',');
        Ok(Self {
            lead: decoded(field(fields.next(), 'c')?)?,
            nonce: field(fields.next(), 'r')?,
            proof: decoded(proof)?,
            unproven,
        })
    }
}

/// `v=signature`.
pub(super) fn signature(message: &[u8]) -> Result<Vec<u8>, SaslError> {
    let text = text_of(message)?;
    if let Some(error) = text.strip_prefix("e=") {
        return wrong(format!("the server refuses: {error}"));
    }
    decoded(field(text.split(',').next(), 'v')?)
}

pub(super) fn encoded(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

pub(super) fn decoded(text: &str) -> Result<Vec<u8>, SaslError> {
    STANDARD
        .decode(text)
        .map_err(|error| SaslError(format!("not base64: {error}")))
}

/// A name as it stands in a message.
pub(super) fn escaped(name: &str) -> String {
    name.replace('=', "=3D").replace(',', "=2C")
}

fn unescaped(text: &str) -> Result<String, SaslError> {
    let mut name = String::new();
    let mut parts = text.split('=');
    name.push_str(parts.next().unwrap_or_default());
    for part in parts {
        if let Some(rest) = part.strip_prefix("2C") {
            name.push(',');
            name.push_str(rest);
        } else if let Some(rest) = part.strip_prefix("3D") {
            name.push('=');
            name.push_str(rest);
        } else {
            return wrong("a name has an equals sign that means nothing");
        }
    }
    Ok(name)
}

fn text_of(message: &[u8]) -> Result<&str, SaslError> {
    if message.len() > MESSAGE_BYTES_MAX {
        return wrong("the message is too long");
    }
    std::str::from_utf8(message).map_err(|_| SaslError("the message is not UTF-8".to_owned()))
}

fn field(field: Option<&str>, letter: char) -> Result<&str, SaslError> {
    field
        .and_then(|field| field.strip_prefix(letter)?.strip_prefix('='))
        .ok_or_else(|| SaslError(format!("the field {letter}= is missing")))
}
