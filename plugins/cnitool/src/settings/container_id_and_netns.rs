//! The attachment that a command line names: its namespace's path, the container ID derived from that, and its arguments.

use super::Settings;
use crate::args::{Attached, Target};
use crate::error_remedies::refused;
use crate::explain::similar;
use crate::output::to_cni_error;
use anyhow::{Context, bail};
use libcni::cni_spec::json::resembling;
use libcni::cni_spec::{CniArgs, CniError, Code, ContainerId, IfName};
use libcni::{Cached, CapabilityArgs, RuntimeConf};
use on_node::pod_names::{DIGITS_MIN, Names};
use sha2::{Digest, Sha512};
use std::path::{Component, Path, PathBuf};

/// The folder of `ip netns`.
const NAMED: &str = "/run/netns";

impl Settings {
    pub(crate) fn attachment(&self, target: &Target) -> anyhow::Result<RuntimeConf> {
        let netns = self.namespace(&target.netns)?;
        let id = self.container_id.clone().unwrap_or_else(|| derived_id(&netns));
        parse_id(&id)?;
        parse_ifname(&self.ifname)?;
        let mut attachment = RuntimeConf::new(&id, &self.ifname)?.netns(netns);
        attachment.args = parse_args(self.args.as_deref().unwrap_or_default())?;
        attachment.capability_args = parse_cap_args(self.cap_args.as_deref().unwrap_or_default())?;
        Ok(attachment)
    }

    /// The attachments that a command line names: that of a network and a namespace, as with the reference; or what the cache has of a
    /// container, which is named in place of the namespace, or alone. Each comes with the settings that name it, the oldest first.
    pub(crate) fn targets(&self, verb: &str, words: &Attached) -> anyhow::Result<Vec<(Self, Target)>> {
        let named = match &words.netns {
            Some(word) if self.container_id.is_some() || self.is_namespace(word)? => None,
            // A short word may be a namespace that is gone: DEL of it may be called again, and is of no container that is called so.
            Some(word) => {
                Some(word).filter(|word| is_full_name(word)).map_or(Ok(None), |word| self.find_container(word))?
            }
            None => self.find_container(&words.name)?,
        };
        if let (Some(netns), None) = (&words.netns, &named) {
            return Ok(vec![(self.clone(), Target { network: words.name.clone(), netns: netns.clone() })]);
        }
        let network_name = |word: &String| self.network(word).map_or_else(|_| word.clone(), |network| network.name);
        let network = words.netns.as_ref().map(|_| network_name(&words.name));
        // Alone, a namespace names the container, too.
        let netns = if named.is_none() { self.namespace(&words.name).ok() } else { None };
        let is_it = |cached: &Cached| {
            let RuntimeConf { id, netns: of_add, .. } = &cached.attachment;
            let is_container = named.as_ref().map_or(netns.as_ref() == Some(of_add), |named| *named == id.container_id);
            is_container
                && self.container_id.as_ref().is_none_or(|only| only == id.container_id.as_str())
                && self.only_ifname.as_ref().is_none_or(|only| only == id.ifname.as_str())
                && network.as_ref().is_none_or(|network| network == cached.network.as_str())
        };
        let mut found = self.runtime.cache().list(None)?.cached;
        found.retain(is_it);
        found.sort_by_key(Cached::written);
        if found.is_empty() {
            let word = words.netns.as_ref().unwrap_or(&words.name);
            let msg = format!(
                "cannot {verb} {word}: the cache has no attachment of a pod, container or namespace of this name"
            );
            let help = format!(
                "{}cnitool list shows what it has. Of others: cnitool {verb} NETWORK NETNS.",
                similar(self, word)
            );
            return Err(refused(Code::INVALID_ENVIRONMENT, msg, help));
        }
        let target = |cached: Cached| {
            let RuntimeConf { id, netns, .. } = cached.attachment;
            let (container_id, ifname) = (Some(id.container_id.to_string()), id.ifname.to_string());
            let netns = if netns.is_empty() { format!("{NAMED}/gone") } else { netns };
            (Self { container_id, ifname, ..self.clone() }, Target { network: cached.network.to_string(), netns })
        };
        Ok(found.into_iter().map(target).collect())
    }

    /// The container in the cache that a word names: a pod (`NAMESPACE/NAME`, or its name where it is unique), an ID, or how one begins.
    /// Errors: the word names several.
    pub(crate) fn find_container(&self, word: &str) -> anyhow::Result<Option<ContainerId>> {
        one_of(&self.names(), word)
    }

    /// Whether a word names a namespace: by a file, or by that of ADD.
    fn is_namespace(&self, word: &str) -> anyhow::Result<bool> {
        let path = self.namespace(word)?;
        let cached = self.runtime.cache().list(None).map(|listing| listing.cached).unwrap_or_default();
        Ok(Path::new(&path).exists() || cached.iter().any(|entry| entry.attachment.netns == path))
    }

    /// Refuses a pod's name, or the beginning of an ID as it is shown, where a cached attachment has the whole ID: a call for it would
    /// find nothing to do.
    pub(crate) fn refuse_part_of_id(&self, verb: &str) -> anyhow::Result<()> {
        let Some(word) = self.container_id.as_deref() else { return Ok(()) };
        let names = self.names();
        let found = names.find(word);
        let is_shown = |id: &&&ContainerId| names.is_shown_as(id, word) && id.as_str() != word;
        match found.iter().find(is_shown) {
            Some(meant) if found.iter().all(|id| id.as_str() != word) => {
                let msg = format!("cannot {verb} container {word}: --container-id takes a whole ID");
                Err(refused(Code::INVALID_ENVIRONMENT, msg, format!("Did you mean {meant}?")))
            }
            Some(_) | None => Ok(()),
        }
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
    pub(crate) fn refuse_unnamed(&self, verb: &str, target: &Target, attachment: &RuntimeConf) -> anyhow::Result<()> {
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

    pub(crate) fn container(&self) -> anyhow::Result<Option<ContainerId>> {
        Ok(self.container_id.as_deref().map(parse_id).transpose()?)
    }
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

/// Whether a word is `NAMESPACE/POD`, or has as many digits as are shown of an ID.
fn is_full_name(word: &str) -> bool {
    word.contains('/') || word.len() >= DIGITS_MIN && word.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The one container that a word names.
/// Errors: the word names several: each is listed by a name of its own.
pub(crate) fn one_of(names: &Names, word: &str) -> anyhow::Result<Option<ContainerId>> {
    match names.find(word).as_slice() {
        [] => Ok(None),
        [id] => Ok(Some((*id).clone())),
        several => {
            let each = several.iter().map(|id| format!("{}, container {id}", names.name(id))).collect::<Vec<_>>();
            let msg = format!("{word} names {} containers", several.len());
            Err(refused(Code::INVALID_ENVIRONMENT, msg, format!("Name one of them:\n{}", each.join("\n"))))
        }
    }
}

/// Does the same with each attachment: an error hides no other.
/// Errors: the first; later ones are warnings.
pub(crate) async fn each(
    targets: Vec<(Settings, Target)>,
    work: impl AsyncFn(&Settings, &Target) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut first = Ok(());
    for (settings, target) in &targets {
        match work(settings, target).await {
            Err(error) if first.is_err() => tracing::warn!("{}", to_cni_error(&error)),
            done => first = first.and(done),
        }
    }
    first
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
    fn pairs_need_key_and_value() {
        for bad in ["a", "a=", "=b", "a=b;", "a=b;;c=d"] {
            assert!(parse_args(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_args("a=b;c=d").unwrap().pairs().len(), 2);
    }
}
