//! The networks to be shown, and the folders from which they are read.

use std::path::{Path, PathBuf};

use libcni::cni_spec::CniError;
use libcni::{AttachmentId, NetworkConf, PassedOver, conflist};
use on_node::networks::{Known, usual_store};
use on_node::pod_names::Names;
use on_node::{Requests, Seen};

use crate::doctor::Unread;
use crate::node_networks::{IsDefault, Network, Node, Origin};

/// Where runtimes and `ip netns` bind namespaces.
const NAMESPACES: &str = "/run/netns";

/// A network, with what it has on the node.
#[derive(Debug)]
pub(crate) struct OnNode {
    pub(crate) known: Known,
    pub(crate) seen: Result<Vec<Seen>, CniError>,
}

/// The networks of a node, each looked at once.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) networks: Vec<OnNode>,
    /// The names of all containers in the cache.
    pub(crate) names: Names,
    /// Why the cache cannot be read.
    pub(crate) unread_cache: Option<Unread>,
    pub(crate) passed_over: Vec<PassedOver>,
    /// Sources of names of networks that cannot be read, with the reason.
    pub(crate) unread_names: Vec<String>,
    /// Files of networks that cannot be read, and the reasons.
    pub(crate) broken: Vec<PathBuf>,
    pub(crate) unread_files: Vec<String>,
}

impl Found {
    /// Looks at all networks, or at the one of this name.
    pub(crate) fn look(node: Node<'_>, only: Option<&str>) -> Self {
        let mut found = Self::default();
        let listing = node.runtime.cache().list(None).unwrap_or_else(|error| {
            found.unread_cache = Some(Unread::new("the cache", &error));
            libcni::cache::Listing::default()
        });
        found.passed_over = listing.passed_over;
        let files = of_folder(node.conf_dir, &mut found.broken, &mut found.unread_files);
        found.names = Names::of_cache(&listing.cached);
        let mut networks = node.inventory.networks(files, listing.cached, &mut found.unread_names);
        networks.retain(|network| only.is_none_or(|name| network.conf.name == name));
        let ids = |known: &Known| known.cached.iter().map(|entry| entry.attachment.id.clone()).collect();
        let ids: Vec<Vec<AttachmentId>> = networks.iter().map(ids).collect();
        let asked = networks.iter().zip(&ids).map(|(known, ids)| (&known.requests, ids.as_slice()));
        let seen = node.inventory.look_at_all(asked);
        found.networks = networks.into_iter().zip(seen).map(|(known, seen)| OnNode { known, seen }).collect();
        found
    }

    /// The objects that could not be looked at, in words.
    pub(crate) fn unseen(&self) -> Vec<String> {
        let cache = self.unread_cache.iter().map(ToString::to_string);
        let files = self.passed_over.iter().map(ToString::to_string).chain(self.unread_files.iter().cloned());
        let networks = self.networks.iter().filter_map(|OnNode { known, seen }| {
            Some(format!("what network {} has on the node: {}", known.conf.name, seen.as_ref().err()?))
        });
        cache.chain(files).chain(self.unread_names.iter().cloned()).chain(networks).collect()
    }
}

/// Marks the network that runtimes give a container by default, where the folder has more than one file.
pub(crate) fn mark_default(node: Node<'_>, networks: &mut [Network]) {
    let found = conflist::default_network(node.conf_dir).ok().flatten().filter(|found| found.files > 1);
    let Some((path, found)) = found.as_ref().and_then(|found| Some((found.network.path()?, found))) else { return };
    for network in networks.iter_mut().filter(|network| matches!(&network.origin, Origin::File(file) if file == path)) {
        network.is_default = found.blocked_by.clone().map_or(IsDefault::Yes, IsDefault::Behind);
    }
}

fn of_folder(conf_dir: &Path, broken: &mut Vec<PathBuf>, unseen: &mut Vec<String>) -> Vec<NetworkConf> {
    let paths = conflist::search_order(conf_dir).unwrap_or_else(|error| {
        unseen.push(format!("{}: {}", conf_dir.display(), error.with_causes()));
        Vec::new()
    });
    let mut networks = Vec::new();
    for path in paths {
        match NetworkConf::read(&path) {
            Ok(network) => networks.push(network.named_by_file()),
            Err(error) => {
                unseen.push(error.with_causes());
                broken.push(path);
            }
        }
    }
    networks
}

/// The folders of networks, of the cache, of namespaces and of reservations.
pub(crate) fn folders(node: Node<'_>) -> Vec<PathBuf> {
    let stores = usual_store();
    let below = stores.iter().flat_map(std::fs::read_dir).flatten().flatten().map(|entry| entry.path());
    let mut folders = vec![node.conf_dir.to_owned(), node.runtime.cache().folder().to_owned(), NAMESPACES.into()];
    folders.extend(below);
    folders.extend(
        of_folder(node.conf_dir, &mut Vec::new(), &mut Vec::new())
            .iter()
            .flat_map(|network| Requests::of(network).stores()),
    );
    folders.extend(stores);
    // A folder that does not exist yet will be created in its nearest existing ancestor.
    let existing = |folder: PathBuf| folder.ancestors().find(|folder| folder.is_dir()).map(Path::to_owned);
    let mut folders: Vec<_> = folders.into_iter().filter_map(existing).collect();
    folders.sort();
    folders.dedup();
    folders
}
