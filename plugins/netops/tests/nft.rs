//! nf_tables on the real kernel, each test in a network namespace of its own, compared with what nft(8) says.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::IpAddr;
use std::process::{Command, Stdio};

use netops::Errno;
use netops::nft::{
    BaseChain, Chain, ChainType, Change, Cmp, Expr, Family, Hook, Meta, Nft, Register, Side, Table, Transaction,
    Verdict, address_in, load_ether_saddr, nfproto_is,
};
use nix::sched::{CloneFlags, unshare};

const TABLE: Table = Table::new(Family::Inet, "t");

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

fn known() -> Chain {
    TABLE.chain("known")
}

fn postrouting() -> Chain {
    let base = BaseChain { kind: ChainType::Nat, hook: Hook::Postrouting, priority: 100 };
    Chain { base: Some(base), ..TABLE.chain("postrouting") }
}

fn ruleset() -> Transaction {
    let v4: IpAddr = "10.0.0.0".parse().unwrap();
    let mut to_known = nfproto_is(v4).to_vec();
    to_known.extend(address_in(Side::Source, Cmp::Eq, "10.1.0.5/32".parse().unwrap()));
    to_known.push(Expr::Verdict(Verdict::Goto("known".into())));
    let mut inside = nfproto_is(v4).to_vec();
    inside.extend(address_in(Side::Destination, Cmp::Eq, "10.1.0.0/20".parse().unwrap()));
    inside.push(Expr::Verdict(Verdict::Return));
    Transaction::new(vec![
        Change::EnsureTable(TABLE),
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
        let Some(text) = nft_says(&["list", "ruleset"]) else {
            testns::skip("a_ruleset_reads_back_as_nft_writes_it", "no nft(8) here");
            return;
        };
        let expected = "\
table inet t {
	chain known {
		ip daddr 10.1.0.0/20 return
		counter packets 0 bytes 0 masquerade comment \"the rest\"
	}

	chain postrouting {
		type nat hook postrouting priority srcnat; policy accept;
		ip saddr 10.1.0.5 goto known
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
        assert_eq!(found.map(|chain| chain.map(|chain| chain.uses)), [None, Some(3), None, None]);
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
        assert_eq!(nft.list_rules(&known()).unwrap(), []);
        nft.commit(&ruleset()).unwrap();

        assert_eq!(nft.find_chain(&known()).unwrap().unwrap().uses, 3);
        assert_eq!(nft.find_table(&TABLE).unwrap().unwrap().objects, 2);
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
        let absent = TABLE.chain("absent").rule(vec![Expr::Masquerade]);
        let error =
            nft.commit(&Transaction::new(vec![Change::FlushChain(known()), Change::AppendRule(absent)])).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot create nft rule inet t absent [ masq ] on the host: no such file or directory"
        );
        assert_eq!(error.details(), "NFT_MSG_NEWRULE: ENOENT (2)");
        assert_eq!(nft.list_rules(&known()).unwrap().len(), 2);

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
        let rule = Transaction::new(vec![Change::AppendRule(known().rule(vec![Expr::Masquerade]))]);
        assert_eq!(nft.try_out(&rule).unwrap_err().os_errno(), Some(Errno::ENOENT));
    });
}

#[test]
fn lookups_of_other_programs_are_read() {
    in_netns(|| {
        let script = "add table bridge b; add set bridge b allowed { type ifname . ether_addr; }; add chain bridge b port; \
                      add rule bridge b port iifname . ether saddr @allowed return";
        if nft_says(&[script]).is_none() {
            return testns::skip("lookups_of_other_programs_are_read", "no nft(8) here");
        }
        let table = Table::new(Family::Bridge, "b");
        let mut nft = Nft::open("the host").unwrap();
        let exprs = vec![
            Expr::Meta(Meta::IifName, Register::R1),
            load_ether_saddr(Register::R2),
            Expr::InSet("allowed".into(), Register::R1),
            Expr::Verdict(Verdict::Return),
        ];
        assert_eq!(nft.list_rules(&table.chain("port")).unwrap()[0].exprs, exprs);
    });
}

#[test]
fn a_dump_of_many_rules_is_complete() {
    in_netns(|| {
        let mut nft = Nft::open("the host").unwrap();
        nft.commit(&ruleset()).unwrap();
        let many = (0..10_000).map(|_| Change::AppendRule(known().rule(vec![Expr::Counter])));
        nft.commit_in_parts(Transaction::new(many.collect())).unwrap();
        assert_eq!(nft.list_rules(&known()).unwrap().len(), 10_002);
    });
}
