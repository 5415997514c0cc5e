//! A plugin's object in a network configuration (SPEC 1, "Plugin configuration objects").

use crate::raw_object::{RawObject, decode};
use cni_spec::{CniError, Code, PluginType};
use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

/// A plugin of a network, with all of its keys as written.
#[derive(Debug, Clone)]
pub struct PluginObject {
    /// The name of its executable.
    pub plugin_type: PluginType,
    /// The object's own `name`, which is used in error texts only.
    pub name: Option<String>,
    /// The capabilities it sets to `true`.
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
        let Flags(flags) =
            decode("capabilities", flags).map_err(|reason| invalid_at("capabilities", reason))?.unwrap_or_default();
        let capabilities = flags.into_iter().filter(|(_, is_on)| *is_on).map(|(name, _)| name).collect();
        Ok(Self { plugin_type, name: text("name")?.filter(|name| !name.is_empty()), capabilities, keys })
    }
}

fn place(index: Option<usize>) -> String {
    index.map(|index| format!("plugins[{index}]: ")).unwrap_or_default()
}

/// Capability names and whether they are enabled, in order.
#[derive(Default)]
struct Flags(Vec<(String, bool)>);

impl<'de> Deserialize<'de> for Flags {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Flags;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object of true and false")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Flags, A::Error> {
                let mut flags: Vec<(String, bool)> = Vec::new();
                while let Some((name, is_on)) = map.next_entry::<String, Option<bool>>()? {
                    flags.retain(|(have, _)| *have != name);
                    flags.push((name, is_on.unwrap_or(false)));
                }
                Ok(Flags(flags))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}
