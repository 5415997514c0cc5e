//! The folders of the workspace are layers: no crate depends on one of a later folder. All of them together have a budget.

use crate::sources::{files_below, sources_or_skip};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The folders, from the ground floor up.
const LAYERS: [&str; 5] = ["libcni", "skel", "plugins", "conformance", "examples"];

/// Throwaway nodes and a server like Kubernetes' API, which the tests of every crate may use.
const FOR_ALL_TESTS: [&str; 2] = ["testns", "kube-api"];

/// The paths of the crates that others depend on, by name, from lines `name = { path = "..." }`.
fn crates(manifest: &str) -> BTreeMap<&str, &str> {
    manifest
        .lines()
        .filter_map(|line| {
            let (name, rest) = line.split_once(" = {")?;
            let (_, path) = rest.split_once("path = \"")?;
            Some((name, path.split_once('"')?.0))
        })
        .collect()
}

/// The folders of a line of `members`, which names one or, by `/*`, all in one.
fn folders(workspace: &Path, member: &str) -> Vec<String> {
    let Some(folder) = member.strip_suffix("/*") else { return vec![member.to_owned()] };
    let entries = fs::read_dir(workspace.join(folder)).unwrap();
    entries.map(|entry| format!("{folder}/{}", entry.unwrap().file_name().into_string().unwrap())).collect()
}

fn layer(path: &str) -> usize {
    let folder = path.split('/').next().unwrap();
    LAYERS.iter().position(|layer| *layer == folder).unwrap_or_else(|| panic!("{path} is in no layer"))
}

/// The crates of the workspace that a manifest names, in all of its tables.
fn dependencies<'a>(manifest: &'a str, crates: &'a BTreeMap<&str, &str>) -> impl Iterator<Item = &'a str> {
    let name =
        |line: &'a str| line.split_once(".workspace = true").or_else(|| line.split_once(" = { workspace = true"));
    manifest.lines().filter_map(move |line| Some(name(line)?.0)).filter(|name| crates.contains_key(name))
}

#[test]
fn no_crate_depends_on_one_of_a_later_folder() {
    let Some(workspace) = sources_or_skip() else { return };
    let root = fs::read_to_string(workspace.join("Cargo.toml")).unwrap();
    let crates = crates(&root);
    let (_, members) = root.split_once("members = [").unwrap();
    let members = members.split_once(']').unwrap().0.split('"').skip(1).step_by(2);
    let members: Vec<_> = members.flat_map(|member| folders(&workspace, member)).collect();
    assert!(members.len() > 30, "{members:?}");
    let mut up = Vec::new();
    for member in members {
        let manifest = fs::read_to_string(workspace.join(&member).join("Cargo.toml")).unwrap();
        let later = |other: &&str| !FOR_ALL_TESTS.contains(other) && layer(crates[other]) > layer(&member);
        up.extend(dependencies(&manifest, &crates).filter(later).map(|other| format!("{member} -> {other}")));
    }
    assert!(up.is_empty(), "{up:?}");
}

/// The crates that encrypt and sign, and the client of Kubernetes' API; SECURITY.md says which executable has one.
const OF_FEW: [&str; 7] = ["aws-lc-rs", "boring", "kube", "native-tls", "openssl", "ring", "rustls"];

#[test]
fn cluster_and_the_node_agent_alone_have_cryptography() {
    let Some(workspace) = sources_or_skip() else { return };
    let found = |folder: &str, words: &str| {
        let mut tree = Command::new(env!("CARGO"));
        tree.args(["tree", "--locked", "--offline", "--edges=normal", "--prefix=none", "--package"]);
        tree.args(words.split(' '));
        let output = tree.current_dir(workspace.join(folder)).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let listed = String::from_utf8(output.stdout).unwrap();
        let names: BTreeSet<_> = listed.lines().filter_map(|line| line.split(' ').next()).collect();
        OF_FEW.into_iter().filter(|name| names.contains(name)).collect::<Vec<_>>()
    };
    assert_eq!(found("", "cni-plugins"), [""; 0]);
    assert_eq!(found("", "cnitool"), [""; 0]);
    assert_eq!(found("", "cni-cluster"), ["ring", "rustls"]);
    assert_eq!(found("", "cni-cluster --features kubernetes"), ["kube", "ring", "rustls"]);
    assert_eq!(found("plugins/node-agent", "cni-node-agent"), ["kube", "ring", "rustls"]);
}

/// Limits of what the folders have: a change that adds deletes as much elsewhere, and what is saved lowers the limit. The goals
/// are 150,000 lines of Rust and 45,000 words of Markdown.
const RUST_LINES: usize = 175_450;
const MARKDOWN_WORDS: usize = 45_000;

#[test]
fn code_and_pages_keep_to_their_budget() {
    let Some(workspace) = sources_or_skip() else { return };
    let texts = |extension: &'static str| {
        let files = LAYERS.iter().flat_map(|layer| files_below(&workspace.join(layer), extension));
        let of_root = fs::read_dir(&workspace).unwrap().map(|entry| entry.unwrap().path());
        let of_root = of_root.filter(move |path| path.extension().is_some_and(|own| own == extension));
        files.chain(of_root).map(|file| fs::read_to_string(file).unwrap()).collect::<Vec<_>>()
    };
    let lines: usize = texts("rs").iter().map(|text| text.lines().count()).sum();
    let words: usize = texts("md").iter().map(|text| text.split_whitespace().count()).sum();
    assert!(lines <= RUST_LINES, "{lines} lines of Rust, more than {RUST_LINES}: what can go?");
    assert!(words <= MARKDOWN_WORDS, "{words} words of Markdown, more than {MARKDOWN_WORDS}: what can go?");
}
