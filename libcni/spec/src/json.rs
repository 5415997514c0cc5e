//! JSON with the rules of Go's decoder, which the CNI ecosystem relies on.
//!
//! Keys of known fields match in any case, `null` counts as absent, the last of equal keys counts, unknown keys are
//! ignored; but a wrong type is an error, which names the key and the value. Ignored keys that resemble a known one are
//! noted, so that an error about a missing key can name the misspelt one.

mod decoder;
mod lenient;

pub use decoder::DecodeError;

use crate::error::{CniError, Code};
use decoder::{Decoder, Path, decode_at};
use serde::Serialize;
use serde::de::{self, DeserializeOwned};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::cell::RefCell;
use std::marker::PhantomData;

/// Parses one JSON value and nothing after it. Like Go's decoder it also accepts invalid UTF-8 and lone surrogates,
/// which become U+FFFD; any nesting, of which the part that no key reads is dropped; numbers of any size.
///
/// # Errors
/// Code 6 with line and column.
pub fn parse(bytes: &[u8]) -> Result<Value, CniError> {
    parse_as(bytes).map_err(|error| CniError::new(Code::DECODING, format!("cannot parse JSON: {error}")))
}

/// As [`parse`], into a type that `serde_json` knows, such as one whose values keep their text.
///
/// # Errors
/// The first of `serde_json`.
pub fn parse_as<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, serde_json::Error> {
    // Valid UTF-8 is checked faster than it is repaired.
    let text = std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed);
    serde_json::from_str(&text)
        .or_else(|error| lenient::adapt(&text).and_then(|text| serde_json::from_str(&text).ok()).ok_or(error))
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

/// An index as the reference has it, an integer of its machine: a negative one is no place in any list, and stays in the result
/// as it was.
pub mod index {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// # Errors
    /// The value is no integer of 64 bits.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
        Ok(Option::<isize>::deserialize(deserializer)?.map(isize::cast_unsigned))
    }

    /// # Errors
    /// None of its own.
    pub fn serialize<S: Serializer>(index: &Option<usize>, serializer: S) -> Result<S::Ok, S::Error> {
        index.map(usize::cast_signed).serialize(serializer)
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

/// Parses `address/prefix` by Go's rules: no netmask, no sign, no missing prefix, no leading zeros but in the prefix. IPv4 mapped into IPv6 is IPv4,
/// as for Go, when the prefix is as long as the mapping.
///
/// # Errors
/// A sentence that quotes the string and says what is expected.
pub fn parse_cidr(text: &str) -> Result<ipnetwork::IpNetwork, String> {
    let written = parse_cidr_as_written(text)?;
    let (canonical, mapping_bits) = (written.ip().to_canonical(), 96);
    Ok(match written.prefix().checked_sub(mapping_bits) {
        Some(prefix) if canonical != written.ip() => ipnetwork::IpNetwork::new(canonical, prefix).unwrap_or(written),
        _ => written,
    })
}

/// Parses `address/prefix` as [`parse_cidr`] does, but IPv4 mapped into IPv6 stays IPv6.
///
/// # Errors
/// A sentence that quotes the string and says what is expected.
pub fn parse_cidr_as_written(text: &str) -> Result<ipnetwork::IpNetwork, String> {
    let bad = || format!("{text:?} is no address with prefix, such as 10.1.0.5/24 or fd00::5/64");
    let (address, prefix) = text.split_once('/').ok_or_else(bad)?;
    let is_number = prefix.bytes().all(|byte| byte.is_ascii_digit());
    let prefix = is_number.then(|| prefix.parse::<u8>().ok()).flatten().ok_or_else(bad)?;
    let address = address.parse().ok().ok_or_else(bad)?;
    ipnetwork::IpNetwork::new(address, prefix).ok().ok_or_else(bad)
}

/// Whether a terminal may act on it: controls, marks of direction, and what has no width.
#[must_use]
pub fn acts(c: char) -> bool {
    let marks = ['\u{ad}', '\u{61c}', '\u{180e}', '\u{feff}'];
    let is_mark = matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}');
    c.is_control() || is_mark || marks.contains(&c)
}

/// The text in one line, with all that a terminal may act on escaped.
#[must_use]
pub fn visible(text: &str) -> String {
    text.chars().map(|c| if acts(c) { c.escape_default().to_string() } else { c.to_string() }).collect()
}

/// A key without a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ignored {
    /// The key's path, `ipam.subnt`.
    pub path: String,
    /// The key alone.
    pub key: String,
    /// The known keys of that object.
    pub known: &'static [&'static str],
}

impl Ignored {
    /// Whether this is the other key, or one of its value.
    pub(crate) fn is_within(&self, other: &Self) -> bool {
        self.path.strip_prefix(&other.path).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    }

    /// The known key that this one resembles, unless it is itself known in `elsewhere`.
    #[must_use]
    pub fn meant(&self, elsewhere: &[&'static str]) -> Option<&'static str> {
        let is_known = elsewhere.iter().any(|known| known.eq_ignore_ascii_case(&self.key));
        let all = self.known.iter().chain(elsewhere).copied();
        if is_known { None } else { resembling(&self.key, all) }
    }
}

/// Returns the known name that `name` resembles most, in any case: at most two letters differ, and less than half
/// of them.
pub fn resembling<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const DIFFERING_MAX: usize = 2;
    let name = name.to_lowercase();
    let length = name.chars().count();
    let comparable = known.into_iter().filter(|one| one.len().abs_diff(length) <= DIFFERING_MAX);
    let near = comparable.map(|one| (strsim::osa_distance(&one.to_lowercase(), &name), one));
    let near = near.filter(|(differing, _)| *differing <= DIFFERING_MAX && differing * 2 < length);
    near.min_by_key(|(differing, _)| *differing).map(|(_, one)| one)
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
        assert_eq!(parse_cidr("10.0.0.5/024").unwrap().to_string(), "10.0.0.5/24");
        assert_eq!(parse_cidr("::/0").unwrap().to_string(), "::/0");
        assert_eq!(parse_cidr("::ffff:10.1.0.5/120").unwrap().to_string(), "10.1.0.5/24");
        assert!(parse_cidr("::ffff:10.1.0.5/24").unwrap().is_ipv6() && parse_cidr("::ffff:10.1.0.5/129").is_err());
        assert!(parse_ip("010.0.0.1").is_err() && parse_ip("fe80::1%eth0").is_err());
        assert_eq!(parse_ip("::ffff:10.0.0.1").unwrap().to_string(), "10.0.0.1");
    }

    #[test]
    fn the_nearest_name_is_meant() {
        assert_eq!(resembling("brigde", ["bridge", "ptp"]), Some("bridge"));
        assert_eq!(resembling("HOSTPROT", ["port", "hostPort"]), Some("hostPort"));
        assert_eq!(resembling("vlam", ["ipvlan", "vlan"]), Some("vlan"));
        assert_eq!(resembling("ptr", ["tap", "ptp"]), Some("ptp"));
    }

    #[test]
    fn names_that_differ_by_more_are_strangers() {
        assert_eq!(resembling("calico", ["bridge", "vlan"]), None);
        assert_eq!(resembling("mac", ["mtu"]), None);
        assert_eq!(resembling("", ["a"]), None);
    }

    #[test]
    fn a_key_that_is_known_elsewhere_is_not_misspelt() {
        let key = |key: &str| Ignored { path: key.to_owned(), key: key.to_owned(), known: &["hostPort", "names"] };
        assert_eq!(key("hostprot").meant(&["name"]), Some("hostPort"));
        assert_eq!(key("nmae").meant(&["name"]), Some("name"));
        assert_eq!(key("Name").meant(&["name"]), None);
    }
}
