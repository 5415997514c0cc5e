//! `cnitool explain` on a prepared node: every name of an attachment leads to it, and each cause of a dropped packet is
//! named as long as it is there.

use super::show::installed;
use super::{PORT, Tour, netns};
use expect_test::expect;
use serde_json::{Value, json};
use std::fs;
use std::process::Command;
use testns::Container;

/// The name of the attachment's veth.
const VETH: &str = "vethd9f55780";

fn run(words: &str) {
    let mut parts = words.split(' ');
    assert!(Command::new(parts.next().unwrap()).args(parts).status().unwrap().success(), "{words}");
}

/// A container `web` with port 8080, in an office without limits.
fn with_web() -> (Tour, Container) {
    let tour = installed();
    let web = tour.node.container();
    tour.add("web", &web, &["--cap-args", PORT]);
    (tour, web)
}

impl Tour {
    fn explain(&self, name: &str) -> Vec<Value> {
        serde_json::from_str(&self.cnitool(&["explain", "--json", name])).unwrap()
    }

    /// The reasons that drop packets of the only attachment of that name.
    fn drops(&self) -> Vec<String> {
        let [answer] = <[Value; 1]>::try_from(self.explain("web")).unwrap();
        answer["drops"].as_array().unwrap().iter().map(|why| why.as_str().unwrap().to_owned()).collect()
    }
}

#[test]
fn every_name_of_an_attachment_explains_it() {
    let (tour, web) = with_web();
    let since = |text: String| {
        let (before, after) = text.split_once("since ").unwrap();
        format!("{before}since TIME{}", &after["2026-11-23T03:53:15Z".len()..])
    };
    let shown = since(tour.stable(&tour.cnitool(&["explain", "web"])));
    expect![[r#"
        web is web/eth0 in network office
        ├─ container web
        ├─ namespace /run/netns/pod1
        ├─ lives, since TIME
        ├─ made by this suite
        ├─ configuration of ADD, in the cache; the network's file is
        │    /etc/cni/net.d/10-office.conflist
        ├─ packets to it
        │  ├─ port 8080/tcp of the node is forwarded to 10.7.0.2:80
        │  ├─ the node's route to 10.7.0.2 leads to cni0
        │  └─ link vethd9f55780 leads into the container
        ├─ packets from it
        │  ├─ in the container, IPv4 leads out by 10.7.0.1 on eth0
        │  └─ iptables masquerade of 10.7.0.2
        ├─ packets that were sent to ask
        │  ├─ packets from the container to the node (ICMP, UDP port 53) pass
        │  ├─ packets from the node to the container (ICMP, TCP port 80) pass
        │  └─ packets that answer the node (ICMP, TCP port 80, UDP port 53) pass
        ├─ why packets are dropped
        │  └─ the node has no IPv4 route out: packets reach its own networks only
        └─ not looked at
           ├─ tables raw and mangle of legacy iptables, eBPF programs, limits and
           │    filters of tc
           ├─ rules of routing for marks, and other tables of routes
           ├─ IPsec policies, chains of nft for ARP, translations in nft, and those of
           │    what containers send
           └─ other machines with a container's address, what is beyond the node, and
                what the container itself filters
    "#]]
    .assert_eq(&shown);
    let (path, prefixed) = (netns(&web), format!("{}/28", tour.address(2)));
    for name in ["we", "web/eth0", VETH, "8080", "8080/tcp", &path, &tour.address(2), &prefixed] {
        let answers = tour.explain(name);
        let [answer] = &answers[..] else { panic!("{name}: {answers:?}") };
        assert_eq!(
            (&answer["attachment"]["container"], &answer["network"]),
            (&json!("web"), &json!("office")),
            "{name}"
        );
    }
    tour.cnitool(&["ipam", "reserve", "office", &tour.address(9)]);
    for (name, what) in [
        (tour.address(9), "is reserved by hand in network office"),
        (tour.address(5), "of network office, and nothing holds it"),
        (tour.address(1), "is an address of the node, on link cni0"),
        ("192.0.2.77".to_owned(), "belongs to no network of this node"),
        ("cni0".to_owned(), "is a bridge of network office, and has 1 of its attachments"),
    ] {
        let answers = tour.explain(&name);
        assert!(answers.len() == 1 && answers[0]["what"].as_str().unwrap().contains(what), "{name}: {answers:?}");
    }
    for name in ["absent", "9999", "8080/udp"] {
        let output = tour.call(&["explain", name]);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{name}");
    }
    // Another network's rule for the port comes later, so it gets nothing.
    let rule = format!("nat -A CNI-HOSTPORT-DNAT -p tcp --dport 8080 -j DNAT --to-destination {}:81", tour.address(7));
    run(&format!("iptables -w -t {rule}"));
    let answers = tour.explain("8080");
    let drops = |answer: &Value| answer["drops"].to_string();
    assert!(!drops(&answers[0]).contains("an earlier rule"), "{answers:?}");
    assert!(
        drops(&answers[1]).contains(&format!("an earlier rule forwards the port to {}:80", tour.address(2))),
        "{answers:?}"
    );
    assert!(drops(&answers[1]).contains("no container has"), "{answers:?}");
    // Without the cache its namespace has no path, and the answer says what could not be seen.
    fs::remove_dir_all("/var/lib/cni/results").unwrap();
    let answers = tour.explain("web");
    assert!(answers[0]["unseen"].to_string().contains("no path to its namespace is known"), "{answers:?}");
    drop(web);
}

#[test]
fn each_cause_of_a_dropped_packet_is_named_while_it_is_there() {
    let (tour, web) = with_web();
    let address = tour.address(2);
    for words in [
        "link add up0 type veth peer up0-end",
        "link set up0 up",
        "link set up0-end up",
        "address add 203.0.113.7/24 dev up0",
        "route add default via 203.0.113.1",
    ] {
        run(&format!("ip {words}"));
    }
    let healthy = tour.drops();
    let forward = format!("iptables -w -I FORWARD -d {address} -j ACCEPT");
    let damages: [(&[&str], &str, &[&str]); 5] = [
        (&[&format!("ip link set {VETH} down")], "link vethd9f55780 is down", &[&format!("ip link set {VETH} up")]),
        (&["ip link set cni0 down"], "link cni0 is down", &["ip link set cni0 up"]),
        (&["sysctl -qw net.ipv4.ip_forward=0"], "net.ipv4.ip_forward is 0", &["sysctl -qw net.ipv4.ip_forward=1"]),
        (
            &[&format!("ip route add {address}/32 dev lo")],
            "leads to lo, which is not the container's",
            &[&format!("ip route del {address}/32 dev lo")],
        ),
        (
            &["iptables -w -P FORWARD DROP"],
            "chain FORWARD of iptables by its policy drops packets",
            &[&forward, &forward.replace("-d", "-s")],
        ),
    ];
    for (damage, phrase, repair) in damages {
        damage.iter().for_each(|words| run(words));
        let drops = tour.drops();
        assert!(drops.iter().any(|why| why.contains(phrase)), "{damage:?}: {drops:?}");
        repair.iter().for_each(|words| run(words));
        assert_eq!(tour.drops(), healthy, "{repair:?}");
    }
    // A rule for packets to the node itself accepts nothing for the container; a chain that FORWARD leads to does.
    run("iptables -w -F FORWARD");
    run(&format!("iptables -w -A INPUT -s {address} -j ACCEPT"));
    assert_ne!(tour.drops(), healthy);
    run("iptables -w -N OWN");
    run("iptables -w -A OWN -j ACCEPT");
    run("iptables -w -A FORWARD -j OWN");
    assert_eq!(tour.drops(), healthy);
    run(&format!("iptables -w -I FORWARD -o cni0 -d {address} -j DROP"));
    let drops = tour.drops();
    assert!(drops.iter().any(|why| why.contains("-o cni0 -j DROP drops packets from other hosts")), "{drops:?}");
    run("iptables -w -F FORWARD");
    // Damage that is not undone: each further cause is added to it.
    let inside = web.namespace();
    let damages: [(&dyn Fn(), &str); 3] = [
        (&|| run("iptables -w -t nat -F POSTROUTING"), "no rule masquerades its packets"),
        (&|| inside.enter(|| run("ip -4 address flush dev eth0")), "eth0 in the container does not have 10."),
        (&|| inside.delete_link("eth0"), "the container has no interface eth0"),
    ];
    for (damage, phrase) in damages {
        assert!(!tour.drops().iter().any(|why| why.contains(phrase)), "{phrase}");
        damage();
        let drops = tour.drops();
        assert!(drops.iter().any(|why| why.contains(phrase)), "{phrase}: {drops:?}");
    }
    tour.lose(&web);
    fs::remove_dir_all("/var/lib/cni/networks/office").unwrap();
    let drops = tour.drops();
    assert!(drops[0].contains("no container was found that uses it"), "{drops:?}");
}

#[test]
fn the_name_of_a_network_leads_to_the_verb_that_shows_it() {
    let (tour, _web) = with_web();
    let [answer] = <[Value; 1]>::try_from(tour.explain("office")).unwrap();
    let what = answer["what"].as_str().unwrap();
    assert!(what.starts_with("office is a network of bridge, ") && what.ends_with("see cnitool show office"), "{what}");
    tour.cnitool(&["show", "office"]);
}

/// The node forwards nothing of theirs, so its routes and settings are no reasons.
#[test]
fn attachments_that_the_node_does_not_route_have_no_reasons_about_forwarding() {
    let tour = installed();
    run("ip link add ens3 type bridge");
    run("ip link set ens3 up");
    let network = |name: &str, plugin: Value| {
        let network = json!({"cniVersion": "1.1.0", "name": name, "plugins": [plugin]});
        fs::write(format!("/etc/cni/net.d/20-{name}.conflist"), network.to_string()).unwrap();
    };
    let ipam = |last: u8| json!({"type": "host-local", "subnet": format!("{}/28", tour.address(last))});
    network("lan", json!({"type": "macvlan", "master": "ens3", "ipam": ipam(32)}));
    network("switch", json!({"type": "bridge", "bridge": "br5", "ipam": ipam(64)}));
    run("sysctl -qw net.ipv4.ip_forward=0");
    run("sysctl -qw net.bridge.bridge-nf-call-iptables=0");
    run("iptables -w -P FORWARD DROP");
    for (network, text) in [("lan", "macvlan on ens3"), ("switch", "bridge br5 has no gateway")] {
        let pod = tour.node.container();
        tour.cnitool(&["add", network, &netns(&pod), "--container-id", network]);
        let [answer] = <[Value; 1]>::try_from(tour.explain(network)).unwrap();
        assert_eq!(answer["drops"], json!([]), "{network}");
        assert!(answer["to"].to_string().contains(text), "{answer:#}");
        let is_unreached = answer["to"].to_string().contains("the node itself does not reach it");
        assert_eq!(is_unreached, network != "switch", "{answer:#}");
        drop(pod);
    }
}

/// The node has lost its rule, and the cache knows who asked for the port.
#[test]
fn a_port_without_its_rule_is_explained_by_the_cache() {
    let (tour, web) = with_web();
    run("iptables -w -t nat -F");
    let [answer] = <[Value; 1]>::try_from(tour.explain("8080")).unwrap();
    assert_eq!(answer["what"], "port 8080/tcp of the node was asked for by web/eth0 in network office");
    assert!(answer["drops"].to_string().contains("port 8080/tcp of the node does not lead to it"), "{answer:#}");
    drop(web);
}

#[test]
fn a_link_that_no_network_has_is_one_of_the_node() {
    let (tour, _web) = with_web();
    run("ip link add wan7 type veth peer wan8");
    run("ip address add 192.0.2.7/24 dev wan7");
    let [answer] = <[Value; 1]>::try_from(tour.explain("wan7")).unwrap();
    assert_eq!(answer["what"], "wan7 is a link of the node, down, 192.0.2.7/24: no network of this node has it");
}
