//! A plugin's stdin: the whole object, and what the protocol itself reads of it.

use crate::{invariants, result};
use cni_spec::{CniError, ConfObject, SpecVersion};

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
