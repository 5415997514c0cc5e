//! Nothing is left of a pod that was stopped and removed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use clients::Whose;
use clients::containerd::runtime_v1::{PodSandboxConfig, PortMapping};
use clients::containerd::{Cri, Daemon, Pod};
use serde_json::Value;

use crate::cri::{with_list, with_network};
use crate::networks::{self, NAME};
use crate::pod_arguments::bandwidth_limits;

/// Stopped and removed, a pod leaves nothing, beside another that runs; stopping it twice is fine.
#[test]
fn stop_and_remove_leave_nothing() {
    let Some(daemon) = Daemon::start() else { return };
    let cri = with_network(&daemon);
    let run = |name, host_port| {
        cri.run_pod(PodSandboxConfig {
            port_mappings: vec![PortMapping { container_port: 80, host_port }],
            annotations: bandwidth_limits(),
            ..PodSandboxConfig::named(&daemon, name)
        })
    };
    let stays = run("stays", 8080);
    daemon.remember_settled();
    let reserved = daemon.reservations(NAME);
    let pod = run("goes", 8081);
    assert_eq!(daemon.reservations(NAME).len(), reserved.len() + 2);
    // The namespace outlives the pod here, so that a link goes with DEL or not at all.
    let held = File::open(cri.namespace(&pod).path()).unwrap();
    cri.stop(&pod);
    cri.stop(&pod);
    assert_eq!((daemon.reservations(NAME), daemon.cached(&pod.id)), (reserved, vec![]));
    cri.remove(&pod);
    daemon.assert_as_before_except(networks::is_counter);
    drop(held);
    assert_last_removed(&cri, &daemon, &stays);
}

/// A pod whose namespace was taken away under it is stopped and removed like any other.
#[test]
fn a_pod_without_its_namespace_is_removed() {
    let Some(daemon) = Daemon::start() else { return };
    let cri = with_network(&daemon);
    let run = |name| cri.run_pod(PodSandboxConfig::named(&daemon, name));
    let stays = run("stays");
    daemon.remember_settled();
    let before = namespaces();
    let pod = run("goes");
    let mut netns = namespaces();
    netns.retain(|path| !before.contains(path));
    assert_eq!(netns.len(), 1);
    nix::mount::umount2(&netns[0], nix::mount::MntFlags::MNT_DETACH).unwrap();
    fs::remove_file(&netns[0]).unwrap();
    assert_removed(&cri, &daemon, &pod);
    assert_last_removed(&cri, &daemon, &stays);
}

/// A pod that was made before its runtime crashed is removed by the runtime's successor.
#[test]
fn a_pod_outlives_a_crash_of_its_runtime() {
    let Some(mut daemon) = Daemon::start() else { return };
    let cri = with_network(&daemon);
    let stays = cri.run_pod(PodSandboxConfig::named(&daemon, "stays"));
    daemon.remember_settled();
    let pod = cri.run_pod(PodSandboxConfig::named(&daemon, "goes"));
    let addresses = cri.addresses(&pod);
    drop(cri);
    daemon.crash_and_start();
    let cri = Cri::connect(&daemon);
    assert_eq!(cri.addresses(&pod), addresses);
    assert_removed(&cri, &daemon, &pod);
    assert_last_removed(&cri, &daemon, &stays);
}

/// Removes a pod beside another that runs.
fn assert_removed(cri: &Cri<'_>, daemon: &Daemon, pod: &Pod) {
    cri.stop(pod);
    cri.remove(pod);
    daemon.assert_as_before_except(networks::is_counter);
}

fn assert_last_removed(cri: &Cri<'_>, daemon: &Daemon, pod: &Pod) {
    cri.stop(pod);
    cri.remove(pod);
    assert_nothing_of(daemon, pod);
}

/// The upgrade: pods that the reference's plugins made are removed by ours, and new ones find them.
#[test]
fn our_plugins_take_over_pods() {
    switch([Whose::Reference, Whose::Ours], &networks::pods(), |cri, pod| cri.stop(pod), |_| false);
}

/// The reversal of the upgrade.
#[test]
fn our_pods_can_be_given_back() {
    switch([Whose::Ours, Whose::Reference], &networks::pods(), |cri, pod| cri.stop(pod), |_| false);
}

/// Where masquerade is in nftables, the reference's DEL also removes rules of iptables, whose chain is not there, and fails,
/// once, for its own pods too: a kubelet tries again.
#[test]
fn our_pods_can_be_given_back_at_the_second_attempt() {
    let stop = |cri: &Cri<'_>, pod: &Pod| {
        let refusal = cri.try_stop(pod).unwrap_err();
        assert!(refusal.message.contains("does not exist"), "{refusal}");
        cri.stop(pod);
    };
    let mut list = networks::pods();
    list["plugins"][0]["ipMasqBackend"] = "nftables".into();
    switch([Whose::Ours, Whose::Reference], &list, stop, |_| false);
}

/// Makes pods with one side's plugins, removes one with the other's, makes another beside the rest.
fn switch([first, second]: [Whose; 2], list: &Value, stop: impl Fn(&Cri<'_>, &Pod), is_left: impl Fn(&str) -> bool) {
    let Some(daemon) = Daemon::start_with(first) else { return };
    let cri = with_list(&daemon, list);
    let run = |name| cri.run_pod(PodSandboxConfig::named(&daemon, name));
    let stays = run("stays");
    daemon.remember_settled();
    let goes = run("goes");
    daemon.install(second);
    stop(&cri, &goes);
    cri.remove(&goes);
    daemon.assert_as_before_except(|line| networks::is_counter(line) || is_left(line));
    let new = run("new");
    let container = cri.start_container(&new, &["sleep", "1000000"]);
    for address in cri.addresses(&stays) {
        cri.exec(&container, &["ping", "-c", "1", "-W", "10", &address]);
    }
    stop(&cri, &new);
    cri.remove(&new);
    stop(&cri, &stays);
    cri.remove(&stays);
    assert_eq!((daemon.reservations(NAME), namespaces()), (vec![], vec![]));
    assert_eq!(daemon.host().links().iter().filter(|link| link.kind == "veth").count(), 0);
}

fn namespaces() -> Vec<PathBuf> {
    Path::new("/run/netns").read_dir().unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// Checks that what the last pod leaves is its network's: no link, address, rule or file of the pod's own.
fn assert_nothing_of(daemon: &Daemon, pod: &Pod) {
    assert_eq!((daemon.reservations(NAME), daemon.cached(&pod.id)), (vec![], vec![]));
    assert_eq!(namespaces(), [""; 0].map(PathBuf::from));
    let now = daemon.snapshot();
    let of_pod = |line: &&String| line.contains(&pod.id) || line.contains("veth") || line.contains(" bwp");
    assert_eq!(now.lines().iter().filter(of_pod).collect::<Vec<_>>(), [""; 0]);
}
