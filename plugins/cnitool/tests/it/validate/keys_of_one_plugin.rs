//! Keys of one plugin.

use expect_test::{Expect, expect};

/// The findings in a list of each plugin.
#[track_caller]
fn plugins(objects: &[&str], expected: &Expect) {
    let list =
        |object: &&str| format!("{{\"cniVersion\": \"1.0.0\", \"name\": \"pods\",\n  \"plugins\": [\n{object}\n]}}");
    let texts: Vec<String> = objects.iter().map(list).collect();
    crate::validate::marked_places::check(
        "x.conflist",
        &texts.iter().map(String::as_str).collect::<Vec<_>>(),
        expected,
    );
}

#[test]
fn bridge() {
    plugins(
        &[
            r#"{"type": "bridge", "isDefaultGateway": «"yes"»}"#,
            r#"{"type": "bridge", "mtu": «-1»}"#,
            r#"{"type": "bridge", "vlan": «5000»}"#,
            r#"{"type": "bridge", "vlanTrunk": [{"id": 7}, {"id": «0»}]}"#,
            r#"{"type": "bridge", "vlanTrunk": [«{»"minID": 9, "maxID": 7}]}"#,
            r#"{"type": "bridge", "hairpinMode": true, "promiscMode": «true»}"#,
            r#"{"type": "bridge", "bridge": «"a/b"»}"#,
            r#"{"type": "bridge", «"brigde"»: "br0"}"#,
            r#"{"type": "bridge", "ipMasq": true, "ipMasqBackend": «"ipvs"»}"#,
            r#"{"type": "bridge", "args": {"cni": {"mac": «"zz"»}}}"#,
            r#"{"type": "bridge", "ipam": «[»]}"#,
            r#"{"type": "bridge", "dns": {"nameservers": «"10.0.0.1"»}}"#,
        ],
        &expect![[r#"
            error: key isDefaultGateway = "yes": expected true or false
            error: key mtu = -1: expected a whole number from 0 to 65535
            error: key vlan = 5000: VLANs are numbered 1 to 4094
            error: key vlanTrunk[1].id = 0: VLANs are numbered 1 to 4094
            error: key vlanTrunk[0]: minID 9 is above maxID 7
            error: hairpinMode and promiscMode exclude each other
            error: key bridge = "a/b": interface name contains / or :
            warning: key brigde is unknown and is ignored [Did you mean bridge?]
            error: key ipMasqBackend = "ipvs": it is neither iptables nor nftables
            error: cannot use args.cni.mac = "zz": "zz" is no Ethernet address like 0a:00:00:00:00:05
            error: key ipam = []: expected an object
            error: key dns.nameservers = "10.0.0.1": expected a list"#]],
    );
}

#[test]
fn host_local() {
    plugins(
        &[
            r#"{"type": "bridge", "ipam": {"type": "host-local", "subnet": «"10.1.0.0/33"»}}"#,
            r#"{"type": "bridge", "ipam": «{»"type": "host-local", «"subnt"»: "10.1.0.0/24"}}"#,
            r#"{"type": "bridge", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24", "rangeStart": «"10.2.0.5"»}]]}}"#,
            r#"{"type": "bridge", "ipam": {"type": "host-local", "ranges": [«[»{"subnet": "10.1.0.0/24"}, {"subnet": "10.1.0.0/16"}]]}}"#,
            r#"{"type": "bridge", "ipam": {"type": "host-local", "ranges": [«[»{"subnet": "10.1.0.0/32"}]]}}"#,
            r#"{"type": "bridge", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "gateway": «"ten"»}}"#,
            r#"{"type": "bridge", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "routes": [{"dst": «"0.0.0.0"»}]}}"#,
            r#"{"type": "bridge", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "routes": [{"dst": «"default"»}]}}"#,
            r#"{"type": "bridge", "ipam": {"type": "host-local", "subnet": «"{{.PodCIDR}}"»}}"#,
            r#"{"type": "bridge", "ipam": {"type": "host-local", "subnet": «"usePodCidr"»}}"#,
        ],
        &expect![[r#"
            error: key ipam.subnet = "10.1.0.0/33": "10.1.0.0/33" is no address with prefix, such as 10.1.0.5/24 or fd00::5/64
            error: no IP ranges specified [Set ipam.ranges, ipam.subnet or runtimeConfig.ipRanges.]
            warning: key ipam.subnt is unknown and is ignored [Did you mean subnet?]
            error: invalid range set 0: RangeStart 10.2.0.5 not in network 10.1.0.0/24 [It is key ipam.ranges[0][0].rangeStart.]
            error: invalid range set 0: subnets 10.1.0.1-10.1.0.254 and 10.1.0.1-10.1.255.254 overlap [It is key ipam.ranges[0].]
            error: invalid range set 0: Network 10.1.0.0/32 too small to allocate from: its only address is the gateway, unless key gateway names another [It is key ipam.ranges[0].]
            error: key ipam.gateway = "ten": "ten" is no IP address (invalid IP address syntax)
            error: key ipam.routes[0].dst = "0.0.0.0": "0.0.0.0" is no address with prefix, such as 10.1.0.5/24 or fd00::5/64
            error: key ipam.routes[0].dst = "default": "default" is no address with prefix, such as 10.1.0.5/24 or fd00::5/64 [Write 0.0.0.0/0 for all of IPv4, ::/0 for all of IPv6.]
            error: key ipam.subnet = "{{.PodCIDR}}": "{{.PodCIDR}}" is no address with prefix, such as 10.1.0.5/24 or fd00::5/64 [Nothing has filled in this placeholder: see the program that writes the file.]
            error: key ipam.subnet = "usePodCidr": "usePodCidr" is no address with prefix, such as 10.1.0.5/24 or fd00::5/64 [calico and flannel replace this word, and other plugins do not: write the subnet.]"#]],
    );
}

#[test]
fn address_plugins() {
    plugins(
        &[
            r#"{"type": "ptp", "ipam": {"type": "static", "addresses": [{"address": «"10.1.0.5"»}]}}"#,
            r#"{"type": "ptp", "ipam": {"type": «"bridge"»}}"#,
            r#"{"type": "ptp", "ipam": {"type": «"host-locl"»}}"#,
            r#"{"type": "ptp", "ipam": {"type": «"whereabouts"»}}"#,
            r#"«{»"type": "ptp"}"#,
            r#"{"type": "ptp", "capabilities": {"ipRanges": true}, "ipam": «{»"type": "host-local"}}"#,
            r#"{"type": «"calico"», "ipam": {"type": "host-local", "subnet": "usePodCidr"}}"#,
        ],
        &expect![[r#"
            error: key ipam.addresses[0].address = "10.1.0.5": expected an address with prefix, a/n
            error: bridge is no address plugin [Address plugins are dhcp, host-local, static, cluster.]
            warning: plugin host-locl is unknown [Did you mean host-local?]
            note: plugin whereabouts is not part of this suite: its keys are not checked
            error: plugin ptp needs key ipam [Name an address plugin by ipam.type, such as host-local.]
            note: no IP ranges specified, unless a runtime gives it [Set ipam.ranges, ipam.subnet or runtimeConfig.ipRanges.]
            note: plugin calico is not part of this suite: its keys are not checked"#]],
    );
}

/// The plugin is an executable of its own.
#[test]
fn addresses_of_a_cluster() {
    let ipam =
        |keys: &str| format!(r#"{{"type": "ptp", "ipam": {{"type": "cluster", "subnet": "10.1.0.0/24", {keys}}}}}"#);
    let texts = [
        r#""store": {"path": «"shared"»}"#,
        r#""store": {"path": "/shared", "timeoutSeconds": «0»}"#,
        r#""store": {"path": "/shared"}, «"claimSise"»: 8"#,
        r#""store": {"path": "/shared"}, "claimSize": «0»"#,
        r#""store": {"path": "/shared"}, "trustSeconds": «"an hour"»"#,
        r#""store": {"path": "/shared"}, "node": «"a/b"»"#,
        r#""store": «{»}"#,
        r#""store": {"endpoints": [«"http://etcd1:2379"»]}"#,
        r#""store": «{»"endpoints": ["https://etcd1:2379"]}"#,
        r#""store": {"path": «"/shared"», "endpoints": ["https://etcd1:2379"]}"#,
    ];
    let objects: Vec<String> = texts.iter().map(|keys| ipam(keys)).collect();
    plugins(
        &objects.iter().map(String::as_str).collect::<Vec<_>>(),
        &expect![[r#"
        error: key ipam.store.path = "shared": the path must begin with /
        error: key ipam.store.timeoutSeconds = 0: expected 1 to 4294967295
        warning: key ipam.claimSise is unknown and is ignored [Did you mean claimSize?]
        error: key ipam.claimSize = 0: expected 1 to 4294967295
        error: key ipam.trustSeconds = "an hour": expected a whole number from 0 to 4294967295
        error: key ipam.node = "a/b": a node's name has letters, digits, '_', '.' and '-'
        error: key ipam.store.path is missing [Name a folder that all nodes share, "store": {"path": "/shared/cni"}, or etcd: endpoints, caFile, certFile, keyFile.]
        error: key ipam.store.endpoints[0] = "http://etcd1:2379": an endpoint is https://HOST:PORT, without a path; TLS cannot be turned off
        error: key ipam.store.caFile is missing [Name a folder that all nodes share, "store": {"path": "/shared/cni"}, or etcd: endpoints, caFile, certFile, keyFile.]
        error: key ipam.store.path = "/shared": a store is a folder, or etcd: remove it, or ipam.store.endpoints"#]],
    );
}

#[test]
fn other_interface_plugins() {
    plugins(
        &[
            r#"{"type": "macvlan", "mode": «"birdge"», "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}}"#,
            r#"{"type": "macvlan", "master": «"a b"», "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}}"#,
            r#"{"type": "ipvlan", "mode": «"l4"», "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}}"#,
            r#"{"type": "vlan", "master": "eth0", "vlanId": «4096», "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}}"#,
            r#"«{»"type": "vlan", "vlanId": 5, "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}}"#,
            r#"{"type": "host-device", "hwaddr": «"02:00"»}"#,
            r#"{"type": "host-device", "pciBusID": «"../1"»}"#,
            r#"{"type": "tap", "multiQueue": «1», "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}}"#,
        ],
        &expect![[r#"
            error: key mode = "birdge": it is none of bridge, private, vepa, passthru
            error: key master = "a b": "a b" cannot be a link's name: 1 to 15 bytes without white space, /, : and %, and not . or ..
            error: key mode = "l4": it is none of l2, l3, l3s
            error: key vlanId = 4096: VLANs are numbered 0 to 4094
            error: key master is not set [Name the interface whose VLAN it is.]
            error: cannot use hwaddr = "02:00": "02:00" is no Ethernet address like 0a:00:00:00:00:05
            error: key pciBusID = "../1": it is no name of a device on a bus
            error: key multiQueue = 1: expected true or false"#]],
    );
}

/// The findings in a list of bridge and each plugin.
#[track_caller]
fn chained(objects: &[&str], expected: &Expect) {
    let objects: Vec<String> = objects.iter().map(|object| format!("{{\"type\": \"bridge\"}},\n{object}")).collect();
    plugins(&objects.iter().map(String::as_str).collect::<Vec<_>>(), expected);
}

#[test]
fn chained_plugins() {
    chained(
        &[
            r#"{"type": "portmap", "capabilities": {"portMappings": true}, "backend": «"ipvs"»}"#,
            r#"{"type": "portmap", "capabilities": {"portMappings": true}, "markMasqBit": «32»}"#,
            r#"{"type": "portmap", "capabilities": {"portMappings": true}, «"snta"»: true}"#,
            r#"{"type": "firewall", "backend": «5»}"#,
            r#"{"type": "firewall", "ingressPolicy": «"none"»}"#,
            r#"{"type": "bandwidth", "ingressRate": «8000»}"#,
            r#"{"type": "bandwidth", "egressRate": «"8M"», "egressBurst": 8000}"#,
            r#"{"type": "tuning", "sysctl": {"net.ipv4.ip_forward": «1»}}"#,
            r#"{"type": "tuning", "sysctl": {"kernel.panic": «"1"»}}"#,
            r#"{"type": "tuning", "mac": «"ff:ff:ff:ff:ff:ff"»}"#,
            r#"{"type": "sbr", "table": «0»}"#,
            r#"«{»"type": "vrf"}"#,
            r#"{"type": "vrf", "vrfname": «"a/b"»}"#,
        ],
        &expect![[r#"
            error: key backend = "ipvs": expected iptables or nftables
            error: key markMasqBit = 32: expected 0 to 31
            warning: key snta is unknown and is ignored [Did you mean snat?]
            error: key backend = 5: expected a string
            error: key ingressPolicy = "none": expected open, same-bridge or isolated
            error: key ingressRate = 8000: it needs key ingressBurst
            error: key egressRate = "8M": expected a whole number from 0 to 18446744073709551615
            error: key sysctl.net.ipv4.ip_forward = 1: expected a string
            error: key sysctl."kernel.panic": only sysctls below net are the container's own, such as net.core.somaxconn
            error: cannot use mac = "ff:ff:ff:ff:ff:ff": it is a multicast address
            error: key table = 0: tables are numbered from 1
            error: key vrfname is missing
            error: key vrfname = "a/b": "a/b" cannot be a link's name: 1 to 15 bytes without white space, /, : and %, and not . or .."#]],
    );
}

/// A runtime adds what is missing, and takes nothing away.
#[test]
fn no_capability_mends_keys_that_contradict_each_other() {
    plugins(
        &[
            r#"{"type": "bridge", "capabilities": {"mac": true}, "hairpinMode": true, "promiscMode": «true»}"#,
            r#"{"type": "bridge", "capabilities": {"ipRanges": true}, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}], «[»{"subnet": "10.1.0.0/16"}]]}}"#,
            r#"{"type": "bridge", "capabilities": {"ips": true}, "disableContainerInterface": «true», "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}}"#,
        ],
        &expect![[r#"
            error: hairpinMode and promiscMode exclude each other
            error: range set 0 overlaps with 1 [Key ipam.ranges[0] is 10.1.0.1-10.1.0.254, key ipam.ranges[1] is 10.1.0.1-10.1.255.254.]
            error: disableContainerInterface needs a network without ipam [An interface that stays down cannot use its addresses.]"#]],
    );
    let portmap = r#"{"cniVersion": "1.0.0", "name": "a", "plugins": [{"type": "bridge"},
        {"type": "portmap", "capabilities": {"portMappings": true}, "markMasqBit": 13, "externalSetMarkChain": «"KUBE-MARK-MASQ"»}]}"#;
    crate::validate::marked_places::check(
        "x.conflist",
        &[portmap],
        &expect!["error: keys markMasqBit and externalSetMarkChain exclude each other"],
    );
}

#[test]
fn the_bounds_of_a_range() {
    plugins(
        &[
            r#"{"type": "bridge", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24", "rangeStart": «"10.1.0.50"», "rangeEnd": "10.1.0.20"}]]}}"#,
            r#"{"type": "bridge", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", "rangeStart": «"10.1.0.50"», "rangeEnd": "10.1.0.20"}}"#,
            r#"{"type": "bridge", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}, {"subnet": "10.2.0.0/24", "rangeEnd": «"10.3.0.9"»}]]}}"#,
        ],
        &expect![[r#"
            error: invalid range set 0: RangeStart 10.1.0.50 not in network 10.1.0.0/24: rangeStart is above rangeEnd 10.1.0.20 [It is key ipam.ranges[0][0].rangeStart.]
            error: invalid range set 0: RangeStart 10.1.0.50 not in network 10.1.0.0/24: rangeStart is above rangeEnd 10.1.0.20 [It is key ipam.rangeStart.]
            error: invalid range set 0: RangeEnd 10.3.0.9 not in network 10.2.0.0/24 [It is key ipam.ranges[0][1].rangeEnd.]"#]],
    );
}
