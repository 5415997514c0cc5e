//! podman, which makes containers of its own.

use crate::run_kit::run;
use serde_json::Value;

const DRIVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/runtimes/podman-4.json");

#[test]
fn podman_is_driven() {
    if !["/usr/bin/podman", "/usr/bin/crun", "/usr/bin/conmon"]
        .into_iter()
        .all(|path| std::path::Path::new(path).exists())
    {
        return testns::skip("podman_is_driven", "not installed: podman, crun, conmon");
    }
    let words = [
        "--rule",
        "call.",
        "--rule",
        "chain.add",
        "--rule",
        "chain.del",
        "--report",
        "json",
        "--driver",
        DRIVER,
        "--",
        "podman",
    ];
    let output = run(&words);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let trials = document["trials"].as_array().unwrap();
    let with = |verdict: &str| {
        let mut rules: Vec<_> = trials
            .iter()
            .filter(|trial| trial["verdict"] == verdict)
            .map(|trial| trial["rule"].as_str().unwrap())
            .collect();
        rules.dedup();
        rules
    };
    let passed = with("pass");
    for rule in [
        "call.command",
        "call.netns",
        "call.path",
        "chain.add-in-order",
        "chain.del-in-reverse",
        "chain.del-has-result",
    ] {
        assert!(passed.contains(&rule), "{document:#}");
    }
    let mut failed = with("fail");
    // On a busy machine its plugins sometimes inherit a descriptor of its storage.
    failed.retain(|rule| *rule != "call.no-other-files");
    assert_eq!((failed, with("broken")), (vec!["chain.del-stops-at-error"], Vec::new()), "{document:#}");
}
