//! The operator's commands: `cluster show|check CONFIG` and `cluster forget CONFIG NODE [--fenced]`.

use std::path::Path;
use std::time::Duration;

use cni_spec::{CniError, Code, ConfObject, FromConf, text};
use serde_json::Value;
use skel::Reply;

use crate::conf::Conf;
use crate::protocol::{self, State};
use crate::store::{AnyStore, Store};

const USAGE: &str = "usage: cluster show CONFIG | cluster check CONFIG | cluster forget CONFIG NODE [--fenced]";
/// How often `forget` begins anew because a node wrote first.
const ATTEMPTS_MAX: usize = 100;

/// Runs a command, if the words are one. Returns the exit status.
#[must_use]
pub fn run_if_asked(words: impl Iterator<Item = String>) -> Option<u8> {
    let words: Vec<String> = words.collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (first, rest) = words.split_first()?;
    skel::log_at(tracing::Level::INFO);
    let done = match (*first, rest) {
        ("show", [config]) => open(config).and_then(|(conf, store)| show(&conf, &store)),
        ("check", [config]) => open(config).and_then(|(_, store)| check(&store)),
        ("forget", [config, node]) => open(config).and_then(|(_, store)| forget(&store, node, false)),
        ("forget", [config, node, "--fenced"]) => open(config).and_then(|(_, store)| forget(&store, node, true)),
        _ => {
            tracing::error!("{USAGE}");
            return Some(2);
        }
    };
    Some(match done {
        Ok(text) => Reply::success(text).send(),
        Err(error) => {
            tracing::error!("{error}");
            1
        }
    })
}

/// The keys of the network in a file: a list, or one plugin's object.
fn open(path: &str) -> Result<(Conf, AnyStore), CniError> {
    let unusable = |why: String| CniError::new(Code::INVALID_CONFIG, format!("cannot use {path}: {why}"));
    let bytes = std::fs::read(Path::new(path)).map_err(|error| unusable(error.to_string()))?;
    let list = cni_spec::json::parse(&bytes)?;
    let is_ours = |object: &&Value| object["ipam"]["type"] == "cluster";
    let of_list = list["plugins"].as_array().and_then(|plugins| plugins.iter().find(is_ours));
    let found = of_list.or_else(|| Some(&list).filter(is_ours));
    let mut object = found.ok_or_else(|| unusable("no plugin in it has ipam of type cluster".to_owned()))?.clone();
    for key in ["name", "cniVersion"] {
        if object[key].is_null() {
            object[key] = list[key].clone();
        }
    }
    let conf = Conf::from_conf(&ConfObject::parse(cni_spec::json::to_text(&object).as_bytes())?)?;
    let store = conf.store.open(&conf.network, conf.timeout);
    Ok((conf, store))
}

/// Waits for a future without an event loop: a folder is never pending.
fn wait<T>(future: impl Future<Output = T>) -> Result<T, CniError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    Ok(runtime.map_err(|error| CniError::new(Code::IO, format!("no event loop: {error}")))?.block_on(future))
}

fn show(conf: &Conf, store: &AnyStore) -> Result<String, CniError> {
    let (state, _) = wait(store.read())??;
    let count = |span| conf.local.barred.count_allowed(span);
    let of_node = |(name, member): (&String, &protocol::Member)| {
        let runs: Vec<_> = state.runs.iter().filter(|run| run.node == *name).collect();
        let addresses: u128 = runs.iter().map(|run| count(run.span())).sum();
        let spans = runs.iter().map(|run| run.span().to_string()).collect::<Vec<_>>().join(" ");
        let condition = if member.leaving { "being forgotten" } else { "recorded" };
        [name.clone(), condition.to_owned(), addresses.to_string(), spans]
    };
    let head = ["NODE", "STATE", "ADDRESSES", "RUNS"].map(str::to_owned);
    let rows: Vec<_> = std::iter::once(head).chain(state.nodes.iter().map(of_node)).collect();
    let mut lines = text::table(&rows);
    for set in &conf.local.sets {
        let all: u128 = Conf::spans(set).into_iter().map(count).sum();
        let in_set = |run: &&protocol::Run| set.find(run.span().first).is_some();
        let taken: u128 = state.runs.iter().filter(in_set).map(|run| count(run.span())).sum();
        lines.push_str(&format!("{set}: {} of {all} addresses are in no run\n", all.saturating_sub(taken)));
    }
    Ok(lines)
}

/// The store's side: reading it finds overlaps and runs without a node.
fn check(store: &AnyStore) -> Result<String, CniError> {
    let (state, _) = wait(store.read())??;
    Ok(format!("{} nodes, {} runs, no address in two\n", state.nodes.len(), state.runs.len()))
}

fn forget(store: &AnyStore, name: &str, is_fenced: bool) -> Result<String, CniError> {
    let unknown = |state: &State| {
        let names = state.nodes.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        CniError::new(Code::INVALID_CONFIG, format!("no node {name} is recorded"))
            .detail(format!("There are: {names}."))
    };
    let begun = write(store, |state| protocol::begin_to_forget(state, name).ok_or_else(|| unknown(state)))?;
    if !is_fenced {
        let trust = begun.nodes.get(name).map_or(0, |member| member.trust_seconds);
        // A tenth for clocks that run unevenly.
        let wait_for = Duration::from_secs(u64::from(trust) + u64::from(trust) / 10);
        tracing::info!(
            "waiting {} s until node {name} trusts its runs no longer; --fenced if it is off",
            wait_for.as_secs()
        );
        pause(wait_for);
    }
    let freed = begun.runs.iter().filter(|run| run.node == name).count();
    write(store, |state| protocol::end_forgetting(state, name).ok_or_else(|| unknown(state)))?;
    Ok(format!("node {name} is forgotten, {freed} runs are free\n"))
}

#[expect(clippy::disallowed_methods, reason = "the time itself is awaited: a node's trust ends by its clock")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

fn write(store: &AnyStore, change: impl Fn(&State) -> Result<State, CniError>) -> Result<State, CniError> {
    for _ in 0..ATTEMPTS_MAX {
        let (state, version) = wait(store.read())??;
        let next = State { writes: state.writes + 1, ..change(&state)? };
        if wait(store.replace(&version, &next))?? {
            return Ok(next);
        }
    }
    Err(CniError::new(Code::TRY_AGAIN, "nodes changed the records all the time: run the command again"))
}
