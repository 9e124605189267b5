//! What ends a command early, its exit code and its one line.

use crate::console::Console;
use crate::escape::escaped;
use crate::{EXIT_ERROR, EXIT_FINE, EXIT_INTERRUPTED, EXIT_NOTHING, EXIT_REFUSED, Terminal};
use clap::error::ErrorKind as UsageKind;
use offsetlog::ErrorKind;
use std::io::{self, Write};

/// What ends a command early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The arguments do not fit what is there.
    Usage(String),
    /// What the engine says.
    Engine(offsetlog::Error),
    /// Damage in a batch; reading can continue behind it, at this offset.
    Damage(offsetlog::Error, i64),
    /// Standard output cannot be written.
    Output(io::Error),
    /// What the engine says to somebody who wants to write.
    Writing(offsetlog::Error),
    /// A line of the input is refused: which one, why, and what of the input is appended.
    Refused(String),
    /// Appending ended before the input did: why, and what of the input is appended.
    Stopped(String),
}

impl From<offsetlog::Error> for Failure {
    fn from(error: offsetlog::Error) -> Self {
        Self::Engine(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl Failure {
    /// The error of one partition, so that the others can still be read, and its message.
    pub(crate) fn of_one_partition(&self) -> Option<(&offsetlog::Error, String)> {
        match self {
            Self::Engine(error) if !error.is_of_process() => Some((error, with_advice(error))),
            Self::Damage(error, next) => {
                Some((error, format!("{error}; go on behind it with -o {next}")))
            }
            _ => None,
        }
    }

    /// Says what happened, unless nobody wants to know, and returns the exit code.
    pub(crate) fn report(&self, console: &mut Console<'_>) -> i32 {
        match self {
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => EXIT_FINE,
            Self::Output(error) => {
                console.error(&format!("cannot write to standard output: {error}"));
                EXIT_ERROR
            }
            Self::Usage(text) | Self::Stopped(text) => {
                console.error(text);
                EXIT_ERROR
            }
            Self::Damage(error, next) => {
                console.error(&format!("{error}; go on behind it with -o {next}"));
                EXIT_ERROR
            }
            Self::Refused(text) => {
                console.error(text);
                EXIT_REFUSED
            }
            Self::Writing(error) => {
                if matches!(error.kind(), ErrorKind::Interrupted) {
                    return EXIT_INTERRUPTED;
                }
                console.error(&with_advice_to_writers(error));
                EXIT_ERROR
            }
            Self::Engine(error) => {
                if matches!(error.kind(), ErrorKind::Interrupted) {
                    return EXIT_INTERRUPTED;
                }
                console.error(&with_advice(error));
                match error.kind() {
                    ErrorKind::OffsetOutOfRange { .. } => EXIT_NOTHING,
                    _ => EXIT_ERROR,
                }
            }
        }
    }
}

/// The engine's words, then what to do, where there is something.
pub(crate) fn with_advice(error: &offsetlog::Error) -> String {
    let advice = match error.kind() {
        ErrorKind::Io { source, .. } => match source.kind() {
            io::ErrorKind::NotFound => {
                "check the path, or list again: a running broker may have removed it"
            }
            io::ErrorKind::NotADirectory if is_kept(error) => {
                "give the partition's directory, or this file to 'offsetlog salvage'"
            }
            io::ErrorKind::NotADirectory => "give the directory that holds it",
            io::ErrorKind::PermissionDenied => "read permission is all that is needed",
            _ => "",
        },
        _ if error.is_corruption() => "'offsetlog cat' prints the records before it",
        _ => "",
    };
    if advice.is_empty() {
        error.to_string()
    } else {
        format!("{error}; {advice}")
    }
}

/// Whether an error is about a file that was cut off a log and kept.
fn is_kept(error: &offsetlog::Error) -> bool {
    let folder = error.path().and_then(std::path::Path::parent);
    folder.is_some_and(|folder| folder.ends_with("offsetlog-cut"))
}

/// The engine's words, then what to do, where somebody wants to write.
pub(crate) fn with_advice_to_writers(error: &offsetlog::Error) -> String {
    let advice = match error.kind() {
        ErrorKind::Io { source, .. } => match source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                "the directory and its files have to be writable"
            }
            io::ErrorKind::NotFound => "check the path",
            io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
                "give a directory such as data/orders-0"
            }
            _ => "",
        },
        ErrorKind::Locked { .. } => "stop that first; reading goes on beside it",
        _ => "",
    };
    if advice.is_empty() {
        error.to_string()
    } else {
        format!("{error}; {advice}")
    }
}

/// Prints help and version to `out`; turns clap's paragraphs about a mistake into one line.
pub(crate) fn report_usage(
    error: &clap::Error,
    out: &mut dyn Write,
    err: &mut dyn Write,
    terminal: &Terminal,
) -> i32 {
    let rendered = error.render();
    let asked = matches!(
        error.kind(),
        UsageKind::DisplayHelp | UsageKind::DisplayVersion
    );
    if asked || error.kind() == UsageKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let (stream, is_terminal, code): (&mut dyn Write, bool, i32) = if asked {
            (out, terminal.stdout_is_terminal, EXIT_FINE)
        } else {
            (err, terminal.stderr_is_terminal, EXIT_ERROR)
        };
        let text = if is_terminal && !terminal.no_color {
            rendered.ansi().to_string()
        } else {
            rendered.to_string()
        };
        // A reader that has gone, or a stream that is closed: nothing is left to say it to.
        let _ = stream
            .write_all(text.as_bytes())
            .and_then(|()| stream.flush());
        return code;
    }
    let line = escaped(&one_line(&rendered.to_string()));
    let _ = writeln!(err, "offsetlog: {line}");
    EXIT_ERROR
}

/// clap writes `error: ...`, an indented list, `tip: ...`, `Usage: ...` and a pointer to `--help`, in paragraphs.
fn one_line(text: &str) -> String {
    let mut sentences: Vec<String> = Vec::new();
    let mut usage = "offsetlog --help".to_owned();
    for paragraph in text.trim().split("\n\n") {
        let words = paragraph
            .lines()
            .map(str::trim)
            .collect::<Vec<_>>()
            .join(" ");
        if let Some(rest) = words.strip_prefix("Usage: ") {
            let verb = rest
                .split(' ')
                .nth(1)
                .filter(|word| word.chars().all(|c| c.is_ascii_lowercase()));
            if let Some(verb) = verb {
                usage = format!("offsetlog {verb} --help");
            }
        } else if !words.starts_with("For more information") {
            let sentence = words
                .strip_prefix("error: ")
                .or_else(|| words.strip_prefix("tip: "));
            sentences.push(sentence.unwrap_or(&words).to_owned());
        }
    }
    format!("{}; see '{usage}'", sentences.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(args: &[&str], expected: &str) {
        let error = crate::args::parse(args.iter().map(Into::into)).unwrap_err();
        assert_eq!(one_line(&error.render().to_string()), expected);
    }

    #[test]
    fn usage_mistakes_are_one_line_with_a_way_on() {
        check(
            &["offsetlog", "cat", "--ofset", "1"],
            "unexpected argument '--ofset' found; a similar argument exists: '--offset'; see 'offsetlog cat --help'",
        );
        check(
            &["offsetlog", "lss", "x"],
            "unrecognized subcommand 'lss'; a similar subcommand exists: 'ls'; see 'offsetlog --help'",
        );
        check(
            &["offsetlog", "cat"],
            "the following required arguments were not provided: <PATH>...; see 'offsetlog cat --help'",
        );
        check(
            &["offsetlog", "cat", "x", "-o", "stored"],
            "invalid value 'stored' for '--offset <OFFSET>': a log dir stores no position of yours; give an offset, or s@TIME; see 'offsetlog --help'",
        );
    }
}
