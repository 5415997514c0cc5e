//! Go's rules for values and the keys of objects, as a deserializer, and its errors.

use super::{Ignored, visible};
use serde::de::value::StrDeserializer;
use serde::de::{self, DeserializeSeed, Expected, IntoDeserializer, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::fmt;

/// A value that its key does not accept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeError {
    /// The key, `ipam.ranges[0][1].subnet`; empty for the whole value.
    pub path: String,
    /// The value as JSON, truncated when long.
    pub value: String,
    /// The reason.
    pub message: String,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => f.write_str(&self.message),
            path => write!(f, "key {path} = {}: {}", self.value, self.message),
        }
    }
}

impl std::error::Error for DecodeError {}

impl de::Error for DecodeError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self { path: String::new(), value: String::new(), message: visible(&message.to_string()) }
    }

    fn invalid_type(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::custom(format_args!("expected {}", in_json_terms(&expected.to_string())))
    }

    fn invalid_value(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::custom(format_args!("expected {}", in_json_terms(&expected.to_string())))
    }
}

/// The expected type in JSON's terms instead of Rust's. The value itself is quoted beside it.
fn in_json_terms(expected: &str) -> String {
    let number = |low: i128, high: i128| format!("a whole number from {low} to {high}");
    match expected {
        "u8" => number(u8::MIN.into(), u8::MAX.into()),
        "u16" => number(u16::MIN.into(), u16::MAX.into()),
        "u32" => number(u32::MIN.into(), u32::MAX.into()),
        "u64" | "usize" => number(u64::MIN.into(), u64::MAX.into()),
        "i8" => number(i8::MIN.into(), i8::MAX.into()),
        "i16" => number(i16::MIN.into(), i16::MAX.into()),
        "i32" => number(i32::MIN.into(), i32::MAX.into()),
        "i64" | "isize" => number(i64::MIN.into(), i64::MAX.into()),
        "a sequence" => "a list".to_owned(),
        "a map" => "an object".to_owned(),
        "a boolean" => "true or false".to_owned(),
        text if text.starts_with("struct ") => "an object".to_owned(),
        text => text.to_owned(),
    }
}

/// The path from the whole value to the decoder's position.
pub(super) enum Path<'a> {
    Root,
    Key(&'a Path<'a>, &'a str),
    Index(&'a Path<'a>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root => Ok(()),
            Path::Key(Path::Root, key) => f.write_str(key),
            Path::Key(parent, key) => write!(f, "{parent}.{key}"),
            Path::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

#[derive(Clone, Copy)]
pub(super) struct Decoder<'a> {
    pub(super) value: &'a Value,
    pub(super) path: &'a Path<'a>,
    pub(super) ignored: &'a RefCell<Vec<Ignored>>,
}

/// Decodes one value and adds its path to an error that has none yet: the innermost value is the one to name.
pub(super) fn decode_at<'de, S: DeserializeSeed<'de>>(seed: S, decoder: Decoder<'_>) -> Result<S::Value, DecodeError> {
    seed.deserialize(decoder).map_err(|error| match error.path.as_str() {
        "" => decoder.blame(error),
        _ => error,
    })
}

impl<'a> Decoder<'a> {
    /// The error with this value's path.
    pub(super) fn blame(self, error: DecodeError) -> DecodeError {
        let (path, value) = (visible(&self.path.to_string()), shorten(&self.value.to_string()));
        DecodeError { path, value, ..error }
    }

    /// The entries of an object that have a value and a field, the last of equal ones, under the field's own name.
    fn known_entries(
        &self,
        map: &'a Map<String, Value>,
        fields: &'static [&'static str],
    ) -> Vec<(&'static str, &'a Value)> {
        let mut entries: Vec<(&'static str, &Value)> = Vec::with_capacity(fields.len());
        for (key, value) in map {
            let Some(field) = fields.iter().find(|field| field.eq_ignore_ascii_case(key)) else {
                let path = Path::Key(self.path, key).to_string();
                self.ignored.borrow_mut().push(Ignored { path, key: key.clone(), known: fields });
                continue;
            };
            if value.is_null() {
                continue;
            }
            match entries.iter_mut().find(|(name, _)| name == field) {
                Some(entry) => entry.1 = value,
                None => entries.push((field, value)),
            }
        }
        entries
    }
}

/// At most 80 characters of a value for an error text.
fn shorten(text: &str) -> String {
    const MOST: usize = 80;
    if text.chars().count() <= MOST {
        return text.to_owned();
    }
    text.chars().take(MOST).chain("...".chars()).collect()
}

impl<'de> de::Deserializer<'de> for Decoder<'_> {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(value), _, _) => visitor.visit_u64(value),
                (_, Some(value), _) => visitor.visit_i64(value),
                (_, _, Some(value)) if value.to_bits() == (-0.0_f64).to_bits() => visitor.visit_u64(0), // of `-0`
                (_, _, value) => visitor.visit_f64(value.unwrap_or(f64::NAN)),
            },
            Value::String(value) => visitor.visit_str(value),
            Value::Array(items) => visitor.visit_seq(Items { items: items.iter().enumerate(), decoder: &self }),
            Value::Object(map) => {
                let entries = map.iter().map(|(key, value)| (key.as_str(), value)).collect::<Vec<_>>();
                visitor.visit_map(Entries { entries: entries.into_iter(), next: None, decoder: &self })
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        if self.value.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        let Value::Object(map) = self.value else { return Err(de::Error::custom("expected an object")) };
        let entries = self.known_entries(map, fields);
        visitor.visit_map(Entries { entries: entries.into_iter(), next: None, decoder: &self })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        let Value::String(text) = self.value else {
            return Err(de::Error::custom(format!("expected one of {}", variants.join(", "))));
        };
        let deserializer: StrDeserializer<'_, DecodeError> = text.as_str().into_deserializer();
        visitor.visit_enum(deserializer)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map identifier ignored_any
    }
}

struct Items<'a, 'b> {
    items: std::iter::Enumerate<std::slice::Iter<'a, Value>>,
    decoder: &'b Decoder<'a>,
}

impl<'de> SeqAccess<'de> for Items<'_, '_> {
    type Error = DecodeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, DecodeError> {
        let Some((index, value)) = self.items.next() else { return Ok(None) };
        let path = Path::Index(self.decoder.path, index);
        decode_at(seed, Decoder { value, path: &path, ignored: self.decoder.ignored }).map(Some)
    }
}

struct Entries<'a, 'b> {
    entries: std::vec::IntoIter<(&'a str, &'a Value)>,
    next: Option<(&'a str, &'a Value)>,
    decoder: &'b Decoder<'a>,
}

impl<'de> MapAccess<'de> for Entries<'_, '_> {
    type Error = DecodeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, DecodeError> {
        self.next = self.entries.next();
        let Some((key, _)) = self.next else { return Ok(None) };
        let deserializer: StrDeserializer<'_, DecodeError> = key.into_deserializer();
        seed.deserialize(deserializer).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, DecodeError> {
        let Some((key, value)) = self.next.take() else {
            return Err(de::Error::custom("a value was asked for before its key"));
        };
        let path = Path::Key(self.decoder.path, key);
        decode_at(seed, Decoder { value, path: &path, ignored: self.decoder.ignored })
    }
}
