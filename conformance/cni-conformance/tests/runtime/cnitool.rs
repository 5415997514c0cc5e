//! The suite's own command line, where it is built: `cargo build -p cnitool`.

use crate::run_kit::run;
use serde_json::Value;
use std::path::Path;

#[test]
fn cnitool_keeps_every_rule() {
    let cnitool = Path::new(env!("CARGO_BIN_EXE_cni-conformance")).with_file_name("cnitool");
    if !cnitool.exists() {
        return testns::skip("cnitool_keeps_every_rule", "not built: cargo build -p cnitool");
    }
    let output = run(&["--report", "json", "--", cnitool.to_str().unwrap()]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let trials = document["trials"].as_array().unwrap();
    let wrong: Vec<_> =
        trials.iter().filter(|trial| ["fail", "broken"].contains(&trial["verdict"].as_str().unwrap())).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(trials.iter().filter(|trial| trial["verdict"] == "pass").count() > 100, "{}", trials.len());
}
