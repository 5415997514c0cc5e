//! Configurations without a fault.

use cnitool::validate::{Source, validate};
use std::path::{Path, PathBuf};

pub(crate) fn conflists_below(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            conflists_below(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "conflist") {
            found.push(path);
        }
    }
}

#[test]
fn examples_have_no_fault() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut files = Vec::new();
    conflists_below(&folder, &mut files);
    assert!(files.len() > 5);
    for path in files {
        let source = Source::file(&path.display().to_string(), &std::fs::read(&path).unwrap());
        let findings = validate(vec![source], cnitool::keys::ALL).findings;
        // custom-plugin's is of another project.
        let faults: Vec<_> =
            findings.iter().filter(|finding| finding.level != cnitool::validate::Level::Note).collect();
        assert!(faults.is_empty(), "{}: {faults:?}", path.display());
    }
}

#[test]
fn every_plugin_is_known() {
    let mut known: Vec<&str> = cnitool::keys::ALL.iter().map(|known| known.name).collect();
    // noop's keys are its control file's business.
    known.push("noop");
    known.sort_unstable();
    let mut all: Vec<&str> = cni_plugins::ENTRIES.iter().map(|entry| entry.name).collect();
    all.push("cluster"); // an executable of its own
    all.sort_unstable();
    assert_eq!(known, all);
}
