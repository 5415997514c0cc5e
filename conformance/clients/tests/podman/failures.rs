//! Networks that cannot be: podman shows the plugins' own error messages, and nothing is left.

use crate::engine::Podman;
use crate::leftovers::is_kept;
use crate::networks;
use crate::upgrade::{BIN_DIR, cnitool};
use nix::mount::{MntFlags, umount2};
use serde_json::json;
use std::fs;

const ON_OFFICE: [&str; 2] = ["--network", "office"];

/// A plugin behind bridge that fails makes podman call DEL of the whole list.
#[test]
fn what_bridge_made_goes_when_a_plugin_behind_it_fails() {
    let Some(podman) = Podman::or_skip() else { return };
    let mut list = networks::office();
    networks::write_office(&list);
    podman.start(&ON_OFFICE).remove(); // the bridge itself stays from here on
    list["plugins"][1] = json!({"type": "tuning", "sysctl": {"net.nothing.of_this_name": "1"}});
    networks::write_office(&list);
    podman.node.remember();
    let message = podman.fails(&Podman::start_command(&ON_OFFICE));
    assert!(message.contains("plugin type=\"tuning\" failed (add)"), "{message}");
    podman.ok(&["rm", "--latest"]);
    podman.node.assert_as_before_except(is_kept);
}

/// podman's default network is in no file and not looked at beforehand: the chain stops at the missing executable, and so does its
/// undoing, before bridge is called. What was made till then stays until a DEL, such as `cnitool`'s.
#[test]
fn what_podman_cannot_undo_for_want_of_an_executable_cnitool_undoes() {
    let Some(podman) = Podman::or_skip() else { return };
    podman.start(&[]).remove();
    podman.node.remember();
    fs::remove_file(format!("{BIN_DIR}/portmap")).unwrap();
    let message = podman.fails(&Podman::start_command(&[]));
    assert!(message.contains("plugin type=\"portmap\" failed (add): failed to find plugin"), "{message}");
    let id = podman.ok(&["ps", "--all", "--quiet", "--no-trunc", "--latest"]);
    podman.ok(&["rm", "--latest"]);
    assert!(podman.node.changes().contains(&id));

    let list = json!({"cniVersion": "1.0.0", "name": "podman", "plugins": [
        {"type": "bridge", "bridge": "cni-podman0", "isGateway": true, "ipMasq": true,
         "ipam": {"type": "host-local", "subnet": "10.88.0.0/16"}}]});
    let file = podman.node.work_dir().join("podman.conflist");
    fs::write(&file, list.to_string()).unwrap();
    cnitool(&["del", &file.display().to_string(), "/run/netns/gone", "--container-id", &id]);
    podman.node.assert_as_before_except(is_kept);
}

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
