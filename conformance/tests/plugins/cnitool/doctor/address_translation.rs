//! `cnitool doctor` and the translation of addresses: what packets meet before the masquerade of a container, or before the
//! rule that forwards a port, in the chains of iptables' table `nat`.

use super::cases::{ERROR, WARNING};
use super::lost_packets::{Sick, find_and_mend_each, sh};
use serde_json::json;
use std::fs;

const DAMAGES: &str = include_str!("tables/address_translation.txt");

#[test]
fn what_comes_before_a_translation_is_found() {
    find_and_mend_each(DAMAGES);
}

/// CHECK looks at the rules of the attachment. A repair knows those that all share, too.
#[test]
fn what_check_does_not_compare_is_found_with_checks() {
    let sick = Sick::new();
    let _pod = sick.add("office", "web", Some(8080));
    sh("iptables -w -t nat -F CNI-HOSTPORT-SETMARK");
    let output = sick.tour.call(&["doctor", "--check"]);
    let shown = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(WARNING), "{shown}");
    for text in ["web/eth0 is not as ADD left it", "-A CNI-HOSTPORT-SETMARK", "help: cnitool repair office"] {
        assert!(shown.contains(text), "{text} is missing in {shown}");
    }
    sick.tour.cnitool(&["repair", "office"]);
    sick.tour.cnitool(&["doctor", "--check"]);
}

/// The rules of backend nftables are reached by two jumps.
#[test]
fn ports_of_the_other_backend_that_nothing_leads_to_are_found() {
    let sick = Sick::new();
    sick.office(&json!([{"type": "bridge", "isDefaultGateway": true, "ipam": sick.tour.host_local()},
        {"type": "portmap", "backend": "nftables", "capabilities": {"portMappings": true}}]));
    let _pod = sick.add("office", "web", Some(8080));
    assert_eq!(sick.doctor(), (0, Vec::new()));
    for chain in ["hostports_all", "prerouting"] {
        sh(&format!("nft flush chain ip cni_hostport {chain}"));
        sick.expect(chain, &[("port-gone", ERROR, "no rule forwards port 8080/tcp of the node", true)]);
    }
}

/// Plugins of another project repair nothing.
#[test]
fn what_plugins_of_another_project_made_is_not_repaired() {
    let sick = Sick::new();
    let _pod = sick.add("office", "web", None);
    let bridge = sick.tour.bin_dir.join("bridge");
    fs::remove_file(&bridge).unwrap();
    let version = r#"echo '{"cniVersion":"1.1.0","supportedVersions":["1.0.0","1.1.0"]}'"#;
    testns::write_executable(bridge, format!("#!/bin/sh\n[ $CNI_COMMAND != VERSION ] || {version}\n")).unwrap();
    sh("iptables -w -t nat -F");
    let (_, findings) = sick.doctor();
    let found = findings.iter().find(|finding| finding["kind"] == "masquerade-gone").unwrap();
    assert_eq!(found["remedy"], "Start the container anew.");
}
