//! The messages in Kafka's internal topics, as tables, and one decoder for all of them (FORMAT.md «Internal topics»).
//!
//! A [`Message`] is a name and its fields, each with the versions that have it. [`Message::read`] turns bytes into a [`Struct`] of
//! [`Value`]s that borrow from them. Which message stands in which record, `internal_topic` knows.
//!
//! Kafka has two encodings. In the older one a text has a length of two bytes, bytes and arrays have one of four. From a message's
//! *flexible* version on lengths are unsigned variable-length integers of the length plus one, and each structure ends with tagged
//! fields, of which those that are not known are skipped.

pub mod consumer_protocol;
pub mod groups;
pub mod metadata;
pub mod quorum;
pub mod share_groups;
pub mod share_state;
pub mod streams_groups;
pub mod transactions;

use crate::cursor::Reader;
use crate::error::{Fault, FormatError};
use crate::uuid::Uuid;
use alloc::vec::Vec;

/// Most values that one message is decoded into: what a claim of many elements can make of a record is bounded by this, too.
pub const MAX_VALUES: usize = 1 << 20;

/// The flexible version of a message that has none.
const NEVER: i16 = i16::MAX;

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
    /// An array.
    Array(&'static Self),
    /// An array of structures.
    Structs(&'static [Field]),
    /// A structure.
    Struct(&'static [Field]),
}

/// What a tagged field is where it is not written.
#[derive(Debug, Clone, Copy)]
enum Unset {
    Null,
    Int(i64),
    /// No element or no byte.
    Empty,
    /// Zeros.
    Uuid,
    /// A structure whose fields are 0 and empty.
    Struct,
}

/// A field of a message or structure.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    name: &'static str,
    kind: Kind,
    since: i16,
    until: i16,
    nullable: bool,
    tag: Option<(u32, Unset)>,
}

const fn field(name: &'static str, kind: Kind) -> Field {
    Field {
        name,
        kind,
        since: 0,
        until: i16::MAX,
        nullable: false,
        tag: None,
    }
}

impl Field {
    /// The first version that has it.
    const fn since(mut self, version: i16) -> Self {
        self.since = version;
        self
    }

    /// The last version that has it.
    const fn until(mut self, version: i16) -> Self {
        self.until = version;
        self
    }

    const fn nullable(mut self) -> Self {
        self.nullable = true;
        self
    }

    const fn tag(mut self, number: u32, unset: Unset) -> Self {
        self.tag = Some((number, unset));
        self
    }

    const fn is_in(&self, version: i16) -> bool {
        self.since <= version && version <= self.until
    }
}

/// A message: its name, its versions from 0 on, its fields.
#[derive(Debug, Clone, Copy)]
pub struct Message {
    /// Kafka's name.
    pub name: &'static str,
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
    Message {
        name,
        highest_version,
        flexible,
        fields,
    }
}

impl Message {
    /// Reads the message in a version.
    ///
    /// # Errors
    /// `Version` for one that is not known; `Truncated`, `Length`, `Varint` or `Rule` for bytes that are not such a message; `Count` for
    /// one of more than [`MAX_VALUES`] values. The reader then stands at the fault.
    pub fn read<'a>(
        &self,
        version: i16,
        reader: &mut Reader<'a>,
    ) -> Result<Struct<'a>, FormatError> {
        if !(0..=self.highest_version).contains(&version) {
            return Err(reader.error(Fault::Version {
                found: i64::from(version),
                maximum: i64::from(self.highest_version),
            }));
        }
        let mut decoder = Decoder {
            reader,
            version,
            flexible: version >= self.flexible,
            left: MAX_VALUES,
        };
        decoder.structure(self.fields)
    }
}

/// A value of a message; bytes are those that were read.
#[derive(Debug, Clone, PartialEq)]
pub enum Value<'a> {
    /// Null.
    Null,
    /// A truth value.
    Bool(bool),
    /// An integer of any width.
    Int(i64),
    /// A double.
    Float(f64),
    /// An id.
    Uuid(Uuid),
    /// Text, which need not be UTF-8.
    Text(&'a [u8]),
    /// Bytes.
    Bytes(&'a [u8]),
    /// An array.
    Array(Vec<Self>),
    /// A structure.
    Struct(Struct<'a>),
}

impl<'a> Value<'a> {
    /// The integer, if it is one.
    #[must_use]
    pub const fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            _ => None,
        }
    }

    /// The id, if it is one.
    #[must_use]
    pub const fn as_uuid(&self) -> Option<Uuid> {
        match self {
            Self::Uuid(id) => Some(*id),
            _ => None,
        }
    }

    /// The bytes of a text or of bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> Option<&'a [u8]> {
        match self {
            Self::Text(bytes) | Self::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The elements of an array.
    #[must_use]
    pub fn as_array(&self) -> Option<&[Self]> {
        match self {
            Self::Array(elements) => Some(elements),
            _ => None,
        }
    }

    /// The structure, if it is one.
    #[must_use]
    pub const fn as_struct(&self) -> Option<&Struct<'a>> {
        match self {
            Self::Struct(fields) => Some(fields),
            _ => None,
        }
    }

    fn is(&self, unset: Unset) -> bool {
        match (self, unset) {
            (Self::Null, Unset::Null) => true,
            (Self::Int(number), Unset::Int(unset)) => *number == unset,
            (Self::Text(bytes) | Self::Bytes(bytes), Unset::Empty) => bytes.is_empty(),
            (Self::Array(elements), Unset::Empty) => elements.is_empty(),
            (Self::Uuid(id), Unset::Uuid) => id.is_zero(),
            (Self::Struct(fields), Unset::Struct) => fields
                .fields
                .iter()
                .all(|(_, value)| value.is(Unset::Int(0)) || value.is(Unset::Empty)),
            _ => false,
        }
    }
}

/// The fields of a structure, in Kafka's order.
///
/// A tagged field is there where it differs from what it is if nobody writes it, as in Kafka's own JSON.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Struct<'a> {
    /// Names and values.
    pub fields: Vec<(&'static str, Value<'a>)>,
}

impl<'a> Struct<'a> {
    /// The field of this name, if it is there.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value<'a>> {
        let found = self.fields.iter().find(|(field, _)| *field == name);
        found.map(|(_, value)| value)
    }
}

struct Decoder<'r, 'a> {
    reader: &'r mut Reader<'a>,
    version: i16,
    flexible: bool,
    /// Values that may still be made.
    left: usize,
}

impl<'a> Decoder<'_, 'a> {
    fn structure(&mut self, fields: &'static [Field]) -> Result<Struct<'a>, FormatError> {
        let here = || fields.iter().filter(|field| field.is_in(self.version));
        let mut values: Vec<Option<Value<'a>>> = Vec::with_capacity(here().count());
        let present: Vec<&Field> = here().collect();
        for field in &present {
            values.push(match field.tag {
                None => Some(self.value(&field.kind, field.nullable, false)?),
                Some(_) => None,
            });
        }
        if self.flexible {
            self.tagged(&present, &mut values)?;
        }
        let named = present.iter().zip(values);
        Ok(Struct {
            fields: named
                .filter_map(|(field, value)| value.map(|value| (field.name, value)))
                .collect(),
        })
    }

    /// The tagged fields at the end of a structure: count, then number, size and bytes of each.
    fn tagged(
        &mut self,
        fields: &[&Field],
        values: &mut [Option<Value<'a>>],
    ) -> Result<(), FormatError> {
        for _ in 0..read_unsigned(self.reader)? {
            let number = read_unsigned(self.reader)?;
            let size = read_unsigned(self.reader)? as usize;
            let known = fields
                .iter()
                .zip(values.iter_mut())
                .find_map(|(field, slot)| {
                    let (tag, unset) = field.tag?;
                    (tag == number).then_some((field, unset, slot))
                });
            let Some((field, unset, slot)) = known else {
                self.reader.bytes(size)?;
                continue;
            };
            let start = *self.reader;
            let value = self.value(&field.kind, field.nullable, true)?;
            if self.reader.position() - start.position() != size {
                return Err(start.error(Fault::Length {
                    found: size as i64,
                    minimum: (self.reader.position() - start.position()) as i64,
                    maximum: (self.reader.position() - start.position()) as i64,
                }));
            }
            *slot = (!value.is(unset)).then_some(value);
        }
        Ok(())
    }

    fn value(
        &mut self,
        kind: &Kind,
        nullable: bool,
        tagged: bool,
    ) -> Result<Value<'a>, FormatError> {
        self.left = self.left.checked_sub(1).ok_or_else(|| {
            self.reader.error(Fault::Count {
                found: MAX_VALUES as i64 + 1,
                expected: MAX_VALUES as i64,
            })
        })?;
        Ok(match *kind {
            Kind::Bool => Value::Bool(self.reader.read_u8()? != 0),
            Kind::Int8 => Value::Int(self.reader.read_i8()?.into()),
            Kind::Int16 => Value::Int(self.reader.read_i16()?.into()),
            Kind::Uint16 => Value::Int(self.reader.read_u16()?.into()),
            Kind::Int32 => Value::Int(self.reader.read_i32()?.into()),
            Kind::Int64 => Value::Int(self.reader.read_i64()?),
            Kind::Float64 => Value::Float(f64::from_bits(self.reader.read_i64()? as u64)),
            Kind::Uuid => Value::Uuid(Uuid::from_bytes(self.reader.array()?)),
            Kind::Text => match self.length(nullable, true)? {
                Some(length) => Value::Text(self.reader.bytes(length)?),
                None => Value::Null,
            },
            Kind::Bytes => match self.length(nullable, false)? {
                Some(length) => Value::Bytes(self.reader.bytes(length)?),
                None => Value::Null,
            },
            Kind::Array(element) => self.array(nullable, element)?,
            Kind::Structs(fields) => self.array(nullable, &Kind::Struct(fields))?,
            Kind::Struct(_) if nullable && self.is_null_structure(tagged)? => Value::Null,
            Kind::Struct(fields) => Value::Struct(self.structure(fields)?),
        })
    }

    /// A structure that may be null has a byte in front of it, or in a tagged field an integer of variable length.
    fn is_null_structure(&mut self, tagged: bool) -> Result<bool, FormatError> {
        if tagged {
            return Ok(read_unsigned(self.reader)? == 0);
        }
        Ok(self.reader.read_i8()? < 0)
    }

    fn array(&mut self, nullable: bool, element: &Kind) -> Result<Value<'a>, FormatError> {
        let Some(length) = self.length(nullable, false)? else {
            return Ok(Value::Null);
        };
        // Grows with the elements that are there: each takes at least a byte, and the claim has been held against the bytes.
        let mut elements = Vec::new();
        for _ in 0..length {
            elements.push(self.value(element, false, false)?);
        }
        Ok(Value::Array(elements))
    }

    /// The length of a text, of bytes or of an array, which cannot be more than the bytes left; `None` for null.
    fn length(&mut self, nullable: bool, text: bool) -> Result<Option<usize>, FormatError> {
        let start = *self.reader;
        let length = match (self.flexible, text) {
            (true, _) => i64::from(read_unsigned(self.reader)?) - 1,
            (false, true) => i64::from(self.reader.read_i16()?),
            (false, false) => i64::from(self.reader.read_i32()?),
        };
        if length < 0 && nullable {
            return Ok(None);
        }
        let left = self.reader.remaining();
        let fits = usize::try_from(length)
            .ok()
            .filter(|&length| length <= left);
        fits.map(Some).ok_or_else(|| {
            start.error(Fault::Length {
                found: length,
                minimum: if nullable { -1 } else { 0 },
                maximum: left as i64,
            })
        })
    }
}

/// Reads an unsigned variable-length integer of 32 bits. Unlike those of records it is not zig-zag.
pub(crate) fn read_unsigned(reader: &mut Reader<'_>) -> Result<u32, FormatError> {
    let start = *reader;
    let mut value = 0_u64;
    for index in 0..5 {
        let byte = reader.read_u8()?;
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            return u32::try_from(value).map_err(|_| {
                start.error(Fault::Varint {
                    bytes_read: index + 1,
                })
            });
        }
    }
    Err(start.error(Fault::Varint { bytes_read: 5 }))
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
