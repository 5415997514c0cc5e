//! Rules of iptables, written over netlink.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../node/mod.rs"]
mod node;

mod programs;
mod shapes;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use filter::{Attachment, Backend, Filter, Known, gc, remove_all};
use node::{ETH0, has, in_netns, sh};

fn network(text: &str) -> Vec<ipnetwork::IpNetwork> {
    vec![text.parse().unwrap()]
}

fn add(attachment: Attachment<'_>, address: &str) {
    Filter::open().unwrap().add_masquerade(Backend::Default, attachment, &network(address)).unwrap();
}

fn check(attachment: Attachment<'_>, address: &str) {
    Filter::open().unwrap().check_masquerade(Backend::Default, attachment, &network(address)).unwrap();
}

fn saved() -> Vec<String> {
    sh("iptables-save -t nat 2>/dev/null").lines().map(str::to_owned).collect()
}

/// 64 at a time, while others add rules with iptables and load files with iptables-restore: each finds all of its own,
/// no rule of anybody's gets lost, and nobody waits long.
#[test]
fn many_at_once_among_others_who_use_iptables() {
    const MANY: usize = 64;
    in_netns(|| {
        if !has("many_at_once_among_others_who_use_iptables", "iptables-nft") {
            return;
        }
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
                        let container = format!("c{number}");
                        let pod = Attachment { container: &container, ..ETH0 };
                        let address = format!("10.1.0.{number}/24");
                        for _ in 0..3 {
                            timed(&|| add(pod, &address));
                            timed(&|| check(pod, &address));
                            timed(&|| assert_eq!(remove_all(pod, Known::default()), []));
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
        assert_eq!((count(":CNI-"), count("-A CNI-")), (MANY, 2 * MANY));
        let longest = longest.into_inner().unwrap();
        eprintln!("{administered} iptables, {loaded} restores, longest call {longest:?}, all {:?}", start.elapsed());
        assert!(administered > 0 && loaded > 0 && longest < Duration::from_secs(10), "{longest:?}");
        assert_eq!(gc("office", &[], ""), []);
        assert!(!saved().iter().any(|line| line.contains("CNI-")));
    });
}
