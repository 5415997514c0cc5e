//! Files that pages name exist. Documents and scripts have the same test commands. Code and pages keep to their budget.

use crate::sources::{files_below, sources_or_skip};
use std::fs;

/// Pages that say by their paths where a decision is made, or what code relies on.
const PAGES_OF_HOMES: [&str; 4] = ["ARCHITECTURE.md", "SECURITY.md", "conformance/TRUST.md", "CONTRIBUTING.md"];

#[test]
fn every_file_that_the_pages_name_exists() {
    let Some(workspace) = sources_or_skip() else { return };
    let mut count = 0;
    let mut missing = Vec::new();
    for page in PAGES_OF_HOMES {
        let text = fs::read_to_string(workspace.join(page)).unwrap();
        let is_path = |word: &&str| word.ends_with(".rs") && word.contains('/') && !word.contains(['*', ' ']);
        let files = text.split('`').skip(1).step_by(2).filter(is_path).filter(|word| !word.starts_with("src/"));
        let files: Vec<_> = files.map(str::to_owned).collect();
        count += files.len();
        let gone = files.into_iter().filter(|file| !workspace.join(file).exists());
        missing.extend(gone.map(|file| format!("{page}: {file}")));
    }
    assert!(count > 40, "the pages name {count} files");
    assert!(missing.is_empty(), "{missing:#?}");
}

/// Pages with longer rows, of which each loses its entry when it is next written anew.
const WITH_LONG_ROWS: [&str; 4] = [
    "examples/cluster/README.md",
    "plugins/ipam/cluster/PROTOCOL.md",
    "plugins/ipam/cluster/README.md",
    "plugins/meta/portmap/README.md",
];

#[test]
fn no_row_of_a_table_is_longer_than_300_characters() {
    let Some(workspace) = sources_or_skip() else { return };
    let folders = ["libcni", "skel", "plugins", "conformance", "examples"].map(|folder| workspace.join(folder));
    let pages = folders.iter().flat_map(|folder| files_below(folder, "md"));
    let pages = pages.chain(["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(|page| workspace.join(page)));
    let mut long = Vec::new();
    for page in pages.filter(|page| !WITH_LONG_ROWS.iter().any(|other| page.ends_with(other))) {
        let text = fs::read_to_string(&page).unwrap();
        let rows = text.lines().filter(|line| line.trim_start().starts_with('|') && line.chars().count() > 300);
        long.extend(rows.map(|row| format!("{}: {row}", page.display())));
    }
    assert!(long.is_empty(), "{long:#?}");
}

/// Words with which no paragraph of a doc comment begins: a comment names its subject.
const WITHOUT_SUBJECT: [&str; 9] = ["It", "Its", "That", "Those", "They", "Their", "Who", "Whose", "One"];

/// Questions name a subject, too: `What DEL removes`, and not `What is removed` or `How it works`.
const QUESTIONS: [&str; 6] = ["What", "Whether", "Where", "How", "Which", "When"];
const MEASURES: [&str; 6] = ["long", "often", "many", "much", "far", "bad"];
const NO_SUBJECTS: [&str; 29] = [
    "it", "they", "to", "is", "are", "was", "were", "be", "becomes", "may", "can", "has", "have", "had", "holds",
    "keeps", "waits", "went", "differs", "carries", "shows", "failed", "goes", "there", "changes", "belongs", "stands",
    "else", "not",
];

/// Whether the first words of a paragraph name no subject.
fn is_without_subject(paragraph: &str) -> bool {
    let mut words = paragraph.split(|letter: char| !letter.is_alphabetic());
    let first = words.next().unwrap_or_default();
    let second = words.find(|word| !word.is_empty() && !MEASURES.contains(word)).unwrap_or_default();
    WITHOUT_SUBJECT.contains(&first) || QUESTIONS.contains(&first) && NO_SUBJECTS.contains(&second)
}

#[test]
fn a_question_without_a_noun_names_no_subject() {
    for paragraph in
        ["It waits.", "What is removed.", "How it works.", "How long to wait.", "Where they are", "What else."]
    {
        assert!(is_without_subject(paragraph), "{paragraph}");
    }
    for paragraph in ["What DEL removes.", "How long DEL waits.", "Whether the link is up.", "The time."] {
        assert!(!is_without_subject(paragraph), "{paragraph}");
    }
}

fn documentation(line: &str) -> Option<&str> {
    ["///", "//!"].iter().find_map(|sign| line.trim_start().strip_prefix(sign)).map(str::trim)
}

#[test]
fn every_doc_comment_names_its_subject() {
    let Some(workspace) = sources_or_skip() else { return };
    let folders = ["libcni", "skel", "plugins", "conformance", "examples"];
    let files: Vec<_> = folders.iter().flat_map(|folder| files_below(&workspace.join(folder), "rs")).collect();
    assert!(files.len() > 500, "{} files", files.len());
    let mut found = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let mut before = "";
        for line in text.lines().map(|line| documentation(line).unwrap_or_default()) {
            if before.is_empty() && is_without_subject(line) {
                found.push(format!("{}: {line}", file.display()));
            }
            before = line;
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// The scripts that a change has to pass.
const SCRIPTS: [&str; 6] = [
    ".ci/run",
    ".ci/big-endian",
    ".ci/quick",
    "conformance/clients/run",
    "conformance/full-kernel/run",
    "plugins/packages/build-executables",
];

/// Cargo.lock decides which crates are built: a script that changed it would test something else than what was committed.
/// The example outside the workspace has no lock file of its own.
#[test]
fn every_build_of_the_scripts_is_locked() {
    let Some(workspace) = sources_or_skip() else { return };
    let mut unlocked = Vec::new();
    for script in SCRIPTS {
        let text = fs::read_to_string(workspace.join(script)).unwrap();
        let builds = |line: &str| {
            let verbs = ["build", "check", "clippy", "doc", "run", "test"];
            verbs.iter().any(|verb| line.contains(&format!("cargo {verb} "))) && !line.starts_with('#')
        };
        let lines = text.lines().map(str::trim).filter(|line| builds(line));
        let lines = lines.filter(|line| !line.contains("--locked") && !line.contains("examples/interface-plugin"));
        unlocked.extend(lines.map(|line| format!("{script}: {line}")));
    }
    assert!(unlocked.is_empty(), "{unlocked:#?}");
}

/// The paths of a list in Cargo.toml.
fn list<'a>(manifest: &'a str, name: &str) -> Vec<&'a str> {
    let (_, rest) = manifest.split_once(&format!("\n{name} = [")).unwrap();
    rest.split_once(']').unwrap().0.split('"').skip(1).step_by(2).collect()
}

#[test]
fn the_test_command_has_each_crate_of_the_product_and_ci_has_all() {
    let Some(workspace) = sources_or_skip() else { return };
    let read = |file: &str| fs::read_to_string(workspace.join(file)).unwrap();
    let manifest = read("Cargo.toml");
    let (members, by_default) = (list(&manifest, "members"), list(&manifest, "default-members"));
    let is_product = |member: &&str| ["libcni", "skel", "plugins"].contains(&member.split('/').next().unwrap());
    let missing: Vec<_> = members.into_iter().filter(is_product).filter(|one| !by_default.contains(one)).collect();
    assert!(missing.is_empty() && by_default.contains(&"conformance"), "{missing:?}");
    for (file, command) in [
        (".ci/run", "cargo test --locked --workspace "),
        (".ci/run", "cargo test --locked --manifest-path plugins/node-agent/Cargo.toml "),
        ("README.md", "\ncargo test --locked\n"),
        ("README.md", "`cargo test --locked --workspace`"),
        ("CONTRIBUTING.md", "| `cargo test --locked` |"),
        ("CONTRIBUTING.md", "| `cargo test --locked --workspace` |"),
    ] {
        assert!(read(file).contains(command), "{file} has no {command:?}");
    }
}
