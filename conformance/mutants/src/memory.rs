//! The memory of a mutant from call to call, where no rule looks: a testbed's own folder is in no snapshot.

use std::fs;
use std::path::PathBuf;

/// Below [`testns::Node::work_dir`], which no plugin knows.
const FOLDER: &str = "/run/testns/mutant";

fn path(key: &str) -> PathBuf {
    PathBuf::from(FOLDER).join(key.replace('/', "_"))
}

pub(crate) fn mark(key: &str) {
    note(key, "");
}

pub(crate) fn note(key: &str, text: &str) {
    fs::create_dir_all(FOLDER).and_then(|()| fs::write(path(key), text)).unwrap_or_else(|error| panic!("{error}"));
}

pub(crate) fn find(key: &str) -> Option<String> {
    fs::read_to_string(path(key)).ok()
}

pub(crate) fn has(key: &str) -> bool {
    path(key).exists()
}

pub(crate) fn forget(key: &str) -> bool {
    fs::remove_file(path(key)).is_ok()
}

pub(crate) fn forget_all() {
    fs::remove_dir_all(FOLDER).ok();
}

pub(crate) fn find_all(start: &str) -> Vec<String> {
    let entries = fs::read_dir(FOLDER).into_iter().flatten().flatten();
    let found = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(start));
    found.filter_map(|entry| fs::read_to_string(entry.path()).ok()).collect()
}
