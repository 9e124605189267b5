//! Ids of 16 bytes as Kafka writes them: 22 characters of base64url (FORMAT.md «Ids»).

use crate::error::{Fault, FormatError, Part};
use core::fmt;
use core::str::FromStr;

/// Bytes of an id.
pub const UUID_BYTES: usize = 16;
/// Characters of an id as text, without padding.
pub const UUID_CHARACTERS: usize = 22;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The id of a topic, a log directory or a voter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Uuid([u8; UUID_BYTES]);

impl Uuid {
    /// All zeros: Kafka's «no id». Never the id of a topic.
    pub const ZERO: Self = Self([0; UUID_BYTES]);
    /// The id of the metadata log's topic, `__cluster_metadata`.
    pub const METADATA_TOPIC: Self = Self([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);

    /// Takes the bytes as they are stored, most significant first.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; UUID_BYTES]) -> Self {
        Self(bytes)
    }

    /// The bytes, most significant first.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; UUID_BYTES] {
        self.0
    }

    /// Whether this is [`ZERO`](Self::ZERO).
    #[must_use]
    pub fn is_zero(self) -> bool {
        self == Self::ZERO
    }

    /// Reads 22 characters of base64url, with or without the two `=` of padding.
    ///
    /// The last character holds four bits too many. They are dropped whatever they are, as Java's decoder does; what is written
    /// again has them cleared.
    ///
    /// # Errors
    /// `Length` for any other number of characters; `Rule` for a character outside the alphabet. `at` is the byte of `text`.
    pub fn parse(text: &str) -> Result<Self, FormatError> {
        let digits = text.strip_suffix("==").unwrap_or(text).as_bytes();
        if digits.len() != UUID_CHARACTERS {
            return Err(FormatError::new(
                Part::Uuid,
                0,
                Fault::Length {
                    found: digits.len() as i64,
                    minimum: UUID_CHARACTERS as i64,
                    maximum: UUID_CHARACTERS as i64,
                },
            ));
        }
        let mut value = 0_u128;
        for (at, &digit) in digits.iter().enumerate() {
            let Some(six_bits) = ALPHABET.iter().position(|&letter| letter == digit) else {
                return Err(FormatError::new(
                    Part::Uuid,
                    at,
                    Fault::Rule("an id has letters, digits, '-' and '_' only"),
                ));
            };
            value = if at + 1 < UUID_CHARACTERS {
                value << 6 | six_bits as u128
            } else {
                value << 2 | six_bits as u128 >> 4
            };
        }
        Ok(Self(value.to_be_bytes()))
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write as _;
        let value = u128::from_be_bytes(self.0);
        for place in 0..UUID_CHARACTERS as u32 {
            let six_bits = match 122_u32.checked_sub(6 * place) {
                Some(shift) => value >> shift,
                None => value << 4,
            };
            let letter = ALPHABET.get((six_bits & 0x3f) as usize).unwrap_or(&b'A');
            f.write_char(char::from(*letter))?;
        }
        Ok(())
    }
}

impl FromStr for Uuid {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::ToString;

    /// Bytes and text as a broker of Kafka 4.3.0 pairs them.
    #[test]
    fn text_and_bytes_of_a_real_topic_id() {
        let bytes = 0x3162_7a14_74df_458c_baee_3cf0_65d7_aa49_u128.to_be_bytes();
        let id = Uuid::parse("MWJ6FHTfRYy67jzwZdeqSQ").unwrap();
        assert_eq!(id.to_bytes(), bytes);
        assert_eq!(
            Uuid::from_bytes(bytes).to_string(),
            "MWJ6FHTfRYy67jzwZdeqSQ"
        );
        assert_eq!(Uuid::parse("MWJ6FHTfRYy67jzwZdeqSQ=="), Ok(id));
        assert_eq!(Uuid::METADATA_TOPIC.to_string(), "AAAAAAAAAAAAAAAAAAAAAQ");
        assert!("AAAAAAAAAAAAAAAAAAAAAA".parse::<Uuid>().unwrap().is_zero());
    }

    #[test]
    fn surplus_bits_of_the_last_character_are_dropped() {
        assert_eq!(
            Uuid::parse("MWJ6FHTfRYy67jzwZdeqSf").unwrap().to_string(),
            "MWJ6FHTfRYy67jzwZdeqSQ"
        );
    }

    #[test]
    fn wrong_length_and_wrong_letters_are_refused() {
        for text in [
            "",
            "MWJ6FHTfRYy67jzwZdeqS",
            "MWJ6FHTfRYy67jzwZdeqSQ=",
            "MWJ6FHTfRYy67jzwZdeqSQA",
        ] {
            let error = Uuid::parse(text).unwrap_err();
            assert!(matches!(error.fault, Fault::Length { .. }), "{text}");
        }
        let error = Uuid::parse("MWJ6+HTfRYy67jzwZdeqSQ").unwrap_err();
        assert_eq!(error.at, 4);
        assert!(Uuid::parse("é234567890123456789012").is_err());
    }

    proptest! {
        #[test]
        fn text_of_any_bytes_reads_back(bytes: [u8; 16]) {
            let id = Uuid::from_bytes(bytes);
            prop_assert_eq!(Uuid::parse(&id.to_string()), Ok(id));
        }

        #[test]
        fn any_text_never_panics(text in ".{0,30}") {
            let _ = Uuid::parse(&text);
        }
    }
}
