//! `cnitool plan`: nothing is changed, and what ADD does next is what was shown.

use super::show::installed;
use super::{PORT, Tour, netns};
use crate::prelude::*;
use expect_test::expect;
use std::fs;
use std::process::Command;

impl Tour {
    /// A plan, and its exit status. It must not change anything, on the node or in the container.
    fn plan(&self, network: &str, pod: &Container, more: &[&str]) -> (Value, i32) {
        // An address that gets usable has a route then.
        self.node.host().wait_for_addresses();
        let before = (self.node.snapshot(), pod.namespace().snapshot());
        let netns = netns(pod);
        let words = [&["plan", network, &netns, "--json"][..], more].concat();
        let output = self.call(&words);
        assert_eq!(testns::changes(&before.0, &self.node.snapshot()), "", "plan changed the node");
        assert_eq!(testns::changes(&before.1, &pod.namespace().snapshot()), "", "plan changed the container");
        let stdout = String::from_utf8(output.stdout).unwrap();
        let plan = serde_json::from_str(&stdout)
            .unwrap_or_else(|error| panic!("{error}: {stdout}{}", String::from_utf8_lossy(&output.stderr)));
        (plan, output.status.code().unwrap())
    }

    /// Plans, calls ADD, and compares the result and each step. Returns the plan.
    fn plan_and_add(&self, network: &str, pod: &Container, more: &[&str]) -> Value {
        let (plan, status) = self.plan(network, pod, more);
        assert_eq!(status, 0, "{plan}");
        let added = self.cnitool(&[&["add", network, &netns(pod)][..], more].concat());
        let added: Value = serde_json::from_str(&added).unwrap();
        for key in ["ips", "routes", "dns"] {
            assert_eq!(plan["result"][key], added[key], "{key} of {plan}");
        }
        let names = |result: &Value| -> Vec<Value> {
            let all = result["interfaces"].as_array().into_iter().flatten();
            all.map(|entry| json!([entry["name"], entry["sandbox"]])).collect()
        };
        assert_eq!(names(&plan["result"]), names(&added), "{plan}");
        for step in steps(&plan) {
            assert_eq!(missing(self.node.host(), pod.namespace(), &step), None, "{plan}");
        }
        plan
    }

    fn network(&self, name: &str, plugins: &Value) {
        let network = json!({"cniVersion": "1.0.0", "name": name, "plugins": plugins});
        fs::write(format!("/etc/cni/net.d/{name}.conflist"), network.to_string()).unwrap();
    }
}

fn steps(plan: &Value) -> Vec<String> {
    let plugins = plan["plugins"].as_array().into_iter().flatten();
    let steps = plugins.flat_map(|plugin| plugin["steps"].as_array().into_iter().flatten());
    steps.map(|step| step["text"].as_str().unwrap().to_owned()).collect()
}

/// The parts of a step that are not on the node, by programs and kernel files that are not ours.
fn missing(host: &Namespace, inside: &Namespace, step: &str) -> Option<String> {
    let words: Vec<&str> = step.split(' ').collect();
    let has_link = |name: &str| host.find_link(name).is_some() || inside.find_link(name).is_some();
    let is_there = match words.as_slice() {
        ["ip", "link", "add", name, ..] | ["ip", "tuntap", "add", name, ..] => has_link(name),
        ["ip", "link", "set", name, "up"] => {
            [host, inside].iter().any(|place| place.find_link(name).is_some_and(|link| link.up))
        }
        ["ip", "address", "add", address, "dev", link, ..] => [host, inside].iter().any(|place| {
            place
                .addresses()
                .iter()
                .any(|found| found.link == *link && format!("{}/{}", found.ip, found.prefix) == *address)
        }),
        ["sysctl", pair] if !pair.contains("LINK") && !pair.contains("accept_") => {
            let (key, value) = pair.split_once('=').unwrap();
            // Written by netlink, or in either place.
            [host, inside].iter().any(|place| place.enter(|| read(key)).is_some_and(|found| found == *value))
        }
        [program @ ("iptables" | "ip6tables"), "-t", table, "-A" | "-I", chain, ..] => {
            let position = if words[3] == "-I" { 6 } else { 5 };
            let rule = format!("-A {chain} {}", words[position..].join(" "));
            let saved = host.enter(|| Command::new(format!("{program}-save")).args(["-t", table]).output().unwrap());
            String::from_utf8_lossy(&saved.stdout).lines().any(|line| line == rule)
        }
        ["tc", "qdisc", "add", "dev", link, "root", kind @ ("tbf" | "handle"), word, ..] => {
            let kind = if *kind == "tbf" { "tbf 1: root" } else { "htb 1: root" };
            assert!(["rate", "1:"].contains(word), "{step}");
            let shown = host.enter(|| Command::new("tc").args(["qdisc", "show", "dev", link]).output().unwrap());
            String::from_utf8_lossy(&shown.stdout).starts_with(&format!("qdisc {kind}"))
        }
        ["ip", "rule", "add", rule @ ..] => {
            let ["from", from, "lookup", table] = rule else { panic!("{rule:?}") };
            let wanted = (format!("from {from} "), format!(" table {table} "));
            inside.rules().iter().any(|rule| rule.contains(&wanted.0) && rule.contains(&wanted.1))
        }
        _ => true,
    };
    (!is_there).then(|| step.to_owned())
}

fn read(key: &str) -> Option<String> {
    fs::read_to_string(format!("/proc/sys/{key}")).ok().map(|text| text.trim().to_owned())
}

#[test]
fn a_chain_is_planned_as_add_makes_it_and_nothing_is_changed() {
    let tour = Tour::with_plugins();
    tour.network("chain", &json!([
        {"type": "bridge", "bridge": "br7", "isDefaultGateway": true, "ipMasq": true, "ipam": tour.host_local()},
        {"type": "portmap", "capabilities": {"portMappings": true}},
        {"type": "firewall", "ingressPolicy": "same-bridge"},
        {"type": "tuning", "mtu": 1400, "sysctl": {"net.core.somaxconn": "500"}},
        {"type": "bandwidth", "ingressRate": 1_000_000, "ingressBurst": 80_000, "egressRate": 2_000_000, "egressBurst": 80_000}]));
    let more = ["--cap-args", PORT];
    let [one, two] = [tour.node.container(), tour.node.container()];
    let first = tour.plan_and_add("chain", &one, &more);
    assert!(steps(&first).len() > 30, "{first}");
    assert!(first["plugins"][0]["steps"].as_array().unwrap().iter().all(|step| step["so"] == false), "{first}");
    // What all attachments share is there now.
    let second = tour.plan_and_add("chain", &two, &[]);
    let so: Vec<&str> = second["plugins"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|plugin| plugin["steps"].as_array().unwrap())
        .filter(|step| step["so"] == true)
        .map(|step| step["text"].as_str().unwrap())
        .collect();
    let text = so.join("\n").replace(&tour.subnet, "10.7.0");
    expect![[r#"
        ip link add br7 type bridge
        sysctl net/ipv6/conf/br7/accept_ra=0
        ip link set br7 up
        ip address add 10.7.0.1/24 dev br7
        sysctl net/ipv4/ip_forward=1
        iptables -t filter -I FORWARD 1 -m comment --comment "CNI firewall plugin rules" -j CNI-FORWARD
        iptables -t filter -I FORWARD 1 -m comment --comment "CNI firewall plugin rules (ingressPolicy: same-bridge|isolated)" -j CNI-ISOLATION-STAGE-1
        iptables -t filter -A CNI-FORWARD -m comment --comment "CNI firewall plugin admin overrides" -j CNI-ADMIN
        iptables -t filter -A CNI-ISOLATION-STAGE-1 -i br7 ! -o br7 -m comment --comment "CNI firewall plugin rules (ingressPolicy: same-bridge)" -j CNI-ISOLATION-STAGE-2
        iptables -t filter -A CNI-ISOLATION-STAGE-2 -o br7 -m comment --comment "CNI firewall plugin rules (ingressPolicy: same-bridge|isolated)" -j DROP"#]]
    .assert_eq(&text);
}

#[test]
fn the_plan_of_a_node_is_shown() {
    let tour = installed();
    let pod = tour.node.container();
    let shown = tour.cnitool(&["plan", "office", &netns(&pod), "--container-id", "web"]);
    let shown = tour.stable(&shown).replace(&netns(&pod), "WEB");
    let shown = shown.replace(&tour.bin_dir.display().to_string(), "BIN");
    expect![[r#"
        office  web/eth0 in WEB
        ├─ bridge  BIN/bridge
        │  ├─ + ip link add cni0 type bridge
        │  ├─ + sysctl net/ipv6/conf/cni0/accept_ra=0  (not compared)
        │  ├─ + ip link set cni0 up
        │  ├─ + ip link add vethd9f55780 master cni0 type veth peer eth0
        │  ├─ + ip link set vethd9f55780 alias cni:office/web/eth0
        │  ├─ + ip link set vethd9f55780 up
        │  ├─ + masquerade 10.7.0.2/28 by rules of iptables, or of nf_tables where
        │  │    those cannot be
        │  ├─ + sysctl net/ipv6/conf/vethd9f55780/accept_ra=0  (not compared)
        │  ├─ + sysctl net/ipv6/conf/eth0/accept_ra=0  (not compared)
        │  ├─ + sysctl net/ipv6/conf/eth0/accept_dad=0  (not compared)
        │  ├─ + sysctl net/ipv4/conf/eth0/arp_notify=1  (not compared)
        │  ├─ + ip address add 10.7.0.2/28 dev eth0
        │  ├─ + ip link set eth0 up
        │  ├─ + ip route add default via 10.7.0.1 dev eth0
        │  ├─ + wait until eth0 can carry packets  (not compared)
        │  ├─ + wait until the port can carry packets  (not compared)
        │  ├─ + announce the addresses of eth0  (not compared)
        │  ├─ + ip address add 10.7.0.1/28 dev cni0
        │  ├─ + ip neigh del 10.7.0.2 dev cni0  (not compared)
        │  └─ + sysctl net/ipv4/ip_forward=1  (not compared)
        ├─ portmap  BIN/portmap
        │  └─ nothing to do
        ├─ bandwidth  BIN/bandwidth
        │  └─ nothing to do
        ├─ result
        │  ├─ address 10.7.0.2/28, gateway 10.7.0.1
        │  └─ route to 0.0.0.0/0 by 10.7.0.1
        └─ nothing was changed; + is what ADD would make, = what is so already; CHECK
             compares all but what is marked
    "#]]
    .assert_eq(&shown);
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
}

/// Each other plugin: what ADD gives is what was planned.
#[test]
fn each_plugin_gives_what_it_has_planned() {
    let tour = Tour::with_plugins();
    let host = tour.node.host();
    let outside = tour.node.remote("outside");
    host.add_veth("up0", &outside, "eth0");
    host.set_up("up0");
    let ipam = tour.host_local();
    let fixed = json!({"type": "static", "addresses": [{"address": format!("{}.200/24", tour.subnet)}]});
    for (name, plugins) in [
        ("loopback", json!([{"type": "loopback"}])),
        ("ptp", json!([{"type": "ptp", "ipMasq": true, "ipam": ipam}])),
        ("macvlan", json!([{"type": "macvlan", "master": "up0", "ipam": ipam}])),
        ("macvlan2", json!([{"type": "macvlan", "master": "up0"}])),
        ("tap", json!([{"type": "tap", "ipam": fixed}])),
        ("sbr", json!([{"type": "ptp", "ipam": ipam}, {"type": "sbr"}])),
        (
            "settings",
            json!([{"type": "ptp", "ipam": ipam}, {"type": "tuning", "offloads": {"tx-checksum-ip-generic": false}},
                {"type": "bandwidth", "ingressRate": 1_000_000, "ingressBurst": 80_000, "unshapedSubnets": ["fd00::/8"]}]),
        ),
        (
            "native",
            json!([{"type": "bridge", "bridge": "br8", "isGateway": true, "ipam": ipam},
                          {"type": "firewall", "backend": "nftables"},
                          {"type": "portmap", "backend": "nftables", "capabilities": {"portMappings": true}}]),
        ),
    ] {
        tour.network(name, &plugins);
        let pod = tour.node.container();
        let mapped = json!({"portMappings": [{"hostPort": 8081, "containerPort": 80, "protocol": "udp"}]}).to_string();
        tour.plan_and_add(name, &pod, &["--cap-args", &mapped]);
        // As with the reference, sbr takes routes away that CHECK of the plugin before it looks for.
        if name != "sbr" {
            tour.cnitool(&["check", name, &netns(&pod)]);
        }
        tour.cnitool(&["del", name, &netns(&pod)]);
    }
    for (name, feature, plugins) in [
        ("vlan", Feature::Vlan, json!([{"type": "vlan", "master": "up0", "vlanId": 7, "ipam": ipam}])),
        ("dummy", Feature::Dummy, json!([{"type": "dummy", "ipam": ipam}])),
        ("ipvlan", Feature::Ipvlan, json!([{"type": "ipvlan", "master": "up0", "ipam": ipam}])),
        ("vrf", Feature::Vrf, json!([{"type": "ptp", "ipam": ipam}, {"type": "vrf", "vrfname": "blue"}])),
    ] {
        if feature.or_skip() {
            tour.network(name, &plugins);
            let pod = tour.node.container();
            tour.plan_and_add(name, &pod, &[]);
            tour.cnitool(&["del", name, &netns(&pod)]);
        }
    }
}

#[test]
fn what_add_would_refuse_is_shown_at_its_plugin() {
    let tour = Tour::with_plugins();
    let small = json!({"type": "host-local", "ranges": [[{"subnet": format!("{}.0/24", tour.subnet),
        "rangeStart": tour.address(9), "rangeEnd": tour.address(9)}]]});
    let ports = json!({"type": "portmap", "onPortInUse": "error", "capabilities": {"portMappings": true}});
    let bridge = |ipam: &Value| json!({"type": "bridge", "bridge": "br9", "ipam": ipam});
    tour.network("small", &json!([bridge(&small)]));
    tour.network("ports", &json!([bridge(&tour.host_local()), ports]));
    tour.network("nowhere", &json!([{"type": "macvlan", "master": "none0", "ipam": tour.host_local()}]));
    let mapped = json!({"portMappings": [{"hostPort": 8082, "containerPort": 80, "protocol": "tcp"}]}).to_string();
    let more = ["--cap-args", &*mapped];
    let [one, two] = [tour.node.container(), tour.node.container()];
    let refusal = |network: &str, pod: &Container| {
        let (plan, status) = tour.plan(network, pod, &more);
        assert_eq!(status, 1, "{plan}");
        let plugins = plan["plugins"].as_array().unwrap();
        let failed = plugins.iter().find(|plugin| plugin["error"].is_object()).unwrap();
        let code = failed["error"]["code"].as_u64().unwrap();
        // ADD says the same.
        let output = tour.call(&[&["add", network, &netns(pod), "--json"][..], &more].concat());
        let stderr = String::from_utf8(output.stderr).unwrap();
        let error: Value = serde_json::from_str(stderr.lines().last().unwrap()).unwrap();
        assert_eq!(error["code"], code, "{plan} {stderr}");
        (failed["type"].as_str().unwrap().to_owned(), code)
    };
    tour.plan_and_add("small", &one, &more);
    tour.plan_and_add("ports", &one, &[&more[..], &["-i", "eth1"]].concat());
    assert_eq!(refusal("small", &one), ("bridge".to_owned(), 103));
    assert_eq!(refusal("small", &two), ("bridge".to_owned(), 105));
    assert_eq!(refusal("ports", &two), ("portmap".to_owned(), 103));
    assert_eq!(refusal("nowhere", &two).0, "macvlan");
    tour.network("empty", &json!([bridge(&json!({"type": "static"}))]));
    assert_eq!(refusal("empty", &two), ("bridge".to_owned(), 110));
    tour.network("absent", &json!([bridge(&json!({"type": "none"}))]));
    assert_eq!(refusal("absent", &two), ("bridge".to_owned(), 108));
    // The second one finds what the first one makes.
    tour.network("twice", &json!([bridge(&tour.host_local()), {"type": "ptp", "ipam": tour.host_local()}]));
    assert_eq!(refusal("twice", &two), ("ptp".to_owned(), 103));
}

/// A plan names what is not known: plugins from elsewhere, and addresses that a server gives.
#[test]
fn what_cannot_be_known_is_said() {
    let tour = Tour::with_plugins();
    let pod = tour.node.container();
    tour.network(
        "leased",
        &json!([{"type": "bridge", "bridge": "br9", "ipam": {"type": "dhcp"}}, {"type": "firewall"}]),
    );
    let (plan, status) = tour.plan("leased", &pod, &[]);
    let unknown = |place: usize| plan["plugins"][place]["unknown"][0].as_str().unwrap().to_owned();
    // No daemon runs.
    assert_eq!(status, 1, "{plan}");
    assert!(unknown(0).contains("dhcp says at ADD which") && unknown(1).contains("not known before"), "{plan}");
    let Some(reference) = reference_or_skip() else { return };
    let bridge = reference.executables().into_iter().find(|(name, _)| name == "bridge").unwrap().1;
    fs::remove_file(tour.bin_dir.join("bridge")).unwrap();
    testns::unshared(|| fs::copy(bridge, tour.bin_dir.join("bridge"))).unwrap();
    let (plan, status) = tour.plan("leased", &pod, &[]);
    assert_eq!(status, 0, "{plan}");
    assert_eq!(plan["plugins"][0]["notKnown"], "not part of this suite");
    assert_eq!(plan["plugins"][1]["notKnown"], "depends on the plugins before it");
    assert_eq!(plan["result"], Value::Null);
}

/// Whichever addresses are reserved, the address of the plan is the address of the next ADD.
#[test]
fn the_next_address_is_foreseen() {
    let tour = Tour::with_plugins();
    let range = |from: u8, to: u8| json!({"subnet": format!("{}.0/24", tour.subnet), "rangeStart": tour.address(from), "rangeEnd": tour.address(to)});
    let ipam = json!({"type": "host-local", "ranges": [[range(10, 13), range(20, 21)], [{"subnet": "fd07::/120"}]]});
    tour.network("ranges", &json!([{"type": "bridge", "bridge": "br9", "ipam": ipam}]));
    let pods: Vec<Container> = (0..3).map(|_| tour.node.container()).collect();
    for round in 0..4 {
        for pod in &pods {
            tour.plan_and_add("ranges", pod, &[]);
        }
        for pod in &pods[round % 2..] {
            tour.cnitool(&["del", "ranges", &netns(pod)]);
        }
        if round % 2 == 1 {
            tour.cnitool(&["del", "ranges", &netns(&pods[0])]);
        }
    }
}

/// The plugins' own plans show no such reason: it comes of the file, of STATUS, or of the container.
#[test]
fn a_plan_says_what_validate_and_status_know_of_a_failure() {
    let tour = Tour::with_plugins();
    let pod = tour.node.container();
    let routed = json!({"type": "host-local", "subnet": format!("{}.0/24", tour.subnet),
        "routes": [{"dst": "10.0.0.0/8", "gw": "192.168.77.1"}]});
    tour.network("route", &json!([{"type": "bridge", "bridge": "br7", "isGateway": true, "ipam": routed}]));
    tour.network("leased", &json!([{"type": "bridge", "bridge": "br7", "ipam": {"type": "dhcp"}}]));
    for (network, reason) in
        [("route", "next hop 192.168.77.1 is outside of"), ("leased", "cannot ask the dhcp daemon")]
    {
        let (plan, status) = tour.plan(network, &pod, &[]);
        assert_eq!((status, &plan["result"]), (1, &Value::Null), "{plan}");
        assert!(plan["refused"][0].as_str().is_some_and(|text| text.contains(reason)), "{plan}");
        assert!(!tour.call(&["add", network, &netns(&pod)]).status.success());
    }
    let absent = json!({"type": "tuning", "sysctl": {"net.ipv4.conf.eth7.arp_ignore": "1"}});
    tour.network("tuned", &json!([{"type": "bridge", "bridge": "br7", "ipam": tour.host_local()}, absent]));
    let (plan, status) = tour.plan("tuned", &pod, &[]);
    let error = plan["plugins"][1]["error"]["msg"].as_str().unwrap_or_default();
    assert!(status == 1 && error.contains("net/ipv4/conf/eth7/arp_ignore"), "{plan}");
}
