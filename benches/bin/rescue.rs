//! The works of operators.
//!
//! `salvage DIRECTORY INTO` makes a sound log of everything that can be read, on the disk when it ends; removing an earlier one is not
//! measured. `verb VERB ARGUMENT...` runs the command, whose output stays in memory: its lines are the count.

use crate::writing::remove;
use crate::{Met, Outcome, answer, clocked};
use offsetlog::OpenOptions;
use offsetlog_cli::{EXIT_FINE, Terminal};
use offsetlog_ops::{SalvageOptions, salvage};

/// Runs a round if it is one of these.
pub(crate) fn round(words: &[&str]) -> Outcome<Option<String>> {
    let answer = match words {
        ["salvage", directory, into] => salvaged(directory, into)?,
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
