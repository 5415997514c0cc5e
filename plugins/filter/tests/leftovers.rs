//! What the reference plugins leave, in either backend, is removed; and their iptables rules are written as they do.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::IpAddr;
use std::process::{Command, Stdio};

use crate::node::{ETH0, OtherNamespace, has, in_netns, remove, remove_known, sh};
use cni_filter::{Backend, Filter, Names, RemovalHints, gc};
use ipnetwork::IpNetwork;
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

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn networks(texts: &[&str]) -> Vec<IpNetwork> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// Debian's bridge plugin with ipMasq, on real links.
fn reference_add(pod: &OtherNamespace, ifname: &str, address: &str) {
    reference("ADD", &pod.netns(), ifname, address);
}

fn reference(command: &str, netns: &str, ifname: &str, address: &str) {
    // Static addresses keep no state.
    let conf = format!(
        "{{\"cniVersion\":\"1.0.0\",\"name\":\"office\",\"type\":\"bridge\",\"bridge\":\"br{ifname}\",\"isGateway\":true,
           \"ipMasq\":true,\"ipam\":{{\"type\":\"static\",\"addresses\":[{{\"address\":\"{address}\"}}]}}}}"
    );
    let plugins = testns::find_reference().unwrap();
    let mut child = Command::new(plugins.join("bridge"))
        .envs([("CNI_COMMAND", command), ("CNI_CONTAINERID", "c1"), ("CNI_NETNS", netns)])
        .env("CNI_IFNAME", ifname)
        .env("CNI_PATH", plugins)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(conf.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

fn has_reference(test: &str) -> bool {
    testns::reference_or_skip(test).is_some() && has(test, "iptables-nft") && has(test, "ip")
}

/// The rules of one of the tables, without counters and policies.
fn saved(program: &str) -> String {
    let text = sh(&format!("{program}-save -t nat 2>/dev/null"));
    text.lines()
        .filter(|line| line.starts_with("-A") || line.starts_with(":CNI"))
        .map(|line| line.to_owned() + "\n")
        .collect()
}

#[test]
fn iptables_rules_of_the_reference_are_removed() {
    in_netns(|| {
        if !has_reference("iptables_rules_of_the_reference_are_removed") {
            return;
        }
        let pod = OtherNamespace::new();
        for addresses in [&[][..], &[ip("10.77.0.2")][..]] {
            reference_add(&pod, "eth0", "10.77.0.2/24");
            assert!(saved("iptables").contains("-A POSTROUTING -s 10.77.0.2/32"), "{}", saved("iptables"));
            remove_known(ETH0, known(addresses));
            assert_eq!(saved("iptables"), "");
            remove_known(ETH0, known(addresses));
            sh(&format!("nsenter -t {} -n ip link delete eth0", pod.pid()));
        }
    });
}

#[test]
fn the_other_interfaces_iptables_rules_stay() {
    in_netns(|| {
        if !has_reference("the_other_interfaces_iptables_rules_stay") {
            return;
        }
        let pod = OtherNamespace::new();
        reference_add(&pod, "eth0", "10.78.0.2/24");
        reference_add(&pod, "net1", "10.79.0.2/24");
        let both = saved("iptables");
        remove(ETH0); // nothing says whose is whose
        assert_eq!(saved("iptables"), both);
        let jump = |address: &str| both.contains(&format!("-A POSTROUTING -s {address}/32"));
        assert!(jump("10.78.0.2") && jump("10.79.0.2"), "{both}");
        remove_known(ETH0, known(&[ip("10.78.0.2")]));
        let left = saved("iptables");
        assert!(
            !left.contains("-s 10.78.0.2") && left.contains("-s 10.79.0.2") && left.contains("MASQUERADE"),
            "{left}"
        );
        remove(NET1); // now there is no doubt
        assert_eq!(saved("iptables"), "");
    });
}

/// A number of leftovers that exceeds one transaction.
#[test]
fn gc_of_many_containers_removes_all_chains() {
    in_netns(|| {
        testns::needs!(has("gc_of_many_containers_removes_all_chains", "iptables-nft"));
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
    in_netns(|| {
        testns::needs!(has("jumps_that_an_administrator_added_are_removed_with_the_chain", "iptables-nft"));
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
    in_netns(|| {
        testns::needs!(has("a_chain_that_another_rule_uses_is_flushed_and_deleted_later", "iptables-nft"));
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

/// The reference's rules do not name their attachment: only their address does.
#[test]
fn addresses_of_the_containers_other_interfaces_keep_their_masquerade() {
    in_netns(|| {
        if !has_reference("addresses_of_the_containers_other_interfaces_keep_their_masquerade") {
            return;
        }
        let pod = OtherNamespace::new();
        reference_add(&pod, "eth0", "10.82.0.2/24");
        reference_add(&pod, "net1", "10.83.0.2/24");
        let held = || Some(vec![ip("10.83.0.2")]);
        // prevResult has addresses that a later plugin made up.
        let made_up = RemovalHints { addresses: &[ip("10.9.9.9")], held: Some(&held), ..RemovalHints::default() };
        remove_known(ETH0, made_up);
        let left = saved("iptables");
        assert!(!left.contains("-s 10.82.0.2") && left.contains("-s 10.83.0.2"), "{left}");
        remove_known(ETH0, made_up); // once more
        assert_eq!(saved("iptables"), left);
        let gone = || Some(Vec::new());
        remove_known(NET1, RemovalHints { held: Some(&gone), ..RemovalHints::default() });
        assert_eq!(saved("iptables"), "");
    });
}

#[test]
fn gc_removes_iptables_chains_of_containers_that_are_gone() {
    in_netns(|| {
        if !has_reference("gc_removes_iptables_chains_of_containers_that_are_gone") {
            return;
        }
        reference_add(&OtherNamespace::new(), "eth0", "10.80.0.2/24");
        let all = saved("iptables");
        assert_eq!(gc("lab", &[], ""), []);
        assert_eq!(gc("office", &[ETH0], ""), []);
        assert_eq!(saved("iptables"), all);
        assert_eq!(gc("office", &[], ""), []);
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

#[test]
fn iptables_rules_are_written_as_the_reference_does() {
    in_netns(|| {
        if !has_reference("iptables_rules_are_written_as_the_reference_does") {
            return;
        }
        let whole = || sh("(iptables-save; ip6tables-save) | sed '/^#/d; s/ .[0-9:]*.$//'"); // no counters
        let pod = OtherNamespace::new();
        reference_add(&pod, "eth0", r#"10.77.0.2/24"},{"address":"fd00::5/64"#);
        let theirs = whole();
        sh("nft flush ruleset");
        add(ETH0, &["10.77.0.2/24", "fd00::5/64"]);
        assert_eq!(whole(), theirs);
        add(ETH0, &["10.77.0.2/24", "fd00::5/64"]); // once more changes nothing
        assert_eq!(whole(), theirs);
        assert_eq!(check(ETH0, &["10.77.0.2/24", "fd00::5/64"]), Ok(()));
        // After a restore the rules have no note any more.
        sh(
            "for family in ip ip6; do ${family}tables-save >/tmp/$family.$$; ${family}tables-restore /tmp/$family.$$; rm /tmp/$family.$$; done",
        );
        add(ETH0, &["10.77.0.2/24", "fd00::5/64"]);
        assert_eq!(whole(), theirs);

        remove(ETH0);
        assert_eq!(saved("iptables") + &saved("ip6tables"), "");
        let missing = format!("cannot find masquerade of 10.77.0.2 in iptables chain {CHAIN}: the chain was not found");
        assert_eq!(check(ETH0, &["10.77.0.2/24"]), Err(missing));
    });
}

/// The chain is one for all attachments of a container to a network; each has its jumps, and the last takes the chain
/// along.
#[test]
fn attachments_of_one_container_share_a_chain_and_nothing_else() {
    in_netns(|| {
        testns::needs!(has("attachments_of_one_container_share_a_chain_and_nothing_else", "iptables-nft"));
        let comment = "-m comment --comment \"name: \\\"office\\\" id: \\\"c1\\\"\"";
        let jump = |address: &str| format!("-A POSTROUTING -s {address}/32 {comment} -j {CHAIN}\n");
        let accept = |prefix: &str| format!("-A {CHAIN} -d {prefix} {comment} -j ACCEPT\n");
        let chain = format!(":{CHAIN} - [0:0]\n");
        let masquerade = format!("-A {CHAIN} ! -d 224.0.0.0/4 {comment} -j MASQUERADE\n");
        let net2 = Names { ifname: "net2", ..ETH0 };

        add(ETH0, &["10.1.0.5/24"]);
        let eth0_alone = saved("iptables");
        assert_eq!(eth0_alone, [&*chain, &jump("10.1.0.5"), &accept("10.1.0.0/24"), &masquerade].concat());
        add(NET1, &["10.1.0.6/24"]);
        add(net2, &["10.2.0.5/24"]);
        // The prefix of net2 comes before MASQUERADE, which would come first where the reference appends.
        let jumps = [jump("10.1.0.5"), jump("10.1.0.6"), jump("10.2.0.5")].concat();
        let all = [&*chain, &jumps, &accept("10.2.0.0/24"), &accept("10.1.0.0/24"), &masquerade].concat();
        assert_eq!(saved("iptables"), all);
        for (attachment, address) in [(ETH0, "10.1.0.5/24"), (NET1, "10.1.0.6/24"), (net2, "10.2.0.5/24")] {
            assert_eq!(check(attachment, &[address]), Ok(()));
        }
        // prevResult may say anything.
        remove_known(net2, known(&[ip("10.1.0.5"), ip("10.9.9.9")]));
        remove(net2);
        let without_net2 =
            [&*chain, &jump("10.1.0.5"), &jump("10.1.0.6"), &accept("10.1.0.0/24"), &masquerade].concat();
        assert_eq!(saved("iptables"), without_net2);
        remove(NET1);
        remove_known(NET1, known(&[ip("10.1.0.5")]));
        assert_eq!(saved("iptables"), eth0_alone);
        // ADD again with another address, as after one that was killed.
        add(ETH0, &["10.1.0.7/24"]);
        assert_eq!(saved("iptables"), [&*chain, &jump("10.1.0.7"), &accept("10.1.0.0/24"), &masquerade].concat());
        remove(ETH0);
        assert_eq!(saved("iptables"), "");
    });
}

/// Two networks may give out the same address; whose rule it is says the chain.
#[test]
fn networks_with_the_same_address_do_not_take_each_others_rules() {
    in_netns(|| {
        testns::needs!(has("networks_with_the_same_address_do_not_take_each_others_rules", "iptables-nft"));
        let lab = Names { network: "lab", ..ETH0 };
        add(ETH0, &["10.1.0.5/24"]);
        let office_alone = saved("iptables");
        add(lab, &["10.1.0.5/24"]);
        remove_known(lab, known(&[ip("10.1.0.5")]));
        assert_eq!(saved("iptables"), office_alone);
        add(lab, &["10.1.0.5/24"]);
        assert_eq!(gc("lab", &[], ""), []);
        assert_eq!(saved("iptables"), office_alone);
    });
}

#[test]
fn gc_takes_a_stale_interface_out_of_a_shared_chain() {
    in_netns(|| {
        testns::needs!(has("gc_takes_a_stale_interface_out_of_a_shared_chain", "iptables-nft"));
        add(ETH0, &["10.1.0.5/24"]);
        let eth0_alone = saved("iptables");
        add(NET1, &["10.2.0.5/24"]);
        assert_ne!(saved("iptables"), eth0_alone);
        assert_eq!(gc("office", &[ETH0], ""), []);
        assert_eq!(saved("iptables"), eth0_alone);
        assert_eq!(gc("office", &[], ""), []);
        assert_eq!(saved("iptables"), "");
    });
}

/// The reference's DEL removes the rules that we write.
#[test]
fn the_reference_removes_our_iptables_rules() {
    in_netns(|| {
        if !has_reference("the_reference_removes_our_iptables_rules") {
            return;
        }
        let pod = OtherNamespace::new();
        sh(&format!(
            "ip link add veth1 type veth peer name eth0 netns {pid}
             nsenter -t {pid} -n ip addr add 10.81.0.2/24 dev eth0",
            pid = pod.pid()
        ));
        add(ETH0, &["10.81.0.2/24"]);
        assert_ne!(saved("iptables"), "");
        reference("DEL", &pod.netns(), "eth0", "10.81.0.2/24");
        assert_eq!(saved("iptables"), "");
    });
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
