//! Plugins in Perl and JavaScript: honest, nothing of them is a finding; with a fault of `strangers/faults.json`, that rule's is.

use crate::run_kit::{Bin, Said, kit, say};
use std::process::Command;

/// Profiles without their braces: what is called, what has to run for it, and how the kit is told of it.
const PROFILES: [(&str, &[&str], &str); 3] = [
    ("pool", &["perl -MJSON::PP -e 1"], r#""role": "ipam", "config": { "ipam": { "type": "pool.pl", "size": 200 } }"#),
    (
        "veth",
        &["perl -MJSON::PP -e 1", "node -e 1"],
        r#""role": "interface", "config": { "type": "link.js", "ipam": { "type": "pool.pl", "size": 200 } }"#,
    ),
    ("label", &["node -e 1"], r#""role": "chained", "config": { "type": "link.js", "label": "plain" }"#),
];

/// The kit's report of a rule and case, with a fault of the plugins or none.
fn said(config: &str, command: &str, fault: &str, rule: &str, case: &str) -> Said {
    let bin = Bin::new();
    for (name, text) in [("pool.pl", include_str!("strangers/pool.pl")), ("link.js", include_str!("strangers/link.js"))]
    {
        let wrong = text.replace("FAULT = \"\"", &format!("FAULT = \"{fault}\""));
        testns::write_executable(bin.path().join(name), wrong).unwrap();
    }
    let profile = bin.config("profile.json", &format!("{{ \"command\": \"{command}\", {config} }}"));
    let case = if case.is_empty() { &[][..] } else { &["--case", case] };
    let profile = profile.to_str().unwrap();
    say(kit(&[&["plugin", "--profile", profile, "--report", "terminal", "--rule", rule], case].concat()))
}

fn runs(words: &str) -> bool {
    let (program, arguments) = words.split_once(' ').unwrap();
    Command::new(program).args(arguments.split(' ')).status().is_ok_and(|status| status.success())
}

fn each_fault_is_found(profile: &str) {
    let (_, needed, config) = PROFILES.into_iter().find(|(name, ..)| *name == profile).unwrap();
    if let Some(missing) = needed.iter().find(|words| !runs(words)) {
        return testns::skip(&format!("strangers {profile}"), &format!("{missing} does not run"));
    }
    let command = if profile == "pool" { "pool.pl" } else { "link.js" };
    let faults: Vec<[&str; 4]> = serde_json::from_str(include_str!("strangers/faults.json")).unwrap();
    for [_, fault, rule, case] in faults.into_iter().filter(|[of, ..]| *of == profile) {
        said(config, command, "", rule, case).has(0, &[" 0 fail, ", " 0 not tried"]);
        let wrong = said(config, command, fault, rule, case);
        assert!(wrong.stdout.contains(&format!("FAILED {rule}")), "{fault}: {}{}", wrong.stdout, wrong.stderr);
    }
}

#[test]
fn each_fault_of_a_pool_in_perl_is_found() {
    each_fault_is_found("pool");
}

#[test]
fn each_fault_of_a_veth_in_javascript_is_found() {
    each_fault_is_found("veth");
}

#[test]
fn each_fault_of_a_chained_plugin_in_javascript_is_found() {
    each_fault_is_found("label");
}
