//! Masquerade in our own table, on the real kernel.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod node;

use std::net::{IpAddr, UdpSocket};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use filter::{Attachment, Backend, Filter, Known, gc};
use ipnetwork::IpNetwork;
use netops::nft::{Change, Nft, Transaction};
use node::{ETH0, Pod, has, in_netns, in_pod, remove, remove_known, sh};

const TABLE: netops::nft::Table = netops::nft::Table::new(netops::nft::Family::Inet, "cni_masquerade");

fn networks(texts: &[&str]) -> Vec<IpNetwork> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn add(attachment: Attachment<'_>, addresses: &[&str]) {
    Filter::open().unwrap().add_masquerade(Backend::Nftables, attachment, &networks(addresses)).unwrap();
}

fn check(attachment: Attachment<'_>, addresses: &[&str]) -> Result<(), String> {
    let checked = Filter::open().unwrap().check_masquerade(Backend::Nftables, attachment, &networks(addresses));
    checked.map_err(|error| error.to_string())
}

fn has_table() -> bool {
    Nft::open("the host").unwrap().find_table(&TABLE).unwrap().is_some()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn the_ruleset_is_as_documented() {
    in_netns(|| {
        if !has("the_ruleset_is_as_documented", "nft") {
            return;
        }
        add(ETH0, &["10.1.0.5/24", "fd00::5/64"]);
        add(ETH0, &["10.1.0.5/24", "fd00::5/64"]); // once more changes nothing
        let whose = "f358a8caf95e1889-f4d01f2ef4b92245, net: office, if: eth0, id: c1";
        let expected = format!(
            "table inet cni_masquerade {{
	map sources4 {{
		type ipv4_addr : verdict
		elements = {{ 10.1.0.5 comment \"{whose}\" : goto from_10.1.0.0/24 }}
	}}

	map sources6 {{
		type ipv6_addr : verdict
		elements = {{ fd00::5 comment \"{whose}\" : goto from_fd00--/64 }}
	}}

	chain postrouting {{
		type nat hook postrouting priority srcnat; policy accept;
		ip daddr 224.0.0.0/4 return
		ip6 daddr ff00::/8 return
		ip saddr vmap @sources4
		ip6 saddr vmap @sources6
	}}

	chain from_10.1.0.0/24 {{
		ip daddr 10.1.0.0/24 return
		masquerade
	}}

	chain from_fd00--/64 {{
		ip6 daddr fd00::/64 return
		masquerade
	}}
}}
"
        );
        assert_eq!(sh("nft list ruleset"), expected);
        // What is listed can be loaded: the names are nft's.
        sh("nft list ruleset > /tmp/ruleset.$$ && nft -c -f /tmp/ruleset.$$; rm /tmp/ruleset.$$");
    });
}

#[test]
fn the_last_to_go_takes_everything_along() {
    in_netns(|| {
        let c2 = Attachment { container: "c2", ..ETH0 };
        add(ETH0, &["10.1.0.5/24", "fd00::5/64"]);
        add(c2, &["10.1.0.6/24"]);
        remove_known(ETH0, Known { addresses: &[ip("10.1.0.5"), ip("fd00::5")], ..Known::default() });
        assert_eq!(check(c2, &["10.1.0.6/24"]), Ok(()));
        let chains = Nft::open("the host").unwrap().list_chains(&TABLE).unwrap();
        assert_eq!(chains.len(), 2, "{chains:?}"); // the idle one for fd00::/64 is gone
        remove_known(ETH0, Known { addresses: &[ip("10.1.0.5"), ip("fd00::5")], ..Known::default() });
        assert_eq!(check(c2, &["10.1.0.6/24"]), Ok(()));
        remove(c2);
        assert!(!has_table());
        remove(c2);
    });
}

#[test]
fn an_address_that_has_found_a_new_owner_stays() {
    in_netns(|| {
        let c2 = Attachment { container: "c2", ..ETH0 };
        add(ETH0, &["10.1.0.5/24"]);
        add(c2, &["10.1.0.5/24"]); // the first was killed and IPAM cleaned up
        assert_eq!(check(c2, &["10.1.0.5/24"]), Ok(()));
        remove_known(ETH0, Known { addresses: &[ip("10.1.0.5")], ..Known::default() });
        assert_eq!(check(c2, &["10.1.0.5/24"]), Ok(()));
        remove(ETH0);
        assert_eq!(check(c2, &["10.1.0.5/24"]), Ok(()));
    });
}

#[test]
fn two_interfaces_of_one_container_are_apart() {
    in_netns(|| {
        let net1 = Attachment { ifname: "net1", ..ETH0 };
        add(ETH0, &["10.1.0.5/24"]);
        add(net1, &["10.1.0.6/24"]);
        remove(ETH0);
        assert_eq!(check(net1, &["10.1.0.6/24"]), Ok(()));
        assert!(check(ETH0, &["10.1.0.5/24"]).is_err());
    });
}

#[test]
fn a_killed_del_is_finished_by_the_next() {
    in_netns(|| {
        add(ETH0, &["10.1.0.5/24"]);
        // Killed after the element's deletion and before the table's.
        let mut nft = Nft::open("the host").unwrap();
        let set = netops::nft::Set {
            table: TABLE,
            name: "sources4".into(),
            key: &[netops::nft::KeyType::Ip4],
            is_verdict_map: true,
        };
        let element = nft.list_elements(&set).unwrap().remove(0);
        nft.commit(&Transaction::new(vec![Change::DeleteElement(element)])).unwrap();
        assert!(has_table());
        remove_known(ETH0, Known { addresses: &[ip("10.1.0.5")], ..Known::default() });
        assert!(!has_table());
    });
}

#[test]
fn check_tells_what_is_missing() {
    in_netns(|| {
        let lacks = |what: &str| {
            Err(format!("cannot find masquerade of 10.1.0.5 in nft map inet cni_masquerade sources4: {what}"))
        };
        assert_eq!(check(ETH0, &["10.1.0.5/24"]), lacks("the element was not found"));
        add(ETH0, &["10.1.0.5/24"]);
        assert_eq!(check(ETH0, &["10.1.0.5/24"]), Ok(()));
        assert_eq!(check(ETH0, &["10.1.0.5/16"]), lacks("the element goes to another prefix's chain"));
        let c2 = Attachment { container: "c2", ..ETH0 };
        assert_eq!(check(c2, &["10.1.0.5/24"]), lacks("the element belongs to another attachment"));

        let mut nft = Nft::open("the host").unwrap();
        let flush = |chain: &str| Transaction::new(vec![Change::FlushChain(TABLE.chain(chain.to_owned()))]);
        for chain in ["from_10.1.0.0/24", "postrouting"] {
            nft.commit(&flush(chain)).unwrap();
            let text = format!("cannot find nft chain inet cni_masquerade {chain}: its rules were not found");
            assert_eq!(check(ETH0, &["10.1.0.5/24"]), Err(text));
            add(ETH0, &["10.1.0.5/24"]); // mends it
            assert_eq!(check(ETH0, &["10.1.0.5/24"]), Ok(()));
        }
    });
}

#[test]
fn gc_keeps_the_valid_and_other_networks() {
    in_netns(|| {
        let of = |network, container| Attachment { network, container, ifname: "eth0" };
        let (valid, stale, other) = (of("office", "c1"), of("office", "c2"), of("lab", "c2"));
        add(valid, &["10.1.0.5/24"]);
        add(stale, &["10.1.0.6/24", "fd00::6/64"]);
        add(other, &["10.2.0.6/24"]);
        assert_eq!(gc("office", &[valid], ""), []);
        assert_eq!(check(valid, &["10.1.0.5/24"]), Ok(()));
        assert_eq!(check(other, &["10.2.0.6/24"]), Ok(()));
        assert!(check(stale, &["10.1.0.6/24"]).is_err());
        assert!(check(stale, &["fd00::6/64"]).is_err());
        assert_eq!(gc("office", &[], ""), []);
        assert_eq!(gc("lab", &[], ""), []);
        assert!(!has_table());
    });
}

/// As many ADDs and DELs at once as a node may see, from nothing and back to nothing, over and over.
#[test]
fn concurrent_adds_and_dels_lose_nothing() {
    in_netns(|| {
        const PODS: u8 = 128;
        let attach = |number: u8| {
            let (container, address) = (format!("c{number}"), format!("10.1.{}.{number}/24", number % 3));
            let pod = Attachment { container: &container, ..ETH0 };
            add(pod, &[&address]);
            assert_eq!(check(pod, &[&address]), Ok(()));
        };
        let detach = |number: u8| {
            let (container, address) = (format!("c{number}"), format!("10.1.{}.{number}", number % 3));
            let pod = Attachment { container: &container, ..ETH0 };
            let addresses = [ip(&address)];
            let addresses = if number.is_multiple_of(2) { &addresses[..] } else { &[] };
            remove_known(pod, Known { addresses, ..Known::default() });
        };
        let at_once = |work: &(dyn Fn(u8) + Sync)| {
            thread::scope(|scope| (1..=PODS).for_each(|number| drop(scope.spawn(move || work(number)))));
        };
        at_once(&attach);
        let mut nft = Nft::open("the host").unwrap();
        assert_eq!(nft.list_chains(&TABLE).unwrap().len(), 4);
        at_once(&detach);
        assert!(!has_table());
        // Few, so that the last goes while the first comes.
        thread::scope(|scope| {
            for number in 1..=4 {
                scope.spawn(move || {
                    for _ in 0..25 {
                        attach(number);
                        detach(number);
                    }
                });
            }
        });
        assert!(!has_table());
    });
}

#[test]
fn a_probe_changes_nothing() {
    in_netns(|| {
        let mut filter = Filter::open().unwrap();
        filter.probe_masquerade(Backend::Nftables).unwrap();
        filter.probe_spoof_guard().unwrap();
        assert!(!has_table());
        add(ETH0, &["10.1.0.5/24"]);
        filter.probe_masquerade(Backend::Nftables).unwrap();
    });
}

#[test]
fn a_probe_says_what_is_missing() {
    // In a user namespace that does not own this network namespace, nobody may change it.
    let test = ["--exact", "probe_without_privilege", "--ignored"];
    let this = std::env::current_exe().unwrap();
    let status = Command::new("unshare").arg("--user").arg(this).args(test).status();
    assert!(status.unwrap().success());
}

#[test]
#[ignore = "started by a_probe_says_what_is_missing"]
fn probe_without_privilege() {
    let error = Filter::open().unwrap().probe_masquerade(Backend::Nftables).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot get nft chain inet cni_masquerade postrouting on the host: operation not permitted"
    );
}

/// A pod's packet shows the host's address to a third party, and its own to its neighbours.
#[test]
fn a_packet_outside_has_the_hosts_address() {
    in_netns(|| {
        if !has("a_packet_outside_has_the_hosts_address", "ip") {
            return;
        }
        let (pod, remote) = (Pod::new(), Pod::new());
        sh(&format!(
            "echo 1 > /proc/sys/net/ipv4/ip_forward
             ip link add p0 type veth peer name eth0 netns {pod}
             ip link add r0 type veth peer name eth0 netns {remote}
             ip addr add 10.1.0.1/24 dev p0; ip link set p0 up
             ip addr add 192.0.2.1/24 dev r0; ip link set r0 up; ip route add 10.1.0.9 dev r0
             nsenter -t {pod} -n sh -ec 'ip addr add 10.1.0.5/24 dev eth0; ip link set eth0 up
                 ip route add default via 10.1.0.1; ip route add 10.1.0.9 via 10.1.0.1'
             nsenter -t {remote} -n sh -ec 'ip addr add 192.0.2.2/24 dev eth0; ip addr add 10.1.0.9 dev eth0
                 ip link set eth0 up; ip route add 10.1.0.0/24 via 192.0.2.1'",
            pod = pod.pid(),
            remote = remote.pid(),
        ));
        let source_seen = |receiver: &'static str| {
            let socket = in_pod(&remote, move || UdpSocket::bind((receiver, 7)).unwrap());
            socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            // A new port each time, as translation is decided on a connection's first packet.
            let sender = in_pod(&pod, || UdpSocket::bind("10.1.0.5:0").unwrap());
            sender.send_to(b"x", (receiver, 7)).unwrap();
            socket.recv_from(&mut [0]).unwrap().1.ip()
        };
        assert_eq!(source_seen("192.0.2.2"), ip("10.1.0.5"));
        add(ETH0, &["10.1.0.5/24"]);
        assert_eq!(source_seen("192.0.2.2"), ip("192.0.2.1"));
        assert_eq!(source_seen("10.1.0.9"), ip("10.1.0.5")); // in its own prefix, and routed all the same
        remove(ETH0);
        assert_eq!(source_seen("192.0.2.2"), ip("10.1.0.5"));
    });
}

/// Prints what calls cost; `cargo test -p filter --test masquerade -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement, not a check"]
fn measure() {
    in_netns(|| {
        let timed = |what: &str, work: &mut dyn FnMut(u32)| {
            let time = |n| {
                let start = Instant::now();
                work(n);
                start.elapsed()
            };
            let mut times: Vec<_> = (0..20).map(time).collect();
            times.sort();
            eprintln!("{what}: {:?}, at best {:?}", times[10], times[0]);
        };
        let address = |n: u32| std::net::Ipv4Addr::from(0x0a01_0005 + n);
        let network = |n: u32| vec![IpNetwork::new(address(n).into(), 8).unwrap()];
        let name = |n: u32| format!("c{n}");
        for others in [0_u32, 10_000] {
            eprintln!("-- with {others} elements of others");
            let mut filter = Filter::open().unwrap();
            for n in 0..others {
                let container = format!("o{n}");
                let other = Attachment { container: &container, ..ETH0 };
                filter.add_masquerade(Backend::Nftables, other, &network(1000 + n)).unwrap();
            }
            let empty = |n: u32| drop(filter::remove_all(Attachment { container: &name(n), ..ETH0 }, Known::default()));
            timed("remove_all of nothing, addresses unknown", &mut |n| empty(n));
            timed("add, with open and close", &mut |n| {
                let container = name(n);
                let pod = Attachment { container: &container, ..ETH0 };
                Filter::open().unwrap().add_masquerade(Backend::Nftables, pod, &network(n)).unwrap();
            });
            timed("check", &mut |n| {
                let container = name(n);
                let pod = Attachment { container: &container, ..ETH0 };
                filter.check_masquerade(Backend::Nftables, pod, &network(n)).unwrap();
            });
            timed("remove_all, address known", &mut |n| {
                let container = name(n);
                let pod = Attachment { container: &container, ..ETH0 };
                let addresses = [address(n).into()];
                drop(filter::remove_all(pod, Known { addresses: &addresses, ..Known::default() }));
            });
            timed("add again", &mut |n| {
                let container = name(n);
                let pod = Attachment { container: &container, ..ETH0 };
                filter.add_masquerade(Backend::Nftables, pod, &network(n)).unwrap();
            });
            timed("remove_all, address unknown", &mut |n| {
                drop(filter::remove_all(Attachment { container: &name(n), ..ETH0 }, Known::default()));
            });
        }
    });
}
