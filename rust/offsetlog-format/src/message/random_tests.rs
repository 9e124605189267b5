//! Random requests and responses of every API and version, written and read again; what a frame of hostile bytes can cost.

use super::{Field, Kind, Message, Struct, Unset, Value};
use crate::cursor::Reader;
use crate::error::Part;
use crate::protocol::{RequestHeader, ResponseHeader, apis};
use crate::uuid::Uuid;
use proptest::prelude::*;
use std::vec::Vec;

/// Draws numbers; each seed draws the same again.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn bytes(&mut self) -> Vec<u8> {
        let length = [0, 1, 5, 127, 128][self.below(5) as usize];
        (0..length).map(|_| self.next() as u8).collect()
    }

    fn integer(&mut self, bits: u32) -> i64 {
        let any = self.next() as i64 >> (64 - bits);
        [0, -1, 1, i64::MIN >> (64 - bits), any][self.below(5) as usize]
    }

    /// A structure as reading gives it: each field of the version, tagged ones where they say something.
    fn structure(&mut self, fields: &'static [Field], version: i16) -> Struct<'static> {
        let mut made = Struct::new();
        for field in fields.iter().filter(|field| field.is_in(version)) {
            let is_null = field.is_nullable(version) && self.below(4) == 0;
            let value = if is_null {
                Value::Null
            } else {
                self.value(&field.kind, version)
            };
            if field.tag.is_none() || (!field.is_unset(&value) && self.below(2) == 0) {
                made.fields.push((field.name, value));
            }
        }
        made
    }

    fn value(&mut self, kind: &Kind, version: i16) -> Value<'static> {
        match *kind {
            Kind::Bool => Value::Bool(self.below(2) == 0),
            Kind::Int8 => Value::Int(self.integer(8)),
            Kind::Int16 => Value::Int(self.integer(16)),
            Kind::Uint16 => Value::Int(self.integer(16) & 0xffff),
            Kind::Int32 => Value::Int(self.integer(32)),
            Kind::Int64 => Value::Int(self.integer(64)),
            Kind::Float64 => Value::Float(f64::from(self.integer(32) as i32)),
            Kind::Uuid => {
                let half = self.next().to_be_bytes();
                Value::Uuid(Uuid::from_bytes([half, half].concat().try_into().unwrap()))
            }
            Kind::Text => Value::text(self.bytes()),
            Kind::Bytes | Kind::Records => Value::from(self.bytes()),
            Kind::Array(element) => self.array(element, version),
            Kind::Structs(fields) => self.array(&Kind::Struct(fields), version),
            Kind::Struct(fields) => Value::Struct(self.structure(fields, version)),
        }
    }

    fn array(&mut self, element: &Kind, version: i16) -> Value<'static> {
        let length = self.below(3);
        Value::Array((0..length).map(|_| self.value(element, version)).collect())
    }
}

fn every() -> impl Iterator<Item = (&'static Message, i16)> {
    let messages = apis::ALL
        .iter()
        .flat_map(|api| [&api.request, &api.response]);
    messages.flat_map(|message| {
        let versions = message.lowest_version..=message.highest_version;
        versions.map(move |version| (message, version))
    })
}

fn read<'a>(
    message: &Message,
    version: i16,
    bytes: &'a [u8],
) -> Result<(Struct<'a>, usize), crate::FormatError> {
    let mut reader = Reader::new(bytes, Part::Protocol);
    let read = message.read(version, &mut reader)?;
    Ok((read, reader.remaining()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// What is written is read again, and no part of it is taken for the whole.
    #[test]
    fn what_is_written_reads_back(seed in any::<u64>()) {
        let mut draw = Draw(seed);
        for (message, version) in every() {
            let given = draw.structure(message.fields, version);
            let mut bytes = Vec::new();
            let holes = message.write(version, &given, &mut bytes).unwrap();
            prop_assert!(holes.is_empty());
            prop_assert_eq!(read(message, version, &bytes).unwrap(), (given, 0));
            for length in 0..bytes.len().min(400) {
                prop_assert!(read(message, version, &bytes[..length]).is_err());
            }
        }
    }

    /// Whatever the bytes are: a message or an error.
    #[test]
    fn hostile_requests_give_a_message_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..120), seed in any::<u64>()) {
        let mut draw = Draw(seed);
        for (message, version) in every() {
            let _ = read(message, version, &bytes);
            let mut broken = Vec::new();
            let given = draw.structure(message.fields, version);
            message.write(version, &given, &mut broken).unwrap();
            let at = draw.below(broken.len() as u64 + 1) as usize;
            match draw.below(3) {
                0 => broken.truncate(at),
                1 => broken.insert(at, draw.next() as u8),
                _ => broken.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << draw.below(8)),
            }
            if let Ok((fields, _)) = read(message, version, &broken) {
                // What can be read can be written, and then means the same.
                let mut again = Vec::new();
                message.write(version, &fields, &mut again).unwrap();
                prop_assert_eq!(read(message, version, &again).unwrap(), (fields, 0));
            }
        }
        let _ = RequestHeader::read(&mut Reader::new(&bytes, Part::Protocol));
        for api in apis::ALL {
            for version in [0, api.highest_version(), i16::MAX] {
                let _ = ResponseHeader::read(api, version, &mut Reader::new(&bytes, Part::Protocol));
            }
        }
    }
}

/// An element takes at least a byte in each version, so that the bytes left bound what a claim of many makes.
#[test]
fn no_element_is_empty() {
    fn check(message: &Message, fields: &'static [Field], version: i16) {
        for field in fields.iter().filter(|field| field.is_in(version)) {
            if let Kind::Struct(inner) | Kind::Structs(inner) = field.kind {
                let plain = |field: &Field| field.is_in(version) && field.tag.is_none();
                let is_empty = !message.is_flexible(version) && !inner.iter().any(plain);
                assert!(!is_empty, "{} {version}: {}", message.name, field.name);
                check(message, inner, version);
            }
        }
    }
    for (message, version) in every() {
        check(message, message.fields, version);
    }
}

/// Tables that a script wrote, but rules of ours.
#[test]
fn tables_of_requests_hold_together() {
    fn check(message: &Message, fields: &'static [Field]) {
        for (place, field) in fields.iter().enumerate() {
            let name = std::format!("{}: {}", message.name, field.name);
            assert!(field.since <= field.until, "{name}");
            assert!(field.since <= message.highest_version, "{name}");
            assert!(
                field.tag.is_none() || field.since >= message.flexible,
                "{name}"
            );
            let mut others = fields.iter().skip(place + 1);
            assert!(others.all(|other| other.name != field.name), "{name}");
            if matches!(field.unset, Unset::Null) && field.tag.is_some() {
                assert!(field.is_nullable(field.since), "{name}");
            }
            if let Kind::Struct(inner) | Kind::Structs(inner) = field.kind {
                check(message, inner);
            }
        }
    }
    for api in apis::ALL {
        check(&api.request, api.request.fields);
        check(&api.response, api.response.fields);
    }
}
