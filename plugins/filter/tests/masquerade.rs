//! Masquerade in the reference's nftables table and by shared rules, on the real kernel.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::node::{ETH0, OtherNamespace, has, in_netns, in_netns_with, ip, networks, remove, remove_known, sh};
use cni_filter::{AllRules, Backend, Filter, Names, RemovalHints};
use netops::nft::{Change, Cmp, Expr, Family, Nft, Register, Side, Table, Transaction, load_address};

const TABLE: Table = Table::new(Family::Inet, "cni_plugins_masquerade");

fn add(attachment: Names<'_>, addresses: &[&str]) {
    add_by(Backend::Nftables, attachment, addresses);
}

fn add_by(backend: Backend, attachment: Names<'_>, addresses: &[&str]) {
    Filter::open("").unwrap().add_masquerade(backend, attachment, &networks(addresses)).unwrap();
}

/// Both forms of nf_tables, and how many rules and elements an attachment has for an address.
const FORMS: [(Backend, usize); 2] = [(Backend::Nftables, 1), (Backend::Shared, 3)];

/// How many rules and elements name an attachment.
fn noted() -> usize {
    sh("nft list ruleset | grep -o 'comment \"[0-9a-f]*-' | wc -l").trim().parse().unwrap()
}

fn check(attachment: Names<'_>, addresses: &[&str]) -> Result<(), String> {
    check_by(Backend::Nftables, attachment, addresses)
}

fn check_by(backend: Backend, attachment: Names<'_>, addresses: &[&str]) -> Result<(), String> {
    let checked = Filter::open("").unwrap().check_masquerade(backend, attachment, &networks(addresses));
    checked.map_err(|error| error.to_string())
}

/// N of office, and I of eth0:c1, as `sha512sum` has them.
const WHOSE: &str = "f358a8caf95e1889-f4d01f2ef4b92245, net: office, if: eth0, id: c1";

/// A chain under the name of the one that rules are needed in, where the kernel sends no packets.
#[test]
fn a_chain_that_receives_no_packets_is_refused() {
    let made = [
        (Backend::Nftables, "inet cni_plugins_masquerade", "postrouting"),
        (Backend::Iptables, "ip nat", "POSTROUTING"),
        (Backend::Shared, "ip cni_shared", "postrouting"),
    ];
    for (backend, table, chain) in made {
        in_netns_with("nft", move || {
            let mut filter = Filter::open("").unwrap();
            let addresses = networks(&["10.1.0.5/24"]);
            filter.add_masquerade(backend, ETH0, &addresses).unwrap();
            let listed = sh("nft list ruleset");
            let hook = listed.lines().find(|line| line.contains("hook postrouting")).unwrap();
            sh(&format!("nft flush ruleset; nft -f - <<'END'\n{}\nEND", listed.replace(hook, "")));
            let object = format!("cannot use nft chain {table} {chain}: it is a regular chain");
            let error = filter.check_masquerade(backend, ETH0, &addresses).unwrap_err().to_string();
            assert!(error.contains(&object) && error.contains("delete or rename it"), "{error}");
            let before = sh("nft list ruleset");
            for attachment in [ETH0, Names { container: "c2", ..ETH0 }] {
                let error = filter.add_masquerade(backend, attachment, &addresses).unwrap_err().to_string();
                assert!(error.contains(&object), "{error}");
            }
            // What ADD would say, STATUS says before it.
            for backend in [backend, if backend == Backend::Iptables { Backend::Default } else { backend }] {
                let error = filter.probe_masquerade(backend).unwrap_err().to_string();
                assert!(error.contains(&object), "{error}");
            }
            assert_eq!(sh("nft list ruleset"), before);
            sh(&format!("nft flush ruleset; nft 'add table {table}; add chain {table} {chain}'"));
            let error = filter.add_masquerade(backend, ETH0, &addresses).unwrap_err().to_string();
            assert!(error.contains(&object), "{error}");
        });
    }
}

/// ADD wakes the table, as `nft add table` does; CHECK says that it was asleep.
#[test]
fn a_dormant_table_of_ours_is_woken() {
    in_netns_with("nft", || {
        let dormant = "nft add table inet cni_plugins_masquerade '{ flags dormant; }'";
        for seen in [false, true] {
            if seen {
                let error = check(ETH0, &["10.1.0.5/24"]).unwrap_err();
                assert!(
                    error.contains("nft table inet cni_plugins_masquerade") && error.contains("dormant"),
                    "{error}"
                );
            } else {
                sh(dormant);
            }
            add(ETH0, &["10.1.0.5/24"]);
            assert!(!sh("nft list ruleset").contains("dormant"));
            assert_eq!(check(ETH0, &["10.1.0.5/24"]), Ok(()));
            sh(dormant);
        }
    });
}

/// A dormant table of iptables is the administrator's: CHECK and STATUS say so.
#[test]
fn a_dormant_table_of_iptables_is_reported() {
    in_netns_with("nft", || {
        let addresses = networks(&["10.1.0.5/24"]);
        let filter = || Filter::open("").unwrap();
        filter().add_masquerade(Backend::Iptables, ETH0, &addresses).unwrap();
        filter().probe_masquerade(Backend::Iptables).unwrap();
        sh("nft add table ip nat '{ flags dormant; }'");
        let checked = filter().check_masquerade(Backend::Iptables, ETH0, &addresses).unwrap_err().to_string();
        let probed = filter().probe_masquerade(Backend::Iptables).unwrap_err().to_string();
        for error in [checked, probed] {
            assert!(error.contains("nft table ip nat") && error.contains("`nft add table ip nat` wakes it"), "{error}");
        }
    });
}

/// What nft(8) before 1.0 writes for whole bytes: the address behind a mask.
#[test]
fn rules_of_an_older_nft_are_recognised() {
    in_netns(|| {
        add(ETH0, &["10.1.0.5/24"]);
        let mut nft = Nft::open("the host").unwrap();
        let chain = TABLE.chain("masq_checks");
        let rule = nft.list_rules(&chain).unwrap().remove(0);
        let mut exprs = rule.exprs.clone();
        let (load, compare) = (exprs.len() - 3, exprs.len() - 2);
        exprs[load] = load_address(Side::Destination, ip("10.1.0.0"));
        exprs[compare] = Expr::Cmp(Cmp::Neq, Register::R1, vec![10, 1, 0, 0]);
        exprs.insert(compare, Expr::Mask(Register::R1, vec![255, 255, 255, 0]));
        let older = chain.rule(exprs).comment(WHOSE);
        nft.commit(&Transaction::new(vec![Change::DeleteRule(rule), Change::AppendRule(older)])).unwrap();
        assert_eq!(check(ETH0, &["10.1.0.5/24"]), Ok(()));
        assert!(check(ETH0, &["10.1.0.5/16"]).is_err());
    });
}

#[test]
fn own_old_rules_are_replaced_and_del_needs_no_addresses() {
    for (backend, each) in FORMS {
        in_netns(move || {
            let c2 = Names { container: "c2", ..ETH0 };
            add_by(backend, ETH0, &["10.1.0.5/24", "fd00::5/64"]);
            add_by(backend, c2, &["10.1.0.6/24"]);
            add_by(backend, ETH0, &["10.1.0.9/24"]);
            assert_eq!(noted(), 2 * each);
            assert_eq!(check(ETH0, &["10.1.0.9/24"]), Ok(()));
            let before = sh("nft list ruleset");
            add_by(backend, ETH0, &["10.1.0.9/24"]);
            assert_eq!(sh("nft list ruleset"), before);
            // A result that a later plugin has changed says another address.
            remove_known(ETH0, RemovalHints { addresses: &[ip("10.1.0.77")], ..RemovalHints::default() });
            assert_eq!(noted(), each);
            assert_eq!(check(c2, &["10.1.0.6/24"]), Ok(()));
            remove(c2);
            remove(c2);
            assert_eq!(noted(), 0);
        });
    }
}

/// The reference empties `postrouting` with each ADD. Ours leaves it if it is right, and else puts in order what is its own.
#[test]
fn an_administrators_rules_stay() {
    in_netns_with("nft", || {
        let (c2, c3) = (Names { container: "c2", ..ETH0 }, Names { container: "c3", ..ETH0 });
        add(ETH0, &["10.1.0.5/24"]);
        sh("nft insert rule inet cni_plugins_masquerade postrouting ip daddr 192.0.2.7 accept comment exempt
            nft add rule inet cni_plugins_masquerade masq_checks counter comment seen");
        let before = sh("nft -a list chain inet cni_plugins_masquerade postrouting");
        add(c2, &["10.1.0.6/24"]);
        assert_eq!(sh("nft -a list chain inet cni_plugins_masquerade postrouting"), before);
        assert_eq!(check(ETH0, &["10.1.0.5/24"]), Ok(()));
        sh("nft delete rule inet cni_plugins_masquerade postrouting handle $(
            nft -a list chain inet cni_plugins_masquerade postrouting | sed -n 's/.*goto masq_checks # handle //p')");
        assert!(check(ETH0, &["10.1.0.5/24"]).unwrap_err().contains("are not what they were"));
        add(c3, &["10.1.0.7/24"]);
        assert_eq!(check(ETH0, &["10.1.0.5/24"]), Ok(()));
        let after = sh("nft list chain inet cni_plugins_masquerade postrouting");
        let rules: Vec<_> = after.lines().map(str::trim).skip(3).collect();
        let expected = [
            "ip daddr 192.0.2.7 accept comment \"exempt\"",
            "ip daddr 224.0.0.0/4 return",
            "ip6 daddr ff00::/8 return",
            "goto masq_checks",
        ];
        assert_eq!(rules[..4], expected);
        [ETH0, c2, c3].into_iter().for_each(remove);
        assert!(sh("nft list ruleset").contains("comment \"seen\""));
    });
}

/// Many ADDs and DELs at once on a node without any rules, while another program changes the ruleset all the time.
#[test]
fn concurrent_adds_and_dels_and_other_programs_lose_no_rules() {
    FORMS.into_iter().for_each(|(backend, each)| in_netns(move || many_at_once(backend, each)));
}

fn many_at_once(backend: Backend, each: usize) {
    const PODS: u8 = 64;
    let is_busy = AtomicBool::new(true);
    let pod = |number: u8| (format!("c{number}"), format!("10.1.{}.{number}/24", number % 3));
    let attach = |number: u8| {
        let (container, address) = pod(number);
        let pod = Names { container: &container, ..ETH0 };
        add_by(backend, pod, &[&address]);
        assert_eq!(check(pod, &[&address]), Ok(()));
    };
    let detach = |number: u8| remove(Names { container: &pod(number).0, ..ETH0 });
    let at_once = |work: &(dyn Fn(u8) + Sync)| {
        thread::scope(|scope| (1..=PODS).for_each(|number| drop(scope.spawn(move || work(number)))));
    };
    let rules = || sh("nft list ruleset | grep -cE 'return|goto masq_checks|vmap @' || true");
    thread::scope(|scope| {
        if has("concurrent_adds_and_dels_and_other_programs_lose_no_rules", "nft") {
            scope.spawn(|| {
                while is_busy.load(Ordering::Relaxed) {
                    sh("nft add table inet other; nft add chain inet other c; nft delete table inet other");
                }
            });
        }
        at_once(&attach);
        assert_eq!((noted(), &*rules()), (usize::from(PODS) * each, "3\n"));
        // Each goes and comes back, all at once.
        at_once(&|number| {
            detach(number);
            attach(number);
        });
        assert_eq!((noted(), &*rules()), (usize::from(PODS) * each, "3\n"));
        at_once(&detach);
        assert_eq!((noted(), &*rules()), (0, "3\n"));
        is_busy.store(false, Ordering::Relaxed);
    });
}

const OTHER: Names<'static> = Names { network: "other", container: "c2", ifname: "eth0" };
const BOTH: [&str; 2] = ["10.1.0.5/24", "fd00::5/64"];

fn share(attachment: Names<'_>, addresses: &[&str]) -> Result<(), String> {
    let added = Filter::open("").unwrap().add_masquerade(Backend::Shared, attachment, &networks(addresses));
    added.map_err(|error| error.to_string())
}

fn check_shared(attachment: Names<'_>, addresses: &[&str]) -> Result<(), String> {
    check_by(Backend::Shared, attachment, addresses)
}

fn held(network: &str) -> Vec<IpAddr> {
    AllRules::read("").unwrap().of(network).into_iter().filter_map(|noted| noted.address).collect()
}

fn lines(text: &str) -> Vec<String> {
    sh("nft list ruleset").lines().filter(|line| line.contains(text)).map(|line| line.trim().to_owned()).collect()
}

#[test]
fn the_ruleset_is_readable_and_can_be_loaded_again() {
    in_netns(|| {
        if !has("the_ruleset_is_readable_and_can_be_loaded_again", "nft") {
            return;
        }
        share(ETH0, &BOTH).unwrap();
        let whose = "f358a8caf95e1889-f4d01f2ef4b92245, net: office, if: eth0, id: c1";
        let [element, own] = &lines("10.1.0.5")[..2] else { panic!("{:?}", lines("")) };
        assert_eq!(*element, format!("elements = {{ 10.1.0.5 comment \"{whose}\" : goto masq_beyond_24 }}"));
        assert_eq!(*own, format!("elements = {{ 10.1.0.5 . 10.1.0.0 comment \"{whose}\" }}"));
        assert_eq!(lines("vmap"), ["ip saddr vmap @masq_addresses", "ip6 saddr vmap @masq_addresses"]);
        assert_eq!(
            lines("return"),
            [
                "ip saddr . ip daddr & 255.255.255.0 @masq_own_subnets return",
                "ip daddr 224.0.0.0/4 return",
                "ip6 saddr . ip6 daddr & ffff:ffff:ffff:ffff:: @masq_own_subnets return",
                "ip6 daddr ff00::/8 return",
            ]
        );
        sh("nft list ruleset > /run/saved; nft flush ruleset; nft -f /run/saved");
        check_shared(ETH0, &BOTH).unwrap();
        remove(ETH0);
        assert_eq!(lines("comment"), [""; 0]);
    });
}

/// A container that lives keeps its element, one that is gone does not: the reference's DEL leaves elements.
#[test]
fn an_address_that_another_attachment_has_is_refused_while_a_container_has_it() {
    in_netns(|| {
        share(ETH0, &["10.1.0.5/24"]).unwrap();
        let container = OtherNamespace::new();
        let pid = container.pid();
        sh(&format!(
            "ip link add veth0 type veth peer name eth0 netns {pid}
             nsenter --net=/proc/{pid}/ns/net ip address add 10.1.0.5/24 dev eth0"
        ));
        let error = share(OTHER, &["10.1.0.5/24"]).unwrap_err();
        let expected = "net: office, if: eth0, id: c1\": run DEL of that, or GC of its network";
        assert!(error.contains("10.1.0.5") && error.contains(expected), "{error}");
        assert_eq!(held("other"), [""; 0].map(|none: &str| none.parse::<IpAddr>().unwrap()));
        remove(OTHER);
        check_shared(ETH0, &["10.1.0.5/24"]).unwrap();
        sh("ip link delete veth0");
        share(OTHER, &["10.1.0.5/24"]).unwrap();
        remove(ETH0);
        check_shared(OTHER, &["10.1.0.5/24"]).unwrap();
    });
}

#[test]
fn check_names_what_is_missing_and_add_makes_it_again() {
    in_netns(|| {
        share(OTHER, &["10.1.0.7/24"]).unwrap();
        for (harm, names) in [
            ("nft flush ruleset", "masq_beyond_24"),
            ("nft flush chain ip cni_shared postrouting", "postrouting"),
            ("nft flush chain ip6 cni_shared masq_beyond_64", "masq_beyond_64"),
            ("nft delete element ip cni_shared masq_addresses '{ 10.1.0.5 }'", "10.1.0.5"),
            ("nft flush set ip cni_shared masq_own_subnets", "10.1.0.5"),
            ("nft flush map ip cni_shared masq_index", "10.1.0.5"),
            ("nft delete map ip6 cni_shared masq_index", "fd00::5"),
            ("nft add table ip cni_shared '{ flags dormant; }'", "dormant"),
        ] {
            share(ETH0, &BOTH).unwrap_or_else(|error| panic!("before {harm}: {error}"));
            check_shared(ETH0, &BOTH).unwrap_or_else(|error| panic!("before {harm}: {error}"));
            sh(harm);
            let error = check_shared(ETH0, &BOTH).expect_err(harm);
            assert!(error.contains(names), "{harm}: {error}");
        }
        share(ETH0, &BOTH).unwrap();
        check_shared(ETH0, &BOTH).unwrap();
        remove(ETH0);
        assert_eq!(held("office").len(), 0);
    });
}
