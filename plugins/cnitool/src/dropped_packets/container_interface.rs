//! The container's side: its interface and addresses, from inside its namespace.

use std::fmt;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use netops::addr::{self, Address};
use netops::link::{self, Kind, Link, Mac};
use netops::{Kernel, Netns, sysctl};

use super::default_route::is_global;
use super::mtu::IPV6_MIN_MTU;
use super::way_to_container::{Carrier, sets};
use super::{Cause, Findings, Level, Reason, Sight};
use crate::node_networks::{Attachment, Network};
use crate::shell_words::{self, word};

/// The faults of the container's side, or the reason why it cannot be read.
enum Inside {
    Unseen(String),
    Missing(String),
}

impl Sight<'_> {
    /// Addresses of other living attachments that a process in the container has given its interface.
    fn taken(&self, of: (&Network, &Attachment, &Carrier), link: &Link, addresses: &[IpAddr], findings: &mut Findings) {
        let (_, attachment, _) = of;
        for address in addresses.iter().filter(|address| !attachment.addresses.contains(address)) {
            if let Some(node) = self.host.owner(*address).filter(|_| is_global(*address)) {
                let (name, of) = (&link.name, &node.name);
                let why = format!("{name} in the container has {address}, too, which the node has on link {of}");
                let what = format!("a container has given itself {address}, which the node has");
                let netns = word(&attachment.netns);
                let remedy = [format!("nsenter --net={netns} ip address flush to {address} dev {}", word(name))];
                findings.reasons.push(Reason::new(Cause::Duplicate, Level::Error, why).shared(what).mended_by(remedy));
            }
            for (network, other) in self.other_holders(of, *address) {
                let (name, owner) = (&link.name, other.full_name());
                let why = format!(
                    "{name} in the container has {address}, too, which {owner} got in network {}",
                    network.name
                );
                let what = format!("a container has given itself {address}, which another container has");
                let remedy = format!(
                    "nsenter --net={} ip address flush to {address} dev {}",
                    word(&attachment.netns),
                    word(name)
                );
                let reason = Reason::new(Cause::Duplicate, Level::Error, why).shared(what);
                findings.reasons.push(reason.mended_by([remedy]));
            }
        }
    }

    /// Why an interface without any IPv6 address cannot have one, with the command that lets it. Not even an address of the
    /// link: IPv6 is off, or the MTU is below what it needs.
    fn ipv6_again(&self, attachment: &Attachment, link: &Link) -> Option<(String, String)> {
        let enter = format!("nsenter --net={}", word(&attachment.netns));
        let name = &link.name;
        if !link.up {
            return None;
        }
        if link.mtu_bytes < IPV6_MIN_MTU {
            let own = attachment.links.iter().filter_map(|link| self.host.find(&link.name)).map(|link| link.mtu_bytes);
            let mtu = own.max().unwrap_or(1500).max(IPV6_MIN_MTU);
            let why = format!("its MTU is {}, and IPv6 needs {IPV6_MIN_MTU}", link.mtu_bytes);
            return Some((why, format!("{enter} ip link set {} mtu {mtu}", word(name))));
        }
        let key = format!("net.ipv6.conf.{}.disable_ipv6", name.replace('.', "/"));
        let read = || sysctl::Key::of_link("ipv6", name, "disable_ipv6").and_then(|key| sysctl::find(&key));
        let netns = Netns::open(&attachment.netns).ok()?;
        if sysctl::in_netns(&netns, read).ok()?.ok().flatten().as_deref() != Some("1") {
            return None;
        }
        Some(("IPv6 is disabled there".to_owned(), format!("{enter} {}", shell_words::sysctl(&key, "0"))))
    }

    pub(super) fn inside(
        &self,
        network: &Network,
        attachment: &Attachment,
        carrier: &Carrier,
        findings: &mut Findings,
    ) {
        let (kernel, link, held) = match look(attachment) {
            Ok(found) => found,
            // Plugin loopback sets lo up, whatever the name of the interface.
            Err(Inside::Missing(_))
                if network.plugins.iter().all(|plugin| on_node::plugin_of(plugin) == "loopback") =>
            {
                return;
            }
            Err(Inside::Missing(what)) => {
                let why = format!("the container has no {what}");
                // Without the link that it was stacked on, ADD fails.
                let is_of_master =
                    |reason: &&Reason| reason.cause == Cause::LinkGone && matches!(carrier, Carrier::Stacked { .. });
                let of_master = findings.reasons.iter().find(is_of_master).map(|reason| reason.remedy.clone());
                let remedy = of_master.unwrap_or_else(|| vec!["Start the container anew.".to_owned()]);
                findings.reasons.push(Reason::new(Cause::Inside, Level::Error, why).mended_by(remedy));
                return;
            }
            Err(Inside::Unseen(why)) => {
                findings.unseen.push(format!("the container's side: {why}"));
                return;
            }
        };
        let nets: Vec<IpNetwork> = held.iter().map(|address| address.net).collect();
        let addresses: Vec<IpAddr> = nets.iter().map(IpNetwork::ip).collect();
        findings.mac = link.mac;
        if attachment.links.is_empty() && link.kind == Kind::Veth && carrier.is_pair() {
            let why = format!("the host's end of {} in the container is not on the node", link.name);
            let remedy = ["Start the container anew.".to_owned()];
            findings.reasons.push(Reason::new(Cause::LinkDown, Level::Error, why).mended_by(remedy));
            return;
        }
        let enter = format!("nsenter --net={} ip", word(&attachment.netns));
        let missing = |findings: &mut Findings, why: String, remedy: Option<String>| {
            findings.reasons.push(Reason::new(Cause::Inside, Level::Error, why).mended_by(remedy));
        };
        // By key `disableContainerInterface` it is down, and the container sets it up.
        let is_meant = attachment.conf.as_ref().is_some_and(|conf| sets(conf, "disableContainerInterface"));
        if !link.up && is_meant {
            return;
        }
        if !link.up {
            missing(
                findings,
                format!("{} is down in the container", link.name),
                Some(format!("{enter} link set {} up", word(&link.name))),
            );
        }
        if link.up
            && !link.carrier
            && matches!(carrier, Carrier::Stacked { master: None, .. })
            && link.kind != Kind::Dummy
        {
            let why =
                format!("{} in the container has no carrier: its other end is down, or no cable is in it", link.name);
            let remedy = ["Connect it, or set its other end up.".to_owned()];
            findings.reasons.push(Reason::new(Cause::LinkDown, Level::Warning, why).mended_by(remedy));
        }
        self.narrow_end(attachment, &link, findings);
        let is_missing = |address: &&IpAddr| !addresses.contains(address);
        if attachment.addresses.iter().any(|address| is_missing(&address))
            && let Some(guest) = find_guest(&kernel, &link)
        {
            findings
                .unseen
                .push(format!("the container's side: {} is {guest}, which may have its addresses", link.name));
            return;
        }
        let has_ipv6 = addresses.iter().any(IpAddr::is_ipv6);
        let mut first = self.ipv6_again(attachment, &link).filter(|_| !has_ipv6);
        for address in attachment.addresses.iter().filter(is_missing) {
            let net = attachment.result.ips.iter().map(|ip| ip.address).find(|net| net.ip() == *address);
            let why = match &first {
                Some((why, _)) if address.is_ipv6() => format!(": {why}"),
                _ => String::new(),
            };
            let first = if address.is_ipv6() { first.take() } else { None };
            let remedy = net.map(|net| format!("{enter} address add {net} dev {}", word(&link.name)));
            let remedy = first.map(|(_, command)| command).into_iter().chain(remedy);
            let why = format!("{} in the container does not have {address}{why}", link.name);
            findings.reasons.push(Reason::new(Cause::Inside, Level::Error, why).mended_by(remedy));
        }
        findings.reasons.extend(other_prefixes(attachment, &link, &nets));
        findings.reasons.extend(unused(attachment, &link, &held));
        self.taken((network, attachment, carrier), &link, &addresses, findings);
        self.neighbours_inside(attachment, carrier, (&kernel, &link), findings);
        self.ways_inside(attachment, carrier, (&kernel, &link, &held), findings);
    }
}

/// The addresses that the kernel does not use, as duplicate address detection found them with another station.
fn unused(attachment: &Attachment, link: &Link, held: &[Address]) -> Vec<Reason> {
    let ip = format!("nsenter --net={} ip", word(&attachment.netns));
    let name = word(&link.name);
    let failed = held.iter().filter(|own| own.dad_failed && attachment.addresses.contains(&own.net.ip()));
    let reason = |own: &Address| {
        let net = own.net;
        let why = format!(
            "{} in the container does not use {net} (dadfailed): another station on its network had the address",
            link.name
        );
        let remedy = [format!("{ip} address del {net} dev {name}"), format!("{ip} address add {net} dev {name}")];
        Reason::new(Cause::Inside, Level::Error, why).mended_by(remedy)
    };
    failed.map(reason).collect()
}

/// The addresses that have another prefix length than ADD gave them: with it the container takes others for its neighbours.
fn other_prefixes(attachment: &Attachment, link: &Link, nets: &[IpNetwork]) -> Vec<Reason> {
    let ip = format!("nsenter --net={} ip", word(&attachment.netns));
    let name = word(&link.name);
    let given = attachment.result.ips.iter().map(|ip| ip.address).filter(|given| !nets.contains(given));
    let pairs = given.filter_map(|given| Some((given, nets.iter().find(|net| net.ip() == given.ip())?)));
    let reason = |(given, has): (IpNetwork, &IpNetwork)| {
        let why = format!("{} in the container has {has}, and ADD gave it {given}", link.name);
        let (add, del) = (format!("{ip} address add {given} dev {name}"), format!("{ip} address del {has} dev {name}"));
        // IPv4 loses its routes with the last address, and IPv6 has an address once.
        let remedy = if given.is_ipv4() { [add, del] } else { [del, add] };
        Reason::new(Cause::Inside, Level::Error, why).mended_by(remedy)
    };
    pairs.map(reason).collect()
}

/// The container's kernel and its interface; `None`: its namespace cannot be read.
pub(super) fn end(attachment: &Attachment) -> Option<(Kernel, Link)> {
    look(attachment).ok().map(|(kernel, link, _)| (kernel, link))
}

/// The Ethernet address that the container's interface has now; `None`: its namespace cannot be read.
pub(super) fn mac(attachment: &Attachment) -> Option<Mac> {
    look(attachment).ok().and_then(|(_, link, _)| link.mac)
}

/// The index, among the node's links, of the link that the container's own is stacked on.
pub(super) fn parent(attachment: &Attachment) -> Option<u32> {
    let (_, link, _) = look(attachment).ok()?;
    link.peer.filter(|_| link.peer_netns_id.is_some())
}

/// The largest packet that the container's interface sends.
pub(super) fn mtu_bytes(attachment: &Attachment) -> Option<u32> {
    look(attachment).ok().map(|(_, link, _)| link.mtu_bytes)
}

fn look(attachment: &Attachment) -> Result<(Kernel, Link, Vec<Address>), Inside> {
    let unseen = |error: &dyn fmt::Display| Inside::Unseen(error.to_string());
    if attachment.netns.is_empty() {
        return Err(Inside::Unseen("no path to its namespace is known".to_owned()));
    }
    let netns = Netns::open(&attachment.netns).map_err(|error| unseen(&error))?;
    let kernel = Kernel::in_netns(&netns).map_err(|error| unseen(&error))?;
    let name = attachment.id.ifname.as_str();
    let link = link::find(&kernel, name).map_err(|error| unseen(&error))?;
    let link = link.ok_or_else(|| Inside::Missing(format!("interface {name}")))?;
    let addresses = addr::list(&kernel, &link).map_err(|error| unseen(&error))?;
    Ok((kernel, link, addresses))
}

/// The way by which a virtual machine takes the container's interface, if one does: its guest then has the addresses.
pub(super) fn find_guest(kernel: &Kernel, link: &Link) -> Option<String> {
    let links = link::list(kernel, None).ok()?;
    let takes = |other: &&Link| match &other.kind {
        Kind::Bridge(_) => link.master == Some(other.index),
        Kind::Tun(_) => true,
        kind => kind.name() == "macvtap" && other.peer == Some(link.index) && other.peer_netns_id.is_none(),
    };
    let other = links.iter().find(takes)?;
    Some(match &other.kind {
        Kind::Bridge(_) => format!("a port of bridge {} in the container", other.name),
        kind => format!("beside {} {} of a virtual machine", kind.name(), other.name),
    })
}
