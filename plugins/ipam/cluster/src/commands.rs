//! The operator's commands: `cluster VERB CONFIG ...`, which `cnitool cluster` starts.

mod check;
mod forget;
mod import;
mod probe;
mod show;

use std::io::Read;
use std::path::Path;

use cni_spec::{CniError, Code, ConfObject, FromConf};
use serde_json::{Value, json};
use skel::Reply;

use crate::protocol::{State, claims};
use crate::store::{self, AnyStore, Store};
use crate::transaction::LockedStore;
use cluster_keys::Conf;

const USAGE: &str = "usage: cluster VERB CONFIG [WORDS] [--json]; CONFIG is a file with the network's config or list, or - for \
                     standard input.\n  show\n  check [--probe [--link LINK]]\n  forget NODE [--fenced]\n  repair\n  release CLAIM\n  import FILE";
/// How often a command begins anew because a node wrote first.
const ATTEMPTS_MAX: usize = 100;

/// Runs a command, if the words are one. Returns the exit status.
#[must_use]
pub fn run_if_asked(words: impl Iterator<Item = String>) -> Option<u8> {
    let mut words: Vec<String> = words.collect();
    let is_json = words.iter().any(|word| word == "--json");
    words.retain(|word| word != "--json");
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (verb, rest) = words.split_first()?;
    // By the mark among its bytes `cnitool` knows an executable of this suite.
    if *verb == "--mark" {
        return Some(Reply::success(format!("{}\n", cni_spec::SUITE_MARK)).send());
    }
    skel::log_at(tracing::Level::INFO);
    let (Some((config, rest)), true) = (rest.split_first(), VERBS.contains(verb)) else {
        tracing::error!("{USAGE}");
        return Some(2);
    };
    let done = open(config).and_then(|(conf, store, object)| {
        let object = &object;
        let said = |(text, value): (String, Value)| if is_json { format!("{value:#}\n") } else { text };
        Ok(Some(match (*verb, rest) {
            ("show", []) => said(show::show(&conf, &store)?),
            ("check", []) => said(check::check(&conf, &store, None)?),
            ("check", ["--probe"]) => said(check::check(&conf, &store, Some(check::Probe { object, link: None }))?),
            ("check", ["--probe", "--link", link]) => {
                said(check::check(&conf, &store, Some(check::Probe { object, link: Some(link) }))?)
            }
            ("forget", [node]) => said(forget::forget(&store, node, false)?),
            ("forget", [node, "--fenced"]) => said(forget::forget(&store, node, true)?),
            ("repair", []) => said(repair(&conf)?),
            ("release", [claim]) => said(release(&store, claim)?),
            ("import", [file]) => said(import::import(&conf, &store, file)?),
            _ => return Ok(None),
        }))
    });
    Some(match done {
        Ok(Some(text)) => Reply::success(text).send(),
        Ok(None) => {
            tracing::error!("{USAGE}");
            2
        }
        Err(error) => {
            if is_json {
                let object = json!({ "code": error.code.0, "msg": error.msg, "details": error.details });
                #[expect(clippy::print_stderr, reason = "an error object for the caller, and no line of a log")]
                let () = eprintln!("{object:#}");
            } else {
                tracing::error!("{error}");
            }
            1
        }
    })
}

const VERBS: [&str; 6] = ["show", "check", "forget", "repair", "release", "import"];

/// The keys of the network in a file: a list, or one plugin's object.
fn open(path: &str) -> Result<(Conf, AnyStore, Value), CniError> {
    let unusable = |why: String| CniError::new(Code::INVALID_CONFIG, format!("cannot use {path}: {why}"));
    let bytes = read(path).map_err(|error| unusable(error.to_string()))?;
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
    let store = store::open(&conf);
    Ok((conf, store, object))
}

/// A file, or standard input.
fn read(path: &str) -> std::io::Result<Vec<u8>> {
    if path != "-" {
        return std::fs::read(Path::new(path));
    }
    let mut bytes = Vec::new();
    std::io::stdin().read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Waits for a future without an event loop: a folder is never pending.
fn wait<T>(future: impl Future<Output = T>) -> Result<T, CniError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    Ok(runtime.map_err(|error| CniError::new(Code::IO, format!("no event loop: {error}")))?.block_on(future))
}

/// Writes back what this node holds.
fn repair(conf: &Conf) -> Result<(String, Value), CniError> {
    let conflicts = wait(async { LockedStore::lock(conf)?.repair().await })??;
    let node = crate::this_node::name(conf)?;
    if conflicts.is_empty() {
        return Ok((format!("the store has what node {node} holds\n"), json!({ "node": node })));
    }
    let text = format!("node {node} holds addresses that the store has as another's: {}", conflicts.join(", "));
    Err(CniError::new(Code::STATE, text).detail(
        "Run the command on the named nodes, then here again: what they had given back is free then. Delete the containers \
         that are named still.",
    ))
}

/// Frees a claim's addresses.
fn release(store: &AnyStore, claim: &str) -> Result<(String, Value), CniError> {
    write(store, |state| match claims::release(state, claim) {
        Some(Ok(next)) => Ok(next),
        Some(Err(holders)) => {
            let nodes = holders.into_iter().collect::<Vec<_>>().join(" and ");
            Err(CniError::new(Code::STATE, format!("claim {claim} is held by {nodes}"))
                .detail("Delete its container there; of a node that is lost, forget the node first."))
        }
        None => Err(CniError::new(Code::INVALID_CONFIG, format!("there is no claim {claim}"))),
    })?;
    Ok((format!("claim {claim} is released, and its addresses are free\n"), json!({ "claim": claim })))
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
