//! Numbers with what they count, for messages.

use core::fmt;

/// A number and what it counts: `1 record`, `2 records`.
///
/// ```
/// use offsetlog_format::counted;
///
/// assert_eq!(counted(1, "entry").to_string(), "1 entry");
/// assert_eq!(counted(0, "batch").to_string(), "0 batches");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted<'a, N> {
    count: N,
    noun: &'a str,
}

/// Returns a number with what it counts, for a message; `noun` is the word for one.
pub const fn counted<N>(count: N, noun: &str) -> Counted<'_, N> {
    Counted { count, noun }
}

impl<N: fmt::Display + PartialEq + From<u8>> fmt::Display for Counted<'_, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, noun } = self;
        if *count == N::from(1) {
            return write!(f, "{count} {noun}");
        }
        match noun.strip_suffix('y') {
            Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => write!(f, "{count} {stem}ies"),
            _ if noun.ends_with(['s', 'x']) || noun.ends_with("ch") => {
                write!(f, "{count} {noun}es")
            }
            _ => write!(f, "{count} {noun}s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::counted;
    use std::string::ToString;

    #[test]
    fn one_is_no_plural() {
        for (noun, one, many) in [
            ("record", "1 record", "2 records"),
            ("batch", "1 batch", "2 batches"),
            ("entry", "1 entry", "2 entries"),
            ("key", "1 key", "2 keys"),
            ("pass", "1 pass", "2 passes"),
            ("index", "1 index", "2 indexes"),
            ("log dir", "1 log dir", "2 log dirs"),
        ] {
            assert_eq!(counted(1_u64, noun).to_string(), one);
            assert_eq!(counted(2_i32, noun).to_string(), many);
        }
        assert_eq!(counted(0_usize, "byte").to_string(), "0 bytes");
        assert_eq!(counted(-1_i64, "byte").to_string(), "-1 bytes");
    }
}
