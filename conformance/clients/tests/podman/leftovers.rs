//! Nothing may be left of a container.

use std::net::Ipv4Addr;

use crate::engine::Podman;

/// Runs `cycle`, which starts and removes containers and returns all that was theirs (IDs, addresses), twice. Nothing
/// may name what was theirs afterwards, and the second time nothing may be new at all.
#[track_caller]
pub(crate) fn assert_nothing_left(podman: &Podman, cycle: impl Fn(&Podman) -> Vec<String>) {
    let theirs = cycle(podman);
    assert!(!theirs.is_empty());
    let changes = podman.node.changes();
    let left: Vec<_> = changes.lines().filter(|line| !is_kept(line) && names_one_of(line, &theirs)).collect();
    assert!(left.is_empty(), "left of a container:\n{}", left.join("\n"));
    let veths: Vec<_> = changes.lines().filter(|line| line.contains(" veth")).collect();
    assert!(veths.is_empty(), "{veths:#?}");
    podman.node.remember();
    cycle(podman);
    podman.node.assert_as_before_except(is_kept);
}

/// State that belongs to no container: the last address that host-local gave in a network, its lock, empty folders of podman's,
/// and routes that the kernel makes for an address, some when it gets round to it. The address itself has a line of its
/// own.
pub(crate) fn is_kept(line: &str) -> bool {
    let is_local_route = line.contains(" route ") && line.contains(" table 255 ") && line.contains(" proto 2 ");
    is_local_route
        || ["/last_reserved_ip.", "/run/cni", "/var/lib/cni/locks", "+ folder /run/"]
            .iter()
            .any(|name| line.contains(name))
}

fn names_one_of(line: &str, theirs: &[String]) -> bool {
    let tokens: Vec<_> = line.split(|byte: char| !byte.is_ascii_alphanumeric() && !".:".contains(byte)).collect();
    let names = |own: &str| tokens.contains(&own) || (own.len() > 20 && line.contains(own));
    theirs.iter().any(|own| names(own) || in_hex(own).is_some_and(|hex| line.contains(&hex)))
}

/// An address as packet filter rules show it.
fn in_hex(own: &str) -> Option<String> {
    let address: Ipv4Addr = own.parse().ok()?;
    Some(format!("{:08x}", address.to_bits()))
}
