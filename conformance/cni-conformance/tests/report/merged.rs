//! Runs that are over, side by side.

use crate::made_up;
use cni_conformance::report::{Document, Format, merged};
use std::process::{Command, Output};

/// A run of the first subject only, under another label and folder.
fn run_of(label: &str, folder: &str) -> Document {
    let mut document = made_up::run();
    document.subjects.truncate(1);
    document.subjects[0].label = label.to_owned();
    document.subjects[0].folder = folder.to_owned();
    document.profiles.retain(|used| used.subject == "ours");
    document.trials.retain(|trial| trial.subject == "ours");
    document.profiles.iter_mut().for_each(|used| used.subject = label.to_owned());
    document.trials.iter_mut().for_each(|trial| trial.subject = label.to_owned());
    document.runs[0].subjects = vec![label.to_owned()];
    document
}

fn labels(document: &Document) -> Vec<&str> {
    document.subjects.iter().map(|subject| subject.label.as_str()).collect()
}

#[test]
fn subjects_of_several_runs_stand_side_by_side() {
    let all = merged(vec![run_of("a", "/a"), run_of("b", "/b")]);
    assert_eq!(labels(&all), ["a", "b"]);
    assert_eq!((all.runs.len(), all.rules.len()), (2, made_up::run().rules.len()));
    assert_eq!(all.trials.len(), 2 * run_of("a", "/a").trials.len());
}

#[test]
fn equal_labels_of_different_runs_are_told_apart() {
    let all = merged(vec![run_of("a", "/a"), run_of("a", "/b"), run_of("a", "/a")]);
    assert_eq!(labels(&all), ["a", "a (2)", "a (3)"]);
    assert_eq!(all.runs.iter().map(|run| run.subjects[0].as_str()).collect::<Vec<_>>(), ["a", "a (2)", "a (3)"]);
    for label in labels(&all) {
        assert_eq!(all.trials.iter().filter(|trial| trial.subject == label).count(), run_of("a", "/a").trials.len());
    }
}

#[test]
fn runs_of_different_plugins_of_one_subject_are_one_column() {
    let of = |profile: &str| {
        let mut document = run_of("a", "/a");
        document.profiles.retain(|used| used.name == profile);
        document.trials.retain(|trial| trial.profile == profile);
        document
    };
    let all = merged(vec![of("bridge"), of("ptp")]);
    assert_eq!(labels(&all), ["a"]);
    assert_eq!(all.profiles.len(), 2);
}

#[test]
fn rules_that_only_a_later_run_has_stand_in_their_section() {
    let mut first = run_of("a", "/a");
    first.rules.remove(1);
    let all = merged(vec![first, run_of("b", "/b")]);
    assert_eq!(all.rules, made_up::run().rules);
}

fn report(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cni-conformance")).arg("report").args(words).output().unwrap()
}

#[test]
fn the_command_line_reads_and_writes() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("a.json"), Format::Json.text(&run_of("a", "/a"))).unwrap();
    std::fs::write(path("b.json"), Format::Json.text(&run_of("b", "/b"))).unwrap();
    let (junit, full) = (format!("junit={}", path("out.xml")), format!("terminal={}", path("out.txt")));
    let output = report(&["--from", &path("a.json"), "--from", &path("b.json"), "--report", &junit, "--report", &full]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    // A trial could not be tried.
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    let all = merged(vec![run_of("a", "/a"), run_of("b", "/b")]);
    // But for the name of the kit, which is as it was called.
    let summary =
        |text: &str| text.lines().filter(|line| !line.contains("about it:")).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(summary(&String::from_utf8_lossy(&output.stdout)), summary(&Format::Summary.text(&all)));
    assert_eq!(std::fs::read_to_string(path("out.xml")).unwrap(), Format::Junit.text(&all));
    assert_eq!(std::fs::read_to_string(path("out.txt")).unwrap(), Format::Terminal.text(&all));
    // A written report can be read again, and takes stdout when it is the only one.
    let output = report(&["--from", &path("a.json"), "--report", "json"]);
    assert_eq!(Document::parse(&output.stdout), Ok(run_of("a", "/a")));
}

#[test]
fn what_cannot_be_read_is_named() {
    let output = report(&["--from", "/dev/null"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&output.stderr).starts_with("cni-conformance: /dev/null: it is not JSON"),
        "{output:?}"
    );
}
