//! SPEC 4: delegates, in this process and as children.

use super::{install_copy, start};
use crate::prelude::*;

/// Puts a changed copy of the probe where `probe-ipam` is.
fn install_delegate(node: &Node, change: impl FnOnce(&mut Vec<u8>)) {
    std::fs::remove_file(node.bin_dir().join("probe-ipam")).unwrap();
    install_copy(node, "probe-ipam", change);
}

/// A delegate runs in this process only if its file is a link to this executable or a copy of it.
#[test]
fn a_delegate_runs_in_process_if_its_file_is_of_this_very_build() {
    let node = probe_node();
    let log = node.work_dir().join("ipam.log");
    let config = json!({"cniVersion": "1.1.0", "name": "n", "type": "probe",
        "ipam": {"type": "probe-ipam", "address": "10.1.0.5/24", "log": log}});
    let runs_in_process = || {
        let child = start(&node, &config, &node.container().attachment(), |_| ());
        let own = child.id();
        assert!(child.wait_with_output().unwrap().status.success());
        let line = std::fs::read_to_string(&log).unwrap();
        std::fs::remove_file(&log).unwrap();
        line == format!("ADD {own}\n")
    };
    assert!(runs_in_process(), "a symbolic link");
    install_delegate(&node, |_| ());
    assert!(runs_in_process(), "a copy, on another file system");
    install_delegate(&node, |bytes| bytes.truncate(bytes.len() - 1));
    assert!(!runs_in_process(), "not whole");
    install_delegate(&node, |bytes| {
        let note = bytes.windows(8).position(|window| window == b"\x03\0\0\0GNU\0").expect("a build ID");
        bytes[note + 8] ^= 1;
    });
    assert!(!runs_in_process(), "another build of the same size");
    // Another plugin's file has the delegate's name, as a third-party installer leaves it.
    let file = node.bin_dir().join("probe-ipam");
    std::fs::remove_file(&file).unwrap();
    testns::unshared(|| std::fs::copy(node.bin_dir().join("bridge"), &file)).unwrap();
    let failure = node.call(Verb::Add, &config, &node.container()).fails();
    assert!(failure.msg.contains("contains no plugin of that name"), "{failure:?}");
}

/// A misspelt `ipam.type` fails ADD, and the runtime calls DEL. What an ADD has made is not lost when the plugin is gone.
#[test]
fn del_without_the_address_plugin_fails_only_if_that_may_have_given_an_address() {
    let node = probe_node();
    let pod = node.container();
    let config = |version: &str, prev: Value| json!({"cniVersion": version, "name": "n", "type": "probe", "ipam": {"type": "absent"}, "prevResult": prev});
    let made = |ips: Value| json!({"cniVersion": "1.1.0", "interfaces": [], "ips": ips});
    node.call(Verb::Add, config("1.1.0", Value::Null), &pod).fails_with(108);
    for prev in [Value::Null, made(json!([]))] {
        node.call(Verb::Del, config("1.1.0", prev), &pod).ok();
    }
    // Below 0.4.0 no DEL has a prevResult; one that cannot be read may have addresses.
    for (version, prev) in
        [("1.1.0", made(json!([{"address": "10.1.0.5/24"}]))), ("1.1.0", json!(5)), ("0.3.1", Value::Null)]
    {
        let failure = node.call(Verb::Del, config(version, prev.clone()), &pod).fails_with(108);
        assert!(failure.msg.contains("absent"), "{version} {prev}: {failure:?}");
    }
}

/// SPEC 4: an `ipam.type` that names a plugin of this executable which itself calls `ipam.type` would recurse without
/// end. Each verb that needs it refuses it before any change; removal continues without it.
#[test]
fn a_plugin_that_delegates_is_no_address_plugin() {
    let node = probe_node();
    let pod = node.container();
    let config = |more: Value| {
        let mut config = json!({"cniVersion": "1.1.0", "name": "n", "type": "probe", "ipam": {"type": "probe"},
            "cni.dev/valid-attachments": []});
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        config
    };
    let refusal = r#"cannot use network config: key ipam.type = "probe": it calls an address plugin, and is none"#;
    for verb in [Verb::Add, Verb::Check, Verb::Status] {
        let failure = node.call(verb, config(json!({})), &pod).fails_with(7);
        assert_eq!(failure.msg, refusal, "{verb:?}");
        assert!(failure.details.ends_with("call no other: probe-ipam."), "{failure:?}");
    }
    for verb in [Verb::Del, Verb::Gc] {
        node.call(verb, config(json!({})), &pod).ok();
    }
    let made = json!({"prevResult": {"cniVersion": "1.1.0", "ips": [{"address": "10.1.0.5/24"}]}});
    let failure = node.call(Verb::Del, config(made), &pod).fails_with(7);
    assert_eq!(failure.msg, refusal);
    assert!(failure.details.contains("addresses of prevResult stay taken"), "{failure:?}");
}
