//! Tables that name all plugins have those of the list `plugins!`; each key that a plugin parses is used.

use crate::prelude::*;
use crate::runtime::Chain;
use crate::sources::{files_below, sources_or_skip};
use conformance::{chained_plugins, interface_plugins};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use testns::Subject;

struct Line {
    kind: &'static str,
    name: &'static str,
    /// Below `plugins`.
    folder: &'static str,
    readme: &'static str,
}

macro_rules! table {
    ($($kind:ident $plugin:path, $folder:literal;)*) => {
        const PLUGINS: &[Line] = &[$(
            Line {
                kind: stringify!($kind),
                name: cni_plugins::entry::$kind::<$plugin>().name,
                folder: $folder,
                readme: include_str!(concat!("../../../plugins/", $folder, "/README.md")),
            },
        )*];
    };
}

cni_plugins::plugins!(table);

fn of_kind(kind: &str) -> BTreeSet<&'static str> {
    PLUGINS.iter().filter(|line| line.kind == kind).map(|line| line.name).collect()
}

#[test]
fn a_tests_node_has_all_plugins() {
    let of_nodes = Subject::Multicall("any".into()).executables().into_iter().map(|(name, _)| name);
    let entries = cni_plugins::ENTRIES.iter().map(|entry| entry.name.to_owned());
    assert_eq!(of_nodes.collect::<BTreeSet<_>>(), entries.collect());
}

#[test]
fn tests_by_kind_have_all_interface_plugins_and_all_chained_ones() {
    assert_eq!(interface_plugins::ALL.iter().map(|kind| kind.name).collect::<BTreeSet<_>>(), of_kind("interface"));
    assert_eq!(
        chained_plugins::CHAINED_PLUGINS.iter().map(|chained| chained.name).collect::<BTreeSet<_>>(),
        of_kind("chained")
    );
}

/// The names of the kinds in README.md.
fn in_words(kind: &str) -> &str {
    match kind {
        "address" => "addresses",
        "loopback" => "interface",
        kind => kind,
    }
}

#[test]
fn the_readme_has_a_row_for_each_plugin() {
    let Some(root) = sources_or_skip() else { return };
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    let row = |line: &Line| format!("| [`{}`](plugins/{}) | {} |", line.name, line.folder, in_words(line.kind));
    let missing: Vec<_> = PLUGINS.iter().map(row).filter(|row| !readme.contains(row)).collect();
    assert!(missing.is_empty(), "{missing:#?}");
    let rows = readme.lines().filter(|line| line.starts_with("| [`") && line.contains("](plugins/")).count();
    assert_eq!(rows, PLUGINS.len() + 2, "with noop and cluster, which the list does not have");
}

/// The Rust files of a crate's `src`, without those of tests, and without what a file has in its own module of tests.
fn code(folder: &Path) -> BTreeMap<PathBuf, String> {
    let files = files_below(folder, "rs").into_iter().filter(|path| !path.ends_with("tests.rs"));
    let without_tests = |path: &PathBuf| {
        let text = fs::read_to_string(path).unwrap();
        text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned()
    };
    files.map(|path| (path.clone(), without_tests(&path))).collect()
}

/// The public fields of the public structs in a file: what its plugin gets from its keys.
fn fields(text: &str) -> Vec<&str> {
    let mut fields = Vec::new();
    let mut is_inside = false;
    for line in text.lines() {
        is_inside = is_inside && line != "}" || line.starts_with("pub struct ") && line.ends_with('{');
        let name = line.strip_prefix("    pub ").and_then(|line| line.split_once(": "));
        fields.extend(name.filter(|_| is_inside).map(|(name, _)| name));
    }
    fields
}

/// Returns whether code reads a field of this name: `.name`, but no call of a method.
fn reads(text: &str, field: &str) -> bool {
    text.match_indices(&format!(".{field}")).any(|(at, found)| {
        let next = text[at + found.len()..].chars().next().unwrap_or(' ');
        !next.is_alphanumeric() && next != '_' && next != '('
    })
}

#[test]
fn each_key_that_is_parsed_is_used() {
    let Some(root) = sources_or_skip() else { return };
    let mut count = 0;
    let mut unused = Vec::new();
    for line in PLUGINS {
        let files = code(&root.join("plugins").join(line.folder).join("src"));
        for conf in files.iter().filter(|(path, text)| path.ends_with("conf.rs") || text.contains("pub struct Conf {"))
        {
            for field in fields(conf.1) {
                count += 1;
                if !files.values().any(|text| reads(text, field)) {
                    unused.push(format!("{}: {field}", line.name));
                }
            }
        }
    }
    assert!(count > 80, "only {count} fields were found");
    assert!(unused.is_empty(), "parsed and never used: {unused:#?}");
}

/// Returns whether this kernel has what a plugin needs; prints that its half of the test is skipped if not.
fn is_known(plugin: &Value) -> bool {
    let is_it = |name: &str| plugin["type"] == name;
    interface_plugins::ALL.into_iter().filter(|kind| is_it(kind.name)).all(interface_plugins::InterfacePlugin::is_known)
        && chained_plugins::CHAINED_PLUGINS
            .into_iter()
            .filter(|chained| is_it(chained.name))
            .all(chained_plugins::ChainedPlugin::is_known)
}

/// The first example of a plugin's README is a network on a node with the links that it names. That of dhcp needs a daemon.
#[test]
fn the_example_of_each_readme_is_a_network() {
    for line in PLUGINS.iter().filter(|line| line.name != "dhcp") {
        let text = line.readme.split("```json").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
        let mut network: Value = serde_json::from_str(text).expect("JSON");
        if network.get("plugins").is_none() {
            network["plugins"] = json!([{"type": network["type"]}]);
        }
        if !network["plugins"].as_array().unwrap().iter().all(is_known) {
            continue;
        }
        let node = node();
        for device in ["eth1", "ens7f0"] {
            node.host().add_veth(device, &node.remote(device), "far");
        }
        let pod = node.container();
        let attachment = pod.attachment_as(if line.name == "loopback" { "lo" } else { "eth0" });
        let capabilities = json!({"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]});
        let chain = Chain { node: &node, network: &network, capabilities: &capabilities, attachment };
        let of_readme = |error: String| format!("the example of {}'s README: {error}", line.name);
        chain.add().map_err(of_readme).unwrap();
        chain.check().map_err(of_readme).unwrap();
        chain.del().map_err(of_readme).unwrap();
    }
}

const EXECUTABLES: [&str; 2] = ["cni-plugins", "cnitool"];

/// Crates with their versions, and the features that each has when cargo builds `packages`.
fn features(workspace: &Path, packages: &[&str]) -> BTreeMap<String, BTreeSet<String>> {
    let mut cargo = Command::new(env!("CARGO"));
    let words = ["tree", "--offline", "--edges=normal", "--prefix=none", "--format={p};{f}", "--no-dedupe"];
    let output = cargo.args(words).args(packages).current_dir(workspace).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut features = BTreeMap::<_, BTreeSet<String>>::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let Some((package, list)) = line.split_once(';') else { continue };
        features.entry(package.to_owned()).or_default().extend(list.split(',').map(str::to_owned));
    }
    features
}

#[test]
fn every_build_command_gives_the_same_executables() {
    let Some(workspace) = sources_or_skip() else { return };
    let both = EXECUTABLES.map(|name| ["-p", name]).concat();
    let commands = [both, vec!["--workspace"]].map(|words| (words.join(" "), features(&workspace, &words)));
    for executable in EXECUTABLES {
        let alone = features(&workspace, &["-p", executable]);
        assert!(alone.len() > 50, "only {} crates", alone.len());
        for (command, together) in &commands {
            let differs = |(name, features): &(&String, &BTreeSet<String>)| together.get(*name) != Some(features);
            let crates: Vec<_> = alone.iter().filter(differs).map(|(name, _)| (name, together.get(name))).collect();
            assert!(crates.is_empty(), "`{command}` builds {executable} with other features of {crates:#?}");
        }
    }
}
