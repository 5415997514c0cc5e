//! Networks that cannot be: podman shows the plugins' own error messages, and nothing is left.

use crate::engine::Podman;
use crate::leftovers::is_kept;
use crate::networks;
use crate::upgrade::{BIN_DIR, cnitool};
use nix::mount::{MntFlags, umount2};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};

const ON_OFFICE: [&str; 2] = ["--network", "office"];

fn executable(plugin: &str) -> PathBuf {
    Path::new(BIN_DIR).join(plugin)
}

/// Starts a container on the network `office`, which fails and leaves nothing; podman's last line.
fn fails_without_a_trace(podman: &Podman) -> String {
    podman.node.remember();
    let message = podman.fails(&Podman::start_command(&ON_OFFICE));
    podman.ok(&["rm", "--latest"]);
    podman.node.assert_as_before_except(is_kept);
    message.trim_end().lines().last().unwrap().to_owned()
}

#[test]
fn a_bad_subnet_is_named() {
    let Some(podman) = Podman::or_skip() else { return };
    let mut list = networks::office();
    list["plugins"][0]["ipam"] = json!({"type": "host-local", "subnet": "10.300.0.0/24"});
    networks::write_office(&list);
    assert_eq!(
        fails_without_a_trace(&podman),
        "Error: plugin type=\"bridge\" failed (add): cni plugin bridge failed: cannot use network config: key ipam.subnet = \
         \"10.300.0.0/24\": \"10.300.0.0/24\" is no address with prefix, such as 10.1.0.5/24 or fd00::5/64: Reported by \
         plugin host-local."
    );
}

/// A plugin behind bridge that fails makes podman call DEL of the whole list.
#[test]
fn what_bridge_made_goes_when_a_plugin_behind_it_fails() {
    let Some(podman) = Podman::or_skip() else { return };
    let mut list = networks::office();
    networks::write_office(&list);
    podman.start(&ON_OFFICE).remove(); // the bridge itself stays from here on
    list["plugins"][1] = json!({"type": "tuning", "sysctl": {"net.nothing.of_this_name": "1"}});
    networks::write_office(&list);
    assert!(fails_without_a_trace(&podman).contains("plugin type=\"tuning\" failed (add)"));
}

/// podman itself looks for the executables of a list, and calls none when one is missing.
#[test]
fn a_list_with_a_missing_executable_is_no_network() {
    let Some(podman) = Podman::or_skip() else { return };
    networks::write_office(&networks::office());
    podman.node.remember();
    fs::remove_file(executable("bridge")).unwrap();
    let message = podman.fails(&Podman::start_command(&ON_OFFICE));
    for said in ["failed to find plugin", "bridge", BIN_DIR, "network not found"] {
        assert!(message.contains(said), "{said} in {message}");
    }
    podman.node.assert_as_before_except(is_kept);
}

/// podman's default network is in no file and not looked at beforehand: the chain stops at the missing executable, and so does its
/// undoing, before bridge is called. What was made till then stays until a DEL, such as `cnitool`'s.
#[test]
fn what_podman_cannot_undo_for_want_of_an_executable_cnitool_undoes() {
    let Some(podman) = Podman::or_skip() else { return };
    podman.start(&[]).remove();
    podman.node.remember();
    fs::remove_file(executable("portmap")).unwrap();
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
