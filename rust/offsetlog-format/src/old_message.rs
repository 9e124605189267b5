//! Messages of Kafka 0.7 and their compressed sets (FORMAT.md «Message of Kafka 0.7»).
//!
//! They have no offset and no key: a message is known by the position of its entry in the whole partition. Nothing writes them
//! any more. This module does not decompress.

use crate::attributes::Codec;
use crate::checksum;
use crate::cursor::Reader;
use crate::error::{Algorithm, Fault, FormatError, Part};
use alloc::vec::Vec;

/// The length in front of a message; it counts what follows it.
pub const OLD_LENGTH_BYTES: usize = 4;
/// Length, magic and checksum: the bytes before the payload under magic 0.
pub const OLD_HEADER_V0_BYTES: usize = 9;
/// The same with the attributes of magic 1.
pub const OLD_HEADER_V1_BYTES: usize = 10;

/// Bits of the attributes that say the codec.
const CODEC_BITS: u8 = 0x03;

/// An entry: the length and the message behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OldMessage<'a> {
    /// Whole size of the entry: the step to the next one.
    pub size_bytes: usize,
    /// 0 or 1.
    pub magic: i8,
    /// How the payload is compressed; with a codec it is a set of whole entries.
    pub codec: Codec,
    /// Checksum of the payload, as stored.
    pub crc: u32,
    /// The value, or the compressed set.
    pub payload: &'a [u8],
}

/// Whole size of the entry at the front of `bytes`, of which only the length need be there.
///
/// # Errors
/// `Truncated`: fewer than [`OLD_LENGTH_BYTES`]. `Length`: below what magic and checksum take.
#[inline]
pub fn old_entry_size(bytes: &[u8]) -> Result<usize, FormatError> {
    let length = Reader::new(bytes, Part::OldMessage).read_i32()?;
    if length < MINIMUM {
        return Err(bad_length(length, MINIMUM));
    }
    Ok(OLD_LENGTH_BYTES + length as usize)
}

/// Smallest length of any entry.
const MINIMUM: i32 = (OLD_HEADER_V0_BYTES - OLD_LENGTH_BYTES) as i32;

const fn bad_length(found: i32, minimum: i32) -> FormatError {
    FormatError::new(
        Part::OldMessage,
        0,
        Fault::Length {
            found: found as i64,
            minimum: minimum as i64,
            maximum: i32::MAX as i64,
        },
    )
}

impl<'a> OldMessage<'a> {
    /// Reads the entry at the front of `bytes`; the checksum is checked by [`check_crc`](Self::check_crc).
    ///
    /// # Errors
    /// * `Length`, `Truncated`: the entry is not wholly there.
    /// * `Version`: a magic above 1, or below 0.
    /// * `Codec`: 3, which 0.7 does not know. Other bits of the attributes are not looked at.
    ///
    /// Source: FORMAT.md «Message of Kafka 0.7».
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, FormatError> {
        let size_bytes = old_entry_size(bytes)?;
        let whole = whole(bytes, size_bytes)?;
        let mut reader = Reader::new(whole, Part::OldMessage);
        reader.bytes(OLD_LENGTH_BYTES)?;
        let magic = reader.read_i8()?;
        let codec = match magic {
            0 => Codec::None,
            1 if size_bytes < OLD_HEADER_V1_BYTES => {
                return Err(bad_length(MINIMUM, MINIMUM + 1));
            }
            1 => match reader.read_u8()? & CODEC_BITS {
                0 => Codec::None,
                1 => Codec::Gzip,
                2 => Codec::Snappy,
                found => {
                    return Err(FormatError::new(
                        Part::OldMessage,
                        OLD_LENGTH_BYTES + 1,
                        Fault::Codec { found },
                    ));
                }
            },
            found => {
                return Err(FormatError::new(
                    Part::OldMessage,
                    OLD_LENGTH_BYTES,
                    Fault::Version {
                        found: i64::from(found),
                        maximum: 1,
                    },
                ));
            }
        };
        Ok(Self {
            size_bytes,
            magic,
            codec,
            crc: reader.read_u32()?,
            payload: whole.get(reader.position()..).unwrap_or(&[]),
        })
    }

    /// Checks the checksum, which covers the payload only: magic and attributes are unprotected.
    ///
    /// # Errors
    /// `Checksum`.
    #[inline]
    pub fn check_crc(&self) -> Result<(), FormatError> {
        let at = OLD_LENGTH_BYTES + if self.magic == 0 { 1 } else { 2 };
        checksum::check(
            Part::OldMessage,
            at,
            Algorithm::Crc32,
            self.crc,
            self.payload,
        )
    }
}

fn whole(bytes: &[u8], size_bytes: usize) -> Result<&[u8], FormatError> {
    bytes.get(..size_bytes).ok_or(FormatError::new(
        Part::OldMessage,
        0,
        Fault::Truncated {
            needed: size_bytes,
            available: bytes.len(),
        },
    ))
}

/// Whether the entry at the front of `bytes` has the right checksum under one of the two layouts, whatever its magic says: such an
/// entry was written to its end. One without payload says nothing, as its checksum is 0.
#[must_use]
pub fn is_whole_old_entry(bytes: &[u8]) -> bool {
    let Ok(entry) = old_entry_size(bytes).and_then(|size| whole(bytes, size)) else {
        return false;
    };
    [OLD_HEADER_V0_BYTES, OLD_HEADER_V1_BYTES]
        .into_iter()
        .any(|header| {
            let stored = entry.get(header - 4..header);
            let payload = entry.get(header..).unwrap_or(&[]);
            !payload.is_empty() && stored == Some(&checksum::crc32(payload).to_be_bytes())
        })
}

/// Iterates the entries of a decompressed set. All of its bytes are entries and each checksum is right, or there is an error.
#[derive(Debug, Clone)]
pub struct OldMessages<'a> {
    set: &'a [u8],
    position: usize,
}

impl<'a> OldMessages<'a> {
    /// Starts at the first entry of `set`.
    #[must_use]
    pub const fn new(set: &'a [u8]) -> Self {
        Self { set, position: 0 }
    }

    /// Decodes the next entry; `None` at the end.
    ///
    /// # Errors
    /// Those of [`OldMessage::parse`], `Checksum`; `at` counts from the start of the set.
    pub fn next_message(&mut self) -> Result<Option<OldMessage<'a>>, FormatError> {
        let rest = self.set.get(self.position..).unwrap_or(&[]);
        if rest.is_empty() {
            return Ok(None);
        }
        let at = self.position;
        let message = OldMessage::parse(rest)
            .and_then(|message| message.check_crc().map(|()| message))
            .map_err(|error| FormatError::new(Part::MessageSet, at + error.at, error.fault))?;
        self.position += message.size_bytes;
        Ok(Some(message))
    }
}

/// Appends one entry of magic 0 or 1, checksum included. With a codec other than none, `payload` is the compressed set.
pub fn write_old_message(out: &mut Vec<u8>, magic: i8, codec: Codec, payload: &[u8]) {
    let header = if magic == 0 {
        OLD_HEADER_V0_BYTES
    } else {
        OLD_HEADER_V1_BYTES
    };
    let length = (header - OLD_LENGTH_BYTES + payload.len()) as i32;
    out.extend_from_slice(&length.to_be_bytes());
    out.push(magic as u8);
    if magic != 0 {
        out.push(codec as u8);
    }
    out.extend_from_slice(&checksum::crc32(payload).to_be_bytes());
    out.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    /// By hand from the layout; the checksums are those of zlib over `v1` and over nothing.
    const PLAIN_V0: [u8; 11] = *b"\x00\x00\x00\x07\x00\x69\x62\xcc\xb5\x76\x31";
    const PLAIN_V1: [u8; 12] = *b"\x00\x00\x00\x08\x01\x00\x69\x62\xcc\xb5\x76\x31";

    #[test]
    fn both_layouts_are_read_and_written() {
        for (bytes, magic) in [(PLAIN_V0.as_slice(), 0), (PLAIN_V1.as_slice(), 1)] {
            let message = OldMessage::parse(bytes).unwrap();
            message.check_crc().unwrap();
            assert_eq!(
                (message.magic, message.codec, message.payload),
                (magic, Codec::None, b"v1".as_slice())
            );
            assert_eq!(message.size_bytes, bytes.len());
            let mut written = Vec::new();
            write_old_message(&mut written, magic, Codec::None, b"v1");
            assert_eq!(written, bytes);
        }
    }

    #[test]
    fn an_empty_payload_is_legal() {
        for bytes in [
            b"\x00\x00\x00\x05\x00\x00\x00\x00\x00".as_slice(),
            b"\x00\x00\x00\x06\x01\x00\x00\x00\x00\x00".as_slice(),
        ] {
            let message = OldMessage::parse(bytes).unwrap();
            message.check_crc().unwrap();
            assert_eq!(
                (message.payload, message.size_bytes),
                (&[][..], bytes.len())
            );
        }
    }

    #[test]
    fn codecs_are_the_low_two_bits_of_the_attributes() {
        for (attributes, codec) in [
            (0, Codec::None),
            (1, Codec::Gzip),
            (2, Codec::Snappy),
            (0xfd, Codec::Gzip),
        ] {
            let mut bytes = PLAIN_V1;
            bytes[5] = attributes;
            let message = OldMessage::parse(&bytes).unwrap();
            message.check_crc().unwrap();
            assert_eq!(message.codec, codec, "{attributes}");
        }
    }

    fn fault(bytes: &[u8]) -> (usize, Fault) {
        let error = OldMessage::parse(bytes)
            .and_then(|message| message.check_crc())
            .unwrap_err();
        assert_eq!(error.part, Part::OldMessage);
        (error.at, error.fault)
    }

    #[test]
    fn what_is_wrong_is_named() {
        let with = |at: usize, byte: u8| {
            let mut bytes = PLAIN_V1;
            bytes[at] = byte;
            bytes
        };
        let found = |found| Fault::Version { found, maximum: 1 };
        assert_eq!(fault(&with(4, 2)), (4, found(2)));
        assert_eq!(fault(&with(4, 0xff)), (4, found(-1)));
        assert_eq!(fault(&with(5, 3)), (5, Fault::Codec { found: 3 }));
        let length = |found, minimum| Fault::Length {
            found,
            minimum,
            maximum: 0x7fff_ffff,
        };
        assert_eq!(fault(&with(3, 4)), (0, length(4, 5)));
        assert_eq!(fault(&with(0, 0x80)), (0, length(-0x7fff_fff8, 5)));
        assert_eq!(fault(&[0, 0, 0, 5, 1, 0, 0, 0, 0]), (0, length(5, 6)));
        let cut = |needed, available| Fault::Truncated { needed, available };
        assert_eq!(fault(&PLAIN_V1[..11]), (0, cut(12, 11)));
        assert_eq!(fault(&PLAIN_V1[..3]), (0, cut(4, 3)));
        assert!(matches!(
            fault(&with(11, b'2')),
            (6, Fault::Checksum { .. })
        ));
        assert!(matches!(
            fault(&{
                let mut bytes = PLAIN_V0;
                bytes[5] ^= 1;
                bytes
            }),
            (5, Fault::Checksum { .. })
        ));
    }

    #[test]
    fn an_entry_with_a_strange_magic_was_written_to_its_end() {
        let mut bytes = PLAIN_V1;
        bytes[4] = 9;
        assert!(is_whole_old_entry(&bytes));
        assert!(is_whole_old_entry(&PLAIN_V0));
        bytes[11] ^= 1;
        assert!(!is_whole_old_entry(&bytes));
        assert!(!is_whole_old_entry(&PLAIN_V1[..11]));
        assert!(!is_whole_old_entry(&[0, 0, 0, 5, 0, 0, 0, 0, 0]));
    }

    fn all(set: &[u8]) -> Result<Vec<(i8, &[u8])>, FormatError> {
        let mut messages = OldMessages::new(set);
        let mut found = Vec::new();
        while let Some(message) = messages.next_message()? {
            found.push((message.magic, message.payload));
        }
        Ok(found)
    }

    #[test]
    fn a_set_is_whole_or_an_error() {
        let set = [PLAIN_V0.as_slice(), &PLAIN_V1].concat();
        assert_eq!(
            all(&set),
            Ok(vec![(0, b"v1".as_slice()), (1, b"v1".as_slice())])
        );
        assert_eq!(all(&[]), Ok(vec![]));
        for end in 1..set.len() {
            assert_eq!(all(&set[..end]).is_ok(), end == PLAIN_V0.len(), "{end}");
        }
        let error = all(&[set.as_slice(), &[0]].concat()).unwrap_err();
        assert_eq!((error.part, error.at), (Part::MessageSet, set.len()));
    }

    /// Every byte of a set put to every value: an error, or messages that fit into it; never a panic.
    #[test]
    fn hostile_bytes_end_in_errors() {
        let set = [PLAIN_V0.as_slice(), &PLAIN_V1, &PLAIN_V1].concat();
        let (mut refused, mut read) = (0, 0);
        for at in 0..set.len() {
            for byte in 0..=u8::MAX {
                let mut bytes = set.clone();
                bytes[at] = byte;
                let _ = is_whole_old_entry(&bytes);
                match all(&bytes) {
                    Ok(found) => {
                        assert!(found.len() <= bytes.len() / OLD_HEADER_V0_BYTES);
                        read += 1;
                    }
                    Err(error) => {
                        assert!(error.at < bytes.len());
                        refused += 1;
                    }
                }
            }
        }
        assert!(refused > 20 * read && read > 0, "{refused} {read}");
    }
}
