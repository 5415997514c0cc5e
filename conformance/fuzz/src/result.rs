//! Results of every version, in and out.

use crate::invariants;
use cni_spec::{AddResult, Interface, Route, SpecVersion, json};
use serde_json::Value;

/// A result, read as each version would and written as each version does.
pub fn add_result(data: &[u8]) {
    let Ok(value) = json::parse(data) else { return };
    for default in SpecVersion::ALL {
        match AddResult::from_value(&value, default) {
            Ok(result) => converts(&result),
            Err(error) => invariants::is_sound(&error),
        }
    }
}

/// The result can be written in every version, and what comes back is the result less what that version cannot say.
pub(crate) fn converts(result: &AddResult) {
    let is_ours = |key: &str| !result.unknown.contains_key(key);
    for version in SpecVersion::ALL {
        let written = match result.to_value(version) {
            Ok(written) => written,
            Err(error) => {
                assert!(result.ips.is_empty() && is_02(version), "{version} cannot say {result:?}: {error}");
                invariants::is_sound(&error);
                continue;
            }
        };
        assert_eq!(written["cniVersion"], version.as_str());
        // Whatever the reader's default: the label decides.
        for default in SpecVersion::ALL {
            let back = AddResult::from_value(&written, default).expect("our own result can be read");
            assert_eq!(back, as_said_by(version, result));
            assert_eq!(back.to_value(version).as_ref(), Ok(&written));
        }
        let text = result.to_json(version).expect("it was written above");
        assert_eq!(json::parse(text.as_bytes()).as_ref(), Ok(&written), "the text is the value");
        assert!(
            !written
                .as_object()
                .is_some_and(|object| object.iter().any(|(key, value)| is_ours(key) && has_null(value)))
        );
    }
    if let Some((index, interface)) = result.find_in_sandbox("eth0") {
        assert_eq!(result.interfaces.get(index), Some(interface));
        assert!(interface.name == "eth0" && !interface.sandbox.is_empty());
    }
}

fn is_02(version: SpecVersion) -> bool {
    matches!(version, SpecVersion::V0_1_0 | SpecVersion::V0_2_0)
}

/// Returns what that version keeps of a result (SPEC 5 of each), written without the code under test in view.
fn as_said_by(version: SpecVersion, result: &AddResult) -> AddResult {
    let plain = |route: &Route| Route::new(route.dst, route.gw);
    match version {
        SpecVersion::V0_3_0 | SpecVersion::V0_3_1 | SpecVersion::V0_4_0 => {
            let mut old = result.clone();
            old.interfaces = result.interfaces.iter().map(old_interface).collect();
            old
        }
        SpecVersion::V0_1_0 | SpecVersion::V0_2_0 => {
            let mut all = AddResult::of_addresses(Vec::new(), Vec::new(), result.dns.clone());
            for is_v4 in [true, false] {
                let Some(ip) = result.ips.iter().find(|ip| ip.address.is_ipv4() == is_v4) else { continue };
                all.ips.push(cni_spec::Ip::new(ip.address, ip.gateway));
                all.routes.extend(result.routes.iter().filter(|route| route.dst.is_ipv4() == is_v4).map(plain));
            }
            all
        }
        _ => result.clone(),
    }
}

fn old_interface(interface: &Interface) -> Interface {
    Interface::new(&interface.name).mac(&interface.mac).sandbox(&interface.sandbox)
}

/// No reader of a result needs to know what null means.
fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.iter().any(has_null),
        Value::Object(map) => map.values().any(has_null),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}
