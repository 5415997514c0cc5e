//! A plugin's object in a network configuration (SPEC 1, "Plugin configuration objects").

use crate::raw_object::{RawObject, decode};
use cni_spec::{CniError, Code, PluginType};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

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
