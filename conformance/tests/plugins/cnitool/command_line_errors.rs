//! Command lines that people type and that are wrong: `command_line_errors.txt` has each, the state of the node that it is typed on, all that it
//! prints to stderr, its status, and what it changed.

use crate::subjects::ours;
use std::fs;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use testns::Subject;

const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/plugins/cnitool/command_line_errors.txt");

/// A node of its own: a network `pods` with real plugins, a namespace `web`, and what a state needs.
const NODE: &str = include_str!("command_line_errors_node.sh");

const CALL: &str = include_str!("command_line_errors_call.sh");

struct Entry {
    title: String,
    state: Vec<String>,
    line: String,
    shown: String,
}

impl Entry {
    fn parse(text: &str) -> Self {
        let (title, body) = text.split_once('\n').unwrap();
        let mut entry = Self { title: title.to_owned(), state: Vec::new(), line: String::new(), shown: String::new() };
        for line in body.trim_end().lines() {
            match (line.strip_prefix("| "), line.strip_prefix("$ ")) {
                (Some(state), _) if entry.line.is_empty() => entry.state.push(state.to_owned()),
                (_, Some(call)) if entry.line.is_empty() => call.clone_into(&mut entry.line),
                _ => entry.shown += &format!("{line}\n"),
            }
        }
        entry
    }

    fn text(&self) -> String {
        let state: String = self.state.iter().map(|line| format!("| {line}\n")).collect();
        format!("# {}\n{state}$ {}\n{}", self.title, self.line, self.shown)
    }

    /// The same entry, with what is printed now.
    fn run(&self) -> Self {
        let Subject::Multicall(plugins) = ours() else { panic!("ours is one executable") };
        let script = format!("set -e\n{NODE}\n{}\nset +e\n{CALL}", self.state.join("\n"));
        let mut sh = Command::new("unshare");
        sh.args(["--net", "--mount", "--propagation", "private", "sh", "-c", &script, "sh"]);
        sh.args([testns::cnitool(), &plugins]).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        let output = sh.env("CALL", &self.line).stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{}: {}", self.title, String::from_utf8_lossy(&output.stderr));
        let shown = String::from_utf8_lossy(&output.stdout).replace("/dev/shm/", "/usr/libexec/cni/");
        Self { title: self.title.clone(), state: self.state.clone(), line: self.line.clone(), shown: stable(&shown) }
    }
}

fn stable(text: &str) -> String {
    const STAGE: &str = ".cni-install-";
    let mut parts = text.split(STAGE);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |whole, part| whole + STAGE + "PID" + part.trim_start_matches(|c: char| c.is_ascii_digit()))
}

/// `UPDATE_EXPECT=1` writes what is printed into the table.
#[test]
fn wrong_command_lines_are_answered_with_object_cause_and_remedy() {
    let table = fs::read_to_string(TABLE).unwrap();
    let (head, entries) = table.split_once("\n# ").unwrap();
    let entries: Vec<Entry> = format!("\n{entries}")
        .replace("\n# ", "\u{0}")
        .split('\u{0}')
        .map(|text| Entry::parse(text.trim_start()))
        .collect();
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(entry) = entries.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let now = entry.run();
                    done.lock().unwrap().push(now);
                }
            });
        }
    });
    let done = done.into_inner().unwrap();
    let now = |entry: &Entry| done.iter().find(|now| now.title == entry.title).unwrap();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        let texts: String = entries.iter().map(|entry| format!("\n{}", now(entry).text())).collect();
        fs::write(TABLE, format!("{}\n{texts}", head.trim_end())).unwrap();
        return;
    }
    let differing = entries.iter().filter(|entry| entry.text() != now(entry).text());
    let differing: Vec<String> =
        differing.map(|entry| format!("--- the table\n{}--- printed\n{}", entry.text(), now(entry).shown)).collect();
    assert!(differing.is_empty() && entries.len() >= 60, "{}", differing.join("\n"));
}
