//! A pod whose network cannot be made: the kubelet reads why, nothing is left, others are undisturbed.

use clients::containerd::Daemon;
use clients::containerd::runtime_v1::PodSandboxConfig;
use serde_json::json;

use crate::cri::{with_list, with_network};
use crate::networks::{self, NAME};

/// A plugin behind ours fails: the kubelet reads which and why, and what ours did is undone.
#[test]
fn a_failure_later_in_the_chain_leaves_nothing() {
    let Some(daemon) = Daemon::start() else { return };
    let mut list = networks::pods();
    list["plugins"][1] = json!({"type": "tuning", "sysctl": {"net.core.no_such_key": "1"}});
    let cri = with_list(&daemon, &list);
    let refusal = cri.try_run_pod(PodSandboxConfig::named(&daemon, "fails")).unwrap_err();
    assert!(refusal.message.contains(r#"plugin type="tuning" failed (add)"#), "{refusal}");
    assert!(refusal.message.contains("no_such_key"), "{refusal}");
    assert_eq!(daemon.reservations(NAME), [""; 0]);
    let changes = daemon.changes();
    let of_pod = |line: &&str| line.contains(" veth") || line.starts_with("+ nft element");
    assert_eq!(changes.lines().filter(of_pod).collect::<Vec<_>>(), [""; 0]);
    assert!(changes.contains("link cni0"), "bridge was not called: {changes}");
}

/// No address is free: the error says so and which range; the next pod gets the address that another gives back.
#[test]
fn a_full_range_is_an_error_of_one_pod() {
    let Some(daemon) = Daemon::start() else { return };
    let mut list = networks::pods();
    let range = json!({"subnet": "10.88.0.0/24", "rangeStart": "10.88.0.9", "rangeEnd": "10.88.0.9"});
    list["plugins"][0]["ipam"]["ranges"] = json!([[range]]);
    let cri = with_list(&daemon, &list);
    let first = cri.run_pod(PodSandboxConfig::named(&daemon, "first"));
    daemon.remember_settled();
    let refusal = cri.try_run_pod(PodSandboxConfig::named(&daemon, "second")).unwrap_err();
    let full = "failed to allocate for range 0: no IP addresses available in range set: 10.88.0.9-10.88.0.9";
    assert!(refusal.message.contains(&format!(r#"plugin type="bridge" failed (add): {full}"#)), "{refusal}");
    daemon.assert_as_before_except(networks::is_counter);
    cri.stop(&first);
    cri.remove(&first);
    let third = cri.run_pod(PodSandboxConfig::named(&daemon, "third"));
    assert_eq!(cri.addresses(&third), ["10.88.0.9"]);
    cri.stop(&third);
    cri.remove(&third);
    assert_eq!(daemon.reservations(NAME), [""; 0]);
}

/// Pods that are started at the same time get addresses of their own, and leave nothing when they end at the same time.
#[test]
fn pods_at_once_do_not_meet() {
    const PODS: usize = 6;
    let Some(daemon) = Daemon::start() else { return };
    let cri = with_network(&daemon);
    let stays = cri.run_pod(PodSandboxConfig::named(&daemon, "stays"));
    daemon.remember_settled();
    let each = |number: usize| {
        let cri = clients::containerd::Cri::connect(&daemon);
        let pod = cri.run_pod(PodSandboxConfig::named(&daemon, &format!("pod{number}")));
        let addresses = cri.addresses(&pod);
        (pod, addresses)
    };
    let pods: Vec<_> = std::thread::scope(|scope| {
        let started: Vec<_> = (0..PODS).map(|number| scope.spawn(move || each(number))).collect();
        started.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut addresses: Vec<_> = pods.iter().flat_map(|(_, addresses)| addresses).collect();
    addresses.sort();
    addresses.dedup();
    assert_eq!(addresses.len(), 2 * PODS);
    std::thread::scope(|scope| {
        for (pod, _) in &pods {
            let cri = clients::containerd::Cri::connect(&daemon);
            scope.spawn(move || {
                cri.stop(pod);
                cri.remove(pod);
            });
        }
    });
    daemon.assert_as_before_except(networks::is_counter);
    cri.stop(&stays);
    cri.remove(&stays);
}
