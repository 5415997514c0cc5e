//! The networks to be shown, and the folders from which they are read.

use std::path::{Path, PathBuf};

use libcni::{NetworkConf, conflist};
use on_node::Requests;
use on_node::networks::{Known, usual_store};
use on_node::pod_names::Names;

use crate::node_networks::{IsDefault, Network, Node, Origin};

/// Where runtimes and `ip netns` bind namespaces.
const NAMESPACES: &str = "/run/netns";

/// The networks, or the one of this name, and the names of all containers in the cache.
pub(crate) fn find(
    node: Node<'_>,
    only: Option<&str>,
    broken: &mut Vec<PathBuf>,
    unseen: &mut Vec<String>,
) -> (Vec<Known>, Names) {
    let listing = node.runtime.cache().list(None).unwrap_or_else(|error| {
        unseen.push(format!("the cache: {error}"));
        libcni::cache::Listing::default()
    });
    unseen.extend(listing.passed_over.iter().map(ToString::to_string));
    let files = of_folder(node.conf_dir, broken, unseen);
    let names = Names::of_cache(&listing.cached);
    let mut networks = node.inventory.networks(files, listing.cached, unseen);
    networks.retain(|network| only.is_none_or(|name| network.conf.name == name));
    (networks, names)
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
