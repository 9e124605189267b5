//! Bounds-checked big-endian reading: the only place that cuts slices by hand.

use crate::error::{Fault, FormatError, Part};

/// Reads big-endian values from the front of a slice and remembers how far it came.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
    part: Part,
}

macro_rules! read_integer {
    ($name:ident, $type:ty, $doc:literal) => {
        #[doc = $doc]
        ///
        /// # Errors
        /// `Truncated` when fewer bytes are left.
        #[inline(always)]
        #[allow(
            clippy::inline_always,
            reason = "a dozen calls a header; each folds into one load where the length is known"
        )]
        pub fn $name(&mut self) -> Result<$type, FormatError> {
            Ok(<$type>::from_be_bytes(self.array()?))
        }
    };
}

impl<'a> Reader<'a> {
    /// Starts at the front of `bytes`; errors name `part`.
    #[inline]
    #[must_use]
    pub const fn new(bytes: &'a [u8], part: Part) -> Self {
        Self {
            bytes,
            position: 0,
            part,
        }
    }

    /// Bytes read so far.
    #[inline]
    #[must_use]
    pub const fn position(&self) -> usize {
        self.position
    }

    /// Bytes left.
    #[inline]
    #[must_use]
    pub const fn remaining(&self) -> usize {
        self.bytes.len() - self.position
    }

    /// The bytes left, without reading them.
    #[inline]
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.position..).unwrap_or(&[])
    }

    /// An error at the present place.
    #[inline]
    #[must_use]
    pub const fn error(&self, fault: Fault) -> FormatError {
        FormatError::new(self.part, self.position, fault)
    }

    /// Reads `N` bytes.
    ///
    /// # Errors
    /// `Truncated` when fewer bytes are left.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "see the integers below")]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], FormatError> {
        match self.rest().first_chunk::<N>() {
            Some(chunk) => {
                self.position += N;
                Ok(*chunk)
            }
            None => Err(self.truncated(N)),
        }
    }

    #[cold]
    #[inline(never)]
    const fn truncated(&self, needed: usize) -> FormatError {
        self.error(Fault::Truncated {
            needed,
            available: self.remaining(),
        })
    }

    /// Reads `count` bytes without copying them.
    ///
    /// # Errors
    /// `Truncated` when fewer bytes are left.
    #[inline]
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], FormatError> {
        match self.rest().get(..count) {
            Some(slice) => {
                self.position += count;
                Ok(slice)
            }
            None => Err(self.truncated(count)),
        }
    }

    read_integer!(read_u8, u8, "Reads one byte.");
    read_integer!(read_i8, i8, "Reads one signed byte.");
    read_integer!(read_i16, i16, "Reads a 2-byte integer.");
    read_integer!(read_u16, u16, "Reads a 2-byte unsigned integer.");
    read_integer!(read_i32, i32, "Reads a 4-byte integer.");
    read_integer!(read_u32, u32, "Reads a 4-byte unsigned integer.");
    read_integer!(read_i64, i64, "Reads an 8-byte integer.");
}
