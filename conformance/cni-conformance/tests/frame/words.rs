//! The command line.

use crate::kit::{Bin, HONEST, kit, plugin, say, sum};

#[test]
fn unknown_names_are_errors_with_near_ones() {
    let bin = Bin::with("loopback", HONEST);
    let bad = |arguments: &[&str], text: &str| say(plugin(&bin, arguments)).has(2, &[text]);
    bad(&["--rule", "del.leave-nothing"], "there is no rule \"del.leave-nothing\": did you mean del.leaves-nothing");
    bad(&["--only", "loopbac"], "there is no plugin \"loopbac\": did you mean loopback?");
    bad(&["--case", "xyzzy"], "there is no case \"xyzzy\"");
    bad(&["--only", "bridge"], "nothing to test");
    bad(&["--level", "shuld"], "invalid value 'shuld'");
    bad(&["--report", "terminl"], "terminl");
    bad(&["--config", "/no/such/file"], "/no/such/file: No such file");
    bad(&["--repeat", "0"], "invalid value '0'");
}

#[test]
fn a_config_has_to_be_one() {
    let bin = Bin::with("loopback", HONEST);
    for (text, why) in [("{", "it is not JSON"), ("[]", "no plugin object"), (r#"{"type":"none"}"#, "called \"none\"")]
    {
        let config = bin.config("a.conf", text);
        say(plugin(&bin, &["--config", config.to_str().unwrap()])).has(2, &[why]);
    }
}

#[test]
fn subjects_have_labels_that_differ() {
    let bin = Bin::with("loopback", HONEST);
    let labelled = |label: &str| format!("{label}={}", bin.path().display());
    let run = |one: &str, other: &str| {
        say(kit(&[
            "plugin",
            "--bin-dir",
            one,
            "--bin-dir",
            other,
            "--rule",
            "version.lists-versions",
            "--only",
            "loopback",
        ]))
    };
    run(&labelled("one"), &labelled("two")).has(0, &[&sum(2, 0, 0, 0)]);
    run(&labelled("one"), &labelled("one")).has(2, &["two subjects are called one"]);
    run("one=/no/such/folder", &labelled("two")).has(2, &["/no/such/folder: No such file"]);
}

#[test]
fn executables_without_a_profile_are_named() {
    let bin = Bin::with("loopback", HONEST);
    bin.put("special", HONEST);
    say(plugin(&bin, &["--rule", "version.lists-versions"]))
        .has(0, &["not tested, for want of a config (--config): special"]);
    say(plugin(&bin, &["--rule", "version.lists-versions", "--only", "loopback"])).has_not("special");
}

#[test]
fn rules_are_listed() {
    let all = say(kit(&["rules"]));
    all.has(0, &["| del.leaves-nothing | SHOULD | SPEC 2, DEL |", "| version.lists-versions |"]);
    let some = say(kit(&["plugin", "--list-rules", "--rule", "version.lists-versions"]));
    some.has(0, &["| version.lists-versions |"]);
    some.has_not("del.leaves-nothing");
}

#[test]
fn a_report_goes_to_a_file() {
    let bin = Bin::with("loopback", HONEST);
    let file = bin.path().join("report");
    let said =
        say(plugin(&bin, &["--rule", "version.lists-versions", "--report", &format!("terminal={}", file.display())]));
    said.has(0, &[]);
    let report = std::fs::read_to_string(&file).unwrap();
    assert!(report.contains(&sum(1, 0, 0, 0)), "{report}");
}
