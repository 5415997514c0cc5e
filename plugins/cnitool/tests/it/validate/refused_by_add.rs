//! Values that a parser accepts, and with which ADD fails on any node.

use crate::validate::marked_places::check_plugins;
use expect_test::expect;

#[test]
fn routes_that_the_kernel_refuses() {
    check_plugins(&expect![[r#"
        {"type": "bridge", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "routes": [{"dst": «"10.20.0.5/16"»}, {"dst": "fd00::5/64"}]}}
        => error: cannot use route to 10.20.0.5/16: its destination is an address, not a prefix [Write 10.20.0.0/16, or 10.20.0.5/32 for the one address, where the route comes from.]
        {"type": "bridge", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "routes": [{"dst": "0.0.0.0/0", "table": 254}, {"dst": "0.0.0.0/0", "priority": 5}, {"dst": «"0.0.0.0/0"», "table": 0, "mtu": 0}]}}
        => error: route 0.0.0.0/0 is in the list twice: ADD fails [Remove one of both.]
        {"type": "bridge", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "routes": [{"dst": "0.0.0.0/0", "gw": «"10.1.0.255"»}]}}
        => error: next hop 10.1.0.255 is the broadcast address of 10.1.0.0/24: ADD fails [Write the address of a router in 10.1.0.0/24, or leave out gw: the route then has the subnet's gateway.]
        {"type": "bridge", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "routes": [{"dst": "10.66.0.0/16", "scope": «253»}, {"dst": "10.67.0.0/16", "scope": 253, "gw": "0.0.0.0"}, {"dst": "10.68.0.0/16", "scope": 0}]}}
        => error: route 10.66.0.0/16 of scope 253 has next hop 10.1.0.1, which the kernel refuses: ADD fails [Remove scope: a route by a next hop has scope 0.]
    "#]]);
}

#[test]
fn addresses_that_no_container_gets() {
    check_plugins(&expect![[r#"
        {"type": "bridge", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "rangeStart": "10.1.0.1", "rangeEnd": «"10.1.0.1"»}}
        => error: the range has its gateway 10.1.0.1 alone, which no container gets: ADD fails [Write a larger range, or another gateway.]
        {"type": "bridge", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00::/64", "rangeStart": "fd00::5", "rangeEnd": «"fd00::5"», "gateway": "fd00::5"}]]}}
        => error: the range has its gateway fd00::5 alone, which no container gets: ADD fails [Write a larger range, or another gateway.]
        {"type": "bridge", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24", "rangeStart": "10.1.0.1", "rangeEnd": "10.1.0.1"}, {"subnet": "10.2.0.0/24"}]]}}
        {"type": "bridge", "args": {"cni": {"ips": ["10.1.0.7", «"10.2.0.7"», «"10.1.0.99"»]}}, "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "rangeEnd": "10.1.0.50"}}
        => error: address 10.2.0.7 is in no range of ipam: ADD fails [Write an address of a range, or remove it: the container then gets a free one.]
        => error: address 10.1.0.99 is in no range of ipam: ADD fails [Write an address of a range, or remove it: the container then gets a free one.]
        {"type": "bridge", "capabilities": {"ipRanges": true}, "args": {"cni": {"ips": ["10.2.0.7"]}}, "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}}
    "#]]);
}

#[test]
fn addresses_of_static() {
    check_plugins(&expect![[r#"
        {"type": "macvlan", "ipam": {"type": "static", "addresses": «[»]}}
        => warning: static has no addresses: ADD fails unless CNI_ARGS has IP [Write an address with prefix length, or add "capabilities": {"ips": true}.]
        {"type": "macvlan", "ipam": «{»"type": "static"}}
        => warning: static has no addresses: ADD fails unless CNI_ARGS has IP [Write an address with prefix length, or add "capabilities": {"ips": true}.]
        {"type": "macvlan", "capabilities": {"ips": true}, "ipam": {"type": "static"}}
        {"type": "macvlan", "args": {"cni": {"ips": ["10.1.0.5/24"]}}, "ipam": {"type": "static"}}
        {"type": "bridge", "ipam": {"type": "static", "addresses": [{"address": "10.1.0.5/24"}, {"address": «"10.1.0.5/24"»}, {"address": "10.1.0.5/16"}, {"address": "fd00::5/64"}, {"address": «"fd00::5/48"»}]}}
        => error: address 10.1.0.5/24 is in the list twice: ADD fails [Remove one of both.]
        => error: address fd00::5/48 is in the list twice: ADD fails [Remove one of both.]
        {"type": "ptp", "ipam": {"type": "static", "addresses": [{"address": "10.1.0.5/24", "gateway": "10.1.0.1"}, «{»"address": "10.1.0.6/24"}]}}
        => warning: address 10.1.0.6/24 has no gateway, which ptp needs: ADD fails unless CNI_ARGS has it [Add key gateway: the address of the node's end.]
    "#]]);
}

#[test]
fn chained_plugins_that_do_not_fit_the_interface() {
    check_plugins(&expect![[r#"
        {"type": "macvlan", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}}, {"type": «"bandwidth"», "ingressRate": 1000000, "ingressBurst": 200000}
        => error: an interface of macvlan has no end on the host, which bandwidth needs: ADD fails [Remove bandwidth, or use bridge or ptp.]
        {"type": "macvlan", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}}, {"type": «"bandwidth"», "capabilities": {"bandwidth": true}}
        => warning: an interface of macvlan has no end on the host, which bandwidth needs: ADD fails when a runtime gives a limit [Remove bandwidth, or use bridge or ptp.]
        {"type": "ptp", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}}, {"type": "firewall", "iptablesAdminChainName": «"FORWARD"»}
        => error: chain FORWARD is iptables' own, and no rule can jump to it: ADD fails with iptables [Write a name of your own, such as CNI-ADMIN.]
        {"type": "ptp", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}}, {"type": "firewall", "backend": "firewalld", "iptablesAdminChainName": "FORWARD"}
        {"type": "ptp", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}}, {"type": "tuning", "mtu": «60»}
        => error: mtu 60 is below 68, which IPv4 needs, and 10.1.0.0/24 is of IPv4: ADD fails [Write 68 or more, or take the IPv4 addresses from the network.]
        {"type": "ptp", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}}, {"type": "tuning", "mtu": 600}
    "#]]);
}
