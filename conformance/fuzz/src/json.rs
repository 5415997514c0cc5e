//! The rules by which all JSON is decoded: the case of keys, `null`, unknown keys.

use crate::{invariants, result};
use cni_spec::json::{self, DecodeError, decode_noting};
use cni_spec::{CniError, ConfObject, SpecVersion};
use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::net::IpAddr;

/// A config with every kind of key that plugins have.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Sample {
    host_port: u16,
    offset: i32,
    burst: u64,
    name: String,
    on: Option<bool>,
    mode: Mode,
    subnet: Option<Cidr>,
    #[serde(with = "json::optional_ip")]
    gateway: Option<IpAddr>,
    list: Vec<String>,
    more: Vec<Sample>,
    ipam: Option<Box<Sample>>,
    free: Option<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    #[default]
    Bridge,
    Vepa,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
struct Cidr(#[serde(with = "json::cidr")] IpNetwork);

/// The config as `data` has it, and the same with other keys' cases, more nulls, and more keys.
pub fn tolerance(data: &[u8]) {
    let value = match json::parse(data) {
        Ok(value) => value,
        Err(error) => return invariants::is_sound(&error),
    };
    let ignored = RefCell::default();
    let decoded: Result<Sample, DecodeError> = decode_noting(&value, &ignored);
    match &decoded {
        Ok(sample) => {
            let again = serde_json::to_value(sample).expect("text keys only");
            assert_eq!(json::decode(&again).as_ref(), Ok(sample));
        }
        Err(error) => check_error(error, &value),
    }
    for note in ignored.into_inner() {
        assert!(note.path.ends_with(&note.key));
        assert!(note.meant(&["name", "type"]).is_none_or(|meant| !meant.eq_ignore_ascii_case(&note.key)));
    }
    let Value::Object(map) = &value else {
        return assert!(decoded.is_err(), "a config is an object");
    };
    let same = |changed: Value| assert_eq!(json::decode::<Sample>(&changed).ok(), decoded.as_ref().ok().cloned());
    same(shout(map));
    let with = |key: &str, value: Value| {
        let mut map = map.clone();
        map.insert(key.to_owned(), value);
        Value::Object(map)
    };
    same(with("HOSTPORT.", Value::from(1)));
    if !map.contains_key("hostPORT") {
        same(with("hostPORT", Value::Null));
    }
}

/// Every key in capitals, but for what no field describes; nulls left out.
fn shout(map: &Map<String, Value>) -> Value {
    let entries = map.iter().filter(|(_, value)| !value.is_null()).map(|(key, value)| {
        let key = key.to_ascii_uppercase();
        let value = if key == "FREE" { value.clone() } else { shout_within(value) };
        (key, value)
    });
    let mut all = Map::new();
    entries.for_each(|(key, value)| drop(all.insert(key, value)));
    Value::Object(all)
}

fn shout_within(value: &Value) -> Value {
    match value {
        Value::Object(map) => shout(map),
        Value::Array(items) => items.iter().map(shout_within).collect(),
        other => other.clone(),
    }
}

/// Checks that an error is one line of bounded length that names a key of the config.
fn check_error(error: &DecodeError, value: &Value) {
    let line = error.to_string();
    assert!(!line.contains(['\n', '\r']), "{line:?}");
    let key = error.path.split(['.', '[']).next().unwrap_or_default();
    let keys = value.as_object();
    assert!(key.is_empty() || keys.is_some_and(|map| map.keys().any(|have| have.eq_ignore_ascii_case(key))));
    assert!(error.value.chars().count() <= 83);
}

/// The network config as a plugin gets it.
pub fn stdin(data: &[u8]) {
    let object = match ConfObject::parse(data) {
        Ok(object) => object,
        Err(error) => return invariants::is_sound(&error),
    };
    invariants::stays_in_its_folder(object.name().as_str());
    assert!(object.value().is_object());
    match object.ipam_type() {
        Ok(plugin) => plugin.iter().for_each(|plugin| invariants::stays_in_its_folder(plugin.as_str())),
        Err(error) => invariants::is_sound(&error),
    }
    match object.valid_attachments() {
        Ok(valid) => valid.iter().flatten().for_each(|attachment| {
            invariants::stays_in_its_folder(attachment.container_id.as_str());
            invariants::stays_in_its_folder(attachment.ifname.as_str());
        }),
        Err(error) => invariants::is_sound(&error),
    }
    for version in SpecVersion::ALL {
        match object.prev_result(version) {
            Ok(Some(before)) => result::converts(&before),
            Ok(None) => {}
            Err(error) => invariants::is_sound(&error),
        }
    }
    survives(&object);
}

/// A config that a runtime writes again is the same config.
fn survives(object: &ConfObject) {
    let written = object.value().to_string();
    let again = ConfObject::parse(written.as_bytes()).expect("what was read can be written and read");
    let said = |object: &ConfObject| {
        let (version, name) = (object.version_text().to_owned(), object.name().clone());
        let plugin = object.plugin_type().map_err(|error| error.code);
        let outcome = |result: Result<_, CniError>| result.map_err(|error| error.code);
        (version, name, plugin, outcome(object.ipam_type()), object.valid_attachments().map_err(|error| error.code))
    };
    assert_eq!(said(&again), said(object));
}
