//! Links whose names, further names and aliases are no text.

use crate::configs::{Attached, bridge, v4, with};
use crate::namespaces::kinds;
use crate::subjects::node;
use serde_json::json;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use testns::{Attachment, Feature, Verb};

/// The kernel takes any bytes for them, and the container chooses them.
#[test]
fn names_and_aliases_of_the_containers_links_may_be_any_bytes() {
    let no_text = OsStr::from_bytes(b"a\xff\xfez");
    let device = ("host-device", json!({"device": "uplink"}), None);
    for (kind, own, feature) in kinds().into_iter().chain([device]) {
        if !feature.is_none_or(Feature::or_skip) {
            continue;
        }
        for words in ["link set eth0 alias", "link property add dev eth0 altname", "link set eth0 name"] {
            let what = format!("{kind}: {words}");
            let node = node();
            let outside = node.remote("outside");
            node.host().add_veth("uplink", &outside, "outside");
            let pod = node.container();
            let base = json!({"cniVersion": "1.0.0", "name": "net", "type": kind, "ipam": v4()});
            let attached = Attached::add(&node, &with(base, own.clone()), &pod);
            let inside = pod.namespace();
            if words.ends_with("name") && !words.ends_with("altname") {
                inside.set_down("eth0");
            }
            let ip = || Command::new("ip").args(words.split(' ')).arg(no_text).status().expect("run ip");
            assert!(inside.enter(ip).success(), "{what}");
            let check = attached.check();
            assert_eq!(check.output.code() == 0, !words.ends_with("eth0 name"), "{what}: {check}");
            attached.del().ok();
            let links: Vec<_> = inside.links().into_iter().map(|link| link.name).collect();
            assert_eq!(links, ["lo"], "{what}");
            assert!(!std::fs::exists("/var/lib/cni/networks/net/10.7.0.2").unwrap(), "{what}");
            let show = || Command::new("ip").args(["-d", "link"]).output().expect("run ip").stdout;
            let on_host = node.host().enter(show);
            assert!(!on_host.windows(4).any(|bytes| bytes == no_text.as_bytes()), "{what}: a device came home with it");
            assert!(node.host().find_link("uplink").is_some(), "{what}");
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
    let ip = |words: &str, bytes: &[u8]| {
        let run = || Command::new("ip").args(words.split(' ')).arg(OsStr::from_bytes(bytes)).status().expect("run ip");
        assert!(node.host().enter(run).success(), "{words}");
    };
    ip("link set br0 alias", b"a\xff\xfez");
    ip("link property add dev br0 altname", b"b\xff");
    ip("link add other type veth peer name", b"c\xff");
    let second = Attached::add(&node, &config, &pods[1]);
    first.check().ok();
    second.check().ok();
    node.call(Verb::Status, &config, Attachment::none()).ok();
    let valid = json!({"cni.dev/valid-attachments": [{"containerID": pods[1].id(), "ifname": "eth0"}]});
    node.call(Verb::Gc, with(config, valid), Attachment::none()).ok();
    second.check().ok();
    second.del().ok();
}

/// They make the kernel's message about the link longer than it otherwise is.
#[test]
fn a_link_may_have_hundreds_of_long_names() {
    let names =
        (0..400).map(|number| format!("link property add dev eth0 altname {number:0>120}\n")).collect::<String>();
    let uplink = json!({"device": "uplink", "master": "uplink"});
    for kind in ["bridge", "ptp", "macvlan", "host-device"] {
        if kind == "macvlan" && !Feature::Macvlan.or_skip() {
            continue;
        }
        let node = node();
        let outside = node.remote("outside");
        node.host().add_veth("uplink", &outside, "outside");
        let pod = node.container();
        let base = json!({"cniVersion": "1.0.0", "name": "net", "type": kind, "ipam": v4()});
        let attached = Attached::add(&node, &with(base, uplink.clone()), &pod);
        let file = node.host().enter(|| {
            std::fs::write("/run/names", &names).expect("write names");
            std::path::Path::new("/run/names")
        });
        let ip = || Command::new("ip").arg("-batch").arg(file).status().expect("run ip");
        assert!(pod.namespace().enter(ip).success(), "{kind}");
        attached.check().ok();
        attached.del().ok();
        assert!(pod.namespace().find_link("eth0").is_none(), "{kind}");
        assert!(!std::fs::exists("/var/lib/cni/networks/net/10.7.0.2").unwrap(), "{kind}");
    }
}
