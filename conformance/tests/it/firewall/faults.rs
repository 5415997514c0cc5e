//! ADD that fails or is killed at each point: nothing is left, or DEL removes it.

use super::{accepting, config, has_iptables, isolating, made_up};
use crate::configs::with;
use crate::subjects::node;
use nix::errno::Errno;
use serde_json::json;
use testns::trace::{Syscall, Traced};
use testns::{Call, Container, Node, Verb};

fn call(verb: Verb, pod: &Container) -> Call {
    let previous = made_up("cni0", &["10.1.0.2/24", "fd01::2/64"]);
    Call::new(verb, with(config(json!({"ingressPolicy": "isolated"})), json!({"prevResult": previous})), pod)
}

fn left(node: &Node) -> Vec<String> {
    [accepting(node), isolating(node, "cni0")].concat()
}

fn at_each_point(fails: impl Fn(&Call, &Node, usize) -> Traced, is_rolled_back: bool) {
    if !has_iptables() {
        return;
    }
    let node = node();
    let mut points = 0;
    for n in 1.. {
        let pod = node.container();
        let Traced { reply, hit, .. } = fails(&call(Verb::Add, &pod), &node, n);
        let point = format!("{n}: {:?}\n{reply}", hit.as_ref().map(ToString::to_string));
        let is_reply = hit.as_ref().is_some_and(|hit| hit.name().starts_with("write") && hit.arguments[0] == 1);
        if is_rolled_back && hit.is_some() && reply.output.code() != 0 && !is_reply {
            assert_eq!(left(&node), [""; 0], "{point}");
        }
        let bare = call(Verb::Del, &pod).with_config(|config| {
            config.as_object_mut().unwrap().retain(|key, _| key != "prevResult");
        });
        if n % 2 == 0 { bare } else { bare.without("CNI_NETNS") }.run(&node).ok();
        assert_eq!(left(&node), [""; 0], "after DEL: {point}");
        if hit.is_none() {
            reply.ok();
            break;
        }
        points += 1;
    }
    assert!(points > 2, "only {points} points");
}

#[test]
fn del_after_a_killed_add_of_firewall_leaves_nothing() {
    at_each_point(Call::kill_before, false);
}

#[test]
fn add_of_firewall_with_any_message_refused_leaves_nothing() {
    at_each_point(Call::refuse, true);
}

#[test]
fn add_of_firewall_with_any_failed_call_leaves_nothing() {
    fn errno(call: &Syscall) -> Errno {
        match call.name().as_str() {
            "recvfrom" | "recvmsg" => Errno::ENOBUFS,
            "sendto" | "sendmsg" => Errno::ENOMEM,
            _ => Errno::EBUSY,
        }
    }
    at_each_point(|call, node, n| call.fail_step(node, n, errno), true);
}

/// A full cgroup of processes, or a seccomp profile without clone3: only the system bus, where there is one, needs a thread.
#[test]
fn where_no_thread_can_be_made_calls_work_or_say_so() {
    use testns::trace::Fate;
    let node = node();
    let pod = node.container();
    let previous = made_up("cni0", &["10.1.0.2/24"]);
    let config = with(config(json!({"backend": null})), json!({"prevResult": previous}));
    let no_thread = |call: &Syscall| call.makes_thread().then_some(Errno::EAGAIN);
    let call =
        |verb| Call::new(verb, &config, &pod).try_traced(&node, Some((1, Fate::FailWhere(no_thread)))).expect("an end");
    for verb in [Verb::Add, Verb::Check, Verb::Del] {
        let traced = call(verb);
        traced.reply.ok();
        assert!(traced.hit.is_none(), "{verb:?} made a thread");
    }
    std::fs::create_dir_all("/run/dbus").unwrap();
    let _bus = std::os::unix::net::UnixListener::bind("/run/dbus/system_bus_socket").unwrap();
    for verb in [Verb::Add, Verb::Check, Verb::Del] {
        let traced = call(verb);
        let failure = traced.reply.fails_with(11);
        assert!(failure.msg.contains("no thread can be made"), "{failure:?}");
        assert!(traced.hit.is_some());
    }
}

/// A repeated ADD with other addresses, of which any message is refused, leaves the rules of the first one.
#[test]
fn a_repeated_add_of_firewall_that_fails_leaves_the_rules_as_they_were() {
    if !has_iptables() {
        return;
    }
    let node = node();
    for n in 1.. {
        let pod = node.container();
        let of = |verb, policy: &str, addresses: &[&str]| {
            let own = json!({"ingressPolicy": policy});
            Call::new(verb, with(config(own), json!({"prevResult": made_up("cni0", addresses)})), &pod)
        };
        let first = ["10.1.0.2/24", "fd01::2/64"];
        of(Verb::Add, "isolated", &first).run(&node).ok();
        let again = of(Verb::Add, "same-bridge", &["10.1.0.3/24", "fd01::3/64"]);
        let Traced { reply, hit, .. } = again.refuse(&node, n);
        if hit.is_none() {
            reply.ok();
            assert!(n > 3, "only {n} messages");
            break;
        }
        reply.fails();
        of(Verb::Check, "isolated", &first).run(&node).ok();
        let left = accepting(&node).concat();
        assert!(!left.contains("10.1.0.3") && !left.contains("fd01::3"), "{n}: {left}");
        call(Verb::Del, &pod).run(&node).ok();
        assert_eq!(self::left(&node), [""; 0], "{n}");
    }
}
