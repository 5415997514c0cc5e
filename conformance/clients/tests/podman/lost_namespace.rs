//! A container whose network namespace is gone, as after a crash of the machine.

use nix::mount::{MntFlags, umount2};

use crate::engine::Podman;
use crate::executables::cnitool;
use crate::leftovers::is_kept;
use crate::networks;

/// podman removes the container and calls no plugin: its reservation, rules and cache entry stay. `cnitool gc`, with
/// the list of what podman still runs, removes them and leaves the others alone.
#[test]
fn what_podman_forgets_of_a_vanished_namespace_gc_removes() {
    let Some(podman) = Podman::or_skip() else { return };
    networks::create(&podman, "made");
    let stays = podman.start(&["--network", "made"]);
    podman.node.remember();
    let container = podman.start(&["--network", "made"]);
    let address = container.address("made");
    umount2(container.sandbox(), MntFlags::MNT_DETACH).unwrap();
    std::fs::remove_file(container.sandbox()).unwrap();
    assert!(container.remove().contains("no such file or directory"));
    assert!(podman.node.changes().contains(&format!("/var/lib/cni/networks/made/{address} ")));

    let running = podman.ok(&["ps", "--quiet", "--no-trunc"]);
    let keep: Vec<_> = running.lines().flat_map(|id| ["--keep", id]).collect();
    cnitool(&[&["gc", "made"], &keep[..]].concat());
    podman.node.assert_as_before_except(is_kept);
    stays.exec(&["ping", "-c1", "-W5", "10.89.0.1"]);
    assert_eq!(stays.remove(), "");
}
