//! Addresses that host-local may give to the next container, and that the node, or the next hop of its default route, has.

use std::collections::BTreeMap;
use std::net::IpAddr;

use host_local::inventory::may_give;
use ipnetwork::IpNetwork;
use netops::link::{Kind as LinkKind, Link};
use netops::route::{self, MAIN_TABLE};
use netops::{Kernel, addr};

use crate::doctor::{Finding, Kind, Level, tool};
use crate::dropped_packets::is_global;
use crate::parsed_network::{Network, Plugin, text};

/// An address that a station has already.
struct Taken<'a> {
    link: &'a Link,
    owner: String,
    /// Whether the node answers for it wherever it has an address.
    is_anywhere: bool,
}

pub(crate) fn look(
    kernel: &Kernel,
    links: &[Link],
    networks: &[Network],
    findings: &mut Vec<Finding>,
) -> netops::error::Result<()> {
    let at = |index: u32| links.iter().find(|link| link.index == index);
    let own: Vec<(&Link, IpAddr)> = addr::list_all(kernel, None)?
        .into_iter()
        .filter_map(|(index, own)| Some((at(index)?, own.ip())))
        .filter(|(_, own)| is_global(*own))
        .collect();
    let mut taken: BTreeMap<IpAddr, Taken<'_>> = BTreeMap::new();
    for route in route::list_both(kernel, None, Some(MAIN_TABLE))?.into_iter().filter(|it| it.dst.prefix() == 0) {
        let (Some(hop), Some(link)) = (route.gateway.filter(|hop| is_global(*hop)), route.link.and_then(at)) else {
            continue;
        };
        let owner = format!("is the next hop of the node's default route by {}", link.name);
        taken.insert(hop, Taken { link, owner, is_anywhere: false });
    }
    for (link, address) in &own {
        let owner = format!("the node has on link {}", link.name);
        let is_anywhere = link.loopback || link.kind == LinkKind::Dummy;
        taken.insert(*address, Taken { link, owner, is_anywhere });
    }
    let has_own = |link: &Link| own.iter().any(|(of, _)| of.index == link.index);
    for network in networks {
        for plugin in network.called().iter().filter(|plugin| plugin.ipam == "host-local") {
            let Some(object) = plugin.conf_object() else { continue };
            for (address, of) in taken.iter().filter(|(_, of)| meets(plugin, of, links, &has_own)) {
                if plugin.ranges.iter().any(|range| has(range.net, *address)) && may_give(&object, *address) == Ok(true)
                {
                    findings.push(finding(&network.conf.name, *address, &of.owner));
                }
            }
        }
    }
    Ok(())
}

fn has(net: IpNetwork, address: IpAddr) -> bool {
    net.is_ipv4() == address.is_ipv4() && net.contains(address)
}

/// Whether the plugin's containers exchange frames or packets with the station.
fn meets(plugin: &Plugin, of: &Taken<'_>, links: &[Link], has_own: &dyn Fn(&Link) -> bool) -> bool {
    if plugin.is_router() {
        // An address of the network's own bridge is a finding about its gateway.
        return plugin.link.as_deref() != Some(of.link.name.as_str());
    }
    let name = match plugin.plugin_type.as_str() {
        "bridge" => plugin.link.as_deref().unwrap_or_default(),
        "macvlan" | "ipvlan" => text(&plugin.object, "master"),
        _ => return false,
    };
    let Some(link) = links.iter().find(|link| link.name == name) else { return false };
    let bridge = |link: &Link| link.master.unwrap_or(link.index);
    bridge(link) == bridge(of.link) || of.is_anywhere && has_own(link)
}

fn finding(network: &str, address: IpAddr, owner: &str) -> Finding {
    let what = format!("the next ADD may give {address}, which {owner}");
    let reserve = tool(["ipam", "reserve", network, &address.to_string()]);
    Kind::DuplicateAddress.finding(Level::Warning, Some(network), what).help(reserve)
}
