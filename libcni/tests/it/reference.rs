//! The reference's plugins, as Debian packages them, driven by this library.

use crate::test_folder::{Folder, eth0, network, wait};
use expect_test::expect;
use libcni::cni_spec::{Code, PluginType};
use libcni::{NetworkConf, Runtime};

/// A runtime on the reference's plugins, or `None` and a line that says so.
fn theirs(folder: &Folder, test: &str) -> Option<Runtime> {
    let plugins = testns::reference_or_skip(test)?;
    Some(folder.builder().plugin_dirs([plugins, folder.path()]).build())
}

#[test]
fn versions_of_the_references_plugins() {
    let folder = Folder::new();
    let Some(runtime) = theirs(&folder, "versions_of_the_references_plugins") else { return };
    let info = wait(runtime.version(&PluginType::parse("host-local").unwrap())).unwrap();
    assert!(info.supports("1.0.0") && info.supports("") && !info.supports("9.0.0"), "{info:?}");
    let capabilities = wait(runtime.validate(&network("1.0.0", &["bridge", "loopback"]))).unwrap();
    assert!(capabilities.is_empty());
}

#[test]
fn add_check_and_del_of_static_and_failure_of_a_second() {
    let folder = Folder::with(&[("last", &crate::test_folder::failing("ADD"))]);
    let Some(runtime) = theirs(&folder, "add_check_and_del_of_static_and_failure_of_a_second") else { return };
    let plugin = r#"{"type":"host-local","ipam":{"type":"host-local","subnet":"10.9.0.0/24","dataDir":"DATA"}}"#
        .replace("DATA", folder.path().join("data").to_str().unwrap());
    let list = |more: &str| {
        let text = format!(r#"{{"cniVersion":"1.0.0","name":"net","plugins":[{plugin}{more}]}}"#);
        NetworkConf::parse(text.as_bytes()).unwrap()
    };
    let reservation = folder.path().join("data/net/10.9.0.2");

    let result = wait(runtime.add(&list(""), &eth0().netns("/run/netns/none"))).unwrap();
    assert_eq!(result.ips[0].address.to_string(), "10.9.0.2/24");
    assert!(reservation.exists());
    wait(runtime.check(&list(""), &eth0().netns("/run/netns/none"))).unwrap();
    wait(runtime.del(&list(""), &eth0().netns("/run/netns/none"))).unwrap();
    assert!(!reservation.exists());

    // A failure later in the chain gives the address back.
    let error = wait(runtime.add(&list(r#",{"type":"last"}"#), &eth0().netns("/run/netns/none"))).unwrap_err();
    expect![[r#"plugin type="last" failed (add): last cannot; more words. Rolled back: last, host-local."#]]
        .assert_eq(&error.to_string());
    assert!(folder.path().join("data/net").exists());
    assert!(!folder.path().join("data/net/10.9.0.3").exists());
}

#[test]
fn an_error_object_of_the_reference_keeps_its_code() {
    let folder = Folder::new();
    let Some(runtime) = theirs(&folder, "an_error_object_of_the_reference_keeps_its_code") else { return };
    // The reference's firewall supports no version below 0.4.0.
    let error = wait(runtime.add(&network("0.3.1", &["firewall"]), &eth0())).unwrap_err();
    assert_eq!(error.code(), Some(Code::INCOMPATIBLE_VERSION), "{error}");
}

/// The reference's bridge refuses ADD and DEL by a configuration that does not decode, with 999.
#[test]
fn a_refused_attachment_of_the_references_bridge_ends_once_the_configuration_is_mended() {
    let folder = Folder::new();
    let Some(runtime) = theirs(&folder, "a_refused_attachment_of_the_references_bridge_ends") else { return };
    let list = |mtu: &str| {
        let ipam = format!(r#"{{"type":"host-local","subnet":"10.9.0.0/24","dataDir":"{}"}}"#, folder.path().display());
        let text = format!(
            r#"{{"cniVersion":"1.0.0","name":"net","plugins":[{{"type":"bridge","mtu":{mtu},"ipam":{ipam}}}]}}"#
        );
        NetworkConf::parse(text.as_bytes()).unwrap()
    };
    let attachment = eth0().netns("/run/netns/none");
    let error = wait(runtime.add(&list(r#""x""#), &attachment)).unwrap_err();
    assert_eq!(error.code(), Some(Code::INTERNAL), "{error}");
    let cached = runtime.cache().list(None).unwrap().cached;
    let [intent] = &cached[..] else { panic!("one attachment") };
    wait(runtime.del_cached(intent)).unwrap_err();
    wait(runtime.gc(&list(r#""x""#), &[]).without_inventory()).unwrap_err();
    wait(runtime.del_cached_or(intent, Some(&list("1400")))).unwrap();
    assert_eq!(folder.cache_files(), [""; 0]);
}
