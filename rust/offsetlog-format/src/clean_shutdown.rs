//! The marker of a clean stop (FORMAT.md «Clean shutdown marker»).
//!
//! That the file is there is all that counts. What it holds since Kafka 3.7 only tells the broker's epoch.

use alloc::format;
use alloc::vec::Vec;

/// The broker epoch in a marker; `None` when the marker is empty, of another version or not understood, none of which is an
/// error.
#[must_use]
pub fn read_broker_epoch(bytes: &[u8]) -> Option<i64> {
    let mut rest = core::str::from_utf8(bytes).ok()?.trim_matches(is_blank);
    rest = rest.strip_prefix('{')?.strip_suffix('}')?;
    let (mut version, mut broker_epoch) = (None, None);
    for member in rest.split(',') {
        let (name, value) = member.split_once(':')?;
        let value = value.trim_matches(is_blank);
        // JSON has no sign but '-'.
        let value = value.parse().ok().filter(|_| !value.starts_with('+'));
        let field = match name.trim_matches(is_blank) {
            "\"version\"" => &mut version,
            "\"brokerEpoch\"" => &mut broker_epoch,
            _ => return None,
        };
        *field = Some(value?);
    }
    (version == Some(0_i64)).then_some(broker_epoch)?
}

const fn is_blank(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\n' | '\r')
}

/// Makes the bytes of a marker as Kafka 3.7 and newer write it. Older versions write an empty file.
#[must_use]
pub fn write_clean_shutdown(broker_epoch: i64) -> Vec<u8> {
    format!("{{\"version\":0,\"brokerEpoch\":{broker_epoch}}}").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_text_is_kafkas() {
        let text = br#"{"version":0,"brokerEpoch":42}"#;
        assert_eq!(write_clean_shutdown(42), text);
        assert_eq!(read_broker_epoch(text), Some(42));
        let other = b" { \"brokerEpoch\" : -1 ,\n\"version\":0 }\n";
        assert_eq!(read_broker_epoch(other), Some(-1));
    }

    /// Existence alone means clean, so nothing in the file may stop anybody.
    #[test]
    fn anything_else_only_loses_the_epoch() {
        for text in [
            "",
            "garbage",
            "{}",
            r#"{"version":1,"brokerEpoch":42}"#,
            r#"{"version":0}"#,
            r#"{"brokerEpoch":42}"#,
            r#"{"version":0,"brokerEpoch":"42"}"#,
            r#"{"version":0,"brokerEpoch":+42}"#,
            r#"{"version":0,"brokerEpoch":9223372036854775808}"#,
            r#"{"version":0,"brokerEpoch":42,"x":1}"#,
        ] {
            assert_eq!(read_broker_epoch(text.as_bytes()), None, "{text}");
        }
        assert_eq!(read_broker_epoch(b"\xff"), None);
    }

    proptest! {
        #[test]
        fn written_markers_read_back(epoch: i64) {
            prop_assert_eq!(read_broker_epoch(&write_clean_shutdown(epoch)), Some(epoch));
        }

        #[test]
        fn any_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..60), text in "\\{([a-z\":,0-9 ]|\"version\":0){0,9}\\}") {
            let _ = read_broker_epoch(&bytes);
            let _ = read_broker_epoch(text.as_bytes());
        }
    }
}
