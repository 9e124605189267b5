//! The checksums and what each covers (FORMAT.md «Checksums»).

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

/// CRC-64/NVME of bytes that come part by part: tells whether a file is what was written. No format of Kafka's has it.
#[derive(Clone)]
pub struct Crc64(crc_fast::Digest);

impl core::fmt::Debug for Crc64 {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Crc64({:016x})", self.value())
    }
}

impl Default for Crc64 {
    fn default() -> Self {
        Self(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc64Nvme))
    }
}

impl Crc64 {
    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum of all that was added.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.finalize()
    }
}

/// Adler-32 as in zlib: ZooKeeper's files.
#[derive(Debug, Clone)]
pub struct Adler32 {
    low: u32,
    high: u32,
}

impl Default for Adler32 {
    fn default() -> Self {
        Self { low: 1, high: 0 }
    }
}

impl Adler32 {
    const MODULUS: u32 = 65_521;
    /// This many bytes do not overflow.
    const AT_ONCE: usize = 5552;

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(Self::AT_ONCE) {
            for &byte in part {
                self.low += u32::from(byte);
                self.high += self.low;
            }
            self.low %= Self::MODULUS;
            self.high %= Self::MODULUS;
        }
    }

    /// The checksum of all that was added.
    #[must_use]
    pub const fn value(&self) -> u32 {
        self.high << 16 | self.low
    }
}

/// The checksum of bytes that come part by part: `read` is called once, with what takes them.
///
/// # Errors
/// Those of `read`.
pub fn of_parts<E>(
    algorithm: Algorithm,
    read: impl FnOnce(&mut dyn FnMut(&[u8])) -> Result<(), E>,
) -> Result<u32, E> {
    match algorithm {
        Algorithm::Adler32 => {
            let mut sum = Adler32::default();
            read(&mut |part: &[u8]| sum.update(part))?;
            Ok(sum.value())
        }
        Algorithm::Crc32 => {
            let mut sum = crc32fast::Hasher::new();
            read(&mut |part: &[u8]| sum.update(part))?;
            Ok(sum.finalize())
        }
        Algorithm::Crc32c => {
            let mut sum = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
            read(&mut |part: &[u8]| sum.update(part))?;
            Ok(sum.finalize() as u32)
        }
    }
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
        Algorithm::Adler32 => {
            let mut sum = Adler32::default();
            sum.update(covered);
            sum.value()
        }
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
        let mut sum = Adler32::default();
        sum.update(b"1234");
        sum.update(b"56789");
        assert_eq!(sum.value(), 0x091e_01de);
        assert!(
            check(
                Part::ZooKeeperLog,
                0,
                Algorithm::Adler32,
                0x091e_01de,
                b"123456789"
            )
            .is_ok()
        );
    }

    #[test]
    fn parts_have_the_checksum_of_the_whole() {
        for (algorithm, value) in [
            (Algorithm::Crc32c, 0xe306_9283),
            (Algorithm::Crc32, 0xcbf4_3926),
            (Algorithm::Adler32, 0x091e_01de),
        ] {
            let found = of_parts::<()>(algorithm, |take| {
                take(b"1234");
                take(b"");
                take(b"56789");
                Ok(())
            });
            assert_eq!(found, Ok(value));
            assert_eq!(of_parts(algorithm, |_| Err("no disk")), Err("no disk"));
        }
    }

    /// Sums that are as great as they can be before they are made small: 20,000 times 255, by zlib.
    #[test]
    fn great_sums_do_not_overflow() {
        let mut sum = Adler32::default();
        for _ in 0..2 {
            sum.update(&[0xff; 10_000]);
        }
        assert_eq!(sum.value(), 0x9f51_d664);
    }
}
