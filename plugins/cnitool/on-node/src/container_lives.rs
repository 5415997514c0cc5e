//! Whether the container of an attachment lives, by the traces that the attachment has left on the node.

use crate::{Rule, Seen, left_by_plugin};
use cni_filter::Noted;
use cni_spec::{CniError, Code, ContainerId, IfName, NetworkName};
use host_local::inventory::{Held, Owner as Reserver, list_held};
use interface::{address_in_use, alias};
use libcni::inventory::Life;
use libcni::{AttachmentId, Namespace};
use netops::all_namespaces::AllNamespaces;
use netops::link::{Kind, Link};
use netops::{Kernel, Netns, veth_peer};
use skel::inventory::{Item, Owner, Sign};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// An ADD that began this long ago may still be under way.
const YOUNG: Duration = Duration::from_secs(60);

/// The traces found of one attachment.
#[derive(Debug, Default)]
struct Evidence {
    links: Vec<Link>,
    reserved: Vec<(IpAddr, SystemTime)>,
    rules: Vec<Rule>,
    others: Vec<String>,
    /// The attachment's addresses, which count where nothing else shows life.
    addresses: Vec<IpAddr>,
    /// Namespaces of its records to which the recorded paths do not lead.
    namespaces: Vec<[u64; 2]>,
    /// The state of the container, by the attachment's links and records.
    life: Option<Life>,
    /// Whether the attachment has a mark that says nothing of the container, though that may live.
    has_undecided_mark: bool,
    is_young: bool,
}

impl Evidence {
    fn add_life(&mut self, life: Life) {
        self.life = self.life.max(Some(life));
    }

    /// Whether a search of all namespaces can say more.
    fn is_undecided(&self) -> bool {
        self.life != Some(Life::Lives) && !(self.addresses.is_empty() && self.namespaces.is_empty())
    }

    /// `find` says whether a container uses the addresses.
    fn conclude(
        &self,
        places: Option<&AllNamespaces>,
        find: impl Fn(&AllNamespaces, &[IpAddr]) -> Option<bool>,
    ) -> Life {
        let by_search = places.filter(|_| self.is_undecided()).and_then(|places| {
            let by_address = (!self.addresses.is_empty()).then(|| find(places, &self.addresses));
            let by_namespace = self.namespaces.iter().map(|numbers| places.has_namespace(*numbers));
            by_address.into_iter().chain(by_namespace).map(of_search).max()
        });
        let by_age = if self.is_young { Life::Young } else { Life::Gone };
        match self.life.max(by_search) {
            Some(life) => life.max(by_age),
            None if self.has_undecided_mark => Life::Unknown,
            None => by_age,
        }
    }
}

/// Attachments in order, by container and interface; those whose mark names no attachment by the mark.
pub(crate) struct Found<'a> {
    links: &'a [Link],
    network: &'a NetworkName,
    peers: Peers<'a>,
    named: BTreeMap<(ContainerId, IfName), Evidence>,
    nameless: BTreeMap<String, Evidence>,
}

impl<'a> Found<'a> {
    pub(crate) fn new(host: &'a Kernel, links: &'a [Link], network: &'a NetworkName) -> Self {
        let (named, nameless) = (BTreeMap::new(), BTreeMap::new());
        Self { links, network, peers: Peers::new(host), named, nameless }
    }

    fn of(&mut self, id: &AttachmentId) -> &mut Evidence {
        self.named.entry((id.container_id.clone(), id.ifname.clone())).or_default()
    }

    /// The attachment that an object belongs to. Reservations of the older form and rules of iptables name no
    /// interface, and GC keeps them for any of the container's.
    fn id(&self, container_id: ContainerId, ifname: Option<IfName>) -> Option<AttachmentId> {
        let of_container = |(container, _): &&(ContainerId, IfName)| *container == container_id;
        let seen = || self.named.keys().find(of_container).map(|(_, ifname)| ifname.clone());
        let ifname = ifname.or_else(seen).or_else(|| IfName::parse("eth0").ok())?;
        Some(AttachmentId { container_id, ifname })
    }

    pub(crate) fn add_links(&mut self, known: &[AttachmentId]) {
        let network = self.network;
        for link in alias::marked(self.links, &Kind::Veth, network) {
            let life = self.peers.life(link);
            let alias = link.alias.clone().unwrap_or_default();
            let owner = alias::Mark::of_link(link).and_then(|mark| mark.attachment_to(network)).map(AttachmentId::from);
            let is_it = |id: &&AttachmentId| alias::of(&id.to(network)) == alias;
            let evidence = match owner.or_else(|| known.iter().find(is_it).cloned()) {
                Some(id) => self.of(&id),
                None => self.nameless.entry(alias).or_default(),
            };
            evidence.add_life(life);
            evidence.links.push(link.clone());
        }
    }

    pub(crate) fn add_reservations(&mut self, folders: &[PathBuf]) -> Result<(), CniError> {
        for folder in folders {
            let unreadable =
                |error| CniError::new(Code::STATE, format!("cannot read store {}: {error}", folder.display()));
            for Held { address, owner, written } in list_held(folder).map_err(unreadable)? {
                let Reserver::Container((container_id, ifname)) = owner else { continue };
                let Some(id) = self.id(container_id, ifname) else { continue };
                let evidence = self.of(&id);
                evidence.reserved.push((address, written));
                evidence.addresses.push(address);
                // A time in the future means that the clock was set back: the age is unknown.
                evidence.is_young |= SystemTime::now().duration_since(written).map_or(true, |age| age < YOUNG);
            }
        }
        Ok(())
    }

    /// Rules of masquerade and spoof guard, and the inventories of the network's plugins. Those that name container and interface
    /// come first: they map the short hash in other items to container and interface.
    pub(crate) fn add_items(&mut self, rules: Vec<Noted>, others: Vec<Item>, known: &[AttachmentId]) {
        let rules = rules.into_iter().map(|noted| (Some(Rule::from(&noted)), left_by_plugin::of_rule(noted)));
        let items = rules.map(|(rule, item)| (item, rule)).chain(others.into_iter().map(|item| (item, None)));
        let is_whole = |(item, _): &(Item, Option<Rule>)| matches!(item.owner, Owner::Attachment(..));
        let (whole, partial): (Vec<_>, Vec<_>) = items.partition(is_whole);
        for (item, rule) in whole {
            self.add_item(item, rule, &BTreeMap::new());
        }
        let words = if partial.is_empty() { BTreeMap::new() } else { self.words(known) };
        for (item, rule) in partial {
            self.add_item(item, rule, &words);
        }
    }

    fn add_item(&mut self, item: Item, rule: Option<Rule>, words: &BTreeMap<String, AttachmentId>) {
        let Item { owner, object, signs } = item;
        let (id, word) = match owner {
            Owner::Attachment(container_id, ifname) => (Some(AttachmentId { container_id, ifname }), String::new()),
            Owner::Container(container) => (self.id(container, None), String::new()),
            Owner::Word(word) => (words.get(&word).cloned(), word),
        };
        let (links, peers) = (self.links, &self.peers);
        let life = |index: u32| links.iter().find(|link| link.index == index).map(|link| peers.life(link));
        let lives: Vec<Life> = signs.iter().filter_map(|sign| sign_of_link(sign).and_then(life)).collect();
        let evidence = match &id {
            Some(id) => self.of(id),
            None => self.nameless.entry(word).or_default(),
        };
        // Several rules may have one text.
        match rule {
            Some(rule) => evidence.rules.push(rule),
            None if !evidence.others.contains(&object) => evidence.others.push(object),
            None => {}
        }
        lives.into_iter().for_each(|life| evidence.add_life(life));
        for sign in signs {
            match sign {
                Sign::Address(address) => evidence.addresses.push(address),
                Sign::Namespace { path, numbers } if leads_to(&path, numbers) => evidence.add_life(Life::Lives),
                Sign::Namespace { path, numbers } => {
                    // Another mount namespace may have it mounted, which not every process sees.
                    if Namespace::of(&path.to_string_lossy()) == Namespace::Unknown {
                        evidence.add_life(Life::Unknown);
                    }
                    evidence.namespaces.push(numbers);
                }
                Sign::Unknown => evidence.add_life(Life::Unknown),
                Sign::Undecided => evidence.has_undecided_mark = true,
                Sign::Link(_) => {}
            }
        }
    }

    /// The words by which items may name the attachments that are known, and those found so far.
    fn words(&self, known: &[AttachmentId]) -> BTreeMap<String, AttachmentId> {
        let named = self.named.keys().cloned();
        let named = named.map(|(container_id, ifname)| AttachmentId { container_id, ifname });
        let mut all = BTreeMap::new();
        for id in known.iter().cloned().chain(named) {
            let attachment = id.to(self.network);
            let common = [alias::of(&attachment), cni_filter::Names::from(&attachment).key()];
            let own = left_by_plugin::ALL.iter().flat_map(|plugin| (plugin.words)(&attachment));
            for word in common.into_iter().chain(own) {
                all.entry(word).or_insert_with(|| id.clone());
            }
        }
        all
    }

    /// The conclusion from each attachment's evidence. Namespaces are searched only where links and records are not enough.
    pub(crate) fn evaluate(self) -> Vec<Seen> {
        let all = || self.named.values().chain(self.nameless.values());
        let places = all().any(Evidence::is_undecided).then(AllNamespaces::read);
        let network = self.network;
        let named = self.named.iter().map(|((container, ifname), evidence)| {
            evidence.conclude(places.as_ref(), |places, addresses| {
                address_in_use::find(places, (network, container, Some(ifname)), addresses)
            })
        });
        let nameless = self.nameless.values().map(|evidence| evidence.conclude(places.as_ref(), AllNamespaces::find));
        let lives: Vec<Life> = named.chain(nameless).collect();
        let id = |(container_id, ifname)| Some(AttachmentId { container_id, ifname });
        let named = self.named.into_iter().map(|(key, evidence)| (id(key), evidence));
        let nameless = self.nameless.into_values().map(|evidence| (None, evidence));
        let seen = |((id, evidence), life)| {
            let Evidence { links, reserved, rules, others, addresses, .. } = evidence;
            Seen { id, links, reserved, addresses, rules, others, life }
        };
        named.chain(nameless).zip(lives).map(seen).collect()
    }
}

fn sign_of_link(sign: &Sign) -> Option<u32> {
    match sign {
        Sign::Link(index) => Some(*index),
        Sign::Address(_) | Sign::Namespace { .. } | Sign::Unknown | Sign::Undecided => None,
    }
}

/// The namespaces that links of the node lead to, each looked at once.
pub(crate) struct Peers<'a> {
    host: &'a Kernel,
    seen: RefCell<BTreeMap<i32, Life>>,
}

impl<'a> Peers<'a> {
    pub(crate) fn new(host: &'a Kernel) -> Self {
        Self { host, seen: RefCell::default() }
    }

    /// What the link says of its container. A namespace that is about to end still has its links for a moment, but its
    /// number leads nowhere.
    pub(crate) fn life(&self, link: &Link) -> Life {
        match link.peer_netns_id {
            // Both ends on the node: no container has it.
            None => Life::Gone,
            Some(id) if id < 0 => Life::Gone,
            Some(id) => *self.seen.borrow_mut().entry(id).or_insert_with(|| self.look(id)),
        }
    }

    fn look(&self, id: i32) -> Life {
        match veth_peer::namespace_exists(self.host, id) {
            Ok(true) => Life::Lives,
            Ok(false) => Life::Gone,
            Err(_) => Life::Unknown,
        }
    }
}

/// Whether the path leads to the namespace with this device and inode.
pub(crate) fn leads_to(path: &Path, numbers: [u64; 2]) -> bool {
    Netns::open(path).is_ok_and(|netns| netns.identity().numbers() == numbers)
}

pub(crate) fn of_search(found: Option<bool>) -> Life {
    match found {
        Some(true) => Life::Lives,
        Some(false) => Life::Gone,
        None => Life::Unknown,
    }
}
