//! The folder `monitoring`: units, alerts and a board.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fixture::Tool;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("monitoring")
}

/// Runs a program of the machine; `None` if it is not installed.
pub(crate) fn run(program: &str, words: &[&Path]) -> Option<String> {
    let output = match Command::new(program).args(words).output() {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            testns::skip(program, &format!("{program} is not installed"));
            return None;
        }
        Err(error) => panic!("{program}: {error}"),
    };
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{program}: {said}");
    Some(said)
}

#[test]
fn systemd_takes_the_units() {
    let tool = Tool::new();
    let mut units = vec![PathBuf::from("verify"), PathBuf::from("--man=no")];
    for entry in fs::read_dir(folder()).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        if name.ends_with(".service") || name.ends_with(".timer") {
            let unit = fs::read_to_string(entry.path()).unwrap();
            let unit = unit.replace("/opt/cni/bin/cnitool", env!("CARGO_BIN_EXE_cnitool"));
            units.push(tool.write(&format!("units/{}", name.replace('@', "@pods")), &unit));
        }
    }
    assert_eq!(units.len(), 2 + 6);
    let words: Vec<&Path> = units.iter().map(PathBuf::as_path).collect();
    if let Some(said) = run("systemd-analyze", &words) {
        assert_eq!(said, "", "no complaint");
    }
}

#[test]
fn prometheus_takes_the_rules() {
    run("promtool", &[Path::new("check"), Path::new("rules"), &folder().join("alerts.yml")]);
}

#[test]
fn rules_and_board_name_only_series_that_metrics_has() {
    let read = |file: PathBuf| fs::read_to_string(file).unwrap();
    let series = |text: &str| -> BTreeSet<String> {
        let words = text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
        let names = words.filter(|word| word.starts_with("cni_"));
        names.map(|name| name.trim_end_matches("_bucket").to_owned()).collect()
    };
    let page = read(folder().join("../METRICS.md"))
        .replace("`_used`, `_free`", "`cni_range_addresses_used` `cni_range_addresses_free`");
    let known = series(&page);
    let board = read(folder().join("grafana.json"));
    serde_json::from_str::<serde_json::Value>(&board).unwrap();
    let used = series(&(read(folder().join("alerts.yml")) + &board));
    assert!(used.len() >= 6 && used.is_subset(&known), "{:?}", used.difference(&known).collect::<Vec<_>>());
}
