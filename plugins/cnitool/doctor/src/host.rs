//! Forwarding, both variants of iptables, MTUs, bridges.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use cni_filter::iptables::Variants;
use cni_spec::json;
use interface::host_veth;
use libcni::NetworkConf;
use netops::link::{self, Kind as LinkKind, Link};
use netops::{Kernel, route, sysctl};
use serde_json::Value;

use crate::{Finding, Kind, Level, Node, plugins};

/// Ports of a bridge: `BR_MAX_PORTS` of net/bridge/br_private.h.
const BRIDGE_PORTS_MAX: usize = 1 << 10;

/// Ports from which on a bridge counts as nearly full.
const BRIDGE_PORTS_MANY: usize = BRIDGE_PORTS_MAX / 10 * 9;

/// Addresses that no network has, so the route to them is the way out: RFC 5737, RFC 3849.
const OUTSIDE: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1))];

pub(crate) fn look(node: Node<'_>, networks: &[NetworkConf], findings: &mut Vec<Finding>) {
    forwarding(networks, findings);
    match cni_filter::iptables::variants_with_rules(&node.inventory.search_path) {
        Ok(Variants { nft: true, legacy: true }) => {
            let what = "both variants of iptables, nf_tables and legacy, have rules";
            let mut finding = Kind::TwoRulesets.finding(Level::Warning, None, what);
            "Compare `iptables-nft-save` and `iptables-legacy-save`; flush the one that no program uses any more."
                .clone_into(&mut finding.remedy);
            findings.push(finding);
        }
        Ok(_) => (),
        Err(error) => findings.push(Kind::unseen(None, "iptables", &error)),
    }
    match Kernel::host().and_then(|host| Ok((link::list(&host, None)?, way_out(&host)))) {
        Ok((links, way_out)) => {
            for network in networks {
                mtu(network, &way_out, &links, findings);
                bridges(network, &links, findings);
                ports(network, &links, findings);
            }
        }
        Err(error) => findings.push(Kind::unseen(None, "the node's links", &error)),
    }
}

/// Whether the plugin routes packets of its containers through the node.
fn is_router(plugin: &Value) -> bool {
    let is_set = |key| json::member(plugin, key).and_then(Value::as_bool).unwrap_or_default();
    match text(plugin, "type") {
        "ptp" => true,
        "bridge" => is_set("isGateway") || is_set("isDefaultGateway"),
        _ => false,
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    json::member(value, key).and_then(Value::as_str).unwrap_or_default()
}

/// An ADD turns it on, so it matters only once a container is attached: then something has turned it off again. Each family
/// is a matter of the networks that route it: an address of a network without a gateway needs no forwarding.
fn forwarding(networks: &[NetworkConf], findings: &mut Vec<Finding>) {
    let routers = || networks.iter().filter(|network| plugins(network).any(|plugin| is_router(&plugin)));
    let keys = [["ipv4", "ip_forward"].as_slice(), ["ipv6", "conf", "all", "forwarding"].as_slice()];
    for (is_ipv6, key) in [false, true].into_iter().zip(keys) {
        let routers: Vec<&str> = routers().filter(|it| has_family(it, is_ipv6)).map(|it| &*it.name).collect();
        if routers.is_empty() {
            continue;
        }
        let name = format!("net.{}", key.join("."));
        match sysctl::Key::new(key).and_then(|key| sysctl::find(&key)) {
            Ok(Some(value)) if value == "0" => {
                let what = format!("{name} is 0, and {} routes packets of containers", routers.join(", "));
                let mut finding = Kind::ForwardingOff.finding(Level::Error, None, what);
                finding.remedy = format!("sysctl -w {name}=1, and look in /etc/sysctl.d for what turned it off");
                findings.push(finding);
            }
            Ok(_) => (),
            Err(error) => findings.push(Kind::unseen(None, &name, &error)),
        }
    }
}

/// Whether a network's reservations have an address of the family.
fn has_family(network: &NetworkConf, is_ipv6: bool) -> bool {
    let stores = on_node::stores(network).into_iter();
    let mut held = stores.filter_map(|folder| host_local::inventory::list_held(&folder).ok()).flatten();
    held.any(|held| held.address.is_ipv6() == is_ipv6)
}

/// The links that packets leave the node by.
fn way_out(host: &Kernel) -> Vec<u32> {
    let links = OUTSIDE.iter().filter_map(|to| route::lookup(host, *to).ok()?.link);
    links.collect()
}

fn mtu(network: &NetworkConf, way_out: &[u32], links: &[Link], findings: &mut Vec<Finding>) {
    let asked = plugins(network).filter(is_router).filter_map(|plugin| json::member(&plugin, "mtu")?.as_u64()).max();
    let narrow = links.iter().filter(|link| way_out.contains(&link.index)).min_by_key(|link| link.mtu_bytes);
    let (Some(asked), Some(narrow)) = (asked, narrow) else { return };
    if asked > u64::from(narrow.mtu_bytes) {
        let what = format!("mtu is {asked}, and that of {}, the way out, {}", narrow.name, narrow.mtu_bytes);
        let mut finding = Kind::Mtu.finding(Level::Warning, Some(&network.name), what);
        finding.remedy = format!("Set mtu to {} or less.", narrow.mtu_bytes);
        findings.push(finding);
    }
}

fn bridges(network: &NetworkConf, links: &[Link], findings: &mut Vec<Finding>) {
    let mut down = |what: String, remedy: String| {
        let mut finding = Kind::LinkDown.finding(Level::Error, Some(&network.name), what);
        finding.remedy = remedy;
        findings.push(finding);
    };
    for plugin in plugins(network).filter(|plugin| text(plugin, "type") == "bridge") {
        let Some(bridge) = links.iter().find(|link| link.name == bridge_of(&plugin)) else { continue };
        let name = &bridge.name;
        if !bridge.up && links.iter().any(|link| link.master == Some(bridge.index)) {
            down(format!("bridge {name} is down"), format!("ip link set {name} up"));
        }
        let is_own = |link: &&Link| {
            link.kind == LinkKind::Veth && host_veth::find_network(link).is_some_and(|of| of.as_str() == network.name)
        };
        for link in links.iter().filter(is_own) {
            let (end, whose) = (&link.name, link.alias.as_deref().unwrap_or_default());
            if link.master != Some(bridge.index) {
                down(
                    format!("link {end} of {whose} is no port of bridge {name}"),
                    format!("ip link set {end} master {name}"),
                );
            } else if !link.up {
                down(format!("link {end} of {whose} is down"), format!("ip link set {end} up"));
            }
        }
    }
}

/// The bridge that a plugin `bridge` uses.
fn bridge_of(plugin: &Value) -> &str {
    Some(text(plugin, "bridge")).filter(|name| !name.is_empty()).unwrap_or("cni0")
}

fn ports(network: &NetworkConf, links: &[Link], findings: &mut Vec<Finding>) {
    for plugin in plugins(network).filter(|plugin| text(plugin, "type") == "bridge") {
        let name = bridge_of(&plugin);
        let Some(bridge) = links.iter().find(|link| link.name == name) else { continue };
        let ports = links.iter().filter(|link| link.master == Some(bridge.index)).count();
        if ports >= BRIDGE_PORTS_MANY {
            let level = if ports >= BRIDGE_PORTS_MAX { Level::Error } else { Level::Warning };
            let what = format!("bridge {name} has {ports} of at most {BRIDGE_PORTS_MAX} ports");
            let mut finding = Kind::BridgeFull.finding(level, Some(&network.name), what);
            "Give further containers a network with a bridge of its own.".clone_into(&mut finding.remedy);
            findings.push(finding);
        }
    }
}
