//! Three nodes on one layer-2 network: their pods' addresses are unique in the cluster, and every pod reaches every other one.
//!
//! Everything happens in namespaces that end with this program. It is the runtime of each node, and the plugins: called by a
//! plugin's name it acts as that plugin. `steps.rs` has the steps, `many_pods.rs` those of many pods, `switch_and_store.rs` what nodes share, `node_thread.rs` what
//! one node does.

mod many_pods;
mod node_thread;
mod steps;
mod switch_and_store;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};

fn main() -> ExitCode {
    let called = std::env::args().next().unwrap_or_default();
    let name = Path::new(&called).file_name().unwrap_or_default().to_string_lossy().into_owned();
    match name.as_str() {
        "cluster" => cluster::main(std::env::args()).into(),
        _ if is_plugin_call() => cni_plugins::main(std::env::args()).into(),
        _ => match run(&std::env::args().skip(1).collect::<Vec<_>>()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("cluster-example: {error:#}");
                ExitCode::FAILURE
            }
        },
    }
}

const USAGE: &str = "usage: cluster-example [--etcd] [--nodes COUNT --pods COUNT [--kill-leader]]";

fn run(words: &[String]) -> anyhow::Result<()> {
    let has = |word: &str| words.iter().any(|given| given == word);
    let number = |word: &str| {
        let value = words.iter().skip_while(|given| *given != word).nth(1);
        value.map(|text| text.parse::<usize>().context(USAGE)).transpose()
    };
    let known = |word: &String| ["--etcd", "--nodes", "--pods", "--kill-leader"].contains(&word.as_str());
    ensure!(words.iter().all(|word| known(word) || word.parse::<usize>().is_ok()), USAGE);
    let (out, is_etcd) = (&mut std::io::stdout().lock(), has("--etcd"));
    match (number("--nodes")?, number("--pods")?) {
        (None, None) => steps::run(out, is_etcd),
        (Some(nodes @ 1..=100), Some(pods @ 1..=500)) => {
            let is_leader_killed = has("--kill-leader");
            many_pods::run(out, many_pods::Crowd { nodes, pods, is_etcd, is_leader_killed })
        }
        _ => bail!("{USAGE}; at most 100 nodes, and 500 pods of each"),
    }
}

#[expect(clippy::disallowed_methods, reason = "shows whether this program was called as a plugin")]
fn is_plugin_call() -> bool {
    std::env::var_os("CNI_COMMAND").is_some()
}
