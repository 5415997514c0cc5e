//! The benchmark on two pods, with a debug build: every row works, and a subject that fails is reported as failed.

#![allow(missing_docs, reason = "a test's name is its documentation")]
#![allow(clippy::unwrap_used, reason = "a test that cannot set up its objects fails")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// Runs the benchmark, and reads what it has measured.
fn bench(arguments: &[&str], folder: &Path) -> (Output, Value) {
    let json = folder.join("report.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_side-by-side"));
    // Plugins that are installed on the machine are not this test's subject.
    command.args(arguments).args(["--quick", "--pods", "2", "--reference", "/nonexistent", "--json"]).arg(&json);
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let report = fs::read_to_string(&json).unwrap_or_else(|error| panic!("no report: {error}; {stderr}"));
    (output, serde_json::from_str(&report).unwrap())
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Rows as `scene VERB subject`, of those whose outcome has this key.
fn rows(report: &Value, list: &str, outcome: &str) -> Vec<String> {
    let rows = report[list].as_array().unwrap().iter().filter(|row| row["outcome"].get(outcome).is_some());
    rows.map(|row| [&row["scene"], &row["verb"], &row["subject"]].map(text).join(" ")).collect()
}

#[test]
fn every_scene_is_measured_for_everybody_who_takes_part() {
    let folder = tempfile::tempdir().unwrap();
    let arguments: Vec<_> = [
        "version",
        "loopback",
        "host-local",
        "bridge",
        "bridge-masq",
        "bridge-dual",
        "ptp",
        "macvlan",
        "chain",
        "full-chain",
        "full-chain-ports",
    ]
    .into_iter()
    .flat_map(|scene| ["--only", scene])
    .collect();
    let (output, report) = bench(&arguments, folder.path());
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{stdout}");
    assert!(stdout.contains("The reference is left out: /nonexistent has none of"), "{stdout}");
    let mut expected = vec!["version VERSION empty", "version VERSION ours"];
    expected.extend(["loopback ADD floor", "loopback ADD empty", "loopback ADD ours", "loopback CHECK ours"]);
    expected.extend(["loopback DEL floor", "loopback DEL ours"]);
    expected.extend(["host-local ADD ours", "host-local CHECK ours", "host-local DEL ours"]);
    let of_bridge = ["ADD floor", "ADD ours", "CHECK ours", "DEL floor", "DEL floor, waits", "DEL ours"];
    let bridges = ["bridge", "bridge-masq", "bridge-dual", "ptp", "macvlan"];
    let bridges: Vec<_> = bridges.iter().flat_map(|scene| of_bridge.map(|row| format!("{scene} {row}"))).collect();
    expected.extend(bridges.iter().map(String::as_str));
    expected.extend(["chain ADD five execs", "chain ADD ours", "chain DEL five execs", "chain DEL ours"]);
    expected.extend(["full-chain ADD ours", "full-chain CHECK ours", "full-chain DEL ours"]);
    expected.extend(["full-chain-ports ADD ours", "full-chain-ports DEL ours"]);
    assert_eq!(rows(&report, "rows", "measured"), expected, "{stdout}");

    for row in report["rows"].as_array().unwrap() {
        let figures = &row["outcome"]["measured"];
        let number = |pointer: &str| figures.pointer(pointer).and_then(Value::as_f64).unwrap_or_default();
        assert_eq!(figures["samples_ms"].as_array().unwrap().len(), 2, "{row}");
        assert!(number("/wall_ms/p50") > 0.0 && number("/cpu_ms/p50") > 0.0, "{row}");
        assert!(number("/gone_ms/p50") >= number("/wall_ms/p50"), "{row}");
        assert!(number("/counts/syscalls") > 10.0 && number("/counts/peak_kib") > 100.0, "{row}");
    }
}

/// DEL leaves a child that waits for the kernel, and cnitool starts each plugin of the chain.
#[test]
fn children_are_counted_and_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let (_, report) = bench(&["--only", "bridge", "--only", "chain"], folder.path());
    let find = |scene: &str, verb: &str, subject: &str| {
        let all = report["rows"].as_array().unwrap().iter();
        let mut found =
            all.filter(|row| [&row["scene"], &row["verb"], &row["subject"]].map(text) == [scene, verb, subject]);
        found.next().unwrap()["outcome"]["measured"].clone()
    };
    let add = find("bridge", "ADD", "ours");
    assert_eq!((&add["counts"]["forks"], &add["counts"]["execs"]), (&0.into(), &0.into()));
    let del = find("bridge", "DEL", "ours");
    assert_eq!((&del["counts"]["forks"], &del["counts"]["execs"]), (&1.into(), &0.into()));
    assert!(del["gone_ms"]["p50"].as_f64().unwrap() > del["wall_ms"]["p50"].as_f64().unwrap(), "{del}");
    assert_eq!(find("chain", "ADD", "ours")["counts"]["execs"], 5);
    assert_eq!(find("chain", "ADD", "five execs")["counts"]["execs"], 0);
    // The kernel's state takes some changes, whatever program makes it.
    assert!(find("bridge", "ADD", "floor")["counts"]["messages"].as_u64() > Some(3));
}

#[test]
fn crowds_and_growth_are_measured() {
    let folder = tempfile::tempdir().unwrap();
    let arguments: Vec<_> = ["burst", "burst-chain", "reservations", "pods", "rules", "links"]
        .into_iter()
        .flat_map(|row| ["--only", row])
        .collect();
    let (output, report) = bench(&arguments, folder.path());
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{stdout}");
    let crowd = ["ADD floor", "ADD ours", "DEL floor", "DEL floor, waits", "DEL ours"];
    // 1, 8 and 64 at a time, with each kind of PID 1.
    let mut bursts: Vec<_> = [crowd; 6].concat().iter().map(|row| format!("bridge {row}")).collect();
    bursts.extend([["full-chain ADD ours", "full-chain DEL ours"]; 6].concat().into_iter().map(str::to_owned));
    assert_eq!(rows(&report, "bursts", "measured"), bursts, "{stdout}");
    let points = report["growth"].as_array().unwrap();
    let mut seen: Vec<_> = points
        .iter()
        .filter(|point| {
            point["subject"] == "ours" && point["verb"] == "ADD" && point["outcome"].get("measured").is_some()
        })
        .map(|point| format!("{} {}", text(&point["dimension"]), point["size"]))
        .collect();
    seen.sort();
    let expected = ["links 0", "links 20", "links, churn 0", "links, churn 20", "pods 0", "pods 20", "reservations 0"];
    assert_eq!(seen, [&expected[..], &["reservations 20", "rules 0", "rules 20"]].concat(), "{stdout}");
    let churned: Vec<_> = points.iter().filter(|point| point["dimension"] == "links, churn").collect();
    assert!(churned.iter().any(|point| point["subject"] == "floor"), "{stdout}");
    for point in churned {
        assert!(point["churn"].as_f64() > Some(0.0) && point["outcome"].get("measured").is_some(), "{point}");
    }
}

/// A subject that prints no result, and one that fails in the second verb.
#[test]
fn a_subject_that_fails_is_reported_and_not_timed() {
    let folder = tempfile::tempdir().unwrap();
    let subject = |name: &str, script: &str| {
        let path = folder.path().join(name);
        fs::create_dir(&path).unwrap();
        testns::write_executable(path.join("loopback"), format!("#!/bin/sh\n{script}\n")).unwrap();
        format!("{name}={}", path.display())
    };
    let silent = subject("silent", "exit 0");
    let failing = subject("failing", r#"[ $CNI_COMMAND = ADD ] || exit 7; echo '{"ips":[{},{}]}'"#);
    let arguments = ["--only", "loopback", "--without", "floor", "--subject", &silent, "--subject", &failing];
    let (output, report) = bench(&arguments, folder.path());
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{stdout}");
    let mut failed: Vec<_> = ["silent", "failing"]
        .iter()
        .flat_map(|name| ["ADD", "CHECK", "DEL"].map(|verb| format!("loopback {verb} {name}")))
        .collect();
    let mut failures = rows(&report, "rows", "failed");
    failed.sort();
    failures.sort();
    assert_eq!(failures, failed);
    assert!(stdout.contains("FAILED failing, loopback CHECK: loopback CHECK: exit status: 7"), "{stdout}");
    assert!(stdout.contains("FAILED silent, loopback ADD: loopback ADD: stdout is not JSON"), "{stdout}");
    // The others go on.
    assert!(rows(&report, "rows", "measured").contains(&"loopback DEL ours".to_owned()), "{stdout}");
}

#[test]
fn a_wrong_command_line_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let wrong: [(&[&str], &str); 4] = [
        (&["--subject", "nameless"], "NAME=DIR is wanted"),
        (&["--subject", "none=/nonexistent"], "/nonexistent has none of"),
        (&["--without", "none"], "there is no subject \"none\""),
        (&["--only", "nothing"], "there is no row \"nothing\""),
    ];
    for (arguments, why) in wrong {
        let mut command = Command::new(env!("CARGO_BIN_EXE_side-by-side"));
        let output = command.args(arguments).arg("--quick").current_dir(folder.path()).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && stderr.contains(why), "{arguments:?}: {stderr}");
    }
}
