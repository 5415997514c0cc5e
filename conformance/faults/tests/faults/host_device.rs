//! An ADD that fails or is killed at any point, a DEL that is killed: the device comes home with all that it had.

use crate::configs::Attached;
use crate::subjects::node;
use conformance::host_device::{assert_home, config, device};
use nix::errno::Errno;
use serde_json::{Value, json};
use testns::trace::{Syscall, Traced};
use testns::{Call, Container, Node, Remains, Verb};

fn one() -> Value {
    config(json!({"ipam": {"type": "host-local", "subnet": "10.7.0.0/30"}}))
}

/// Goes through the points of a call until it ends before its nth.
fn each_point(what: &str, mut at: impl FnMut(&Node, &Container, usize) -> bool) {
    let node = node();
    device(&node);
    let count = (1..)
        .take_while(|n| {
            let pod = node.container();
            let there = at(&node, &pod, *n);
            assert_home(&node, &format!("{what} at {n}"));
            // The only address is free, and the device as good as before.
            Attached::add(&node, &one(), &pod).del().ok();
            assert_home(&node, &format!("{what} at {n}, then ADD and DEL"));
            pod.leave(Remains::Gone);
            there
        })
        .count();
    assert!(count > 2, "{what}: only {count} points were found");
    testns::note(&format!("POINTS {what}: {count}"));
}

fn failing(what: &str, run: impl Fn(&Call, &Node, usize) -> Traced) {
    each_point(what, |node, pod, n| {
        let call = Call::new(Verb::Add, one(), pod);
        let Traced { reply, hit, .. } = run(&call, node, n);
        let is_reply = hit.as_ref().is_some_and(|hit| hit.name() == "write" && hit.arguments[0] == 1);
        if reply.output.code() == 0 || is_reply {
            Call::new(Verb::Del, one(), pod).run(node).ok();
        }
        hit.is_some()
    });
}

fn suitable(call: &Syscall) -> Errno {
    match call.name().as_str() {
        "open" | "openat" | "mkdir" | "mkdirat" | "write" | "rename" | "renameat" | "renameat2" => Errno::ENOSPC,
        "recvfrom" | "recvmsg" => Errno::ENOBUFS,
        "sendto" | "sendmsg" => Errno::ENOMEM,
        "setns" => Errno::EPERM,
        _ => Errno::EIO,
    }
}

#[test]
fn a_device_comes_home_from_an_add_with_any_message_refused() {
    failing("ADD, refused by the kernel", |call, node, n| call.refuse(node, n));
}

#[test]
fn a_device_comes_home_from_an_add_with_any_system_call_failing() {
    failing("ADD, failed system call", |call, node, n| call.fail_step(node, n, suitable));
}

#[test]
fn a_device_comes_home_from_a_killed_add() {
    each_point("ADD killed, DEL", |node, pod, n| {
        let traced = Call::new(Verb::Add, one(), pod).kill_before(node, n);
        let mut attachment = pod.attachment();
        if n % 2 == 0 {
            attachment.netns.clear();
        }
        Call::new(Verb::Del, one(), attachment).run(node).ok();
        traced.hit.is_some()
    });
}

#[test]
fn a_device_comes_home_from_a_killed_del() {
    each_point("DEL killed, DEL", |node, pod, n| {
        let attached = Attached::add(node, &one(), pod);
        let traced = attached.call(Verb::Del).kill_before(node, n);
        Call::new(Verb::Del, one(), pod).run(node).ok();
        traced.hit.is_some()
    });
}
