//! Reads and writes Zstandard. Reads in one call into the reused buffer, or as a stream if that buffer is too small.

use super::{CodecError, Output};
use std::io::Read;
use zstd::bulk::Decompressor;
use zstd::zstd_safe::{self, CCtx, CParameter, InBuffer, OutBuffer, SafeResult, get_error_name};

/// Kafka's clients write windows of at most 8 MiB (2^23). 2^27 is the reference decoder's default limit.
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
    // The buffer was too small or the bytes are damaged. Frames without a content size do not show which.
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

/// Keeps the context and its tables, some MB at the usual levels.
pub(super) struct Compressor {
    context: CCtx<'static>,
    level: i32,
}

/// Appends the frame that Kafka's Java code writes: as a stream of unknown length, flushed, then ended. So the frame has no
/// content size, has the window of its level, and ends with an empty block. One call for the whole input would choose other
/// parameters and write other bytes.
pub(super) fn compress(
    kept: &mut Option<Compressor>,
    level: i32,
    input: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), CodecError> {
    let compressor = match kept {
        Some(compressor) if compressor.level == level => compressor,
        // A new context instead of a new parameter, to free the memory of a higher level.
        _ => kept.insert(Compressor::new(level)?),
    };
    compressor.frame(input, out).inspect_err(|_| *kept = None)
}

impl Compressor {
    fn new(level: i32) -> Result<Self, CodecError> {
        let mut context =
            CCtx::try_create().ok_or_else(|| CodecError::bad("no memory for a context"))?;
        context
            .set_parameter(CParameter::CompressionLevel(level))
            .map_err(bad_code)?;
        Ok(Self { context, level })
    }

    fn frame(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), CodecError> {
        let context = &mut self.context;
        out.reserve(zstd_safe::compress_bound(input.len()));
        let mut source = InBuffer::around(input);
        while source.pos() < input.len() {
            step(out, |room| context.compress_stream(room, &mut source))?;
        }
        // Java ends an empty stream without flushing it, and only such a frame states its content size.
        if !input.is_empty() {
            while step(out, |room| context.flush_stream(room))? > 0 {}
        }
        while step(out, |room| context.end_stream(room))? > 0 {}
        Ok(())
    }
}

/// Makes one call that writes after the end of `out`, with room for at least one byte.
fn step(
    out: &mut Vec<u8>,
    call: impl FnOnce(&mut OutBuffer<'_, Vec<u8>>) -> SafeResult,
) -> Result<usize, CodecError> {
    out.reserve(1);
    let at = out.len();
    call(&mut OutBuffer::around_pos(out, at)).map_err(bad_code)
}

fn bad_code(code: usize) -> CodecError {
    CodecError::bad(get_error_name(code))
}
