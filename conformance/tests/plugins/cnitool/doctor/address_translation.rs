//! `cnitool doctor` and the translation of addresses: what packets meet before the masquerade of a container, or before the
//! rule that forwards a port, in the chains of iptables' table `nat`.

use super::lost_packets::{Damage, ERROR, Sick, WARNING, find_and_mend, sh};
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt;

const LOST_BY_SOME: &[(&str, i32, &str, bool)] = &[("port-gone", WARNING, "a rule that all ports share is gone", true)];

const DAMAGES: [Damage; 14] = [
    // What packets of the node itself and of containers to a port need.
    ("iptables -w -t nat -F CNI-HOSTPORT-MASQ", LOST_BY_SOME),
    ("iptables -w -t nat -F CNI-HOSTPORT-SETMARK", LOST_BY_SOME),
    ("iptables -w -t nat -F OUTPUT", LOST_BY_SOME),
    (
        "iptables -w -t nat -I POSTROUTING -o ens3 -j ACCEPT",
        &[(
            "masquerade-gone",
            WARNING,
            "-A POSTROUTING -o ens3 -j ACCEPT comes before the masquerade of containers",
            false,
        )],
    ),
    (
        "iptables -w -t nat -I POSTROUTING -s A.0/24 -j SNAT --to-source 203.0.113.9",
        &[("masquerade-gone", WARNING, "-j SNAT --to-source 203.0.113.9 comes before the masquerade", false)],
    ),
    (
        "iptables -w -t nat -I PREROUTING -i ens3 -j RETURN",
        &[("port-gone", ERROR, "-i ens3 -j RETURN comes before the rule that forwards port 8080/tcp", false)],
    ),
    (
        "iptables -w -t nat -I PREROUTING -p tcp --dport 8080 -j REDIRECT --to-ports 9999",
        &[("port-twice", ERROR, "--dport 8080 -j REDIRECT comes before the rule that forwards port 8080/tcp", false)],
    ),
    (
        "iptables -w -t nat -N away; iptables -w -t nat -I POSTROUTING -s A.0/24 -g away",
        &[("masquerade-gone", WARNING, "-s A.0/24 -g away comes before the masquerade of containers", false)],
    ),
    (
        "iptables -w -t nat -N away; iptables -w -t nat -I PREROUTING -m addrtype --dst-type LOCAL -g away",
        &[("port-gone", ERROR, "-g away comes before the rule that forwards port 8080/tcp", false)],
    ),
    // In the chains of the suite itself.
    (
        "iptables -w -t nat -I $(iptables-save -t nat | grep -o '^:CNI-[0-9a-f]\\{24\\}' | tr -d :) -j RETURN",
        &[("masquerade-gone", ERROR, "-j RETURN comes before its masquerade", true)],
    ),
    (
        "iptables -w -t nat -F $(iptables-save -t nat | grep -o '^:CNI-[0-9a-f]\\{24\\}' | tr -d :)",
        &[("masquerade-gone", ERROR, "has no MASQUERADE in chain CNI-", true)],
    ),
    (
        "iptables -w -t nat -I CNI-HOSTPORT-DNAT -j RETURN",
        &[(
            "port-gone",
            ERROR,
            "-A CNI-HOSTPORT-DNAT -j RETURN comes before the rule that forwards port 8080/tcp",
            true,
        )],
    ),
    (
        "iptables -w -t nat -I $(iptables-save -t nat | grep -o '^:CNI-DN-[0-9a-f]*' | tr -d :) -p tcp -j ACCEPT",
        &[("port-gone", ERROR, "-p tcp -j ACCEPT comes before the rule that forwards port 8080/tcp", true)],
    ),
    (
        "iptables -w -t nat -I CNI-HOSTPORT-DNAT -p tcp --dport 8080 -j DNAT --to A.99:80",
        &[(
            "port-twice",
            ERROR,
            "an earlier rule in the chains of ports forwards port 8080/tcp of the node to A.99:80",
            false,
        )],
    ),
];

#[test]
fn what_comes_before_a_translation_is_found() {
    DAMAGES.iter().for_each(find_and_mend);
}

/// CHECK looks at the rules of the attachment. A repair knows those that all share, too.
#[test]
fn what_check_does_not_compare_is_found_with_checks() {
    let sick = Sick::new();
    let pod = sick.tour.node.container();
    sick.add("office", "web", &pod, Some(8080));
    sh("iptables -w -t nat -F CNI-HOSTPORT-SETMARK");
    let output = sick.tour.run(&sick.tour.bin_dir.join("cnitool"), &["doctor", "--check"]);
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
    let ipam = json!({"type": "host-local", "subnet": format!("{}.0/24", sick.tour.subnet)});
    let portmap = json!({"type": "portmap", "backend": "nftables", "capabilities": {"portMappings": true}});
    let bridge = json!({"type": "bridge", "isDefaultGateway": true, "ipam": ipam});
    sick.network("10-office", json!({"name": "office", "plugins": [bridge, portmap]}));
    let pod = sick.tour.node.container();
    sick.add("office", "web", &pod, Some(8080));
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
    let pod = sick.tour.node.container();
    sick.add("office", "web", &pod, None);
    let bridge = sick.tour.bin_dir.join("bridge");
    fs::remove_file(&bridge).unwrap();
    let version = r#"echo '{"cniVersion":"1.1.0","supportedVersions":["1.0.0","1.1.0"]}'"#;
    fs::write(&bridge, format!("#!/bin/sh\n[ $CNI_COMMAND != VERSION ] || {version}\n")).unwrap();
    fs::set_permissions(&bridge, fs::Permissions::from_mode(0o755)).unwrap();
    sh("iptables -w -t nat -F");
    let (_, findings) = sick.doctor();
    let found = findings.iter().find(|finding| finding["kind"] == "masquerade-gone").unwrap();
    assert_eq!(found["remedy"], "Start the container anew.");
}
