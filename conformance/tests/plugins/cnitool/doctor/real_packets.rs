//! `cnitool doctor` sends packets: what drops them is found also where no rule that it reads says so, rules that let them pass are no
//! fault, none leaves the node, and nothing stays there.

use super::lost_packets::{Sick, sh};
use super::{cases, parse};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Nodes on which rules drop others, or read as if they dropped all.
#[test]
fn packets_that_pass_refute_what_rules_read_like() {
    for case in cases(include_str!("tables/living.txt")) {
        let sick = Sick::new();
        let _web = sick.add("office", "web", Some(8080));
        sh(parse(&case).0);
        let (exit, findings) = sick.doctor();
        assert!(exit == 0 && findings.iter().all(|finding| finding["level"] == "note"), "{case}: {findings:#?}");
    }
}

/// Real packets: an echo request that leaves, its answer, and one that a rule drops. Nothing stays of a trace that is killed.
#[test]
fn a_trace_of_a_pod_tells_where_its_packets_go_and_what_drops_them() {
    let sick = Sick::new();
    let web = sick.add("office", "web", None);
    let cnitool = |more: &[&str]| {
        let mut cnitool = Command::new(sick.tour.bin_dir.join("cnitool"));
        cnitool.args(["explain", "web", "--trace"]).args(more).env("CNI_PATH", &sick.tour.bin_dir);
        cnitool.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let has_table = || {
        let listed = Command::new("nft").args(["list", "tables"]).output().unwrap();
        String::from_utf8_lossy(&listed.stdout).contains("cnitool-trace")
    };
    let host = sick.tour.node.host();
    let pings = |to: &str| web.namespace().pings(to.parse::<std::net::IpAddr>().unwrap(), Duration::from_millis(100));
    let trace = cnitool(&["2", "--json"]);
    host.wait_for("a trace", |_| has_table());
    assert!(pings("192.168.1.1"));
    let output = trace.wait_with_output().unwrap();
    let told: Vec<serde_json::Value> =
        String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let left = told.iter().find(|it| it["end"] == "left").unwrap_or_else(|| panic!("{told:?}"));
    assert_eq!((&left["link"], &left["as"]), (&"ens3".into(), &"192.168.1.7".into()), "{told:?}");
    assert!(told.iter().any(|it| it["end"] == "arrived" && it["from"] == "192.168.1.1"), "{told:?}");
    sh("iptables -w -A FORWARD -p icmp -j DROP");
    let trace = cnitool(&["1"]);
    host.wait_for("a trace", |_| has_table());
    assert!(!pings("192.168.1.1"));
    let output = trace.wait_with_output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    let dropped =
        format!("ICMP {} > 192.168.1.1: dropped: iptables -A FORWARD -p icmp -j DROP (", sick.tour.address(2));
    assert!(told.starts_with(&dropped), "{told}");
    let mut killed = cnitool(&[]);
    host.wait_for("a trace", |_| has_table());
    killed.kill().unwrap();
    killed.wait().unwrap();
    host.wait_for("the trace ends with its process", |_| !has_table());
}

#[test]
fn no_packet_leaves_the_node_and_nothing_stays_there_wherever_doctor_is_killed() {
    let (sick, _web) = Sick::of_both_families();
    let count = |words: &str| {
        sick.outside
            .enter(|| Command::new("sh").args(["-ec", words]).output().map(|done| String::from_utf8(done.stdout)))
    };
    count(
        "nft add table netdev count
        nft 'add chain netdev count in { type filter hook ingress device eth0 priority 0; }'
        nft 'add rule netdev count in meta l4proto { icmp, tcp, udp } counter'; nft 'add rule netdev count in ip ttl < 3 counter'",
    )
    .unwrap()
    .unwrap();
    sick.tour.node.remember();
    assert_eq!(sick.doctor().0, 0);
    let has_strace = Command::new("strace").arg("-V").output().is_ok();
    if !has_strace {
        testns::skip("doctor is killed at each request", "strace is not installed");
    }
    // A request to the kernel is sent by each of these. Steps of 7 meet each kind of state between two of them.
    let mut killed = 0;
    for at in (1..).step_by(7).take_while(|_| has_strace) {
        let inject = format!("inject=sendto,sendmsg,setns,unshare:signal=KILL:when={at}");
        // Doctor looks at processes, and sees those of no other test.
        let mut strace = Command::new("unshare");
        strace.args([
            "--pid",
            "--fork",
            "--mount-proc",
            "strace",
            "-f",
            "-o",
            "/dev/null",
            "-e",
            "trace=sendto,sendmsg,setns,unshare",
            "-e",
            &inject,
        ]);
        strace.arg(sick.tour.bin_dir.join("cnitool")).args(["doctor", "--no-check"]);
        let done = strace.env("CNI_PATH", &sick.tour.bin_dir).output().unwrap();
        // strace, as the first process of its namespace, does not die of the signal, but has a status for it.
        if let Some(exit) = done.status.code().filter(|exit| *exit < 128) {
            assert_eq!(exit, 0, "{at}: {done:?}");
            break;
        }
        killed += 1;
    }
    assert!(killed > 3 || !has_strace, "{killed}");
    sick.tour.node.settle(Duration::from_secs(60));
    sick.tour.node.assert_as_before_except(|line| crate::chained::comes_and_goes(line) || line.contains("/run/"));
    let counted = count("nft list table netdev count").unwrap().unwrap();
    assert!(counted.matches("counter packets 0 bytes 0").count() == 2, "{counted}");
    let flows = std::fs::read_to_string("/proc/net/nf_conntrack").unwrap_or_default();
    assert!(!flows.contains("sport=49600"), "{flows}");
}
