//! What a daemon costs that keeps the leases of a large node.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Instant;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use testns::{Background, Container, Namespace, Verb};

use crate::lan::{Lan, SERVER, bridge, has};
use crate::scripted_server::Server;

const COUNT: usize = 1000;

/// Containers of a switch.
const PORTS: usize = 50;

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

/// All leases of a node are renewed at once, as after an absence of the daemon.
fn burst(count: usize) {
    testns::needs!(has("dnsmasq"));
    let lan = Lan::new();
    lan.server.add_address("lan0", "10.9.0.1/16");
    let mut server = lan.dnsmasq_for("10.9.1.0,10.9.99.255,255.255.0.0,12h", &["--dhcp-lease-max=2000"]);
    let mut daemon = lan.daemon(&[]);
    let first = lan.node.container_named("first");
    lan.node.call(Verb::Add, bridge(json!({})), &first).ok();
    server.wait_for("DHCPACK");
    daemon.end(Signal::SIGTERM);
    let mut lease = lan.leases().remove(0);
    lease["lease"]["renewSeconds"] = 0.into();
    // A switch has some of the ports: each new one costs a look at the others.
    let switches: Vec<Namespace> = (0..count.div_ceil(PORTS))
        .map(|number| {
            let (switch, port) = (lan.node.remote(&format!("switch{number}")), format!("switch{number}"));
            switch.add_link("lan0", "bridge");
            lan.node.host().add_veth(&port, &switch, "up0");
            lan.node.host().set_master(&port, "br0");
            switch.set_master("up0", "lan0");
            switch
        })
        .collect();
    let attach = |number: usize| -> Container {
        let id = format!("many{number}");
        let container = lan.node.container_named(&id);
        let namespace = container.namespace();
        let (switch, port) = (&switches[number / PORTS], format!("port{number}"));
        switch.add_veth(&port, namespace, "eth0");
        switch.set_master(&port, "lan0");
        let address = format!("10.9.{}.{}/16", 8 + number / 250, 1 + number % 250);
        namespace.add_address("eth0", &address);
        let (link, file) = (namespace.link("eth0"), fs::metadata(namespace.path()).unwrap());
        let mut lease = lease.clone();
        lease["lease"]["address"] = address.into();
        let subject = &mut lease["subject"];
        subject["clientId"] = format!("\0{id}/net/eth0").into_bytes().into();
        subject["names"]["containerId"] = id.into();
        subject["sandbox"] = json!({"path": namespace.path(), "identity": [file.dev(), file.ino()]});
        subject["index"] = link.index.into();
        let mac: Vec<u8> = link.mac.split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
        subject["mac"] = mac.into();
        put(number, &lease);
        container
    };
    let _containers: Vec<Container> = (0..count).map(attach).collect();
    let start = Instant::now();
    let mut daemon = lan.daemon(&[]);
    for _ in 0..count {
        daemon.wait_for("bound");
    }
    let cost = Cost::of(&daemon);
    eprintln!("{count} renewals at once: {cost}; done after {:?}", start.elapsed());
    assert_eq!(cost.threads, 1);
    let status = lan.status();
    assert_eq!(status.lines().filter(|line| line.contains("many") && line.contains("  bound  ")).count(), count);
    assert_eq!(lan.leases().iter().filter(|lease| lease["lastError"] != "").count(), 0, "{status}");
    assert_eq!(server.end(Signal::SIGTERM).matches("DHCPDISCOVER(").count(), 1, "the others are renewals");
}

#[test]
fn fifty_leases_are_renewed_at_once() {
    burst(50);
}
