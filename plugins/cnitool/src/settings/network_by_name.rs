//! The network that a word names: by its file, by the cache, or by what it has left on the node.

use super::Settings;
use crate::error_remedies::{Remedy, refused};
use anyhow::Context;
use libcni::cni_spec::{Code, ContainerId, PluginType};
use libcni::{Error, NetworkConf, conflist};
use on_node::networks::{Known, Origin, conf_for_del, conf_of};
use std::path::Path;

impl Settings {
    /// The network of this name in the folder, or of the file at this path: names have no `/`.
    pub(crate) fn network(&self, name: &str) -> anyhow::Result<NetworkConf> {
        if name.contains('/') {
            if Path::new(name).is_dir() {
                let help = "Name a file in it, or a network by its name.";
                return Err(refused(Code::IO, format!("cannot read network config {name}: it is a folder"), help));
            }
            let read = NetworkConf::read(Path::new(name));
            let dir = self.conf_dir.display();
            let network = read.if_absent(|| {
                format!("A word with a / is the path of a file; a network of {dir} is named without one.")
            })?;
            return with_usable_name(network);
        }
        let found = conflist::find(&self.conf_dir, name)?;
        for file in &found.passed_over {
            tracing::warn!("{file}");
        }
        with_usable_name(found.network)
    }

    /// As [`Settings::network`]; where the folder does not have the network, by the configuration of its last ADD in the
    /// cache: some runtimes have networks without a file. Of one that has only left traces on the node, a configuration that
    /// removes what plugins of this suite have left.
    pub(crate) fn network_to_clear(&self, name: &str) -> anyhow::Result<NetworkConf> {
        let known = self.known(name)?;
        if matches!(known.origin, Origin::File(_)) || conf_of(&known.cached).is_some() {
            return Ok(known.conf);
        }
        self.conf_for_del(name).with_context(|| {
            format!(
                "network {name} is known only by what it has left, and plugins bridge and host-local, which remove that, are \
                 not in {}",
                self.runtime.plugin_path().dirs().iter().map(|dir| dir.display().to_string()).collect::<Vec<_>>().join(":")
            )
        })
    }

    /// The network that a word names, or else the container in the cache.
    pub(crate) fn network_or_container(&self, word: &str) -> anyhow::Result<(Option<String>, Option<ContainerId>)> {
        match (self.known(word), self.find_container(word)) {
            (Ok(known), _) => Ok((Some(known.conf.name), None)),
            (Err(_), Ok(Some(id))) => Ok((None, Some(id))),
            (Err(error), Ok(None)) | (Err(_), Err(error)) => Err(error),
        }
    }

    /// The configuration by which DEL removes what plugins of this suite have left in a network of this name, whatever it is.
    pub(crate) fn conf_for_del(&self, name: &str) -> Option<NetworkConf> {
        let is_there = |plugin: &str| {
            PluginType::parse(plugin).is_ok_and(|plugin| self.runtime.plugin_path().find_executable(&plugin).is_ok())
        };
        conf_for_del(name, is_there)
    }

    /// As [`Settings::network`]; where the folder does not have the network, what the cache or the node knows of it, with a
    /// warning.
    /// Errors: no file, and neither the cache nor the node knows it.
    pub(crate) fn known(&self, name: &str) -> anyhow::Result<Known> {
        let cached = self.runtime.cache().list(None).map(|listing| listing.cached).unwrap_or_default();
        let of_name = |name: &str| cached.iter().filter(|entry| entry.network.as_str() == name).cloned().collect();
        let error = match self.network(name) {
            Ok(conf) => {
                let origin = Origin::File(conf.path().unwrap_or(Path::new("")).to_owned());
                let cached = of_name(&conf.name);
                return Ok(Known::new(conf, origin, cached));
            }
            Err(error) => error,
        };
        if !matches!(error.downcast_ref(), Some(Error::NoConfig { .. } | Error::NoNetwork { .. })) {
            return Err(error);
        }
        let found = self.inventory.networks(Vec::new(), of_name(name), &mut Vec::new());
        let Some(known) = found.into_iter().find(|known| known.conf.name == name) else { return Err(error) };
        match known.origin {
            Origin::Traces => tracing::warn!("{error}; using what the network has left on the node"),
            Origin::File(_) | Origin::Cache => {
                tracing::warn!("{error}; using the configuration that ADD left in the cache")
            }
        }
        Ok(known)
    }
}

/// The network, whose name becomes part of paths.
fn with_usable_name(network: NetworkConf) -> anyhow::Result<NetworkConf> {
    let Err(error) = network.network_name() else { return Ok(network) };
    let file = network.path().map(|path| path.display().to_string()).unwrap_or_default();
    let msg = format!("cannot use network config {file}: key name = {:?}: {}", network.name, error.msg);
    Err(refused(error.code, msg, "A name begins with a letter or a digit, and has letters, digits, _ . and - only."))
}
