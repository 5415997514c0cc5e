//! What a container with `CAP_NET_ADMIN` can do to the device leads the node to no other link.

use super::{assert_home, config, device, device_and_pod, ip, records};
use crate::prelude::*;

/// A device is recognised by its index and address; and a pair with its other end on the host, by that, whatever its address.
#[test]
fn a_renamed_device_comes_home_and_not_the_link_in_its_place() {
    for by_pair in [false, true] {
        let node = node();
        if by_pair {
            ip(node.host(), "link add dev1 type veth peer name dev1-host");
            node.remember();
        } else {
            device(&node);
        }
        let pod = node.container();
        let attached = Attached::add(&node, &config(json!({})), &pod);
        let inside = pod.namespace();
        ip(inside, "link set eth0 down");
        ip(inside, "link set eth0 name hidden alias dev9");
        ip(inside, "link set hidden mtu 1300");
        if by_pair {
            ip(inside, "link set hidden address 02:00:00:00:00:99");
        }
        ip(inside, "link add eth0 type veth peer name other");
        ip(inside, "link set eth0 alias dev1");
        attached.del().ok();
        assert_home(&node, "after DEL");
        assert!(inside.find_link("hidden").is_none());
        assert!(inside.find_link("eth0").is_some() && inside.find_link("other").is_some());
    }
}

/// A further name that a link of the node has, too, would keep the device away; others would lead the node's lookups to it.
#[test]
fn further_names_and_flags_of_the_container_do_not_come_home() {
    let (node, pod) = device_and_pod();
    let host = node.host();
    ip(host, "link add uplink0 type veth peer name uplink1");
    ip(host, "link property add dev dev1 altname dev1name altname dev1other");
    ip(host, "link set dev1 group 7");
    node.remember();
    let before = [host.link("dev1").mtu_bytes.to_string(), details(host)];
    let attached = Attached::add(&node, &config(json!({})), &pod);
    let inside = pod.namespace();
    ip(inside, "link property add dev eth0 altname uplink0 altname tun0");
    ip(inside, "link property del dev eth0 altname dev1name");
    ip(inside, "link set eth0 arp off multicast off txqueuelen 1 group 9");
    attached.del().ok();
    assert_home(&node, "after DEL");
    assert_eq!([host.link("dev1").mtu_bytes.to_string(), details(host)], before);
}

/// Flags, queue and further names of the device on the host.
fn details(host: &testns::Namespace) -> String {
    let text = ip(host, "link show dev dev1");
    let mut names: Vec<&str> = text.lines().filter(|line| line.contains("altname")).collect();
    names.sort_unstable();
    let first = text.lines().next().expect("a line").split_once(": ").expect("an index").1;
    [&[first], &names[..]].concat().join("\n")
}

/// An end of a pair of its own with the device's index, name, alias and address.
#[test]
fn a_forged_device_stays_in_the_container() {
    let (node, pod) = device_and_pod();
    let attached = Attached::add(&node, &config(json!({})), &pod);
    let inside = pod.namespace();
    let real = inside.link("eth0");
    ip(inside, "link delete eth0");
    let forged = format!("link add eth0 index {} address {} type veth peer name other index 77", real.index, real.mac);
    ip(inside, &forged);
    ip(inside, "link set eth0 alias dev2");
    // The device's other end is in a namespace of the container's, as the real device's was not on the host either.
    let error = attached.check().fails();
    assert!(!error.msg.is_empty());
    attached.del().ok();
    assert!(node.host().find_link("dev2").is_none());
    assert_eq!(records(), Vec::<String>::new());
}

/// However often DEL is repeated; the record goes with the namespace.
fn assert_stays(attached: &Attached<'_>, node: &Node, pod: &Container) {
    for _ in 0..2 {
        attached.del().ok();
        assert!(node.host().find_link("dev1").is_none());
        assert!(pod.namespace().find_link("eth0").is_some());
        assert_eq!(records().len(), 1);
    }
    pod.end();
    attached.del().ok();
    assert_eq!(records(), Vec::<String>::new());
}

/// A pair whose other end is on the host is known by that end.
#[test]
fn an_end_of_another_pair_is_not_the_device() {
    let node = node();
    ip(node.host(), "link add dev1 type veth peer name dev1-host");
    node.remember();
    let pod = node.container();
    let attached = Attached::add(&node, &config(json!({})), &pod);
    let inside = pod.namespace();
    let real = inside.link("eth0");
    ip(inside, "link delete eth0");
    ip(inside, &format!("link add eth0 index {} address {} type veth peer name other index 77", real.index, real.mac));
    ip(inside, "link set eth0 alias dev1");
    assert_stays(&attached, &node, &pod);
}

/// The reference keeps nothing but the alias, which the container can write: it counts where it is what the config says.
#[test]
fn an_alias_alone_leads_nowhere_else() {
    let Some(theirs) = reference_or_skip() else { return };
    let node = Node::with(&theirs);
    device(&node);
    let pod = node.container();
    let attached = Attached::add(&node, &config(json!({})), &pod);
    node.install(&crate::subjects::ours());
    ip(pod.namespace(), "link set eth0 alias dev7");
    attached.del().ok();
    assert!(node.host().find_link("dev7").is_none() && pod.namespace().find_link("eth0").is_some());
    ip(pod.namespace(), "link set eth0 alias dev1");
    attached.del().ok();
    assert!(node.host().find_link("dev1").is_some());
}

/// Another network's DEL of the same interface, as follows its failed ADD.
#[test]
fn another_networks_del_leaves_the_device() {
    let (node, pod) = device_and_pod();
    let attached = Attached::add(&node, &config(json!({})), &pod);
    let other = config(json!({"name": "other", "device": "dev9"}));
    node.call(Verb::Add, &other, &pod).fails();
    node.call(Verb::Del, &other, &pod).ok();
    assert!(pod.namespace().find_link("eth0").is_some());
    attached.del().ok();
    assert_home(&node, "after its own DEL");
}

#[test]
fn a_name_that_is_taken_meanwhile_is_not_taken_away() {
    let (node, pod) = device_and_pod();
    let attached = Attached::add(&node, &config(json!({})), &pod);
    node.host().add_link("dev1", "bridge");
    let error = attached.del().fails_with(103);
    assert!(error.msg.contains("dev1"), "{error:?}");
    assert!(pod.namespace().find_link("eth0").is_some());
    node.host().delete_link("dev1");
    attached.del().ok();
    assert_home(&node, "after the name is free");
}

/// The reference's DEL knows no record of ours. The device may be in use again by then, so it is left as it is.
#[test]
fn a_device_that_another_process_brought_home_is_left_as_it_is() {
    let Some(theirs) = reference_or_skip() else { return };
    for by_gc in [false, true] {
        let node = Node::with(&ours());
        device(&node);
        let pod = node.container();
        let attached = Attached::add(&node, &config(json!({})), &pod);
        node.install(&theirs);
        attached.del().ok();
        node.install(&ours());
        node.host().set_mtu("dev1", 1300);
        node.remember();
        if by_gc {
            let none = config(json!({"cniVersion": "1.1.0", "cni.dev/valid-attachments": []}));
            node.call(Verb::Gc, &none, Attachment::none()).ok();
        } else {
            attached.del().ok();
        }
        node.assert_as_before_except(super::may_stay);
        assert_eq!(records(), Vec::<String>::new());
    }
}

/// A later ADD gives it to the same container; a repeated DEL of the first does not take it from there.
#[test]
fn a_record_of_an_earlier_add_takes_nothing_from_the_next() {
    let Some(theirs) = reference_or_skip() else { return };
    let node = Node::with(&ours());
    device(&node);
    let pod = node.container();
    let first = Attached::add(&node, &config(json!({})), &pod);
    node.install(&theirs);
    first.del().ok();
    node.install(&ours());
    let next = Attached::add(&node, &config(json!({"name": "next"})), &pod);
    assert_eq!(records().len(), 1);
    first.del().ok();
    assert!(pod.namespace().find_link("eth0").is_some() && node.host().find_link("dev1").is_none());
    next.check_and_del();
    assert!(node.host().find_link("dev1").is_some());
}

/// A device that is no hardware ends with the namespace that it is in. DEL cannot bring it home, and names it.
#[test]
fn a_device_that_the_container_moved_on_is_named_in_a_warning() {
    let node = node();
    device(&node);
    let (pod, other) = (node.container(), node.container());
    let attached = Attached::add(&node, &config(json!({})), &pod);
    let there = other.namespace().path().display().to_string();
    ip(pod.namespace(), &format!("link set eth0 netns {there}"));
    let reply = attached.del();
    reply.ok();
    let said = &reply.output.stderr;
    assert!(said.contains("WARN the device does not come home") && said.contains(r#"device="dev1""#), "{reply}");
    pod.end();
    let repeated = attached.del();
    repeated.ok();
    assert!(!repeated.output.stderr.contains("come home"), "{repeated}");
    assert_eq!(records(), Vec::<String>::new());
}

/// DEL follows each failed ADD, also that of a container that has prepared a link for it.
#[test]
fn a_link_that_names_another_containers_device_stays() {
    let node = node();
    device(&node);
    let (holder, liar) = (node.container(), node.container());
    let attached = Attached::add(&node, &config(json!({})), &holder);
    let inside = liar.namespace();
    ip(inside, "link add eth0 type veth peer name spy");
    ip(inside, "link set eth0 alias dev1");
    node.call(Verb::Add, config(json!({})), &liar).fails();
    node.call(Verb::Del, config(json!({})), &liar).ok();
    assert!(inside.find_link("eth0").is_some() && node.host().find_link("dev1").is_none());
    attached.del().ok();
    assert_home(&node, "after the holder's DEL");
}

/// A link has a device's alias while the device is on the node: the link cannot be the device.
#[test]
fn a_decoy_does_not_make_the_next_del_fail() {
    let (node, pod) = device_and_pod();
    let attached = Attached::add(&node, &config(json!({})), &pod);
    let inside = pod.namespace();
    ip(inside, "link set eth0 down");
    ip(inside, "link set eth0 name hidden");
    ip(inside, "link add eth0 type bridge");
    ip(inside, "link set eth0 alias dev1");
    for _ in 0..2 {
        attached.del().ok();
        assert_home(&node, "after DEL");
        assert!(inside.find_link("eth0").is_some());
    }
}

/// The kernel would leave it on the device, and it would receive the packets of the next container that has that.
#[test]
fn links_that_the_container_stacked_on_the_device_end_there() {
    for by_the_reference in [false, true] {
        let (node, pod) = device_and_pod();
        if by_the_reference {
            let Some(theirs) = reference_or_skip() else { return };
            node.install(&theirs);
        }
        let attached = Attached::add(&node, &config(json!({})), &pod);
        node.install(&ours());
        let inside = pod.namespace();
        ip(inside, "link add mv0 link eth0 type macvlan mode bridge");
        ip(inside, "link add other type veth peer name end");
        attached.del().ok();
        assert!(node.host().find_link("dev1").is_some());
        assert!(inside.find_link("mv0").is_none());
        assert!(inside.find_link("other").is_some() && inside.find_link("end").is_some());
    }
}

/// A device whose name the node has given away stays where it is, and so does its address; others' are collected.
#[test]
fn gc_collects_the_addresses_of_all_but_a_device_that_cannot_come_home() {
    let (node, pod) = device_and_pod();
    let unshared = unshared();
    Attached::add(&node, &config(json!({"ipam": unshared.v4()})), &pod);
    node.host().add_link("dev1", "bridge");
    let [its, others] =
        [2, 99].map(|last| std::path::Path::new("/var/lib/cni/networks/net").join(unshared.address(last)));
    std::fs::write(&others, "dead\r\neth0").unwrap();
    let none = config(json!({"cniVersion": "1.1.0", "cni.dev/valid-attachments": []}));
    node.call(Verb::Gc, &none, Attachment::none()).fails_with(103);
    assert!(its.exists() && !others.exists());
    node.host().delete_link("dev1");
    node.call(Verb::Gc, &none, Attachment::none()).ok();
    assert!(!its.exists());
    assert_home(&node, "after GC");
}
