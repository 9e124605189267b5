//! Reads any of Kafka's messages by its table.

use super::{Field, Kind, MAX_TEXT_BYTES, MAX_VALUES, Struct, Value};
use crate::cursor::Reader;
use crate::error::{Fault, FormatError};
use crate::uuid::Uuid;
use alloc::borrow::Cow;
use alloc::vec::Vec;

/// Reads the fields of a message, which are `values_max` at most, those in arrays and structures counted too.
pub(super) fn read<'a>(
    fields: &'static [Field],
    version: i16,
    flexible: bool,
    reader: &mut Reader<'a>,
    values_max: usize,
) -> Result<Struct<'a>, FormatError> {
    let values_max = values_max.min(MAX_VALUES);
    let mut decoder = Decoder {
        reader,
        version,
        flexible,
        values_max,
        left: values_max,
    };
    decoder.structure(fields)
}

struct Decoder<'r, 'a> {
    reader: &'r mut Reader<'a>,
    version: i16,
    flexible: bool,
    values_max: usize,
    /// Values that may still be made.
    left: usize,
}

impl<'a> Decoder<'_, 'a> {
    fn structure(&mut self, fields: &'static [Field]) -> Result<Struct<'a>, FormatError> {
        let version = self.version;
        let plain = || {
            let plain = fields.iter();
            plain.filter(move |field| field.is_in(version) && field.tag.is_none())
        };
        // As many as the table says, not the bytes.
        let mut values = Vec::with_capacity(plain().count());
        for field in plain() {
            let value = self.value(&field.kind, field.is_nullable(version), false)?;
            values.push((field.name, value));
        }
        let mut read = Struct { fields: values };
        if self.flexible {
            self.tagged(fields, &mut read)?;
        }
        Ok(read)
    }

    /// The tagged fields at the end of a structure: count, then number, size and bytes of each.
    fn tagged(
        &mut self,
        fields: &'static [Field],
        read: &mut Struct<'a>,
    ) -> Result<(), FormatError> {
        for _ in 0..read_unsigned(self.reader)? {
            let number = read_unsigned(self.reader)?;
            let size = read_unsigned(self.reader)? as usize;
            let Some(field) = fields.iter().find(|field| field.tag == Some(number)) else {
                self.reader.bytes(size)?;
                continue;
            };
            if !field.is_in(self.version) {
                let rule = "a tagged field that this version does not have";
                return Err(self.reader.error(Fault::Rule(rule)));
            }
            let start = *self.reader;
            let value = self.value(&field.kind, field.is_nullable(self.version), true)?;
            let taken = self.reader.position() - start.position();
            if taken != size {
                return Err(start.error(Fault::Length {
                    found: size as i64,
                    minimum: taken as i64,
                    maximum: taken as i64,
                }));
            }
            place(fields, field, read, value);
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
                found: self.values_max as i64 + 1,
                expected: self.values_max as i64,
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
                Some(length) => Value::Text(Cow::Borrowed(self.reader.bytes(length)?)),
                None => Value::Null,
            },
            Kind::Bytes | Kind::Records => match self.length(nullable, false)? {
                Some(length) => Value::Bytes(Cow::Borrowed(self.reader.bytes(length)?)),
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
        let most = if text { left.min(MAX_TEXT_BYTES) } else { left };
        let fits = usize::try_from(length)
            .ok()
            .filter(|&length| length <= most);
        fits.map(Some).ok_or_else(|| {
            start.error(Fault::Length {
                found: length,
                minimum: if nullable { -1 } else { 0 },
                maximum: most as i64,
            })
        })
    }
}

/// Puts a tagged field between its neighbours of the table, or takes it away again if it says nothing: of several the last holds.
fn place<'a>(fields: &[Field], field: &Field, read: &mut Struct<'a>, value: Value<'a>) {
    let before = fields.iter().take_while(|other| other.name != field.name);
    let mut at = 0;
    for other in before {
        let name = read.fields.get(at).map(|(name, _)| *name);
        at += usize::from(name == Some(other.name));
    }
    let is_there = read
        .fields
        .get(at)
        .is_some_and(|(name, _)| *name == field.name);
    if is_there {
        read.fields.remove(at);
    }
    if !field.is_unset(&value) {
        read.fields.insert(at, (field.name, value));
    }
}

/// Reads an unsigned variable-length integer. Unlike those of records it is not zig-zag.
///
/// They are counts, sizes, tags, types and versions, and Kafka holds them in an `int`: it takes one beyond `i32::MAX` for a negative number,
/// so for null, for no tagged fields or for a tag that it does not know, and continues after it. Nobody writes such a number. It is refused
/// here.
pub(crate) fn read_unsigned(reader: &mut Reader<'_>) -> Result<u32, FormatError> {
    let start = *reader;
    let mut value = 0_u64;
    for index in 0..5 {
        let byte = reader.read_u8()?;
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            let value = i32::try_from(value).map(i32::unsigned_abs);
            return value.map_err(|_| {
                start.error(Fault::Varint {
                    bytes_read: index + 1,
                })
            });
        }
    }
    Err(start.error(Fault::Varint { bytes_read: 5 }))
}
