//! A run that never was.

use cni_conformance::finding::CallRecord;
use cni_conformance::report::{Asked, Document, FORMAT, Origin, Tried, Use, VERSION, Who};
use cni_conformance::{Finding, Level, Role, Verdict};
use serde_json::json;

/// The output of a plugin that wants to be more than text: ends of elements of each format, control characters,
/// directions of writing, what was no UTF-8, lines that look like those of TAP and YAML.
pub(crate) const HOSTILE: &str = "</script></pre><img src=x onerror=alert(1)>]]>&amp;\"'\u{1b}[31m\r\0\u{7f}\u{9b}\u{202e}\u{fffd}\u{ffff}\nnot ok 1 # TODO\n  ...\n1..0\n";

/// A hundred thousand bytes.
pub(crate) fn long() -> String {
    format!("{HOSTILE}{}{HOSTILE}", "0123456789".repeat(10_000))
}

pub(crate) fn run() -> Document {
    let mut trials = Vec::new();
    for (subject, profile) in [("ours", "bridge"), ("ours", "ptp"), ("a <b> & 'c'", "bridge"), ("a <b> & 'c'", "ptp")] {
        let try_it = |rule: &str, version: &str, verdict: Verdict| trial(rule, subject, profile, version, verdict);
        trials.push(try_it("add.prints-a-result", "0.4.0", Verdict::Pass));
        trials.push(try_it("add.prints-a-result", "1.0.0", Verdict::Pass));
        trials.push(try_it("del.leaves-nothing", "1.0.0", leaves(subject, profile)));
        trials.push(try_it(
            "gc.keeps-valid",
            "1.1.0",
            Verdict::Skip { why: "it speaks no version from 1.1.0 on".into() },
        ));
        let should = if subject == "ours" { Verdict::Pass } else { Verdict::Fail(Finding::new("code 7", HOSTILE)) };
        trials.push(try_it("errors.code-of-bad-key", "1.0.0", should));
    }
    let why = "the bench cannot be laid: <no> \u{1b}[1mroom\nleft".to_owned();
    trials.push(trial("check.sees-missing-link", "ours", "bridge", "1.0.0", Verdict::Broken { why }));
    trials.push(trial("check.sees-missing-link", "a <b> & 'c'", "bridge", "1.0.0", Verdict::Pass));
    document(&["ours", "a <b> & 'c'"], &["bridge", "ptp"], rules(), trials)
}

fn leaves(subject: &str, profile: &str) -> Verdict {
    match (subject, profile) {
        ("ours", _) | (_, "bridge") => Verdict::Pass,
        _ => Verdict::Fail(
            Finding::new("the node as before ADD", "something is left")
                .with_diff("  link lo\n- link <eth0> up\n+ rule \u{1b}[2Jjump CNI-abc\n+ address 10.1.0.7/16\n"),
        ),
    }
}

fn rules() -> Vec<Asked> {
    let rule = |id: &str, section: &str, level, sentence: &str| Asked {
        id: id.to_owned(),
        section: section.to_owned(),
        level,
        sentence: sentence.to_owned(),
        roles: vec![Role::Interface],
        harms_others: false,
    };
    let mut rules = vec![
        rule("add.prints-a-result", "SPEC 2, ADD", Level::Must, "ADD prints a result of the version it was asked for."),
        rule(
            "del.leaves-nothing",
            "SPEC 2, DEL",
            Level::Must,
            "DEL takes back everything that ADD did, on the node and in the container.",
        ),
        rule("check.sees-missing-link", "SPEC 2, CHECK", Level::Must, "CHECK fails if the container's link is gone."),
        rule("gc.keeps-valid", "SPEC 2, GC", Level::Must, "GC leaves alone what a valid attachment uses."),
        rule(
            "errors.code-of-bad-key",
            "SPEC 5, Error",
            Level::Should,
            "A key that is wrong is answered with code 7 & its <name>.",
        ),
        rule("status.before-add", "SPEC 2, STATUS", Level::Must, "A runtime asks STATUS before the first ADD."),
        rule("chain.passes-on", "CONVENTIONS", Level::Convention, "A chained plugin passes prevResult on."),
    ];
    rules[6].roles = vec![Role::Chained];
    rules
}

pub(crate) fn trial(rule: &str, subject: &str, profile: &str, version: &str, verdict: Verdict) -> Tried {
    let is_failure = matches!(verdict, Verdict::Fail(_) | Verdict::Broken { .. });
    let again = format!("cni-conformance plugin --bin-dir x=/opt/cni/bin --only {profile} --rule {rule} --seed 7");
    let calls = [
        ("ADD", Some(0), "{\"cniVersion\": \"1.0.0\"}\n".to_owned()),
        ("DEL", Some(137), long()),
        ("CHECK", None, String::new()),
    ];
    let calls = calls.into_iter().map(|(verb, exit, stdout)| CallRecord {
        executable: format!("/opt/cni/bin/{profile}"),
        environment: vec![("CNI_COMMAND".into(), verb.into()), ("CNI_CONTAINERID".into(), "pod-00001".into())],
        stdin: "{\"cniVersion\":\"1.0.0\",\"name\":\"it's \u{1b}\"}".into(),
        exit,
        stdout,
        stderr: if exit.is_none() { HOSTILE.to_owned() } else { String::new() },
        milliseconds: 12,
        ..CallRecord::default()
    });
    Tried {
        rule: rule.to_owned(),
        case: if rule.starts_with("del") { "after-add".to_owned() } else { String::new() },
        subject: subject.to_owned(),
        profile: profile.to_owned(),
        cni_version: version.to_owned(),
        seed: 7,
        verdict,
        known: false,
        calls: if is_failure { calls.collect() } else { Vec::new() },
        milliseconds: 1034,
        again: if is_failure { again } else { String::new() },
    }
}

pub(crate) fn document(subjects: &[&str], profiles: &[&str], rules: Vec<Asked>, trials: Vec<Tried>) -> Document {
    let pairs = subjects.iter().flat_map(|subject| profiles.iter().map(move |profile| (*subject, *profile)));
    Document {
        format: FORMAT.to_owned(),
        version: VERSION,
        runs: vec![Origin {
            kit: "0.1.0".to_owned(),
            began: "2026-11-21T14:00:07Z".to_owned(),
            milliseconds: 93_400,
            kernel: "6.18.5".to_owned(),
            seed: 7,
            command: vec!["plugin".to_owned(), "--bin-dir".to_owned(), "a <b> & 'c'=/opt/cni/bin".to_owned()],
            subjects: subjects.iter().map(|label| (*label).to_owned()).collect(),
            notes: vec!["not tested, for want of a config (--config): <odd> of ours".to_owned()],
        }],
        subjects: subjects
            .iter()
            .map(|label| Who { label: (*label).to_owned(), folder: format!("/opt/{label}/bin"), also: Vec::new() })
            .collect(),
        profiles: pairs
            .map(|(subject, profile)| Use {
                subject: subject.to_owned(),
                name: profile.to_owned(),
                role: Role::Interface,
                executable: profile.to_owned(),
                plugins: vec![json!({ "type": profile, "note": "</code><script>" })],
            })
            .collect(),
        rules,
        trials,
    }
}
