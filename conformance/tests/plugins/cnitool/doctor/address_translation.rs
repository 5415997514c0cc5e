//! `cnitool doctor` and the translation of addresses: what packets meet before the masquerade of a container, or before the
//! rule that forwards a port, in the chains of iptables' table `nat`.

use super::cases::{ERROR, WARNING};
use super::lost_packets::{Sick, find_and_mend_each, sh};
use serde_json::json;
use std::fs;

const DAMAGES: &str = r#"
# What packets of the node itself and of containers to a port need.
iptables -w -t nat -F CNI-HOSTPORT-MASQ
=> warning port-gone, mended: a rule that all ports share is gone
iptables -w -t nat -F CNI-HOSTPORT-SETMARK
=> warning port-gone, mended: a rule that all ports share is gone
iptables -w -t nat -F OUTPUT
=> warning port-gone, mended: a rule that all ports share is gone
iptables -w -t nat -I POSTROUTING -o ens3 -j ACCEPT
=> error masquerade-gone: -A POSTROUTING -o ens3 -j ACCEPT comes before the masquerade of containers
iptables -w -t nat -I POSTROUTING -s A.0/24 -j SNAT --to-source 203.0.113.9
=> warning masquerade-gone: -j SNAT --to-source 203.0.113.9 comes before the masquerade
iptables -w -t nat -I PREROUTING -i ens3 -j RETURN
=> error port-gone: -i ens3 -j RETURN comes before the rule that forwards port 8080/tcp
iptables -w -t nat -I PREROUTING -p tcp --dport 8080 -j REDIRECT --to-ports 9999
=> error port-twice: -j REDIRECT --to-ports 9999 comes before the rule that forwards port 8080/tcp
iptables -w -t nat -N away; iptables -w -t nat -I POSTROUTING -s A.0/24 -g away
=> error masquerade-gone: -s A.0/24 -g away comes before the masquerade of containers
iptables -w -t nat -N away; iptables -w -t nat -I PREROUTING -m addrtype --dst-type LOCAL -g away
=> error port-gone: -g away comes before the rule that forwards port 8080/tcp
# In the chains of the suite itself.
iptables -w -t nat -I $(iptables-save -t nat | grep -o '^:CNI-[0-9a-f]\{24\}' | tr -d :) -j RETURN
=> error masquerade-gone, mended: -j RETURN comes before the masquerade
iptables -w -t nat -F $(iptables-save -t nat | grep -o '^:CNI-[0-9a-f]\{24\}' | tr -d :)
=> error masquerade-gone, mended: leave with the container's address
iptables -w -t nat -I CNI-HOSTPORT-DNAT -j RETURN
=> error port-gone, mended: -A CNI-HOSTPORT-DNAT -j RETURN comes before the rule that forwards port 8080/tcp
iptables -w -t nat -I $(iptables-save -t nat | grep -o '^:CNI-DN-[0-9a-f]*' | tr -d :) -p tcp -j ACCEPT
=> error port-gone, mended: -p tcp -j ACCEPT comes before the rule that forwards port 8080/tcp
iptables -w -t nat -I CNI-HOSTPORT-DNAT -p tcp --dport 8080 -j DNAT --to A.99:80
=> error port-twice: an earlier rule in the chains of ports forwards port 8080/tcp of the node to A.99:80
"#;

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
