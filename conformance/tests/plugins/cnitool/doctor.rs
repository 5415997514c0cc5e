//! `cnitool doctor`: each kind of damage is found and named, what is left over is removed on request, and a container that
//! lives loses nothing.

mod healthy_nodes;
mod lost_packets;
mod other_programs;
mod random_nodes;
mod real_packets;

use super::{Tour, make_old, netns};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use testns::Container;

/// The kind of a finding, with the exit code of doctor, a text of the finding, and whether its remedy is commands that mend it.
type Expected<'a> = (&'a str, i32, &'a str, bool);

const WARNING: i32 = 3;
const ERROR: i32 = 4;

/// The cases of a table. A case is lines for a shell, in which `A` begins the addresses of the network, and a line for each finding:
/// `=> LEVEL KIND, mended: TEXT`, without `, mended` where the remedy is no commands that mend it; `=> nothing` where there is no
/// finding. Lines that begin with `#` are comments.
fn cases(table: &str) -> Vec<String> {
    let is_finding = |line: &str| line.starts_with("=> ");
    let lines: Vec<&str> = table.trim().lines().filter(|line| !line.starts_with("# ")).collect();
    lines.chunk_by(|line, next| !is_finding(line) || is_finding(next)).map(|case| case.join("\n")).collect()
}

/// The script of a case, and the findings.
fn parse(case: &str) -> (&str, Vec<Expected<'_>>) {
    let (script, findings) = case.split_once("\n=> ").unwrap();
    (script, findings.split("\n=> ").filter_map(finding).collect())
}

fn finding(line: &str) -> Option<Expected<'_>> {
    if line == "nothing" {
        return None;
    }
    let (head, text) = line.split_once(": ").unwrap();
    let (level, kind) = head.split_once(' ').unwrap();
    let code = match level {
        "error" => ERROR,
        "warning" => WARNING,
        "note" => 0,
        _ => panic!("{line}"),
    };
    Some(kind.strip_suffix(", mended").map_or((kind, code, text, false), |kind| (kind, code, text, true)))
}

/// The functions of the scripts: a reservation that is an hour old, a container that is gone without DEL, and a plugin behind the
/// network's.
const FUNCTIONS: &str = r#"
cnitool() { $RUNTIME $CNI_PATH/cnitool "$@"; }
PATH=$CNI_PATH:$PATH conf=/etc/cni/net.d store=/var/lib/cni/networks/office results=/var/lib/cni/results
old() { printf "$2" > $store/$1; touch -d '1 hour ago' $store/$1; }
lose() { ip netns add gone; cnitool add office /run/netns/gone --container-id gone > /dev/null
    touch -d '1 hour ago' $store/A.3; ip netns del gone; }
chain() { sed -i 's/]}$/,{"type":"'$1'"}]}/' $conf/10-office.conflist; }
"#;

/// A node with a container that lives, and whatever damage.
pub(super) struct Ward {
    pub(super) tour: Tour,
    pod: Container,
}

fn store() -> PathBuf {
    "/var/lib/cni/networks/office".into()
}

fn run(words: &str) {
    let mut parts = words.split(' ');
    assert!(Command::new(parts.next().unwrap()).args(parts).status().unwrap().success(), "{words}");
}

impl Tour {
    /// A text in which `A` begins the addresses of the network.
    fn with_addresses(&self, text: &str) -> String {
        text.replace("A.", &format!("{}.", self.subnet))
    }

    /// The exit code of doctor, and the findings.
    pub(super) fn doctor(&self, more: &[&str]) -> (i32, Vec<Value>) {
        let output = self.call(&[&["doctor", "--json"], more].concat());
        let findings = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
        (output.status.code().unwrap(), findings)
    }
}

impl Ward {
    pub(super) fn new() -> Self {
        let tour = Tour::with_plugins();
        let pod = tour.node.container();
        tour.cnitool(&["add", "office", &netns(&pod)]);
        make_old(&store().join(tour.address(2)));
        Self { tour, pod }
    }

    pub(super) fn doctor(&self, more: &[&str]) -> (i32, Vec<Value>) {
        self.tour.doctor(more)
    }

    /// Damages the node by a script of a case.
    fn damage(&self, script: &str) {
        let script = self.tour.with_addresses(FUNCTIONS) + script;
        let runtime = self.tour.processes.as_ref().map_or_else(String::new, |processes| processes.words().join(" "));
        let mut sh = Command::new("sh");
        sh.args(["-ec", &script]).env("CNI_PATH", &self.tour.bin_dir).env("RUNTIME", runtime);
        let output = sh.output().unwrap();
        assert!(output.status.success(), "{script}: {output:?}");
        self.tour.node.settle(Duration::from_secs(60));
    }

    #[track_caller]
    fn assert_pod_is_whole(&self) {
        self.tour.cnitool(&["check", "office", &netns(&self.pod)]);
    }
}

/// The level of a note does not fail monitoring.
fn is_found(ward: &Ward, case: &str, more: &[&str]) {
    let (exit, findings) = ward.doctor(more);
    for (kind, code, text, _) in parse(case).1 {
        let found = findings.iter().find(|finding| finding["kind"] == kind && finding.to_string().contains(text));
        assert!(found.is_some(), "{case}: {findings:#?}");
        assert_eq!(exit, code, "{case}: {findings:#?}");
    }
}

/// A status of its own: no fault was found, and not all that may drop packets was examined.
#[test]
fn a_node_with_rules_that_were_not_read_is_not_called_healthy() {
    let ward = Ward::new();
    // Packets are sent to other networks where the node has a way there.
    for words in ["link add up0 type veth peer up0-end", "link set up0 up", "link set up0-end up"] {
        run(&format!("ip {words}"));
    }
    run("ip address add 203.0.113.7/24 dev up0");
    run("ip route add default via 203.0.113.1");
    run("iptables -w -A FORWARD -m length --length 2000:3000 -j DROP");
    assert_eq!(ward.doctor(&["--no-probe"]), (5, Vec::new()));
    let shown = ward.tour.call(&["doctor", "--no-probe"]).stdout;
    let shown = String::from_utf8(shown).unwrap();
    let text = "no faults found in what was looked at\nnot examined, and may drop packets: table filter of iptables";
    assert!(shown.starts_with(text), "{shown}");
    assert_eq!(ward.doctor(&[]), (0, Vec::new()), "real packets pass");
}

/// By `--fix`, and by the commands that doctor names, as they are printed.
#[test]
fn what_is_left_over_is_found_and_removed_on_request() {
    for (case, is_by_hand) in cases(include_str!("doctor/tables/left_over.txt"))
        .into_iter()
        .flat_map(|case| [(case.clone(), true), (case, false)])
    {
        let ward = Ward::new();
        let case = ward.tour.with_addresses(&case);
        ward.tour.node.remember();
        ward.damage(parse(&case).0);
        is_found(&ward, &case, &[]);
        if is_by_hand {
            run_commands(&ward, &case);
        }
        assert_eq!(ward.doctor(&["--fix"]), (0, Vec::new()), "{case}");
        ward.assert_pod_is_whole();
        ward.tour.node.assert_as_before_except(|line| {
            crate::chained::comes_and_goes(line) || line.contains("last_reserved_ip") || line.contains("/run/")
        });
    }
}

#[test]
fn what_only_an_operator_can_decide_on_is_found_and_left_alone() {
    for case in cases(include_str!("doctor/tables/left_to_an_operator.txt")) {
        if case.contains("two-rulesets") && !Path::new("/usr/sbin/iptables-legacy").exists() {
            testns::skip("both variants of iptables have rules", "iptables-legacy is not installed");
            continue;
        }
        let ward = Ward::new();
        let case = ward.tour.with_addresses(&case);
        ward.damage(parse(&case).0);
        ward.tour.node.remember();
        is_found(&ward, &case, &[]);
        is_found(&ward, &case, &["--fix"]);
        ward.tour.node.assert_as_before_except(|line| crate::chained::comes_and_goes(line) || line.contains("/run/"));
        if !case.contains("two-rulesets") {
            run_commands(&ward, &case);
        }
    }
}

/// Runs each remedy of commands alone, as a line for a shell: it mends what it is for, but for kinds whose remedies only show more,
/// or whose cause is elsewhere.
fn run_commands(ward: &Ward, case: &str) {
    for finding in ward.doctor(&[]).1 {
        let commands: Vec<&str> = finding["commands"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        let (kind, is_showing) = (&finding["kind"], SHOWING.iter().any(|kind| finding["kind"] == *kind));
        if commands.is_empty() || finding["remedy"] != commands.join("; ") {
            continue;
        }
        let done = ward.tour.shell(&commands.join("; "));
        // 2: wrong words; 126 and 127: no program. What shows an error ends with status 1.
        let is_right = |code: i32| code == 0 || is_showing && code == 1;
        assert!(done.status.code().is_some_and(is_right), "{case}: {finding:#}: {done:?}");
        let is_mended = is_showing || !ward.doctor(&[]).1.iter().any(|finding| finding["kind"] == *kind);
        assert!(is_mended, "{case}: {finding:#}");
    }
}

const SHOWING: [&str; 3] = ["config", "not-ready", "range-full"];

/// An ADD of another runtime may be under way, or a container of it may live.
#[test]
fn what_may_live_is_kept_and_fix_says_why() {
    let ward = Ward::new();
    let other = ward.tour.node.container();
    let netns = netns(&other);
    ward.tour.cnitool(&["--cache-dir", "/run/podman/cni", "add", "office", &netns]);
    make_old(&store().join(ward.tour.address(3)));
    for (last, owner) in [(50, "c50\r\neth0"), (51, "")] {
        fs::write(store().join(ward.tour.address(last)), owner).unwrap();
    }
    ward.tour.node.remember();
    let (exit, findings) = ward.doctor(&["--fix"]);
    assert_eq!((exit, findings.len(), &findings[0]["kind"]), (0, 1, &json!("undecided")), "{findings:#?}");
    assert!(findings[0]["what"].as_str().unwrap().contains("younger than a minute"), "{findings:#?}");
    let shown = ward.tour.cnitool(&["doctor", "--fix"]);
    assert!(shown.contains("not fixed: undecided of office: only an operator can decide on it\n"), "{shown}");
    ward.tour.node.assert_as_before_except(crate::chained::comes_and_goes);
}

#[test]
fn a_lock_that_is_held_for_long_is_found_with_its_holder() {
    let ward = Ward::new();
    let lock = File::open(store().join("lock")).unwrap();
    lock.lock().unwrap();
    let output = ward.tour.run_among_processes(&ward.tour.bin_dir.join("cnitool"), &["doctor", "--json"]);
    let findings: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let found =
        findings.iter().find(|finding| finding["kind"] == "lock-held").unwrap_or_else(|| panic!("{findings:#?}"));
    assert!(found["what"].as_str().unwrap().contains(&format!("process {}", std::process::id())), "{found}");
}

/// The lock that keeps GC apart from ADD and DEL: held as long as they take, it is no fault.
#[test]
fn a_lock_of_a_network_that_a_stopped_process_holds_is_found() {
    let ward = Ward::new();
    let lock = "/var/lib/cni/locks/office";
    let mut flock = Command::new("flock");
    flock.args(["--no-fork", lock, "sh", "-c", "echo; read line; kill -STOP $$"]);
    let mut holder = flock.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    holder.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let look = || {
        let output = ward.tour.run_among_processes(&ward.tour.bin_dir.join("cnitool"), &["doctor", "--json"]);
        let findings: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
        findings.into_iter().find(|finding| finding["kind"] == "lock-held")
    };
    assert_eq!(look(), None);
    holder.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    let stopped = waitpid(Pid::from_raw(holder.id().cast_signed()), Some(WaitPidFlag::WUNTRACED));
    assert!(matches!(stopped, Ok(WaitStatus::Stopped(..))), "{stopped:?}");
    let what = format!("lock {lock} is held by process {} (sh), which is stopped", holder.id());
    assert_eq!(look().unwrap()["what"], what);
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert_eq!(look(), None);
}
