//! Lines of text files as Java's readers split them.

use crate::error::{Fault, FormatError, Part};

/// A line without its end, where it starts and its number from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    pub(crate) text: &'a str,
    pub(crate) at: usize,
    pub(crate) number: usize,
}

impl Line<'_> {
    /// An error that names this line.
    pub(crate) const fn error(&self, part: Part, rule: &'static str) -> FormatError {
        let fault = Fault::Line {
            line: self.number,
            rule,
        };
        FormatError::new(part, self.at, fault)
    }
}

/// Splits at LF, CR and CR LF. An end at the end of the text starts no further line.
#[derive(Debug, Clone)]
pub(crate) struct Lines<'a> {
    rest: &'a str,
    at: usize,
    number: usize,
}

impl<'a> Lines<'a> {
    pub(crate) const fn new(text: &'a str) -> Self {
        Self {
            rest: text,
            at: 0,
            number: 0,
        }
    }

    /// Starts at the front of `bytes`, which must be UTF-8.
    pub(crate) fn utf8(part: Part, bytes: &'a [u8]) -> Result<Self, FormatError> {
        core::str::from_utf8(bytes).map(Self::new).map_err(|error| {
            let at = error.valid_up_to();
            let before = bytes.get(..at).unwrap_or(&[]);
            let line = 1 + before.split(|&byte| byte == b'\n').skip(1).count();
            let rule = "the text is not UTF-8";
            FormatError::new(part, at, Fault::Line { line, rule })
        })
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = Line<'a>;

    fn next(&mut self) -> Option<Line<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        let (text, after) = match self.rest.split_once(['\n', '\r']) {
            Some((text, after)) if self.rest.as_bytes().get(text.len()) == Some(&b'\r') => {
                (text, after.strip_prefix('\n').unwrap_or(after))
            }
            Some(split) => split,
            None => (self.rest, ""),
        };
        let at = self.at;
        self.at += self.rest.len() - after.len();
        self.rest = after;
        self.number += 1;
        Some(Line {
            text,
            at,
            number: self.number,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn lines_end_as_javas_do() {
        let lines: Vec<_> = Lines::new("a\nb\r\nc\rd\n\ne")
            .map(|line| (line.text, line.at, line.number))
            .collect();
        assert_eq!(
            lines,
            [
                ("a", 0, 1),
                ("b", 2, 2),
                ("c", 5, 3),
                ("d", 7, 4),
                ("", 9, 5),
                ("e", 10, 6)
            ]
        );
        assert_eq!(Lines::new("").count(), 0);
        assert_eq!(Lines::new("\n").count(), 1);
        assert_eq!(Lines::new("a\n").count(), 1);
    }
}
