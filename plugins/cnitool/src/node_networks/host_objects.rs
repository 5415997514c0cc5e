//! Objects of the host that all networks share: its links, their addresses, and the forwarded ports. Read once.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use interface::alias;
use ipnetwork::IpNetwork;
use netops::link::{self, Link};
use netops::tc::htb::Htb;
use netops::tc::{self, Qdisc};
use netops::{Family, Kernel, addr, route};
use portmap::forwards::{self, Forward};

use crate::doctor::Unread;
use crate::dropped_packets::host_routes::outside;
use crate::node_networks::{HostLink, Shared};

#[derive(Debug, Default)]
pub(crate) struct Host {
    pub(crate) kernel: Option<Kernel>,
    pub(crate) links: Vec<Link>,
    /// Places in `links`.
    by_name: BTreeMap<String, usize>,
    by_index: BTreeMap<u32, usize>,
    ports: BTreeMap<u32, usize>,
    addresses: BTreeMap<u32, Vec<IpNetwork>>,
    /// The index of the link that has an address; of several the first.
    owners: BTreeMap<IpAddr, u32>,
    /// Addresses by link that the kernel does not use: its duplicate address detection found another owner.
    refused: BTreeSet<(u32, IpAddr)>,
    pub(crate) forwards: Vec<Forward>,
    /// Why `forwards` could not be read: an ordinary user may not.
    pub(crate) unread_forwards: Option<Unread>,
    /// Why links and addresses could not be read.
    pub(crate) unread_links: Option<Unread>,
}

impl Host {
    pub(crate) fn look(search_path: &str, unseen: &mut Vec<String>) -> Self {
        let mut host = Self::default();
        let kernel = Kernel::host().and_then(|kernel| {
            host.links = link::list(&kernel, None)?;
            for (index, address) in addr::list_states(&kernel, None)? {
                host.addresses.entry(index).or_default().push(address.net);
                host.owners.entry(address.net.ip()).or_insert(index);
                host.refused.extend(Some((index, address.net.ip())).filter(|_| address.dad_failed));
            }
            Ok(kernel)
        });
        host.kernel = kernel.map_err(|error| host.unread_links = Some(Unread::new("the node's links", &error))).ok();
        match forwards::list(search_path) {
            Ok(forwards) => host.forwards = forwards,
            Err(error) => host.unread_forwards = Some(Unread::new("forwarded ports", &error)),
        }
        unseen.extend(host.unread_links.iter().chain(&host.unread_forwards).map(ToString::to_string));
        for (place, link) in host.links.iter().enumerate() {
            host.by_name.insert(link.name.clone(), place);
            host.by_index.insert(link.index, place);
            if let Some(master) = link.master {
                *host.ports.entry(master).or_default() += 1;
            }
        }
        host
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Link> {
        self.by_name.get(name).and_then(|place| self.links.get(*place))
    }

    pub(crate) fn at(&self, index: u32) -> Option<&Link> {
        self.by_index.get(&index).and_then(|place| self.links.get(*place))
    }

    pub(crate) fn owner(&self, address: IpAddr) -> Option<&Link> {
        self.at(*self.owners.get(&address)?)
    }

    /// The node's ways to other networks, by gateway and link.
    pub(crate) fn ways_out(&self) -> Vec<String> {
        let way = |outside: &IpAddr| {
            let found = route::lookup(self.kernel.as_ref()?, *outside).ok()?;
            let link = self.at(found.link?)?;
            let family = if outside.is_ipv4() { "IPv4" } else { "IPv6" };
            let via = found.gateway.map_or(String::new(), |gateway| format!(" by {gateway}"));
            Some(format!("{family}{via} on {}", link.name))
        };
        Family::BOTH.map(outside).iter().filter_map(way).collect()
    }

    pub(crate) fn addresses_of(&self, name: &str) -> &[IpNetwork] {
        let addresses = self.find(name).and_then(|link| self.addresses.get(&link.index));
        addresses.map_or(&[], Vec::as_slice)
    }

    /// Whether the kernel does not use an address that the link of this name has, as another has it, too.
    pub(crate) fn refuses(&self, name: &str, address: IpAddr) -> bool {
        self.find(name).is_some_and(|link| self.refused.contains(&(link.index, address)))
    }

    pub(crate) fn shared(&self, name: &str) -> Option<Shared> {
        let link = self.find(name)?;
        Some(Shared {
            name: link.name.clone(),
            kind: link.kind.name().to_owned(),
            up: link.up,
            mtu_bytes: link.mtu_bytes,
            addresses: self.addresses.get(&link.index).cloned().unwrap_or_default(),
            ports: self.ports.get(&link.index).copied().unwrap_or_default(),
        })
    }

    pub(crate) fn host_link(&self, link: &Link) -> HostLink {
        let master = link.master.and_then(|index| self.at(index)).map(|master| master.name.clone());
        HostLink { name: link.name.clone(), master, up: link.up }
    }

    /// The rate that a link sends at most.
    pub(crate) fn rate_bytes(&self, link: &Link) -> Option<u64> {
        // A link without a queue of its own has no limit, and is not asked for.
        match tc::find_root(self.kernel.as_ref()?, link) {
            Ok(Some(Qdisc::Tbf(limit))) => Some(limit.rate_bytes),
            Ok(Some(Qdisc::Htb { .. })) => Some(Htb::find(self.kernel.as_ref()?, link).ok()??.rate_bytes),
            Ok(_) | Err(_) => None,
        }
    }

    /// Marked links that no network has, by the indexes of those that one has.
    pub(crate) fn unowned(&self, seen: &BTreeSet<u32>) -> Vec<String> {
        let is_left =
            |link: &&Link| alias::is_marked(link) && link.kind == link::Kind::Veth && !seen.contains(&link.index);
        let alias = |link: &Link| link.alias.clone().unwrap_or_default();
        self.links.iter().filter(is_left).map(|link| format!("link {}, marked {}", link.name, alias(link))).collect()
    }
}

/// The node's host name; empty without /proc.
pub(crate) fn name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim_end().to_owned()
}
