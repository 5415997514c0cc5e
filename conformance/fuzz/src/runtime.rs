//! Input of a runtime: network configurations, its own cache, answers to VERSION.

use crate::{invariants, result};
use cni_spec::{CniError, Code, ConfObject, NetworkName, SpecVersion, json};
use libcni::{AttachmentId, CapabilityArgs, NetworkConf, PluginObject, RuntimeConf, fuzzing};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

const RESULT: &str = r#"{"cniVersion":"1.0.0","ips":[{"address":"10.7.0.5/24"}]}"#;

fn attachment() -> RuntimeConf {
    let attachment =
        RuntimeConf::new("c1", "eth0").and_then(|attachment| attachment.capability("mac", &"0a:00:00:00:00:05"));
    attachment.expect("these names are valid").netns("/run/netns/a").arg("K", "V").expect("a pair")
}

/// A list, or a single plugin's file; and each plugin's stdin that comes of it.
pub fn network_conf(data: &[u8]) {
    for parsed in [NetworkConf::parse(data), NetworkConf::parse_single(data)] {
        match parsed {
            Ok(network) => network_holds(&network),
            Err(error) => invariants::is_sound(&error),
        }
    }
}

fn network_holds(network: &NetworkConf) {
    network.network_name().iter().for_each(|name| invariants::stays_in_its_folder(name.as_str()));
    network.version().err().iter().for_each(invariants::is_sound);
    let cached = NetworkConf::parse(fuzzing::bytes(network)).expect("what the cache keeps can be read");
    assert_eq!((&cached.name, &cached.cni_version), (&network.name, &network.cni_version));
    assert_eq!(cached.plugins.len(), network.plugins.len());
    let valid = [attachment().id];
    for (plugin, cached) in network.plugins.iter().zip(&cached.plugins) {
        invariants::stays_in_its_folder(plugin.plugin_type.as_str());
        assert!(fuzzing::keys(plugin).eq(fuzzing::keys(cached)));
        stdin_holds(network, plugin, None, None, None);
        stdin_holds(network, plugin, Some(RESULT), Some(&attachment()), Some(&valid));
    }
}

/// A plugin gets its own keys as the bytes they were, and what is added to them, once each.
fn stdin_holds(
    network: &NetworkConf,
    plugin: &PluginObject,
    prev_result: Option<&str>,
    attachment: Option<&RuntimeConf>,
    valid: Option<&[AttachmentId]>,
) {
    let stdin = fuzzing::stdin(network, plugin, prev_result, attachment, valid);
    let keys: BTreeMap<String, Box<RawValue>> = serde_json::from_slice(&stdin).expect("stdin is one JSON object");
    let text = |key: &str| keys.get(key).map(|value| value.get());
    let is_ours = |key: &str| {
        let ours = ["cniVersion", "name", "capabilities", "runtimeConfig", "prevResult"];
        ours.iter().any(|our| our.eq_ignore_ascii_case(key)) || key.to_ascii_lowercase().starts_with("cni.dev/")
    };
    for (key, value) in fuzzing::keys(plugin).filter(|(key, _)| !is_ours(key)) {
        assert_eq!(text(key), Some(value), "{key} is not as it was");
    }
    assert!(keys.keys().all(|key| !key.eq_ignore_ascii_case("capabilities")));
    assert!(prev_result.is_none() || text("prevResult") == prev_result);
    let has_mac = attachment.is_some() && plugin.capabilities.iter().any(|capability| capability == "mac");
    assert!(!has_mac || text("runtimeConfig") == Some(r#"{"mac":"0a:00:00:00:00:05"}"#));
    match ConfObject::parse(&stdin) {
        Ok(object) => {
            assert_eq!((object.name().as_str(), object.version_text()), (&*network.name, &*network.cni_version));
            assert_eq!(object.plugin_type().as_deref(), Ok(plugin.plugin_type.as_str()));
            if let Some(valid) = valid {
                let read = object.valid_attachments().map(Option::unwrap_or_default);
                let read = read.map(|read| read.into_iter().map(AttachmentId::from).collect::<Vec<_>>());
                assert_eq!(read.as_deref(), Ok(valid));
            }
        }
        // A plugin's own keys are its own affair, and so is the characters' check of the name at ADD.
        Err(error) => assert!(matches!(error.code, Code::INVALID_CONFIG | Code::DECODING), "{error}"),
    }
}

/// A cache file with the name of one attachment.
pub fn cache_entry(data: &[u8]) {
    let id = attachment().id;
    let name = NetworkName::parse("office").expect("it is a valid name");
    let Ok(cached) = fuzzing::cached(data, &name, &id) else { return };
    assert_eq!((&cached.network, &cached.attachment.id), (&name, &id), "an entry is that of its attachment");
    for version in SpecVersion::ALL {
        match cached.result(version) {
            Ok(result) => result.iter().for_each(result::converts),
            Err(error) => invariants::is_sound(&error),
        }
    }
    let Ok(network) = cached.network_conf() else { return };
    network_holds(&network);
    let raw = |json: &str| RawValue::from_string(json.to_owned()).expect("it was JSON before");
    let result = cached.result_json().map(raw);
    let file = fuzzing::cache_file(&network, &name, &cached.attachment, result).expect("what was read can be written");
    let again = fuzzing::cached(&file, &name, &id).expect("our own entry can be read");
    assert_eq!(again.config, fuzzing::bytes(&network));
    assert_eq!((again.result_json(), again.is_complete()), (cached.result_json(), cached.is_complete()));
    assert_eq!(again.attachment.args, cached.attachment.args);
    assert_eq!(again.attachment.netns, cached.attachment.netns);
    assert!(again.attachment.capability_args.iter().eq(cached.attachment.capability_args.iter()));
}

/// Capability arguments, as a command line has them.
pub fn capability_args(data: &[u8]) {
    let text = &*invariants::text(data);
    let args = match CapabilityArgs::parse(text) {
        Ok(args) => args,
        Err(error) => return invariants::is_sound(&error),
    };
    let last: BTreeMap<String, Box<RawValue>> = json::parse_as(text.as_bytes()).unwrap_or_default();
    assert_eq!(last.len(), args.iter().count());
    assert!(last.iter().all(|(name, value)| args.find(name) == Some(value.get())), "the last of equal names counts");
    let written = serde_json::to_string(&args).expect("text keys only");
    let again = CapabilityArgs::parse(&written).expect("what was read can be written and read");
    assert!(again.iter().eq(args.iter()));
    assert_eq!(again.is_empty(), args.is_empty());
    assert!(args.iter().all(|(name, value)| args.find(name) == Some(value)));
}

pub fn version_reply(data: &[u8]) {
    match fuzzing::version_info(data) {
        Ok(info) => {
            assert!(!info.supported.is_empty() && json::parse(data).is_ok());
            assert!(info.supported.iter().all(|version| version.is_empty() || info.supports(version)));
        }
        Err(error) => {
            let CniError { code, .. } = error;
            assert_eq!(code, Code::DECODING);
            invariants::is_sound(&error);
        }
    }
}
