//! Every build command makes the same executables: none enables features of a crate that another does not.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use crate::sources::sources_or_skip;

/// The executables that are installed.
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
