//! The tap plugin. Debian's reference plugins have none to compare with.

use crate::prelude::*;
use conformance::shell;
use netops::link::tun::{Queue, open_tap};
use netops::link::{LinkName, Place};
use netops::{Kernel, Netns};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::sync::mpsc;
use std::time::Duration;

fn config(own: Value) -> Value {
    let base = json!({"cniVersion": "1.1.0", "name": "vm", "type": "tap", "ipam": v4()});
    with(base, own)
}

/// Objects that other plugins keep for the next container.
fn stays(line: &str) -> bool {
    line.contains("/var/lib/cni") || line.contains("/run/cni")
}

/// What the kernel says of a tap: owner, group, queues.
fn settings(pod: &Container) -> String {
    let text = shell::ip(pod.namespace(), "-details link show dev eth0");
    text.lines().find(|line| line.contains("tun type")).expect("a tun's settings").trim().to_owned()
}

fn open(pod: &Container, multi_queue: bool) -> netops::error::Result<File> {
    let netns = Netns::open(pod.namespace().path()).expect("the namespace");
    let kernel = Kernel::in_netns(&netns).expect("a connection");
    let name = LinkName::parse("eth0").expect("a name");
    open_tap(Place { netns: &netns, kernel: &kernel }, &name, Queue { multi_queue, ..Queue::default() })
}

/// The reference ignores mac and mtu where owner and group are set.
#[test]
fn tap_has_mac_and_mtu_in_every_combination_with_owner_and_group() {
    testns::needs!(Feature::Tun.or_skip());
    let node = node();
    let keys = [
        ("mac", json!("02:00:00:00:00:05")),
        ("mtu", json!(1400)),
        ("owner", json!(0)),
        ("group", json!("root")),
        ("multiQueue", json!(true)),
    ];
    for chosen in 0..1_usize << keys.len() {
        let own: Value = keys
            .iter()
            .enumerate()
            .filter(|(bit, _)| chosen >> bit & 1 == 1)
            .map(|(_, (key, value))| ((*key).to_owned(), value.clone()))
            .collect();
        let pod = node.container();
        let attached = Attached::add(&node, &config(own.clone()), &pod);
        let link = pod.namespace().link("eth0");
        let has = |key: &str| own.get(key).is_some();
        assert_eq!(link.mtu_bytes, if has("mtu") { 1400 } else { 1500 }, "{own}");
        assert_eq!(link.mac == "02:00:00:00:00:05", has("mac"), "{own}");
        let settings = settings(&pod);
        assert!(settings.contains("type tap") && settings.contains("persist on"), "{settings}");
        assert_eq!(pod.namespace().sysctl("net/ipv4/conf/eth0/arp_notify"), "1");
        assert_eq!(settings.contains(" multi_queue "), has("multiQueue"), "{own}: {settings}");
        assert_eq!(settings.contains("user root"), has("owner"), "{own}: {settings}");
        assert_eq!(settings.contains("group root"), has("group"), "{own}: {settings}");
        attached.check_and_del();
    }
}

/// A virtual machine's monitor opens the tap by name; the container answers what its guest asks.
#[test]
fn a_program_opens_the_tap_by_name_and_passes_frames() {
    testns::needs!(Feature::Tun.or_skip());
    let node = node();
    for multi_queue in [false, true] {
        let pod = node.container();
        let attached = Attached::add(&node, &config(json!({"multiQueue": multi_queue})), &pod);
        let address = attached.result["ips"][0]["address"].as_str().expect("an address");
        let target: Vec<u8> =
            address.trim_end_matches("/24").split('.').map(|byte| byte.parse().expect("a byte")).collect();
        let mut tap = open(&pod, multi_queue).expect("open the tap");
        let second = multi_queue.then(|| open(&pod, true).expect("open another queue"));
        // The tap's carrier comes with the program; before it the container drops what it would send.
        pod.namespace().wait_for("the tap's carrier", |namespace| namespace.link("eth0").state == "up");
        let guest = [2, 0, 0, 0, 0, 9];
        let mut frame = [[0xff; 6], guest].concat();
        frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]); // ARP, Ethernet, IPv4, a request
        frame.extend(guest.iter().chain(&[10, 7, 0, 200]).chain(&[0; 6]).chain(&target));
        tap.write_all(&frame).expect("send a frame");
        let (sender, receiver) = mpsc::channel();
        // Ends with the tap, which DEL removes.
        for mut queue in std::iter::once(tap).chain(second) {
            let sender = sender.clone();
            std::thread::spawn(move || {
                let mut buffer = [0; 2048];
                while let Ok(length) = queue.read(&mut buffer) {
                    if sender.send(buffer[..length].to_vec()).is_err() {
                        break;
                    }
                }
            });
        }
        let is_answer = |frame: &Vec<u8>| frame[..6] == guest && frame[12..14] == [8, 6] && frame[20..22] == [0, 2];
        let next = || receiver.recv_timeout(Duration::from_secs(10)).expect("an answer by ARP");
        assert!(std::iter::repeat_with(next).any(|frame| is_answer(&frame)));
        attached.del().ok();
    }
}

/// The kernel takes the larger of the two values, and without a carrier would look for duplicates for ever.
#[test]
fn an_ipv6_address_of_a_tap_is_used_where_all_links_look_for_duplicates() {
    testns::needs!(Feature::Tun.or_skip());
    let (node, pod) = node_with_pod();
    pod.namespace().set_up("lo"); // by which a container reaches itself
    pod.namespace().set_sysctl("net/ipv6/conf/all/accept_dad", "1");
    let ipam = with(dual(), json!({"routes": [{"dst": "fd09::/64", "gw": "fd07::1"}]}));
    let config = config(json!({"ipam": ipam}));
    let call = Call::new(Verb::Add, &config, &pod);
    let reply = call.run(&node);
    let result = reply.ok();
    assert!(reply.output.elapsed < Duration::from_secs(5), "{reply}");
    let addresses = pod.namespace().addresses();
    let tentative = |wanted: &str| {
        addresses.iter().find(|address| address.ip.to_string() == wanted).map(testns::Address::is_tentative)
    };
    assert_eq!(tentative("fd07::2"), Some(false), "{addresses:#?}");
    assert!(pod.namespace().pings(ip("fd07::2"), Duration::ZERO));
    Call::new(Verb::Check, &config, &pod).prev_result(&result).run(&node).ok();
}

#[test]
fn tap_is_a_port_of_a_bridge_in_the_container() {
    testns::needs!(Feature::Tun.or_skip());
    let (node, pod) = node_with_pod();
    let config = config(json!({"bridge": "br0", "ipam": {}}));
    let error = node.call(Verb::Add, &config, &pod).fails_with(7);
    assert!(error.msg.contains("key bridge = \"br0\"") && error.msg.contains("has no such link"), "{error:?}");
    pod.namespace().add_veth("br0", node.host(), "other");
    let error = node.call(Verb::Add, &config, &pod).fails_with(7);
    assert!(error.msg.contains("not a bridge"), "{error:?}");
    pod.namespace().delete_link("br0");
    pod.namespace().add_link("br0", "bridge");
    let attached = Attached::add(&node, &config, &pod);
    assert_eq!(pod.namespace().link("eth0").master.as_deref(), Some("br0"));
    attached.check().ok();
    pod.namespace().clear_master("eth0");
    assert!(attached.check().fails_with(107).msg.contains("no port of bridge br0"));
    attached.del().ok();
    assert!(pod.namespace().find_link("br0").is_some());
}

#[test]
fn check_of_tap_compares_all_that_add_set() {
    testns::needs!(Feature::Tun.or_skip());
    let (node, pod) = node_with_pod();
    let attached = Attached::add(&node, &config(json!({"owner": 0, "mtu": 1400})), &pod);
    for (own, how) in [
        (json!({"owner": 108}), "its owner is 0"),
        (json!({"group": 5}), "its group is not set"),
        (json!({"multiQueue": true}), "multiQueue is false"),
    ] {
        let changed = with(attached.config.clone(), own);
        let reply = Call::new(Verb::Check, changed, &pod).prev_result(&attached.result).run(&node);
        assert!(reply.fails_with(107).msg.contains(how), "{reply}");
    }
    // tuning behind it sets another MTU, and the result says so.
    let mut newer = attached.result.clone();
    newer["interfaces"][0]["mtu"] = json!(1300);
    let check_newer = || Call::new(Verb::Check, &attached.config, &pod).prev_result(&newer).run(&node);
    pod.namespace().set_mtu("eth0", 1300);
    check_newer().ok();
    pod.namespace().set_mtu("eth0", 1200);
    assert!(check_newer().fails_with(107).msg.contains("its MTU is 1200"));
    pod.namespace().set_mtu("eth0", 1400);
    attached.check().ok();
}

/// A node without module tun has no such file.
#[test]
fn status_of_tap_names_the_missing_device() {
    testns::needs!(Feature::Tun.or_skip());
    let node = node();
    let mount = |words: &[&str]| std::process::Command::new("mount").args(words).status().expect("run mount");
    assert!(mount(&["-t", "tmpfs", "tmpfs", "/dev/net"]).success());
    let config = config(json!({}));
    let error = node.call(Verb::Status, &config, Attachment::none()).fails_with(50);
    assert!(error.details.contains("Load module tun"), "{error:?}");
    let pod = node.container();
    let error = node.call(Verb::Add, &config, &pod).fails_with(101);
    assert!(error.details.contains("Load module tun"), "{error:?}");
    assert!(pod.namespace().find_link("eth0").is_none());
    node.assert_as_before_except(|line| stays(line) || line.contains("folder /run/mount"));
}

#[test]
fn a_label_needs_selinux() {
    if Feature::Selinux.is_here() {
        return;
    }
    let (node, pod) = node_with_pod();
    let config = config(json!({"selinuxContext": "system_u:system_r:container_t:s0"}));
    let error = node.call(Verb::Add, &config, &pod).fails_with(7);
    assert!(error.msg.contains("key selinuxContext"), "{error:?}");
    assert!(pod.namespace().find_link("eth0").is_none());
    node.call(Verb::Status, &config, Attachment::none()).fails_with(50);
    node.assert_as_before_except(stays);
}

/// A kernel without a policy knows its own labels only. What stands in for `ip` notes the label that it runs under, and
/// its words; it can only make the tap.
#[test]
fn a_tap_is_made_under_its_label() {
    testns::needs!(Feature::Selinux.or_skip(), Feature::Tun.or_skip());
    if own_label() != "kernel" {
        testns::skip("tap::a_tap_is_made_under_its_label", "SELinux has a policy");
        return;
    }
    let node = node();
    let folder = node.work_dir().join("programs");
    let program = "#!/bin/sh\ncd ${0%/*}\ncat /proc/self/attr/current >label\necho $* >words\nexec tunctl -t $4\n";
    fs::create_dir(&folder).expect("create a folder");
    testns::write_executable(folder.join("ip"), program).expect("write a program");
    let path = format!("{}:/bin:/sbin:/usr/bin:/usr/sbin", folder.display());
    let own = json!({"selinuxContext": "unlabeled", "mac": "0a:00:00:00:00:07", "mtu": 1400});
    let config = config(own);
    let call = |verb| Call::new(verb, &config, Attachment::none()).variable("PATH", &path);
    call(Verb::Status).run(&node).ok();
    let pod = node.container();
    let result = Call::new(Verb::Add, &config, &pod).variable("PATH", &path).run(&node).ok();
    let noted = |name: &str| fs::read_to_string(folder.join(name)).expect("a note of the program");
    assert_eq!(noted("label").trim_end_matches(['\0', '\n']), "unlabeled");
    assert_eq!(noted("words"), "tuntap add dev eth0 mode tap\n");
    let link = pod.namespace().link("eth0");
    assert_eq!(
        (link.kind.as_str(), link.mac.as_str(), link.mtu_bytes, link.up),
        ("tun", "0a:00:00:00:00:07", 1400, true)
    );
    Call::new(Verb::Check, &config, &pod).prev_result(&result).run(&node).ok();
    Call::new(Verb::Del, &config, &pod).prev_result(&result).run(&node).ok();
    assert!(pod.namespace().find_link("eth0").is_none());
    node.assert_as_before_except(|line| stays(line) || line.contains("/programs"));
}

fn own_label() -> String {
    let label = fs::read_to_string("/proc/self/attr/current").expect("a label");
    label.trim_end_matches(['\0', '\n']).to_owned()
}
