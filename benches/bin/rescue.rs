//! The works of operators.
//!
//! `salvage DIRECTORY INTO` makes a sound log of everything that can be read, on the disk when it ends; removing an earlier one is not
//! measured; `copy DIRECTORY INTO` what the machine itself needs for that: the bytes are read, their CRC-32C computed, what lz4 has
//! compressed is decompressed, and the bytes written. It checks nothing else.
//! `restore SOURCE INTO` restores every partition of a log dir into another; `cp SOURCE INTO` is the system's `cp` of it and a sync.
//! `verb VERB ARGUMENT...` runs the command, whose output stays in memory: its lines are the count.

use crate::writing::remove;
use crate::{Met, Outcome, answer, clocked};
use offsetlog::OpenOptions;
use offsetlog::format::checksum::crc32c;
use offsetlog_cli::{EXIT_FINE, Terminal};
use offsetlog_ops::{RestoreOptions, RestorePlan, SalvageOptions, salvage};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;

/// Runs a round if it is one of these.
pub(crate) fn round(words: &[&str]) -> Outcome<Option<String>> {
    let answer = match words {
        ["salvage", directory, into] => salvaged(directory, into)?,
        ["copy", directory, into] => copied(directory, into)?,
        ["restore", source, into] => restored(source, into)?,
        ["cp", source, into] => plain_copy(source, into)?,
        ["verb", arguments @ ..] => verb(arguments)?,
        _ => return Ok(None),
    };
    Ok(Some(answer))
}

fn salvaged(directory: &str, into: &str) -> Outcome<String> {
    remove(into)?;
    let mut met = Met::default();
    let (cpu, wall) = clocked(|| {
        let (open, how) = (OpenOptions::default(), SalvageOptions::default());
        let report = salvage(directory, into, &open, &how)?;
        met.count = report.built.records;
        met.sum = report.built.bytes_written;
        Ok(())
    })?;
    Ok(answer(cpu, wall, met))
}

fn copied(directory: &str, into: &str) -> Outcome<String> {
    remove(into)?;
    fs::create_dir_all(into)?;
    let mut met = Met::default();
    let (mut block, mut plain) = (vec![0; 256 << 10], vec![0; LZ4_BLOCK_BYTES]);
    let (cpu, wall) = clocked(|| {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            let Some(name) = path.file_name().filter(|_| is_log(&path)) else {
                continue;
            };
            let (mut from, mut to) = (
                File::open(&path)?,
                File::create(Path::new(into).join(name))?,
            );
            // Of a batch whose end is still to come.
            let mut begun = 0;
            loop {
                let read = from.read(block.get_mut(begun..).unwrap_or_default())?;
                if read == 0 {
                    break;
                }
                let bytes = block.get(..begun + read).unwrap_or_default();
                let new = bytes.get(begun..).unwrap_or_default();
                met.add(u64::from(crc32c(new)));
                to.write_all(new)?;
                let whole = decompressed(bytes, &mut plain)?;
                block.copy_within(whole..begun + read, 0);
                begun = begun + read - whole;
            }
            if begun > 0 {
                return Err(
                    format!("{}: no whole batches of 256 KiB at most", path.display()).into(),
                );
            }
            to.sync_all()?;
        }
        Ok(())
    })?;
    Ok(answer(cpu, wall, met))
}

/// What Kafka compresses at once.
pub(crate) const LZ4_BLOCK_BYTES: usize = 64 << 10;
const LZ4: u8 = 3;
const LZ4_STORED: u32 = 1 << 31;

/// Decompresses the whole batches at the start of these bytes, if they are compressed, and nothing else. Returns the bytes of all.
pub(crate) fn decompressed(bytes: &[u8], plain: &mut [u8]) -> Outcome<usize> {
    let mut rest = bytes;
    while let Some((head, _)) = rest.split_first_chunk::<61>() {
        let size = 12 + u32::from_be_bytes([head[8], head[9], head[10], head[11]]) as usize;
        let Some((batch, behind)) = rest.split_at_checked(size) else {
            break;
        };
        if head[22] & 7 == LZ4 {
            // Behind the descriptor of the frame.
            let mut frame = batch.get(61 + 7..).unwrap_or_default();
            while let Some((&length, blocks)) = frame.split_first_chunk::<4>() {
                let length = u32::from_le_bytes(length);
                let Some((block, more)) = blocks.split_at_checked((length & !LZ4_STORED) as usize)
                else {
                    return Err("a frame is cut short".into());
                };
                if length == 0 {
                    break;
                }
                if length & LZ4_STORED == 0 {
                    lz4::block::decompress_to_buffer(block, Some(LZ4_BLOCK_BYTES as i32), plain)?;
                }
                frame = more;
            }
        }
        rest = behind;
    }
    Ok(bytes.len() - rest.len())
}

fn restored(source: &str, into: &str) -> Outcome<String> {
    remove(into)?;
    let mut met = Met::default();
    let (cpu, wall) = clocked(|| {
        let (open, how) = (OpenOptions::default(), RestoreOptions::default());
        let mut plan = RestorePlan::make(&[source], &[into], &how, &open)?;
        plan.run(None)?;
        met.count = plan.partitions.len() as u64;
        met.sum = plan.bytes();
        if plan.has_losses() {
            return Err("something was not restored".into());
        }
        Ok(())
    })?;
    Ok(answer(cpu, wall, met))
}

fn plain_copy(source: &str, into: &str) -> Outcome<String> {
    remove(into)?;
    let (cpu, wall) = clocked(|| {
        for words in [
            ["cp", "-r", "--reflink=never", source, into].as_slice(),
            ["sync", "-f", into].as_slice(),
        ] {
            let (program, arguments) = words.split_first().ok_or("no program")?;
            if !Command::new(program).args(arguments).status()?.success() {
                return Err(format!("{program} failed").into());
            }
        }
        Ok(())
    })?;
    Ok(answer(cpu, wall, Met::default()))
}

fn is_log(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "log")
}

fn verb(arguments: &[&str]) -> Outcome<String> {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let (cpu, wall) = clocked(|| {
        let words = std::iter::once(&"offsetlog").chain(arguments);
        let code = offsetlog_cli::run(
            words.map(|word| (*word).into()),
            &mut out,
            &mut err,
            Terminal::default(),
        );
        if code == EXIT_FINE {
            return Ok(());
        }
        Err(format!("exit code {code}: {}", String::from_utf8_lossy(&err)).into())
    })?;
    let met = Met {
        count: String::from_utf8_lossy(&out).lines().count() as u64,
        sum: 0,
    };
    Ok(answer(cpu, wall, met))
}
