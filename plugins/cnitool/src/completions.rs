//! Completion of words in a shell: verbs and options, and what is on this node.
//!
//! A shell's script calls this program with [`VARIABLE`] set. It then only reads: what cannot be read has no words.

use crate::args;
use crate::settings::Settings;
use clap_complete::Shell;
use clap_complete::engine::{CompletionCandidate, PathCompleter, ValueCompleter};
use clap_complete::env::{CompleteEnv, Shells};
use host_local::inventory::list_held;
use libcni::{Cached, Cancellation, NetworkConf, conflist};
use on_node::pod_names::PodName;
use std::ffi::{OsStr, OsString};

/// Names the shell that asks for words.
const VARIABLE: &str = "CNITOOL_COMPLETE";

/// Answers a shell. False: none asks.
pub(crate) fn answer(words: &[OsString]) -> Result<bool, clap::Error> {
    #[expect(clippy::disallowed_methods, reason = "no plugin's variable, and without it nothing else is looked at")]
    let is_asked = std::env::var_os(VARIABLE).is_some();
    if !is_asked {
        return Ok(false);
    }
    let dir = std::env::current_dir().ok();
    CompleteEnv::with_factory(args::grammar).var(VARIABLE).try_complete(words, dir.as_deref())
}

pub(crate) fn script(shell: Shell) -> anyhow::Result<Vec<u8>> {
    let (name, shells, mut script) = (shell.to_string(), Shells::builtins(), Vec::new());
    let shell = shells.completer(&name).ok_or_else(|| anyhow::anyhow!("cannot complete words of {name}"))?;
    shell.write_registration(VARIABLE, "cnitool", "cnitool", "cnitool", &mut script)?;
    Ok(script)
}

/// What the words before the one that is completed say, and the variables.
fn settings() -> Option<Settings> {
    let words: Vec<OsString> = std::env::args_os().skip_while(|word| word != "--").skip(1).collect();
    let (_, before) = words.split_last()?;
    Some(Settings::new(&args::common(before)?, Cancellation::default()))
}

fn attachments() -> Vec<Cached> {
    let listing = settings().and_then(|settings| settings.runtime.cache().list(None).ok());
    listing.map(|listing| listing.cached).unwrap_or_default()
}

fn word(text: impl Into<OsString>, help: impl Into<String>) -> CompletionCandidate {
    CompletionCandidate::new(text).help(Some(help.into().into()))
}

/// The words that a shell takes as they are: bash puts them into its line unquoted, and a file can be called `$(reboot)`.
fn harmless(mut words: Vec<CompletionCandidate>) -> Vec<CompletionCandidate> {
    let is_harmless = |c: char| c.is_alphanumeric() || "/._-:@+,=%~".contains(c);
    words.retain(|word| word.get_value().to_str().is_some_and(|text| text.chars().all(is_harmless)));
    words
}

/// Words without repetition that begin with `current`.
fn beginning(current: &OsStr, words: impl IntoIterator<Item = CompletionCandidate>) -> Vec<CompletionCandidate> {
    let current = current.to_string_lossy();
    let begins = |word: &CompletionCandidate| word.get_value().to_string_lossy().starts_with(&*current);
    let mut words: Vec<_> = words.into_iter().filter(begins).collect();
    words.sort_by(|a, b| a.get_value().cmp(b.get_value()));
    words.dedup_by(|a, b| a.get_value() == b.get_value());
    harmless(words)
}

/// Networks by name; files, once the word has a `/`.
pub(crate) fn networks(current: &OsStr) -> Vec<CompletionCandidate> {
    if current.to_string_lossy().contains('/') {
        return harmless(PathCompleter::file().complete(current));
    }
    let files = settings().and_then(|settings| conflist::search_order(&settings.conf_dir).ok()).unwrap_or_default();
    let networks = files.iter().filter_map(|path| Some((NetworkConf::read(path).ok()?, path)));
    beginning(current, networks.map(|(network, path)| word(network.name, path.display().to_string())))
}

/// Namespaces: those of attachments, and those in the folder of `ip netns`; else any path.
pub(crate) fn namespaces(current: &OsStr) -> Vec<CompletionCandidate> {
    let attached = attachments();
    let of_cache = attached.iter().map(|cached| word(&cached.attachment.netns, id(cached)));
    let named = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let words = beginning(current, of_cache.chain(named.map(|entry| word(entry.path(), ""))));
    if words.is_empty() { harmless(PathCompleter::any().complete(current)) } else { words }
}

pub(crate) fn containers(current: &OsStr) -> Vec<CompletionCandidate> {
    let words = attachments();
    let words = words.iter().map(|cached| word(cached.attachment.id.container_id.as_str(), cached.network.as_str()));
    beginning(current, words)
}

pub(crate) fn named(current: &OsStr) -> Vec<CompletionCandidate> {
    let attached = attachments();
    let pods = attached.iter().filter_map(|cached| Some((PodName::find(&cached.attachment.args)?.full_name(), cached)));
    let ids = attached.iter().map(|cached| (cached.attachment.id.container_id.to_string(), cached));
    beginning(current, pods.chain(ids).map(|(name, cached)| word(name, cached.network.as_str())))
}

pub(crate) fn networks_and_named(current: &OsStr) -> Vec<CompletionCandidate> {
    let networks = networks(current);
    networks.into_iter().chain(named(current)).collect()
}

pub(crate) fn namespaces_and_named(current: &OsStr) -> Vec<CompletionCandidate> {
    named(current).into_iter().chain(namespaces(current)).collect()
}

pub(crate) fn held_and_named(current: &OsStr) -> Vec<CompletionCandidate> {
    held(current).into_iter().chain(named(current)).collect()
}

pub(crate) fn held(current: &OsStr) -> Vec<CompletionCandidate> {
    let files = settings().and_then(|settings| conflist::search_order(&settings.conf_dir).ok()).unwrap_or_default();
    let networks: Vec<NetworkConf> = files.iter().filter_map(|path| NetworkConf::read(path).ok()).collect();
    let held = networks.iter().flat_map(|network| {
        let held = on_node::Requests::of(network)
            .stores()
            .into_iter()
            .flat_map(|folder| list_held(&folder).unwrap_or_default());
        held.map(|held| word(held.address.to_string(), network.name.clone()))
    });
    beginning(current, held)
}

pub(crate) fn own_plugins(current: &OsStr) -> Vec<CompletionCandidate> {
    beginning(current, cni_plugins::ENTRIES.iter().map(|entry| word(entry.name, "")))
}

/// Pods, and attachments as `CONTAINER/IFNAME`.
pub(crate) fn container_interfaces(current: &OsStr) -> Vec<CompletionCandidate> {
    let attachments = attachments();
    let ids = attachments.iter().map(|cached| word(id(cached), cached.network.as_str()));
    named(current).into_iter().chain(beginning(current, ids)).collect()
}

fn id(cached: &Cached) -> String {
    format!("{}/{}", cached.attachment.id.container_id, cached.attachment.id.ifname)
}

pub(crate) fn plugins(current: &OsStr) -> Vec<CompletionCandidate> {
    let settings = settings();
    let dirs = settings.iter().flat_map(|settings| settings.runtime.plugin_path().dirs());
    let files = dirs.flat_map(|dir| std::fs::read_dir(dir).into_iter().flatten().flatten());
    let files = files.filter(|entry| entry.path().is_file());
    beginning(current, files.map(|entry| word(entry.file_name(), entry.path().display().to_string())))
}

pub(crate) fn schemas(current: &OsStr) -> Vec<CompletionCandidate> {
    beginning(current, crate::schema::names().map(|name| word(name, "")))
}
