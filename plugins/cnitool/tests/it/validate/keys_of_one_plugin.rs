//! Keys of one plugin.

use crate::validate::marked_places::check_plugins;
use expect_test::expect;

#[test]
fn bridge() {
    check_plugins(&expect![[r#"
        {"type": "bridge", "isDefaultGateway": «"yes"»}
        => error: key isDefaultGateway = "yes": expected true or false
        {"type": "bridge", "mtu": «-1»}
        => error: key mtu = -1: expected a whole number from 0 to 65535
        {"type": "bridge", "vlan": «5000»}
        => error: key vlan = 5000: VLANs are numbered 1 to 4094
        {"type": "bridge", "vlanTrunk": [{"id": 7}, {"id": «0»}]}
        => error: key vlanTrunk[1].id = 0: VLANs are numbered 1 to 4094
        {"type": "bridge", "vlanTrunk": [«{»"minID": 9, "maxID": 7}]}
        => error: key vlanTrunk[0]: minID 9 is above maxID 7
        {"type": "bridge", "hairpinMode": true, "promiscMode": «true»}
        => error: hairpinMode and promiscMode exclude each other
        {"type": "bridge", "bridge": «"a/b"»}
        => error: key bridge = "a/b": interface name contains / or :
        {"type": "bridge", "bridge": «"all"»}
        => error: key bridge = "all": the kernel has settings of this name, and gives it to no link
        {"type": "bridge", "bridge": «"a\u0000b"»}
        => error: key bridge = "a\0b": interface name contains a zero byte
        {"type": "bridge", "bridge": «"a b"»}
        => error: key bridge = "a b": interface name contains white space
        {"type": "bridge", «"brigde"»: "br0"}
        => warning: key brigde is unknown and is ignored [Did you mean bridge?]
        {"type": "bridge", "ipMasq": true, "ipMasqBackend": «"ipvs"»}
        => error: key ipMasqBackend = "ipvs": it is neither iptables nor nftables
        {"type": "bridge", "ipMasq": true, "rules": «"all"»}
        => error: key rules = "all": expected shared
        {"type": "ptp", "ipMasq": true, "ipMasqBackend": «"iptables"», "rules": "shared"}
        => error: keys ipMasqBackend and rules exclude each other: shared rules are of no single container
        {"type": "bridge", "args": {"cni": {"mac": «"zz"»}}}
        => error: cannot use args.cni.mac = "zz": "zz" is no Ethernet address like 0a:00:00:00:00:05
        {"type": "bridge", "ipam": «[»]}
        => error: key ipam = []: expected an object
        {"type": "bridge", "dns": {"nameservers": «"10.0.0.1"»}}
        => error: key dns.nameservers = "10.0.0.1": expected a list
    "#]]);
}

/// A parser ends at the first value that it refuses.
#[test]
fn all_values_that_are_refused_are_named_with_what_was_meant() {
    check_plugins(&expect![[r#"
        {"type": "bridge", "mtu": «"1500"», "isGateway": «"true"», "vlan": «5000», «"brigde"»: "x", "ipam": {"type": "host-local", "subnet": «"10.1.0.0/33"», "routes": [{"dst": «"0.0.0.0"»}], «"rnages"»: []}}
        => error: key mtu = "1500": expected a whole number from 0 to 65535 [Write 1500 without quotes.]
        => error: key isGateway = "true": expected true or false [Write true without quotes.]
        => error: key vlan = 5000: VLANs are numbered 1 to 4094
        => warning: key brigde is unknown and is ignored [Did you mean bridge?]
        => error: key ipam.subnet = "10.1.0.0/33": "10.1.0.0/33" is no address with prefix, such as 10.1.0.5/24 or fd00::5/64
        => error: key ipam.routes[0].dst = "0.0.0.0": "0.0.0.0" is no address with prefix, such as 10.1.0.5/24 or fd00::5/64
        => warning: key ipam.rnages is unknown and is ignored [Did you mean ranges?]
        {"type": "macvlan", "mode": «"privat"», «"hairpinMode"»: true, "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "routes": [{"dst": "0.0.0.0/0", «"gateway"»: "10.1.0.1"}]}}
        => error: key mode = "privat": it is none of bridge, private, vepa, passthru [Did you mean private?]
        => warning: key hairpinMode is none of macvlan's, and is ignored [It is key hairpinMode of bridge: write it there, or remove it.]
        => warning: key ipam.routes[0].gateway is unknown and is ignored [Did you mean gw?]
        {"type": "bridge", "ipam": {"type": "host-local", "ranges": [«{»}]}}
        => error: key ipam.ranges[0] = {}: expected a list [Each set of ranges is a list of its own: write [[{}]].]
        {"type": "bridge", "ipam": {"type": "host-local", "ranges": «{»"subnet": "10.1.0.0/24"}}}
        => error: key ipam.ranges = {"subnet":"10.1.0.0/24"}: expected a list [Each set of ranges is a list of its own: write [[{"subnet":"10.1.0.0/24"}]].]
        {"type": "bridge", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", «"ipMasq"»: true, «"isDefaultGateway"»: true, "mode": "l3"}}
        => warning: key ipam.ipMasq is none of host-local's, and is ignored [It is a key of bridge: write it beside ipam, not in it.]
        => warning: key ipam.isDefaultGateway is none of host-local's, and is ignored [It is a key of bridge: write it beside ipam, not in it.]
    "#]]);
}

#[test]
fn host_local() {
    check_plugins(&expect![[r#"
        {"type": "bridge", "ipam": {"type": "host-local", "subnet": «"10.1.0.0/33"»}}
        => error: key ipam.subnet = "10.1.0.0/33": "10.1.0.0/33" is no address with prefix, such as 10.1.0.5/24 or fd00::5/64
        {"type": "bridge", "ipam": «{»"type": "host-local", «"subnt"»: "10.1.0.0/24"}}
        => error: no IP ranges specified [Set ipam.ranges, ipam.subnet or runtimeConfig.ipRanges.]
        => warning: key ipam.subnt is unknown and is ignored [Did you mean subnet?]
        {"type": "bridge", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24", "rangeStart": «"10.2.0.5"»}]]}}
        => error: invalid range set 0: RangeStart 10.2.0.5 not in network 10.1.0.0/24 [It is key ipam.ranges[0][0].rangeStart.]
        {"type": "bridge", "ipam": {"type": "host-local", "ranges": [«[»{"subnet": "10.1.0.0/24"}, {"subnet": "10.1.0.0/16"}]]}}
        => error: invalid range set 0: subnets 10.1.0.1-10.1.0.254 and 10.1.0.1-10.1.255.254 overlap [It is key ipam.ranges[0].]
        {"type": "bridge", "ipam": {"type": "host-local", "ranges": [«[»{"subnet": "10.1.0.0/32"}]]}}
        => error: invalid range set 0: Network 10.1.0.0/32 too small to allocate from: its only address is the gateway, unless key gateway names another [It is key ipam.ranges[0].]
        {"type": "bridge", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "gateway": «"ten"»}}
        => error: key ipam.gateway = "ten": "ten" is no IP address (invalid IP address syntax)
        {"type": "bridge", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "routes": [{"dst": «"0.0.0.0"»}]}}
        => error: key ipam.routes[0].dst = "0.0.0.0": "0.0.0.0" is no address with prefix, such as 10.1.0.5/24 or fd00::5/64
        {"type": "bridge", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "routes": [{"dst": «"default"»}]}}
        => error: key ipam.routes[0].dst = "default": "default" is no address with prefix, such as 10.1.0.5/24 or fd00::5/64 [Write 0.0.0.0/0 for all of IPv4, ::/0 for all of IPv6.]
        {"type": "bridge", "ipam": {"type": "host-local", "subnet": «"{{.PodCIDR}}"»}}
        => error: key ipam.subnet = "{{.PodCIDR}}": "{{.PodCIDR}}" is no address with prefix, such as 10.1.0.5/24 or fd00::5/64 [Nothing has filled in this placeholder: see the program that writes the file.]
        {"type": "bridge", "ipam": {"type": "host-local", "subnet": «"usePodCidr"»}}
        => error: key ipam.subnet = "usePodCidr": "usePodCidr" is no address with prefix, such as 10.1.0.5/24 or fd00::5/64 [calico and flannel replace this word, and other plugins do not: write the subnet.]
    "#]]);
}

#[test]
fn address_plugins() {
    check_plugins(&expect![[r#"
        {"type": "ptp", "ipam": {"type": "static", "addresses": [{"address": «"10.1.0.5"»}]}}
        => error: key ipam.addresses[0].address = "10.1.0.5": expected an address with prefix, a/n
        {"type": "ptp", "ipam": {"type": «"bridge"»}}
        => error: bridge is no address plugin [Address plugins are dhcp, host-local, static, cluster.]
        {"type": "ptp", "ipam": {"type": «"host-locl"»}}
        => warning: plugin host-locl is unknown [Did you mean host-local?]
        {"type": "ptp", "ipam": {"type": «"whereabouts"»}}
        => note: plugin whereabouts is not part of this suite: its keys are not checked
        «{»"type": "ptp"}
        => error: plugin ptp needs key ipam [Name an address plugin by ipam.type, such as host-local.]
        {"type": "ptp", "capabilities": {"ipRanges": true}, "ipam": «{»"type": "host-local"}}
        => note: no IP ranges specified, unless a runtime gives it [Set ipam.ranges, ipam.subnet or runtimeConfig.ipRanges.]
        {"type": «"calico"», "ipam": {"type": "host-local", "subnet": "usePodCidr"}}
        => note: plugin calico is not part of this suite: its keys are not checked
    "#]]);
}

/// The plugin is an executable of its own.
#[test]
fn addresses_of_a_cluster() {
    check_plugins(&expect![[r#"
        {"type": "ptp", "ipam": {"type": "cluster", "subnet": "10.1.0.0/24", "store": {"path": «"shared"»}}}
        => error: key ipam.store.path = "shared": the path must begin with /
        {"type": "ptp", "ipam": {"type": "cluster", "subnet": "10.1.0.0/24", "store": {"path": "/shared", "timeoutSeconds": «0»}}}
        => error: key ipam.store.timeoutSeconds = 0: expected 1 to 4294967295
        {"type": "ptp", "ipam": {"type": "cluster", "subnet": "10.1.0.0/24", "store": {"path": "/shared"}, «"claimSise"»: 8}}
        => warning: key ipam.claimSise is unknown and is ignored [Did you mean claimSize?]
        {"type": "ptp", "ipam": {"type": "cluster", "subnet": "10.1.0.0/24", "store": {"path": "/shared"}, "claimSize": «0»}}
        => error: key ipam.claimSize = 0: expected 1 to 65536
        {"type": "ptp", "ipam": {"type": "cluster", "subnet": "10.1.0.0/24", "store": {"path": "/shared"}, "trustSeconds": «"an hour"»}}
        => error: key ipam.trustSeconds = "an hour": expected a whole number from 0 to 4294967295
        {"type": "ptp", "ipam": {"type": "cluster", "subnet": "10.1.0.0/24", "store": {"path": "/shared"}, "node": «"a/b"»}}
        => error: key ipam.node = "a/b": a node's name has letters, digits, '_', '.' and '-'
        {"type": "ptp", "ipam": {"type": "cluster", "subnet": "10.1.0.0/24", "store": «{»}}}
        => error: key ipam.store.path is missing [Name a folder that all nodes share, "store": {"path": "/shared/cni"}, or etcd: endpoints, caFile, certFile, keyFile.]
        {"type": "ptp", "ipam": {"type": "cluster", "subnet": "10.1.0.0/24", "store": {"endpoints": [«"http://etcd1:2379"»]}}}
        => error: key ipam.store.endpoints[0] = "http://etcd1:2379": an endpoint is https://HOST:PORT, without a path; TLS cannot be turned off
        {"type": "ptp", "ipam": {"type": "cluster", "subnet": "10.1.0.0/24", "store": «{»"endpoints": ["https://etcd1:2379"]}}}
        => error: key ipam.store.caFile is missing [Name a folder that all nodes share, "store": {"path": "/shared/cni"}, or etcd: endpoints, caFile, certFile, keyFile.]
        {"type": "ptp", "ipam": {"type": "cluster", "subnet": "10.1.0.0/24", "store": {"path": «"/shared"», "endpoints": ["https://etcd1:2379"]}}}
        => error: key ipam.store.path = "/shared": a store is a folder, or etcd: remove it, or ipam.store.endpoints
    "#]]);
}

#[test]
fn other_interface_plugins() {
    check_plugins(&expect![[r#"
        {"type": "macvlan", "mode": «"birdge"», "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}}
        => error: key mode = "birdge": it is none of bridge, private, vepa, passthru [Did you mean bridge?]
        {"type": "macvlan", "master": «"a b"», "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}}
        => error: key master = "a b": "a b" cannot be a link's name: 1 to 127 bytes without white space, /, : and %, and not . or ..
        {"type": "ipvlan", "mode": «"l4"», "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}}
        => error: key mode = "l4": it is none of l2, l3, l3s
        {"type": "vlan", "master": "eth0", "vlanId": «4096», "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}}
        => error: key vlanId = 4096: VLANs are numbered 0 to 4094
        «{»"type": "vlan", "vlanId": 5, "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}}
        => error: key master is not set [Name the interface whose VLAN it is.]
        {"type": "host-device", "device": «"lo"»}
        => error: key device = "lo": it is the loopback link, which no container can have
        {"type": "host-device", "hwaddr": «"02:00"»}
        => error: cannot use hwaddr = "02:00": "02:00" is no Ethernet address like 0a:00:00:00:00:05
        {"type": "host-device", "pciBusID": «"../1"»}
        => error: key pciBusID = "../1": it is no name of a device on a bus
        {"type": "tap", "multiQueue": «1», "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}}
        => error: key multiQueue = 1: expected true or false
    "#]]);
}

#[test]
fn chained_plugins() {
    check_plugins(&expect![[r#"
        {"type": "bridge"}, {"type": "portmap", "capabilities": {"portMappings": true}, "backend": «"ipvs"»}
        => error: key backend = "ipvs": expected iptables or nftables
        {"type": "bridge"}, {"type": "portmap", "capabilities": {"portMappings": true}, "markMasqBit": «32»}
        => error: key markMasqBit = 32: expected 0 to 31
        {"type": "bridge"}, {"type": "portmap", "capabilities": {"portMappings": true}, «"snta"»: true}
        => warning: key snta is unknown and is ignored [Did you mean snat?]
        {"type": "bridge"}, {"type": "firewall", "backend": «5»}
        => error: key backend = 5: expected a string
        {"type": "bridge"}, {"type": "firewall", "ingressPolicy": «"none"»}
        => error: key ingressPolicy = "none": expected open, same-bridge or isolated
        {"type": "bridge"}, {"type": "bandwidth", "ingressRate": «8000»}
        => error: key ingressRate = 8000: it needs key ingressBurst
        {"type": "bridge"}, {"type": "bandwidth", "egressRate": «"8M"», "egressBurst": 8000}
        => error: key egressRate = "8M": expected a whole number from 0 to 18446744073709551615
        {"type": "bridge"}, {"type": "tuning", "sysctl": {"net.ipv4.ip_forward": «1»}}
        => error: key sysctl.net.ipv4.ip_forward = 1: expected a string
        {"type": "bridge"}, {"type": "tuning", "sysctl": {"kernel.panic": «"1"»}}
        => error: key sysctl."kernel.panic": only sysctls below net are the container's own, such as net.core.somaxconn
        {"type": "bridge"}, {"type": "tuning", "mac": «"ff:ff:ff:ff:ff:ff"»}
        => error: cannot use mac = "ff:ff:ff:ff:ff:ff": it is a multicast address
        {"type": "bridge"}, {"type": "sbr", "table": «0»}
        => error: key table = 0: tables are numbered from 1
        {"type": "bridge"}, «{»"type": "vrf"}
        => error: key vrfname is missing
        {"type": "bridge"}, {"type": "vrf", "vrfname": «"a/b"»}
        => error: key vrfname = "a/b": "a/b" cannot be a link's name: 1 to 15 bytes without white space, /, : and %, and not . or ..
    "#]]);
}

/// A runtime adds what is missing, and takes nothing away.
#[test]
fn no_capability_mends_keys_that_contradict_each_other() {
    check_plugins(&expect![[r#"
        {"type": "bridge", "capabilities": {"mac": true}, "hairpinMode": true, "promiscMode": «true»}
        => error: hairpinMode and promiscMode exclude each other
        {"type": "bridge", "capabilities": {"ipRanges": true}, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}], «[»{"subnet": "10.1.0.0/16"}]]}}
        => error: range set 0 overlaps with 1 [Key ipam.ranges[0] is 10.1.0.1-10.1.0.254, key ipam.ranges[1] is 10.1.0.1-10.1.255.254.]
        {"type": "bridge", "capabilities": {"ips": true}, "disableContainerInterface": «true», "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}}
        => error: disableContainerInterface needs a network without ipam [An interface that stays down cannot use its addresses.]
        {"type": "bridge"}, {"type": "portmap", "capabilities": {"portMappings": true}, "markMasqBit": 13, "externalSetMarkChain": «"KUBE-MARK-MASQ"»}
        => error: keys markMasqBit and externalSetMarkChain exclude each other
    "#]]);
}

#[test]
fn the_bounds_of_a_range() {
    check_plugins(&expect![[r#"
        {"type": "bridge", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24", "rangeStart": «"10.1.0.50"», "rangeEnd": "10.1.0.20"}]]}}
        => error: invalid range set 0: RangeStart 10.1.0.50 not in network 10.1.0.0/24: rangeStart is above rangeEnd 10.1.0.20 [It is key ipam.ranges[0][0].rangeStart.]
        {"type": "bridge", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "rangeStart": «"10.1.0.50"», "rangeEnd": "10.1.0.20"}}
        => error: invalid range set 0: RangeStart 10.1.0.50 not in network 10.1.0.0/24: rangeStart is above rangeEnd 10.1.0.20 [It is key ipam.rangeStart.]
        {"type": "bridge", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}, {"subnet": "10.2.0.0/24", "rangeEnd": «"10.3.0.9"»}]]}}
        => error: invalid range set 0: RangeEnd 10.3.0.9 not in network 10.2.0.0/24 [It is key ipam.ranges[0][1].rangeEnd.]
    "#]]);
}

/// Unknown keys are allowed, for other programs: only what resembles a key of the suite gets a word.
#[test]
fn keys_of_other_plugins_and_objects() {
    check_plugins(&expect![[r#"
        {"type": "bridge", «"ipMasquerade"»: true, «"isDefaultGw"»: true, «"hairpin"»: true, «"promisc"»: true, «"bridgeName"»: "x"}
        => warning: key ipMasquerade is unknown and is ignored [Did you mean ipMasq?]
        => warning: key isDefaultGw is unknown and is ignored [Did you mean isDefaultGateway?]
        => warning: key hairpin is unknown and is ignored [Did you mean hairpinMode?]
        => warning: key promisc is none of bridge's, and is ignored [It is key promisc of tuning: write it there, or remove it.]
        => warning: key bridgeName is unknown and is ignored [Did you mean bridge?]
        {"type": "bridge", «"snat"»: true, «"sysctl"»: {}, «"ingressRate"»: 5, «"backend"»: "nftables", «"vlanId"»: 5}
        => warning: key snat is none of bridge's, and is ignored [It is key snat of portmap: write it there, or remove it.]
        => warning: key sysctl is none of bridge's, and is ignored [It is key sysctl of tuning: write it there, or remove it.]
        => warning: key ingressRate is none of bridge's, and is ignored [It is key ingressRate of bandwidth: write it there, or remove it.]
        => warning: key backend is none of bridge's, and is ignored [It is key backend of firewall, portmap: write it there, or remove it.]
        => warning: key vlanId is unknown and is ignored [Did you mean vlan?]
        {"type": "bridge", «"subnet"»: "10.1.0.0/24", «"routes"»: [], «"rangeStart"»: "10.1.0.5", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}}
        => warning: key subnet is none of bridge's, and is ignored [Did you mean ipam.subnet?]
        => warning: key routes is none of bridge's, and is ignored [Did you mean ipam.routes?]
        => warning: key rangeStart is none of bridge's, and is ignored [Did you mean ipam.rangeStart?]
        {"type": "macvlan", «"ipMasq"»: true, «"isGateway"»: true, "ipam": {"type": "dhcp", «"subnet"»: "10.1.0.0/24", «"rangeStart"»: "10.1.0.5"}}
        => warning: key ipMasq is none of macvlan's, and is ignored [It is key ipMasq of bridge, ptp: write it there, or remove it.]
        => warning: key isGateway is none of macvlan's, and is ignored [It is key isGateway of bridge: write it there, or remove it.]
        => warning: key ipam.subnet is none of dhcp's, and is ignored [It is key ipam.subnet of host-local, cluster: write it there, or remove it.]
        => warning: key ipam.rangeStart is none of dhcp's, and is ignored [It is key ipam.rangeStart of host-local, cluster: write it there, or remove it.]
        {"type": "bridge", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", «"start"»: "10.1.0.5", «"gw"»: "10.1.0.1", "routes": [{"dst": "0.0.0.0/0", «"gateway"»: "10.1.0.1"}, {"dst": "10.2.0.0/16", «"via"»: "10.1.0.1"}]}}
        => warning: key ipam.start is unknown and is ignored [Did you mean rangeStart?]
        => warning: key ipam.gw is unknown and is ignored [Did you mean gateway?]
        => warning: key ipam.routes[0].gateway is unknown and is ignored [Did you mean gw?]
        => warning: key ipam.routes[1].via is unknown and is ignored [Did you mean gw?]
        {"type": "bridge", "ipam": {"type": "static", "addresses": [{"address": "10.1.0.5/24", «"gw"»: "10.1.0.1"}]}}
        => warning: key ipam.addresses[0].gw is unknown and is ignored [Did you mean gateway?]
        {"type": "bridge"}, {"type": "portmap", "capabilities": {"portMappings": true}, «"ingressPolicy"»: "open"}
        => warning: key ingressPolicy is none of portmap's, and is ignored [It is key ingressPolicy of firewall: write it there, or remove it.]
        # What runtimes and other programs write.
        {"type": "bridge", "cni.dev/valid-attachments": [], "io.example/a": 1, "_comment": "x", "__subnet": 1, "description": "x", "comment": "x", "addIf": "eth0", "nameOfOwner": "x", "delegates": []}
        {"type": "bridge", "args": {"cni": {"labels": [], "subnet": 1}, "subnet": 1}, "dns": {}, "runtimeConfig": {"subnet": 1}, "ipam": {"type": "host-local", "name": "x", "subnet": "10.1.0.0/24", "_gw": 1, "owner": "x"}}
    "#]]);
}
