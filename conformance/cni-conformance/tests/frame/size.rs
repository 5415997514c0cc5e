//! The size of the core.

use std::fs;
use std::path::Path;

/// Lines of code and comments below a folder, without tests, [`APART`] and blank lines.
fn lines(folder: &Path) -> usize {
    /// Files that are no part of the core: other kinds of trials, with benches of their own.
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

#[test]
fn the_core_has_less_than_12_500_lines() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    if !source.exists() {
        testns::skip("the_core_has_less_than_12_500_lines", "the source is not on this machine");
        return;
    }
    let lines = lines(&source);
    assert!(lines < 12_500, "{lines} lines");
}
