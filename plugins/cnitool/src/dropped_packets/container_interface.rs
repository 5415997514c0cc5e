//! The container's side: its interface and addresses, from inside its namespace.

use std::cell::OnceCell;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use netops::addr::{self, Address};
use netops::link::{self, Kind as LinkKind, Link};
use netops::route::{self, MAIN_TABLE, Refusing, Route};
use netops::{Family, Kernel, Netns, sysctl};

use super::gateways::is_mute;
use super::host_routes::outside;
use super::mtu::IPV6_MIN_MTU;
use super::rows::{At, Evidence, name, of, rows};
use super::way_to_container::{Carrier, sets};
use crate::doctor::{ANEW, Unread, advice};
use crate::node_networks::{Attachment, Network};
use crate::shell_words::{self, word};

rows! {
    ContainerSide Error without_interface: "the container has no interface {0}";
    LinkDown Error without_end: "the host's end of {0} in the container is not on the node"
        advice "Start the container anew.";
    ContainerSide Error down_inside: "{0} in the container is down"
        help "nsenter --net={1} ip link set {0} up";
    ContainerSide Error mute_inside: "{0} in the container neither asks nor answers for Ethernet addresses (NOARP)"
        help "nsenter --net={1} ip link set {0} arp on";
    ContainerSide Error without_address: "{0} in the container does not have {1}{2}";
    // With it the container takes others for its neighbours.
    ContainerSide Error other_prefixes: "{0} in the container has {1}, and ADD gave it {2}";
    ContainerSide Error unused: "{0} in the container does not use {1} (dadfailed): another station on its network had the address"
        help "nsenter --net={2} ip address del {1} dev {0}; nsenter --net={2} ip address add {1} dev {0}";
}

pub(super) struct Inside {
    pub(super) kernel: Kernel,
    pub(super) link: Link,
    pub(super) held: Vec<Address>,
    netns: String,
    /// The routes to other networks, and the main tables, by family, read when a check first asks for them.
    ways: OnceCell<[Option<Route>; 2]>,
    tables: OnceCell<[(Vec<Route>, Vec<Refusing>); 2]>,
}

/// What of the container's side can be looked at.
pub(super) enum Looked {
    At(Inside),
    /// The interface is there, and one reason explains all else of it, or all is meant to be so.
    Stopped(Inside),
    /// There is no interface, which is a fault unless the network gives none.
    Missing {
        is_fault: bool,
    },
    Unseen(Unread),
}

impl Looked {
    pub(super) fn of(network: &Network, attachment: &Attachment, carrier: &Carrier) -> Self {
        const SIDE: &str = "the container's side";
        let inside = match Inside::read(attachment) {
            Ok(Some(inside)) => inside,
            // Plugin loopback sets lo up, whatever the name of the interface.
            Ok(None) => {
                let is_fault = network.plugins.iter().any(|plugin| on_node::plugin_of(plugin) != "loopback");
                return Self::Missing { is_fault };
            }
            Err(error) => return Self::Unseen(Unread::new(SIDE, &*error)),
        };
        let is_without_end = is_without_end(attachment, carrier, &inside.link);
        // By key `disableContainerInterface` it is down, and the container sets it up.
        let is_meant = attachment.conf.as_ref().is_some_and(|conf| sets(conf, "disableContainerInterface"));
        if is_without_end || !inside.link.up && is_meant {
            return Self::Stopped(inside);
        }
        let is_missing = |address: &IpAddr| inside.held.iter().all(|own| own.net.ip() != *address);
        if attachment.addresses.iter().any(is_missing)
            && let Some(guest) = find_guest(&inside.kernel, &inside.link)
        {
            let why = format!("{} is {guest}, which may have its addresses", inside.link.name);
            return Self::Unseen(Unread::told(SIDE, why).expected());
        }
        Self::At(inside)
    }
}

fn is_without_end(attachment: &Attachment, carrier: &Carrier, link: &Link) -> bool {
    attachment.links.is_empty() && link.kind == LinkKind::Veth && carrier.is_pair()
}

impl Inside {
    pub(super) fn of(attachment: &Attachment) -> Option<Self> {
        Self::read(attachment).ok().flatten()
    }

    fn read(attachment: &Attachment) -> anyhow::Result<Option<Self>> {
        let netns = attachment.netns.clone();
        anyhow::ensure!(!netns.is_empty(), "no path to its namespace is known");
        let kernel = Kernel::in_netns(&Netns::open(&netns)?)?;
        let Some(link) = link::find(&kernel, attachment.id.ifname.as_str())? else { return Ok(None) };
        let held = addr::list(&kernel, &link)?;
        Ok(Some(Self { kernel, link, held, netns, ways: OnceCell::new(), tables: OnceCell::new() }))
    }

    pub(super) fn way(&self, family: Family) -> Option<&Route> {
        let [v4, v6] = self.ways.get_or_init(|| Family::BOTH.map(|of| route::lookup(&self.kernel, outside(of)).ok()));
        if family == Family::V4 { v4.as_ref() } else { v6.as_ref() }
    }

    /// The unicast routes of the main table, and those that refuse packets.
    pub(super) fn table(&self, family: Family) -> &(Vec<Route>, Vec<Refusing>) {
        let read = |of| route::list_table(&self.kernel, MAIN_TABLE, of).unwrap_or_default();
        let [v4, v6] = self.tables.get_or_init(|| Family::BOTH.map(read));
        if family == Family::V4 { v4 } else { v6 }
    }

    /// A command of `ip` in the namespace.
    pub(super) fn ip(&self, words: &str) -> String {
        format!("{} {words}", self.program())
    }

    pub(super) fn program(&self) -> String {
        format!("nsenter --net={} ip", word(&self.netns))
    }

    /// Why an interface without any IPv6 address cannot have one, with the command that lets it. Not even an address of the
    /// link: IPv6 is off, or the MTU is below what it needs.
    fn ipv6_again(&self, ends: impl Iterator<Item = u32>) -> Option<(String, String)> {
        let link = &self.link;
        if !link.up || self.held.iter().any(|own| own.net.is_ipv6()) {
            return None;
        }
        if link.mtu_bytes < IPV6_MIN_MTU {
            let why = format!(": its MTU is {}, and IPv6 needs {IPV6_MIN_MTU}", link.mtu_bytes);
            let mtu = ends.max().unwrap_or(1500).max(IPV6_MIN_MTU);
            return Some((why, self.ip(&format!("link set {} mtu {mtu}", word(&link.name)))));
        }
        let read = || sysctl::Key::of_link("ipv6", &link.name, "disable_ipv6").and_then(|key| sysctl::find(&key));
        let value = sysctl::in_netns(&Netns::open(&self.netns).ok()?, read).ok()?.ok().flatten();
        let key = name(&["ipv6", "conf", &link.name, "disable_ipv6"]);
        let on = format!("nsenter --net={} {}", word(&self.netns), shell_words::sysctl(&key, "0"));
        value.filter(|value| value == "1").map(|_| (": IPv6 is disabled there".to_owned(), on))
    }
}

impl At<'_> {
    fn without_interface(&self) -> Vec<Evidence> {
        // Without the link that it was stacked on, ADD fails: what mends that comes first.
        let is_without_master = matches!(&self.carrier, Carrier::Stacked { master: Some(master), .. } if self.sight.host.find(master).is_none());
        let anew = match &self.carrier {
            Carrier::Stacked { master: Some(master), .. } if is_without_master => {
                format!("Bring link {master} back, or set key master to another one; then start the container anew.")
            }
            _ => ANEW.to_owned(),
        };
        let is_fault = matches!(self.looked, Looked::Missing { is_fault: true });
        is_fault.then(|| of([&self.attachment.id.ifname]).and([advice(anew)])).into_iter().collect()
    }

    fn without_end(&self) -> Vec<Evidence> {
        let link = self.looked.link().filter(|link| is_without_end(self.attachment, &self.carrier, link));
        link.map(|link| of([&link.name])).into_iter().collect()
    }

    fn down_inside(&self) -> Vec<Evidence> {
        self.inside_is(|link| !link.up)
    }

    fn mute_inside(&self) -> Vec<Evidence> {
        self.inside_is(is_mute)
    }

    fn inside_is(&self, is_so: impl Fn(&Link) -> bool) -> Vec<Evidence> {
        let inside = self.inside().filter(|inside| is_so(&inside.link));
        inside.map(|inside| of([&inside.link.name, &inside.netns])).into_iter().collect()
    }

    /// The addresses that ADD gave the interface, and that it has not.
    fn without_address(&self) -> Vec<Evidence> {
        let Some(inside) = self.inside() else { return Vec::new() };
        let mut first = inside.ipv6_again(self.ends().map(|link| link.mtu_bytes));
        let mut missing: Vec<IpAddr> = self.attachment.addresses.clone();
        missing.retain(|address| inside.held.iter().all(|own| own.net.ip() != *address));
        let evidence = |address: IpAddr| {
            let net = self.given_nets().find(|net| net.ip() == address);
            let add = net.map(|net| inside.ip(&format!("address add {net} dev {}", word(&inside.link.name))));
            let (why, command) = first.take_if(|_| address.is_ipv6()).unzip();
            of([&inside.link.name, &address, &why.unwrap_or_default()]).and(command).and(add)
        };
        missing.into_iter().map(evidence).collect()
    }

    fn given_nets(&self) -> impl Iterator<Item = IpNetwork> {
        self.attachment.result.ips.iter().map(|ip| ip.address)
    }

    fn other_prefixes(&self) -> Vec<Evidence> {
        let Some(inside) = self.inside() else { return Vec::new() };
        let name = &inside.link.name;
        let nets = || inside.held.iter().map(|own| own.net);
        let other = |given: IpNetwork| {
            let has = nets().find(|net| net.ip() == given.ip()).filter(|_| nets().all(|net| net != given))?;
            let [add, del] = [("add", given), ("del", has)]
                .map(|(verb, net)| inside.ip(&format!("address {verb} {net} dev {}", word(name))));
            // IPv4 loses its routes with the last address, and IPv6 has an address once.
            Some(of([name, &has, &given]).and(if given.is_ipv4() { [add, del] } else { [del, add] }))
        };
        self.given_nets().filter_map(other).collect()
    }

    fn unused(&self) -> Vec<Evidence> {
        let Some(inside) = self.inside() else { return Vec::new() };
        let failed =
            inside.held.iter().filter(|own| own.dad_failed && self.attachment.addresses.contains(&own.net.ip()));
        failed.map(|own| of([&inside.link.name, &own.net, &inside.netns])).collect()
    }
}

/// The way by which a virtual machine takes the container's interface, if one does: its guest then has the addresses.
pub(super) fn find_guest(kernel: &Kernel, link: &Link) -> Option<String> {
    let links = link::list(kernel, None).ok()?;
    let takes = |other: &&Link| match &other.kind {
        LinkKind::Bridge(_) => link.master == Some(other.index),
        LinkKind::Tun(_) => true,
        kind => kind.name() == "macvtap" && other.peer == Some(link.index) && other.peer_netns_id.is_none(),
    };
    let other = links.iter().find(takes)?;
    Some(match &other.kind {
        LinkKind::Bridge(_) => format!("a port of bridge {} in the container", other.name),
        kind => format!("beside {} {} of a virtual machine", kind.name(), other.name),
    })
}
