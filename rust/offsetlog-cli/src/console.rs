//! The two streams: data to one, talk to the other.

use crate::Terminal;
use crate::escape::escaped;
use std::io::{BufWriter, Write};

const BUFFER_BYTES: usize = 64 << 10;

/// Where data and talk go, and how they may look.
pub(crate) struct Console<'a> {
    pub(crate) out: BufWriter<&'a mut dyn Write>,
    err: &'a mut dyn Write,
    pub(crate) colour_out: bool,
    colour_err: bool,
    pub(crate) terminal: Terminal,
    pub(crate) quiet: bool,
}

impl<'a> Console<'a> {
    pub(crate) fn new(
        out: &'a mut dyn Write,
        err: &'a mut dyn Write,
        colour_out: bool,
        colour_err: bool,
        terminal: Terminal,
    ) -> Self {
        Self {
            out: BufWriter::with_capacity(BUFFER_BYTES, out),
            err,
            colour_out,
            colour_err,
            terminal,
            quiet: false,
        }
    }

    /// Reports an error, on one line.
    pub(crate) fn error(&mut self, text: &str) {
        self.say("offsetlog:", "\x1b[1;31m", text);
    }

    /// Reports something that the user should know and that ends nothing; nothing with `-q`.
    pub(crate) fn warn(&mut self, text: &str) {
        if !self.quiet {
            self.say("offsetlog: warning:", "\x1b[1;33m", text);
        }
    }

    /// Says what was done; nothing with `-q`.
    pub(crate) fn note(&mut self, text: &str) {
        if !self.quiet {
            self.say("offsetlog:", "\x1b[1m", text);
        }
    }

    /// Writes a line to standard error without a prefix: unchanged, or escaped on a terminal, which it must not steer.
    pub(crate) fn plain_error(&mut self, text: &str) {
        let line = if self.terminal.stderr_is_terminal {
            escaped(text) + "\n"
        } else {
            format!("{text}\n")
        };
        let _ = self.err.write_all(line.as_bytes());
        let _ = self.err.flush();
    }

    fn say(&mut self, lead: &str, colour: &str, text: &str) {
        let text = escaped(text);
        let line = if self.colour_err {
            format!("{colour}{lead}\x1b[0m {text}\n")
        } else {
            format!("{lead} {text}\n")
        };
        // Nobody is left to be told when standard error is closed.
        let _ = self.err.write_all(line.as_bytes());
        let _ = self.err.flush();
    }
}
