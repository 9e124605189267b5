//! Quotes text so that it is safe in a script for `sh`, whatever bytes it has.

use std::fmt::Write as _;

/// Whether a character may be in a script unescaped: it steers no terminal, ends no line, and reorders no text.
pub(crate) fn is_printable(character: char) -> bool {
    match character {
        ' '..='~' => true,
        _ if character.is_ascii() => false,
        _ => character.is_alphanumeric(),
    }
}

/// One argument: unchanged if no shell sees anything special in it, else in single quotes.
pub(crate) fn quoted(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_./:@%+,=-".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Appends a comment of one line.
pub(crate) fn comment(out: &mut String, text: &str) {
    out.push_str("# ");
    out.push_str(&shown(text));
    out.push('\n');
}

/// Text on one line, with escapes for what may not stand there.
pub(crate) fn shown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if is_printable(character) {
            out.push(character);
        } else {
            // Writing to a String cannot fail.
            let _ = write!(out, "\\u{{{:x}}}", u32::from(character));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shell_reads_is_quoted() {
        for (text, expected) in [
            ("a=b,c", "a=b,c"),
            ("", "''"),
            ("a b", "'a b'"),
            ("$(x) `y` \"z\" \\", "'$(x) `y` \"z\" \\'"),
            ("it's", "'it'\\''s'"),
            ("*", "'*'"),
            ("~", "'~'"),
            ("#", "'#'"),
        ] {
            assert_eq!(quoted(text), expected);
        }
    }

    #[test]
    fn a_comment_is_one_line() {
        let mut out = String::new();
        comment(&mut out, "a\nrm -rf \u{1b}[0m\u{202e}\u{2028}\u{85}é");
        assert_eq!(
            out,
            "# a\\u{a}rm -rf \\u{1b}[0m\\u{202e}\\u{2028}\\u{85}é\n"
        );
    }
}
