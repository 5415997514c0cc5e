//! Rules of iptables, written over netlink.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod native;
mod programs;
mod recognised;
mod shapes;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::node::{ETH0, has, in_netns, sh};
use cni_filter::iptables::rule::{Rule, Target};
use cni_filter::iptables::{NewRule, TableName};
use cni_filter::{Backend, Filter, Names, RemovalHints, gc, remove_all};
use netops::nft::{Change, Expr, Family, Nft, Table, Transaction, Verdict};

fn network(text: &str) -> Vec<ipnetwork::IpNetwork> {
    vec![text.parse().unwrap()]
}

fn add(attachment: Names<'_>, address: &str) {
    Filter::open("").unwrap().add_masquerade(Backend::Default, attachment, &network(address)).unwrap();
}

fn check(attachment: Names<'_>, address: &str) {
    Filter::open("").unwrap().check_masquerade(Backend::Default, attachment, &network(address)).unwrap();
}

fn saved() -> Vec<String> {
    sh("iptables-save -t nat 2>/dev/null").lines().map(str::to_owned).collect()
}

/// 64 at a time, four of a container, which share a chain, while others add rules with iptables and load files with
/// iptables-restore: each finds all of its own, no rule is lost or there twice, and none waits long.
#[test]
fn concurrent_changes_and_iptables_lose_no_rules() {
    const MANY: usize = 64;
    const OF_A_CONTAINER: usize = 4;
    in_netns(|| {
        testns::needs!(has("concurrent_changes_and_iptables_lose_no_rules", "iptables-nft"));
        sh("iptables -t nat -N ADMIN; iptables -t nat -N LOADED");
        let is_over = AtomicBool::new(false);
        let start = Instant::now();
        let longest = std::sync::Mutex::new(Duration::ZERO);
        let timed = |work: &dyn Fn()| {
            let start = Instant::now();
            work();
            let mut longest = longest.lock().unwrap();
            *longest = start.elapsed().max(*longest);
        };
        let (administered, loaded) = std::thread::scope(|scope| {
            let repeat = |command: &'static str| {
                let is_over = &is_over;
                scope.spawn(move || {
                    let mut done = 0;
                    while !is_over.load(Ordering::Relaxed) {
                        sh(&command.replace("NUMBER", &done.to_string()));
                        done += 1;
                    }
                    done
                })
            };
            let administered = repeat("iptables -w -t nat -A ADMIN -s 192.0.2.1 -m comment --comment NUMBER -j RETURN");
            let loaded = repeat(
                "printf '*nat\\n-A LOADED -m comment --comment NUMBER -j RETURN\\nCOMMIT\\n' | iptables-restore -w --noflush",
            );
            let pods: Vec<_> = (0..MANY)
                .map(|number| {
                    let timed = &timed;
                    scope.spawn(move || {
                        let container = format!("c{}", number / OF_A_CONTAINER);
                        let ifname = format!("eth{}", number % OF_A_CONTAINER);
                        let pod = Names { container: &container, ifname: &ifname, ..ETH0 };
                        let address = format!("10.1.0.{number}/24");
                        for _ in 0..3 {
                            timed(&|| add(pod, &address));
                            timed(&|| check(pod, &address));
                            timed(&|| assert_eq!(remove_all(pod, RemovalHints::default()), []));
                        }
                        timed(&|| add(pod, &address));
                    })
                })
                .collect();
            pods.into_iter().for_each(|pod| pod.join().unwrap());
            is_over.store(true, Ordering::Relaxed);
            (administered.join().unwrap(), loaded.join().unwrap())
        });
        let rules = saved();
        let count = |start: &str| rules.iter().filter(|line| line.starts_with(start)).count();
        assert_eq!((count("-A ADMIN"), count("-A LOADED"), count("-A POSTROUTING")), (administered, loaded, MANY));
        let containers = MANY / OF_A_CONTAINER;
        assert_eq!((count(":CNI-"), count("-A CNI-")), (containers, 2 * containers));
        let longest = longest.into_inner().unwrap();
        eprintln!("{administered} iptables, {loaded} restores, longest call {longest:?}, all {:?}", start.elapsed());
        assert!(administered > 0 && loaded > 0 && longest < Duration::from_secs(10), "{longest:?}");
        assert_eq!(gc("office", &[], ""), []);
        assert!(!saved().iter().any(|line| line.contains("CNI-")));
    });
}

/// No process reads in vain because another one has changed the ruleset in between.
#[test]
fn processes_that_change_rules_wait_for_each_other() {
    const MANY: usize = 32;
    in_netns(|| {
        let looks = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for number in 0..MANY {
                let looks = &looks;
                scope.spawn(move || {
                    let mut filter = Filter::open("").unwrap();
                    let mut table = filter.iptables(Family::Ip, TableName::Nat).unwrap().expect("nf_tables");
                    let rule = Rule { comment: Some(number.to_string()), target: Target::Return, ..Rule::default() };
                    let new = NewRule { chain: "POSTROUTING".to_owned(), rule, note: None };
                    let look = |table: &mut cni_filter::iptables::Table<'_>| {
                        looks.fetch_add(1, Ordering::Relaxed);
                        table.append_once(new.clone())
                    };
                    table.change(look).unwrap();
                });
            }
        });
        assert_eq!(looks.into_inner(), MANY);
    });
}

/// An administrator's table that is dormant takes rules without a word, as from iptables. CHECK says that they do nothing.
#[test]
fn check_names_a_dormant_table() {
    in_netns(|| {
        testns::needs!(has("check_names_a_dormant_table", "nft"));
        sh("nft add table ip nat '{ flags dormant; }'");
        add(ETH0, "10.1.0.2/24");
        let mut filter = Filter::open("").unwrap();
        let error = filter.check_masquerade(Backend::Default, ETH0, &network("10.1.0.2/24")).unwrap_err().to_string();
        assert!(error.contains("nft table ip nat") && error.contains("it is dormant"), "{error}");
        assert!(sh("nft list table ip nat 2>/dev/null").contains("flags dormant"));
        sh("nft add table ip nat");
        check(ETH0, "10.1.0.2/24");
    });
}

/// Prints what calls cost; `cargo test -p cni-filter --test it -- iptables:: --ignored --nocapture measure`.
#[test]
#[ignore = "a measurement, not a check"]
fn measure() {
    fn timed(what: &str, work: &mut dyn FnMut(u32)) {
        let time = |number| {
            let start = Instant::now();
            work(number);
            start.elapsed()
        };
        let mut times: Vec<_> = (0..20).map(time).collect();
        times.sort();
        eprintln!("{what}: {:?}, at best {:?}", times[10], times[0]);
    }
    in_netns(|| {
        let addresses = |number: u32| {
            let ipv4 = std::net::Ipv4Addr::from(0x0a01_0005 + number);
            let ipv6 = std::net::Ipv6Addr::from((0xfd00 << 112) + u128::from(number));
            vec![format!("{ipv4}/16").parse().unwrap(), format!("{ipv6}/64").parse().unwrap()]
        };
        let mut others = 0;
        for many in [0_u32, 1_000] {
            while others < many {
                let container = format!("other{others}");
                let pod = Names { container: &container, ..ETH0 };
                Filter::open("").unwrap().add_masquerade(Backend::Default, pod, &addresses(1000 + others)).unwrap();
                others += 1;
            }
            eprintln!("-- with {many} attachments of others, IPv4 and IPv6");
            let names: Vec<String> = (0..20).map(|number| format!("c{number}")).collect();
            let pod = |number: u32| Names { container: &names[number as usize], ..ETH0 };
            timed("remove_all of nothing", &mut |number| drop(remove_all(pod(number), RemovalHints::default())));
            timed("add, with open and close", &mut |number| {
                Filter::open("").unwrap().add_masquerade(Backend::Default, pod(number), &addresses(number)).unwrap();
            });
            timed("check", &mut |number| {
                Filter::open("").unwrap().check_masquerade(Backend::Default, pod(number), &addresses(number)).unwrap();
            });
            timed("remove_all, with open and close", &mut |number| {
                drop(remove_all(pod(number), RemovalHints::default()))
            });
            // What of it is the kernel's, in `nf_tables_commit`: it goes through all rules of the table for loops
            // (`nft_chain_validate`), and copies those of a chain that changes (`nf_tables_commit_chain_prepare`).
            let table = Table::new(Family::Ip, "nat");
            let mut nft = Nft::open("the host").unwrap();
            timed("kernel: commit of an empty chain and a jump there", &mut |number| {
                let new = table.chain(format!("NEW-{number}"));
                let jump = vec![Expr::Verdict(Verdict::Jump(new.name.clone()))];
                let jump = Change::AppendRule(table.chain("POSTROUTING").rule(jump));
                nft.commit(&Transaction::new(vec![Change::EnsureChain(new), jump])).unwrap();
            });
            let chain = table.chain("POSTROUTING");
            timed("kernel: reading POSTROUTING", &mut |_| drop(nft.list_rules(&chain).unwrap()));
        }
    });
}
