//! The two checksums and what each covers (FORMAT.md «Checksums»).

use crate::error::{Algorithm, Fault, FormatError, Part};

/// CRC-32C (Castagnoli) of `bytes`: record batches of magic 2, from `attributes` to the end, and producer snapshots.
#[inline]
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// CRC-32C of `parts` one behind the other.
#[must_use]
pub fn crc32c_of(parts: &[&[u8]]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    for part in parts {
        digest.update(part);
    }
    digest.finalize() as u32
}

/// CRC-32 as in zlib of `bytes`: messages of magic 0 and 1, from `magic` to the end.
#[inline]
#[must_use]
pub fn crc32(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// Compares a stored checksum with that of `covered`.
///
/// # Errors
/// `Checksum` with both values; `at` is the byte of the stored one.
#[inline]
pub fn check(
    part: Part,
    at: usize,
    algorithm: Algorithm,
    stored: u32,
    covered: &[u8],
) -> Result<(), FormatError> {
    let computed = match algorithm {
        Algorithm::Crc32 => crc32(covered),
        Algorithm::Crc32c => crc32c(covered),
    };
    if stored == computed {
        Ok(())
    } else {
        Err(FormatError::new(
            part,
            at,
            Fault::Checksum {
                algorithm,
                stored,
                computed,
            },
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check values that every description of the two polynomials gives.
    #[test]
    fn check_values() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c_of(&[b"1234", b"", b"56789"]), 0xe306_9283);
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }
}
