//! Zstandard: in one go into the kept buffer, as a stream while that buffer is still too small.

use super::{CodecError, Output};
use std::io::Read;
use zstd::bulk::Decompressor;

/// Kafka's clients write windows of at most 8 MiB; 2^27 is what the reference decoder takes without being asked.
const WINDOW_LOG_MAX: u32 = 27;

pub(super) fn decompress(
    kept: &mut Option<Decompressor<'static>>,
    payload: &[u8],
    output: &mut Output,
) -> Result<(), CodecError> {
    if kept.is_none() {
        *kept = Some(Decompressor::new().map_err(CodecError::bad)?);
    }
    if let Some(decompressor) = kept {
        let room = output.room(payload.len().min(output.limit))?;
        if let Ok(count) = decompressor.decompress_to_buffer(payload, room) {
            if count > output.limit {
                return Err(CodecError::Limit(count as u64));
            }
            output.advance(count);
            return Ok(());
        }
    }
    // The room was too small or the bytes are damaged; frames without a content size do not tell beforehand.
    stream(payload, output)
}

fn stream(payload: &[u8], output: &mut Output) -> Result<(), CodecError> {
    let mut decoder = zstd::stream::read::Decoder::with_buffer(payload).map_err(CodecError::bad)?;
    decoder
        .window_log_max(WINDOW_LOG_MAX)
        .map_err(CodecError::bad)?;
    loop {
        let room = output.spare()?;
        match decoder.read(room) {
            Ok(0) => return Ok(()),
            Ok(count) => output.advance(count),
            Err(error) => return Err(CodecError::bad(error)),
        }
    }
}
