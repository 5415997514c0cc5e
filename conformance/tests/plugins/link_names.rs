//! Links whose names, further names and aliases are no text.

use crate::interface_plugins::{ALL, BRIDGE, HOST_DEVICE, LinkPlace, MACVLAN, PTP};
use crate::prelude::*;
use conformance::shell::ip;
use std::process::Command;

const NO_TEXT: &[u8] = b"a\xff\xfez";

/// The kernel takes any bytes for them, and the container chooses them.
#[test]
fn names_and_aliases_of_the_containers_links_may_be_any_bytes() {
    for kind in ALL.into_iter().filter(|kind| kind.is_known()) {
        for change in ["alias", "further name", "name"] {
            let what = format!("{}: {change}", kind.name);
            let (node, _outside) = kind.node(1);
            let pod = node.container();
            let attached = Attached::add(&node, &kind.config(0, json!({})), &pod);
            let inside = pod.namespace();
            match change {
                "alias" => inside.set_alias("eth0", NO_TEXT),
                "name" => inside.rename("eth0", NO_TEXT),
                _ => inside.add_alt_name("eth0", NO_TEXT),
            }
            let check = attached.check();
            assert_eq!(check.output.code() == 0, change != "name", "{what}: {check}");
            attached.del().ok();
            let links: Vec<_> = inside.links().into_iter().map(|link| link.name).collect();
            assert_eq!(links, ["lo"], "{what}");
            assert!(!std::fs::exists("/var/lib/cni/networks/net/10.7.0.2").unwrap(), "{what}");
            let show = || Command::new("ip").args(["-d", "link"]).output().expect("run ip").stdout;
            let on_host = node.host().enter(show);
            assert!(!on_host.windows(4).any(|bytes| bytes == NO_TEXT), "{what}: a device came home with it");
            assert_eq!(node.host().find_link("dev0").is_some(), kind.place == LinkPlace::Device, "{what}");
        }
    }
}

/// The administrator's are as free.
#[test]
fn names_and_aliases_of_the_nodes_links_may_be_any_bytes() {
    let node = node();
    let config = with(bridge(json!({"isGateway": true, "ipMasq": true, "ipam": v4()})), json!({"cniVersion": "1.1.0"}));
    let pods = [node.container(), node.container()];
    let first = Attached::add(&node, &config, &pods[0]);
    let outside = node.remote("outside");
    node.host().add_veth("other", &outside, "outside");
    node.host().set_alias("br0", NO_TEXT);
    node.host().add_alt_name("br0", b"b\xff");
    node.host().rename("other", b"c\xff");
    let second = Attached::add(&node, &config, &pods[1]);
    first.check().ok();
    second.check().ok();
    node.call(Verb::Status, &config, Attachment::none()).ok();
    let valid = json!({"cni.dev/valid-attachments": [{"containerID": pods[1].id(), "ifname": "eth0"}]});
    node.call(Verb::Gc, with(config, valid), Attachment::none()).ok();
    second.check_and_del();
}

/// The names make the kernel's message about the link longer than it otherwise is, and still longer as text.
#[test]
fn a_link_may_have_hundreds_of_long_names() {
    let line = |number: u32| {
        [format!("link property add dev eth0 altname {number:0>4}").as_bytes(), &[0xff; 116], b"\n"].concat()
    };
    let lines: Vec<u8> = (0..400).flat_map(line).collect();
    for kind in [BRIDGE, PTP, MACVLAN, HOST_DEVICE].into_iter().filter(|kind| kind.is_known()) {
        let (node, _outside) = kind.node(1);
        let pod = node.container();
        let attached = Attached::add(&node, &kind.config(0, json!({})), &pod);
        std::fs::write("/run/names", &lines).unwrap();
        ip(pod.namespace(), "-batch /run/names");
        attached.check_and_del();
        assert!(pod.namespace().find_link("eth0").is_none(), "{}", kind.name);
        assert!(!std::fs::exists("/var/lib/cni/networks/net/10.7.0.2").unwrap(), "{}", kind.name);
    }
}
