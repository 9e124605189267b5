//! Builds replies: the bytes of a response, with ranges of files where its records belong.

use super::broker::Asked;
use crate::step::{Piece, Reply, Step};
use offsetlog::FileRange;
use offsetlog::format::message::Struct;
use offsetlog::format::protocol::{Api, ResponseHeader};

/// Ends a connection, as Kafka does for a request that it cannot answer.
pub(super) fn closed(reason: String) -> Step {
    Step::Close {
        reply: None,
        reason,
    }
}

/// The response of these fields. `ranges` fill the records that are only announced, in order.
pub(super) fn reply(asked: &Asked<'_>, answer: &Struct<'_>, ranges: Vec<FileRange>) -> Step {
    reply_in(
        asked.api,
        asked.version,
        asked.correlation_id,
        answer,
        ranges,
    )
}

/// The same in a version that need not be the request's.
pub(super) fn reply_in(
    api: &'static Api,
    version: i16,
    correlation_id: i32,
    answer: &Struct<'_>,
    ranges: Vec<FileRange>,
) -> Step {
    let mut bytes = Vec::new();
    ResponseHeader { correlation_id }.write(api, version, &mut bytes);
    let holes = match api.response.write(version, answer, &mut bytes) {
        Ok(holes) => holes,
        // A bug of ours: the connection ends instead of sending something else.
        Err(error) => {
            return closed(format!(
                "the response {} of version {version} cannot be written: {error}",
                api.name
            ));
        }
    };
    if holes.is_empty() {
        return Step::Reply(Reply {
            pieces: vec![Piece::Bytes(bytes)],
        });
    }
    let mut pieces = Vec::new();
    let mut ranges = ranges.into_iter();
    let mut from = 0;
    for hole in holes {
        let Some(range) = ranges
            .next()
            .filter(|range| range.length == hole.bytes as u64)
        else {
            return closed(format!("{} announces records that are not there", api.name));
        };
        if let Some(part) = bytes.get(from..hole.at).filter(|part| !part.is_empty()) {
            pieces.push(Piece::Bytes(part.to_vec()));
        }
        from = hole.at;
        pieces.push(Piece::File {
            file: range.file,
            position: range.position,
            length: range.length,
        });
    }
    if let Some(rest) = bytes.get(from..).filter(|rest| !rest.is_empty()) {
        pieces.push(Piece::Bytes(rest.to_vec()));
    }
    Step::Reply(Reply { pieces })
}
