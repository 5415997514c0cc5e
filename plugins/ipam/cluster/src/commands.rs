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

use crate::protocol::{self, CLAIMS, Closed, Draft, FORM, Key, NODES, Network, RUNS, Record, Records, WANTS, claims};
use crate::reservations;
use crate::store::{self, AnyStore, Store, Written};
use crate::transaction::{LockedStore, Purpose, Work, name_conflicts, pause};
use crate::{this_node, upkeep};
use cluster_keys::Conf;

const USAGE: &str = "usage: cluster VERB CONFIG [WORDS] [--json]; CONFIG is a file with the network's config or list, or - for \
                     standard input.\n  init\n  show\n  check [--probe [--link LINK]]\n  \
                     forget NODE [--fenced] [--force] | NODE --cancel\n  repair [--begin|--end]\n  adopt [--begin|--end]\n  leave [--ending]\n  upkeep\n  release CLAIM\n  import FILE";
/// How often a command begins anew because a node wrote first.
const ATTEMPTS_MAX: u32 = 40;

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
        return Some(Reply::success(format!("{}\n", cni_suite::MARK)).send());
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
            ("forget", [node, "--cancel"]) => said(forget::cancel(&store, node)?),
            ("forget", [node, options @ ..]) if options.iter().all(|word| ["--fenced", "--force"].contains(word)) => {
                let [is_fenced, is_forced] = ["--fenced", "--force"].map(|word| options.contains(&word));
                let place = forget::Place { conf: &conf, store: &store, object };
                said(forget::forget(&place, node, forget::Options { is_fenced, is_forced })?)
            }
            ("init", []) => said(init(&conf, &store)?),
            ("repair" | "adopt", ["--begin"]) => said(close(&store, *verb == "repair")?),
            ("repair" | "adopt", ["--end"]) => said(reopen(&store)?),
            ("repair", []) => said(write_back(&conf, Purpose::Repair)?),
            ("adopt", []) => said(write_back(&conf, Purpose::Adopt)?),
            ("leave", []) => said(leave(&conf, false)?),
            ("leave", ["--ending"]) => said(leave(&conf, true)?),
            ("upkeep", []) => said(tidy(&conf, true)?),
            ("upkeep", ["--if-due"]) => said(tidy(&conf, false)?),
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

const VERBS: [&str; 10] =
    ["init", "show", "check", "forget", "repair", "adopt", "leave", "upkeep", "release", "import"];

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

/// All records.
fn records(store: &AnyStore) -> Result<Records, CniError> {
    wait(async {
        let mut all: Vec<_> = store
            .read(&[Key::Network])
            .await?
            .into_iter()
            .filter_map(|(_, network)| Some((Key::Network, network?)))
            .collect();
        for prefix in [NODES, RUNS, CLAIMS, WANTS] {
            all.extend(store.list(prefix).await?.into_iter().map(|(key, _, record)| (key, record)));
        }
        Ok(Records::of(all))
    })?
}

/// Reads records, changes and writes them, until no node writes first. What was read and changed.
fn edit(
    store: &AnyStore,
    keys: &[Key],
    change: impl Fn(&mut Draft) -> Result<(), CniError>,
) -> Result<Draft, CniError> {
    wait(async {
        for attempt in 0..ATTEMPTS_MAX {
            if attempt > 0 {
                pause(attempt).await?;
            }
            let mut draft = Draft::default();
            for (key, (version, record)) in keys.iter().zip(store.read(keys).await?) {
                draft.load(key.clone(), version, record);
            }
            change(&mut draft)?;
            let writes = draft.writes();
            if writes.is_empty() || store.write(&writes).await? == Written::Done {
                return Ok(draft);
            }
        }
        Err(CniError::new(Code::TRY_AGAIN, "nodes changed the records all the time: run the command again"))
    })?
}

/// Changes the network's record, which is made if it is missing and may be.
fn edit_network(store: &AnyStore, is_init: bool, change: impl Fn(&mut Network)) -> Result<(), CniError> {
    let id = this_node::random()?;
    let edited = edit(store, &[Key::Network], |draft| {
        let made = || Network { form: FORM, id: id.clone(), ..Network::default() };
        let missing =
            || CniError::new(Code::STATE, "the store has no records of the network: cnitool cluster init NETWORK");
        let mut network = draft.network().cloned().or_else(|| is_init.then(made)).ok_or_else(missing)?;
        change(&mut network);
        draft.set(&Key::Network, Some(Record::Network(network)));
        Ok(())
    });
    edited.map(drop)
}

/// Makes the network's first record.
fn init(conf: &Conf, store: &AnyStore) -> Result<(String, Value), CniError> {
    if let Some(folder) = store.folder() {
        folder.init()?;
    }
    edit_network(store, true, |_| {})?;
    Ok((format!("the store has network {}\n", conf.network), json!({ "network": conf.network })))
}

/// Lets no node claim until all have written back, or until an operator says that all have.
fn close(store: &AnyStore, is_repair: bool) -> Result<(String, Value), CniError> {
    let names: Vec<String> = records(store)?.nodes.into_keys().collect();
    let closed = if is_repair { Closed::Repair(names.iter().cloned().collect()) } else { Closed::Adopt };
    // A store without a node that could write back is open.
    let closed = Some(closed).filter(|_| !is_repair || !names.is_empty());
    edit_network(store, store.folder().is_none(), |network| network.closed.clone_from(&closed))?;
    let text = match is_repair {
        true => format!("no node claims until each of these has run repair: {}\n", names.join(" ")),
        false => "no node claims until adopt --end; run adopt on each node before\n".to_owned(),
    };
    Ok((text, json!({ "nodes": names })))
}

fn reopen(store: &AnyStore) -> Result<(String, Value), CniError> {
    edit_network(store, false, |network| network.closed = None)?;
    Ok(("nodes claim again\n".to_owned(), json!({})))
}

/// Writes back what this node holds, or held before it had a store.
fn write_back(conf: &Conf, purpose: Purpose) -> Result<(String, Value), CniError> {
    let (held, node) = (reservations::held(conf)?, this_node::name(conf)?);
    let addresses: Vec<_> = held.iter().map(|held| held.address.into()).collect();
    let conflicts = std::cell::RefCell::default();
    let change = async |work: &mut Work<'_>| {
        let (name, memory) = (work.me.name.clone(), work.view.memory.clone());
        work.load_shards(addresses.iter().copied().chain(memory.spans().map(|run| run.first))).await?;
        let others = if purpose == Purpose::Repair {
            work.load_shards(memory.claims.values().flatten().map(|ip| (*ip).into())).await?;
            work.load(memory.claims.keys().cloned().map(Key::Claim)).await?;
            work.load_all(RUNS).await?;
            work.load_all(CLAIMS).await?;
            protocol::restore(&mut work.draft, &name, &memory, &addresses)
        } else {
            protocol::adopt(&mut work.draft, &name, &addresses)
        };
        // Only what the store has already counts: a first write of several may be the last one that it gets.
        let is_done = purpose == Purpose::Repair && others.is_empty() && !work.draft.changes_runs();
        if let (Some(mut network), true) = (work.draft.network().cloned(), is_done) {
            protocol::reopen(&mut network, &name);
            work.draft.set(&Key::Network, Some(Record::Network(network)));
        }
        conflicts.replace(name_conflicts(&held, &others));
        Ok(())
    };
    wait(async {
        let store = LockedStore::lock(conf)?;
        store.transact(purpose, &change).await?;
        if purpose == Purpose::Repair { store.transact(purpose, &change).await.map(drop) } else { Ok(()) }
    })??;
    let conflicts = conflicts.into_inner();
    if conflicts.is_empty() {
        return Ok((format!("the store has what node {node} holds\n"), json!({ "node": node })));
    }
    let text = format!("node {node} holds addresses that the store has as another's: {}", conflicts.join(", "));
    Err(CniError::new(Code::STATE, text).detail(
        "Run the command on the named nodes, then here again: what they had given back is free then. Delete the containers \
         that are named still.",
    ))
}

fn leave(conf: &Conf, is_ending: bool) -> Result<(String, Value), CniError> {
    let text = wait(upkeep::leave(conf, is_ending))??;
    Ok((text, json!({ "network": conf.network })))
}

fn tidy(conf: &Conf, is_asked: bool) -> Result<(String, Value), CniError> {
    wait(upkeep::run(conf, is_asked))??;
    Ok((String::new(), json!({ "network": conf.network })))
}

/// Frees a claim's addresses.
fn release(store: &AnyStore, claim: &str) -> Result<(String, Value), CniError> {
    let key = Key::Claim(claim.to_owned());
    edit(store, std::slice::from_ref(&key), |draft| match claims::begin_to_release(draft, claim) {
        Some(Ok(())) => Ok(()),
        Some(Err(holders)) => {
            let nodes = holders.into_iter().collect::<Vec<_>>().join(" and ");
            Err(CniError::new(Code::STATE, format!("claim {claim} is held by {nodes}"))
                .detail("Delete its container there; of a node that is lost, forget the node first."))
        }
        None => Err(CniError::new(Code::INVALID_CONFIG, format!("there is no claim {claim}"))),
    })?;
    for shard in wait(store.list(RUNS))?? {
        edit(store, &[shard.0], |draft| {
            claims::end_to_release(draft, claim);
            Ok(())
        })?;
    }
    edit(store, std::slice::from_ref(&key), |draft| {
        draft.set(&key, None);
        Ok(())
    })?;
    Ok((format!("claim {claim} is released, and its addresses are free\n"), json!({ "claim": claim })))
}
