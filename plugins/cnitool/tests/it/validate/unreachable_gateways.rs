//! Gateways and next hops that a container cannot reach.

use crate::validate::marked_places::check_plugins;
use expect_test::expect;

#[test]
fn a_gateway_outside_of_its_subnet() {
    check_plugins(&expect![[r#"
        {"type": "macvlan", "ipam": {"type": "host-local", "subnet": "10.1.0.0/25", "gateway": «"10.2.0.1"»}}
        => warning: gateway 10.2.0.1 is outside of subnet 10.1.0.0/25 [ADD makes a route to it over the interface, and it answers only if it is on that link. Write an address of 10.1.0.0/25, or a larger subnet.]
        {"type": "bridge", "isGateway": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "fd00:1::/64", "gateway": «"fd00:2::1"»}]]}}
        => warning: gateway fd00:2::1 is outside of subnet fd00:1::/64 [ADD makes a route to it over the interface, and it answers only if it is on that link. Write an address of fd00:1::/64, or a larger subnet.]
        {"type": "dummy", "ipam": {"type": "static", "addresses": [{"address": "10.1.0.5/24", "gateway": «"10.1.1.1"»}]}}
        => warning: gateway 10.1.1.1 is outside of subnet 10.1.0.0/24 [ADD makes a route to it over the interface, and it answers only if it is on that link. Write an address of 10.1.0.0/24, or a larger subnet.]
    "#]]);
}

#[test]
fn a_gateway_of_the_other_family() {
    check_plugins(&expect![[r#"
        {"type": "bridge", "isGateway": true, "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "gateway": «"fd00::1"»}}
        => error: gateway fd00::1 and subnet 10.1.0.0/24 are of different families [Write an address of 10.1.0.0/24.]
        {"type": "macvlan", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "gateway": «"fd00::1"»}}
        => warning: gateway fd00::1 and subnet 10.1.0.0/24 are of different families [Write an address of 10.1.0.0/24.]
    "#]]);
}

/// The kernel refuses such a route, so ADD fails.
#[test]
fn a_next_hop_outside_of_all_subnets() {
    check_plugins(&expect![[r#"
        {"type": "macvlan", "ipam": {"type": "host-local", "subnet": "10.1.0.0/25", "routes": [{"dst": "10.0.0.0/8"}, {"dst": "0.0.0.0/0", "gw": «"10.2.0.1"»}]}}
        => error: next hop 10.2.0.1 is outside of 10.1.0.0/25: ADD fails [Write a gateway that is in 10.1.0.0/25, or leave out gw: the route then has the subnet's gateway.]
        {"type": "ipvlan", "ipam": {"type": "static", "addresses": [{"address": "10.1.0.5/24"}, {"address": "10.3.0.5/24"}], "routes": [{"dst": "0.0.0.0/0", "gw": «"10.2.0.1"»}]}}
        => error: next hop 10.2.0.1 is outside of 10.1.0.0/24, 10.3.0.0/24: ADD fails [Write a gateway that is in 10.1.0.0/24, 10.3.0.0/24, or leave out gw: the route then has the subnet's gateway.]
    "#]]);
}

#[test]
fn gateways_that_are_meant_to_be_outside() {
    check_plugins(&expect![[r#"
        # Hosters' single addresses, and the gateway of every link.
        {"type": "macvlan", "ipam": {"type": "static", "addresses": [{"address": "10.1.0.5/32", "gateway": "10.9.0.1"}], "routes": [{"dst": "0.0.0.0/0"}]}}
        {"type": "macvlan", "ipam": {"type": "static", "addresses": [{"address": "10.1.0.5/32"}], "routes": [{"dst": "0.0.0.0/0", "gw": "10.9.0.1"}]}}
        {"type": "macvlan", "ipam": {"type": "host-local", "subnet": "fd00:1::/64", "gateway": "fe80::1", "routes": [{"dst": "::/0"}, {"dst": "fd00::/16", "gw": "fe80::2"}]}}
        {"type": "bridge", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "gateway": "169.254.1.1"}}
        # Routes to them over the link: ptp's, and one of the file.
        {"type": "ptp", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "gateway": "10.9.0.1"}}
        {"type": "dummy", "ipam": {"type": "static", "addresses": [{"address": "10.1.0.5/24"}], "routes": [{"dst": "10.9.0.0/24", "scope": 253}, {"dst": "0.0.0.0/0", "gw": "10.9.0.1"}]}}
        # Another subnet of the container, and addresses that a runtime may give.
        {"type": "dummy", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "10.9.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0", "gw": "10.9.0.1"}]}}
        {"type": "dummy", "capabilities": {"ips": true}, "ipam": {"type": "static", "addresses": [{"address": "10.1.0.5/24"}], "routes": [{"dst": "0.0.0.0/0", "gw": "10.9.0.1"}]}}
    "#]]);
}

#[test]
fn addresses_that_no_host_can_have() {
    check_plugins(&expect![[r#"
        {"type": "macvlan", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "rangeStart": «"10.1.0.0"», "rangeEnd": «"10.1.0.255"», "gateway": "10.1.0.1"}}
        => warning: 10.1.0.0 is the subnet's own address, and no host's [Write an address between 10.1.0.0 and 10.1.0.255.]
        => warning: 10.1.0.255 is the subnet's broadcast address, and no host's [Write an address between 10.1.0.0 and 10.1.0.255.]
        {"type": "bridge", "isGateway": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24", "gateway": «"10.1.0.255"»}]]}}
        => warning: 10.1.0.255 is the subnet's broadcast address, and no host's [Write an address between 10.1.0.0 and 10.1.0.255.]
        {"type": "macvlan", "ipam": {"type": "host-local", "subnet": "10.1.0.0/31", "rangeStart": "10.1.0.0", "rangeEnd": "10.1.0.1", "gateway": "10.1.0.0"}}
        {"type": "macvlan", "ipam": {"type": "host-local", "subnet": "fd00::/64", "rangeStart": "fd00::"}}
    "#]]);
}

/// No plugin makes such a route, whatever a runtime gives.
#[test]
fn a_route_and_its_next_hop_are_of_one_family() {
    check_plugins(&expect![[r#"
        {"type": "bridge", "isGateway": true, "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "routes": [{"dst": "10.0.0.0/8", "gw": «"fd00::1"»}]}}
        => error: route 10.0.0.0/8 and next hop fd00::1 are of different families: ADD fails [Write an IPv4 address, or leave out gw: the route then has the subnet's gateway.]
        {"type": "ptp", "capabilities": {"ipRanges": true}, "ipam": {"type": "host-local", "ranges": [[{"subnet": "fd00::/64"}]], "routes": [{"dst": "::/0", "gw": «"10.1.0.1"»}]}}
        => error: route ::/0 and next hop 10.1.0.1 are of different families: ADD fails [Write an IPv6 address, or leave out gw: the route then has the subnet's gateway.]
    "#]]);
}

#[test]
fn an_mtu_that_the_kernel_refuses_or_that_takes_ipv6_away() {
    check_plugins(&expect![[r#"
        {"type": "bridge", "mtu": «67000», "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}}
        => error: key mtu = 67000: expected a whole number from 0 to 65535
        {"type": "ptp", "mtu": «65536», "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}}
        => error: key mtu = 65536: expected a whole number from 0 to 65535
        {"type": "ptp", "mtu": «1279», "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00::/64"}]]}}
        => error: mtu 1279 is below 1280, which IPv6 needs, and fd00::/64 is of IPv6: ADD fails [Write 1280 or more, or take the IPv6 addresses from the network.]
        {"type": "macvlan", "mtu": «1000», "ipam": {"type": "static", "addresses": [{"address": "fd00::5/64"}]}}
        => error: mtu 1000 is below 1280, which IPv6 needs, and fd00::5/64 is of IPv6: ADD fails [Write 1280 or more, or take the IPv6 addresses from the network.]
        {"type": "bridge", "mtu": 65535, "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}}
        {"type": "ptp", "mtu": 1280, "ipam": {"type": "host-local", "subnet": "fd00::/64"}}
        {"type": "ptp", "mtu": 1000, "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}}
    "#]]);
}

#[test]
fn addresses_with_which_add_fails_or_no_packet_passes() {
    check_plugins(&expect![[r#"
        {"type": "bridge", "isGateway": true, "ipam": {"type": "host-local", "subnet": «"127.0.0.0/24"»}}
        => warning: 127.0.0.0/24 is of loopback addresses, and no packet with one passes a link [Write addresses for hosts, such as those of 10.1.0.0/24 or fd00:1::/64.]
        {"type": "bridge", "ipam": {"type": "host-local", "ranges": [[{"subnet": «"224.1.0.0/24"»}]]}}
        => warning: 224.1.0.0/24 is of multicast addresses, and no packet passes that is from one [Write addresses for hosts, such as those of 10.1.0.0/24 or fd00:1::/64.]
        {"type": "ptp", "ipam": {"type": "host-local", "subnet": «"ff05::/64"»}}
        => error: ff05::/64 is of multicast addresses: ADD fails [Write addresses for hosts, such as those of 10.1.0.0/24 or fd00:1::/64.]
        {"type": "macvlan", "ipam": {"type": "static", "addresses": [{"address": «"::1/128"»}]}}
        => error: ::1/128 is of loopback addresses: ADD fails [Write addresses for hosts, such as those of 10.1.0.0/24 or fd00:1::/64.]
        {"type": "bridge", "isGateway": true, "ipam": {"type": "host-local", "subnet": «"fe80::/64"»}}
        => error: subnet fe80::/64 is of link-local addresses, of which the bridge has one already: ADD fails [Write another subnet, such as fd00:1::/64.]
        {"type": "bridge", "isGateway": true, "forceAddress": true, "ipam": {"type": "host-local", "subnet": «"fe80::/64"»}}
        => warning: subnet fe80::/64 is of link-local addresses, which no router forwards [Write another subnet, such as fd00:1::/64.]
        {"type": "ptp", "ipam": {"type": "host-local", "subnet": «"fe80:1::/64"»}}
        => warning: subnet fe80:1::/64 is of link-local addresses, which no router forwards [Write another subnet, such as fd00:1::/64.]
        {"type": "dummy", "ipam": {"type": "static", "addresses": [{"address": "127.0.0.5/32"}]}}
        {"type": "macvlan", "ipam": {"type": "static", "addresses": [{"address": "fe80::5/64"}]}}
    "#]]);
}

/// The gateway of a subnet of two addresses is the first of them (RFC 3021).
#[test]
fn a_next_hop_is_the_gateway_of_a_subnet_of_two_addresses() {
    check_plugins(&expect![[r#"
        {"type": "macvlan", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/31"}]], "routes": [{"dst": "0.0.0.0/0", "gw": "10.1.0.0"}]}}
    "#]]);
}

/// The first range gives the bridge its gateway, and the second one needs another.
#[test]
fn a_set_of_ranges_with_two_gateways_for_one_bridge() {
    check_plugins(&expect![[r#"
        {"type": "bridge", "isGateway": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/29"}, {"subnet": «"10.10.0.0/24"»}]]}}
        => warning: bridge cni0 would be the gateway of 10.9.0.0/29 and of 10.10.0.0/24: ADD fails for addresses of 10.10.0.0/24, as the bridge has the other gateway [Write one larger subnet, or give the second one a network and a bridge of its own.]
        {"type": "bridge", "isGateway": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24", "rangeStart": "10.9.0.5", "rangeEnd": "10.9.0.9"}, {"subnet": "10.9.0.0/24", "rangeStart": "10.9.0.100", "rangeEnd": "10.9.0.199"}]]}}
        {"type": "bridge", "isGateway": true, "forceAddress": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/29"}, {"subnet": "10.10.0.0/24"}]]}}
        {"type": "bridge", "isGateway": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/29"}], [{"subnet": "fd00::/64"}]]}}
        {"type": "bridge", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/29"}, {"subnet": "10.10.0.0/24"}]]}}
    "#]]);
}
