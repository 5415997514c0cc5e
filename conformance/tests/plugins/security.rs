//! Attacks on the node by a container or through a config.

use crate::prelude::*;
use conformance::shell;
use nix::errno::Errno;
use nix::mount::{MsFlags, mount, umount};
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;
use testns::trace::{Fate, Syscall};

const PREFIX: &str = "fd99::";

/// The addresses and routes that an advertisement of [`PREFIX`] causes where it is accepted.
fn believed(namespace: &Namespace) -> Vec<String> {
    let routes = namespace.routes().into_iter().filter(|route| route.protocol == 9 || route.to.starts_with(PREFIX));
    let addresses = namespace.addresses().into_iter().filter(|address| address.ip.to_string().starts_with(PREFIX));
    routes.map(|route| route.to).chain(addresses.map(|address| address.ip.to_string())).collect()
}

fn advertise(from: &Namespace, link: &str) {
    from.advertise_router(link, PREFIX.parse().unwrap());
}

fn with_bystander(node: &Node) -> [testns::Container; 2] {
    let config = bridge(json!({"isGateway": true, "ipam": dual()}));
    [(); 2].map(|()| {
        let pod = node.container();
        Attached::add(node, &config, &pod);
        pod
    })
}

/// Turns IPv6 on as on a node that does not forward, so that only the plugin's own settings refuse advertisements.
fn stop_forwarding(node: &Node) {
    node.host().set_sysctl("net/ipv6/conf/all/forwarding", "0");
}

/// CVE-2020-10749: the node does not accept a pod's router advertisements on the bridge or the host veth, nor do other pods. The
/// reference protects the node, but not the pods from each other.
#[test]
fn the_reference_protects_the_node_only() {
    each(|who, node| {
        let [spoofer, bystander] = with_bystander(node);
        stop_forwarding(node);
        advertise(spoofer.namespace(), "eth0");
        // Packets stay in order: when the echo has arrived, the advertisement has too.
        spoofer.namespace().ping(ip("fd07::1"));
        spoofer.namespace().ping(ip("fd07::3"));
        assert_eq!(believed(node.host()), [""; 0]);
        assert_eq!(believed(bystander.namespace()).is_empty(), who.is_ours());
        // The same advertisement where it may be accepted, to show that the test can fail.
        node.host().set_sysctl("net/ipv6/conf/br0/accept_ra", "1");
        bystander.namespace().set_sysctl("net/ipv6/conf/eth0/accept_ra", "1");
        advertise(spoofer.namespace(), "eth0");
        node.host().wait_for("the bridge to believe", |host| !believed(host).is_empty());
        bystander.namespace().wait_for("the pod to believe", |pod| !believed(pod).is_empty());
    });
}

/// Without IPAM too, and on an existing bridge: advertisements are off before a link is up. The container accepts them
/// where the bridge is not its gateway, unless the config says otherwise.
#[test]
fn accept_ra_is_off_on_every_link_of_the_node() {
    for (own, inside) in [
        (json!({}), "1"),
        (json!({"acceptRA": true}), "1"),
        (json!({"acceptRA": false}), "0"),
        (json!({"ipam": v6()}), "1"),
        (json!({"ipam": v6(), "isGateway": true}), "0"),
        (json!({"ipam": v6(), "isDefaultGateway": true}), "0"),
        (json!({"ipam": v6(), "isGateway": true, "acceptRA": true}), "1"),
    ] {
        let node = node();
        node.host().add_link("br0", "bridge");
        let pod = node.container();
        let attached = Attached::add(&node, &layer2(own.clone()), &pod);
        let accept_ra =
            |namespace: &Namespace, link: &str| namespace.sysctl(&format!("net/ipv6/conf/{link}/accept_ra"));
        assert_eq!(accept_ra(node.host(), "br0"), "0");
        assert_eq!(accept_ra(node.host(), attached.host_veth()), "0");
        assert_eq!(accept_ra(pod.namespace(), "eth0"), inside, "{own}");
    }
}

/// A host whose uplink is the bridge's port has its own IPv6 network by router advertisements there.
#[test]
fn a_bridge_by_which_the_node_has_its_own_routes_takes_advertisements_further() {
    const KEY: &str = "net/ipv6/conf/br0/accept_ra";
    let node = node();
    let (host, router) = (node.host(), node.remote("router"));
    host.add_link("br0", "bridge");
    host.add_veth("uplink0", &router, "lan0");
    host.set_master("uplink0", "br0");
    for (key, value) in [("net/ipv6/conf/all/forwarding", "0"), (KEY, "1")] {
        host.set_sysctl(key, value);
    }
    router.set_up("lan0");
    ["uplink0", "br0"].iter().for_each(|link| host.set_up(link));
    let advertised = |host: &Namespace| host.routes().iter().any(|route| route.to == "::/0");
    let advertise = || {
        host.wait_for("a route by an advertisement", |host| {
            advertise(&router, "lan0");
            advertised(host)
        });
    };
    advertise();
    let config = bridge(json!({"isGateway": true, "ipam": dual()}));
    for is_first in [true, false] {
        let reply = node.call(Verb::Add, &config, &node.container());
        reply.ok();
        assert_eq!(reply.output.stderr.contains(KEY), is_first, "{reply}");
        assert!(host.sysctl(KEY) == "2" && advertised(host));
    }
    host.delete_route("::/0");
    advertise();
}

/// On a layer-2 network the router is a machine there, and gives the pods their IPv6 addresses; the node ignores it.
#[test]
fn a_router_on_a_layer_2_network_gives_addresses_to_pods_and_not_to_the_node() {
    for own in [json!({}), json!({"ipam": {}}), json!({"ipam": v4()}), json!({"ipam": v4(), "acceptRA": true})] {
        each(|_, node| {
            let (router, pod) = (node.remote("router"), node.container());
            node.host().add_link("br0", "bridge");
            node.host().set_up("br0");
            node.host().add_veth("uplink0", &router, "lan0");
            node.host().set_master("uplink0", "br0");
            Attached::add(node, &layer2(own.clone()), &pod);
            pod.namespace().wait_until_settled("eth0");
            advertise(&router, "lan0");
            pod.namespace().wait_for("an address from the router", |pod| {
                pod.addresses().iter().any(|address| address.ip.to_string().starts_with(PREFIX))
            });
            let has_default = |route: &testns::Route| route.to == "::/0";
            assert!(pod.namespace().routes().iter().any(has_default));
            assert_eq!(believed(node.host()), [""; 0]);
        });
    }
}

/// Files that a traced call locked.
static LOCKED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn note_locked(call: &Syscall) -> Option<Errno> {
    if call.name() == "flock" {
        LOCKED.lock().unwrap().extend(call.descriptor());
    }
    None
}

/// A lock on a file that other users can open would let them block every call.
#[test]
fn every_lock_is_on_a_file_that_only_root_can_open() {
    let (node, pod) = node_with_pod();
    let config = bridge(json!({"cniVersion": "1.1.0", "isGateway": true, "ipMasq": true, "ipam": dual()}));
    let result = Attached::add(&node, &config, &node.container()).result;
    for verb in [Verb::Add, Verb::Check, Verb::Status, Verb::Gc, Verb::Del] {
        let call = Call::new(verb, &config, &pod).prev_result(&result);
        drop(call.try_traced(&node, Some((1, Fate::FailWhere(note_locked)))).expect("no call takes that long"));
    }
    let locked = LOCKED.lock().unwrap();
    assert!(!locked.is_empty());
    for path in &*locked {
        let file = std::fs::metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!((file.uid(), file.mode() & 0o007), (0, 0), "{}", path.display());
    }
}

/// A container chooses the indexes of the links in its own namespace. So a pair of its own may have the indexes of
/// another link on the node.
#[test]
fn a_containers_pair_with_the_indexes_of_another_link_does_not_affect_that_link() {
    let node = node();
    let other = node.container();
    node.host().add_link("first", "bridge"); // otherwise both ends would have the same index
    node.host().add_veth("docker", other.namespace(), "eth0");
    let victim = node.host().link("docker");
    let pod = node.container();
    let attached = Attached::add(&node, &bridge(json!({})), &pod);
    pod.namespace().delete_link("eth0");
    let (own, peer) = (victim.peer.expect("its other end").to_string(), victim.index.to_string());
    let forge = |words: &str| shell::ip(pod.namespace(), words);
    forge(&format!("link add eth0 index {own} type veth peer name zz index {peer}"));
    // With the address of the result, as CHECK would fail earlier without it.
    let mac = attached.result["interfaces"][2]["mac"].as_str().expect("the container's address");
    forge(&format!("link set eth0 address {mac} up"));
    let failure = attached.check().fails_with(107);
    assert!(failure.msg.contains("host end of eth0") && failure.msg.contains("it is not found"), "{failure:?}");
    attached.del().ok();
    assert_eq!(node.host().find_link("docker").map(|link| link.index), Some(victim.index));
    Call::new(Verb::Del, &attached.config, &pod).run(&node).ok();
    assert!(node.host().find_link("docker").is_some());
}

/// The container of the traced call, which changes its address during the call.
static SPOOFER: Mutex<Option<Namespace>> = Mutex::new(None);
const LIE: &str = "0a:00:00:00:00:66";

fn change_address(_: &Syscall) -> Option<Errno> {
    let mut spoofer = SPOOFER.lock().unwrap();
    if let Some(namespace) = spoofer.take_if(|namespace| namespace.find_link("eth0").is_some()) {
        namespace.set_mac("eth0", LIE);
    }
    None
}

/// macspoofchk: the spoof guard does not use an address that the container changed during ADD.
#[test]
fn the_spoof_guard_ignores_an_address_changed_during_add() {
    let node = node();
    let config = bridge(json!({"isGateway": true, "macspoofchk": true}));
    let pod = node.container();
    *SPOOFER.lock().unwrap() = Some(pod.namespace().clone());
    let traced = Call::new(Verb::Add, &config, &pod).try_traced(&node, Some((1, Fate::FailWhere(change_address))));
    traced.expect("no call takes that long").reply.ok();
    assert_eq!(pod.namespace().link("eth0").mac, LIE);
    assert!(!pod.namespace().pings(ip("10.7.0.1"), Duration::from_millis(300)));
}

/// Only root can read which container has which address.
#[test]
fn files_are_for_root_only() {
    let node = node();
    Attached::add(&node, &bridge(json!({"isGateway": true, "ipMasq": true, "ipam": dual()})), &node.container());
    let mut files = 0;
    for line in node.changes().lines().filter_map(|line| line.strip_prefix("+ file ")) {
        let mode = line.split(' ').nth(1).unwrap();
        let expected = if line.contains("/lock ") { "0750" } else { "0600" };
        assert_eq!(mode, expected, "{line}");
        files += 1;
    }
    assert!(files >= 5, "{}", node.changes());
}

/// Where `/proc/sys` cannot be seen, an absent `accept_ra` is no kernel without IPv6: the pod could become the node's router.
#[test]
fn add_fails_where_accept_ra_cannot_be_seen() {
    let (node, pod) = node_with_pod();
    mount(Some("tmpfs"), "/proc/sys", Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
    let error = node.call(Verb::Add, bridge(json!({})), &pod).fails_with(100);
    umount("/proc/sys").unwrap();
    assert!(error.msg.contains("accept_ra"), "{}", error.msg);
    assert!(pod.namespace().find_link("eth0").is_none());
}
