//! `ApiVersions`: what is announced. The version of the request may be one that is not known here.

use super::broker::{Asked, Broker};
use super::reply::{reply, reply_in};
use super::request::text;
use crate::error_code::ErrorCode;
use crate::step::Step;
use offsetlog::format::message::Struct;
use offsetlog::format::protocol::{ANNOUNCED, Announced, apis};

impl Broker {
    pub(super) fn api_versions(asked: &Asked<'_>, request: &Struct<'_>) -> Step {
        let is_named = |name| {
            let text = text(request, name).unwrap_or_default();
            is_software_name(text)
        };
        if asked.version >= 3
            && !(is_named("clientSoftwareName") && is_named("clientSoftwareVersion"))
        {
            let refused = Struct::new().with("errorCode", ErrorCode::InvalidRequest);
            return reply(asked, &refused, Vec::new());
        }
        let keys: Vec<Struct<'_>> = ANNOUNCED.iter().map(entry).collect();
        reply(asked, &Struct::new().with("apiKeys", keys), Vec::new())
    }

    /// The answer to a version that is not known: in version 0, with the versions of this API that are.
    pub(super) fn unsupported_api_versions(asked: &Asked<'_>) -> Step {
        let own = ANNOUNCED
            .iter()
            .filter(|announced| announced.api.key == apis::API_VERSIONS.key);
        let answer = Struct::new()
            .with("errorCode", ErrorCode::UnsupportedVersion)
            .with("apiKeys", own.map(entry).collect::<Vec<_>>());
        reply_in(asked.api, 0, asked.correlation_id, &answer, Vec::new())
    }
}

fn entry(announced: &Announced) -> Struct<'static> {
    Struct::new()
        .with("apiKey", announced.api.key)
        .with("minVersion", announced.lowest_version)
        .with("maxVersion", announced.highest_version)
}

/// Whether a broker takes this for a name of a client's software, or its version.
fn is_software_name(name: &str) -> bool {
    let is_inner = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
    let bytes = name.as_bytes();
    let is_outer = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    is_outer(bytes.first()) && is_outer(bytes.last()) && bytes.iter().all(is_inner)
}
