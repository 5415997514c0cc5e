//! What a network's plugins left on the node, and whether its containers live: the [`Inventory`] that a runtime gives
//! to `libcni` before GC.
//!
//! An attachment is seen by the mark on the host end of its veth, its reservation in host-local's folder, the comments of its
//! rules, and by what the network's other plugins have left: `left_by_plugin` is the table of all. It lives if its veth's other end is
//! in a namespace that exists, or if a namespace exists that a record names; without either (the reference's veth has no mark,
//! and macvlan has no veth), if an address of it is on an interface in any namespace but the node's own, or an interface
//! there has its mark. Nothing here changes the node, and nothing waits for a lock.
//!
//! [`pod_names`] has the names of containers for people, and
//! [`networks`] has the networks of a node, also those that no file explains.

mod container_lives;
mod left_by_plugin;
pub mod networks;
pub mod pod_names;

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::SystemTime;

use cluster_keys::NodeView;
use cni_filter::{AllRules, By, Noted};
use cni_spec::{CniError, ConfObject, FromAnyConf, NetworkName, PluginType};
use container_lives::Found;
use host_local::conf::Removal;
use host_local::inventory;
use interface::{address_in_use, failed};
use left_by_plugin::Asked;
pub use left_by_plugin::plugin_of;
use libcni::inventory::{Inventory, Life, OnNode};
use libcni::{AttachmentId, NetworkConf};
use netops::Kernel;
use netops::all_namespaces::AllNamespaces;
use netops::link::{self, Link};
use serde_json::json;

/// The inventory of the node that the calling thread is on.
#[derive(Debug, Clone, Default)]
pub struct Node {
    /// `PATH`, for iptables of the legacy variant.
    pub search_path: String,
}

impl Node {
    /// As [`Inventory::list`], with the objects as data.
    /// Errors: the node's state cannot be read.
    pub fn look(&self, requests: &Requests, known: &[AttachmentId]) -> Result<Vec<Seen>, CniError> {
        self.look_at_all([(requests, known)].into_iter()).pop().unwrap_or_else(|| Ok(Vec::new()))
    }

    /// As [`Node::look`], at several networks: what they share is read once.
    pub fn look_at_all<'r>(
        &self,
        networks: impl Iterator<Item = (&'r Requests, &'r [AttachmentId])>,
    ) -> Vec<Result<Vec<Seen>, CniError>> {
        let shared = Shared::read(&self.search_path);
        let look = |(requests, known)| self.look_by(shared.as_ref().map_err(Clone::clone)?, requests, known);
        networks.map(look).collect()
    }

    fn look_by(&self, shared: &Shared, requests: &Requests, known: &[AttachmentId]) -> Result<Vec<Seen>, CniError> {
        let (name, search_path) = (requests.name.as_ref().map_err(Clone::clone)?, &*self.search_path);
        let Shared { host, links, rules } = shared;
        let mut items = Vec::new();
        let objects = &requests.objects;
        let named: BTreeSet<&str> =
            objects.iter().flat_map(left_by_plugin::of_object).map(|plugin| plugin.name).collect();
        // One plugin of another project is enough: the others would call the same.
        let foreign = objects.iter().position(left_by_plugin::is_foreign);
        for (place, object) in objects.iter().enumerate() {
            let asked = Asked { network: name, object, search_path, links };
            let any =
                left_by_plugin::ALL.iter().filter(|plugin| foreign == Some(place) && !named.contains(plugin.name));
            for list in left_by_plugin::of_object(object).chain(any).filter_map(|plugin| plugin.inventory) {
                items.extend(list(&asked)?);
            }
        }
        let mut found = Found::new(host, links, name);
        found.add_links(known);
        found.add_reservations(&requests.stores())?;
        found.add_items(rules.of(name.as_str()), items, known);
        Ok(found.evaluate())
    }
}

/// The objects of the node that looks at several networks share.
struct Shared {
    host: Kernel,
    links: Vec<Link>,
    rules: AllRules,
}

impl Shared {
    fn read(search_path: &str) -> Result<Self, CniError> {
        let host = Kernel::host().map_err(failed)?;
        let links = link::list(&host, None).map_err(failed)?;
        let rules = AllRules::read(search_path).map_err(failed)?;
        Ok(Self { host, links, rules })
    }
}

impl Inventory for Node {
    fn list(&self, network: &NetworkConf, known: &[AttachmentId]) -> Result<Vec<OnNode>, CniError> {
        Ok(self.look(&Requests::of(network), known)?.into_iter().map(OnNode::from).collect())
    }
}

/// What the node has of one attachment.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The attachment; `None` if the mark does not identify it.
    pub id: Option<AttachmentId>,
    /// The host's links with the attachment's mark.
    pub links: Vec<Link>,
    /// The attachment's addresses in host-local's folders, with the time that each was given.
    pub reserved: Vec<(IpAddr, SystemTime)>,
    /// The addresses that its reservations and the rules for it name.
    pub addresses: Vec<IpAddr>,
    /// The attachment's rules of masquerade and spoof guard in the packet filter.
    pub rules: Vec<Rule>,
    /// What the network's other plugins have left of it, as text for people.
    pub others: Vec<String>,
    pub life: Life,
}

/// An attachment's rule in the packet filter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rule {
    pub address: Option<IpAddr>,
    /// See [`Noted::masquerades_by`].
    pub masquerades_by: Option<By>,
    pub text: String,
}

impl From<&Noted> for Rule {
    fn from(noted: &Noted) -> Self {
        Self { address: noted.address, masquerades_by: noted.masquerades_by, text: noted.object.clone() }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<Seen> for OnNode {
    fn from(seen: Seen) -> Self {
        let links = seen.links.iter().map(|link| format!("link {}", link.name));
        let addresses = seen.reserved.iter().map(|(address, _)| format!("address {address}"));
        let objects =
            links.chain(addresses).chain(seen.rules.iter().map(ToString::to_string)).chain(seen.others).collect();
        Self { id: seen.id, objects, life: seen.life }
    }
}

/// What the plugins of a network get on stdin, decoded once.
#[derive(Debug, Clone)]
pub struct Requests {
    name: Result<NetworkName, CniError>,
    objects: Vec<ConfObject>,
    /// The object of a host-local that keeps its reservations in the usual place.
    usual: Option<ConfObject>,
}

impl Requests {
    /// Decodes the objects of a network's plugins.
    pub fn of(network: &NetworkConf) -> Self {
        let object = |index| ConfObject::parse(&network.plugin_conf(index)?).ok();
        let usual = json!({"cniVersion": "1.0.0", "name": network.name, "ipam": {"type": "host-local"}});
        Self {
            name: network.network_name(),
            objects: (0..network.plugins.len()).filter_map(object).collect(),
            usual: ConfObject::of_value(usual).ok(),
        }
    }

    /// Whether a plugin of the network is of another project: it may call plugins that the network's list does not name.
    pub fn may_call_others(&self) -> bool {
        self.objects.iter().any(left_by_plugin::is_foreign)
    }

    /// The names of the network's address plugins.
    pub fn ipams(&self) -> impl Iterator<Item = PluginType> + '_ {
        self.objects.iter().filter_map(|object| object.ipam_type().ok().flatten())
    }

    /// The objects whose addresses are host-local's. A plugin of another project may replace words of its own before it calls
    /// host-local, such as Calico's `usePodCidr`: its ranges are then unknown, and it is left out.
    pub fn host_locals(&self) -> impl Iterator<Item = &ConfObject> {
        let is_readable =
            |object: &&ConfObject| !left_by_plugin::is_foreign(object) || inventory::usage(object).is_ok();
        self.of_type("host-local").filter(is_readable)
    }

    /// The objects whose addresses `cluster` gives.
    pub fn clusters(&self) -> impl Iterator<Item = &ConfObject> {
        self.of_type("cluster")
    }

    fn of_type(&self, name: &str) -> impl Iterator<Item = &ConfObject> {
        let is_its = move |object: &&ConfObject| matches!(object.ipam_type(), Ok(Some(ipam)) if plugin_of(ipam.as_str()) == name);
        self.objects.iter().filter(is_its)
    }

    /// As [`Requests::host_locals`], with those of `cluster`, whose reservations are host-local's files, and an object for the network's
    /// folder in the usual place, if that exists and no other object has it: a plugin that calls others (flannel, Multus) gives
    /// its containers addresses that its configuration does not name.
    pub fn holders(&self) -> Vec<&ConfObject> {
        let mut holders: Vec<&ConfObject> = self.host_locals().chain(self.clusters()).collect();
        let folder = self.name.as_ref().ok().and_then(networks::usual_folder).filter(|folder| folder.is_dir());
        if let (Some(usual), Some(folder)) = (&self.usual, folder)
            && store(usual) == folder
            && holders.iter().all(|object| store(object) != folder)
        {
            holders.push(usual);
        }
        holders
    }

    pub fn stores(&self) -> Vec<PathBuf> {
        let mut stores: Vec<PathBuf> = self.holders().into_iter().map(store).collect();
        stores.dedup();
        stores
    }
}

/// What the plugin `cluster` remembers on this node of a network whose addresses nodes share; `None`: it has had no run yet, or its memory cannot be
/// read.
pub fn memory(object: &ConfObject) -> Option<NodeView> {
    let bytes = netops::file::read_plain(&store(object).join("cluster/view"), VIEW_BYTES_MAX).ok()?;
    serde_json::from_slice(&bytes).ok()
}

const VIEW_BYTES_MAX: u64 = 16 << 20;

/// host-local's folder of an object that it gets on stdin.
pub fn store(object: &ConfObject) -> PathBuf {
    Removal::from_any_conf(object).place.folder
}

/// Whether an interface in a namespace has the attachment's mark. Looks through all namespaces.
pub fn is_in_a_namespace(network: &NetworkName, id: &AttachmentId) -> bool {
    address_in_use::find(&AllNamespaces::read(), (network, &id.container_id, Some(&id.ifname)), &[]) == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_of_cluster_are_found_where_its_config_says() {
        let ipam = r#""ipam":{"type":"cluster","dataDir":"/data","store":{"path":"/s"},"subnet":"10.1.0.0/16"}"#;
        let list = format!(r#"{{"cniVersion":"1.1.0","name":"lan","plugins":[{{"type":"macvlan",{ipam}}}]}}"#);
        let network = NetworkConf::parse(list.as_bytes()).unwrap();
        let requests = Requests::of(&network);
        assert_eq!(requests.stores(), [PathBuf::from("/data/lan")]);
        assert_eq!(requests.host_locals().count(), 0, "its ranges are the cluster's");
    }

    /// Files of other names are plugins, too.
    #[test]
    fn ranges_of_a_plugin_under_another_name_are_found() {
        let list =
            r#"{"cniVersion":"1.1.0","name":"lan","plugins":[{"type":"bridge-1.2","ipam":{"type":"cnv-host-local"}}]}"#;
        let requests = Requests::of(&NetworkConf::parse(list.as_bytes()).unwrap());
        assert_eq!((requests.host_locals().count(), requests.may_call_others()), (1, false));
    }
}
