//! The tap plugin with key `redirect`, behind another one: a guest takes the container's interface's place.

use super::{behind, bridged};
use crate::prelude::*;
use conformance::shell;
use netops::link::tun::{Queue, open_tap};
use netops::link::{LinkName, Place};
use netops::{Kernel, Netns};
use std::fs::File;
use std::io::{Read, Write};
use std::sync::mpsc;
use std::time::Duration;

fn config(own: Value) -> Value {
    with(json!({"cniVersion": "1.0.0", "name": "net", "type": "tap", "redirect": true}), own)
}

fn open(pod: &Container) -> File {
    let netns = Netns::open(pod.namespace().path()).expect("the namespace");
    let kernel = Kernel::in_netns(&netns).expect("a connection");
    let name = LinkName::parse("tap0").expect("a name");
    open_tap(Place { netns: &netns, kernel: &kernel }, &name, Queue::default()).expect("open the tap")
}

fn filters(pod: &Container) -> String {
    shell::sh(pod.namespace(), "tc filter show dev eth0 ingress")
}

/// The result is what users of tc-redirect-tap read: the tap, then an interface of the same name whose sandbox is the container's ID.
#[test]
fn a_guest_has_the_interfaces_addresses_and_frames() {
    testns::needs!(Feature::Tun.or_skip());
    let (node, pod) = node_with_pod();
    let before = bridged(&node, &pod);
    pod.namespace().set_mtu("eth0", 1400);
    let inside = pod.namespace().snapshot();
    let attached = Attached::add(&node, &behind(&before, config(json!({"owner": "root"}))), &pod);
    let (eth0, tap) = (pod.namespace().link("eth0"), pod.namespace().link("tap0"));
    assert_eq!((tap.kind.as_str(), tap.mtu_bytes, tap.up), ("tun", 1400, true));
    assert!(shell::ip(pod.namespace(), "-details link show dev tap0").contains("user root group root"));
    let interfaces = attached.result["interfaces"].as_array().expect("interfaces");
    let (own, guests) = (&interfaces[interfaces.len() - 2], &interfaces[interfaces.len() - 1]);
    assert_eq!([&own["name"], &own["mac"]], ["tap0", &*tap.mac]);
    assert_eq!(own["sandbox"], json!(pod.namespace().path()));
    assert_eq!([&guests["name"], &guests["mac"], &guests["sandbox"]], ["tap0", &*eth0.mac, pod.id()]);
    let ips = |of: usize| {
        let ips = attached.result["ips"].as_array().expect("addresses").iter();
        ips.filter(|ip| ip["interface"] == of).map(|ip| with(ip.clone(), json!({"interface": 0}))).collect::<Vec<_>>()
    };
    let place = interfaces.iter().position(|interface| interface["name"] == "eth0").expect("eth0");
    assert!(ips(place).len() == 2 && ips(place) == ips(interfaces.len() - 1), "{}", attached.result);
    attached.check().ok();
    Call::new(Verb::Check, &before.config, &pod).prev_result(&attached.result).run(&node).ok();

    let mut tap = open(&pod);
    pod.namespace().wait_for("the tap's carrier", |namespace| namespace.link("tap0").state == "up");
    let mac: Vec<u8> = eth0.mac.split(':').map(|byte| u8::from_str_radix(byte, 16).expect("a byte")).collect();
    let mut frame = [vec![0xff; 6], mac.clone()].concat();
    frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]); // ARP, Ethernet, IPv4, a request
    frame.extend(mac.iter().chain(&[10, 7, 0, 2]).chain(&[0; 6]).chain(&[10, 7, 0, 1]));
    tap.write_all(&frame).expect("send a frame");
    let (sender, receiver) = mpsc::channel();
    // Ends with the tap, which DEL removes.
    std::thread::spawn(move || {
        let mut buffer = [0; 2048];
        while let Ok(length) = tap.read(&mut buffer) {
            if sender.send(buffer[..length].to_vec()).is_err() {
                break;
            }
        }
    });
    let is_answer = |frame: &Vec<u8>| frame[..6] == mac && frame[12..14] == [8, 6] && frame[20..22] == [0, 2];
    let next = || receiver.recv_timeout(Duration::from_secs(10)).expect("the bridge's answer by ARP");
    assert!(std::iter::repeat_with(next).any(|frame| is_answer(&frame)));

    attached.del().ok();
    attached.del().ok();
    super::assert_as(&inside, &pod, super::comes_and_goes, "after DEL");
    assert_eq!(shell::sh(pod.namespace(), "tc qdisc show dev eth0 ingress"), "");
}

#[test]
fn check_names_what_is_lost() {
    testns::needs!(Feature::Tun.or_skip());
    let (node, pod) = node_with_pod();
    let before = bridged(&node, &pod);
    let attached = Attached::add(&node, &behind(&before, config(json!({}))), &pod);
    for (damage, repair, how) in [
        ("ip link set tap0 down", "ip link set tap0 up", "it is down"),
        ("ip link set tap0 mtu 1300", "ip link set tap0 mtu 1500", "its MTU is 1300, not 1500"),
        ("ip link set tap0 address 02:00:00:00:00:09", "ip link del tap0", "the result has another one"),
        ("true", "tc qdisc del dev eth0 ingress", "it is not found"),
    ] {
        shell::sh(pod.namespace(), damage);
        let error = attached.check().fails_with(107);
        assert!(format!("{error:?}").contains(how), "{damage}: {error:?}");
        shell::sh(pod.namespace(), repair);
    }
    let pod = node.container();
    let before = bridged(&node, &pod);
    let attached = Attached::add(&node, &behind(&before, config(json!({}))), &pod);
    for (key, how) in [("owner", "its owner is 0"), ("group", "its group is 0")] {
        let other = behind(&before, config(json!({key: 1234})));
        let error = Call::new(Verb::Check, other, &pod).prev_result(&attached.result).run(&node).fails_with(107);
        assert!(format!("{error:?}").contains(how), "{error:?}");
    }
    for link in ["eth0", "tap0"] {
        shell::sh(pod.namespace(), &format!("tc filter del dev {link} ingress"));
        let error = attached.check().fails_with(107);
        assert!(format!("{error:?}").contains(&format!("interface {link} in")), "{error:?}");
    }
}

/// Whatever the kernel refuses, and whatever was there before.
#[test]
fn an_add_that_fails_leaves_the_container_as_it_was() {
    testns::needs!(Feature::Tun.or_skip());
    let (node, pod) = node_with_pod();
    let before = bridged(&node, &pod);
    let inside = pod.namespace().snapshot();
    let add = Call::new(Verb::Add, behind(&before, config(json!({}))), &pod);
    let refused = |message: &usize| add.refuse(&node, *message).reply.output.code() != 0;
    let as_before = |point: &str| {
        super::assert_as(&inside, &pod, super::comes_and_goes, point);
        assert_eq!(shell::sh(pod.namespace(), "tc qdisc show dev eth0 ingress"), "", "{point}");
    };
    let points = (1..).take_while(refused).inspect(|message| as_before(&format!("message {message}"))).count();
    assert!(points >= 5, "{points}");
    add.run(&node).fails();
    Call::new(Verb::Del, behind(&before, config(json!({}))), &pod).run(&node).ok();
    as_before("DEL without the result");

    let named = |name: &str| add.clone().args(&format!("IgnoreUnknown=1;TC_REDIRECT_TAP_NAME={name}"));
    named("eth0").run(&node).fails();
    as_before("a name that is taken");
    named("a/b").run(&node).fails_with(4);
    shell::sh(pod.namespace(), "tc qdisc add dev eth0 ingress");
    shell::sh(pod.namespace(), "tc filter add dev eth0 ingress protocol ip u32 match u32 0 0 classid 1:1");
    let theirs = filters(&pod);
    let error = add.run(&node).fails();
    assert!(error.details.contains("Another process filters"), "{error:?}");
    assert_eq!(filters(&pod), theirs);
    shell::sh(pod.namespace(), "tc qdisc del dev eth0 ingress");
    let result = named("vmtap").run(&node).ok();
    assert_eq!(pod.namespace().link("vmtap").mac, result["interfaces"][3]["mac"].as_str().expect("an address"));
}

#[test]
fn keys_that_the_interface_decides_are_refused() {
    let (node, pod) = node_with_pod();
    for own in [json!({"mtu": 1400}), json!({"ipam": v4()}), json!({"bridge": "br0"})] {
        let error = node.call(Verb::Add, config(own), &pod).fails_with(7);
        assert!(error.msg.contains("as the interface before it"), "{error:?}");
    }
    node.assert_as_before();
    // An operator adds the key while a tap of its own form lives.
    let own = with(config(json!({"ipam": v4()})), json!({"redirect": false}));
    testns::needs!(Feature::Tun.or_skip());
    let attached = Attached::add(&node, &own, &pod);
    Call::new(Verb::Del, with(own, json!({"redirect": true})), &pod).prev_result(&attached.result).run(&node).ok();
    assert!(pod.namespace().find_link("eth0").is_none());
    assert!(!std::fs::exists("/var/lib/cni/networks/net/10.7.0.2").expect("look for the reservation"));
}
