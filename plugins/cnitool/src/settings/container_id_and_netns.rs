//! The attachment that a command line names: its namespace's path, the container ID derived from that, and its arguments.

use super::Settings;
use crate::args::Target;
use crate::error_remedies::refused;
use anyhow::{Context, bail};
use libcni::cni_spec::json::resembling;
use libcni::cni_spec::{CniArgs, CniError, Code, ContainerId, IfName};
use libcni::{Attachment, CapabilityArgs};
use sha2::{Digest, Sha512};
use std::path::{Component, Path, PathBuf};

/// The folder of `ip netns`.
const NAMED: &str = "/run/netns";

impl Settings {
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

    /// The container, if one was given.
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
