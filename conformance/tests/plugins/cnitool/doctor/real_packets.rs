//! `cnitool doctor` sends packets: what drops them is found also where no rule that it reads says so, rules that let them pass are no
//! fault, none leaves the node, and nothing stays there.

use super::cases::{cases, parse};
use super::lost_packets::{Sick, find_and_mend_each, sh};
use std::process::Command;
use std::time::Duration;

/// Nodes on which nothing passes, by conditions, families and programs that no reading of rules covers.
const UNREAD: &str = r#"
nft add table inet guard; nft 'add chain inet guard pass { type filter hook forward priority 0; }'
nft 'add rule inet guard pass meta mark & 0x1 == 0 drop'
=> error firewall-drops: inet guard pass
iptables -w -A FORWARD -m length --length 20:1500 -j DROP
=> error firewall-drops: drops packets from the container to other networks
nft add table inet guard; nft 'add chain inet guard pass { type filter hook forward priority 0; }'
nft 'add rule inet guard pass meta pkttype host drop'
=> error firewall-drops: inet guard pass
nft add table netdev guard; nft 'add chain netdev guard in { type filter hook ingress device cni0 priority 0; }'
nft 'add rule netdev guard in meta l4proto { icmp, tcp, udp } meta pkttype host drop'
=> error firewall-drops: netdev guard in
nft add table arp guard; nft 'add chain arp guard in { type filter hook input priority 0; }'
nft 'add rule arp guard in arp operation request drop'
=> error gateway-address: nothing answers the container when it asks for its gateway
nft add table inet guard; nft 'add chain inet guard pre { type filter hook prerouting priority -150; }'
nft 'add rule inet guard pre tcp dport { 80, 443, 8080 } drop'
=> error firewall-drops: inet guard pre
iptables-legacy -w -t raw -A PREROUTING -i cni0 -j DROP
=> error firewall-drops: between hook prerouting at priority -301 and hook prerouting at priority -299
=> warning two-rulesets: legacy
"#;

#[test]
fn what_no_reading_shows_is_found_by_packets() {
    find_and_mend_each(UNREAD);
}

/// Nodes on which rules drop others, or read as if they dropped all.
const LIVING: &str = r#"
iptables -w -A FORWARD -m state --state NEW,RELATED,ESTABLISHED -j ACCEPT; iptables -w -P FORWARD DROP
=> nothing
iptables -w -A FORWARD -m length --length 2000:3000 -j DROP
=> nothing
"#;

#[test]
fn packets_that_pass_refute_what_rules_read_like() {
    for case in cases(LIVING) {
        let sick = Sick::new();
        let _web = sick.add("office", "web", Some(8080));
        sh(parse(&case).0);
        let (exit, findings) = sick.doctor();
        assert!(exit == 0 && findings.iter().all(|finding| finding["level"] == "note"), "{case}: {findings:#?}");
    }
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
