//! The daemon's own life: leases outlive it.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Instant;
use std::{fmt, fs};

use nix::mount::{MsFlags, mount};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::{Value, json};
use testns::{Background, Call, Verb};

use crate::lan::{Lan, SERVER, bridge, has};
use crate::scripted_server::Server;

#[test]
fn next_daemon_goes_on_with_the_leases() {
    testns::needs!(has("dnsmasq"));
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let lan = Lan::new();
        let mut server = lan.dnsmasq(&["--dhcp-option=option:T1,3s", "--dhcp-option=option:T2,30s"]);
        let mut daemon = lan.daemon(&[]);
        let (pod, config) = (lan.node.container(), bridge(json!({})));
        let result = lan.node.call(Verb::Add, &config, &pod).ok();
        server.wait_for("DHCPACK");
        daemon.end(signal);
        assert_eq!(lan.socket().exists(), signal == Signal::SIGKILL);
        let mut daemon = lan.daemon(&[]);
        assert!(daemon.wait_for("is ready").contains("leases=1"));
        Call::new(Verb::Check, &config, &pod).prev_result(&result).run(&lan.node).ok();
        server.wait_for("DHCPREQUEST");
        server.wait_for("DHCPACK");
        daemon.wait_for("bound");
        lan.node.call(Verb::Del, &config, &pod).ok();
        server.wait_for("DHCPRELEASE");
    }
}

/// A pipe would keep the daemon waiting, and a link to a device fill its memory.
#[test]
fn what_is_no_file_among_the_leases_is_passed_over() {
    let lan = Lan::new();
    lan.daemon(&[]).end(Signal::SIGTERM);
    let folder = lan.socket().with_extension("sock.leases");
    std::fs::create_dir_all(&folder).unwrap();
    mkfifo(&folder.join("pipe.json"), Mode::S_IRWXU).unwrap();
    std::os::unix::fs::symlink("/dev/zero", folder.join("zero.json")).unwrap();
    assert!(lan.daemon(&[]).wait_for("is ready").contains("leases=0"));
}

/// Nothing can be written there, but a lease that stays recorded would be renewed for a container that is gone.
#[test]
fn del_and_gc_succeed_without_the_daemon_on_a_file_system_that_is_full() {
    testns::needs!(has("dnsmasq"));
    let lan = Lan::new();
    std::fs::create_dir_all("/run/cni").unwrap();
    mount(Some("tmpfs"), "/run/cni", Some("tmpfs"), MsFlags::empty(), Some("size=64k,mode=0755")).unwrap();
    let mut server = lan.dnsmasq(&[]);
    let mut daemon = lan.daemon(&[]);
    let pods = [lan.node.container(), lan.node.container(), lan.node.container()];
    let mut config = bridge(json!({}));
    config["cniVersion"] = "1.1.0".into();
    for pod in &pods {
        lan.node.call(Verb::Add, &config, pod).ok();
        server.wait_for("DHCPACK");
    }
    daemon.end(Signal::SIGTERM);
    pods[1].namespace().delete_addresses("eth0");
    std::fs::write("/run/cni/ballast", vec![0; 1 << 20]).unwrap_err();
    // A lease file may also be torn by whatever filled the file system.
    let torn = lan.lease_file(pods[2].id());
    std::fs::File::options().write(true).truncate(true).open(&torn).unwrap();
    std::fs::write("/run/cni/ballast2", vec![0; 1 << 20]).unwrap_err();
    for _ in 0..2 {
        lan.node.call(Verb::Del, &config, &pods[0]).ok();
        lan.node.call(Verb::Del, &config, &pods[2]).ok();
        config["cni.dev/valid-attachments"] = json!([]);
        Call::new(Verb::Gc, &config, &pods[1]).plugin("dhcp").run(&lan.node).ok();
        config.as_object_mut().unwrap().remove("cni.dev/valid-attachments");
    }
    // The links of those that DEL was called for are gone; the node has a way to the server itself.
    lan.node.host().add_address("br0", "10.8.0.40/24");
    let mut daemon = lan.daemon(&[]);
    for _ in 0..2 {
        daemon.wait_for("the lease is given back, as DEL was called meanwhile");
        server.wait_for("DHCPRELEASE");
    }
    lan.node.host().wait_for("the leases to be forgotten", |_| lan.status().lines().count() == 1);
    assert!(!torn.exists() && !torn.with_extension("released").exists());
}

#[test]
fn a_damaged_lease_does_not_outlive_del() {
    testns::needs!(has("dnsmasq"));
    let lan = Lan::new();
    let _server = lan.dnsmasq(&[]);
    let mut daemon = lan.daemon(&[]);
    let pod = lan.node.container();
    lan.node.call(Verb::Add, bridge(json!({})), &pod).ok();
    daemon.end(Signal::SIGTERM);
    let lease = lan.lease_file(pod.id());
    std::fs::write(&lease, "{").unwrap();
    let mut daemon = lan.daemon(&[]);
    daemon.wait_for("a lease file is ignored");
    lan.node.call(Verb::Del, bridge(json!({})), &pod).ok();
    assert!(!lease.exists());
}

/// A daemon that is stopped or killed ends the calls that it has not answered: one that it has not read is reset.
#[test]
fn del_and_gc_succeed_when_the_daemon_ends_under_them() {
    testns::needs!(has("dnsmasq"));
    let lan = Lan::new();
    let _server = lan.dnsmasq(&[]);
    let mut daemon = lan.daemon(&[]);
    let pods = [lan.node.container(), lan.node.container()];
    let mut config = bridge(json!({}));
    config["cniVersion"] = "1.1.0".into();
    for pod in &pods {
        lan.node.call(Verb::Add, &config, pod).ok();
    }
    daemon.end(Signal::SIGTERM);
    pods[1].namespace().delete_addresses("eth0");
    let listener = UnixListener::bind(lan.socket()).unwrap();
    std::thread::spawn(move || {
        for reads in [true, true, false, false] {
            let (stream, _) = listener.accept().unwrap();
            if reads {
                BufReader::new(stream).read_line(&mut String::new()).unwrap();
            }
        }
    });
    let released = || lan.leases().iter().filter(|lease| lease["isReleased"] == true).count();
    config["cni.dev/valid-attachments"] = json!([{"containerID": pods[0].id(), "ifname": "eth0"}]);
    Call::new(Verb::Gc, &config, &pods[0]).plugin("dhcp").run(&lan.node).ok();
    assert_eq!(released(), 1);
    lan.node.call(Verb::Del, &config, &pods[0]).ok();
    assert_eq!(released(), 2);
}

#[test]
fn second_daemon_on_a_socket_is_refused() {
    let lan = Lan::new();
    let pid_file = lan.node.work_dir().join("pid");
    let first = lan.daemon(&["-pidfile", pid_file.to_str().unwrap()]);
    assert_eq!(std::fs::read_to_string(&pid_file).unwrap(), first.id().to_string());
    let mut second = Background::with_stderr(lan.daemon_command(&[]));
    assert_eq!(second.exit_code(), Some(1));
    assert!(second.rest().contains("another daemon listens on /run/cni/dhcp.sock"));
    assert!(lan.status().starts_with("NETWORK"));
    let mut third = Background::with_stderr(lan.daemon_command(&["-nope"]));
    assert_eq!(third.exit_code(), Some(2));
}

#[test]
fn file_that_is_no_socket_is_not_removed() {
    let lan = Lan::new();
    std::fs::create_dir_all("/run/cni").unwrap();
    std::fs::write(lan.socket(), "mine").unwrap();
    let mut daemon = Background::with_stderr(lan.daemon_command(&[]));
    assert_eq!(daemon.exit_code(), Some(1));
    assert!(daemon.rest().contains("it is no socket"));
    assert_eq!(std::fs::read_to_string(lan.socket()).unwrap(), "mine");
}

/// A caller that is killed while it waits leaves no lease behind.
#[test]
fn plugin_that_ends_while_it_waits_gets_no_lease() {
    let lan = Lan::new();
    let mut daemon = lan.daemon(&[]);
    let pod = lan.node.container();
    pod.namespace().add_link("eth0", "bridge");
    let metadata = std::fs::metadata(pod.namespace().path()).unwrap();
    let identity = std::os::unix::fs::MetadataExt::ino(&metadata);
    let device = std::os::unix::fs::MetadataExt::dev(&metadata);
    let request = json!({
        "cniDhcp": 1, "verb": "add",
        "names": {"network": "net", "containerId": pod.id(), "ifname": "eth0"},
        "sandbox": {"path": pod.namespace().path(), "identity": [device, identity]},
        "clientId": [0, 1], "provide": [], "request": [1], "priority": 0,
    });
    let mut stream = UnixStream::connect(lan.socket()).unwrap();
    writeln!(stream, "{request}").unwrap();
    drop(stream);
    daemon.wait_for("the plugin ended before its lease came");
    assert!(lan.leases().is_empty());
}

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
