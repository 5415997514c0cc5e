//! The table of TAKING.md says what the files of expected findings say, which CI compares with runs.

use cni_conformance::rule::Level;
use cni_conformance::rules;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const FOLDER: &str = env!("CARGO_MANIFEST_DIR");

/// Rules of a level that a profile breaks each time, as a file of expected findings says.
fn broken(expected: &str, profile: &str, level: Level) -> BTreeSet<String> {
    let text = fs::read_to_string(format!("{FOLDER}/{expected}")).unwrap();
    let lines = text.lines().map(|line| line.split('#').next().unwrap().trim()).filter(|line| !line.ends_with('?'));
    let found = lines.filter_map(|line| line.strip_prefix(profile)?.strip_prefix(' ')?.split(' ').next());
    found.filter(|id| rules::rule(id).unwrap().level() == level).map(str::to_owned).collect()
}

/// Rows of the table below a heading, by cells; none on a machine without the source.
fn table(heading: &str) -> Vec<Vec<String>> {
    let text = fs::read_to_string(format!("{FOLDER}/TAKING.md")).unwrap_or_default();
    let rows = text.lines().skip_while(|line| !line.starts_with(heading)).skip(2).take_while(|line| !line.is_empty());
    rows.map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()).collect()
}

/// `1 of 30, or 2 as a race goes, and 2 of 13`: the first number of each half.
fn counts(cell: &str) -> [usize; 2] {
    let (must, should) = cell.split_once(" and ").unwrap_or_else(|| panic!("{cell}"));
    [must, should]
        .map(|half| half.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{cell}")))
}

#[test]
fn the_table_of_profiles_has_the_findings_of_the_newest_reference() {
    for row in table("| profile | reference") {
        for profile in row[0].split(", ") {
            let said =
                [Level::Must, Level::Should].map(|level| broken("expected/reference-1.9.1", profile, level).len());
            assert_eq!(counts(&row[1]), said, "{row:?}");
        }
        assert_eq!(counts(&row[2]), [0, 0], "{row:?}");
    }
}

/// The most lines that the core may have, and how many fewer it may have until the bound is lowered.
const BOUND: usize = 10_000;
const ROOM: usize = 500;

/// Lines of code and comments below a folder, without tests, [`APART`] and blank lines.
fn lines(folder: &Path) -> usize {
    /// Files that are no part of the core: other kinds of trials, with testbeds of their own.
    const APART: [&str; 4] = ["runtime", "runtime.rs", "stress", "stress.rs"];
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let of_core = entries.filter(|entry| !APART.iter().any(|name| entry.file_name() == *name));
    let count = |path: &Path| {
        let text = fs::read_to_string(path).unwrap();
        let code = text.lines().take_while(|line| *line != "#[cfg(test)]");
        code.filter(|line| !line.trim().is_empty()).count()
    };
    let of_entry = |path: &Path| match path.extension().is_some_and(|end| end == "rs") {
        true => count(path),
        false if path.is_dir() => lines(path),
        false => 0,
    };
    of_core.map(|entry| of_entry(&entry.path())).sum()
}

/// An upper bound alone would let the core grow back to it after each thing that goes; far below it would say nothing.
#[test]
fn the_core_has_at_most_as_many_lines_as_its_page_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    if !folder.join("src").exists() {
        testns::skip("the_core_has_at_most_as_many_lines_as_its_page_says", "the source is not on this machine");
        return;
    }
    let lines = lines(&folder.join("src"));
    assert!(lines <= BOUND, "the core has {lines} lines, more than {BOUND}: what can go?");
    assert!(
        lines + ROOM > BOUND,
        "the core has {lines} lines: lower the bound here and in README.md, so that it stays small"
    );
    let readme = fs::read_to_string(folder.join("README.md")).unwrap();
    let said = format!("below {},{:03} lines", BOUND / 1000, BOUND % 1000);
    assert!(readme.contains(&said), "README.md does not say {said:?}");
}
