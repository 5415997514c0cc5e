//! A kernel without iptables' extensions for nf_tables (RHEL 10), where iptables of the nf_tables variant is installed all the same.
//! `conformance/full-kernel` runs these tests before it loads the extensions.

use crate::prelude::*;
use netops::nft::{ExtensionKind, Family, Nft};
use std::os::unix::fs::symlink;

/// Whether the kernel lacks them; if not, prints that the test is skipped.
fn is_without(node: &Node, test: &str) -> bool {
    let has =
        || Nft::open("the host").and_then(|mut nft| nft.has_extension(Family::Ip, ExtensionKind::Match, "comment", 0));
    let has = node.host().enter(has).unwrap();
    if has {
        testns::skip(test, "the kernel has nft_compat; conformance/full-kernel runs it");
    }
    !has
}

/// A folder with the names of iptables, as a node has them: links to the program of the nf_tables variant, which refuses
/// everything here.
fn iptables_nft(node: &Node) -> String {
    let folder = node.work_dir().join("iptables-nft");
    std::fs::create_dir_all(&folder).unwrap();
    testns::write_executable(folder.join("xtables-nft-multi"), "#!/bin/sh\nexit 1\n").unwrap();
    for name in ["iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore"] {
        symlink("xtables-nft-multi", folder.join(name)).unwrap();
    }
    folder.display().to_string()
}

#[test]
fn without_nft_compat_the_rules_of_all_plugins_are_those_of_nf_tables_alone() {
    let test = "without_nft_compat_the_rules_of_all_plugins_are_those_of_nf_tables_alone";
    let node = node();
    if !is_without(&node, test) {
        return;
    }
    let path = iptables_nft(&node);
    let call = |verb, config: &Value, pod: &testns::Container| Call::new(verb, config, pod).variable("PATH", &path);
    let ptp = json!({"cniVersion": "1.0.0", "name": "net", "type": "ptp", "ipMasq": true, "ipam": dual()});
    for interface in [bridge(json!({"isGateway": true, "ipMasq": true, "ipam": dual()})), ptp] {
        let pod = node.container();
        let made = call(Verb::Add, &interface, &pod).run(&node).ok();
        let of_chain = |own: Value| with(json!({"cniVersion": "1.0.0", "name": "net", "prevResult": made}), own);
        let mappings = json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]);
        let chain = [
            of_chain(json!({"type": "portmap", "runtimeConfig": {"portMappings": mappings}})),
            of_chain(json!({"type": "firewall"})),
        ];
        for config in &chain {
            let reply = call(Verb::Add, config, &pod).run(&node);
            reply.ok();
            let lines = reply.output.stderr.matches("nf_tables alone").count();
            assert_eq!(lines, 1, "{reply}");
            call(Verb::Check, config, &pod).run(&node).ok();
        }
        call(Verb::Check, &with(interface.clone(), json!({"prevResult": made})), &pod).run(&node).ok();
        for config in chain.iter().rev().chain([&interface]) {
            call(Verb::Del, config, &pod).run(&node).ok();
        }
    }
}
