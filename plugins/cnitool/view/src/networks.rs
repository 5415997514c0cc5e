//! The networks of a node: those of the folder, those that only the cache knows, and those that left only traces.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use host_local::inventory::folder;
use interface::host_veth;
use libcni::cni_spec::{self, NetworkName};
use libcni::{Cached, NetworkConf, conflist};
use serde_json::json;

use crate::host::Host;
use crate::{Node, Origin};

/// Where runtimes and `ip netns` bind namespaces.
const NAMESPACES: &str = "/run/netns";

/// A network to be looked at.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) conf: NetworkConf,
    pub(crate) origin: Origin,
    pub(crate) cached: Vec<Cached>,
}

/// The networks, or the one of this name.
pub(crate) fn find(node: Node<'_>, host: &Host, only: Option<&str>, unseen: &mut Vec<String>) -> Vec<Known> {
    let mut cached = cached(node, unseen);
    let mut networks: Vec<Known> = Vec::new();
    for conf in of_folder(node.conf_dir, unseen) {
        // As a runtime: of those with one name, the first.
        if networks.iter().all(|earlier| earlier.conf.name != conf.name) {
            let origin = conf.path().map_or(Origin::Traces, |path| Origin::File(path.to_owned()));
            let cached = cached.remove(&conf.name).unwrap_or_default();
            networks.push(Known { conf, origin, cached });
        }
    }
    let mut others: BTreeMap<String, Known> = BTreeMap::new();
    for (name, cached) in cached {
        // Each has the configuration of its own ADD; the last one knows the network best.
        let conf = cached.iter().rev().find_map(|entry| entry.network_conf().ok()).or_else(|| only_named(&name));
        others.extend(conf.map(|conf| (name, Known { conf, origin: Origin::Cache, cached })));
    }
    for name in traces(host) {
        let is_known = networks.iter().any(|network| network.conf.name == name) || others.contains_key(&name);
        let conf = Some(&name).filter(|_| !is_known).and_then(|name| only_named(name));
        others.extend(conf.map(|conf| (name, Known { conf, origin: Origin::Traces, cached: Vec::new() })));
    }
    networks.extend(others.into_values());
    networks.retain(|network| only.is_none_or(|name| network.conf.name == name));
    networks
}

fn cached(node: Node<'_>, unseen: &mut Vec<String>) -> BTreeMap<String, Vec<Cached>> {
    let listing = node.runtime.cache().list(None).unwrap_or_else(|error| {
        unseen.push(format!("the cache: {error}"));
        libcni::cache::Listing::default()
    });
    unseen.extend(listing.passed_over.iter().map(ToString::to_string));
    let mut by_network: BTreeMap<String, Vec<Cached>> = BTreeMap::new();
    for entry in listing.cached {
        by_network.entry(entry.network.as_str().to_owned()).or_default().push(entry);
    }
    by_network
}

fn of_folder(conf_dir: &Path, unseen: &mut Vec<String>) -> Vec<NetworkConf> {
    let paths = conflist::search_order(conf_dir).unwrap_or_else(|error| {
        unseen.push(format!("{}: {}", conf_dir.display(), error.with_causes()));
        Vec::new()
    });
    let mut networks = Vec::new();
    for path in paths {
        match NetworkConf::read(&path) {
            Ok(network) => networks.push(network),
            Err(error) => unseen.push(error.with_causes()),
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
    for conf in of_folder(node.conf_dir, &mut Vec::new()) {
        let Ok(name) = conf.network_name() else { continue };
        let objects = (0..conf.plugins.len()).filter_map(|index| conf.plugin_conf(index));
        let objects = objects.filter_map(|object| cni_spec::json::parse(&object).ok());
        folders.extend(objects.filter_map(|object| folder(&name, &object["ipam"].to_string())));
    }
    folders.extend(stores);
    // A folder that does not exist yet will be created in its nearest existing ancestor.
    let existing = |folder: PathBuf| folder.ancestors().find(|folder| folder.is_dir()).map(Path::to_owned);
    let mut folders: Vec<_> = folders.into_iter().filter_map(existing).collect();
    folders.sort();
    folders.dedup();
    folders
}

/// Where host-local keeps its folders if no network says otherwise.
fn usual_store() -> Option<PathBuf> {
    let any = NetworkName::parse("any").ok()?;
    Some(folder(&any, &json!({"type": "host-local"}).to_string())?.parent()?.to_owned())
}

/// The networks that the marks of links name, and host-local's folders in the usual place.
fn traces(host: &Host) -> Vec<String> {
    let marked = host.links.iter().filter_map(host_veth::find_network).map(|network| network.as_str().to_owned());
    let entries = usual_store().and_then(|store| std::fs::read_dir(store).ok());
    let is_folder = |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    let stores = entries.into_iter().flatten().flatten().filter(is_folder);
    marked.chain(stores.filter_map(|entry| entry.file_name().into_string().ok())).collect()
}

/// A network of which only the name is known: marks and rules need no more, and reservations are in the usual folder.
fn only_named(name: &str) -> Option<NetworkConf> {
    let conf = json!({ "name": name, "plugins": [{ "type": "none", "ipam": { "type": "host-local" } }] });
    let conf = NetworkConf::parse(conf.to_string().as_bytes()).ok()?;
    conf.network_name().is_ok().then_some(conf)
}
