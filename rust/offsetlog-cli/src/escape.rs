//! Bytes from a log on a terminal: what could steer it is written as an escape.
//!
//! Escaped are control characters (C0, DEL, C1), characters that reorder or hide text (bidirectional controls, line and
//! paragraph separators, the byte order mark, interlinear and tag characters) and bytes that are not UTF-8. A backslash is
//! left alone, so JSON in a value stays JSON; the exact form of a value is `--json`, `--value-format` or `--raw`.

use std::io::{self, Write};

/// Whether a character must not reach a terminal as it is.
pub(crate) const fn is_unsafe(character: char) -> bool {
    matches!(
        character,
        '\0'..='\x1f'
            | '\x7f'..='\u{9f}'
            | '\u{61c}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

/// Whether all bytes are printable ASCII, which most keys and values are: one pass that the compiler vectorises.
pub(crate) fn is_plain(bytes: &[u8]) -> bool {
    bytes
        .iter()
        .fold(true, |plain, byte| plain & matches!(byte, b' '..=b'~'))
}

/// Writes `bytes` as one line of text that is safe on a terminal.
///
/// `\n`, `\r` and `\t` stand for themselves, `\xNN` for another ASCII control character or for a byte that is not UTF-8,
/// `\u{N}` for any other character that is escaped.
pub(crate) fn write_escaped<W: Write + ?Sized>(out: &mut W, bytes: &[u8]) -> io::Result<()> {
    if is_plain(bytes) {
        return out.write_all(bytes);
    }
    for chunk in bytes.utf8_chunks() {
        let mut rest = chunk.valid();
        while let Some(at) = rest.find(is_unsafe) {
            let (plain, tail) = rest.split_at(at);
            out.write_all(plain.as_bytes())?;
            let mut characters = tail.chars();
            match characters.next() {
                Some('\n') => out.write_all(b"\\n")?,
                Some('\r') => out.write_all(b"\\r")?,
                Some('\t') => out.write_all(b"\\t")?,
                Some(ascii) if ascii.is_ascii() => write!(out, "\\x{:02x}", u32::from(ascii))?,
                Some(other) => write!(out, "\\u{{{:x}}}", u32::from(other))?,
                None => {}
            }
            rest = characters.as_str();
        }
        out.write_all(rest.as_bytes())?;
        for byte in chunk.invalid() {
            write!(out, "\\x{byte:02x}")?;
        }
    }
    Ok(())
}

/// The same as a string, for names and messages.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    match write_escaped(&mut out, text.as_bytes()) {
        Ok(()) => String::from_utf8_lossy(&out).into_owned(),
        Err(_) => String::new(), // a Vec takes every write
    }
}

/// Text that is safe to print, if there is any.
pub(crate) fn shown(text: &str) -> Option<String> {
    Some(escaped(text)).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], expected: &str) {
        let mut out = Vec::new();
        write_escaped(&mut out, bytes).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn printable_text_passes_unchanged() {
        check(b"", "");
        check(b"order-7 {\"a\":\"b\\\"c\"}", "order-7 {\"a\":\"b\\\"c\"}");
        check(
            "naïve-ключ 🦀 \u{200d}".as_bytes(),
            "naïve-ключ 🦀 \u{200d}",
        );
    }

    #[test]
    fn one_record_stays_one_line() {
        check(b"a\nb\rc\td", "a\\nb\\rc\\td");
        check("x\u{2028}y\u{85}z".as_bytes(), "x\\u{2028}y\\u{85}z");
    }

    /// An escape sequence that changes a terminal's title, and the one-character form of its introducer.
    #[test]
    fn sequences_that_steer_a_terminal_are_shown() {
        check(b"\x1b]0;owned\x07", "\\x1b]0;owned\\x07");
        check("\u{9b}31m".as_bytes(), "\\u{9b}31m");
        check(b"\x9b31m", "\\x9b31m");
        check(b"\x08\x7f\0", "\\x08\\x7f\\x00");
    }

    #[test]
    fn text_that_hides_or_reorders_is_shown() {
        check(
            "a\u{202e}b\u{2066}c\u{2069}".as_bytes(),
            "a\\u{202e}b\\u{2066}c\\u{2069}",
        );
        check("\u{feff}\u{e0041}".as_bytes(), "\\u{feff}\\u{e0041}");
    }

    #[test]
    fn bytes_that_are_not_utf8_are_shown_one_by_one() {
        check(b"ok\xff\xfe\xc3(", "ok\\xff\\xfe\\xc3(");
        check(b"cut \xf0\x9f\xa6", "cut \\xf0\\x9f\\xa6");
    }
}
