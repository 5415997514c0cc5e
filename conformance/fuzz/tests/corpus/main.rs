//! Every decoder, given its corpus and variations of it: what a stable compiler can do in seconds, each time alike.

#![expect(clippy::disallowed_methods, reason = "a longer search is asked for by a variable")]

mod variation;

use fuzz::{TARGETS, Target, Tokens};
use std::collections::BTreeSet;
use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use variation::Variations;

/// How many variations a target gets. `FUZZ_VARIATIONS` asks for more.
const VARIATIONS: usize = 2000;
/// Longer inputs belong to the search, not to the corpus.
const MAX_SEED_BYTES: u64 = 4096;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

/// File name and bytes, by name.
fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
    let read = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.expect("the folder can be read");
        (entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path()).expect("a seed is a file"))
    };
    let folder = fs::read_dir(folder().join(target)).expect("every target has a corpus folder");
    let mut seeds: Vec<_> = folder.map(read).collect();
    seeds.sort();
    seeds
}

/// The input that fails, ready for printf(1), or `None`.
fn failing(target: &Target, input: &[u8]) -> Option<String> {
    let run = target.run;
    catch_unwind(|| run(input)).is_err().then(|| format!("printf '{}'", input.escape_ascii()))
}

fn first_failing_variation(target: &Target, seeds: &[Vec<u8>], count: usize) -> Option<String> {
    let mut variations = Variations::new(target.name);
    let tokens = target.tokens.list();
    (0..count).find_map(|_| failing(target, &variations.next(seeds, &tokens)))
}

#[test]
fn every_seed_holds() {
    let failing = |target: &Target| {
        let seeds = seeds(target.name).into_iter();
        let failing =
            seeds.filter_map(|(name, input)| Some(format!("{}/{name}: {}", target.name, failing(target, &input)?)));
        failing.collect::<Vec<_>>()
    };
    let found: Vec<String> = TARGETS.iter().flat_map(failing).collect();
    assert!(found.is_empty(), "these do not hold:\n{}", found.join("\n"));
}

#[test]
fn every_variation_holds() {
    let asked = std::env::var("FUZZ_VARIATIONS").ok().map(|count| count.parse().unwrap());
    let failing = |target: &Target| {
        let seeds: Vec<Vec<u8>> = seeds(target.name).into_iter().map(|(_, input)| input).collect();
        let input = first_failing_variation(target, &seeds, asked.unwrap_or(VARIATIONS))?;
        Some(format!("{}: {input}", target.name))
    };
    let found: Vec<String> = TARGETS.iter().filter_map(failing).collect();
    assert!(found.is_empty(), "these do not hold:\n{}", found.join("\n"));
}

/// The search itself can fail: a fault three changes away from the only seed is found.
#[test]
fn a_fault_is_found() {
    fn faulty(input: &[u8]) {
        assert!(!(input.starts_with(b"{") && input.windows(4).any(|part| part == b"null") && !input.ends_with(b"}")));
    }
    let target = Target { name: "faulty", run: faulty, tokens: Tokens::Each(&["null"]) };
    let found = first_failing_variation(&target, &[b"{\"a\":1}".to_vec()], VARIATIONS);
    assert!(found.is_some_and(|input| input.contains("null")));
}

#[test]
fn variations_are_the_same_each_time() {
    let all = || {
        let mut variations = Variations::new("x");
        (0..100).map(|_| variations.next(&[b"abc".to_vec(), b"12345".to_vec()], &["word"])).collect::<Vec<_>>()
    };
    assert_eq!(all(), all());
    assert!(all().iter().collect::<BTreeSet<_>>().len() > 50);
}

/// No folder without a target, no target without seeds.
#[test]
fn targets_and_corpus_are_the_same_set() {
    let names: BTreeSet<String> = TARGETS.iter().map(|target| target.name.to_owned()).collect();
    let folders = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(folders.collect::<BTreeSet<_>>(), names);
    for target in TARGETS {
        let seeds = fs::read_dir(folder().join(target.name)).unwrap();
        let lengths: Vec<u64> = seeds.map(|seed| seed.unwrap().metadata().unwrap().len()).collect();
        assert!(!lengths.is_empty() && lengths.iter().all(|length| *length <= MAX_SEED_BYTES), "{}", target.name);
    }
}
