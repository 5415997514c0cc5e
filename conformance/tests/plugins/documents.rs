//! DIFFERENCES.md names tests, TRUST.md files: each of them exists.

use crate::subjects::skip;
use std::fs;
use std::path::{Path, PathBuf};

/// The texts in backquotes that are paths of tests.
fn tests_named_in(document: &str) -> Vec<&str> {
    document.split('`').skip(1).step_by(2).filter(|word| word.contains("::") && !word.ends_with("::")).collect()
}

/// The file that contains `module::test`, by the prefix of its crate.
fn file_of(workspace: &Path, module: &str) -> Option<PathBuf> {
    let folders = [
        ("cni-spec::", "libcni/spec/src"),
        ("cnitool::", "plugins/cnitool/tests/it"),
        ("libcni::", "libcni/tests/it"),
        ("libcni::", "libcni/src"),
        ("", "conformance/tests/plugins"),
        ("", "conformance/faults/tests/faults"),
    ];
    let candidates = folders.into_iter().filter_map(|(prefix, folder)| {
        let path = module.strip_prefix(prefix)?.replace("::", "/");
        Some(workspace.join(folder).join(format!("{path}.rs")))
    });
    candidates.into_iter().find(|file| file.exists())
}

#[test]
fn every_test_that_differences_md_names_exists() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    if !here.exists() {
        skip("the source is not on this machine");
        return;
    }
    let workspace = here.parent().unwrap();
    let document = fs::read_to_string(here.join("DIFFERENCES.md")).unwrap();
    let tests = tests_named_in(&document);
    assert!(tests.len() > 20, "DIFFERENCES.md names {} tests", tests.len());
    let is_there = |test: &str| {
        let (module, function) = test.rsplit_once("::").unwrap();
        let text = file_of(workspace, module).map(|file| fs::read_to_string(file).unwrap());
        text.is_some_and(|text| text.contains(&format!("fn {function}(")))
    };
    let missing: Vec<_> = tests.into_iter().filter(|test| !is_there(test)).collect();
    assert!(missing.is_empty(), "DIFFERENCES.md names tests that are not there: {missing:#?}");
}

#[test]
fn every_file_that_trust_md_names_exists() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    if !here.exists() {
        skip("the source is not on this machine");
        return;
    }
    let workspace = here.parent().unwrap();
    let page = fs::read_to_string(here.join("TRUST.md")).unwrap();
    let files: Vec<_> = page.split('`').skip(1).step_by(2).filter(|word| word.ends_with(".rs")).collect();
    assert!(files.len() > 20, "TRUST.md names {} files", files.len());
    let missing: Vec<_> = files.into_iter().filter(|file| !workspace.join(file).exists()).collect();
    assert!(missing.is_empty(), "TRUST.md names files that are not there: {missing:#?}");
}

/// Words with which no paragraph of a doc comment begins: a comment names its subject.
const WITHOUT_SUBJECT: [&str; 9] = ["It", "Its", "That", "Those", "They", "Their", "Who", "Whose", "One"];

/// The text of a line that is a doc comment.
fn documentation(line: &str) -> Option<&str> {
    ["///", "//!"].iter().find_map(|sign| line.trim_start().strip_prefix(sign)).map(str::trim)
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true if !path.ends_with("target") && !path.is_symlink() => sources(&path, found),
            _ => found.extend(Some(path).filter(|path| path.extension().is_some_and(|extension| extension == "rs"))),
        }
    }
}

#[test]
fn every_doc_comment_names_its_subject() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    if !here.exists() {
        skip("the source is not on this machine");
        return;
    }
    let mut files = Vec::new();
    for folder in ["libcni", "skel", "plugins", "conformance", "examples"] {
        sources(&here.parent().unwrap().join(folder), &mut files);
    }
    assert!(files.len() > 500, "{} files", files.len());
    let mut found = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let mut before = "";
        for line in text.lines().map(|line| documentation(line).unwrap_or_default()) {
            let first = line.split(|letter: char| !letter.is_alphabetic()).next().unwrap_or_default();
            if before.is_empty() && WITHOUT_SUBJECT.contains(&first) {
                found.push(format!("{}: {line}", file.display()));
            }
            before = line;
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}
