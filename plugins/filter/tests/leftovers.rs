//! What the reference plugins leave, in either backend, is removed; and their iptables rules are written as they do.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::IpAddr;
use std::process::{Command, Stdio};

use crate::node::{ETH0, has, in_netns, in_netns_with, ip, networks, remove, remove_known, sh};
use cni_filter::{Backend, Filter, Names, RemovalHints, gc};
use std::io::Write;

const NET1: Names<'static> = Names { ifname: "net1", ..ETH0 };
const CHAIN: &str = "CNI-4e371bc82e61f4bf8cb929e6"; // network "office", container "c1"

fn feed(program: &str, args: &[&str], text: &str) {
    let mut child = Command::new(program).args(args).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "{program}: {text}");
}

fn known<'a>(addresses: &'a [IpAddr]) -> RemovalHints<'a> {
    RemovalHints { addresses, ..RemovalHints::default() }
}

/// The rules of one of the tables, without counters and policies.
fn saved(program: &str) -> String {
    let text = sh(&format!("{program}-save -t nat 2>/dev/null"));
    text.lines()
        .filter(|line| line.starts_with("-A") || line.starts_with(":CNI"))
        .map(|line| line.to_owned() + "\n")
        .collect()
}

/// A number of leftovers that exceeds one transaction.
#[test]
fn gc_of_many_containers_removes_all_chains() {
    in_netns_with("iptables-nft", || {
        let names: Vec<String> = (0..300).map(|number| format!("c{number}")).collect();
        let pods: Vec<_> = names.iter().map(|container| Names { container, ..ETH0 }).collect();
        for (pod, number) in pods.iter().zip(1_u32..) {
            let address = std::net::Ipv4Addr::from(0x0a01_0000 + number);
            add(*pod, &[&format!("{address}/16")]);
        }
        let lab = Names { network: "lab", ..ETH0 };
        add(lab, &["10.1.0.1/16"]);
        assert_eq!(gc("office", &pods[..2], ""), []);
        let chains = |text: String| text.lines().filter(|line| line.starts_with(":CNI")).count();
        assert_eq!(chains(saved("iptables")), 3);
        assert_eq!(gc("office", &[], ""), []);
        assert_eq!(chains(saved("iptables")), 1);
        assert_eq!(check(lab, &["10.1.0.1/16"]), Ok(()));
    });
}

/// An administrator's own rules that go to a container's chain, whatever they look at, keep no DEL from its work.
#[test]
fn jumps_that_an_administrator_added_are_removed_with_the_chain() {
    in_netns_with("iptables-nft", || {
        add(ETH0, &["10.1.0.5/24"]);
        add(NET1, &["10.1.0.6/24"]);
        sh(&format!(
            "iptables -t nat -I POSTROUTING -m ttl --ttl-gt 3 -j {CHAIN}; iptables -t nat -A {CHAIN} -j RETURN"
        ));
        remove(NET1);
        let left = saved("iptables");
        assert!(left.contains("--ttl-gt") && left.contains("10.1.0.5") && !left.contains("10.1.0.6"), "{left}");
        remove(ETH0);
        assert_eq!(saved("iptables"), "");
    });
}

/// The kernel does not delete a chain while a rule goes there. It stays with a rule that says whose it was, and with no
/// other; a later DEL or GC takes it.
#[test]
fn a_chain_that_another_rule_uses_is_flushed_and_deleted_later() {
    in_netns_with("iptables-nft", || {
        let c2 = Names { container: "c2", ..ETH0 };
        let of_chain = || saved("iptables").lines().filter(|line| line.contains(CHAIN)).map(str::to_owned).collect();
        let foreign = format!("-A ADM -s 7.7.7.7/32 -j {CHAIN}");
        let label = format!("-A {CHAIN} -m comment --comment \"name: \\\"office\\\" id: \\\"c1\\\"\"");
        let emptied = [format!(":{CHAIN} - [0:0]"), foreign.clone(), label];
        let forget = "iptables -t nat -D POSTROUTING -j ADM; iptables -t nat -F ADM; iptables -t nat -X ADM";
        let start = || {
            add(ETH0, &["10.1.0.5/24"]);
            sh(&format!("iptables -t nat -N ADM; iptables -t nat {foreign}; iptables -t nat -A POSTROUTING -j ADM"));
        };
        let sorted = |mut lines: Vec<String>| {
            lines.sort();
            lines
        };
        let emptied = sorted(emptied.to_vec());

        start();
        for _ in 0..2 {
            remove(ETH0);
            assert_eq!(sorted(of_chain()), emptied);
        }
        add(ETH0, &["10.1.0.5/24"]);
        assert_eq!(check(ETH0, &["10.1.0.5/24"]), Ok(()));
        add(c2, &["10.1.0.6/24"]);
        for _ in 0..2 {
            assert_eq!(gc("office", &[], ""), []);
            assert_eq!(
                sorted(saved("iptables").lines().filter(|line| !line.ends_with("ADM")).map(str::to_owned).collect()),
                emptied
            );
        }
        sh(forget);
        assert_eq!(gc("lab", &[], ""), []);
        assert_ne!(saved("iptables"), "");
        assert_eq!(gc("office", &[], ""), []);
        assert_eq!(saved("iptables"), "");

        start();
        remove(ETH0);
        sh(forget);
        remove(ETH0);
        assert_eq!(saved("iptables"), "");
    });
}

fn add(attachment: Names<'_>, addresses: &[&str]) {
    Filter::open("").unwrap().add_masquerade(Backend::Iptables, attachment, &networks(addresses)).unwrap();
}

fn check(attachment: Names<'_>, addresses: &[&str]) -> Result<(), String> {
    let checked = Filter::open("").unwrap().check_masquerade(Backend::Iptables, attachment, &networks(addresses));
    checked.map_err(|error| error.to_string())
}
/// Rules of the legacy variant are out of netlink's reach.
#[test]
fn legacy_iptables_rules_are_removed() {
    in_netns(|| {
        let test = "legacy_iptables_rules_are_removed";
        testns::needs!(has(test, "iptables-legacy-restore"));
        let usable = Command::new("iptables-legacy").args(["-t", "nat", "-L"]).output().unwrap();
        if !usable.status.success() {
            testns::skip(test, String::from_utf8_lossy(&usable.stderr).trim_end());
            return;
        }
        let comment = "-m comment --comment \"name: \\\"office\\\" id: \\\"c1\\\"\"";
        let chain = |addresses: &[&str]| {
            let jumps = addresses.iter().map(|address| format!("-A POSTROUTING -s {address} {comment} -j {CHAIN}\n"));
            format!(
                "*nat\n:{CHAIN} - [0:0]\n-A {CHAIN} -d 10.1.0.0/24 {comment} -j ACCEPT\n-A {CHAIN} ! -d 224.0.0.0/4 \
                 {comment} -j MASQUERADE\n{}COMMIT\n",
                jumps.collect::<String>()
            )
        };
        feed("iptables-legacy-restore", &["--noflush"], &chain(&["10.1.0.5", "10.1.0.6"]));
        remove_known(ETH0, known(&[ip("10.1.0.5")]));
        let left = saved("iptables-legacy");
        assert!(!left.contains("10.1.0.5") && left.contains("10.1.0.6") && left.contains("MASQUERADE"), "{left}");
        remove(NET1);
        assert_eq!(saved("iptables-legacy"), "");
        feed("iptables-legacy-restore", &["--noflush"], &chain(&["10.1.0.5"]));
        assert_eq!(gc("office", &[], ""), []);
        assert_eq!(saved("iptables-legacy"), "");

        let foreign = format!("*nat\n:ADM - [0:0]\n-A ADM -s 7.7.7.7 -g {CHAIN}\nCOMMIT\n");
        for by_gc in [false, true] {
            feed("iptables-legacy-restore", &["--noflush"], &chain(&["10.1.0.5"]));
            feed("iptables-legacy-restore", &["--noflush"], &foreign);
            if by_gc {
                assert_eq!(gc("office", &[], ""), [])
            } else {
                remove(ETH0)
            }
            let emptied = format!(":{CHAIN} - [0:0]\n-A ADM -s 7.7.7.7/32 -g {CHAIN}\n-A {CHAIN} {comment}\n");
            assert_eq!(saved("iptables-legacy"), emptied);
            sh("iptables-legacy -t nat -F ADM");
            if by_gc {
                assert_eq!(gc("office", &[], ""), [])
            } else {
                remove(ETH0)
            }
            assert_eq!(saved("iptables-legacy"), "");
        }
    });
}
