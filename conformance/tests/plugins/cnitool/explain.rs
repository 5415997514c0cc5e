//! `cnitool explain` on a prepared node: every name of an attachment leads to it. The causes of dropped packets are those of
//! doctor, whose tables have each.

use super::show::installed;
use super::{PORT, Tour, netns};
use crate::prelude::*;
use std::fs;
use std::process::Command;

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

    fn drops(&self) -> Vec<String> {
        let [answer] = <[Value; 1]>::try_from(self.explain("web")).unwrap();
        answer["drops"].as_array().unwrap().iter().map(|why| why.as_str().unwrap().to_owned()).collect()
    }
}

#[test]
fn every_name_of_an_attachment_explains_it() {
    let (tour, web) = with_web();
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
    run("ip link add wan7 type veth peer wan8");
    run("ip address add 192.0.2.7/24 dev wan7");
    for (name, what) in [
        ("office".to_owned(), "office is a network of bridge, "),
        ("wan7".to_owned(), "wan7 is a link of the node, down, 192.0.2.7/24: no network of this node has it"),
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
    // The node has lost its rules, and the cache knows who asked for the port.
    run("iptables -w -t nat -F");
    let answers = tour.explain("8080");
    assert_eq!(answers[0]["what"], "port 8080/tcp of the node was asked for by web/eth0 in network office");
    assert!(drops(&answers[0]).contains("port 8080/tcp of the node does not lead to it"), "{answers:?}");
    // Without the cache its namespace has no path, and the answer says what could not be seen.
    fs::remove_dir_all("/var/lib/cni/results").unwrap();
    let answers = tour.explain("web");
    assert!(answers[0]["unseen"].to_string().contains("no path to its namespace is known"), "{answers:?}");
    drop(web);
}

#[test]
fn a_cause_of_dropped_packets_is_named_while_it_is_there() {
    let (tour, web) = with_web();
    let healthy = tour.drops();
    run(&format!("ip link set {VETH} down"));
    let drops = tour.drops();
    assert!(drops.iter().any(|why| why.contains("link vethd9f55780 is down")), "{drops:?}");
    run(&format!("ip link set {VETH} up"));
    assert_eq!(tour.drops(), healthy);
    tour.lose(&web);
    fs::remove_dir_all("/var/lib/cni/networks/office").unwrap();
    let drops = tour.drops();
    assert!(drops[0].contains("no container was found that uses it"), "{drops:?}");
}
