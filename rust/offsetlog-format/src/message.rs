//! Kafka's messages as tables, one decoder and one encoder for all of them (FORMAT.md «Internal topics», «Protocol»).
//!
//! A [`Message`] is a name and its fields, each with the versions that have it. [`Message::read`] turns bytes into a [`Struct`] of
//! [`Value`]s that borrow from them, [`Message::write`] turns a [`Struct`] into bytes. `internal_topic` knows which message is in which
//! record; `protocol` knows which one is a request or its response.
//!
//! Kafka has two encodings. In the older one a text has a length of two bytes, bytes and arrays have one of four. From a message's
//! *flexible* version on lengths are unsigned variable-length integers of the length plus one, and each structure ends with tagged
//! fields, of which those that are not known are skipped.

pub mod consumer_protocol;
mod decoder;
mod encoder;
pub mod groups;
pub mod metadata;
pub mod quorum;
pub mod share_groups;
pub mod share_state;
pub mod streams_groups;
pub mod transactions;
mod value;

pub use encoder::Hole;
pub use value::{Struct, Value};

pub(crate) use decoder::read_unsigned;

use crate::cursor::Reader;
use crate::error::{Fault, FormatError, Part};
use alloc::vec::Vec;

/// Maximum number of values decoded from one message. Also bounds what a false element count can make of a record.
pub const MAX_VALUES: usize = 1 << 20;

/// Most bytes of a text, as in Kafka.
pub(crate) const MAX_TEXT_BYTES: usize = 0x7fff;

/// The flexible version of a message that has none.
pub(crate) const NEVER: i16 = i16::MAX;

/// What a field holds.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// One byte, 0 or not.
    Bool,
    /// One byte.
    Int8,
    /// Two bytes.
    Int16,
    /// Two bytes without a sign.
    Uint16,
    /// Four bytes.
    Int32,
    /// Eight bytes.
    Int64,
    /// A double of eight bytes.
    Float64,
    /// Sixteen bytes.
    Uuid,
    /// Text, UTF-8 if its writer kept to the rules.
    Text,
    /// Bytes.
    Bytes,
    /// Record batches. They are read as bytes.
    Records,
    /// An array.
    Array(&'static Self),
    /// An array of structures.
    Structs(&'static [Field]),
    /// A structure.
    Struct(&'static [Field]),
}

impl Kind {
    /// What a field is if its schema names no default.
    const fn unset(self) -> Unset {
        match self {
            Self::Bool
            | Self::Int8
            | Self::Int16
            | Self::Uint16
            | Self::Int32
            | Self::Int64
            | Self::Float64 => Unset::Int(0),
            Self::Uuid => Unset::Uuid,
            Self::Text | Self::Bytes | Self::Array(_) | Self::Structs(_) => Unset::Empty,
            Self::Records => Unset::Null,
            Self::Struct(_) => Unset::Struct,
        }
    }
}

/// The value of a field that was given none.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Unset {
    Null,
    /// Of a truth value: 0 is false.
    Int(i64),
    /// No element or no byte.
    Empty,
    /// Zeros.
    Uuid,
    /// A structure of fields that are all unset.
    Struct,
}

impl Unset {
    /// The value of a field of this kind.
    const fn value(self, kind: Kind) -> Value<'static> {
        match (self, kind) {
            (Self::Int(number), Kind::Bool) => Value::Bool(number != 0),
            (Self::Int(_), Kind::Float64) => Value::Float(0.0),
            (Self::Int(number), _) => Value::Int(number),
            (Self::Uuid, _) => Value::Uuid(crate::uuid::Uuid::from_bytes([0; 16])),
            (Self::Empty, Kind::Text) => Value::Text(alloc::borrow::Cow::Borrowed(&[])),
            (Self::Empty, Kind::Bytes) => Value::Bytes(alloc::borrow::Cow::Borrowed(&[])),
            (Self::Empty, _) => Value::Array(Vec::new()),
            (Self::Struct, _) => Value::Struct(Struct { fields: Vec::new() }),
            (Self::Null, _) => Value::Null,
        }
    }
}

/// A field of a message or structure.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    name: &'static str,
    kind: Kind,
    since: i16,
    until: i16,
    nullable_since: i16,
    is_ignorable: bool,
    unset: Unset,
    tag: Option<u32>,
}

pub(crate) const fn field(name: &'static str, kind: Kind) -> Field {
    Field {
        name,
        kind,
        since: 0,
        until: i16::MAX,
        nullable_since: NEVER,
        is_ignorable: false,
        unset: kind.unset(),
        tag: None,
    }
}

impl Field {
    /// The first version that has it.
    pub(crate) const fn since(mut self, version: i16) -> Self {
        self.since = version;
        self
    }

    /// The last version that has it.
    pub(crate) const fn until(mut self, version: i16) -> Self {
        self.until = version;
        self
    }

    pub(crate) const fn nullable(self) -> Self {
        self.nullable_since(0)
    }

    /// The first version in which it may be null.
    pub(crate) const fn nullable_since(mut self, version: i16) -> Self {
        self.nullable_since = version;
        self
    }

    /// What it is if nobody gives it a value.
    pub(crate) const fn unset(mut self, unset: Unset) -> Self {
        self.unset = unset;
        self
    }

    /// A value for a version that does not have it is left out, and is no error.
    pub(crate) const fn ignorable(mut self) -> Self {
        self.is_ignorable = true;
        self
    }

    /// Written at the end of its structure, and only where it differs from `unset`.
    pub(crate) const fn tag(mut self, number: u32, unset: Unset) -> Self {
        self.tag = Some(number);
        self.unset = unset;
        self
    }

    const fn is_in(&self, version: i16) -> bool {
        self.since <= version && version <= self.until
    }

    const fn is_nullable(&self, version: i16) -> bool {
        self.nullable_since <= version
    }

    /// Whether the value says no more than leaving it out.
    fn is_unset(&self, value: &Value<'_>) -> bool {
        match (value, self.unset) {
            (Value::Null, Unset::Null) => true,
            (Value::Int(number), Unset::Int(unset)) => *number == unset,
            (Value::Bool(bool), Unset::Int(unset)) => *bool == (unset != 0),
            (Value::Float(number), Unset::Int(0)) => number.to_bits() == 0,
            (Value::Text(bytes) | Value::Bytes(bytes), Unset::Empty) => bytes.is_empty(),
            (Value::Array(elements), Unset::Empty) => elements.is_empty(),
            (Value::Uuid(id), Unset::Uuid) => id.is_zero(),
            (Value::Struct(given), Unset::Struct) => match self.kind {
                Kind::Struct(fields) => given.fields.iter().all(|(name, value)| {
                    let field = fields.iter().find(|field| field.name == *name);
                    field.is_some_and(|field| field.is_unset(value))
                }),
                _ => false,
            },
            _ => false,
        }
    }
}

/// A message: its name, its versions, its fields.
#[derive(Debug, Clone, Copy)]
pub struct Message {
    /// Kafka's name.
    pub name: &'static str,
    /// The lowest version known here, Kafka 4.3's.
    pub lowest_version: i16,
    /// The highest version known here, Kafka 4.3's.
    pub highest_version: i16,
    flexible: i16,
    fields: &'static [Field],
}

const fn message(
    name: &'static str,
    highest_version: i16,
    flexible: i16,
    fields: &'static [Field],
) -> Message {
    versions(name, 0, highest_version, flexible, fields)
}

pub(crate) const fn versions(
    name: &'static str,
    lowest_version: i16,
    highest_version: i16,
    flexible: i16,
    fields: &'static [Field],
) -> Message {
    Message {
        name,
        lowest_version,
        highest_version,
        flexible,
        fields,
    }
}

impl Message {
    /// Whether this version has tagged fields and lengths of variable size.
    #[must_use]
    pub const fn is_flexible(&self, version: i16) -> bool {
        version >= self.flexible
    }

    fn check(&self, version: i16) -> Result<(), Fault> {
        if version < self.lowest_version {
            return Err(Fault::Rule("a version that Kafka 4.3 no longer has"));
        }
        if version > self.highest_version {
            return Err(Fault::Version {
                found: i64::from(version),
                maximum: i64::from(self.highest_version),
            });
        }
        Ok(())
    }

    /// Reads the message in a version.
    ///
    /// Bytes after it are left to the caller. Allocation is bounded by the bytes that are there, a hundred for each at most, and by
    /// [`MAX_VALUES`].
    ///
    /// # Errors
    /// `Version` or `Rule` for one that is not known; `Truncated`, `Length`, `Varint` or `Rule` for bytes that are not such a message;
    /// `Count` for one of more than [`MAX_VALUES`] values. The reader is then at the fault.
    pub fn read<'a>(
        &self,
        version: i16,
        reader: &mut Reader<'a>,
    ) -> Result<Struct<'a>, FormatError> {
        self.read_within(version, reader, MAX_VALUES)
    }

    /// The same for a message of `values_max` values at most. Each element of an array counts, and each field of a structure. They take
    /// up to a hundred bytes each.
    ///
    /// # Errors
    /// Those of [`read`](Self::read), with `Count` for more values than that.
    pub fn read_within<'a>(
        &self,
        version: i16,
        reader: &mut Reader<'a>,
        values_max: usize,
    ) -> Result<Struct<'a>, FormatError> {
        self.check(version).map_err(|fault| reader.error(fault))?;
        let flexible = self.is_flexible(version);
        decoder::read(self.fields, version, flexible, reader, values_max)
    }

    /// Appends the message in a version to `out`.
    ///
    /// A field that is not given is what Kafka's schema says it is then. The value of [`Value::Records`] is only announced: each
    /// [`Hole`] returned says where bytes belong that come from elsewhere, in ascending order.
    ///
    /// ```
    /// use offsetlog_format::message::{Struct, Value};
    /// use offsetlog_format::protocol::apis::HEARTBEAT;
    ///
    /// let answer = Struct::new().with("errorCode", 27_i16);
    /// let mut bytes = Vec::new();
    /// HEARTBEAT.response.write(1, &answer, &mut bytes)?;
    /// assert_eq!(bytes, [0, 0, 0, 0, 0, 27], "ThrottleTimeMs is 0 unless it is given");
    /// # Ok::<(), offsetlog_format::FormatError>(())
    /// ```
    ///
    /// # Errors
    /// `Version` or `Rule` for a version that is not known; `Field` for a name that the message does not have, a value of another kind,
    /// a null where none may be, and a value for a field that the version does not have and that must not get lost (`ignorable` in
    /// Kafka's schema says which may). `out` is then as it was.
    pub fn write(
        &self,
        version: i16,
        fields: &Struct<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Vec<Hole>, FormatError> {
        self.check(version)
            .map_err(|fault| FormatError::new(Part::Protocol, 0, fault))?;
        encoder::write(self.fields, version, self.is_flexible(version), fields, out)
    }
}

#[cfg(test)]
#[path = "message/random_tests.rs"]
mod random_tests;
#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
