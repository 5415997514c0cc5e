//! Runs of the kit against the runtime in small.

use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

/// The runtime in small, which is in Python: a plugin or a runtime may be in any language.
pub(crate) const MINI: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/runtime/mini-runtime");

pub(crate) fn driver(fault: &str) -> Value {
    let words = |verb: &str| {
        json!([verb, "{network}", "{container}", "{ifname}", "{netns}", "{args}", "{capabilities}", "{keep}"])
    };
    let verbs: serde_json::Map<_, _> =
        ["ADD", "CHECK", "DEL", "GC", "STATUS"].map(|verb| (verb.to_owned(), words(verb))).into_iter().collect();
    json!({
        "name": "mini",
        "verbs": verbs,
        "environment": { "CNI_PATH": "{bin_dir}", "NETCONFPATH": "{conf_dir}", "MINI_FAULT": fault },
        "printsResult": true,
    })
}

/// The outcome of a run: the kit's status, and of each report rule, case, version and verdict.
pub(crate) struct Checked {
    pub(crate) status: Option<i32>,
    pub(crate) trials: Vec<Value>,
    pub(crate) stderr: String,
}

impl Checked {
    pub(crate) fn rules(&self, verdict: &str) -> BTreeSet<String> {
        let is_it = |trial: &&Value| trial["verdict"] == verdict;
        self.trials.iter().filter(is_it).map(|trial| trial["rule"].as_str().unwrap().to_owned()).collect()
    }

    /// Each report that neither passed nor was skipped, for a person.
    pub(crate) fn failures(&self) -> String {
        let is_it = |trial: &&Value| !["pass", "skip"].contains(&trial["verdict"].as_str().unwrap());
        let described = |trial: &Value| {
            format!(
                "{} {} {}: {} but {} {}\n",
                trial["rule"], trial["case"], trial["cni_version"], trial["expected"], trial["seen"], trial["why"]
            )
        };
        self.trials.iter().filter(is_it).map(described).collect()
    }
}

pub(crate) fn check(fault: &str, more: &[&str]) -> Checked {
    check_program(MINI, fault, more)
}

/// The same of any program that is started as `mini` is.
pub(crate) fn check_program(program: &str, fault: &str, more: &[&str]) -> Checked {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("driver.json");
    std::fs::write(&file, driver(fault).to_string()).unwrap();
    let report = folder.path().join("report.json");
    let target = format!("json={}", report.display());
    let words = [&["--driver", file.to_str().unwrap(), "--report", &target, "--level", "relied"], more].concat();
    let output = run(&[&words[..], &["--", program]].concat());
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let text = std::fs::read_to_string(Path::new(&report)).unwrap_or_else(|error| panic!("{error}: {stderr}"));
    let mut document: Value = serde_json::from_str(&text).unwrap();
    let Value::Array(trials) = document["trials"].take() else { panic!("no trials: {text}") };
    Checked { status: output.status.code(), trials, stderr }
}

pub(crate) fn run(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cni-conformance")).arg("runtime").args(words).output().unwrap()
}
