//! A JSON object whose values keep their original bytes, so that what this library does not understand reaches a plugin
//! unchanged: numbers of any size, escapes, white space.

use cni_spec::{CniError, Code, PluginType, json};
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fmt;

/// The entries in order; of equal keys the last value, in the place of the first.
#[derive(Debug, Clone, Default)]
pub(crate) struct RawObject(Vec<(String, Box<RawValue>)>);

impl RawObject {
    /// Parses one object and nothing after it. What Go's decoder repairs is repaired, as by [`json::parse`].
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        json::parse_as(bytes)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &RawValue)> {
        self.0.iter().map(|(key, value)| (key.as_str(), &**value))
    }

    /// Sets a key, in its previous place if it has one.
    pub(crate) fn set(&mut self, key: String, value: Box<RawValue>) {
        match self.0.iter_mut().find(|(name, _)| *name == key) {
            Some(entry) => entry.1 = value,
            None => self.0.push((key, value)),
        }
    }

    pub(crate) fn find(&self, key: &str) -> Option<&RawValue> {
        self.iter().find(|(name, _)| *name == key).map(|(_, value)| value)
    }

    /// The value of `key` in any case, the last of several: how plugin objects are read.
    pub(crate) fn find_in_any_case(&self, key: &str) -> Option<&RawValue> {
        self.iter().filter(|(name, _)| name.eq_ignore_ascii_case(key)).last().map(|(_, value)| value)
    }
}

/// Decodes a value; `null` counts as absent. The error names key and value.
pub(crate) fn decode<T: DeserializeOwned>(key: &str, value: Option<&RawValue>) -> Result<Option<T>, String> {
    let Some(value) = value else { return Ok(None) };
    json::parse_as(value.get().as_bytes()).map_err(|error| {
        // Line and column would count from the value, not from the start of the file.
        let words = error.to_string();
        let words = words.split(" at line ").next().unwrap_or_default();
        format!("key {key} = {}: {words}", shown(value))
    })
}

/// The start of a value for an error text, on one line.
pub(crate) fn shown(value: &RawValue) -> String {
    value.get().chars().take(80).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

impl<'de> Deserialize<'de> for RawObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = RawObject;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawObject, A::Error> {
                let mut object = RawObject::default();
                while let Some((key, value)) = map.next_entry::<String, Box<RawValue>>()? {
                    object.set(key, value);
                }
                Ok(object)
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// Writes an object entry by entry; values keep their bytes.
pub(crate) struct ObjectWriter(Vec<u8>);

impl ObjectWriter {
    pub(crate) fn new() -> Self {
        Self(vec![b'{'])
    }

    /// Writes a value that is JSON already.
    pub(crate) fn raw(&mut self, key: &str, value: &str) {
        if self.0.len() > 1 {
            self.0.push(b',');
        }
        self.0.extend_from_slice(quote(key).as_bytes());
        self.0.push(b':');
        self.0.extend_from_slice(value.as_bytes());
    }

    pub(crate) fn text(&mut self, key: &str, value: &str) {
        self.raw(key, &quote(value));
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.0.push(b'}');
        self.0
    }
}

pub(crate) fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A plugin of a network, with all of its keys as written.
#[derive(Debug, Clone)]
pub struct PluginObject {
    /// The name of its executable.
    pub plugin_type: PluginType,
    /// The object's own `name`, which is used in error texts only.
    pub name: Option<String>,
    /// The capabilities it sets to `true`, sorted.
    pub capabilities: Vec<String>,
    pub(crate) keys: RawObject,
}

impl PluginObject {
    /// The JSON text of one of its keys.
    #[must_use]
    pub fn find(&self, key: &str) -> Option<&str> {
        self.keys.find_in_any_case(key).map(RawValue::get)
    }

    /// Whether both objects use the same executables: the plugin's and its address plugin's.
    pub(crate) fn is_alike(&self, other: &Self) -> bool {
        self.plugin_type == other.plugin_type && self.address_plugin() == other.address_plugin()
    }

    /// `ipam.type`, as text; `None` where there is none that can be read.
    fn address_plugin(&self) -> Option<String> {
        let ipam = RawObject::parse(self.find("ipam")?.as_bytes()).ok()?;
        decode("type", ipam.find_in_any_case("type")).ok()?
    }

    /// Parses an object; `index` is its place in a list, for error texts.
    pub(crate) fn parse(text: &RawValue, index: Option<usize>) -> Result<Self, CniError> {
        let object = RawObject::parse(text.get().as_bytes()).map_err(|error| {
            let place = place(index);
            CniError::new(Code::INVALID_CONFIG, format!("cannot use network config: {place}{error}"))
        })?;
        Self::from_object(object, index)
    }

    pub(crate) fn from_object(keys: RawObject, index: Option<usize>) -> Result<Self, CniError> {
        let invalid = |reason: String| {
            CniError::new(Code::INVALID_CONFIG, format!("cannot use network config: {}{reason}", place(index)))
        };
        let invalid_at = |key: &str, reason: String| invalid(reason).at_key(key);
        let text = |key| decode::<String>(key, keys.find_in_any_case(key)).map_err(|reason| invalid_at(key, reason));
        let plugin_type = match text("type")?.filter(|text| !text.is_empty()) {
            Some(text) => PluginType::parse(&text)
                .map_err(|error| invalid_at("type", format!("key type = {text:?}: {}", error.msg)))?,
            None => {
                let reason = "key type is missing: the file name of an executable in CNI_PATH";
                return Err(invalid_at("type", reason.to_owned()));
            }
        };
        let flags = keys.find_in_any_case("capabilities");
        let flags: Option<BTreeMap<String, Option<bool>>> =
            decode("capabilities", flags).map_err(|reason| invalid_at("capabilities", reason))?;
        let is_on = |(name, is_on): (String, Option<bool>)| Some(name).filter(|_| is_on == Some(true));
        let capabilities = flags.unwrap_or_default().into_iter().filter_map(is_on).collect();
        Ok(Self { plugin_type, name: text("name")?.filter(|name| !name.is_empty()), capabilities, keys })
    }
}

fn place(index: Option<usize>) -> String {
    index.map(|index| format!("plugins[{index}]: ")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stay_as_written_and_the_last_of_equal_keys_wins() {
        let object = RawObject::parse(br#"{"a": 12345678901234567890.10, "b":"\u003c", "a": { "x" :1 } }"#).unwrap();
        let shown: Vec<_> = object.iter().map(|(key, value)| format!("{key}={}", value.get())).collect();
        assert_eq!(shown, [r#"a={ "x" :1 }"#, r#"b="\u003c""#]);
    }

    #[test]
    fn what_is_no_object_is_an_error() {
        for bad in ["", "[]", "null", "{} {}", "{\"a\":}", "{\"a\":1,}", "\u{feff}{}"] {
            assert!(RawObject::parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
