//! The executables are replaced while a container runs.

use serde_json::json;

use crate::attached::assert_as_the_result;
use crate::container::Container;
use crate::engine::Podman;
use crate::executables::{Maker, cnitool, install};
use crate::left::{assert_nothing_left, is_kept};
use crate::networks;

/// What the reference attached, ours detaches, all that its plugins made included.
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

/// With the masquerade of the reference's own kind ours leaves it nothing that it does not know.
#[test]
fn after_a_downgrade_containers_with_masquerade_by_iptables_are_removed_without_a_trace() {
    let Some(podman) = Podman::or_skip() else { return };
    let mut list = networks::office();
    list["plugins"][0]["ipMasqBackend"] = json!("iptables");
    networks::write_office(&list);
    assert_nothing_left(&podman, |podman| {
        let container = start(podman, "office");
        install(Maker::Reference);
        container.exec(&["ping", "-c1", "-W5", "10.7.0.1"]);
        assert_eq!(container.remove(), "");
        install(Maker::Ours);
        vec![container.id.clone(), container.address("office")]
    });
}

/// Our own masquerade the reference does not know: its DEL fails for want of its own chain and succeeds when repeated, which podman
/// does or does not. Link and address are gone; the entry, and perhaps podman's cache, stay until a DEL of ours.
#[test]
fn after_a_downgrade_the_own_masquerade_stays_until_a_del_of_ours() {
    let Some(podman) = Podman::or_skip() else { return };
    networks::create(&podman, "made");
    start(&podman, "made").remove();
    podman.node.remember();
    let container = start(&podman, "made");
    install(Maker::Reference);
    container.remove();
    let is_expected = |line: &str| {
        let kinds = ["nft rule inet 1=\"cni_plugins_masquerade\" 2=\"masq_checks\"", "file /var/lib/cni/results/made-"];
        kinds.iter().any(|kind| line.contains(kind)) && line.contains(&container.id)
    };
    let is_masquerade = |line: &str| line.contains("cni_plugins_masquerade");
    let changes = podman.node.changes();
    assert!(changes.lines().any(|line| is_expected(line) && is_masquerade(line)), "{changes}");

    install(Maker::Ours);
    podman.node.assert_as_before_except(|line| is_kept(line) || is_expected(line) || is_masquerade(line));
    cnitool(&["del", "made", "/run/netns/gone", "--container-id", &container.id]);
    podman.node.assert_as_before_except(is_kept);
}

/// A container with a published port, so that portmap takes part.
fn start<'p>(podman: &'p Podman, network: &str) -> Container<'p> {
    let container = podman.start(&["--network", network, "-p", "8080:80"]);
    assert_as_the_result(&container, network);
    container
}
