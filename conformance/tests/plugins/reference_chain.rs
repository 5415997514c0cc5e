//! A chain of the reference's executables, unchanged, run by our library and our command line: the outcome is that of
//! calling each executable as the specification says. And the same chain with our bridge and host-local in it.

use crate::configs::{addresses, drop_empty_dns, normalised};
use crate::runtime::{Chain, Driver, Set};
use serde_json::{Value, json};
use testns::{Feature, Snapshot};

const MAC: &str = "c2:11:22:33:44:55";
/// The first container makes what stays on purpose: the bridge, empty chains, the store. Of the second nothing may be
/// left.
const CONTAINERS: [&str; 2] = ["first", "second"];

/// bridge, portmap, firewall, bandwidth and tuning. firewall supports no version below 0.4.0.
fn network(version: &str) -> Value {
    let ipam = json!({"type": "host-local", "subnet": "10.7.0.0/24", "routes": [{"dst": "0.0.0.0/0"}]});
    let mut network = json!({"cniVersion": version, "name": "net", "plugins": [
        {"type": "bridge", "bridge": "br0", "isGateway": true, "ipMasq": true, "ipMasqBackend": "iptables", "ipam": ipam},
        {"type": "portmap", "capabilities": {"portMappings": true}, "snat": true},
        {"type": "firewall", "backend": "iptables"},
        {"type": "bandwidth", "capabilities": {"bandwidth": true}},
        {"type": "tuning", "capabilities": {"mac": true}, "mtu": 1400,
         "sysctl": {"net.ipv4.conf.eth0.arp_filter": "1", "net.core.somaxconn": "500"}}]});
    if version == "0.3.1" {
        network["plugins"].as_array_mut().unwrap().retain(|plugin| plugin["type"] != "firewall");
    }
    network
}

fn capabilities() -> Value {
    json!({
        "bandwidth": {"ingressRate": 8_000_000, "ingressBurst": 800_000, "egressRate": 4_000_000, "egressBurst": 400_000},
        "mac": MAC, "unheard-of": {"unknown": "key"},
        "portMappings": [
            {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"},
            {"hostPort": 5353, "containerPort": 53, "protocol": "udp", "hostIP": "10.7.0.1"},
        ],
    })
}

/// The outcome, in a form that is the same for all drivers: results, the node while attached, errors.
struct Course {
    result: Value,
    node: Vec<String>,
    container: Vec<String>,
    checks: [Result<(), String>; 2],
}

/// ADD, CHECK, CHECK of a container that another process changed, DEL twice, and again for a second container, of which
/// nothing is left.
fn course(set: Set, driver: Driver, version: &str) -> Option<Course> {
    if !Feature::Ifb.or_skip() {
        return None;
    }
    let node = set.node()?;
    let (network, capabilities) = (network(version), capabilities());
    let mut course = None;
    for id in CONTAINERS {
        let pod = node.container_named(id);
        let before = pod.namespace().snapshot();
        let attachment = pod.attachment();
        let chain = Chain { node: &node, driver, network: &network, capabilities: &capabilities, attachment };
        let mut result = chain.add().unwrap_or_else(|error| panic!("{driver:?}: {error}"));
        assert_eq!(pod.namespace().link("eth0").mac, MAC);
        assert_eq!(pod.namespace().global_addresses("eth0"), addresses(&result));
        let (on_node, inside) = (lines(&node.snapshot()), lines(&pod.namespace().snapshot()));
        let check = || match version {
            "0.3.1" => Ok(()), // has no CHECK
            _ => chain.check(&result).map_err(|error| cause_of(&error)),
        };
        let untouched = check();
        pod.namespace().set_sysctl("net/ipv4/conf/eth0/arp_filter", "0");
        let checks = [untouched, check()];
        chain.del(&result).unwrap_or_else(|error| panic!("{driver:?}: {error}"));
        chain.del(&result).unwrap_or_else(|error| panic!("{driver:?}, again: {error}"));
        // Sysctls that do not belong to an interface stay: they end with the container.
        let left = testns::changes(&before, &pod.namespace().snapshot());
        assert!(left.lines().all(|line| line.contains("sysctl net/core/somaxconn")), "{driver:?}: {left}");
        drop_empty_dns(&mut result);
        match id {
            "first" => {
                node.remember();
                course = Some(Course { result: normalised(&result), node: on_node, container: inside, checks });
            }
            _ => node.assert_as_before_except(comes_and_goes),
        }
    }
    course
}

/// The last address given, and a bridge's link-local routes, which come and go with its carrier.
pub(crate) fn comes_and_goes(line: &str) -> bool {
    ["/last_reserved_ip.", "/run/cni", " fe80::"].iter().any(|word| line.contains(word))
}

/// The lines without values that change from one ADD to the next: hardware addresses, values derived from them, names
/// of veths, the runtime's own cache and locks.
fn lines(snapshot: &Snapshot) -> Vec<String> {
    let is_stable = |line: &&String| {
        !["fe80::", "/var/lib/cni/results", "/var/lib/cni/locks", "/run/cni", "sysctl "]
            .iter()
            .any(|word| line.contains(word))
    };
    let lines = snapshot.lines().iter().filter(is_stable);
    let mut lines: Vec<String> = lines.map(|line| line.split(' ').map(word).collect::<Vec<_>>().join(" ")).collect();
    lines.sort();
    lines
}

fn word(word: &str) -> String {
    let Value::String(word) = normalised(&json!(word)) else { panic!("text stays text") };
    let alias_is_ours = word.starts_with("\"cni:");
    let digits = word.strip_prefix("veth").filter(|digits| digits.len() == 8);
    if digits.is_some() || alias_is_ours { "VETH".to_owned() } else { word }
}

/// An error without the prefix and suffix that the command or the library adds.
fn cause_of(error: &str) -> String {
    let from = error.find("plugin type=").unwrap_or_default();
    error[from..].trim_end().to_owned()
}

fn all_alike(set: Set, version: &str) -> Option<Course> {
    let by_hand = course(set, Driver::ByHand, version)?;
    for driver in [Driver::Libcni, Driver::Cnitool] {
        let driven = course(set, driver, version)?;
        assert_eq!(driven.result, by_hand.result, "left: {driver:?}, right: each executable called by hand");
        assert_eq!(driven.checks, by_hand.checks, "left: {driver:?}, right: each executable called by hand");
        for (driven, by_hand) in [(driven.node, &by_hand.node), (driven.container, &by_hand.container)] {
            let more: Vec<_> = driven.iter().filter(|line| !by_hand.contains(line)).collect();
            let less: Vec<_> = by_hand.iter().filter(|line| !driven.contains(line)).collect();
            assert!(more.is_empty() && less.is_empty(), "{driver:?} makes {more:#?} instead of {less:#?}");
        }
    }
    Some(by_hand)
}

/// CHECK reports the sysctl, and nothing before that.
fn is_noticed(course: &Course) {
    assert_eq!(course.checks[0], Ok(()));
    let error = course.checks[1].as_ref().unwrap_err();
    assert!(error.starts_with(r#"plugin type="tuning" failed (check): "#) && error.contains("arp_filter"), "{error}");
}

/// The oldest and the newest version, and with `every-test` those between them. The oldest has no CHECK.
#[test]
fn results_and_errors_are_what_the_reference_prints() {
    let between: &[&str] = if cfg!(feature = "every-test") { &["0.4.0", "1.0.0"] } else { &[] };
    all_alike(Set::Reference, "0.3.1");
    for version in [between, &["1.1.0"]].concat() {
        all_alike(Set::Reference, version).iter().for_each(is_noticed);
    }
}

#[test]
fn our_bridge_in_the_references_chain() {
    let Some(mixed) = all_alike(Set::OursFirst, "1.0.0") else { return };
    is_noticed(&mixed);
    let theirs = course(Set::Reference, Driver::ByHand, "1.0.0").unwrap();
    assert_eq!(mixed.result, theirs.result, "left: with our bridge, right: all theirs");
}
