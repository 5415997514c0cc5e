//! The size of the core.

use std::fs;
use std::path::Path;

/// The most lines that the core may have, and how many fewer it may have until the bound is lowered.
const BOUND: usize = 11_900;
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
