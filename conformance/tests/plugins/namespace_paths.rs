//! The path of a container's namespace now leads to another one: to the node's, or to another container's.

use crate::bridge::stays;
use crate::prelude::*;
use std::os::unix::fs::symlink;
use std::sync::mpsc;

fn config() -> Value {
    bridge(json!({"cniVersion": "1.1.0"}))
}

fn at(pod: &Container, netns: &str) -> Attachment {
    Attachment { netns: netns.to_owned(), ..pod.attachment() }
}

/// `/proc/PID/ns/net` of a container that has ended, whose pid a process of the node has now, or a mount of the node's
/// namespace: the container's is gone. All else is removed, the address is freed, and nothing of the node is changed,
/// though it has a veth of the interface's name and address that no mark protects.
#[test]
fn del_takes_the_nodes_own_namespace_for_one_that_is_gone() {
    let node = node();
    let other = node.remote("other");
    node.host().add_veth("eth0", &other, "peer");
    node.host().set_sysctl("net/ipv6/conf/eth0/disable_ipv6", "1");
    node.host().set_up("lo");
    std::fs::create_dir_all("/run/netns").unwrap();
    std::fs::File::create_new("/run/netns/own").unwrap();
    let bind = nix::mount::MsFlags::MS_BIND;
    nix::mount::mount(Some("/proc/self/ns/net"), "/run/netns/own", None::<&str>, bind, None::<&str>).unwrap();
    node.remember();
    for (path, with_result) in [("/proc/self/ns/net", true), ("/proc/self/ns/net", false), ("/run/netns/own", true)] {
        let pod = node.container();
        let config = with(config(), json!({"isGateway": true, "ipMasq": true, "macspoofchk": true}));
        let attached = Attached::add(&node, &config, &pod);
        let mut result = attached.result.clone();
        let inside = result["interfaces"].as_array_mut().unwrap().iter_mut().find(|entry| entry["name"] == "eth0");
        inside.unwrap()["mac"] = json!(node.host().link("eth0").mac);
        let call = Call::new(Verb::Del, &config, at(&pod, path));
        let call = if with_result { call.prev_result(&result) } else { call };
        call.run(&node).ok();
        call.run(&node).ok();
        // The kernel's own objects, which appear asynchronously.
        node.assert_as_before_except(|line| stays(line) || line.contains("fe80::"));
        let lo = json!({"cniVersion": "1.0.0", "name": "lo", "type": "loopback"});
        node.call(Verb::Del, lo, at(&node.container(), path)).ok();
        assert!(node.host().link("lo").up, "{path}");
    }
}

/// A file of another kind in the place of the namespace, a loop of links, or a namespace that is none of a network.
#[test]
fn what_is_no_network_namespace_is_invalid_to_add_and_gone_to_del() {
    let node = node();
    let path = |name: &str| node.work_dir().join(name).to_str().unwrap().to_owned();
    let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
    symlink(path("loop"), path("loop")).unwrap();
    nix::unistd::mkfifo(&*path("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    std::fs::File::create_new(path("uts")).unwrap();
    let bind = nix::mount::MsFlags::MS_BIND;
    nix::mount::mount(Some("/proc/self/ns/uts"), &*path("uts"), None::<&str>, bind, None::<&str>).unwrap();
    let long = format!("/run/netns/{}", "x".repeat(300));
    let lo = json!({"cniVersion": "1.0.0", "name": "lo", "type": "loopback"});
    let all = ["/proc/self/ns/mnt", "/proc/self/status", "/dev/null", &long];
    let all = all.into_iter().map(str::to_owned).chain(["socket", "loop", "fifo", "uts"].map(path));
    for netns in all {
        let pod = node.container();
        for config in [&config(), &lo] {
            let error = node.call(Verb::Add, config, at(&pod, &netns)).fails_with(8);
            assert!(error.msg.contains("cannot open network namespace"), "{error:?}");
            node.call(Verb::Del, config, at(&pod, &netns)).ok();
        }
        let attached = Attached::add(&node, &config(), &pod);
        Call::new(Verb::Del, &attached.config, at(&pod, &netns)).prev_result(&attached.result).run(&node).ok();
        assert!(node.host().find_link(attached.host_veth()).is_none(), "{netns}");
    }
}

/// Runs a test with a path such as `/proc/PID/ns/net` of a container.
pub(crate) fn by_process(pod: &Container, test: impl FnOnce(&str)) {
    let (sender, receiver) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            pod.namespace().enter(move || {
                sender.send(Namespace::of_this_thread()).unwrap();
                ended.recv().unwrap_err(); // returns when the test drops its sender
            });
        });
        let path = receiver.recv().unwrap().path().display().to_string();
        test(&path);
        drop(end);
    });
}

/// The same path leads to another container: that one loses nothing, whether its links have our alias, or none, as the
/// reference's.
#[test]
fn del_through_another_containers_process_takes_nothing_from_that_one() {
    let Some(reference) = reference_or_skip() else { return };
    for (who, subject) in [(Who::Ours, ours()), (Who::Reference, reference)] {
        for with_result in [true, false] {
            let node = Node::with(&subject);
            let config = bridge(json!({}));
            let (ended, living) = (node.container(), node.container());
            let attached = Attached::add(&node, &config, &ended);
            let other = Attached::add(&node, &config, &living);
            let lo = json!({"cniVersion": "1.0.0", "name": "lo", "type": "loopback"});
            node.call(Verb::Add, &lo, &living).ok();
            node.install(&ours());
            by_process(&living, |path| {
                let elsewhere = at(&ended, path);
                let call = Call::new(Verb::Del, &config, &elsewhere);
                let call = if with_result { call.prev_result(&attached.result) } else { call };
                call.run(&node).ok();
                call.run(&node).ok(); // nothing else of it is found by then
                node.call(Verb::Del, &lo, &elsewhere).ok();
            });
            let knows_its_own = who.is_ours() || with_result;
            assert_eq!(ended.namespace().find_link("eth0").is_none(), knows_its_own, "{who:?} {with_result}");
            assert!(living.namespace().link("eth0").up && living.namespace().link("lo").up);
            assert!(!std::fs::exists("/var/lib/cni/networks/net/10.7.0.2").unwrap());
            other.check().ok();
            // By its own path a link without alias is removed, as the reference's DEL does; its address is free, so only the
            // result says that it is this container's.
            Call::new(Verb::Del, &config, &ended).prev_result(&attached.result).run(&node).ok();
            other.del().ok();
            node.assert_as_before_except(stays);
        }
    }
}

/// By the container's own process, DEL finds what the reference added by the Ethernet address in the result.
#[test]
fn del_through_the_containers_own_process_finds_what_the_reference_added() {
    let Some(reference) = reference_or_skip() else { return };
    let node = Node::with(&reference);
    let (pod, config) = (node.container(), bridge(json!({})));
    let attached = Attached::add(&node, &config, &pod);
    node.install(&ours());
    // The host's end is not where the result has it, so that only the container's end can be found.
    node.host().set_down(attached.host_veth());
    node.host().rename(attached.host_veth(), "renamed");
    by_process(&pod, |path| {
        Call::new(Verb::Del, &config, at(&pod, path)).prev_result(&attached.result).run(&node).ok();
    });
    assert!(pod.namespace().find_link("eth0").is_none() && node.host().find_link("renamed").is_none());
}
