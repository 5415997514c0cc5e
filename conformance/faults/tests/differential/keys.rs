//! The parts of which cases are made: plugins, their keys, and earlier state of the node.

use serde_json::{Value, json};

pub(crate) struct Plugin {
    pub(crate) name: &'static str,
    pub(crate) is_ipam: bool,
    pub(crate) ipam: fn() -> Key,
    pub(crate) keys: Vec<Key>,
}

#[derive(Clone)]
pub(crate) struct Key {
    pub(crate) path: &'static str,
    pub(crate) right: Vec<Value>,
    /// Values that are refused, or that only one of the two plugins may accept.
    pub(crate) wrong: Vec<Value>,
}

fn key(path: &'static str, right: Value, wrong: Value) -> Key {
    let list = |values: Value| values.as_array().unwrap().clone();
    Key { path, right: list(right), wrong: list(wrong) }
}

fn flag(path: &'static str) -> Key {
    key(path, json!([true, true, true, false, null]), json!(["true", 1]))
}

pub(crate) fn plugins() -> Vec<Plugin> {
    let bridge = vec![
        key(
            "bridge",
            json!(["br0", "br0", "br0", "br1", "", null]),
            json!(["a-name-that-is-too-long", "lo", 5, "a/b"]),
        ),
        flag("isGateway"),
        flag("isDefaultGateway"),
        flag("forceAddress"),
        flag("hairpinMode"),
        flag("promiscMode"),
        flag("enabledad"),
        flag("ipMasq"),
        flag("macspoofchk"),
        flag("portIsolation"),
        flag("disableContainerInterface"),
        key("ipMasqBackend", json!(["iptables", "nftables", ""]), json!(["x", 5])),
        key("mtu", json!([1400, 1280, 0, 9000]), json!([-1, "1400", 67, 1_000_000_000, 1.5])),
        key("vlan", json!([0, 100, 4094]), json!([4095, -1, "100"])),
        key("args.cni.mac", json!(["0a:00:00:00:00:07", "0A:00:00:00:00:08"]), json!(["x", 7])),
        key("runtimeConfig.mac", json!(["0a:00:00:00:00:09", ""]), json!(["01:00:00:00:00:01", "x"])),
    ];
    let ptp = vec![
        flag("ipMasq"),
        key("ipMasqBackend", json!(["iptables", "nftables", ""]), json!(["x", 5])),
        key("mtu", json!([1400, 1280, 0, 9000]), json!([-1, "1400", 67, 1_000_000_000, 1.5])),
        key("args.cni.mac", json!(["0a:00:00:00:00:07"]), json!(["x", 7])),
        key("runtimeConfig.mac", json!(["0a:00:00:00:00:09"]), json!(["01:00:00:00:00:01", "x"])),
    ];
    vec![
        Plugin { name: "bridge", is_ipam: false, ipam, keys: bridge },
        Plugin { name: "ptp", is_ipam: false, ipam, keys: ptp },
        Plugin { name: "macvlan", is_ipam: false, ipam, keys: macvlan() },
        Plugin { name: "ipvlan", is_ipam: false, ipam, keys: ipvlan() },
        Plugin { name: "vlan", is_ipam: false, ipam, keys: vlan() },
        Plugin { name: "host-device", is_ipam: false, ipam, keys: host_device() },
        Plugin { name: "host-local", is_ipam: true, ipam, keys: Vec::new() },
        Plugin { name: "static", is_ipam: true, ipam: fixed, keys: vec![dns_of_ipam()] },
        Plugin { name: CHAIN, is_ipam: false, ipam: both_families, keys: chain() },
    ]
}

/// The chain, which is no plugin: bridge, and behind it those of [`CHAINED`] for which the config has an object. All else in the config is
/// bridge's.
pub(crate) const CHAIN: &str = "chain";

/// In the order of ADD.
const CHAINED: [&str; 4] = ["portmap", "firewall", "tuning", "bandwidth"];

fn chain() -> Vec<Key> {
    let mappings = json!([
        [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}],
        [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}, {"hostPort": 5353, "containerPort": 53, "protocol": "udp"}],
        [{"hostPort": 9000, "containerPort": 9000, "protocol": "sctp"}, {"hostPort": 9001, "containerPort": 1, "protocol": "tcp"}],
        []
    ]);
    let sysctls =
        json!([{"net.core.somaxconn": "512"}, {"net.ipv4.conf.eth0.arp_filter": "1", "net.ipv4.ip_forward": "1"}, {}]);
    let limits = json!([
        {"ingressRate": 8_000_000, "ingressBurst": 800_000},
        {"egressRate": 8_000_000, "egressBurst": 800_000},
        {"ingressRate": 8_000_000, "ingressBurst": 800_000, "egressRate": 4_000_000, "egressBurst": 400_000},
        {}
    ]);
    let wrong_mappings = json!([5, [{"hostPort": 70000, "containerPort": 80}]]);
    vec![
        flag("hairpinMode"),
        flag("ipMasq"),
        key("portmap.runtimeConfig.portMappings", mappings.clone(), wrong_mappings),
        key("portmap.runtimeConfig.portMappings", mappings, json!([])),
        key("portmap.snat", json!([true, false]), json!(["yes"])),
        key("portmap.markMasqBit", json!([13, 5]), json!([32, -1])),
        key("firewall.backend", json!(["iptables"]), json!([5])),
        key("firewall.iptablesAdminChainName", json!(["OWN-ADMIN"]), json!([5])),
        key("firewall.ingressPolicy", json!(["open", "same-bridge", "isolated"]), json!(["closed", 5])),
        key("tuning.sysctl", sysctls, json!([{"net.core.absent": "1"}, {"kernel.hostname": "x"}])),
        key("tuning.mtu", json!([1400, 1280]), json!(["x"])),
        key("tuning.mac", json!(["0a:00:00:00:00:0{pod}"]), json!(["x"])),
        flag("tuning.promisc"),
        flag("tuning.allmulti"),
        key("bandwidth", limits, json!([{"ingressRate": 8_000_000}, {"egressRate": 5, "egressBurst": "x"}])),
    ]
}

/// The parts of each chain: addresses on the bridge, and a version that the reference's firewall knows.
pub(crate) fn make_chain(config: &mut Value, version: &str) {
    config["cniVersion"] = version.into();
    config["bridge"] = "br0".into();
    config["isGateway"] = true.into();
}

pub(crate) fn steps_of_chain(config: &Value) -> Vec<(&'static str, Value)> {
    let mut of_bridge = config.clone();
    of_bridge["type"] = "bridge".into();
    let mut steps = Vec::new();
    for plugin in CHAINED {
        let own = of_bridge.as_object_mut().and_then(|config| config.remove(plugin));
        if let Some(mut own) = own.filter(Value::is_object) {
            own["type"] = plugin.into();
            ["name", "cniVersion"].into_iter().for_each(|key| own[key] = config[key].clone());
            steps.push((plugin, own));
        }
    }
    steps.insert(0, ("bridge", of_bridge));
    steps
}

/// The reference makes rules of both families for any container, ours those of the result's families.
fn both_families() -> Key {
    let ranges = json!([
        {"type": "host-local", "ranges": [[{"subnet": "10.7.0.0/24"}], [{"subnet": "fd07::/64"}]]},
        {"type": "host-local", "ranges": [[{"subnet": "fd07::/64", "gateway": "fd07::a"}], [{"subnet": "10.7.0.0/29"}]]}
    ]);
    key("ipam", ranges, json!([{}, {"type": "absent"}]))
}

/// Each node has `dev1` and `dev2`; `{pod}` is the pod's number.
fn host_device() -> Vec<Key> {
    vec![
        key(
            "device",
            json!(["dev{pod}", "dev{pod}", "dev{pod}", "dev{pod}", "dev1", "", null]),
            json!(["absent", 5, "a/b"]),
        ),
        key("hwaddr", json!(["0a:00:00:00:00:d{pod}", "0A:00:00:00:00:D{pod}", ""]), json!(["x", 5])),
        key("kernelpath", json!([""]), json!(["/tmp", "net/dev1", 5])),
        key("pciBusID", json!([""]), json!(["0000:99:00.1", 5])),
    ]
}

/// The addresses of static. Without a prefix one is refused.
fn fixed() -> Key {
    let addresses = json!([
        {"type": "static", "addresses": [{"address": "10.7.0.5/24"}]},
        {"type": "static", "addresses": [{"address": "10.7.0.5/24", "gateway": "10.7.0.1"}, {"address": "fd07::5/64"}]},
        {"type": "static", "addresses": [{"address": "203.0.113.9/32", "gateway": "192.0.2.1"}]},
        {"type": "static", "addresses": [{"address": "10.7.0.5/24"}, {"address": "10.7.0.5/24"}]},
        {"type": "static", "addresses": [{"address": "fd07::5/64", "gateway": "fd07::1"}, {"address": "fd08::5/64"}]},
        {"type": "static", "addresses": []},
        {"type": "static"}
    ]);
    let wrong = json!([
        {}, null, "static",
        {"type": "static", "addresses": [{"address": "10.7.0.5"}]},
        {"type": "static", "addresses": [{"address": "10.7.0.5/33"}]},
        {"type": "static", "addresses": [{"address": "x"}]},
        {"type": "static", "addresses": [{"address": "10.7.0.5/24", "gateway": "x"}]},
        {"type": "static", "addresses": [{"gateway": "10.7.0.1"}]},
        {"type": "static", "addresses": {"address": "10.7.0.5/24"}}
    ]);
    key("ipam", addresses, wrong)
}

fn dns_of_ipam() -> Key {
    let dns = json!([{}, {"nameservers": ["10.7.0.1"]}, {"domain": "a.b", "search": ["a.b"], "options": ["ndots:5"]}]);
    key("ipam.dns", dns, json!([5, {"nameservers": "10.7.0.1"}]))
}

/// Each node has the masters.
fn macvlan() -> Vec<Key> {
    vec![
        key("master", json!(["up0", "up0", "up0", "up1", "", null]), json!(["absent", 5, "a/b"])),
        key("mode", json!(["bridge", "private", "vepa", "passthru", ""]), json!(["source", 1])),
        key("mtu", json!([1400, 1280, 0, 1500]), json!([-1, "1400", 9000, 1.5])),
        key("mac", json!(["0a:00:00:00:00:07", "0A:00:00:00:00:08", ""]), json!(["x", 7])),
        key("runtimeConfig.mac", json!(["0a:00:00:00:00:09", ""]), json!(["01:00:00:00:00:01", "x"])),
    ]
}

/// As [`macvlan`], for the reference's keys of ipvlan.
fn ipvlan() -> Vec<Key> {
    vec![
        key("master", json!(["up0", "up0", "up0", "up1", "", null]), json!(["absent", 5, "a/b"])),
        key("mode", json!(["l2", "l3", "l3s", ""]), json!(["l4", 1])),
        key("mtu", json!([1400, 1280, 0, 1500]), json!([-1, "1400", 67, 1.5])),
    ]
}

/// Two pods on a VLAN of one master are rare: the second one is refused.
fn vlan() -> Vec<Key> {
    vec![
        key("master", json!(["up0", "up0", "up1"]), json!(["absent", 5, "a/b", "", null])),
        key("vlanId", json!(["{pod as a number}", "{pod as a number}", 0, 100, 4094]), json!([4095, -1, "100"])),
        key("mtu", json!([1400, 1280, 0, 1500]), json!([-1, "1400", 9000, 1.5])),
    ]
}

pub(crate) fn version() -> Key {
    let right = json!(["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.0.0", "1.1.0", "1.1.0", ""]);
    key("cniVersion", right, json!(["0.5.0", "x", 1, "1", null]))
}

/// The source of addresses. For some plugins the wrong value is to have none.
pub(crate) fn ipam() -> Key {
    let ranges = json!([
        {"type": "host-local", "subnet": "10.7.0.0/24"},
        {"type": "host-local", "subnet": "fd07::/64"},
        {"type": "host-local", "ranges": [[{"subnet": "10.7.0.0/24"}], [{"subnet": "fd07::/64"}]]},
        {"type": "host-local", "ranges": [[{"subnet": "fd07::/64", "gateway": "fd07::a"}], [{"subnet": "10.7.0.0/29"}]]},
        {"type": "host-local", "subnet": "10.7.0.0/24", "rangeStart": "10.7.0.100", "rangeEnd": "10.7.0.101"},
        {"type": "host-local", "subnet": "10.7.0.0/24", "gateway": "10.7.0.254", "ranges": [[{"subnet": "fd07::/120"}]]},
        {"type": "host-local", "ranges": [[{"subnet": "10.7.0.0/30"}, {"subnet": "10.8.0.0/29", "gateway": "10.8.0.3"}]]},
        {"type": "host-local", "ranges": [[{"subnet": "10.7.0.0/24"}], [{"subnet": "10.8.0.0/24"}]]}
    ]);
    let wrong = json!([
        {}, null, "host-local", {"type": "absent"}, {"type": "../host-local"}, {"type": 5},
        {"type": "host-local"},
        {"type": "host-local", "subnet": "10.7.0.1/24"},
        {"type": "host-local", "subnet": "10.7.0.0/32"},
        {"type": "host-local", "subnet": "10.7.0.0"},
        {"type": "host-local", "subnet": "010.7.0.0/24"},
        {"type": "host-local", "subnet": "10.7.0.0/24", "rangeStart": "10.7.1.1"},
        {"type": "host-local", "subnet": "10.7.0.0/24", "rangeStart": "10.7.0.9", "rangeEnd": "10.7.0.8"},
        {"type": "host-local", "ranges": [[{"subnet": "10.7.0.0/24"}, {"subnet": "10.7.0.128/25"}]]},
        {"type": "host-local", "ranges": [[{"subnet": "10.7.0.0/24"}, {"subnet": "fd07::/64"}]]},
        {"type": "host-local", "ranges": [{"subnet": "10.7.0.0/24"}]},
        {"type": "host-local", "ranges": [[]]}
    ]);
    key("ipam", ranges, wrong)
}

/// Keys that all plugins have, or that a runtime sets.
pub(crate) fn common() -> Vec<Key> {
    let routes = json!([
        [{"dst": "0.0.0.0/0"}],
        [{"dst": "::/0"}, {"dst": "192.0.2.0/24"}],
        [{"dst": "192.0.2.0/24", "gw": "10.7.0.1"}],
        [{"dst": "0.0.0.0/0", "gw": "10.7.0.9"}, {"dst": "192.0.2.7/24"}],
        []
    ]);
    let wrong_routes = json!([{}, [{}], [{"dst": "x"}], [{"dst": "0.0.0.0/0", "gw": "fd07::1"}], [{"dst": "192.0.2.0/24", "gw": "10.99.0.1"}]]);
    let dns = json!([{}, {"nameservers": ["10.7.0.1"]}, {"domain": "a.b", "search": ["a.b"], "options": ["ndots:5"]}]);
    let ips = json!([["10.7.0.5"], ["10.7.0.6/24"], ["fd07::7"], []]);
    let wrong_ips = json!([["10.7.0.1"], ["10.99.0.1"], ["x"], "10.7.0.5", ["10.7.0.5", "10.7.0.6"]]);
    let earlier = json!([
        {"cniVersion": "1.0.0", "interfaces": [{"name": "lo", "mac": "00:00:00:00:00:00", "sandbox": "/run/netns/pod1"}],
            "ips": [{"interface": 0, "address": "127.0.0.1/8"}], "dns": {}},
        {"cniVersion": "0.4.0", "interfaces": [{"name": "net1", "sandbox": "/run/netns/pod1"}],
            "ips": [{"version": "4", "interface": 0, "address": "192.0.2.77/24"}]},
        {"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "mac": "0a:00:00:00:00:66", "sandbox": "/run/netns/pod2"}],
            "ips": [{"interface": 0, "address": "10.7.0.66/24", "gateway": "10.7.0.1"}]},
        {}, null
    ]);
    let wrong_earlier = json!([5, {"cniVersion": "7"}, {"cniVersion": "1.0.0", "ips": [{"address": "x"}]}]);
    vec![
        key("prevResult", earlier, wrong_earlier),
        key("ipam.routes", routes, wrong_routes),
        key("ipam.resolvConf", json!(["/run/resolv.conf"]), json!(["/run/absent", 5])),
        key("ipam.dataDir", json!(["", "/run/data"]), json!([5])),
        key("dns", dns, json!([5, {"nameservers": "10.7.0.1"}])),
        key("args.cni.ips", ips.clone(), wrong_ips.clone()),
        key("runtimeConfig.ips", ips, wrong_ips),
        key(
            "runtimeConfig.ipRanges",
            json!([[[{"subnet": "10.9.0.0/24"}]], []]),
            json!([[[{"subnet": "10.7.0.0/16"}]], 5]),
        ),
        key("capabilities", json!([{"ips": true}]), json!([])),
        key("unknownKey", json!([1, "x", [{}], null]), json!([])),
    ]
}

/// `CNI_ARGS`.
pub(crate) const ARGS: &[&str] = &[
    "IP=10.7.0.5",
    "IP=10.7.0.5/24",
    "IP=fd07::5",
    "IP=",
    "IgnoreUnknown=1;K8S_POD_NAME=a",
    "IgnoreUnknown=1;IP=10.7.0.8;X=y",
    "MAC=0a:00:00:00:00:0b",
    "X=y",
    "IP=10.7.0.5;",
    "IP=10.99.0.1",
    "IP=x",
    "IP=10.7.0.5/24,fd07::5/64;GATEWAY=10.7.0.1",
    "IP=10.7.0.8/24;GATEWAY=10.7.0.1,fd07::1",
    "GATEWAY=10.7.0.1",
    "=",
];

/// Shell commands that may have run on the node before. At most one of each row is used.
pub(crate) const BEFORE: &[&[&str]] = &[
    &[
        "ip link add br0 type bridge",
        "ip link add br0 address 0a:00:00:00:00:77 mtu 1350 type bridge",
        "ip link add br0 up type bridge && ip addr add 10.7.0.1/24 dev br0",
        "ip link add br0 up type bridge && ip addr add 10.99.0.1/16 dev br0",
        "ip link add br0 up type bridge && ip addr add fd07::99/64 dev br0 nodad",
        "ip link add br0 type ifb",
    ],
    &[
        "ip -n pod1 link add eth0 type ifb",
        "ip -n pod1 link add other up type bridge && ip -n pod1 route add default dev other",
        "ip netns exec pod2 sysctl -qw net.ipv6.conf.default.disable_ipv6=1",
    ],
    &["sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1"],
    &[
        "iptables -P FORWARD DROP && iptables -t nat -A POSTROUTING -s 192.0.2.0/24 -j MASQUERADE",
        "nft add table ip mine && nft add chain ip mine c '{ type nat hook postrouting priority 100; }'",
    ],
    &["ip link add uplink up type bridge && ip addr add 192.0.2.9/24 dev uplink"],
    &["echo nameserver 10.7.0.1 >/run/resolv.conf && echo search x.y >>/run/resolv.conf"],
    &[
        "mkdir -p /var/lib/cni/networks/net && printf 'other\\r\\neth0' >/var/lib/cni/networks/net/10.7.0.2",
        "mkdir -p /var/lib/cni/networks/net && printf 'pod1\\r\\neth0' >/var/lib/cni/networks/net/10.7.0.3",
        "mkdir -p /var/lib/cni/networks/net && printf pod2 >/var/lib/cni/networks/net/10.7.0.4",
        "mkdir -p /var/lib/cni/networks/net && echo for the printer >/var/lib/cni/networks/net/10.7.0.2",
    ],
    &[
        "mkdir -p /var/lib/cni/networks/net && printf 10.7.0.100 >/var/lib/cni/networks/net/last_reserved_ip.0",
        "mkdir -p /var/lib/cni/networks/net && printf x >/var/lib/cni/networks/net/last_reserved_ip.1",
    ],
];
