//! What a daemon costs that keeps the leases of a large node.

use std::fs;
use std::time::Instant;

use nix::sys::signal::Signal;
use serde_json::json;
use testns::Verb;

use crate::lan::{Lan, SERVER, bridge};
use crate::server::{ACK, DISCOVER, OFFER, Server};

const COUNT: usize = 1000;

/// `cargo test -p dhcp --test it -- --nocapture thousand` prints memory and processor time.
#[test]
fn thousand_leases_are_kept_by_one_thread_in_little_memory() {
    let lan = Lan::new();
    let routes: Vec<u8> = (0..12).flat_map(|number| [24, 172, 16, number, 10, 8, 0, 1]).collect();
    let _server = Server::start(&lan, move |asked| {
        let answer = asked.answer(if asked.kind == DISCOVER { OFFER } else { ACK });
        vec![answer.with(51, Some(&[0, 1, 0, 0])).with(121, Some(&routes)).bytes()]
    });
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
        fs::write(format!("/run/cni/dhcp.sock.leases/{number:032}.json"), lease.to_string()).unwrap();
    }
    let start = Instant::now();
    let daemon = lan.daemon(&[]);
    let ready = start.elapsed();
    let status = lan.status();
    assert_eq!(status.lines().count(), COUNT + 1);
    assert!(status.contains(SERVER));
    let read = |file: &str| fs::read_to_string(format!("/proc/{}/{file}", daemon.id())).unwrap();
    let number = |name: &str| -> u64 {
        let status = read("status");
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    };
    let ticks: u64 = read("stat").split_whitespace().skip(13).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum();
    let (rss, threads) = (number("VmRSS:"), number("Threads:"));
    eprintln!(
        "{COUNT} leases: {rss} KiB, {threads} thread; ready after {ready:?}; {ticks} hundredths of a second of processor time"
    );
    assert_eq!(threads, 1);
    assert!(rss < 32 << 10, "{rss} KiB");
    assert!(fs::read_dir(format!("/proc/{}/fd", daemon.id())).unwrap().count() < 20, "none keeps its namespace open");
}
