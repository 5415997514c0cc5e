//! Options and variables as `libcni` and the verbs take them.

pub(crate) mod container_id_and_netns;

use crate::args::{Common, Target};
use crate::error_remedies::{Remedy, refused};
use crate::node_networks::Node;
use crate::{runtime_settings, stderr_log};
use anyhow::Context;
use libcni::cache::Listing;
use libcni::cni_spec::exec::GRACE;
use libcni::cni_spec::{Code, ContainerId, NetworkName, PluginPath, PluginType};
use libcni::{Cached, CallLog, Cancellation, Error, NetworkConf, Runtime, RuntimeConf, conflist};
use on_node::networks::{Known, Origin, conf_for_del, conf_of};
use on_node::pod_names::Names;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A plugin that no installation lacks.
const ON_EVERY_NODE: &str = "loopback";

/// The options, with defaults applied. An empty variable counts as absent.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) runtime: Runtime,
    pub(crate) conf_dir: PathBuf,
    /// The options for folders that a command line of this program needs to mean the same node.
    pub(crate) folders: Vec<String>,
    pub(crate) ifname: String,
    /// The interface, if one was given.
    pub(crate) only_ifname: Option<String>,
    pub(crate) container_id: Option<String>,
    /// The objects of networks on the node.
    pub(crate) inventory: on_node::Node,
    /// How long one plugin may take, and what is done in its place.
    pub(crate) timeout: Duration,
    args: Option<String>,
    cap_args: Option<String>,
}

/// The folder that runtimes know, those that their settings name for these networks, and then the one of this program, if it is
/// installed beside plugins, as a package does it.
fn usual_plugins(conf_dir: &Path) -> PluginPath {
    let own = std::env::current_exe().ok().and_then(|file| file.parent().map(Path::to_owned));
    let own = own.filter(|dir| dir.join(ON_EVERY_NODE).exists() && dir != Path::new(libcni::DEFAULT_PLUGIN_DIR));
    let mut dirs = vec![PathBuf::from(libcni::DEFAULT_PLUGIN_DIR)];
    for dir in runtime_settings::plugin_dirs(Path::new("/"), conf_dir).into_iter().chain(own) {
        if !dirs.contains(&dir) {
            dirs.push(dir);
        }
    }
    PluginPath::from_dirs(dirs)
}

impl Settings {
    pub(crate) fn node(&self) -> Node<'_> {
        Node { runtime: &self.runtime, conf_dir: &self.conf_dir, inventory: &self.inventory }
    }

    /// The names of the containers in the cache. One that cannot be listed has none: the verb itself reports that.
    pub(crate) fn names(&self) -> Names {
        let listing = self.runtime.cache().list(None).unwrap_or_default();
        Names::of_cache(&listing.cached)
    }

    /// All networks that the node knows. A file that cannot be used is reported, and hides no other.
    pub(crate) fn networks(&self) -> anyhow::Result<Vec<Known>> {
        let mut files: Vec<NetworkConf> = Vec::new();
        for path in conflist::search_order(&self.conf_dir)? {
            match NetworkConf::read(&path) {
                Ok(network) => files.push(network),
                Err(error) => tracing::warn!("{}", error.with_causes()),
            }
        }
        let mut unseen = Vec::new();
        let cached = self.runtime.cache().list(None).map(|listing| listing.cached).unwrap_or_else(|error| {
            unseen.push(format!("the cache: {}", error.with_causes()));
            Vec::new()
        });
        let networks = self.inventory.networks(files, cached, &mut unseen);
        unseen.iter().for_each(|what| tracing::warn!("could not be looked at: {what}"));
        Ok(networks)
    }

    /// The attachments in the cache, of the chosen container if one is. Files of this network, or of any, that are left out are
    /// reported.
    pub(crate) fn listing(&self, network: Option<&str>) -> anyhow::Result<Listing> {
        let listing = self.runtime.cache().list(self.container()?.as_ref())?;
        for file in &listing.passed_over {
            tracing::warn!("{file}");
        }
        let name = |file: &Path| file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_of = |file: &&PathBuf| network.is_none_or(|network| name(file).starts_with(&format!("{network}-")));
        for file in listing.nameless.iter().filter(is_of) {
            tracing::warn!(
                "{} left out: it has the oldest format, in which only the file's name, NETWORK-CONTAINER-IFNAME, tells the \
                 attachment; cnitool del and add with these names make a new one",
                file.display()
            );
        }
        Ok(listing)
    }

    pub(crate) fn new(common: &Common, cancellation: Cancellation) -> Self {
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let conf_dir = common.conf_dir.clone().filter(|dir| !dir.as_os_str().is_empty());
        let conf_dir = conf_dir.unwrap_or_else(|| runtime_settings::NETWORKS.into());
        let path = given(&common.cni_path).map_or_else(|| usual_plugins(&conf_dir), |path| PluginPath::parse(&path));
        let timeout = Duration::from_secs(common.timeout);
        let mut builder = Runtime::builder()
            .plugin_path(path)
            .cache_dir(&common.cache_dir)
            .plugin_deadline(timeout)
            .plugin_grace(GRACE.min(timeout));
        builder = builder.call_log(call_log_setting()).stderr(stderr_log::plugin_said(common.json));
        let runtime = builder.build().cancelled_by(cancellation);
        Self {
            runtime,
            folders: common.folders(),
            conf_dir,
            ifname: given(&common.ifname).unwrap_or_else(|| "eth0".to_owned()),
            only_ifname: given(&common.ifname),
            container_id: given(&common.container_id),
            inventory: on_node::Node { search_path: search_path() },
            timeout,
            args: given(&common.args),
            cap_args: given(&common.cap_args),
        }
    }

    /// The network, the attachment and the cached data of its ADD: all that a command line says which names one.
    pub(crate) fn target(&self, target: &Target) -> anyhow::Result<(NetworkConf, RuntimeConf, Option<Cached>)> {
        let (network, attachment) = (self.network(&target.network)?, self.attachment(target)?);
        let cached = self.cached(&network.name, &attachment);
        Ok((network, attachment, cached))
    }

    /// The cached data of an attachment, for an operation that reports what is wrong with its file.
    pub(crate) fn cached(&self, network: &str, attachment: &RuntimeConf) -> Option<Cached> {
        self.runtime.cache().peek(&NetworkName::parse(network).ok()?, &attachment.id)
    }

    /// The same, and the report.
    pub(crate) fn find_cached(&self, network: &str, attachment: &RuntimeConf) -> Result<Option<Cached>, Error> {
        self.runtime.cache().find(&NetworkName::parse(network)?, &attachment.id)
    }

    /// Takes parameters that the caller left out from the cached data: plugins need the arguments of ADD again to undo it.
    pub(crate) fn complete(&self, attachment: &mut RuntimeConf, cached: &Cached) {
        if self.args.is_none() {
            attachment.args = cached.attachment.args.clone();
        }
        if self.cap_args.is_none() {
            attachment.capability_args = cached.attachment.capability_args.clone();
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "PATH, as a plugin's caller has it")]
fn search_path() -> String {
    std::env::var("PATH").unwrap_or_default()
}

fn call_log_setting() -> CallLog {
    let variable = |name: &str| {
        #[expect(clippy::disallowed_methods, reason = "this program is no plugin, and has no option for these")]
        let value = std::env::var(name);
        value.ok()
    };
    CallLog::from_variables(variable("CNI_LOG").as_deref(), variable("TRACEPARENT").as_deref())
}

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
