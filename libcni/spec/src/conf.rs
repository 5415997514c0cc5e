//! A plugin's network config: what stdin carries (SPEC 1, "Plugin configuration object", and SPEC 3).

use crate::error::{CniError, Code};
use crate::json::{self, Ignored};
use crate::names::{ContainerId, IfName, NetworkName, PluginType};
use crate::result::AddResult;
use crate::version::SpecVersion;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::cell::RefCell;

/// The keys that the specification and its CONVENTIONS define at the top of a plugin's config.
const COMMON_KEYS: &[&str] =
    &["cniVersion", "name", "type", "args", "ipam", "dns", "capabilities", "runtimeConfig", "prevResult", "ipMasq"];

/// One container's interface in a network, as GC lists them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Attachment {
    /// The container.
    pub container_id: ContainerId,
    /// Its interface.
    pub ifname: IfName,
}

/// The whole object of stdin: known to be JSON and to have a valid network name.
#[derive(Debug)]
pub struct ConfObject {
    value: Value,
    common: Common,
    name: NetworkName,
    ignored: RefCell<Vec<Ignored>>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Common {
    cni_version: String,
    name: String,
    #[serde(rename = "type")]
    plugin_type: String,
    ipam: Ipam,
    prev_result: Option<Value>,
    #[serde(rename = "cni.dev/valid-attachments")]
    valid_attachments: Option<Vec<WireAttachment>>,
    #[serde(rename = "cni.dev/attachments")]
    attachments: Option<Vec<WireAttachment>>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default)]
struct Ipam {
    #[serde(rename = "type")]
    ipam_type: String,
}

#[derive(Debug, Deserialize)]
struct WireAttachment {
    #[serde(rename = "containerID")]
    container_id: String,
    ifname: String,
}

/// `cniVersion` of an input, if that is a JSON object with one; whatever else is wrong with it.
#[must_use]
pub fn find_version_text(input: &[u8]) -> Option<String> {
    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct Versioned {
        cni_version: String,
    }
    let value = json::parse(input).ok()?;
    json::decode::<Versioned>(&value).ok().map(|input| input.cni_version).filter(|text| !text.is_empty())
}

impl ConfObject {
    /// Parses stdin.
    ///
    /// # Errors
    /// Code 6 if it is no JSON object, code 7 without a valid `name`.
    pub fn parse(stdin: &[u8]) -> Result<Self, CniError> {
        let value = json::parse(stdin).map_err(|error| {
            let msg = error.msg.replacen("cannot parse JSON", "cannot parse network config on stdin", 1);
            CniError { msg, ..error }
        })?;
        if !value.is_object() {
            return Err(CniError::new(Code::DECODING, "cannot parse network config on stdin: it is no JSON object"));
        }
        let common: Common = json::decode(&value).map_err(|error| Self::invalid(&error))?;
        let name = NetworkName::parse(&common.name)?;
        Ok(Self { value, common, name, ignored: RefCell::default() })
    }

    fn invalid(error: &json::DecodeError) -> CniError {
        CniError::new(Code::INVALID_CONFIG, format!("cannot use network config: {error}"))
    }

    /// `cniVersion` as written; may be empty, which means 0.1.0.
    #[must_use]
    pub fn version_text(&self) -> &str {
        &self.common.cni_version
    }

    /// The network's name.
    #[must_use]
    pub fn name(&self) -> &NetworkName {
        &self.name
    }

    /// `type` as written; may be empty.
    #[must_use]
    pub fn plugin_type(&self) -> &str {
        &self.common.plugin_type
    }

    /// The whole object.
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// `ipam.type`, if the network has an address plugin.
    ///
    /// # Errors
    /// Code 7 if it is a path.
    pub fn ipam_type(&self) -> Result<Option<PluginType>, CniError> {
        match self.common.ipam.ipam_type.as_str() {
            "" => Ok(None),
            text => PluginType::parse(text).map(Some).map_err(|error| CniError {
                msg: format!("cannot use network config: key ipam.type = {text:?}: {}", error.msg),
                ..error
            }),
        }
    }

    /// Decodes the keys that `T` knows, in any case, and notes the ones it does not.
    ///
    /// # Errors
    /// Code 7 naming key and value.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, CniError> {
        json::decode_noting(&self.value, &self.ignored).map_err(|error| self.hint(Self::invalid(&error)))
    }

    /// A sentence for each ignored key that seems to mean a known one.
    #[must_use]
    pub fn misspelt(&self) -> Vec<String> {
        let sentence = |ignored: &Ignored| {
            let elsewhere = if ignored.path == ignored.key { COMMON_KEYS } else { &[] };
            let meant = ignored.meant(elsewhere)?;
            Some(format!("Key {} is unknown and was ignored: did you mean {meant}?", ignored.path))
        };
        self.ignored.borrow().iter().filter_map(sentence).collect()
    }

    /// Adds [`ConfObject::misspelt`] to an error about the config: a key that is missing may be a misspelt one.
    /// What the error says already is not said again.
    #[must_use]
    pub fn hint(&self, error: CniError) -> CniError {
        let add = |error: CniError, sentence: String| match error.details.contains(&sentence) {
            true => error,
            false => error.detail(sentence),
        };
        self.misspelt().into_iter().fold(error, add)
    }

    /// `prevResult`, which must be of the config's version family; `None` if there is none.
    ///
    /// # Errors
    /// Code 6 if it does not decode, code 1 if it is of another family.
    pub fn prev_result(&self, version: SpecVersion) -> Result<Option<AddResult>, CniError> {
        let Some(value) = &self.common.prev_result else { return Ok(None) };
        let own = crate::legacy::version_of(value)
            .map_err(|error| CniError { msg: format!("cannot use prevResult: {}", error.msg), ..error })?;
        if let Some(own) = own.filter(|own| own.family() != version.family()) {
            return Err(CniError::new(
                Code::INCOMPATIBLE_VERSION,
                format!(
                    "cannot use prevResult: its cniVersion {own} has another result form than the config's {version}"
                ),
            ));
        }
        AddResult::from_value(value, version).map(Some).map_err(|error| CniError {
            msg: error.msg.replacen("cannot read result", "cannot read prevResult", 1),
            ..error
        })
    }

    /// The attachments that GC must keep. A missing list is an error: it does not mean that none is valid.
    ///
    /// # Errors
    /// Code 7 if the list is missing or an entry is malformed.
    pub fn valid_attachments(&self) -> Result<Vec<Attachment>, CniError> {
        let list = self.common.valid_attachments.as_ref().or(self.common.attachments.as_ref()).ok_or_else(|| {
            CniError::new(Code::INVALID_CONFIG, "cannot collect garbage: key cni.dev/valid-attachments is missing")
                .detail("An empty list says that no attachment is valid; without the list nothing is removed.")
        })?;
        list.iter().map(WireAttachment::parse).collect()
    }
}

impl WireAttachment {
    fn parse(&self) -> Result<Attachment, CniError> {
        let bad = |error: CniError| CniError {
            code: Code::INVALID_CONFIG,
            msg: format!("cannot use cni.dev/valid-attachments: {}", error.msg),
            ..error
        };
        Ok(Attachment {
            container_id: ContainerId::parse(&self.container_id).map_err(bad)?,
            ifname: IfName::parse(&self.ifname).map_err(bad)?,
        })
    }
}

/// What a plugin makes of its own keys. Every rule about them is here, so that nothing later can meet a bad value.
pub trait FromConf: Sized {
    /// Reads and checks the plugin's keys.
    ///
    /// # Errors
    /// Code 7 or 2, naming key and value.
    fn from_conf(object: &ConfObject) -> Result<Self, CniError>;
}

/// For plugins without keys of their own.
impl FromConf for () {
    fn from_conf(_: &ConfObject) -> Result<Self, CniError> {
        Ok(())
    }
}

/// A network config, parsed: the specification's keys around the plugin's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginConf<T> {
    /// The version that results are printed in.
    pub cni_version: SpecVersion,
    /// The network.
    pub name: NetworkName,
    /// `type`, as the runtime looked it up.
    pub plugin_type: String,
    /// `ipam.type`, if there is an address plugin.
    pub ipam: Option<PluginType>,
    /// What the plugins before this one made.
    pub prev_result: Option<AddResult>,
    /// The plugin's own keys.
    pub own: T,
}

impl<T> PluginConf<T> {
    /// What the plugins before this one made, for a plugin that only changes it.
    ///
    /// # Errors
    /// Code 7: the plugin is the first of its list, or the runtime passed no result on.
    pub fn get_prev_result(&self) -> Result<&AddResult, CniError> {
        self.prev_result.as_ref().ok_or_else(|| {
            let msg = format!("cannot use network config: plugin {} needs key prevResult", self.plugin_type);
            CniError::new(Code::INVALID_CONFIG, msg)
                .detail("It changes what others have made: in the list of plugins it stands after an interface plugin.")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(text: &str) -> Result<ConfObject, CniError> {
        ConfObject::parse(text.as_bytes())
    }

    #[test]
    fn a_config_needs_a_name() {
        assert_eq!(object("{}").unwrap_err().msg, "missing network name");
        let error = object(r#"{"name":"../x"}"#).unwrap_err();
        assert_eq!((error.code, error.details.as_str()), (Code::INVALID_CONFIG, "../x"));
        assert_eq!(object("").unwrap_err().code, Code::DECODING);
        assert_eq!(object("[]").unwrap_err().code, Code::DECODING);
        assert_eq!(object(r#"{"name":"n"} x"#).unwrap_err().code, Code::DECODING);
        assert_eq!(
            object(r#"{"name":5}"#).unwrap_err().msg,
            "cannot use network config: key name = 5: expected a string"
        );
    }

    #[test]
    fn an_ipam_type_is_no_path() {
        assert_eq!(object(r#"{"name":"n","ipam":{}}"#).unwrap().ipam_type().unwrap(), None);
        assert!(object(r#"{"name":"n","ipam":{"type":"../sh"}}"#).unwrap().ipam_type().is_err());
    }

    #[test]
    fn prev_result_is_of_the_configs_family() {
        let conf = object(r#"{"name":"n","prevResult":{"cniVersion":"0.2.0","ip4":{"ip":"10.0.0.1/8"}}}"#).unwrap();
        assert!(conf.prev_result(SpecVersion::V0_1_0).unwrap().is_some());
        assert_eq!(conf.prev_result(SpecVersion::V1_0_0).unwrap_err().code, Code::INCOMPATIBLE_VERSION);
    }

    #[test]
    fn gc_without_a_list_is_refused() {
        assert!(object(r#"{"name":"n"}"#).unwrap().valid_attachments().is_err());
        let list = object(r#"{"name":"n","cni.dev/valid-attachments":[{"containerID":"c","ifname":"eth0"}]}"#).unwrap();
        assert_eq!(list.valid_attachments().unwrap().len(), 1);
        let bad = object(r#"{"name":"n","cni.dev/attachments":[{"containerID":"../c","ifname":"eth0"}]}"#).unwrap();
        assert_eq!(bad.valid_attachments().unwrap_err().code, Code::INVALID_CONFIG);
    }
}
