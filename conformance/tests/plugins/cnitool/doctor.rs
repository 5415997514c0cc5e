//! `cnitool doctor`: each kind of damage is found and named, what is left over is removed on request, and a container that
//! lives loses nothing.

mod address_translation;
mod cases;
mod damage;
mod duplicate_addresses;
mod filters_of_some_packets;
mod healthy_nodes;
mod lost_packets;
mod other_programs;
mod packet_filters;
mod packets_lost_in_part;
mod random_nodes;
mod real_packets;
mod remedies;

use super::{Tour, make_old, netns};
use cases::{ERROR, cases, parse};
use damage::{FUNCTIONS, LEFT_OVER, OTHERS};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use testns::Container;

/// A node with a container that lives, and whatever damage.
pub(super) struct Ward {
    pub(super) tour: Tour,
    pod: Container,
}

fn store() -> PathBuf {
    "/var/lib/cni/networks/office".into()
}

fn write_old(path: &Path, content: &str) {
    fs::write(path, content).unwrap();
    make_old(path);
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

    fn edit_network(&self, edit: impl FnOnce(&mut Value)) {
        let path = "/etc/cni/net.d/10-office.conflist";
        let mut network: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        edit(&mut network);
        fs::write(path, network.to_string()).unwrap();
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

#[test]
fn a_node_without_faults_has_no_finding() {
    let ward = Ward::new();
    assert_eq!(ward.doctor(&[]), (0, Vec::new()));
    let shown = ward.tour.cnitool(&["doctor"]);
    assert!(shown.starts_with("no faults found\nnot looked at: tables raw"), "{shown}");
    let shown = ward.tour.cnitool(&["doctor", "--no-check"]);
    assert!(shown.starts_with("no faults found\nnot looked at: what only CHECK compares (--no-check); "), "{shown}");
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

#[test]
fn attachments_too_young_to_be_judged_are_counted_and_fix_says_why_they_stay() {
    let ward = Ward::new();
    for last in [77, 78] {
        fs::write(store().join(ward.tour.address(last)), format!("c{last}\r\neth0")).unwrap();
    }
    let (exit, findings) = ward.doctor(&[]);
    assert_eq!((exit, findings.len(), &findings[0]["kind"]), (0, 1, &json!("undecided")), "{findings:#?}");
    assert!(findings[0]["what"].as_str().unwrap().starts_with("2 attachments younger than a minute"), "{findings:#?}");
    make_old(&store().join(ward.tour.address(78)));
    let shown = ward.tour.cnitool(&["doctor", "--fix"]);
    assert!(shown.contains("not fixed: undecided of office: only an operator can decide on it\n"), "{shown}");
}

#[test]
fn what_is_left_over_is_found_and_removed_on_request() {
    for case in cases(LEFT_OVER) {
        let ward = Ward::new();
        let case = ward.tour.with_addresses(&case);
        ward.tour.node.remember();
        ward.damage(parse(&case).0);
        is_found(&ward, &case, &[]);
        assert_eq!(ward.doctor(&["--fix"]), (0, Vec::new()), "{case}");
        ward.assert_pod_is_whole();
        ward.tour.node.assert_as_before_except(|line| {
            crate::chained::comes_and_goes(line) || line.contains("last_reserved_ip") || line.contains("/run/")
        });
    }
}

#[test]
fn what_only_an_operator_can_decide_on_is_found_and_left_alone() {
    for case in cases(OTHERS) {
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
    }
}

/// Links by themselves; what else the plugins compare, on demand.
#[test]
fn links_that_are_down_and_attachments_that_fail_check_are_found() {
    let ward = Ward::new();
    let links = ward.tour.node.host().links();
    let veth = &links.iter().find(|link| link.alias.is_some()).unwrap().name;
    for (broken, mended) in [
        ("ip link set cni0 down".to_owned(), "ip link set cni0 up".to_owned()),
        (format!("ip link set {veth} down"), format!("ip link set {veth} up")),
        (format!("ip link set {veth} nomaster"), format!("ip link set {veth} master cni0")),
    ] {
        run(&broken);
        let (exit, findings) = ward.doctor(&[]);
        assert_eq!((exit, findings.len(), &findings[0]["kind"]), (ERROR, 1, &json!("link-down")), "{findings:#?}");
        assert_eq!(findings[0]["remedy"], mended);
        run(&mended);
        assert_eq!(ward.doctor(&["--check"]), (0, Vec::new()), "{mended}");
    }
    // The rule for the network's own prefix: packets between its containers keep their address.
    let saved = Command::new("iptables-save").args(["-t", "nat"]).output().unwrap();
    let saved = String::from_utf8(saved.stdout).unwrap();
    let accept = saved.lines().find(|line| line.ends_with("-j ACCEPT") && line.starts_with("-A CNI-")).unwrap();
    let script = format!("iptables -w -t nat {}", accept.replacen("-A", "-D", 1));
    assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success(), "{script}");
    assert_eq!(ward.doctor(&["--no-check"]), (0, Vec::new()));
    let (exit, findings) = ward.doctor(&[]);
    assert_eq!((exit, findings.len(), &findings[0]["kind"]), (ERROR, 1, &json!("check-fails")), "{findings:#?}");
    assert!(findings[0]["evidence"].to_string().contains("masquerade of"), "{findings:#?}");
}

/// The remedy works as it is printed, and takes nothing of the containers that live.
#[test]
fn the_remedy_for_an_undecided_attachment_removes_it_alone() {
    let ward = Ward::new();
    let other = ward.tour.node.container();
    let netns = netns(&other);
    ward.tour.cnitool(&["--cache-dir", "/run/podman/cni", "add", "office", &netns, "--container-id", "other"]);
    make_old(&store().join(ward.tour.address(3)));
    // A virtual machine has the address, and the veth has no mark, as the reference's.
    let links = ward.tour.node.host().links();
    let is_its = |alias: &String| alias.contains("/other/");
    ward.tour
        .node
        .host()
        .set_alias(&links.iter().find(|link| link.alias.as_ref().is_some_and(is_its)).unwrap().name, "");
    other.namespace().delete_address("eth0", &format!("{}/24", ward.tour.address(3)));
    let (exit, findings) = ward.doctor(&[]);
    assert_eq!((exit, findings.len(), &findings[0]["kind"]), (0, 1, &json!("undecided")), "{findings:#?}");
    let remedy = findings[0]["remedy"].as_str().unwrap();
    let (condition, command) = remedy.split_once(": cnitool ").unwrap();
    assert_eq!(condition, "Of those whose containers are gone");
    ward.tour.cnitool(&command.split(' ').collect::<Vec<_>>());
    assert!(!store().join(ward.tour.address(3)).exists());
    assert_eq!(ward.doctor(&["--check"]), (0, Vec::new()));
}

/// Each family is a matter of the networks that route it.
#[test]
fn addresses_that_the_node_does_not_route_need_no_forwarding() {
    let ward = Ward::new();
    let layer_2 = |name: &str, is_gateway: bool| {
        let network = json!({"cniVersion": "1.1.0", "name": name, "plugins": [{"type": "bridge", "bridge": name,
            "isGateway": is_gateway, "ipam": {"type": "host-local", "subnet": "fd00:20::/64"}}]});
        fs::write(format!("/etc/cni/net.d/20-{name}.conflist"), network.to_string()).unwrap();
    };
    layer_2("storage", false);
    let netns = netns(&ward.pod);
    ward.tour.cnitool(&["add", "storage", &netns, "--ifname", "eth1"]);
    run("sysctl -qw net.ipv6.conf.all.forwarding=0");
    assert_eq!(ward.doctor(&[]), (0, Vec::new()));
    layer_2("storage", true);
    let (exit, findings) = ward.doctor(&[]);
    assert_eq!((exit, findings.len()), (ERROR, 1), "{findings:#?}");
    let what = "net.ipv6.conf.all.forwarding is 0, and storage routes packets of containers";
    assert_eq!(findings[0]["what"], what);
}

/// An ADD of another runtime may be under way, or a container of it may live.
#[test]
fn what_may_live_is_kept() {
    let ward = Ward::new();
    let other = ward.tour.node.container();
    let netns = netns(&other);
    ward.tour.cnitool(&["--cache-dir", "/run/podman/cni", "add", "office", &netns]);
    make_old(&store().join(ward.tour.address(3)));
    fs::write(store().join(ward.tour.address(50)), "c50\r\neth0").unwrap();
    fs::write(store().join(ward.tour.address(51)), "").unwrap();
    ward.tour.node.remember();
    let (exit, findings) = ward.doctor(&["--fix"]);
    assert_eq!((exit, findings.len(), &findings[0]["kind"]), (0, 1, &json!("undecided")), "{findings:#?}");
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

/// A container gets an address of any range of a set.
#[test]
fn a_set_of_ranges_is_full_when_its_last_range_is() {
    let ward = Ward::new();
    let subnet = format!("{}.0/24", ward.tour.subnet);
    let range = |first, last| json!({"subnet": subnet, "rangeStart": ward.tour.address(first), "rangeEnd": ward.tour.address(last)});
    let ranges = json!([[range(2, 6), range(100, 199)]]);
    ward.edit_network(|network| network["plugins"][0]["ipam"] = json!({"type": "host-local", "ranges": ranges}));
    let hold = |last: std::ops::RangeInclusive<u8>| {
        last.for_each(|last| write_old(&store().join(ward.tour.address(last)), "an operator's"));
    };
    hold(3..=6);
    assert_eq!(ward.doctor(&[]), (0, Vec::new()));
    hold(100..=199);
    let (exit, findings) = ward.doctor(&[]);
    let spans = [(2, 6), (100, 199)].map(|(first, last)| (ward.tour.address(first), ward.tour.address(last)));
    let [first, second] = spans.map(|(first, last)| format!("{first} to {last}"));
    let what = format!("105 of 105 addresses of {first} and {second} are held");
    assert_eq!((exit, findings.len(), &findings[0]["what"]), (ERROR, 1, &json!(what)), "{findings:#?}");
}

/// Names of files and texts of plugins come from anywhere.
#[test]
fn nothing_that_is_shown_acts_on_a_terminal() {
    let ward = Ward::new();
    fs::write("/var/lib/cni/results/office-c5\u{1b}[2J-eth0", "{").unwrap();
    let output = ward.tour.call(&["doctor"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("unreadable-entry") && !text.contains('\u{1b}'), "{text:?}");
}

#[test]
fn each_kind_is_shown_with_its_consequence_and_what_to_do() {
    let ward = Ward::new();
    ward.damage("lose");
    let output = ward.tour.call(&["doctor"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "warning[leftover]: network office: 1 attachment of containers that are gone");
    assert!(lines[1].starts_with("  | ") && lines[1].contains(&ward.tour.address(3)), "{text}");
    assert!(lines[2].starts_with("  Their addresses"), "{text}");
    assert_eq!(lines[3], "  help: cnitool gc office");
    assert!(lines[4].starts_with("not looked at: ") && lines.len() == 5, "{text}");
}

/// Garbage collection leaves what a living container has, and no repair knows it.
#[test]
fn an_unreadable_entry_of_a_living_container_is_named_as_one() {
    let ward = Ward::new();
    let entries = fs::read_dir("/var/lib/cni/results").unwrap();
    let entry = entries.map(|entry| entry.unwrap().path()).find(|path| path.is_file()).unwrap();
    fs::write(&entry, "{").unwrap();
    let (_, findings) = ward.doctor(&[]);
    let found = findings.iter().find(|finding| finding["kind"] == "unreadable-entry").unwrap();
    let help = found.to_string();
    assert!(help.contains("lives, and cnitool repair skips what it cannot read"), "{findings:#?}");
}
