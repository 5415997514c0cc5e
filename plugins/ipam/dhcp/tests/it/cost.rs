//! What a daemon costs that keeps the leases of a large node.

use std::fmt;
use std::fs;
use std::time::Instant;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use testns::{Background, Verb};

use crate::lan::{Lan, SERVER, bridge};
use crate::scripted_server::Server;

const COUNT: usize = 1000;

/// What a daemon has used.
struct Cost {
    rss_kib: u64,
    threads: u64,
    /// Processor time in hundredths of a second.
    ticks: u64,
}

impl Cost {
    fn of(daemon: &Background) -> Self {
        let read = |file: &str| fs::read_to_string(format!("/proc/{}/{file}", daemon.id())).unwrap();
        let number = |name: &str| -> u64 {
            let status = read("status");
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.split_whitespace().next().unwrap().parse().unwrap()
        };
        let ticks = read("stat").split_whitespace().skip(13).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum();
        Self { rss_kib: number("VmRSS:"), threads: number("Threads:"), ticks }
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rss_kib, threads, ticks } = self;
        write!(f, "{rss_kib} KiB, {threads} thread, {ticks} hundredths of a second of processor time")
    }
}

/// Writes a lease for the next daemon.
fn put(number: usize, lease: &Value) {
    fs::write(format!("/run/cni/dhcp.sock.leases/{number:032}.json"), lease.to_string()).unwrap();
}

/// `cargo test -p dhcp --test it -- --nocapture thousand` prints memory and processor time.
#[test]
fn thousand_leases_are_kept_by_one_thread_in_little_memory() {
    let lan = Lan::new();
    let routes: Vec<u8> = (0..12).flat_map(|number| [24, 172, 16, number, 10, 8, 0, 1]).collect();
    let _server = Server::changing(&lan, move |answer| answer.with(51, Some(&[0, 1, 0, 0])).with(121, Some(&routes)));
    let mut daemon = lan.daemon(&[]);
    // A container's ID has 64 digits in practice.
    lan.node.call(Verb::Add, bridge(json!({})), &lan.node.container_named(&"a".repeat(64))).ok();
    daemon.end(Signal::SIGTERM);
    let lease = lan.leases().remove(0);
    for number in 0..COUNT - 1 {
        let mut lease = lease.clone();
        let id = format!("{number:064}");
        lease["subject"]["clientId"] = format!("\0{id}/net/eth0").into_bytes().into();
        lease["subject"]["names"]["containerId"] = id.into();
        put(number, &lease);
    }
    let start = Instant::now();
    let daemon = lan.daemon(&[]);
    let ready = start.elapsed();
    let status = lan.status();
    assert_eq!(status.lines().count(), COUNT + 1);
    assert!(status.contains(SERVER));
    let cost = Cost::of(&daemon);
    eprintln!("{COUNT} leases: {cost}; ready after {ready:?}");
    assert_eq!(cost.threads, 1);
    assert!(cost.rss_kib < 32 << 10, "{cost}");
    assert!(fs::read_dir(format!("/proc/{}/fd", daemon.id())).unwrap().count() < 20, "none keeps its namespace open");
}
