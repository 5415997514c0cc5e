//! The host-device plugin: a veth whose other end is elsewhere stands for the hardware.

mod hostile_container;
mod names;
mod restore;
mod select;

use crate::prelude::*;
use conformance::host_device::{RECORDS, assert_home, config, device, device_and_pod, may_stay, records};
use conformance::shell::ip;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use testns::trace::Syscall;

/// What the kernel does with hardware whose namespace ends: it has the name that it had there, and is down.
fn return_to_host(pod: &Container, name: &str) {
    let host = nix::unistd::gettid();
    ip(pod.namespace(), &format!("link set {name} netns {host}"));
}

#[test]
fn host_device_is_the_containers_interface_until_del() {
    let node = node();
    let beyond = device(&node);
    let pod = node.container();
    let before = node.host().link("dev1");
    let attached = Attached::add(&node, &config(json!({"cniVersion": "1.1.0"})), &pod);
    let link = pod.namespace().link("eth0");
    assert_eq!((link.up, link.alias.as_deref(), &link.mac), (true, Some("dev1"), &before.mac));
    assert!(node.host().find_link("dev1").is_none());
    let interface = json!({"name": "eth0", "mac": before.mac, "mtu": 1400, "sandbox": pod.attachment().netns});
    assert_eq!(attached.result["interfaces"], json!([interface]));
    assert_eq!(attached.result["ips"], json!([{"interface": 0, "address": "10.7.0.2/24", "gateway": "10.7.0.1"}]));
    beyond.add_address("near", "10.7.0.1/24");
    pod.namespace().ping([10, 7, 0, 1]);
    attached.check().ok();
    for _ in 0..2 {
        attached.del().ok();
        assert!(pod.namespace().find_link("eth0").is_none());
        assert_home(&node, "after DEL");
    }
}

#[test]
fn a_device_is_found_by_any_name_and_comes_home_with_it() {
    let node = node();
    device(&node);
    for name in ["dev1alt", "enp82s0f0np0s0longname"] {
        node.host().add_alt_name("dev1", name);
        let attached = Attached::add(&node, &config(json!({"device": name})), &node.container());
        attached.check().ok();
        attached.del().ok();
        assert!(node.host().find_link("dev1").is_some());
    }
    let shown = ip(node.host(), "link show dev1");
    assert!(shown.contains("altname dev1alt") && shown.contains("altname enp82s0f0np0s0longname"), "{shown}");
}

/// DEL takes as long as the kernel needs to move the device: each wait is for a netlink answer, no process is started.
#[test]
fn del_waits_for_the_kernel_alone() {
    let node = node();
    device(&node);
    let attached = Attached::add(&node, &config(json!({"ipam": {}})), &node.container());
    let traced = attached.call(Verb::Del).trace(&node);
    traced.reply.ok();
    let counts = traced.counts();
    let processes = "clone clone3 fork vfork execve wait4 waitid";
    let waits =
        "nanosleep clock_nanosleep futex flock fsync fdatasync epoll_wait epoll_pwait ppoll select pselect6 recvmsg";
    let mut all = processes.split(' ').chain(waits.split(' '));
    assert!(all.all(|name| !counts.contains_key(name)), "{counts:#?}");
    // Requests that are sent together have an answer each, and a list has its end in a read of its own.
    assert!(counts["recvfrom"] <= counts["sendto"] + 4, "{counts:#?}");
    // Rust's start looks whether files 0 to 2 are open.
    let is_wait = |call: &&Syscall| call.name() == "poll" && call.arguments[2] != 0;
    assert_eq!(traced.calls.iter().find(is_wait), None);
    assert_home(&node, "after DEL");
}

/// The kernel returns hardware under the name that it had in the container; other links end with the namespace. DEL finds it,
/// and so does GC.
#[test]
fn a_device_that_the_kernel_returned_gets_back_what_it_had() {
    for remains in [Remains::Gone, Remains::PlainFile] {
        for by_gc in [false, true] {
            let (node, pod) = device_and_pod();
            let config = config(json!({"cniVersion": "1.1.0"}));
            Attached::add(&node, &config, &pod);
            return_to_host(&pod, "eth0");
            let attachment = pod.leave(remains);
            if by_gc {
                let none = with(config, json!({"cni.dev/valid-attachments": []}));
                node.call(Verb::Gc, none, Attachment::none()).ok();
            } else {
                node.call(Verb::Del, &config, attachment).ok();
            }
            assert_home(&node, &format!("{remains:?}, by GC {by_gc}"));
        }
    }
}

#[test]
fn a_device_that_ended_with_its_namespace_is_forgotten() {
    let node = node();
    device(&node);
    let pod = node.container();
    let config = config(json!({}));
    Attached::add(&node, &config, &pod);
    let gone = pod.leave(Remains::Gone);
    node.host().wait_for("the kernel to end the namespace", |host| host.links().len() == 1);
    node.call(Verb::Del, &config, &gone).ok();
    node.call(Verb::Del, &config, &gone).ok();
    assert_eq!(records(), Vec::<String>::new());
    let pod = node.container();
    let error = node.call(Verb::Add, &config, &pod).fails_with(100);
    assert_eq!(error.msg, "cannot find device dev1 on the host");
}

/// No DEL came, and the kernel has returned the device: the next container gets it, and its old name is not lost.
#[test]
fn the_next_add_finds_a_returned_device_under_any_name() {
    let node = node();
    device(&node);
    let (lost, pod) = (node.container(), node.container());
    Attached::add(&node, &config(json!({})), &lost);
    return_to_host(&lost, "eth0");
    let attached = Attached::add(&node, &config(json!({})), &pod);
    assert_eq!(pod.namespace().link("eth0").alias.as_deref(), Some("dev1"));
    attached.del().ok();
    assert_home(&node, "after the next one's DEL");
}

#[test]
fn status_reports_a_device_that_nothing_has() {
    let node = node();
    let status = || node.call(Verb::Status, config(json!({"cniVersion": "1.1.0"})), Attachment::none());
    let error = status().fails_with(50);
    assert_eq!(error.msg, "network net is not available: cannot find device dev1 on the host");
    device(&node);
    status().ok();
    let pod = node.container();
    Attached::add(&node, &config(json!({})), &pod);
    status().ok();
    // The device has ended with the container's namespace, and no DEL has come yet.
    pod.end();
    node.host().wait_for("the kernel to end the namespace", |host| host.links().len() == 1);
    let error = status().fails_with(50);
    let gone = "network net is not available: cannot find device dev1 on the host: container ";
    assert!(
        error.msg.starts_with(gone) && error.msg.ends_with(", which had it as eth0 by network net, is gone"),
        "{error:?}"
    );
}

#[test]
fn a_device_in_use_is_moved_with_a_warning_or_refused() {
    let (node, pod) = device_and_pod();
    node.host().add_route("198.51.100.0/24", "192.0.2.9", "dev1");
    node.remember();
    let error = node.call(Verb::Add, config(json!({"refuseInUse": true})), &pod).fails_with(103);
    assert_eq!(error.msg, "cannot move device dev1: the node uses it, and refuseInUse is set");
    for loss in ["192.0.2.1/24", "fd01::1/64", "198.51.100.0/24"] {
        assert!(error.details.contains(loss), "{error:?}");
    }
    node.assert_as_before();
    let reply = node.call(Verb::Add, config(json!({})), &pod);
    reply.ok();
    assert!(reply.output.stderr.contains("198.51.100.0/24"), "{reply}");
}

/// The kernel refuses a route behind the move: the node has its device again, as it was.
#[test]
fn a_device_comes_home_from_an_add_that_fails_behind_the_move() {
    let (node, pod) = device_and_pod();
    let routes =
        json!({"type": "host-local", "subnet": "10.7.0.0/24", "routes": [{"dst": "10.9.0.0/16", "gw": "10.200.0.1"}]});
    let error = node.call(Verb::Add, config(json!({"ipam": routes})), &pod).fails();
    assert!(error.details.contains("Undone: device dev1 back on the host; addresses released"), "{error:?}");
    assert_home(&node, "after the failed ADD");
}

const MANY: usize = 150;

/// Links on top of the device end by a few requests: each waits for the kernel's grace period.
#[test]
fn many_links_on_the_device_end_at_once() {
    testns::needs!(Feature::Macvlan.or_skip());
    let (node, pod) = device_and_pod();
    let attached = Attached::add(&node, &config(json!({"ipam": {}})), &pod);
    let file = node.work_dir().join("batch");
    let all = (0..MANY).map(|number| format!("link add mv{number} link eth0 type macvlan mode bridge\n"));
    std::fs::write(&file, all.collect::<String>()).unwrap();
    ip(pod.namespace(), &format!("-batch {}", file.display()));
    let traced = attached.call(testns::Verb::Del).trace(&node);
    traced.reply.ok();
    assert!(traced.counts()["sendto"] < 60, "{:#?}", traced.counts());
    assert_eq!(pod.namespace().links().iter().filter(|link| link.name.starts_with("mv")).count(), 0);
    assert!(node.host().find_link("dev1").is_some());
}

/// Each list of the container's links is interrupted by the next link.
#[test]
fn a_container_that_keeps_making_links_does_not_keep_the_device() {
    let (node, pod) = device_and_pod();
    let attached = Attached::add(&node, &config(json!({"ipam": {}})), &pod);
    pod.namespace().crowd_links(200);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                pod.namespace().pass_links(20);
            }
        });
        let begin = Instant::now();
        let reply = attached.del();
        is_over.store(true, Ordering::Relaxed);
        reply.ok();
        assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    });
    assert!(node.host().find_link("dev1").is_some());
}
