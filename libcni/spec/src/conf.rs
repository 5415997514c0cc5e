//! A plugin's network config, as it is on stdin (SPEC 1, "Plugin configuration object", and SPEC 3).

use crate::error::{CniError, Code};
use crate::json::{self, Ignored};
use crate::names::{NetworkName, PluginType};
use crate::result::AddResult;
use crate::version::SpecVersion;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt;
use std::rc::Rc;

/// The keys that the specification and its CONVENTIONS define at the top of a plugin's config.
const COMMON_KEYS: &[&str] =
    &["cniVersion", "name", "type", "args", "ipam", "dns", "capabilities", "runtimeConfig", "prevResult", "ipMasq"];

/// The maximum number of misspelt keys that are reported.
const MISSPELT_MAX: usize = 10;

/// The whole object of stdin: valid JSON with a valid network name. All other keys are read where they are needed, as
/// one verb does not use what another requires.
#[derive(Debug, Clone)]
pub struct ConfObject {
    value: Value,
    name: NetworkName,
    version: String,
    ignored: RefCell<Vec<Ignored>>,
    unread: RefCell<Vec<String>>,
    awaits_runtime: Cell<bool>,
}

/// An unknown key that resembles a known one. Its text is a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misspelt {
    /// The key's path, `ipam.subnt`.
    pub path: String,
    /// The known key, without its path.
    pub meant: String,
}

impl fmt::Display for Misspelt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key {} is unknown and was ignored: did you mean {}?", self.path, self.meant)
    }
}

/// `cniVersion` of an input, if that is a JSON object with one; other errors are ignored.
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
    /// Code 6 if it is no JSON object, or `name` or `cniVersion` is no string; code 7 without a valid `name`.
    pub fn parse(stdin: &[u8]) -> Result<Self, CniError> {
        let value = json::parse(stdin).map_err(|error| {
            let msg = error.msg.replacen("cannot parse JSON", "cannot parse network config on stdin", 1);
            CniError { msg, ..error }
        })?;
        Self::of_value(value)
    }

    /// As [`ConfObject::parse`], of parsed JSON.
    ///
    /// # Errors
    /// As [`ConfObject::parse`].
    pub fn of_value(value: Value) -> Result<Self, CniError> {
        // As for each key, `null` is what is not there: an object without keys.
        let value = if value.is_null() { Value::Object(serde_json::Map::default()) } else { value };
        if !value.is_object() {
            return Err(CniError::new(Code::DECODING, "cannot parse network config on stdin: it is no JSON object"));
        }
        let text = |key: &str| json::find::<String>(&value, &[key]).map(Option::unwrap_or_default);
        // The reference decodes these two separately, before it reads the rest of the config.
        let undecodable = |error: json::DecodeError| CniError { code: Code::DECODING, ..Self::invalid(&error) };
        let name = NetworkName::parse(&text("name").map_err(undecodable)?)?;
        let version = text("cniVersion").map_err(undecodable)?;
        Ok(Self {
            value,
            name,
            version,
            ignored: RefCell::default(),
            unread: RefCell::default(),
            awaits_runtime: Cell::default(),
        })
    }

    fn invalid(error: &json::DecodeError) -> CniError {
        let invalid = CniError::new(Code::INVALID_CONFIG, format!("cannot use network config: {error}"));
        if error.path.is_empty() { invalid } else { invalid.at_key(&error.path) }
    }

    /// `cniVersion` as written; may be empty, which means 0.1.0.
    #[must_use]
    pub fn version_text(&self) -> &str {
        &self.version
    }

    /// The network's name.
    #[must_use]
    pub fn name(&self) -> &NetworkName {
        &self.name
    }

    /// The whole object.
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// `type` as written; empty if there is none.
    ///
    /// # Errors
    /// Code 7 if it is no string.
    pub fn plugin_type(&self) -> Result<String, CniError> {
        self.get(&["type"]).map(Option::unwrap_or_default)
    }

    /// `ipam.type`, if the network has an address plugin.
    ///
    /// # Errors
    /// Code 7 if it is no string, or a path.
    pub fn ipam_type(&self) -> Result<Option<PluginType>, CniError> {
        let text: String = self.get(&["ipam", "type"])?.unwrap_or_default();
        match text.as_str() {
            "" => Ok(None),
            text => PluginType::parse(text).map(Some).map_err(|error| {
                let msg = format!("cannot use network config: key ipam.type = {text:?}: {}", error.msg);
                CniError { msg, ..error }.at_key("ipam.type")
            }),
        }
    }

    /// The value of one key, such as `["ipam", "dataDir"]`; `None` if it is absent.
    ///
    /// # Errors
    /// Code 7: the value is none of a `T`.
    pub fn get<T: DeserializeOwned>(&self, keys: &[&str]) -> Result<Option<T>, CniError> {
        json::find(&self.value, keys).map_err(|error| Self::invalid(&error))
    }

    /// The value of one key, such as `["ipam", "dataDir"]`, for verbs that continue without it: `None` if it is absent
    /// or invalid; [`ConfObject::unread`] reports the latter.
    pub fn find<T: DeserializeOwned>(&self, keys: &[&str]) -> Option<T> {
        self.unless_unread(self.get(keys)).flatten()
    }

    /// The value; if it is invalid, the reason is noted.
    pub fn unless_unread<T>(&self, read: Result<T, CniError>) -> Option<T> {
        read.map_err(|error| self.unread.borrow_mut().push(error.to_string())).ok()
    }

    /// The reasons why keys were ignored as invalid, a sentence each.
    #[must_use]
    pub fn unread(&self) -> Vec<String> {
        self.unread.borrow().clone()
    }

    /// Decodes the keys that `T` has, in any case, and notes the ones it does not have.
    ///
    /// # Errors
    /// Code 7 naming key and value.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, CniError> {
        json::decode_noting(&self.value, &self.ignored).map_err(|error| self.hint(Self::invalid(&error)))
    }

    /// As [`ConfObject::decode`], after another type was decoded: a key that either type has is not noted.
    ///
    /// # Errors
    /// Code 7 naming key and value.
    pub fn decode_also<T: DeserializeOwned>(&self) -> Result<T, CniError> {
        let also = RefCell::default();
        let decoded = json::decode_noting(&self.value, &also);
        let (first, also) = (self.ignored.take(), also.into_inner());
        let of_both = |one: &[Ignored], other: &[Ignored]| -> Vec<Ignored> {
            one.iter().filter(|key| other.iter().any(|unread| key.is_within(unread))).cloned().collect()
        };
        self.ignored.replace([of_both(&first, &also), of_both(&also, &first)].concat());
        decoded.map_err(|error| self.hint(Self::invalid(&error)))
    }

    /// The keys that were read by no field, each with the keys that its object has fields for.
    #[must_use]
    pub fn ignored(&self) -> Vec<Ignored> {
        self.ignored.borrow().clone()
    }

    /// The unknown keys that resemble a known one.
    #[must_use]
    pub fn misspelt(&self) -> Vec<Misspelt> {
        let resembling = |ignored: &Ignored| {
            let elsewhere = if ignored.path == ignored.key { COMMON_KEYS } else { &[] };
            ignored.meant(elsewhere).map(|meant| Misspelt { path: ignored.path.clone(), meant: meant.to_owned() })
        };
        // `routes` is a key of address plugins, and not meant as `rules`.
        let is_clear = |ignored: &&Ignored| ignored.path != "routes";
        let mut all: Vec<Misspelt> = self.ignored.borrow().iter().filter(is_clear).filter_map(resembling).collect();
        // Noted for each type that was decoded.
        let mut seen = BTreeSet::new();
        all.retain(|misspelt| seen.insert(misspelt.path.clone()));
        all.truncate(MISSPELT_MAX);
        all
    }

    /// Notes that a value is missing which the runtime gives for this capability, if the config enables it (CONVENTIONS, "Dynamic
    /// Plugin specific Fields").
    pub fn await_capability(&self, capability: &str) {
        let is_enabled = self.find(&["capabilities", capability]) == Some(true);
        self.awaits_runtime.set(self.awaits_runtime.get() || is_enabled);
    }

    /// Whether such a value is missing. STATUS never has it, so its absence says nothing about the plugin.
    #[must_use]
    pub fn awaits_runtime(&self) -> bool {
        self.awaits_runtime.get()
    }

    /// Adds [`ConfObject::misspelt`] to an error about the config: a missing key may be a misspelt one. Text that the
    /// error contains already is not repeated.
    #[must_use]
    pub fn hint(&self, error: CniError) -> CniError {
        let add = |error: CniError, sentence: String| match error.details.contains(&sentence) {
            true => error,
            false => error.detail(sentence),
        };
        self.misspelt().iter().map(Misspelt::to_string).fold(error, add)
    }

    /// `prevResult`, which must be of the config's version family; `None` if there is none.
    ///
    /// # Errors
    /// Code 6 if it does not decode, code 1 if it is of another family.
    pub fn prev_result(&self, version: SpecVersion) -> Result<Option<AddResult>, CniError> {
        let Some(value) = json::member(&self.value, "prevResult") else { return Ok(None) };
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
}

/// Parsing of a plugin's own keys for ADD. Every rule about them is here, so that later code need not check.
pub trait FromConf: Sized {
    /// Reads and checks the plugin's keys.
    ///
    /// # Errors
    /// Code 7 or 2, naming key and value.
    fn from_conf(object: &ConfObject) -> Result<Self, CniError>;
}

/// Parsing of a plugin's keys for removal. It cannot refuse a config: an attachment whose config ADD would refuse must
/// still be removed.
///
/// Each key is read by [`ConfObject::find`], independently of the others. An invalid one counts as absent, and is
/// logged.
pub trait FromAnyConf: Sized {
    /// Reads the keys that removal needs.
    fn from_any_conf(object: &ConfObject) -> Self;
}

/// The configuration of plugins without keys of their own.
impl FromConf for () {
    fn from_conf(_: &ConfObject) -> Result<Self, CniError> {
        Ok(())
    }
}

/// The configuration of plugins that find their objects by network, container and interface alone.
impl FromAnyConf for () {
    fn from_any_conf(_: &ConfObject) -> Self {}
}

/// What the specification defines of a network config, without the plugin's own keys.
#[derive(Debug, Clone)]
pub struct NetConf {
    /// The version that results are printed in.
    pub cni_version: SpecVersion,
    /// The network.
    pub name: NetworkName,
    /// `type`, by which the runtime looked up the executable.
    pub plugin_type: String,
    /// `ipam.type`, if there is an address plugin.
    pub ipam: Option<PluginType>,
    object: Rc<ConfObject>,
    made: Option<AddResult>,
}

impl NetConf {
    /// The config for ADD, CHECK and STATUS, and the plugin's own keys, as `keys` reads them ([`FromConf::from_conf`]). Each key is
    /// checked except `prevResult`, which not every plugin uses.
    ///
    /// # Errors
    /// Code 7 or 2, naming key and value.
    pub fn checked<K>(
        object: &Rc<ConfObject>,
        cni_version: SpecVersion,
        keys: impl FnOnce(&ConfObject) -> Result<K, CniError>,
    ) -> Result<(Self, K), CniError> {
        let net = Self::start(object, cni_version, object.plugin_type()?);
        let keys = keys(object).map_err(|error| object.hint(error))?;
        Ok((Self { ipam: object.ipam_type()?, ..net }, keys))
    }

    /// The config for DEL and GC, which is never refused, and the plugin's own keys, as `keys` reads them
    /// ([`FromAnyConf::from_any_conf`]). [`ConfObject::unread`] reports invalid keys.
    #[must_use]
    pub fn for_removal<K>(
        object: &Rc<ConfObject>,
        cni_version: SpecVersion,
        keys: impl FnOnce(&ConfObject) -> K,
    ) -> (Self, K) {
        let plugin_type = object.unless_unread(object.plugin_type()).unwrap_or_default();
        let net = Self::start(object, cni_version, plugin_type);
        let keys = keys(object);
        (Self { ipam: object.unless_unread(object.ipam_type()).flatten(), ..net }, keys)
    }

    fn start(object: &Rc<ConfObject>, cni_version: SpecVersion, plugin_type: String) -> Self {
        let (name, object) = (object.name().clone(), Rc::clone(object));
        Self { cni_version, name, plugin_type, ipam: None, object, made: None }
    }

    /// The object that it was parsed from.
    #[must_use]
    pub fn object(&self) -> &ConfObject {
        &self.object
    }

    /// The same config with the result of this plugin's own ADD as prevResult.
    #[must_use]
    pub fn after(self, made: AddResult) -> Self {
        Self { made: Some(made), ..self }
    }

    /// prevResult: at ADD the result of the plugins before this one, later the result of ADD; `None` if there is none.
    ///
    /// # Errors
    /// Code 6 if it does not decode, code 1 if it is of another version family than the config.
    pub fn prev_result(&self) -> Result<Option<AddResult>, CniError> {
        match &self.made {
            Some(made) => Ok(Some(made.clone())),
            None => self.object.prev_result(self.cni_version),
        }
    }

    /// prevResult, for callers that continue without it: an invalid one is logged, and counts as absent.
    #[must_use]
    pub fn find_prev_result(&self) -> Option<AddResult> {
        self.prev_result().unwrap_or_else(|error| {
            tracing::warn!(network = %self.name, "going on without prevResult: {error}");
            None
        })
    }

    /// prevResult, for a plugin that only changes the objects of others.
    ///
    /// # Errors
    /// As [`NetConf::prev_result`]; code 7: the plugin is the first of its list, or the runtime passed no result on.
    pub fn get_prev_result(&self) -> Result<AddResult, CniError> {
        self.prev_result()?.ok_or_else(|| {
            let msg = format!("cannot use network config: plugin {} needs key prevResult", self.plugin_type);
            CniError::new(Code::INVALID_CONFIG, msg)
                .detail("It changes what others have made: in the list of plugins it comes after an interface plugin.")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(text: &str) -> Result<ConfObject, CniError> {
        ConfObject::parse(text.as_bytes())
    }

    #[test]
    fn a_config_needs_a_name() {
        for text in ["{}", "null"] {
            assert_eq!(object(text).unwrap_err().msg, "missing network name");
        }
        let error = object(r#"{"name":"../x"}"#).unwrap_err();
        assert_eq!((error.code, error.details.as_str()), (Code::INVALID_CONFIG, "../x"));
        assert_eq!(object("").unwrap_err().code, Code::DECODING);
        assert_eq!(object("[]").unwrap_err().code, Code::DECODING);
        assert_eq!(object(r#"{"name":"n"} x"#).unwrap_err().code, Code::DECODING);
        for key in ["name", "cniVersion"] {
            let error = object(&json!({"name": "n", key: 5}).to_string()).unwrap_err();
            assert_eq!(error.code, Code::DECODING);
            assert_eq!(error.msg, format!("cannot use network config: key {key} = 5: expected a string"));
        }
    }

    /// Every key of the specification except `name` and `cniVersion`.
    #[test]
    fn removal_reads_what_it_needs_of_any_config() {
        struct Own(Option<u32>);
        impl FromAnyConf for Own {
            fn from_any_conf(object: &ConfObject) -> Self {
                Self(object.find(&["own", "number"]))
            }
        }
        let read = |text: &str| {
            let object = Rc::new(object(text).unwrap());
            let (conf, own) = NetConf::for_removal(&object, SpecVersion::V1_1_0, Own::from_any_conf);
            (own.0, conf.ipam.is_some(), conf.find_prev_result().is_some(), object.unread())
        };
        let broken =
            r#"{"name":"n","type":5,"ipam":{"type":"a"},"dns":5,"args":5,"prevResult":5,"own":{"number":7,"x":-1}}"#;
        let unread = vec!["cannot use network config: key type = 5: expected a string".to_owned()];
        assert_eq!(read(broken), (Some(7), true, false, unread));
        let (own, ipam, prev, unread) = read(r#"{"name":"n","ipam":5,"own":{"number":"x"}}"#);
        assert_eq!((own, ipam, prev), (None, false, false));
        let sentences = [
            r#"cannot use network config: key own.number = "x": expected a whole number from 0 to 4294967295"#,
            "cannot use network config: key ipam = 5: expected an object",
        ];
        assert_eq!(unread, sentences);
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
    fn of_two_types_a_key_is_known_that_either_has() {
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Of<T> {
            ipam: T,
        }
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct First {
            _subnet: String,
            _ranges: Vec<BTreeSet<String>>,
        }
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Second {
            _store: String,
        }
        let text = br#"{"cniVersion":"1.0.0","name":"n","ipam":{"_subnet":"s","_store":"x","_stroe":"y","_sbnet":"z","other":1}}"#;
        let object = ConfObject::parse(text).unwrap();
        let _: Of<First> = object.decode().unwrap();
        assert!(object.misspelt().iter().any(|one| one.path == "ipam._sbnet"));
        let _: Of<Second> = object.decode_also().unwrap();
        let told: Vec<String> = object.misspelt().iter().map(|one| format!("{} {}", one.path, one.meant)).collect();
        assert_eq!(told, ["ipam._sbnet _subnet", "ipam._stroe _store"]);
        let unread: BTreeSet<String> = object.ignored().into_iter().map(|one| one.path).collect();
        assert!(!unread.contains("ipam._store") && !unread.contains("ipam._subnet"), "{unread:?}");
        assert!(unread.contains("ipam.other"));
    }
}
