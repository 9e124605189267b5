//! One run of `dump --kafka`: its options and output, its exceptions, and what it says when all files are done.

use super::java::{self, ByFile};
use crate::args::{Decoder, Dump};
use crate::console::Console;
use crate::escape::write_escaped;
use offsetlog::BatchDecoder;
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

impl<'r, 'c> Run<'r, 'c> {
    pub(super) fn new(args: &'r Dump, console: &'r mut Console<'c>) -> Self {
        Self {
            args,
            console,
            decoder: BatchDecoder::default(),
            mismatches: ByFile::default(),
            wrong_times: ByFile::default(),
            disordered_times: ByFile::default(),
            not_found: ByFile::default(),
            not_consecutive: ByFile::default(),
            errors: Vec::new(),
        }
    }

    /// Flushes the output, then prints the lines for standard error.
    pub(super) fn finish(self) -> io::Result<()> {
        self.console.out.flush()?;
        for line in self.errors {
            self.console.plain_error(&line);
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

    /// Prints a line: unchanged, or escaped on a terminal, which it must not steer.
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
    pub(super) fn summary(&mut self) {
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

pub(super) fn suffix_of(name: &str) -> Option<&str> {
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
