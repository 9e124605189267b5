//! What a message of Kafka holds: values by the names of their fields, read from bytes or built to be written.

use crate::uuid::Uuid;
use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;

/// A value of a message; texts and bytes that were read are borrowed.
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
    Text(Cow<'a, [u8]>),
    /// Bytes, and records that were read.
    Bytes(Cow<'a, [u8]>),
    /// Records that are not in memory, this many bytes: to be written only.
    Records(usize),
    /// An array.
    Array(Vec<Self>),
    /// A structure.
    Struct(Struct<'a>),
}

impl<'a> Value<'a> {
    /// A text of bytes that need not be UTF-8.
    pub fn text(bytes: impl Into<Cow<'a, [u8]>>) -> Self {
        Self::Text(bytes.into())
    }

    /// Whether it is null.
    #[must_use]
    pub const fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// The truth value, if it is one.
    #[must_use]
    pub const fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            _ => None,
        }
    }

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
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Text(bytes) | Self::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The text, if it is one and UTF-8.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(bytes) => core::str::from_utf8(bytes).ok(),
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

    /// The same value with bytes of its own.
    #[must_use]
    pub fn into_owned(self) -> Value<'static> {
        match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(value),
            Self::Int(number) => Value::Int(number),
            Self::Float(number) => Value::Float(number),
            Self::Uuid(id) => Value::Uuid(id),
            Self::Text(bytes) => Value::Text(Cow::Owned(bytes.into_owned())),
            Self::Bytes(bytes) => Value::Bytes(Cow::Owned(bytes.into_owned())),
            Self::Records(bytes) => Value::Records(bytes),
            Self::Array(elements) => {
                Value::Array(elements.into_iter().map(Value::into_owned).collect())
            }
            Self::Struct(fields) => Value::Struct(fields.into_owned()),
        }
    }
}

/// The fields of a structure, in Kafka's order where it was read, in any order where it is to be written.
///
/// A tagged field is there where it differs from what it is if nobody writes it, as in Kafka's own JSON.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Struct<'a> {
    /// Names and values.
    pub fields: Vec<(&'static str, Value<'a>)>,
}

impl<'a> Struct<'a> {
    /// A structure of no fields.
    #[must_use]
    pub const fn new() -> Self {
        Self { fields: Vec::new() }
    }

    /// Adds a field. One that is there already gets another value.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<Value<'a>>) -> Self {
        self.set(name, value);
        self
    }

    /// Adds a field, or gives it another value.
    pub fn set(&mut self, name: &'static str, value: impl Into<Value<'a>>) {
        let value = value.into();
        match self.fields.iter_mut().find(|(field, _)| *field == name) {
            Some((_, there)) => *there = value,
            None => self.fields.push((name, value)),
        }
    }

    /// The field of this name, if it is there.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value<'a>> {
        let found = self.fields.iter().find(|(field, _)| *field == name);
        found.map(|(_, value)| value)
    }

    /// The same structure with bytes of its own.
    #[must_use]
    pub fn into_owned(self) -> Struct<'static> {
        let fields = self.fields.into_iter();
        Struct {
            fields: fields
                .map(|(name, value)| (name, value.into_owned()))
                .collect(),
        }
    }
}

macro_rules! from_integer {
    ($($type:ty),+) => {$(
        impl From<$type> for Value<'_> {
            fn from(number: $type) -> Self {
                Self::Int(number.into())
            }
        }
    )+};
}
from_integer!(i8, i16, u16, i32, i64);

impl From<bool> for Value<'_> {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<Uuid> for Value<'_> {
    fn from(id: Uuid) -> Self {
        Self::Uuid(id)
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(Cow::Borrowed(text.as_bytes()))
    }
}

impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Self::Text(Cow::Owned(text.into_bytes()))
    }
}

impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Bytes(Cow::Borrowed(bytes))
    }
}

impl From<Vec<u8>> for Value<'_> {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(Cow::Owned(bytes))
    }
}

impl<'a> From<Struct<'a>> for Value<'a> {
    fn from(fields: Struct<'a>) -> Self {
        Self::Struct(fields)
    }
}

impl<T: Into<Self>> From<Option<T>> for Value<'_> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl From<Vec<Self>> for Value<'_> {
    fn from(elements: Vec<Self>) -> Self {
        Self::Array(elements)
    }
}

macro_rules! from_elements {
    ($($type:ty),+) => {$(
        impl<'a> From<Vec<$type>> for Value<'a> {
            fn from(elements: Vec<$type>) -> Self {
                Self::Array(elements.into_iter().map(Value::from).collect())
            }
        }
    )+};
}
from_elements!(Struct<'a>, i32, i64, &'a str, String, Uuid);
