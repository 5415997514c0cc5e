//! Gateways and next hops that a container cannot reach.

use crate::keys::check;
use expect_test::{Expect, expect};

/// The findings in a list for each plugin object.
#[track_caller]
fn plugins(objects: &[&str], expected: &Expect) {
    let list = |object: &&str| format!(r#"{{"cniVersion": "1.0.0", "name": "a", "plugins": [{object}]}}"#);
    let lists: Vec<String> = objects.iter().map(list).collect();
    check("x.conflist", &lists.iter().map(String::as_str).collect::<Vec<_>>(), expected);
}

#[test]
fn a_gateway_outside_of_its_subnet() {
    plugins(
        &[
            r#"{"type": "macvlan", "ipam": {"type": "host-local", "subnet": "10.1.0.0/25", "gateway": «"10.2.0.1"»}}"#,
            r#"{"type": "bridge", "isGateway": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "fd00:1::/64", "gateway": «"fd00:2::1"»}]]}}"#,
            r#"{"type": "dummy", "ipam": {"type": "static", "addresses": [{"address": "10.1.0.5/24", "gateway": «"10.1.1.1"»}]}}"#,
        ],
        &expect![[r#"
            warning: gateway 10.2.0.1 is outside of subnet 10.1.0.0/25 [ADD makes a route to it over the interface, and it answers only if it is on that link. Write an address of 10.1.0.0/25, or a larger subnet.]
            warning: gateway fd00:2::1 is outside of subnet fd00:1::/64 [ADD makes a route to it over the interface, and it answers only if it is on that link. Write an address of fd00:1::/64, or a larger subnet.]
            warning: gateway 10.1.1.1 is outside of subnet 10.1.0.0/24 [ADD makes a route to it over the interface, and it answers only if it is on that link. Write an address of 10.1.0.0/24, or a larger subnet.]"#]],
    );
}

#[test]
fn a_gateway_of_the_other_family() {
    plugins(
        &[
            r#"{"type": "bridge", "isGateway": true, "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "gateway": «"fd00::1"»}}"#,
            r#"{"type": "macvlan", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "gateway": «"fd00::1"»}}"#,
        ],
        &expect![[r#"
            error: gateway fd00::1 and subnet 10.1.0.0/24 are of different families [Write an address of 10.1.0.0/24.]
            warning: gateway fd00::1 and subnet 10.1.0.0/24 are of different families [Write an address of 10.1.0.0/24.]"#]],
    );
}

/// The kernel refuses such a route, so ADD fails.
#[test]
fn a_next_hop_outside_of_all_subnets() {
    plugins(
        &[
            r#"{"type": "macvlan", "ipam": {"type": "host-local", "subnet": "10.1.0.0/25", "routes": [{"dst": "10.0.0.0/8"}, {"dst": "0.0.0.0/0", "gw": «"10.2.0.1"»}]}}"#,
            r#"{"type": "ptp", "ipam": {"type": "static", "addresses": [{"address": "10.1.0.5/24"}, {"address": "10.3.0.5/24"}], "routes": [{"dst": "0.0.0.0/0", "gw": «"10.2.0.1"»}]}}"#,
        ],
        &expect![[r#"
            error: next hop 10.2.0.1 is outside of 10.1.0.0/25: ADD fails [Write a gateway that is in 10.1.0.0/25, or leave out gw: the route then has the subnet's gateway.]
            error: next hop 10.2.0.1 is outside of 10.1.0.0/24, 10.3.0.0/24: ADD fails [Write a gateway that is in 10.1.0.0/24, 10.3.0.0/24, or leave out gw: the route then has the subnet's gateway.]"#]],
    );
}

#[test]
fn gateways_that_are_meant_to_be_outside() {
    for object in [
        // Hosters' single addresses, and the gateway of every link.
        r#"{"type": "macvlan", "ipam": {"type": "static", "addresses": [{"address": "10.1.0.5/32", "gateway": "10.9.0.1"}], "routes": [{"dst": "0.0.0.0/0"}]}}"#,
        r#"{"type": "macvlan", "ipam": {"type": "static", "addresses": [{"address": "10.1.0.5/32"}], "routes": [{"dst": "0.0.0.0/0", "gw": "10.9.0.1"}]}}"#,
        r#"{"type": "macvlan", "ipam": {"type": "host-local", "subnet": "fd00:1::/64", "gateway": "fe80::1", "routes": [{"dst": "::/0"}, {"dst": "fd00::/16", "gw": "fe80::2"}]}}"#,
        r#"{"type": "bridge", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "gateway": "169.254.1.1"}}"#,
        // Routes to them over the link: ptp's, and one of the file.
        r#"{"type": "ptp", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "gateway": "10.9.0.1"}}"#,
        r#"{"type": "dummy", "ipam": {"type": "static", "addresses": [{"address": "10.1.0.5/24"}], "routes": [{"dst": "10.9.0.0/24", "scope": 253}, {"dst": "0.0.0.0/0", "gw": "10.9.0.1"}]}}"#,
        // Another subnet of the container, and addresses that a runtime may give.
        r#"{"type": "dummy", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "10.9.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0", "gw": "10.9.0.1"}]}}"#,
        r#"{"type": "dummy", "capabilities": {"ips": true}, "ipam": {"type": "static", "addresses": [{"address": "10.1.0.5/24"}], "routes": [{"dst": "0.0.0.0/0", "gw": "10.9.0.1"}]}}"#,
    ] {
        plugins(&[object], &expect![""]);
    }
}

#[test]
fn addresses_that_no_host_can_have() {
    plugins(
        &[
            r#"{"type": "macvlan", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "rangeStart": «"10.1.0.0"», "rangeEnd": «"10.1.0.255"», "gateway": "10.1.0.1"}}"#,
            r#"{"type": "bridge", "isGateway": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24", "gateway": «"10.1.0.255"»}]]}}"#,
        ],
        &expect![[r#"
            warning: 10.1.0.0 is the subnet's own address, and no host's [Write an address between 10.1.0.0 and 10.1.0.255.]
            warning: 10.1.0.255 is the subnet's broadcast address, and no host's [Write an address between 10.1.0.0 and 10.1.0.255.]
            warning: 10.1.0.255 is the subnet's broadcast address, and no host's [Write an address between 10.1.0.0 and 10.1.0.255.]"#]],
    );
    for object in [
        r#"{"type": "macvlan", "ipam": {"type": "host-local", "subnet": "10.1.0.0/31", "rangeStart": "10.1.0.0", "rangeEnd": "10.1.0.1", "gateway": "10.1.0.0"}}"#,
        r#"{"type": "macvlan", "ipam": {"type": "host-local", "subnet": "fd00::/64", "rangeStart": "fd00::"}}"#,
    ] {
        plugins(&[object], &expect![""]);
    }
}
