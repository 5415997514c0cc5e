//! Converts options and variables for `libcni`.

use crate::args::{Common, Target};
use crate::causes::{Remedy, refused};
use crate::{gc, log};
use anyhow::{Context, bail};
use libcni::cni_spec::exec::GRACE;
use libcni::cni_spec::json::resembling;
use libcni::cni_spec::{CniArgs, CniError, Code, ContainerId, IfName, NetworkName, PluginPath, PluginType};
use libcni::{Attachment, Cached, CallLog, Cancellation, CapabilityArgs, Error, NetworkConf, Runtime, conflist};
use on_node::names::Names;
use on_node::networks::{Known, Origin, conf_for_del, conf_of};
use sha2::{Digest, Sha512};
use std::path::{Component, Path, PathBuf};
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
    pub(crate) container_id: Option<String>,
    /// How long one plugin may take, and what is done in its place.
    pub(crate) timeout: Duration,
    args: Option<String>,
    cap_args: Option<String>,
}

/// The folder that runtimes know, and then the one of this program, if it is installed beside plugins, as a package does it.
fn usual_plugins() -> PluginPath {
    let own = std::env::current_exe().ok().and_then(|file| file.parent().map(Path::to_owned));
    let own = own.filter(|dir| dir.join(ON_EVERY_NODE).exists() && dir != Path::new(libcni::DEFAULT_PLUGIN_DIR));
    PluginPath::from_dirs([libcni::DEFAULT_PLUGIN_DIR.into()].into_iter().chain(own).collect())
}

impl Settings {
    /// The names of the containers in the cache. One that cannot be listed has none: the verb itself reports that.
    pub(crate) fn names(&self) -> Names {
        let listing = self.runtime.cache().list(None).unwrap_or_default();
        Names::of_cache(&listing.cached)
    }

    pub(crate) fn new(common: &Common, cancellation: Cancellation) -> Self {
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let path = given(&common.cni_path).map_or_else(usual_plugins, |path| PluginPath::parse(&path));
        let timeout = Duration::from_secs(common.timeout);
        let mut builder = Runtime::builder()
            .plugin_path(path)
            .cache_dir(&common.cache_dir)
            .plugin_deadline(timeout)
            .plugin_grace(GRACE.min(timeout));
        builder = builder.call_log(call_log_setting()).stderr(log::plugin_said(common.json));
        let runtime = builder.build().cancelled_by(cancellation);
        let conf_dir = common.conf_dir.clone().filter(|dir| !dir.as_os_str().is_empty());
        Self {
            runtime,
            folders: common.folders(),
            conf_dir: conf_dir.unwrap_or_else(|| "/etc/cni/net.d".into()),
            ifname: given(&common.ifname).unwrap_or_else(|| "eth0".to_owned()),
            container_id: given(&common.container_id),
            timeout,
            args: given(&common.args),
            cap_args: given(&common.cap_args),
        }
    }

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

    /// The configuration by which DEL removes what plugins of this suite have left in a network of this name, whatever it is.
    pub(crate) fn conf_for_del(&self, name: &str) -> Option<NetworkConf> {
        let is_there = |plugin: &str| {
            PluginType::parse(plugin).is_ok_and(|plugin| self.runtime.plugin_path().find_executable(&plugin).is_ok())
        };
        conf_for_del(name, is_there)
    }

    /// As [`Settings::network`]; where the folder does not have the network, what the cache or the node knows of it, with a
    /// warning.
    ///
    /// # Errors
    /// No file, and neither the cache nor the node knows it.
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
        let found = gc::node().networks(Vec::new(), of_name(name), &mut Vec::new());
        let Some(known) = found.into_iter().find(|known| known.conf.name == name) else { return Err(error) };
        match known.origin {
            Origin::Traces => tracing::warn!("{error}; using what the network has left on the node"),
            Origin::File(_) | Origin::Cache => {
                tracing::warn!("{error}; using the configuration that ADD left in the cache")
            }
        }
        Ok(known)
    }

    /// The attachment that the arguments name.
    pub(crate) fn attachment(&self, target: &Target) -> anyhow::Result<Attachment> {
        let netns = self.namespace(&target.netns)?;
        let id = self.container_id.clone().unwrap_or_else(|| derived_id(&netns));
        parse_id(&id)?;
        parse_ifname(&self.ifname)?;
        let mut attachment = Attachment::new(&id, &self.ifname)?.netns(netns);
        attachment.args = parse_args(self.args.as_deref().unwrap_or_default())?;
        attachment.capability_args = parse_cap_args(self.cap_args.as_deref().unwrap_or_default())?;
        Ok(attachment)
    }

    /// The path of a namespace: of a file here, as with the reference; else, of a word without a `/`, that of `ip netns`, if that
    /// has it or an attachment in the cache had it.
    fn namespace(&self, word: &str) -> anyhow::Result<String> {
        let here = absolute(word)?;
        let cached = self.runtime.cache().list(None).map(|listing| listing.cached).unwrap_or_default();
        let had = |path: &str| cached.iter().any(|entry| entry.attachment.netns == path);
        // An attachment whose namespace was a file here and is gone is not that of another namespace of this name.
        if word.contains('/') || Path::new(&here).exists() || had(&here) {
            return Ok(here);
        }
        let named = format!("{NAMED}/{word}");
        Ok(if Path::new(&named).exists() || had(&named) { named } else { here })
    }

    /// Refuses a word that names no namespace, neither as a file here nor in the folder of `ip netns`. What is wrong with a path the
    /// plugin reports.
    pub(crate) fn refuse_unnamed(&self, verb: &str, target: &Target, attachment: &Attachment) -> anyhow::Result<()> {
        let (word, here) = (target.netns.as_str(), attachment.netns.as_str());
        if word.contains('/') || Path::new(here).exists() {
            return Ok(());
        }
        let entries = std::fs::read_dir(NAMED).into_iter().flatten().flatten();
        let names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        let meant = resembling(word, names.iter().map(String::as_str));
        let help = match meant {
            Some(meant) => format!("Did you mean {meant}?"),
            None => "Name a namespace by its path, or by its name of ip netns.".to_owned(),
        };
        let msg = format!("cannot {verb} {word}: there is no network namespace {NAMED}/{word}, nor {here}");
        Err(refused(Code::INVALID_ENVIRONMENT, msg, help))
    }

    /// The network, the attachment and the cached data of its ADD: all that a command line says which names one.
    ///
    /// # Errors
    /// As [`Settings::network`] and [`Settings::attachment`].
    pub(crate) fn target(&self, target: &Target) -> anyhow::Result<(NetworkConf, Attachment, Option<Cached>)> {
        let (network, attachment) = (self.network(&target.network)?, self.attachment(target)?);
        let cached = self.cached(&network.name, &attachment);
        Ok((network, attachment, cached))
    }

    /// The cached data of an attachment.
    pub(crate) fn cached(&self, network: &str, attachment: &Attachment) -> Option<Cached> {
        self.find_cached(network, attachment).ok().flatten()
    }

    /// The same; what cannot be read is an error.
    pub(crate) fn find_cached(&self, network: &str, attachment: &Attachment) -> Result<Option<Cached>, Error> {
        self.runtime.cache().find(&NetworkName::parse(network)?, &attachment.id)
    }

    /// Takes parameters that the caller left out from the cached data: plugins need the arguments of ADD again to undo it.
    pub(crate) fn complete(&self, attachment: &mut Attachment, cached: &Cached) {
        if self.args.is_none() {
            attachment.args = cached.attachment.args.clone();
        }
        if self.cap_args.is_none() {
            attachment.capability_args = cached.attachment.capability_args.clone();
        }
    }

    /// The container, if one was given.
    pub(crate) fn container(&self) -> anyhow::Result<Option<ContainerId>> {
        Ok(self.container_id.as_deref().map(parse_id).transpose()?)
    }
}

/// The folder of `ip netns`.
const NAMED: &str = "/run/netns";

/// The log of calls, as for the plugins.
fn call_log_setting() -> CallLog {
    let variable = |name: &str| {
        #[expect(clippy::disallowed_methods, reason = "this program is no plugin, and has no option for these")]
        let value = std::env::var(name);
        value.ok()
    };
    CallLog::from_variables(variable("CNI_LOG").as_deref(), variable("TRACEPARENT").as_deref())
}

/// The network, whose name becomes part of paths.
fn with_usable_name(network: NetworkConf) -> anyhow::Result<NetworkConf> {
    let Err(error) = network.network_name() else { return Ok(network) };
    let file = network.path().map(|path| path.display().to_string()).unwrap_or_default();
    let msg = format!("cannot use network config {file}: key name = {:?}: {}", network.name, error.msg);
    Err(refused(error.code, msg, "A name begins with a letter or a digit, and has letters, digits, _ . and - only."))
}

fn parse_id(id: &str) -> Result<ContainerId, CniError> {
    ContainerId::parse(id).map_err(|error| {
        let msg = format!("cannot use --container-id {id}: {}", error.msg);
        CniError::new(error.code, msg)
            .detail("An ID begins with a letter or a digit, and has letters, digits, _ . and - only.")
    })
}

fn parse_ifname(ifname: &str) -> Result<IfName, CniError> {
    IfName::parse(ifname).map_err(|error| {
        CniError::new(error.code, format!("cannot use --ifname {ifname}: {}", error.msg))
            .detail("An interface's name has 1 to 15 bytes, and no / : or white space.")
    })
}

/// `CNI_ARGS`, of which every pair needs a key and a value.
fn parse_args(text: &str) -> anyhow::Result<CniArgs> {
    let args = CniArgs::parse(text).map_err(|error| CniError {
        msg: error.msg.replacen("cannot parse CNI_ARGS", "cannot use CNI_ARGS (--args)", 1),
        ..error
    })?;
    match args.pairs().iter().find(|(key, value)| key.is_empty() || value.is_empty()) {
        Some((key, value)) => bail!("cannot use CNI_ARGS (--args): {key}={value} lacks a key or a value"),
        None => Ok(args),
    }
}

/// `CAP_ARGS`; the error names the variable.
fn parse_cap_args(text: &str) -> Result<CapabilityArgs, CniError> {
    CapabilityArgs::parse(text).map_err(|error| {
        let msg = error.msg.replacen("cannot parse capability arguments", "cannot use CAP_ARGS (--cap-args)", 1);
        CniError { msg, ..error }
    })
}

/// The absolute path, with `.` and `..` removed textually: the container ID is derived from it, so it has to be equal
/// to the reference's.
fn absolute(path: &str) -> anyhow::Result<String> {
    if path.is_empty() {
        let help = "Name it by its path, such as /run/netns/web, or by its name of ip netns.";
        return Err(refused(Code::INVALID_ENVIRONMENT, "the word for the network namespace is empty", help));
    }
    let whole = std::path::absolute(path).with_context(|| format!("cannot use {path}"))?;
    let mut clean = PathBuf::from("/");
    for part in whole.components() {
        match part {
            Component::Normal(part) => clean.push(part),
            Component::ParentDir => drop(clean.pop()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    clean.into_os_string().into_string().ok().with_context(|| format!("cannot use {path}: it is not UTF-8"))
}

/// The container ID that stands for a namespace: the reference's.
fn derived_id(netns: &str) -> String {
    let digest = Sha512::digest(netns);
    let hex: String = digest.iter().take(10).map(|byte| format!("{byte:02x}")).collect();
    format!("cnitool-{hex}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cleaned_as_text() {
        for (path, clean) in [("/a/./b//c/", "/a/b/c"), ("/a/../../b", "/b"), ("/", "/")] {
            assert_eq!(absolute(path).unwrap(), clean);
        }
        assert!(absolute("x").unwrap().ends_with("/x") && absolute("").is_err());
    }

    #[test]
    fn the_container_id_is_the_references() {
        // printf %s /var/run/netns/testing | sha512sum | cut -c1-20
        assert_eq!(derived_id("/var/run/netns/testing"), "cnitool-77383ca0a0715733ca6f");
    }

    #[test]
    fn capability_arguments_that_are_no_object_name_the_variable() {
        let error = parse_cap_args("portMappings").unwrap_err().to_string();
        assert_eq!(
            error,
            r#"cannot use CAP_ARGS (--cap-args): expected value at line 1 column 1. They are a JSON object, such as {"mac":"0a:00:00:00:00:05"}."#
        );
    }

    #[test]
    fn pairs_need_key_and_value() {
        for bad in ["a", "a=", "=b", "a=b;", "a=b;;c=d"] {
            assert!(parse_args(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_args("a=b;c=d").unwrap().pairs().len(), 2);
    }
}
