//! Servers, neighbours and containers that mean harm.

use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use serde_json::json;
use testns::{Container, Verb};

use crate::lan::{Lan, SERVER, bridge};
use crate::scripted_server::{ACK, Asked, CLIENTS, DISCOVER, DhcpReply, NAK, OFFER, REQUEST, Server, socket};

const GOOD: Ipv4Addr = Ipv4Addr::new(10, 8, 0, 77);

/// A server that answers with what `bad` adds to the exchange of [`GOOD`], before it; and all that it is asked.
fn server(lan: &Lan, mut bad: impl FnMut(&Asked) -> Vec<DhcpReply> + Send + 'static) -> (Server, Receiver<Asked>) {
    Server::start(lan, move |asked| bad(asked).into_iter().chain(asked.plain()).collect())
}

/// Offers, or acknowledgements, that no client can use.
fn unusable(asked: &Asked, kind: u8) -> Vec<DhcpReply> {
    let answer = asked.answer(kind);
    let mut all = Vec::new();
    for address in ["0.0.0.0", "0.1.2.3", "255.255.255.255", "224.0.0.9", "127.0.0.1", "10.8.0.0", "10.8.0.255", SERVER]
    {
        all.push(DhcpReply { yiaddr: address.parse().unwrap(), ..answer.clone() });
    }
    if kind == ACK {
        all.push(answer.clone().with(1, None)); // only a lease needs the mask
    }
    let options: [(u8, Option<&[u8]>); 12] = [
        (1, Some(&[255, 0, 255, 0])),
        (1, Some(&[0, 0, 0, 0])),
        (1, Some(&[255])),
        (51, Some(&[0, 0, 0, 0])),
        (51, Some(&[0, 0, 0, 1])),
        (53, None),
        (53, Some(&[])),
        (54, None),
        (54, Some(&[0, 0, 0, 0])),
        (54, Some(&[127, 0, 0, 1])),
        (54, Some(&[224, 0, 0, 1])),
        (54, Some(&[255, 255, 255, 255])),
    ];
    let others = Ipv4Addr::new(10, 8, 0, 66);
    let to_other = |answer: DhcpReply| DhcpReply { yiaddr: others, ..answer };
    all.extend(options.map(|(code, value)| to_other(answer.clone()).with(code, value)));
    all.push(to_other(DhcpReply { op: 1, ..answer.clone() }));
    all.push(to_other(DhcpReply { xid: [9; 4], ..answer.clone() }));
    all.push(to_other(DhcpReply { mac: [2; 6], ..answer }));
    all
}

#[test]
fn answers_that_no_client_can_use_are_passed_over() {
    let lan = Lan::new();
    let (_server, asked) = server(&lan, |asked| match asked.kind {
        DISCOVER => unusable(asked, OFFER),
        REQUEST => unusable(asked, ACK),
        _ => Vec::new(),
    });
    let mut daemon = lan.daemon(&[]);
    let result = lan.node.call(Verb::Add, bridge(json!({})), &lan.node.container()).ok();
    assert_eq!(result["ips"][0]["address"], format!("{GOOD}/24"));
    let asked: Vec<Asked> = asked.try_iter().collect();
    let wanted: Vec<Ipv4Addr> =
        asked.iter().filter(|asked| asked.kind == REQUEST).filter_map(|asked| asked.wanted).collect();
    assert!(!wanted.is_empty() && wanted.iter().all(|&wanted| wanted == GOOD), "{wanted:?}");
    let log = daemon.end(nix::sys::signal::Signal::SIGTERM);
    let lines = log.lines().filter(|line| line.contains("the server gives")).count();
    assert!((1..=asked.len()).contains(&lines), "one line for a message of ours, not for each of theirs:\n{log}");
}

#[test]
fn add_says_what_is_wrong_with_the_only_offer() {
    let lan = Lan::new();
    let _server = Server::start(&lan, |asked| vec![DhcpReply { yiaddr: Ipv4Addr::BROADCAST, ..asked.answer(OFFER) }]);
    let _daemon = lan.daemon(&["-resendtimeout", "2s"]);
    let error = lan.node.call(Verb::Add, bridge(json!({})), &lan.node.container()).fails_with(105);
    assert!(error.msg.contains("the server gives address 255.255.255.255, which no client can have"), "{error:?}");
}

/// What an offer has beside the address is the server's choice (RFC 2131, 4.3.1).
#[test]
fn an_offer_needs_no_mask() {
    let lan = Lan::new();
    let _server = Server::start(&lan, |asked| match asked.kind {
        DISCOVER => vec![asked.answer(OFFER).with(1, None)],
        _ => asked.plain().into_iter().collect(),
    });
    let _daemon = lan.daemon(&["-resendtimeout", "10s"]);
    let result = lan.node.call(Verb::Add, bridge(json!({})), &lan.node.container()).ok();
    assert_eq!(result["ips"][0]["address"], format!("{GOOD}/24"));
}

/// Answers of two servers, answers twice, late ones, and a refusal of a server that was not asked.
#[test]
fn only_the_chosen_server_acknowledges_or_refuses() {
    let lan = Lan::new();
    let other: Option<&[u8]> = Some(&[10, 8, 0, 2]);
    let mut earlier: Option<Asked> = None;
    let (_server, _asked) = server(&lan, move |asked| {
        let wrong = |answer: DhcpReply| DhcpReply { yiaddr: Ipv4Addr::new(10, 8, 0, 66), ..answer };
        let late = earlier.replace(asked.clone()).map(|earlier| wrong(earlier.answer(ACK)).with(54, other));
        let mut answers = match asked.kind {
            // The server acknowledges before it is asked.
            DISCOVER => vec![wrong(asked.answer(ACK)), asked.answer(OFFER)],
            REQUEST => vec![asked.answer(NAK).with(54, other), asked.answer(NAK).with(54, None), asked.answer(OFFER)],
            _ => Vec::new(),
        };
        answers.extend(late);
        answers
    });
    let _daemon = lan.daemon(&[]);
    let result = lan.node.call(Verb::Add, bridge(json!({})), &lan.node.container()).ok();
    assert_eq!(result["ips"][0]["address"], format!("{GOOD}/24"));
    assert_eq!(result["ips"].as_array().map(Vec::len), Some(1));
}

#[test]
fn server_that_refuses_what_it_offers_is_asked_once_a_second_at_most() {
    let lan = Lan::new();
    let (_server, asked) = Server::start(&lan, |asked| match asked.kind {
        DISCOVER => vec![asked.answer(OFFER)],
        _ => vec![asked.answer(NAK); 20],
    });
    let _daemon = lan.daemon(&["-resendtimeout", "4s"]);
    lan.node.call(Verb::Add, bridge(json!({})), &lan.node.container()).fails_with(105);
    let discovers = asked.try_iter().filter(|asked| asked.kind == DISCOVER).count();
    assert!((1..=5).contains(&discovers), "{discovers}");
}

/// T1 of 0 s, T1 behind T2, both behind the end, and a lease of two seconds, which is the shortest.
#[test]
fn no_server_makes_a_client_renew_more_than_once_a_second() {
    let lan = Lan::new();
    let (_server, asked) = Server::start(&lan, |asked| {
        let short = |answer: DhcpReply| answer.with(51, Some(&[0, 0, 0, 2])).with(58, Some(&[0; 4]));
        asked.plain().map_or_else(Vec::new, |answer| vec![short(answer).with(59, Some(&[0, 0, 0, 9])); 2])
    });
    let mut daemon = lan.daemon(&[]);
    lan.node.call(Verb::Add, bridge(json!({})), &lan.node.container()).ok();
    for _ in 0..4 {
        daemon.wait_for("bound");
    }
    let times: Vec<Instant> = asked.try_iter().filter(|asked| asked.kind == REQUEST).map(|asked| asked.at).collect();
    let shortest = times.windows(2).map(|pair| pair[1] - pair[0]).min();
    assert!(shortest > Some(Duration::from_millis(800)), "{shortest:?}");
}

/// The largest that a frame holds. Its routes reach the container, or the plugin's error says why not; nothing else changes.
#[test]
fn enormous_options_are_taken_whole() {
    let lan = Lan::new();
    let routes: Vec<u8> = (0..230u8).flat_map(|number| [24, 172, 16, number, 10, 8, 0, 1]).take(1120).collect();
    let _server = Server::changing(&lan, move |answer| {
        // Also overload that names fields without options, and a search list that points at itself.
        let answer = answer.with(121, Some(&routes)).with(52, Some(&[3])).with(119, Some(&[0xc0, 0]));
        answer.with(15, Some(b"a\nnameserver 1.1.1.1"))
    });
    let _daemon = lan.daemon(&[]);
    let pod = lan.node.container();
    let config = bridge(json!({"request": [{"option": "121"}]}));
    let result = lan.node.call(Verb::Add, &config, &pod).ok();
    assert_eq!(result["routes"].as_array().map(Vec::len), Some(140));
    assert_eq!(result["dns"], json!(null));
    assert_eq!(pod.namespace().routes().iter().filter(|route| format!("{route:?}").contains("172.16.")).count(), 140);
    assert!(lan.status().contains(pod.id()));
}

/// Any container of the network can send to the port of all others.
#[test]
fn flood_at_one_link_does_not_stop_the_daemon() {
    let lan = Lan::new();
    let mut daemon = lan.daemon(&["-resendtimeout", "4s"]);
    let pod = lan.node.container();
    let flood = lan.server.enter(|| socket(0));
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                flood.send_to(&[0; 300], CLIENTS).ok();
            }
        });
        let add = scope.spawn(|| lan.node.call(Verb::Add, bridge(json!({})), &pod).fails_with(105));
        for _ in 0..5 {
            let start = Instant::now();
            assert!(lan.status().starts_with("NETWORK"));
            assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
        }
        add.join().unwrap();
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    daemon.end(nix::sys::signal::Signal::SIGTERM);
}

/// What a container with CAP_NET_ADMIN can do with its link.
#[test]
fn link_that_its_container_takes_away_costs_only_its_own_lease() {
    type Harm = fn(&Lan, &Container);
    let harms: [Harm; 4] = [
        |_, pod| pod.namespace().rename("eth0", "mine"),
        |_, pod| pod.namespace().delete_link("eth0"),
        |lan, pod| pod.namespace().move_link("eth0", &lan.node.remote("elsewhere")),
        |_, pod| {
            pod.namespace().delete_link("eth0");
            pod.namespace().add_link("eth0", "bridge"); // another one of that name
        },
    ];
    for harm in harms {
        let lan = Lan::new();
        let t1: Option<&[u8]> = Some(&[0, 0, 0, 2]);
        let mut macs = Vec::new();
        let (_server, asked) = Server::changing(&lan, move |answer| {
            let number = macs.iter().position(|&mac| mac == answer.mac).unwrap_or(macs.len());
            if number == macs.len() {
                macs.push(answer.mac);
            }
            let yiaddr = Ipv4Addr::new(10, 8, 0, 100 + u8::try_from(number).unwrap());
            DhcpReply { yiaddr, ..answer }.with(58, t1)
        });
        let mut daemon = lan.daemon(&[]);
        let [victim, other] = [lan.node.container(), lan.node.container()];
        let result = lan.node.call(Verb::Add, bridge(json!({})), &other).ok();
        lan.node.call(Verb::Add, bridge(json!({})), &victim).ok();
        harm(&lan, &victim);
        daemon.wait_for("the link is gone, and its lease is given back");
        lan.node.host().wait_for("the lease to be forgotten", |_| lan.leases().len() == 1);
        assert_eq!(lan.leases()[0]["subject"]["names"]["containerId"], other.id());
        while asked.recv_timeout(Duration::from_secs(10)).unwrap().ciaddr == Ipv4Addr::UNSPECIFIED {}
        testns::Call::new(Verb::Check, bridge(json!({})), &other).prev_result(&result).run(&lan.node).ok();
        lan.node.call(Verb::Del, bridge(json!({})), &victim).ok();
        lan.node.call(Verb::Del, bridge(json!({})), &other).ok();
        assert!(lan.leases().is_empty());
    }
}

/// A link whose Ethernet address has changed is known by the lease's, which is looked for at each exchange.
#[test]
fn thousands_of_addresses_that_a_container_adds_cost_the_daemon_nothing() {
    let lan = Lan::new();
    let (_server, _asked) = server(&lan, |_| Vec::new());
    let daemon = lan.daemon(&[]);
    let pod = lan.node.container();
    lan.node.call(Verb::Add, bridge(json!({})), &pod).ok();
    pod.namespace().set_mac("eth0", "0a:00:00:00:00:05");
    let request = json!({"cniDhcp": 1, "verb": "check", "names": lan.leases()[0]["subject"]["names"]});
    let checks = |count: u32| {
        let start = cpu(daemon.id());
        for _ in 0..count {
            let mut stream = UnixStream::connect(lan.socket()).unwrap();
            writeln!(stream, "{request}").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.contains(&GOOD.to_string()), "{answer}");
        }
        cpu(daemon.id()) - start
    };
    let few = checks(100);
    let add: String =
        (0..5000).map(|number| format!("addr add 10.9.{}.{}/32 dev eth0\n", number / 250, number % 250)).collect();
    let file = lan.node.work_dir().join("addresses");
    std::fs::write(&file, add).unwrap();
    let added = pod.namespace().enter(|| Command::new("ip").arg("-batch").arg(&file).status().unwrap());
    assert!(added.success());
    let many = checks(100);
    eprintln!("100 looks at the link: {few:?} of processor time; with 5000 more addresses {many:?}");
    assert!(many < Duration::from_millis(500), "{many:?}, and {few:?} with one address");
    // CHECK also finds the link where other routes come before the local ones, and while the link is down.
    for rule in ["add pref 40000 lookup local", "del pref 0"] {
        let ip = || Command::new("ip").arg("rule").args(rule.split(' ')).status().unwrap();
        assert!(pod.namespace().enter(ip).success());
    }
    checks(1);
    pod.namespace().set_down("eth0");
    checks(1);
    // The lease's address is what it is known by.
    pod.namespace().delete_address("eth0", &format!("{GOOD}/24"));
    testns::Call::new(Verb::Check, bridge(json!({})), &pod).plugin("dhcp").run(&lan.node).fails();
}

/// Processor time that a process has used, in steps of 10 ms.
fn cpu(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let ticks: u64 = stat.split_whitespace().skip(13).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 10)
}
