//! JSON with the rules of Go's decoder, which the CNI ecosystem relies on.
//!
//! Keys of known fields match in any case, `null` counts as absent, the last of equal keys counts, unknown keys are
//! ignored; but a wrong type is an error, which names the key and the value. Ignored keys that resemble a known one are
//! noted, so that an error about a missing key can name the misspelt one.

mod lenient;

use crate::error::{CniError, Code};
use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Expected, IntoDeserializer, MapAccess, SeqAccess, Unexpected, Visitor,
};
use serde::{Serialize, forward_to_deserialize_any};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;

/// Parses one JSON value and nothing after it. Like Go's decoder it also accepts invalid UTF-8 and lone surrogates,
/// which become U+FFFD; any nesting, of which the part that no key reads is dropped; numbers of any size.
///
/// # Errors
/// Code 6 with line and column.
pub fn parse(bytes: &[u8]) -> Result<Value, CniError> {
    // Valid UTF-8 is checked faster than it is repaired.
    let text = std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed);
    serde_json::from_str(&text).or_else(|error| {
        let adapted = lenient::adapt(&text).and_then(|text| serde_json::from_str(&text).ok());
        adapted.ok_or_else(|| CniError::new(Code::DECODING, format!("cannot parse JSON: {error}")))
    })
}

/// JSON text indented by four spaces, without a final newline, as the reference prints results.
#[must_use]
pub fn to_text(value: &impl Serialize) -> String {
    let mut text = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let written = value.serialize(&mut serde_json::Serializer::with_formatter(&mut text, formatter));
    debug_assert!(written.is_ok(), "our types have string keys only, so nothing can fail");
    String::from_utf8(text).unwrap_or_default()
}

/// Decodes `value` by the rules of this module.
///
/// # Errors
/// The key that could not be decoded, its value, and the reason.
pub fn decode<T: DeserializeOwned>(value: &Value) -> Result<T, DecodeError> {
    decode_noting(value, &RefCell::default())
}

/// Like [`decode`], and notes the keys that were ignored.
///
/// # Errors
/// As [`decode`].
pub fn decode_noting<T: DeserializeOwned>(value: &Value, ignored: &RefCell<Vec<Ignored>>) -> Result<T, DecodeError> {
    decode_at(PhantomData::<T>, Decoder { value, path: &Path::Root, ignored })
}

/// The value of one key, such as `["ipam", "dataDir"]`, independently of all others. `None` if it is absent or `null`.
///
/// # Errors
/// As [`decode`]; also if a value on the path to the key is no object.
pub fn find<T: DeserializeOwned>(value: &Value, keys: &[&str]) -> Result<Option<T>, DecodeError> {
    find_at(Decoder { value, path: &Path::Root, ignored: &RefCell::default() }, keys)
}

fn find_at<T: DeserializeOwned>(decoder: Decoder<'_>, keys: &[&str]) -> Result<Option<T>, DecodeError> {
    let Some((key, rest)) = keys.split_first() else { return decode_at(PhantomData::<T>, decoder).map(Some) };
    let Value::Object(map) = decoder.value else {
        return Err(decoder.blame(de::Error::custom("expected an object")));
    };
    match entry(map, key) {
        None => Ok(None),
        Some(value) => find_at(Decoder { value, path: &Path::Key(decoder.path, key), ..decoder }, rest),
    }
}

/// The undecoded value of a key; `None` if it is absent or `null`, or `value` is no object.
#[must_use]
pub fn member<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    entry(value.as_object()?, key)
}

fn entry<'a>(map: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    let is_meant = |(name, value): &(&String, &Value)| name.eq_ignore_ascii_case(key) && !value.is_null();
    map.iter().rfind(is_meant).map(|(_, value)| value)
}

/// A key without a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ignored {
    /// Its path, `ipam.subnt`.
    pub path: String,
    /// The key alone.
    pub key: String,
    /// The known keys of that object.
    pub known: &'static [&'static str],
}

impl Ignored {
    /// The known key that this one resembles: at most two letters differ, and it is not itself known in `elsewhere`.
    #[must_use]
    pub fn meant(&self, elsewhere: &[&'static str]) -> Option<&'static str> {
        if elsewhere.iter().any(|known| known.eq_ignore_ascii_case(&self.key)) {
            return None;
        }
        let key = self.key.to_lowercase();
        let (length, is_long) = (key.chars().count(), key.len() > 3);
        let near = |known: &&&'static str| {
            let comparable = is_long && known.len().abs_diff(length) <= 2;
            comparable && strsim::osa_distance(&known.to_lowercase(), &key) <= 2
        };
        self.known.iter().chain(elsewhere).find(near).copied()
    }
}

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
        Self { path: String::new(), value: String::new(), message: one_line(&message.to_string()) }
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
enum Path<'a> {
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
struct Decoder<'a> {
    value: &'a Value,
    path: &'a Path<'a>,
    ignored: &'a RefCell<Vec<Ignored>>,
}

/// Decodes one value and adds its path to an error that has none yet: the innermost value is the one to name.
fn decode_at<'de, S: DeserializeSeed<'de>>(seed: S, decoder: Decoder<'_>) -> Result<S::Value, DecodeError> {
    seed.deserialize(decoder).map_err(|error| match error.path.as_str() {
        "" => decoder.blame(error),
        _ => error,
    })
}

impl<'a> Decoder<'a> {
    /// The error with this value's path.
    fn blame(self, error: DecodeError) -> DecodeError {
        let (path, value) = (one_line(&self.path.to_string()), shorten(&self.value.to_string()));
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

/// Escapes control characters: serde quotes unknown variants, and a path contains keys, as they came.
fn one_line(text: &str) -> String {
    let escape = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escape).collect()
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

/// An IP address as a string; an empty string counts as absent, as in Go.
pub mod optional_ip {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
    use std::net::IpAddr;

    /// # Errors
    /// The string is no IP address.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<IpAddr>, D::Error> {
        match Option::<String>::deserialize(deserializer)?.as_deref() {
            None | Some("") => Ok(None),
            Some(text) => super::parse_ip(text).map(Some).map_err(de::Error::custom),
        }
    }

    /// # Errors
    /// None of its own.
    pub fn serialize<S: Serializer>(ip: &Option<IpAddr>, serializer: S) -> Result<S::Ok, S::Error> {
        ip.serialize(serializer)
    }
}

/// An address with prefix length as a string; host bits are kept.
pub mod cidr {
    use ipnetwork::IpNetwork;
    use serde::{Deserialize, Deserializer, Serializer, de};

    /// # Errors
    /// The string is not `address/prefix`.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<IpNetwork, D::Error> {
        let text = String::deserialize(deserializer)?;
        super::parse_cidr(&text).map_err(de::Error::custom)
    }

    /// # Errors
    /// None of its own.
    pub fn serialize<S: Serializer>(cidr: &IpNetwork, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(cidr)
    }
}

/// Parses an IP address by Go's rules: no leading zeros, no zone; IPv4 mapped into IPv6 is IPv4.
///
/// # Errors
/// A sentence that quotes the string.
pub fn parse_ip(text: &str) -> Result<std::net::IpAddr, String> {
    let ip: std::net::IpAddr = text.parse().map_err(|error| format!("{text:?} is no IP address ({error})"))?;
    Ok(ip.to_canonical())
}

/// Parses `address/prefix` strictly: no netmask, no sign, no leading zeros, no missing prefix.
///
/// # Errors
/// A sentence that quotes the string and says what is expected.
pub fn parse_cidr(text: &str) -> Result<ipnetwork::IpNetwork, String> {
    let bad = || format!("{text:?} is no address with prefix, such as 10.1.0.5/24 or fd00::5/64");
    let (address, prefix) = text.split_once('/').ok_or_else(bad)?;
    let digits = prefix.bytes().all(|byte| byte.is_ascii_digit()) && (prefix == "0" || !prefix.starts_with('0'));
    let prefix = digits.then(|| prefix.parse::<u8>().ok()).flatten().ok_or_else(bad)?;
    let address = address.parse().ok().ok_or_else(bad)?;
    ipnetwork::IpNetwork::new(address, prefix).ok().ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize, PartialEq, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct Port {
        host_port: u16,
        protocol: Option<String>,
        more: Vec<Port>,
    }

    fn port(text: &str) -> Result<Port, String> {
        decode(&parse(text.as_bytes()).map_err(|e| e.to_string())?).map_err(|error| error.to_string())
    }

    #[test]
    fn keys_match_in_any_case_and_the_last_wins() {
        assert_eq!(port(r#"{"HostPort":1,"HOSTPORT":2,"x":3}"#).unwrap().host_port, 2);
        assert_eq!(port(r#"{"hostPort":1,"hostPort":2}"#).unwrap().host_port, 2);
    }

    #[test]
    fn one_key_is_found_whatever_the_others_are() {
        let value = serde_json::json!({"Ipam": {"DATADIR": "/a", "dataDir": null, "ranges": 5}, "x": 5, "n": null});
        let find = |keys: &[&str]| find::<String>(&value, keys).map_err(|error| error.to_string());
        assert_eq!(find(&["ipam", "dataDir"]).unwrap().as_deref(), Some("/a"));
        assert_eq!((find(&["n"]), find(&["n", "a"]), find(&["ipam", "type"])), (Ok(None), Ok(None), Ok(None)));
        assert_eq!(find(&["ipam", "ranges"]).unwrap_err(), "key ipam.ranges = 5: expected a string");
        assert_eq!(find(&["x", "y"]).unwrap_err(), "key x = 5: expected an object");
    }

    #[test]
    fn null_is_absent() {
        assert_eq!(port(r#"{"hostPort":null,"protocol":null,"more":null}"#).unwrap(), Port::default());
    }

    #[test]
    fn a_wrong_type_names_key_and_value() {
        assert_eq!(
            port(r#"{"more":[{},{"HostPort":"80"}]}"#).unwrap_err(),
            r#"key more[1].hostPort = "80": expected a whole number from 0 to 65535"#
        );
        assert_eq!(
            port(r#"{"hostPort":70000}"#).unwrap_err(),
            "key hostPort = 70000: expected a whole number from 0 to 65535"
        );
    }

    #[test]
    fn what_is_quoted_in_an_error_stays_on_one_line() {
        #[derive(Debug, Deserialize)]
        enum Mode {}
        let error =
            decode::<std::collections::HashMap<String, Mode>>(&serde_json::json!({"a\nb": "c\nd"})).unwrap_err();
        assert_eq!(error.to_string(), r#"key a\nb = "c\nd": unknown variant `c\nd`, there are no variants"#);
    }

    #[test]
    fn a_misspelt_key_is_noted_with_what_it_means() {
        let ignored = RefCell::default();
        let _: Port = decode_noting(&serde_json::json!({"hostprot": 1, "name": "n"}), &ignored).unwrap();
        let notes = ignored.into_inner();
        assert_eq!(notes[0].meant(&["name"]), Some("hostPort"));
        assert_eq!(notes[1].meant(&["name"]), None);
    }

    #[test]
    fn deep_and_broken_input_is_an_error() {
        assert!(parse("[".repeat(100_000).as_bytes()).is_err());
        for bad in ["", "{", "{} {}", "\"\u{0}", "nul", "{\"a\":01}"] {
            assert_eq!(parse(bad.as_bytes()).unwrap_err().code, Code::DECODING, "{bad}");
        }
    }

    #[test]
    fn addresses_are_strict() {
        for bad in [
            "10.0.0.1",
            "10.0.0.0/255.255.255.0",
            "10.0.0.0/024",
            "10.0.0.0/+24",
            "10.0.0.0/33",
            "010.0.0.0/8",
            "::/129",
            "/8",
            "10.0.0.0/",
        ] {
            assert!(parse_cidr(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_cidr("10.0.0.5/24").unwrap().to_string(), "10.0.0.5/24");
        assert_eq!(parse_cidr("::/0").unwrap().to_string(), "::/0");
        assert!(parse_ip("010.0.0.1").is_err() && parse_ip("fe80::1%eth0").is_err());
        assert_eq!(parse_ip("::ffff:10.0.0.1").unwrap().to_string(), "10.0.0.1");
    }
}
