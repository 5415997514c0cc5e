//! The executables are replaced while a container runs.

use crate::add_result::assert_as_the_result;
use crate::engine::{Container, Podman};
use crate::leftovers::assert_nothing_left;
use crate::{folders, networks};
use serde_json::json;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use testns::{Output, run};

/// Ours detaches a container that the reference attached, all that its plugins made included.
#[test]
fn after_an_upgrade_containers_of_the_reference_are_removed_without_a_trace() {
    let Some(podman) = Podman::or_skip() else { return };
    networks::create(&podman, "made");
    assert_nothing_left(&podman, |podman| {
        install(Maker::Reference);
        let container = start(podman, "made");
        install(Maker::Ours);
        container.exec(&["ping", "-c1", "-W5", "10.89.0.1"]);
        assert_eq!(container.remove(), "");
        vec![container.id.clone(), container.address("made")]
    });
}

/// The reference detaches a container that ours attached: the masquerade is the reference's, whatever `ipMasqBackend` says.
#[test]
fn after_a_downgrade_our_containers_are_removed_without_a_trace() {
    let Some(podman) = Podman::or_skip() else { return };
    networks::create(&podman, "made");
    let mut list = networks::office();
    list["plugins"][0]["ipMasqBackend"] = json!("iptables");
    networks::write_office(&list);
    for (network, gateway) in [("made", "10.89.0.1"), ("office", "10.7.0.1")] {
        assert_nothing_left(&podman, |podman| {
            let container = start(podman, network);
            install(Maker::Reference);
            container.exec(&["ping", "-c1", "-W5", gateway]);
            assert_eq!(container.remove(), "");
            install(Maker::Ours);
            vec![container.id.clone(), container.address(network)]
        });
    }
}

/// A container with a published port, so that portmap takes part.
fn start<'p>(podman: &'p Podman, network: &str) -> Container<'p> {
    let container = podman.start(&["--network", network, "-p", "8080:80"]);
    assert_as_the_result(&container, network);
    container
}

/// The folder that `containers.conf` names.
pub(crate) const BIN_DIR: &str = "/run/testns/opt-cni-bin";

/// The maker of the plugins that are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Maker {
    Ours,
    Reference,
}

pub(crate) fn install_reference() {
    for entry in fs::read_dir(testns::find_reference().unwrap()).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), Path::new(BIN_DIR).join(entry.file_name())).unwrap();
    }
}

/// Puts one maker's plugins in the place of the other's, as an operator does: `cnitool install`, and back again from
/// the folder in which that keeps what it replaced.
pub(crate) fn install(maker: Maker) {
    match maker {
        Maker::Ours => {
            let plugins = testns::plugins().to_str().unwrap();
            cnitool(&["install", "--replace-foreign", "--bin-dir", BIN_DIR, "--from", plugins]);
        }
        Maker::Reference => {
            for entry in fs::read_dir(Path::new(BIN_DIR).join(".replaced")).unwrap() {
                let entry = entry.unwrap();
                fs::rename(entry.path(), Path::new(BIN_DIR).join(entry.file_name())).unwrap();
            }
        }
    }
    assert_all_of(maker);
}

/// Under each name that the reference has, podman finds the maker's executable.
fn assert_all_of(maker: Maker) {
    let ours = fs::read(testns::plugins()).unwrap();
    for entry in fs::read_dir(testns::find_reference().unwrap()).unwrap() {
        let name = entry.unwrap().file_name();
        let is_ours = fs::read(Path::new(BIN_DIR).join(&name)).unwrap() == ours;
        assert_eq!(is_ours, maker == Maker::Ours, "{}", name.display());
    }
}

pub(crate) fn cnitool(arguments: &[&str]) -> Output {
    let mut command = Command::new(testns::cnitool());
    command.args(arguments).env_clear().env("PATH", folders::PATH).env("CNI_PATH", BIN_DIR);
    let output = run(command, b"", Duration::from_secs(60));
    assert!(output.status.success(), "cnitool {arguments:?}: {}{}", output.stdout, output.stderr);
    output
}
