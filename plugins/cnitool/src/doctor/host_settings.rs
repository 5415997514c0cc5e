//! Settings of the host that all networks share: forwarding, both variants of iptables, bridges.

use std::net::IpAddr;

use crate::dropped_packets::Sight;
use crate::node_networks::View;
use crate::shell_words;
use cni_filter::Filter;
use cni_filter::iptables::{TableName, Variants};
use netops::link::{self, Kind as LinkKind, Link};
use netops::nft::{Family, Nft, Table};
use netops::route::{self, Route};
use netops::{Kernel, sysctl};

use crate::doctor::{Finding, Kind, Level, Object, Step, advice, next_add};
use crate::parsed_network::{Network, Plugin};

/// Ports of a bridge: numbers below `BR_MAX_PORTS` of net/bridge/br_private.h, without 0.
const BRIDGE_PORTS_MAX: usize = (1 << 10) - 1;

/// Ports from which on a bridge counts as nearly full.
const BRIDGE_PORTS_MANY: usize = BRIDGE_PORTS_MAX / 10 * 9;

pub(crate) fn look(search_path: &str, networks: &[Network], sight: &Sight<'_>, findings: &mut Vec<Finding>) {
    forwarding(networks, sight.view, findings);
    connections(findings);
    match cni_filter::iptables::variants_with_rules(search_path) {
        Ok(Variants { nft: true, legacy: true }) => {
            let what = "both variants of iptables, nf_tables and legacy, have rules";
            let compare =
                "Compare `iptables-nft-save` and `iptables-legacy-save`; flush the one that no program uses any more.";
            findings.push(Kind::TwoRulesets.finding(Level::Warning, None, what).help(advice(compare)));
        }
        Ok(_) => (),
        Err(error) => findings.push(Kind::unseen(None, "iptables", &error)),
    }
    let Some(kernel) = &sight.host.kernel else { return };
    networks.iter().for_each(|network| ports(network, sight, findings));
    if let Err(error) = open_loopback(kernel, networks, sight, findings) {
        findings.push(Kind::unseen(None, "the node's links", &error));
    }
    services(search_path, networks, sight, findings);
    next_add::look(sight, kernel, networks, findings);
}

/// An ADD turns it on, so it matters only once a container is attached: then something has turned it off again. Each family
/// is a matter of the networks that route it: an address of a network without a gateway needs no forwarding.
fn forwarding(networks: &[Network], view: &View, findings: &mut Vec<Finding>) {
    let routers = || networks.iter().filter(|network| network.called().iter().any(Plugin::is_router));
    let keys = [["ipv4", "ip_forward"].as_slice(), ["ipv6", "conf", "all", "forwarding"].as_slice()];
    for (is_ipv6, key) in [false, true].into_iter().zip(keys) {
        let routers: Vec<&str> =
            routers().filter(|it| has_family(it, view, is_ipv6)).map(|it| &*it.conf.name).collect();
        if routers.is_empty() {
            continue;
        }
        let name = format!("net.{}", key.join("."));
        if findings.iter().any(|finding| finding.is_of(Kind::ForwardingOff, &Object::Setting(name.clone()))) {
            continue;
        }
        match sysctl::Key::new(key).and_then(|key| sysctl::find(&key)) {
            Ok(Some(value)) if value == "0" => {
                let what = format!("{name} is 0, and {} routes packets of containers", routers.join(", "));
                let remedy = shell_words::sysctl(&name, "1");
                findings.push(Kind::ForwardingOff.finding(Level::Error, None, what).help(remedy));
            }
            Ok(Some(_)) if is_ipv6 => advertisements(findings),
            Ok(_) => (),
            Err(error) => findings.push(Kind::unseen(None, &name, &error)),
        }
    }
}

/// On a node that forwards IPv6 the kernel forgets the routes and addresses that routers advertise, but where `accept_ra` is 2.
fn advertisements(findings: &mut Vec<Finding>) {
    match Kernel::host().and_then(|host| link::list_hosts_only(&host)) {
        Ok(links) => findings.extend(links.iter().map(|link| {
            let key = format!("net/ipv6/conf/{}/accept_ra", link.name);
            let what =
                format!("{key} is 1: the node forwards IPv6, and takes no router advertisements on {}", link.name);
            Kind::NoWayOut.finding(Level::Warning, None, what).help(shell_words::sysctl(&key, "2"))
        })),
        Err(error) => findings.push(Kind::unseen(None, "router advertisements", &error)),
    }
}

/// The table of connections: a new one is dropped where it is full.
fn connections(findings: &mut Vec<Finding>) {
    let number = |name: &str| -> netops::error::Result<Option<u64>> {
        let value = sysctl::find(&sysctl::Key::new(&["netfilter", name])?)?;
        Ok(value.and_then(|value| value.parse().ok()))
    };
    let (count, most) = match (number("nf_conntrack_count"), number("nf_conntrack_max")) {
        (Ok(Some(count)), Ok(Some(most))) => (count, most),
        (Ok(_), Ok(_)) => return,
        (Err(error), _) | (_, Err(error)) => {
            return findings.push(Kind::unseen(None, "the table of connections", &error));
        }
    };
    findings.extend(crowded(count, most));
}

/// The finding about so many connections, of at most so many; 0: no limit.
fn crowded(count: u64, most: u64) -> Option<Finding> {
    if most == 0 || count < most / 10 * 9 {
        return None;
    }
    let level = if count >= most { Level::Error } else { Level::Warning };
    let what = format!("the table of connections has {count} of at most {most} (net.netfilter.nf_conntrack_max)");
    let more = format!("sysctl -w net.netfilter.nf_conntrack_max={}", most.saturating_mul(2));
    Some(Kind::ConnectionsFull.finding(level, None, what).help(more))
}

/// Links of no container on which the kernel routes loopback addresses, if they are a way to all addresses or to a container's.
fn open_loopback(
    kernel: &Kernel,
    networks: &[Network],
    sight: &Sight<'_>,
    findings: &mut Vec<Finding>,
) -> netops::error::Result<()> {
    let links = || sight.host.links.iter();
    // A bridge is its network's also while the veth is none of its ports.
    let named: Vec<&String> = networks.iter().flat_map(Network::called).filter_map(|it| it.bridge.as_ref()).collect();
    let masters: Vec<u32> = links().filter(|link| sight.is_own(link)).filter_map(|end| end.master).collect();
    let is_of = |link: &&Link| link.kind.is_bridge() && (masters.contains(&link.index) || named.contains(&&link.name));
    let bridges: Vec<u32> = links().filter(is_of).map(|link| link.index).collect();
    let is_of_containers = |link: &Link| {
        // A bridge's gateway in a VLAN is a veth with its other end in the bridge.
        let peer = link.peer.filter(|_| link.kind == LinkKind::Veth && link.peer_netns_id.is_none());
        let vlan_of = peer.and_then(|index| sight.host.at(index)?.master);
        sight.is_own(link) || [Some(link.index), vlan_of].iter().flatten().any(|it| bridges.contains(it))
    };
    let leads_out = |link: &Link, route: &Route| {
        let is_to = |address: &IpAddr| !link.kind.is_bridge() && route.dst.contains(*address);
        // A VPN may have two halves of a default route.
        route.dst.prefix() <= 1 || sight.attachments().flat_map(|it| &it.addresses).any(is_to)
    };
    for link in links().filter(|link| !link.loopback && !is_of_containers(link)) {
        let key = sysctl::Key::of_link("ipv4", &link.name, "route_localnet")?;
        let is_closed = sysctl::find(&key)?.is_none_or(|value| value == "0");
        let routes = || route::list(kernel, Some(link.index), None, netops::Family::V4);
        if is_closed || !routes()?.iter().any(|route| leads_out(link, route)) {
            continue;
        }
        let name = format!("net.ipv4.conf.{}.route_localnet", link.name.replace('.', "/"));
        let what = format!("{name} is on, and link {} is no container's", link.name);
        findings.push(Kind::LoopbackOpen.finding(Level::Warning, None, what).help(shell_words::sysctl(&name, "0")));
    }
    Ok(())
}

/// Whether attachments of a network have addresses of the family.
fn has_family(network: &Network, view: &View, is_ipv6: bool) -> bool {
    let attachments = view.networks.iter().filter(|it| it.name == *network.conf.name).flat_map(|it| &it.attachments);
    attachments.flat_map(|attachment| &attachment.addresses).any(|address| address.is_ipv6() == is_ipv6)
}

/// kube-proxy's rules translate the answers of a container on the same bridge only if they pass iptables.
fn services(search_path: &str, networks: &[Network], sight: &Sight<'_>, findings: &mut Vec<Finding>) {
    let mut bridges = networks.iter().flat_map(Network::called).filter_map(|it| it.bridge.as_ref());
    let Some(bridge) = bridges.find_map(|name| sight.host.find(name)) else { return };
    let key = "net.bridge.bridge-nf-call-iptables";
    let value = sysctl::Key::new(&["bridge", "bridge-nf-call-iptables"]).and_then(|key| sysctl::find(&key));
    let state = match value {
        Ok(Some(value)) if value == "0" => format!("{key} is 0"),
        Ok(None) if sysctl::are_visible() => format!("the kernel has no {key}, as module br_netfilter is not loaded"),
        Ok(_) => return,
        Err(error) => return findings.push(Kind::unseen(None, key, &error)),
    };
    let of_nft = Table::new(Family::Ip, "kube-proxy");
    let is_of_nft = || Nft::open("the host").is_ok_and(|mut nft| matches!(nft.find_table(&of_nft), Ok(Some(_))));
    let has_services = if is_of_nft() { Ok(true) } else { of_iptables(search_path) };
    match has_services {
        Ok(true) => {
            let what = format!("kube-proxy has rules, containers are on bridge {}, and {state}", bridge.name);
            let steps = ["modprobe br_netfilter".to_owned(), format!("sysctl -w {key}=1")].map(Step::from);
            findings.push(Kind::BridgeNetfilter.finding(Level::Warning, None, what).steps(steps));
        }
        Ok(false) => {}
        Err(error) => findings.push(Kind::unseen(None, "iptables", &error)),
    }
}

/// Whether iptables has kube-proxy's chain.
fn of_iptables(search_path: &str) -> netops::error::Result<bool> {
    Filter::find(search_path).and_then(|filter| {
        let (mut found, Some(mut filter)) = (false, filter) else { return Ok(false) };
        filter.each_iptables(Family::Ip, TableName::Nat, &mut |table| {
            found |= table.has_chain("KUBE-SERVICES")?;
            Ok(())
        })?;
        Ok(found)
    })
}

fn ports(network: &Network, sight: &Sight<'_>, findings: &mut Vec<Finding>) {
    for name in network.called().iter().filter_map(|plugin| plugin.bridge.as_ref()) {
        let Some(bridge) = sight.host.find(name) else { continue };
        let ports = sight.ports(bridge).count();
        if ports >= BRIDGE_PORTS_MANY {
            let level = if ports >= BRIDGE_PORTS_MAX { Level::Error } else { Level::Warning };
            let what = format!("bridge {name} has {ports} of at most {BRIDGE_PORTS_MAX} ports");
            let give = advice("Give further containers a network with a bridge of its own.");
            findings.push(Kind::BridgeFull.finding(level, Some(&network.conf.name), what).help(give));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_connections_that_is_nearly_full_is_a_warning_and_a_full_one_an_error() {
        let of = |count, most| crowded(count, most).map(|finding| (finding.level, finding.remedy.to_string()));
        let remedy = || "sysctl -w net.netfilter.nf_conntrack_max=200".to_owned();
        assert_eq!(of(89, 100), None);
        assert_eq!(of(90, 100), Some((Level::Warning, remedy())));
        assert_eq!(of(100, 100), Some((Level::Error, remedy())));
        assert_eq!(of(100, 0), None);
    }
}
