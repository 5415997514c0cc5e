//! Each format as a whole, and read back by something that knows it.

use crate::made_up::{self, long};
use cni_conformance::report::{Document, Format};
use expect_test::expect_file;

#[test]
fn terminal() {
    let text = Format::Terminal.text(&made_up::run());
    expect_file!["expected/terminal.txt"].assert_eq(&text);
    assert!(!text.chars().any(|c| c.is_control() && c != '\n' && c != '\t'), "something acts on the terminal");
}

/// Prose keeps to the width; commands, outputs and differences are never broken up, since they are copied.
#[test]
fn terminal_of_80_columns() {
    let text = anstream::adapter::strip_str(&Format::Terminal.for_terminal(&made_up::run(), 80)).to_string();
    let is_prose =
        |line: &&str| !line.starts_with("    ") && !line.starts_with("  $ ") && !line.starts_with("  again:");
    for line in text.lines().filter(is_prose) {
        assert!(line.chars().count() <= 80, "{line}");
    }
    for word in Format::Terminal.text(&made_up::run()).split_whitespace() {
        assert!(text.contains(word), "{word:?} is lost");
    }
}

#[test]
fn colours_are_only_of_the_terminal_s_report() {
    let document = made_up::run();
    assert!(Format::Terminal.for_terminal(&document, 80).contains("\u{1b}[31m"));
    assert!(!Format::Terminal.text(&document).contains('\u{1b}'));
}

#[test]
fn junit() {
    expect_file!["expected/junit.xml"].assert_eq(&Format::Junit.text(&one_of_each_verdict()));
    let text = Format::Junit.text(&made_up::run());
    let tree = roxmltree::Document::parse(&text).expect("XML");
    let root = tree.root_element();
    let number = |node: roxmltree::Node<'_, '_>, name: &str| node.attribute(name).unwrap().parse::<usize>().unwrap();
    let count =
        |node: roxmltree::Node<'_, '_>, name: &str| node.descendants().filter(|node| node.has_tag_name(name)).count();
    for node in tree.descendants().filter(|node| node.has_tag_name("testsuite") || *node == root) {
        for (attribute, element) in
            [("tests", "testcase"), ("failures", "failure"), ("errors", "error"), ("skipped", "skipped")]
        {
            assert_eq!(number(node, attribute), count(node, element), "{attribute} of {:?}", node.attribute("name"));
        }
    }
    assert_eq!(["failures", "errors", "skipped"].map(|name| number(root, name)), [3, 1, 4]);
    let levels: Vec<_> = tree
        .descendants()
        .filter(|node| node.has_tag_name("failure"))
        .filter_map(|node| node.attribute("type"))
        .collect();
    assert_eq!(levels, ["SHOULD", "MUST", "SHOULD"]);
}

/// The document with one trial of each verdict and at most one call of it, which shows the shape of a format.
fn one_of_each_verdict() -> Document {
    let mut few = made_up::run();
    let mut seen = std::collections::BTreeSet::new();
    few.trials.retain(|trial| seen.insert(serde_json::to_value(&trial.verdict).unwrap()["verdict"].to_string()));
    few.trials.iter_mut().for_each(|trial| trial.calls.truncate(1));
    few
}

#[test]
fn json_reads_back_as_it_was() {
    let document = made_up::run();
    let text = Format::Json.text(&document);
    assert_eq!(serde_json::from_str::<Document>(&text).unwrap(), document);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&value["format"], &value["version"]), (&"cni-conformance".into(), &1.into()));
    // The whole of an output, however long and odd.
    assert!(text.contains(serde_json::to_string(&long()).unwrap().as_str()));
    let mut few = one_of_each_verdict();
    few.profiles.truncate(1);
    few.rules.retain(|rule| rule.id == "del.leaves-nothing");
    expect_file!["expected/report.json"].assert_eq(&Format::Json.text(&few));
}
