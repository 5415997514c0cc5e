//! The executables are replaced while a container runs.

use serde_json::json;

use crate::add_result::assert_as_the_result;
use crate::container::Container;
use crate::engine::Podman;
use crate::executables::{Maker, install};
use crate::leftovers::assert_nothing_left;
use crate::networks;

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
