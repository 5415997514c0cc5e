//! nf_tables on the real kernel, each test in a network namespace of its own, compared with what nft(8) says.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::IpAddr;
use std::process::{Command, Stdio};
use std::time::Instant;

use netops::Errno;
use netops::nft::{
    BaseChain, Chain, ChainType, Change, Cmp, Expr, Family, Hook, KeyField, KeyType, Meta, Name, Nft, Register, Set,
    Side, Table, Transaction, Verdict, address_in, load_address, load_ether_saddr, nfproto_is,
};
use nix::sched::{CloneFlags, unshare};

const TABLE: Table = Table::new(Family::Inet, "t");
const SOURCES: Set = Set { table: TABLE, name: Name::Borrowed("sources"), key: &[KeyType::Ip4], is_verdict_map: true };

/// Runs a test on a thread that has its own network namespace.
#[expect(clippy::disallowed_methods, reason = "a namespace of the test's own, on a thread that ends there")]
fn in_netns(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        test();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

fn nft_says(what: &[&str]) -> Option<String> {
    let output = Command::new("nft").args(what).stderr(Stdio::inherit()).output().ok()?;
    Some(String::from_utf8(output.stdout).unwrap())
}

fn source(address: &str) -> netops::nft::Element {
    SOURCES
        .element([KeyField::Ip(address.parse().unwrap())])
        .verdict(Verdict::Goto("known".into()))
        .comment("whose: pod")
}

fn known() -> Chain {
    TABLE.chain("known")
}

fn postrouting() -> Chain {
    let base = BaseChain { kind: ChainType::Nat, hook: Hook::Postrouting, priority: 100 };
    Chain { base: Some(base), ..TABLE.chain("postrouting") }
}

fn ruleset() -> Transaction {
    let v4: IpAddr = "10.0.0.0".parse().unwrap();
    let lookup = Expr::VerdictMap(SOURCES.name.clone(), Register::R1);
    let mut to_known = nfproto_is(v4).to_vec();
    to_known.extend([load_address(Side::Source, v4), lookup]);
    let mut inside = nfproto_is(v4).to_vec();
    inside.extend(address_in(Side::Destination, Cmp::Eq, "10.1.0.0/20".parse().unwrap()));
    inside.push(Expr::Verdict(Verdict::Return));
    Transaction::new(vec![
        Change::EnsureTable(TABLE),
        Change::EnsureSet(SOURCES),
        Change::EnsureChain(known()),
        Change::FlushChain(known()),
        Change::AppendRule(known().rule(inside)),
        Change::AppendRule(known().rule(vec![Expr::Counter, Expr::Masquerade]).comment("the rest")),
        Change::EnsureChain(postrouting()),
        Change::FlushChain(postrouting()),
        Change::AppendRule(postrouting().rule(to_known)),
    ])
}

#[test]
fn a_ruleset_reads_back_as_nft_writes_it() {
    in_netns(|| {
        let mut nft = Nft::open("the host").unwrap();
        nft.commit(&ruleset()).unwrap();
        nft.commit(&ruleset()).unwrap(); // once more changes nothing
        nft.commit(&Transaction::new(vec![Change::CreateElement(source("10.1.0.5"))])).unwrap();
        let Some(text) = nft_says(&["list", "ruleset"]) else {
            testns::skip("a_ruleset_reads_back_as_nft_writes_it", "no nft(8) here");
            return;
        };
        let expected = "\
table inet t {
	map sources {
		type ipv4_addr : verdict
		elements = { 10.1.0.5 comment \"whose: pod\" : goto known }
	}

	chain known {
		ip daddr 10.1.0.0/20 return
		counter packets 0 bytes 0 masquerade comment \"the rest\"
	}

	chain postrouting {
		type nat hook postrouting priority srcnat; policy accept;
		ip saddr vmap @sources
	}
}
";
        assert_eq!(text, expected);
        let debug = nft_says(&["--debug=netlink", "list", "ruleset"]).unwrap();
        for rule in nft.list_rules(&known()).unwrap() {
            for expr in rule.exprs.iter().filter(|expr| **expr != Expr::Counter) {
                assert!(debug.contains(&expr.to_string()), "{expr} is not in {debug}");
            }
        }
    });
}

#[test]
fn chains_are_found_together_with_or_without_their_tables() {
    in_netns(|| {
        let mut nft = Nft::open("the host").unwrap();
        nft.commit(&ruleset()).unwrap();
        let absent = Table::new(Family::Bridge, "absent").chain("known");
        let other = TABLE.chain("other");
        let found = nft.find_chains([&absent, &known(), &other, &absent]).unwrap();
        assert_eq!(found.map(|chain| chain.map(|chain| chain.uses)), [None, Some(2), None, None]);
        assert_eq!(nft.list_rules(&known()).unwrap().len(), 2);
        // An answer that was not read is not another question's.
        let long = TABLE.chain("x".repeat(1000));
        assert!(nft.find_chains([&long, &known()]).is_err());
        assert_eq!(nft.find_chain(&other).unwrap(), None);
        assert_eq!(nft.generation().unwrap(), nft.generation().unwrap());
    });
}

#[test]
fn what_was_written_is_read() {
    in_netns(|| {
        let mut nft = Nft::open("the host").unwrap();
        assert_eq!(nft.find_table(&TABLE).unwrap(), None);
        assert_eq!(nft.find_element(&SOURCES, &source("10.1.0.5")).unwrap(), None);
        assert_eq!(nft.list_elements(&SOURCES).unwrap(), []);
        assert_eq!(nft.list_rules(&known()).unwrap(), []);
        nft.commit(&ruleset()).unwrap();
        nft.commit(&Transaction::new(vec![Change::CreateElement(source("10.1.0.5"))])).unwrap();

        assert_eq!(nft.find_element(&SOURCES, &source("10.1.0.5")).unwrap(), Some(source("10.1.0.5")));
        assert_eq!(nft.find_element(&SOURCES, &source("10.1.0.6")).unwrap(), None);
        assert_eq!(nft.list_elements(&SOURCES).unwrap(), [source("10.1.0.5")]);
        assert_eq!(nft.find_chain(&known()).unwrap().unwrap().uses, 3);
        assert_eq!(nft.find_table(&TABLE).unwrap().unwrap().objects, 3);
        assert_eq!(nft.list_chains(&TABLE).unwrap().len(), 2);
        let written: Vec<_> = ruleset().rules_of("known");
        let read: Vec<_> = nft.list_rules(&known()).unwrap();
        assert_eq!(read.len(), 2);
        for (read, written) in read.iter().zip(written) {
            assert_eq!((&read.exprs, &read.comment), (&written.exprs, &written.comment));
        }
        nft.commit(&Transaction::new(vec![Change::DeleteRule(read[1].clone())])).unwrap();
        assert_eq!(nft.list_rules(&known()).unwrap(), read[..1]);
    });
}

/// Reads the rules out of a transaction, to compare with the kernel's.
trait RulesOf {
    fn rules_of(self, chain: &str) -> Vec<netops::nft::Rule>;
}

impl RulesOf for Transaction {
    fn rules_of(self, chain: &str) -> Vec<netops::nft::Rule> {
        let rules = self.into_changes().into_iter().filter_map(|change| match change {
            Change::AppendRule(rule) if rule.chain == chain => Some(rule),
            _ => None,
        });
        rules.collect()
    }
}

#[test]
fn a_refused_change_is_named_and_the_transaction_changes_nothing() {
    in_netns(|| {
        let mut nft = Nft::open("the host").unwrap();
        nft.commit(&ruleset()).unwrap();
        nft.commit(&Transaction::new(vec![Change::CreateElement(source("10.1.0.6"))])).unwrap();
        let two = ["10.1.0.5", "10.1.0.6"].map(|address| Change::CreateElement(source(address)));
        let error = nft.commit(&Transaction::new(two.to_vec())).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot create nft element inet t sources { 10.1.0.6 comment \"whose: pod\" : goto -> known } on the host: \
             file exists"
        );
        assert_eq!(error.details(), "NFT_MSG_NEWSETELEM: EEXIST (17)");
        assert_eq!(nft.list_elements(&SOURCES).unwrap(), [source("10.1.0.6")]);

        let busy = nft.commit(&Transaction::new(vec![Change::DeleteChain(known())])).unwrap_err();
        assert_eq!(busy.os_errno(), Some(Errno::EBUSY));
    });
}

#[test]
fn a_transaction_for_an_old_generation_is_refused() {
    in_netns(|| {
        let mut nft = Nft::open("the host").unwrap();
        let old = nft.generation().unwrap();
        nft.commit(&ruleset()).unwrap();
        let delete = Transaction::new(vec![Change::DeleteTable(TABLE)]);
        let error = nft.commit(&delete.clone().if_still(old)).unwrap_err();
        assert_eq!(error.os_errno(), Some(Errno::ERESTART));
        let now = nft.generation().unwrap();
        nft.commit(&delete.if_still(now)).unwrap();
        assert_eq!(nft.find_table(&TABLE).unwrap(), None);
    });
}

#[test]
fn a_trial_reports_the_error_of_a_commit_and_changes_nothing() {
    in_netns(|| {
        let mut nft = Nft::open("the host").unwrap();
        nft.try_out(&ruleset()).unwrap();
        assert_eq!(nft.find_table(&TABLE).unwrap(), None);
        let element = Transaction::new(vec![Change::CreateElement(source("10.1.0.5"))]);
        assert_eq!(nft.try_out(&element).unwrap_err().os_errno(), Some(Errno::ENOENT));
    });
}

#[test]
fn a_concatenation_keeps_its_fields() {
    in_netns(|| {
        let table = Table::new(Family::Bridge, "b");
        let key = &[KeyType::IfName, KeyType::Mac];
        let set = Set { table: table.clone(), name: "allowed".into(), key, is_verdict_map: false };
        let element = set.element([KeyField::IfName("veth1".into()), KeyField::Mac([2, 0, 0, 0, 0, 1])]).comment("x");
        let chain = table.chain("port");
        let exprs = vec![
            Expr::Meta(Meta::IifName, Register::R1),
            load_ether_saddr(Register::R2),
            Expr::InSet("allowed".into(), Register::R1),
            Expr::Verdict(Verdict::Return),
        ];
        let mut nft = Nft::open("the host").unwrap();
        nft.commit(&Transaction::new(vec![
            Change::EnsureTable(table),
            Change::EnsureSet(set.clone()),
            Change::EnsureChain(chain.clone()),
            Change::CreateElement(element.clone()),
            Change::AppendRule(chain.rule(exprs.clone())),
        ]))
        .unwrap();
        assert_eq!(nft.list_elements(&set).unwrap(), [element]);
        assert_eq!(nft.list_rules(&chain).unwrap()[0].exprs, exprs);
        if let Some(text) = nft_says(&["list", "ruleset"]) {
            assert!(text.contains("elements = { \"veth1\" . 02:00:00:00:00:01 comment \"x\" }"), "{text}");
            assert!(text.contains("iifname . ether saddr @allowed return"), "{text}");
        }
    });
}

#[test]
fn a_dump_of_many_elements_is_complete() {
    in_netns(|| {
        let mut nft = Nft::open("the host").unwrap();
        nft.commit(&ruleset()).unwrap();
        let many = (0..10_000_u32).map(|n| {
            let address = std::net::Ipv4Addr::from(0x0a02_0000 + n).to_string();
            Change::CreateElement(source(&address))
        });
        nft.commit_in_parts(Transaction::new(many.collect())).unwrap();
        assert_eq!(nft.list_elements(&SOURCES).unwrap().len(), 10_000);
    });
}

/// Prints what the calls cost; `cargo test -p netops --test it -- nft:: --ignored --nocapture`.
#[test]
#[ignore = "a measurement, not a check"]
fn measure() {
    in_netns(|| {
        let mut nft = Nft::open("the host").unwrap();
        let timed = |what: &str, count: u32, work: &mut dyn FnMut(u32)| {
            let start = Instant::now();
            (0..count).for_each(&mut *work);
            eprintln!("{what}: {:?}", start.elapsed() / count);
        };
        timed("open and close", 20, &mut |_| drop(Nft::open("the host").unwrap()));
        timed("find_table, absent", 100, &mut |_| drop(nft.find_table(&TABLE).unwrap()));
        let element = |n: u32| {
            let address = std::net::Ipv4Addr::from(0x0a02_0000 + n).to_string();
            Transaction::new(vec![Change::CreateElement(source(&address))])
        };
        timed("element, refused ENOENT", 10, &mut |n| drop(nft.commit(&element(n)).unwrap_err()));
        timed("ruleset, created", 1, &mut |_| nft.commit(&ruleset()).unwrap());
        timed("ruleset, flushed and created again", 20, &mut |_| nft.commit(&ruleset()).unwrap());
        timed("element, created", 100, &mut |n| nft.commit(&element(n)).unwrap());
        timed("element, refused EEXIST", 10, &mut |n| drop(nft.commit(&element(n)).unwrap_err()));
        let generation = nft.generation().unwrap().wrapping_sub(1);
        timed("element, refused ERESTART", 10, &mut |n| {
            drop(nft.commit(&element(n).if_still(generation)).unwrap_err());
        });
        let busy = Transaction::new(vec![Change::DeleteChain(known())]);
        timed("chain, refused EBUSY", 10, &mut |_| drop(nft.commit(&busy).unwrap_err()));
        timed("find_chain", 100, &mut |_| drop(nft.find_chain(&known()).unwrap()));
        timed("find_element", 100, &mut |_| drop(nft.find_element(&SOURCES, &source("10.2.0.1")).unwrap()));
        timed("element, deleted", 50, &mut |n| {
            let address = std::net::Ipv4Addr::from(0x0a02_0000 + n).to_string();
            nft.commit(&Transaction::new(vec![Change::DeleteElement(source(&address))])).unwrap();
        });
        timed("close after deleting", 1, &mut |_| nft = Nft::open("the host").unwrap());
        timed("delete, leave to a child, close", 10, &mut |n| {
            let mut nft = Nft::open("the host").unwrap();
            let address = std::net::Ipv4Addr::from(0x0a02_0000 + 80 + n).to_string();
            nft.commit(&Transaction::new(vec![Change::DeleteElement(source(&address))])).unwrap();
        });
        timed("open, create, close", 10, &mut |n| {
            Nft::open("the host").unwrap().commit(&element(200 + n)).unwrap();
        });
    });
}
