//! Nothing is left of a pod that was stopped and removed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use clients::containerd::runtime_v1::{PodSandboxConfig, PortMapping};
use clients::containerd::{Cri, Daemon, Pod};

use crate::cri::with_network;
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
    cri.stop(&pod);
    cri.remove(&pod);
    daemon.assert_as_before_except(networks::is_counter);
    assert_last_removed(&cri, &daemon, &stays);
}

fn assert_last_removed(cri: &Cri<'_>, daemon: &Daemon, pod: &Pod) {
    cri.stop(pod);
    cri.remove(pod);
    assert_nothing_of(daemon, pod);
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
