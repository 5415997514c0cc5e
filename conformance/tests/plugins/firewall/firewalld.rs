//! Backend firewalld: a real one, on a bus of the node's own.

use super::{add, config, made_up, saved};
use crate::prelude::*;
use nix::errno::Errno;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use testns::Subject;
use testns::trace::{Fate, Syscall};

const BOTH: [&str; 2] = ["10.1.0.2/24", "fd01::2/64"];
const BUS: &str = r#"<busconfig><type>system</type><listen>unix:path=/run/dbus/system_bus_socket</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*"/><allow receive_sender="*"/><allow own="*"/></policy></busconfig>"#;

struct Running(Vec<Child>);

impl Drop for Running {
    fn drop(&mut self) {
        for child in self.0.iter_mut().rev() {
            child.kill().ok();
            child.wait().ok();
        }
    }
}

fn start(node: &Node) -> Option<Running> {
    start_in(node, node.host())
}

fn start_in(node: &Node, namespace: &Namespace) -> Option<Running> {
    if !["/usr/sbin/firewalld", "/usr/bin/dbus-daemon", "/usr/bin/gdbus"].iter().all(|path| Path::new(path).exists()) {
        skip("firewalld is not installed");
        return None;
    }
    std::fs::create_dir_all("/run/dbus").unwrap();
    let file = |name: &str| node.work_dir().join(name).display().to_string();
    std::fs::write(file("bus.conf"), BUS).unwrap();
    let bus = ["--nofork", "--nopidfile", "--print-address=1", "--config-file"];
    let mut bus = Command::new("dbus-daemon").args(bus).arg(file("bus.conf")).stdout(Stdio::piped()).spawn().unwrap();
    let mut address = String::new();
    BufReader::new(bus.stdout.take().unwrap()).read_line(&mut address).unwrap();
    let mut running = Running(vec![bus]);
    std::fs::create_dir_all(file("etc")).unwrap();
    let firewalld = namespace.enter(|| {
        let own = ["--log-file", &file("log"), "--system-config", &file("etc")];
        Command::new("firewalld").args(["--nofork", "--nopid"]).args(own).stderr(Stdio::null()).spawn().unwrap()
    });
    running.0.push(firewalld);
    let wait = ["wait", "--system", "--timeout", "60", "org.fedoraproject.FirewallD1"];
    let is_there = Command::new("gdbus").args(wait).env("DBUS_SYSTEM_BUS_ADDRESS", address.trim()).status().unwrap();
    assert!(is_there.success(), "firewalld has not come: {:?}", std::fs::read_to_string(file("log")));
    Some(running)
}

fn sources() -> Vec<String> {
    let output = Command::new("firewall-cmd").args(["--zone=trusted", "--list-sources"]).output().unwrap();
    let mut sources: Vec<String> =
        String::from_utf8(output.stdout).unwrap().split_whitespace().map(str::to_owned).collect();
    sources.sort();
    sources
}

/// Found by itself, named, in either direction with the reference, twice.
#[test]
fn addresses_are_sources_of_the_zone_of_a_real_firewalld() {
    let node = node();
    let Some(_running) = start(&node) else { return };
    let pod = node.container();
    for own in [json!({"backend": ""}), json!({"backend": "firewalld"})] {
        let added = add(&node, config(own.clone()), &pod, made_up("cni0", &BOTH));
        add(&node, config(own), &pod, made_up("cni0", &BOTH));
        assert_eq!(sources(), ["10.1.0.2/32", "fd01::2/128"]);
        assert!(!saved(&node).contains("CNI-FORWARD"), "{}", saved(&node));
        added.check().ok();
        for _ in 0..2 {
            added.del().ok();
        }
        assert_eq!(sources(), [""; 0]);
        let error = added.check().fails_with(107);
        assert!(error.msg.contains("does not have source 10.1.0.2"), "{error:?}");
    }
    let Some(reference) = reference_or_skip() else { return };
    for (first, second) in [(Subject::ours(), reference.clone()), (reference, Subject::ours())] {
        node.install(&first);
        let added = add(&node, config(json!({"backend": "firewalld"})), &pod, made_up("cni0", &BOTH));
        node.install(&second);
        added.check_and_del();
        assert_eq!(sources(), [""; 0]);
    }
}

/// The zones of that firewalld are not those of the node: a rootless runtime sees the bus of the whole machine.
#[test]
fn a_firewalld_of_another_namespace_is_not_asked() {
    let node = node();
    let other = node.container();
    let Some(_running) = start_in(&node, other.namespace()) else { return };
    let added = add(&node, config(json!({"backend": ""})), &node.container(), made_up("cni0", &BOTH));
    assert!(saved(&node).contains("-A CNI-FORWARD -d 10.1.0.2/32"), "{}", saved(&node));
    assert_eq!(other.namespace().enter(sources), [""; 0]);
    added.check_and_del();
    let own = json!({"backend": "firewalld", "prevResult": made_up("cni0", &BOTH)});
    let error = node.call(Verb::Add, with(config(json!({})), own), &node.container()).fails_with(11);
    assert!(error.msg.contains("of this network namespace"), "{error:?}");
}

/// A zone that does not exist: the error is firewalld's, and the first address is taken back with the second's failure.
#[test]
fn an_error_of_firewalld_is_passed_on() {
    let node = node();
    let Some(_running) = start(&node) else { return };
    let previous = made_up("cni0", &BOTH);
    let own = json!({"backend": "firewalld", "firewalldZone": "nowhere", "prevResult": previous});
    let error = node.call(Verb::Add, crate::configs::with(config(json!({})), own), &node.container()).fails();
    assert!(error.msg.contains("zone nowhere") && error.msg.contains("INVALID_ZONE"), "{error:?}");
}

/// Each answer of the bus is lost once, also that to a change which firewalld has made.
#[test]
fn add_that_lost_an_answer_of_firewalld_takes_its_own_sources_back_and_no_others() {
    let node = node();
    let Some(_running) = start(&node) else { return };
    let own = json!({"backend": "firewalld", "prevResult": made_up("cni0", &BOTH)});
    let (config, pod) = (with(config(json!({})), own), node.container());
    let is_lost = |call: &Syscall| (call.name() == "recvmsg").then_some(Errno::EIO);
    // Each answer of an ADD in turn, until none was lost.
    let lose_each = |left: &[&str]| {
        for lost in 1.. {
            let call = Call::new(Verb::Add, &config, &pod);
            let traced = call.try_traced(&node, Some((lost, Fate::FailWhere(is_lost)))).expect("an end");
            if traced.hit.is_none() {
                assert!(lost > 3, "{lost} answers");
                break;
            }
            traced.reply.fails();
            assert_eq!(sources(), left, "answer {lost} was lost");
        }
    };
    lose_each(&[]);
    let both = ["10.1.0.2/32", "fd01::2/128"];
    assert_eq!(sources(), both);
    // They were there before.
    lose_each(&both);
}

/// Without a bus, backend firewalld is an error that can be repeated later, and DEL has nothing to do.
#[test]
fn a_firewalld_that_does_not_run_is_named() {
    let (node, pod) = node_with_pod();
    let own: Value = json!({"backend": "firewalld", "prevResult": made_up("cni0", &BOTH)});
    let config = crate::configs::with(config(json!({})), own);
    let error = node.call(Verb::Add, &config, &pod).fails_with(11);
    assert!(error.msg.contains("firewalld"), "{error:?}");
    node.call(Verb::Del, &config, &pod).ok();
    let status = crate::configs::with(config, json!({"cniVersion": "1.1.0"}));
    node.call(Verb::Status, &status, Attachment::none()).fails_with(50);
}

/// A full cgroup of processes, or a seccomp profile without clone3: only the system bus, where there is one, needs a thread.
#[test]
fn where_no_thread_can_be_made_calls_work_or_say_so() {
    let (node, pod) = node_with_pod();
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
