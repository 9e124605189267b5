//! The works of operators.
//!
//! `salvage DIRECTORY INTO` makes a sound log of everything that can be read, on the disk when it ends; removing an earlier one is not
//! measured; `copy DIRECTORY INTO` what the machine itself needs for that: the bytes are read, their CRC-32C computed, and written.
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
    let mut block = vec![0; 256 << 10];
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
            loop {
                let read = from.read(&mut block)?;
                if read == 0 {
                    break;
                }
                let bytes = block.get(..read).unwrap_or(&[]);
                met.add(u64::from(crc32c(bytes)));
                to.write_all(bytes)?;
            }
            to.sync_all()?;
        }
        Ok(())
    })?;
    Ok(answer(cpu, wall, met))
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
