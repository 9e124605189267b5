//! Writes any of Kafka's messages by its table.

use super::{Field, Kind, MAX_TEXT_BYTES, Struct, Value};
use crate::error::{Fault, FormatError, Part};
use alloc::vec::Vec;

/// A place in bytes that were written where bytes from elsewhere belong, from a file for example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hole {
    /// Position in the bytes that were written; those that fill other holes do not count.
    pub at: usize,
    /// Number of bytes to put there.
    pub bytes: usize,
}

/// Appends the fields of a message.
pub(super) fn write(
    fields: &'static [Field],
    version: i16,
    flexible: bool,
    given: &Struct<'_>,
    out: &mut Vec<u8>,
) -> Result<Vec<Hole>, FormatError> {
    let start = out.len();
    let mut encoder = Encoder {
        out,
        holes: Vec::new(),
        version,
        flexible,
    };
    match encoder.structure(fields, given) {
        Ok(()) => Ok(encoder.holes),
        Err(fault) => {
            let at = out.len().saturating_sub(start);
            out.truncate(start);
            Err(FormatError::new(Part::Protocol, at, fault))
        }
    }
}

/// Where a value stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Plain,
    Tagged,
    /// In an array.
    Element,
}

struct Encoder<'o> {
    out: &'o mut Vec<u8>,
    holes: Vec<Hole>,
    version: i16,
    flexible: bool,
}

const fn fault(field: &Field, rule: &'static str) -> Fault {
    Fault::Field {
        name: field.name,
        rule,
    }
}

impl Encoder<'_> {
    fn structure(&mut self, fields: &'static [Field], given: &Struct<'_>) -> Result<(), Fault> {
        let mut known = 0;
        let mut tagged: Vec<(u32, &Field, &Value<'_>)> = Vec::new();
        for field in fields {
            // If the fields are given in Kafka's order, each is found at once.
            let next = given.fields.get(known);
            let value = match next {
                Some((name, value)) if *name == field.name => Some(value),
                _ => given.get(field.name),
            };
            known += usize::from(value.is_some());
            if !field.is_in(self.version) {
                if !field.is_ignorable && value.is_some_and(|value| !field.is_unset(value)) {
                    return Err(fault(field, "has a value that this version cannot carry"));
                }
                continue;
            }
            match (field.tag, value) {
                (None, Some(value)) => self.value(field, &field.kind, value, Place::Plain)?,
                (None, None) => {
                    let unset = field.unset.value(field.kind);
                    self.value(field, &field.kind, &unset, Place::Plain)?;
                }
                (Some(tag), Some(value)) if !field.is_unset(value) => {
                    tagged.push((tag, field, value));
                }
                (Some(_), _) => {}
            }
        }
        if known != given.fields.len() {
            return Err(unknown(fields, given));
        }
        if self.flexible {
            self.tagged(tagged)?;
        } else if let Some((_, field, _)) = tagged.first() {
            return Err(fault(field, "has a value that this version cannot carry"));
        }
        Ok(())
    }

    /// The tagged fields at the end of a structure, by number: count, then number, size and bytes of each.
    fn tagged(&mut self, mut tagged: Vec<(u32, &Field, &Value<'_>)>) -> Result<(), Fault> {
        tagged.sort_unstable_by_key(|(tag, ..)| *tag);
        self.unsigned(tagged.len());
        for (tag, field, value) in tagged {
            self.unsigned(tag as usize);
            let mut inner = Vec::new();
            core::mem::swap(self.out, &mut inner);
            let holes = core::mem::take(&mut self.holes);
            let written = self.value(field, &field.kind, value, Place::Tagged);
            core::mem::swap(self.out, &mut inner);
            let inside = core::mem::replace(&mut self.holes, holes);
            written?;
            let elsewhere = inside.iter().map(|hole| hole.bytes);
            self.unsigned(elsewhere.fold(inner.len(), usize::saturating_add));
            let start = self.out.len();
            self.out.extend_from_slice(&inner);
            self.holes.extend(inside.iter().map(|hole| Hole {
                at: hole.at + start,
                bytes: hole.bytes,
            }));
        }
        Ok(())
    }

    /// A value of a field, or an element of an array that is one.
    fn value(
        &mut self,
        field: &Field,
        kind: &Kind,
        value: &Value<'_>,
        place: Place,
    ) -> Result<(), Fault> {
        let nullable = place != Place::Element && field.is_nullable(self.version);
        let tagged = place == Place::Tagged;
        match (*kind, value) {
            (_, Value::Null) if !nullable => {
                return Err(fault(field, "is null, which it cannot be in this version"));
            }
            (Kind::Struct(_), Value::Null) if tagged => self.unsigned(0),
            (Kind::Struct(_), Value::Null) => self.out.push(0xff),
            (Kind::Text, Value::Null) if !self.flexible => {
                self.out.extend_from_slice(&(-1_i16).to_be_bytes());
            }
            (
                Kind::Text | Kind::Bytes | Kind::Records | Kind::Array(_) | Kind::Structs(_),
                Value::Null,
            ) => {
                if self.flexible {
                    self.out.push(0);
                } else {
                    self.out.extend_from_slice(&(-1_i32).to_be_bytes());
                }
            }
            (Kind::Bool, Value::Bool(value)) => self.out.push(u8::from(*value)),
            (Kind::Float64, Value::Float(number)) => {
                self.out.extend_from_slice(&number.to_bits().to_be_bytes());
            }
            (Kind::Uuid, Value::Uuid(id)) => self.out.extend_from_slice(&id.to_bytes()),
            (Kind::Text, Value::Text(bytes)) => {
                self.text_length(field, bytes.len())?;
                self.out.extend_from_slice(bytes);
            }
            (Kind::Bytes | Kind::Records, Value::Bytes(bytes)) => {
                self.length(field, bytes.len())?;
                self.out.extend_from_slice(bytes);
            }
            (Kind::Records, Value::Records(bytes)) => {
                self.length(field, *bytes)?;
                self.holes.push(Hole {
                    at: self.out.len(),
                    bytes: *bytes,
                });
            }
            (Kind::Array(element), Value::Array(elements)) => {
                self.length(field, elements.len())?;
                for value in elements {
                    self.value(field, element, value, Place::Element)?;
                }
            }
            (Kind::Structs(fields), Value::Array(elements)) => {
                self.length(field, elements.len())?;
                for value in elements {
                    let Value::Struct(given) = value else {
                        return Err(fault(field, "has an element that is not a structure"));
                    };
                    self.structure(fields, given)?;
                }
            }
            (Kind::Struct(fields), Value::Struct(given)) => {
                match (nullable, tagged) {
                    (true, true) => self.unsigned(1),
                    (true, false) => self.out.push(1),
                    (false, _) => {}
                }
                self.structure(fields, given)?;
            }
            (_, Value::Int(number)) => self.integer(field, kind, *number)?,
            _ => return Err(fault(field, "has a value of another kind")),
        }
        Ok(())
    }

    fn integer(&mut self, field: &Field, kind: &Kind, number: i64) -> Result<(), Fault> {
        let wide = |_| fault(field, "has a number that it is too small for");
        match kind {
            Kind::Int8 => self
                .out
                .extend_from_slice(&i8::try_from(number).map_err(wide)?.to_be_bytes()),
            Kind::Int16 => self
                .out
                .extend_from_slice(&i16::try_from(number).map_err(wide)?.to_be_bytes()),
            Kind::Uint16 => self
                .out
                .extend_from_slice(&u16::try_from(number).map_err(wide)?.to_be_bytes()),
            Kind::Int32 => self
                .out
                .extend_from_slice(&i32::try_from(number).map_err(wide)?.to_be_bytes()),
            Kind::Int64 => self.out.extend_from_slice(&number.to_be_bytes()),
            _ => return Err(fault(field, "has a value of another kind")),
        }
        Ok(())
    }

    fn text_length(&mut self, field: &Field, length: usize) -> Result<(), Fault> {
        let short = i16::try_from(length).ok();
        let short = short.filter(|_| length <= MAX_TEXT_BYTES);
        let short = short.ok_or_else(|| fault(field, "is longer than 32,767 bytes"))?;
        if self.flexible {
            self.unsigned(length + 1);
        } else {
            self.out.extend_from_slice(&short.to_be_bytes());
        }
        Ok(())
    }

    fn length(&mut self, field: &Field, length: usize) -> Result<(), Fault> {
        let known = i32::try_from(length).ok().filter(|&known| known < i32::MAX);
        let known = known.ok_or_else(|| fault(field, "is longer than 2 GiB"))?;
        if self.flexible {
            self.unsigned(length + 1);
        } else {
            self.out.extend_from_slice(&known.to_be_bytes());
        }
        Ok(())
    }

    /// An unsigned variable-length integer; all that are written fit into 32 bits.
    fn unsigned(&mut self, number: usize) {
        write_unsigned(self.out, number);
    }
}

/// Appends an unsigned variable-length integer.
pub(crate) fn write_unsigned(out: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// The field given that the structure does not have, or has been given twice.
#[cold]
fn unknown(fields: &'static [Field], given: &Struct<'_>) -> Fault {
    let is_known = |name: &str| fields.iter().any(|field| field.name == name);
    let name = given.fields.iter().find(|(name, _)| !is_known(name));
    match name {
        Some((name, _)) => Fault::Field {
            name,
            rule: "is not a field of this structure",
        },
        None => Fault::Rule("a field is given twice"),
    }
}
