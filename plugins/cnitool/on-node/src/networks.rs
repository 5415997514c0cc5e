//! The networks of a node: those of files, those that only the cache knows, and those that left only traces.
//!
//! A plugin that calls others (flannel, Multus) gives them networks that no file has, a file may have been removed, and each
//! runtime has a cache of its own. So all verbs of an operator ask this one list.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use cni_spec::NetworkName;
use host_local::inventory::folder;
use interface::alias;
use libcni::{Cached, NetworkConf};
use netops::Kernel;
use netops::link::{self, Link};
use serde_json::json;

use crate::{Node, Requests, left_by_plugin};

#[derive(Debug, Clone)]
pub struct Known {
    /// The configuration. Of a network that only left traces it has no more than the name and the usual store of addresses.
    pub conf: NetworkConf,
    /// What its plugins get on stdin.
    pub requests: Requests,
    pub origin: Origin,
    /// The network's entries in the cache.
    pub cached: Vec<Cached>,
}

impl Known {
    /// A network whose objects are decoded here.
    pub fn new(conf: NetworkConf, origin: Origin, cached: Vec<Cached>) -> Self {
        Self { requests: Requests::of(&conf), conf, origin, cached }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The network is known by its file; empty for a configuration that the caller has not read from one.
    File(PathBuf),
    /// The network is known by the cache only: its file is gone, or another folder's.
    Cache,
    /// The network is known by marks, comments of rules and reservations only.
    Traces,
}

impl Node {
    /// All networks: those of `files` in their order, of one name the first; then others by name. What cannot be examined is
    /// added to `unseen`.
    pub fn networks(&self, files: Vec<NetworkConf>, cached: Vec<Cached>, unseen: &mut Vec<String>) -> Vec<Known> {
        let links = Kernel::host().and_then(|host| link::list(&host, None));
        let links = links.map_err(|error| unseen.push(format!("the node's links: {error}"))).unwrap_or_default();
        let mut by_name: BTreeMap<String, Vec<Cached>> = BTreeMap::new();
        for entry in cached {
            by_name.entry(entry.network.as_str().to_owned()).or_default().push(entry);
        }
        let mut networks: Vec<Known> = Vec::new();
        for conf in files {
            // As a runtime: of those with one name, the first.
            if networks.iter().all(|earlier| earlier.conf.name != conf.name) {
                let origin = Origin::File(conf.path().unwrap_or(Path::new("")).to_owned());
                let cached = by_name.remove(&conf.name).unwrap_or_default();
                networks.push(Known::new(conf, origin, cached));
            }
        }
        let mut others: BTreeMap<String, Known> = BTreeMap::new();
        for (name, cached) in by_name {
            let conf = conf_of(&cached).or_else(|| conf_of_traces(&name));
            others.extend(conf.map(|conf| (name, Known::new(conf, Origin::Cache, cached))));
        }
        for name in self.traces(&links, unseen) {
            let is_known = networks.iter().any(|network| network.conf.name == name) || others.contains_key(&name);
            let conf = Some(&name).filter(|_| !is_known).and_then(|name| conf_of_traces(name));
            others.extend(conf.map(|conf| (name, Known::new(conf, Origin::Traces, Vec::new()))));
        }
        networks.extend(others.into_values());
        networks
    }

    /// The networks that the marks of links name, the comments of rules, the records of plugins, and host-local's folders in the
    /// usual place.
    fn traces(&self, links: &[Link], unseen: &mut Vec<String>) -> BTreeSet<String> {
        let marked = links
            .iter()
            .filter_map(|link| alias::Mark::of_link(link)?.network())
            .map(|network| network.as_str().to_owned());
        let entries = usual_store().and_then(|store| std::fs::read_dir(store).ok());
        let is_folder = |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
        let stores = entries.into_iter().flatten().flatten().filter(is_folder);
        let mut names: BTreeSet<String> =
            marked.chain(stores.filter_map(|entry| entry.file_name().into_string().ok())).collect();
        match cni_filter::networks(&self.search_path) {
            Ok(commented) => names.extend(commented),
            Err(error) => unseen.push(format!("the comments of rules: {error}")),
        }
        for (plugin, networks) in left_by_plugin::ALL.iter().filter_map(|plugin| Some((plugin.name, plugin.networks?)))
        {
            match networks() {
                Ok(recorded) => names.extend(recorded),
                Err(error) => unseen.push(format!("the records of {plugin}: {error}")),
            }
        }
        names
    }
}

/// The configuration of the last ADD: each entry has that of its own, and the last one knows the network best.
pub fn conf_of(cached: &[Cached]) -> Option<NetworkConf> {
    let mut entries: Vec<&Cached> = cached.iter().collect();
    entries.sort_by_key(|entry| entry.written());
    entries
        .into_iter()
        .rev()
        .find_map(|entry| entry.network_conf().ok().filter(|conf| conf.name == entry.network.as_str()))
}

/// A network of which only the name is known: any plugin may have left something, and reservations are in the usual folder.
pub fn conf_of_traces(name: &str) -> Option<NetworkConf> {
    let conf = json!({ "name": name, "plugins": [{ "type": "none", "ipam": { "type": "host-local" } }] });
    let conf = NetworkConf::parse(conf.to_string().as_bytes()).ok()?;
    conf.network_name().is_ok().then_some(conf)
}

/// The configuration by which DEL removes whatever plugins of this suite have left of a container that is gone: of those that
/// `is_there`, each that leaves something on the node. `None`: one that removes links and releases addresses is not there.
pub fn conf_for_del(name: &str, is_there: impl Fn(&str) -> bool) -> Option<NetworkConf> {
    // DEL goes backward: the interface, and with it the address, is last.
    let mut plugins = vec![json!({"type": "bridge", "ipam": {"type": "host-local"}})];
    let of_addresses = left_by_plugin::of_addresses_with_records(name).filter(|name| is_there(name));
    plugins.extend(of_addresses.map(|ipam| json!({"type": "bridge", "ipam": {"type": ipam}})));
    plugins.extend(left_by_plugin::that_leave_more().filter(|name| is_there(name)).map(|name| json!({"type": name})));
    let conf = json!({"cniVersion": "1.0.0", "name": name, "plugins": plugins});
    let conf = NetworkConf::parse(conf.to_string().as_bytes()).ok()?;
    (is_there("bridge") && is_there("host-local") && conf.network_name().is_ok()).then_some(conf)
}

/// Where host-local keeps its folders if no network says otherwise.
pub fn usual_store() -> Option<PathBuf> {
    usual_folder(&NetworkName::parse("any").ok()?)?.parent().map(Path::to_owned)
}

/// host-local's folder of a network that does not say another one.
pub(crate) fn usual_folder(network: &NetworkName) -> Option<PathBuf> {
    folder(network, &json!({"type": "host-local"}).to_string())
}
