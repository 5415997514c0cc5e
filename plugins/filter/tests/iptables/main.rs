//! Rules of iptables, written over netlink.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod native;
mod programs;
mod recognised;
mod shapes;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::node::{ETH0, in_netns, in_netns_with, networks, sh};
use cni_filter::iptables::rule::{Rule, Target};
use cni_filter::iptables::{NewRule, TableName};
use cni_filter::{Backend, Filter, Names, RemovalHints, gc, remove_all};
use netops::nft::Family;

fn add(attachment: Names<'_>, address: &str) {
    Filter::open("").unwrap().add_masquerade(Backend::Default, attachment, &networks(&[address])).unwrap();
}

fn check(attachment: Names<'_>, address: &str) {
    Filter::open("").unwrap().check_masquerade(Backend::Default, attachment, &networks(&[address])).unwrap();
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
    in_netns_with("iptables-nft", || {
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
