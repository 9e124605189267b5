//! `dump --kafka`: the lines of Kafka's own tool, those that are false included.
//!
//! Kafka's tool ends with an exception where it meets what it cannot read. Then this ends too, with one line for the exception
//! and without the stack. Names of classes are Kafka's; sentences are where they tell of framing, and the engine's elsewhere.

use super::java::{self, ByFile};
use super::log_file::LogFile;
use super::{kafka_batch, kafka_index, kafka_state};
use crate::args::{Decoder, Dump};
use crate::console::Console;
use crate::escape::write_escaped;
use crate::failure::Failure;
use crate::{EXIT_DAMAGED, EXIT_FINE};
use offsetlog::BatchDecoder;
use offsetlog::format::FileName;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// What ends the tool.
#[derive(Debug)]
pub(super) enum Ended {
    /// An exception: its class and its message.
    Exception(String),
    Output(io::Error),
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

/// An exception of a class, without a message where there is none.
pub(super) fn exception(class: &str, message: &str) -> Ended {
    Ended::Exception(if message.is_empty() {
        class.to_owned()
    } else {
        format!("{class}: {message}")
    })
}

/// An exception for a file that cannot be opened or read.
pub(super) fn cannot_read(file: &str, error: &io::Error) -> Ended {
    match error.kind() {
        io::ErrorKind::NotFound => exception("java.nio.file.NoSuchFileException", file),
        io::ErrorKind::PermissionDenied => exception("java.nio.file.AccessDeniedException", file),
        _ => exception("java.io.IOException", &format!("{file}: {error}")),
    }
}

/// Pairs of numbers that do not agree.
pub(super) type Pairs = Vec<(i64, i64)>;

/// One run: options, output, and what is said at the end.
pub(super) struct Run<'r, 'c> {
    pub(super) args: &'r Dump,
    console: &'r mut Console<'c>,
    pub(super) decoder: BatchDecoder,
    pub(super) mismatches: ByFile<Pairs>,
    pub(super) wrong_times: ByFile<Pairs>,
    pub(super) disordered_times: ByFile<Pairs>,
    pub(super) not_found: ByFile<Pairs>,
    pub(super) not_consecutive: ByFile<Pairs>,
    errors: Vec<String>,
}

pub(super) fn run(args: &Dump, console: &mut Console<'_>) -> Result<i32, Failure> {
    let mut run = Run {
        args,
        console,
        decoder: BatchDecoder::default(),
        mismatches: ByFile::default(),
        wrong_times: ByFile::default(),
        disordered_times: ByFile::default(),
        not_found: ByFile::default(),
        not_consecutive: ByFile::default(),
        errors: Vec::new(),
    };
    let mut ended = Ok(());
    for path in args.files() {
        ended = run.file(&path);
        if ended.is_err() {
            break;
        }
    }
    let code = match ended {
        Ok(()) => {
            run.summary();
            EXIT_FINE
        }
        Err(Ended::Exception(text)) => {
            run.errors
                .push(format!("Exception in thread \"main\" {text}"));
            EXIT_DAMAGED
        }
        Err(Ended::Output(error)) => return Err(error.into()),
    };
    let errors = std::mem::take(&mut run.errors);
    console.out.flush()?;
    for line in errors {
        console.plain_error(&line);
    }
    Ok(code)
}

impl Run<'_, '_> {
    fn file(&mut self, path: &Path) -> Result<(), Ended> {
        let file = java::file(path);
        self.line(&format!("Dumping {file}"))?;
        let name = name_of(&file);
        match suffix_of(name) {
            Some(".log" | ".checkpoint") => self.log(&file),
            Some(".index") => kafka_index::offsets(self, &file),
            Some(".timeindex") => kafka_index::times(self, &file),
            Some(".snapshot") => kafka_state::snapshot(self, &file),
            Some(".txnindex") => kafka_state::aborted(self, &file),
            _ => {
                self.say(format!("Ignoring unknown file {file}"));
                Ok(())
            }
        }
    }

    /// A segment, or a snapshot of the metadata log.
    fn log(&mut self, file: &str) -> Result<(), Ended> {
        let name = name_of(file);
        if suffix_of(name) == Some(".log") {
            let base = base_offset(file)?;
            self.line(&format!("Log starting offset: {base}"))?;
        } else if name == "bootstrap.checkpoint" {
            self.line("KRaft bootstrap snapshot")?;
        } else {
            let FileName::MetadataSnapshot {
                end_offset, epoch, ..
            } = FileName::classify(name)
            else {
                return Err(exception(
                    "java.util.NoSuchElementException",
                    "No value present",
                ));
            };
            self.line(&format!(
                "Snapshot end offset: {end_offset}, epoch: {epoch}"
            ))?;
        }
        let mut log = LogFile::open(Path::new(file)).map_err(|error| cannot_read(file, &error))?;
        let limit = self.args.max_bytes.unwrap_or(i32::MAX);
        let end = log.size.min(u64::try_from(limit).unwrap_or(0));
        let mut position = 0;
        let mut previous = -1;
        while let Some(batch) = kafka_batch::next(&mut log, position, end, file)? {
            let size = kafka_batch::dump(self, &mut log, &batch, position, file, &mut previous)?;
            position += size;
        }
        if end > position && limit == i32::MAX {
            let trailing = end - position;
            self.line(&format!(
                "Found {trailing} invalid bytes at the end of {name}"
            ))?;
        }
        Ok(())
    }

    pub(super) const fn shows_contents(&self) -> bool {
        self.args.print_data_log || self.args.decoder().is_some()
    }

    pub(super) const fn is_deep(&self) -> bool {
        self.args.deep_iteration || self.shows_contents()
    }

    pub(super) const fn decoder_kind(&self) -> Option<Decoder> {
        self.args.decoder()
    }

    /// Prints a line: as it is, or on a terminal so that it cannot steer it.
    pub(super) fn line(&mut self, text: &str) -> Result<(), Ended> {
        self.part(text)?;
        Ok(self.console.out.write_all(b"\n")?)
    }

    /// Prints what an exception will leave without an end.
    pub(super) fn part(&mut self, text: &str) -> Result<(), Ended> {
        if self.console.terminal.stdout_is_terminal {
            write_escaped(&mut self.console.out, text.as_bytes())?;
        } else {
            self.console.out.write_all(text.as_bytes())?;
        }
        Ok(())
    }

    /// A line for standard error, which comes when all data is out.
    pub(super) fn say(&mut self, line: String) {
        self.errors.push(line);
    }

    /// What the tool says when all files are done.
    fn summary(&mut self) {
        let mut lines = Vec::new();
        let mut tell = |found: &ByFile<Pairs>, head: &str, line: &dyn Fn(i64, i64) -> String| {
            for (file, pairs) in found.in_order() {
                lines.push(format!("{head}{file}"));
                lines.extend(pairs.iter().map(|&(one, other)| line(one, other)));
            }
        };
        tell(&self.mismatches, "Mismatches in :", &|index, log| {
            format!("  Index offset: {index}, log offset: {log}")
        });
        tell(
            &self.wrong_times,
            "Found timestamp mismatch in :",
            &|index, log| format!("  Index timestamp: {index}, log timestamp: {log}"),
        );
        tell(
            &self.disordered_times,
            "Found out of order timestamp in :",
            &|index, previous| {
                format!("  Index timestamp: {index}, Previously indexed timestamp: {previous}")
            },
        );
        tell(
            &self.not_found,
            "The following indexed offsets are not found in :",
            &|index, log| format!("Indexed offset: {index}, found log offset: {log}"),
        );
        tell(
            &self.not_consecutive,
            "Non-consecutive offsets in ",
            &|first, second| format!("  {first} is followed by {second}"),
        );
        self.errors.append(&mut lines);
    }
}

/// The last part of a path.
pub(super) fn name_of(file: &str) -> &str {
    file.rsplit('/').next().unwrap_or(file)
}

fn suffix_of(name: &str) -> Option<&str> {
    name.rfind('.').and_then(|at| name.get(at..))
}

/// The number in front of a file's name.
pub(super) fn base_offset(file: &str) -> Result<i64, Ended> {
    let digits = name_of(file).split('.').next().unwrap_or_default();
    digits.parse().map_err(|_| {
        exception(
            "java.lang.NumberFormatException",
            &format!("For input string: \"{digits}\""),
        )
    })
}

/// The file beside this one with the same number and another ending, by its absolute path.
pub(super) fn sibling(file: &str, ending: &str) -> PathBuf {
    let digits = name_of(file).split('.').next().unwrap_or_default();
    Path::new(&java::absolute(file)).with_file_name(format!("{digits}{ending}"))
}
