//! The format string of `cat -f`, with kcat's letters and escapes.

/// One piece of a format string.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Bytes of the format string itself, escapes resolved. They come from the user and are written as they are.
    Literal(Vec<u8>),
    /// `%t`
    Topic,
    /// `%p`
    Partition,
    /// `%o`
    Offset,
    /// `%T`: milliseconds since 1970, -1 where the record has none.
    Timestamp,
    /// `%k`
    Key,
    /// `%K`: bytes, -1 for null.
    KeySize,
    /// `%s`
    Value,
    /// `%S`: bytes, -1 for null.
    ValueSize,
    /// `%R`: bytes as a big-endian 32-bit integer, -1 for null.
    ValueSizeBinary,
    /// `%h`: `name=value,name=value`.
    Headers,
}

/// A parsed format string.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Template(pub(crate) Vec<Piece>);

impl Template {
    /// What kcat prints without `-f`: the value, before it the key if a key delimiter is given, after it the delimiter.
    pub(crate) fn of_delimiters(key_delimiter: Option<&[u8]>, delimiter: &[u8]) -> Self {
        let mut pieces = Vec::with_capacity(4);
        if let Some(key_delimiter) = key_delimiter {
            pieces.extend([Piece::Key, Piece::Literal(key_delimiter.to_vec())]);
        }
        pieces.extend([Piece::Value, Piece::Literal(delimiter.to_vec())]);
        Self(pieces)
    }

    /// Whether a binary length is printed, which frames raw bytes and nothing else.
    pub(crate) fn frames_bytes(&self) -> bool {
        self.0.contains(&Piece::ValueSizeBinary)
    }
}

impl std::str::FromStr for Template {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut literal = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find(['%', '\\']) {
            let (plain, tail) = rest.split_at(at);
            literal.extend_from_slice(plain.as_bytes());
            if tail.starts_with('\\') {
                let (byte, after) = unescape_one(tail)?;
                literal.extend_from_slice(byte.as_slice());
                rest = after;
                continue;
            }
            let mut characters = tail.chars();
            characters.next();
            let piece = match characters.next() {
                Some('t') => Piece::Topic,
                Some('p') => Piece::Partition,
                Some('o') => Piece::Offset,
                Some('T') => Piece::Timestamp,
                Some('k') => Piece::Key,
                Some('K') => Piece::KeySize,
                Some('s') => Piece::Value,
                Some('S') => Piece::ValueSize,
                Some('R') => Piece::ValueSizeBinary,
                Some('h') => Piece::Headers,
                Some('%') => {
                    literal.push(b'%');
                    rest = characters.as_str();
                    continue;
                }
                Some(other) => {
                    return Err(format!(
                        "%{other} is no letter of a format; there are %t %p %o %T %k %K %s %S %R %h %%"
                    ));
                }
                None => {
                    return Err(
                        "a % at the end stands for nothing; write %% for a percent sign".into(),
                    );
                }
            };
            if !literal.is_empty() {
                pieces.push(Piece::Literal(std::mem::take(&mut literal)));
            }
            pieces.push(piece);
            rest = characters.as_str();
        }
        literal.extend_from_slice(rest.as_bytes());
        if !literal.is_empty() {
            pieces.push(Piece::Literal(literal));
        }
        Ok(Self(pieces))
    }
}

/// Resolves the escapes of a delimiter (`-K`, `-D`).
pub(crate) fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        let (plain, tail) = rest.split_at(at);
        out.extend_from_slice(plain.as_bytes());
        let (bytes, after) = unescape_one(tail)?;
        out.extend_from_slice(&bytes);
        rest = after;
    }
    out.extend_from_slice(rest.as_bytes());
    Ok(out)
}

/// Resolves the escape that `text` begins with and returns what follows it.
///
/// Numbers are read as kcat reads them: `\x` hexadecimal, a leading zero octal, otherwise decimal. Any other character stands
/// for itself.
fn unescape_one(text: &str) -> Result<(Vec<u8>, &str), String> {
    let mut characters = text.chars();
    characters.next();
    let after_backslash = characters.as_str();
    let Some(letter) = characters.next() else {
        return Ok((b"\\".to_vec(), ""));
    };
    let after_letter = characters.as_str();
    Ok(match letter {
        'n' => (b"\n".to_vec(), after_letter),
        'r' => (b"\r".to_vec(), after_letter),
        't' => (b"\t".to_vec(), after_letter),
        'x' => number(after_letter, 16)?,
        '0' => number(after_backslash, 8)?,
        '1'..='9' => number(after_backslash, 10)?,
        other => (other.to_string().into_bytes(), after_letter),
    })
}

fn number(text: &str, radix: u32) -> Result<(Vec<u8>, &str), String> {
    let end = text
        .find(|c: char| !c.is_digit(radix))
        .unwrap_or(text.len());
    let end = end.min(if radix == 16 { 2 } else { 3 });
    let (number, after) = text.split_at(end);
    match u8::from_str_radix(number, radix) {
        Ok(byte) => Ok((vec![byte], after)),
        Err(_) => Err(format!(
            "the number {number:?} behind a backslash is not a byte, 0 to 255"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn literal(bytes: &[u8]) -> Piece {
        Piece::Literal(bytes.to_vec())
    }

    #[test]
    fn every_letter_of_kcat_is_read() {
        let template: Template = r"%t %p %o %T%k%K%s%S%R%h%%\n".parse().unwrap();
        assert_eq!(
            template.0,
            [
                Piece::Topic,
                literal(b" "),
                Piece::Partition,
                literal(b" "),
                Piece::Offset,
                literal(b" "),
                Piece::Timestamp,
                Piece::Key,
                Piece::KeySize,
                Piece::Value,
                Piece::ValueSize,
                Piece::ValueSizeBinary,
                Piece::Headers,
                literal(b"%\n"),
            ]
        );
        assert!(template.frames_bytes());
    }

    #[test]
    fn escapes_are_those_of_kcat() {
        assert_eq!(
            unescape(r"\t\r\n\x41\0\44\054\\\q\x7é").unwrap(),
            "\t\r\nA\0,,\\q\x07é".as_bytes()
        );
        assert_eq!(unescape("\\").unwrap(), b"\\");
        assert_eq!(unescape("é|").unwrap(), "é|".as_bytes());
    }

    #[test]
    fn mistakes_are_named() {
        assert!(
            "%q".parse::<Template>()
                .unwrap_err()
                .starts_with("%q is no letter")
        );
        assert!("50%".parse::<Template>().unwrap_err().contains("%%"));
        assert!(unescape(r"\x").is_err());
        assert!(unescape(r"\999").unwrap_err().contains("0 to 255"));
        assert!(r"\777".parse::<Template>().is_err());
    }

    #[test]
    fn delimiters_make_a_format() {
        assert_eq!(
            Template::of_delimiters(None, b"\n"),
            r"%s\n".parse().unwrap()
        );
        assert_eq!(
            Template::of_delimiters(Some(b":"), b"\0"),
            r"%k:%s\0".parse().unwrap()
        );
    }
}
