//! The tables of TAKING.md say what the files of expected findings say, which CI compares with runs.

use cni_conformance::rule::Level;
use cni_conformance::rules;
use std::collections::BTreeSet;
use std::fs;

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
        let said = [Level::Must, Level::Should].map(|level| broken("expected/reference-1.9.1", &row[0], level).len());
        assert_eq!(counts(&row[1]), said, "{row:?}");
        assert_eq!(counts(&row[3]), [0, 0], "{row:?}");
    }
}

#[test]
fn the_table_of_musts_has_the_findings_of_the_newest_reference() {
    let profiles: Vec<_> = table("| profile | reference").into_iter().map(|row| row[0].clone()).collect();
    for row in table("| rule | 1.9.1") {
        let breaks = |profile: &&String| broken("expected/reference-1.9.1", profile, Level::Must).contains(&row[0]);
        let found: Vec<_> = profiles.iter().filter(breaks).map(String::as_str).collect();
        let said = if row[1] == "all" { profiles.join(", ") } else { row[1].clone() };
        assert!(said.contains("a race") || said == found.join(", "), "{row:?}, found {found:?}");
    }
    let rows: BTreeSet<_> = table("| rule | 1.9.1").into_iter().map(|row| row[0].clone()).collect();
    let all = profiles.iter().flat_map(|profile| broken("expected/reference-1.9.1", profile, Level::Must));
    assert_eq!(all.filter(|id| !rows.contains(id)).collect::<Vec<_>>(), Vec::<String>::new());
}

#[test]
fn the_table_of_other_shapes_has_their_findings() {
    for row in table("| plugin | shape") {
        let name = row[0].trim_start_matches('[').split(']').next().unwrap();
        let of = |level| broken(&format!("examples/{name}/expected"), name, level);
        let should: Vec<_> = of(Level::Should).into_iter().collect();
        assert_eq!(counts(&row[2]), [of(Level::Must).len(), should.len()], "{row:?}");
        assert_eq!(row[3], should.join(", "), "{row:?}");
    }
}
