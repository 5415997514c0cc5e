//! What a network's plugins left on the node, and whether its containers live: the [`Inventory`] that a runtime gives
//! to `libcni` before GC.
//!
//! Three things speak for an attachment: the mark on the host end of its veth, its reservation in host-local's folder,
//! and the comments of its rules. It lives if its veth's other end is in a namespace that exists; without a marked veth
//! (the reference's has no mark, and macvlan has no veth), if an address of it is on an interface in any namespace but
//! the node's own. Nothing here changes the node, and nothing waits for a lock.

mod life;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use cni_spec::{CniError, Code, ConfObject, ContainerId, IfName, NetworkName};
use filter::Noted;
use host_local::inventory::Reservation;
use interface::{failed, host_veth};
use libcni::inventory::{Inventory, Life, OnNode};
use libcni::{AttachmentId, NetworkConf, PluginObject};
use life::Peers;
use netops::Kernel;
use netops::link::Link;
use netops::places::Places;

/// An ADD that began this long ago may still be under way.
const YOUNG: Duration = Duration::from_secs(60);

/// The inventory of the node that the calling thread is on.
#[derive(Debug, Clone, Default)]
pub struct Node {
    /// `PATH`, for iptables of the legacy variant.
    pub search_path: String,
}

impl Node {
    /// As [`Inventory::list`], with the objects as data.
    ///
    /// # Errors
    /// The node's state cannot be read.
    pub fn look(&self, network: &NetworkConf, known: &[AttachmentId]) -> Result<Vec<Seen>, CniError> {
        let name = network.network_name()?;
        let mut found = Found::default();
        found.add_links(&name, known)?;
        found.add_reservations(network)?;
        found.add_rules(&name, known, &self.search_path)?;
        Ok(found.evaluate())
    }
}

impl Inventory for Node {
    fn list(&self, network: &NetworkConf, known: &[AttachmentId]) -> Result<Vec<OnNode>, CniError> {
        Ok(self.look(network, known)?.into_iter().map(OnNode::from).collect())
    }
}

/// What the node has of one attachment.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The attachment; `None` if the mark does not identify it.
    pub id: Option<AttachmentId>,
    /// The host's links with its mark.
    pub links: Vec<Link>,
    /// Its addresses in host-local's folders, with the time that each was given.
    pub reserved: Vec<(IpAddr, SystemTime)>,
    /// Its rules in the packet filter, as text for people.
    pub rules: Vec<String>,
    /// Whether its container lives.
    pub life: Life,
}

impl From<Seen> for OnNode {
    fn from(seen: Seen) -> Self {
        let links = seen.links.iter().map(|link| format!("link {}", link.name));
        let addresses = seen.reserved.iter().map(|(address, _)| format!("address {address}"));
        let objects = links.chain(addresses).chain(seen.rules).collect();
        Self { id: seen.id, objects, life: seen.life }
    }
}

/// What the plugins of a network whose addresses are host-local's get on stdin.
#[must_use]
pub fn host_locals(network: &NetworkConf) -> Vec<ConfObject> {
    let objects = (0..network.plugins.len()).filter_map(|index| network.plugin_conf(index));
    let objects = objects.filter_map(|bytes| ConfObject::parse(&bytes).ok());
    let is_its = |object: &ConfObject| matches!(object.ipam_type(), Ok(Some(ipam)) if ipam.as_str() == "host-local");
    objects.filter(is_its).collect()
}

/// host-local's folders of a network.
#[must_use]
pub fn stores(network: &NetworkConf) -> Vec<PathBuf> {
    let Ok(name) = network.network_name() else { return Vec::new() };
    let of_plugin = |plugin: &PluginObject| host_local::inventory::folder(&name, plugin.find("ipam")?);
    let mut stores: Vec<PathBuf> = network.plugins.iter().filter_map(of_plugin).collect();
    stores.dedup();
    stores
}

/// What speaks for one attachment.
#[derive(Debug, Default)]
struct Evidence {
    links: Vec<Link>,
    reserved: Vec<(IpAddr, SystemTime)>,
    rules: Vec<String>,
    /// Its addresses, which count where there is no link.
    addresses: Vec<IpAddr>,
    /// What its links say.
    life: Option<Life>,
    is_young: bool,
}

/// Attachments in order, by container and interface; those whose mark names no attachment by the mark.
#[derive(Debug, Default)]
struct Found {
    named: BTreeMap<(ContainerId, IfName), Evidence>,
    nameless: BTreeMap<String, Evidence>,
}

impl Found {
    fn of(&mut self, id: &AttachmentId) -> &mut Evidence {
        self.named.entry((id.container_id.clone(), id.ifname.clone())).or_default()
    }

    /// The attachment that an object speaks for. Reservations of the older form and rules of iptables name no
    /// interface, and GC keeps them for any of the container's.
    fn id(&self, container_id: ContainerId, ifname: Option<IfName>) -> Option<AttachmentId> {
        let of_container = |(container, _): &&(ContainerId, IfName)| *container == container_id;
        let seen = || self.named.keys().find(of_container).map(|(_, ifname)| ifname.clone());
        let ifname = ifname.or_else(seen).or_else(|| IfName::parse("eth0").ok())?;
        Some(AttachmentId { container_id, ifname })
    }

    fn add_links(&mut self, network: &NetworkName, known: &[AttachmentId]) -> Result<(), CniError> {
        let host = Kernel::host().map_err(failed)?;
        let peers = Peers::new(&host);
        for (link, owner) in host_veth::list(&host, network).map_err(failed)? {
            let owner = owner.map(AttachmentId::from);
            let alias = link.alias.clone().unwrap_or_default();
            let owner = owner.or_else(|| known.iter().find(|id| alias_of(network, id) == alias).cloned());
            let evidence = match &owner {
                Some(id) => self.of(id),
                None => self.nameless.entry(alias).or_default(),
            };
            evidence.life = evidence.life.max(Some(peers.life(&link)));
            evidence.links.push(link);
        }
        Ok(())
    }

    fn add_reservations(&mut self, conf: &NetworkConf) -> Result<(), CniError> {
        for folder in stores(conf) {
            let unreadable =
                |error| CniError::new(Code::STATE, format!("cannot read store {}: {error}", folder.display()));
            for reservation in host_local::inventory::list(&folder).map_err(unreadable)? {
                self.add_reservation(reservation);
            }
        }
        Ok(())
    }

    fn add_reservation(&mut self, reservation: Reservation) {
        let Reservation { address, container_id, ifname, written } = reservation;
        let Some(id) = self.id(container_id, ifname) else { return };
        let evidence = self.of(&id);
        evidence.reserved.push((address, written));
        evidence.addresses.push(address);
        // A time in the future means that the clock was set back: the age is unknown.
        evidence.is_young |= SystemTime::now().duration_since(written).map_or(true, |age| age < YOUNG);
    }

    fn add_rules(&mut self, network: &NetworkName, known: &[AttachmentId], search_path: &str) -> Result<(), CniError> {
        let named = self.named.keys().cloned();
        let named = named.map(|(container_id, ifname)| AttachmentId { container_id, ifname });
        let by_key: BTreeMap<String, AttachmentId> =
            known.iter().cloned().chain(named).map(|id| (key_of(network, &id), id)).collect();
        for Noted { key, container, ifname, address, object } in
            filter::list(network.as_str(), search_path).map_err(failed)?
        {
            let container = container.and_then(|container| ContainerId::parse(&container).ok());
            let ifname = ifname.and_then(|ifname| IfName::parse(&ifname).ok());
            let named = || self.id(container?, ifname);
            let evidence = match by_key.get(&key).cloned().or_else(named) {
                Some(id) => self.of(&id),
                None => self.nameless.entry(key).or_default(),
            };
            evidence.rules.push(object);
            evidence.addresses.extend(address);
        }
        Ok(())
    }

    /// The conclusion from each attachment's evidence. Namespaces are searched only where links are not enough.
    fn evaluate(self) -> Vec<Seen> {
        let is_undecided = |evidence: &&Evidence| evidence.life != Some(Life::Lives) && !evidence.addresses.is_empty();
        let all = || self.named.values().chain(self.nameless.values());
        let places = all().any(|evidence| is_undecided(&evidence)).then(Places::look);
        let life = |evidence: &Evidence| {
            let by_address = places.as_ref().filter(|_| is_undecided(&evidence));
            let by_address = by_address.map(|places| match places.find(&evidence.addresses) {
                Some(true) => Life::Lives,
                Some(false) => Life::Gone,
                None => Life::Unknown,
            });
            let by_age = if evidence.is_young { Life::Young } else { Life::Gone };
            evidence.life.max(by_address).map_or(by_age, |life| life.max(by_age))
        };
        let id = |(container_id, ifname)| Some(AttachmentId { container_id, ifname });
        let lives: Vec<Life> = all().map(life).collect();
        let named = self.named.into_iter().map(|(key, evidence)| (id(key), evidence));
        let nameless = self.nameless.into_values().map(|evidence| (None, evidence));
        let seen = |((id, evidence), life)| {
            let Evidence { links, reserved, rules, .. } = evidence;
            Seen { id, links, reserved, rules, life }
        };
        named.chain(nameless).zip(lives).map(seen).collect()
    }
}

fn alias_of(network: &NetworkName, id: &AttachmentId) -> String {
    host_veth::alias(&id.to(network))
}

fn key_of(network: &NetworkName, id: &AttachmentId) -> String {
    filter::Names::from(&id.to(network)).key()
}
