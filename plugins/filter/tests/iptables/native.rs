//! The same rules in nf_tables' own words: nft(8) prints and loads them, and packets obey them.

use cni_filter::Filter;
use cni_filter::iptables::{Edit, FoundRule, NativeTable, NewRule, Rule};
use expect_test::{Expect, expect};
use netops::nft::{self, BaseChain, Family, Hook, Nft};

use crate::node::{in_netns, in_netns_with, sh};

const OWNERS: [&str; 2] = ["a", "b"];

const BASE_CHAINS: &[(&str, BaseChain)] = &[
    ("prerouting", BaseChain::dstnat(Hook::Prerouting)),
    ("output", BaseChain::dstnat(Hook::Output)),
    ("masquerading", BaseChain::srcnat(Hook::Postrouting)),
    ("forward", BaseChain::filter(Hook::Forward)),
];

fn table(family: Family) -> NativeTable {
    NativeTable { table: nft::Table::new(family, "cni_test"), base_chains: BASE_CHAINS }
}

/// The shapes of the reference's portmap and firewall that do not depend on a family: chain and words.
const COMMON: [(&str, &str); 12] = [
    ("prerouting", "-m addrtype --dst-type LOCAL -j hostports"),
    ("output", "-m addrtype --dst-type LOCAL -j hostports"),
    ("hostports", r#"-p tcp -m multiport --dports 8443,8080 -m comment --comment "dnat name: net id: c1" -j dn"#),
    ("setmark", r#"-m comment --comment "CNI portfwd masquerade mark" -j MARK --set-xmark 0x2000/0x2000"#),
    ("masquerading", "-m mark --mark 0x2000/0x2000 -j MASQUERADE"),
    ("forward", r#"-m comment --comment "CNI firewall plugin rules" -j cni-forward"#),
    ("cni-forward", "-j cni-admin"),
    ("stage-1", "-i br0 ! -o br0 -j stage-2"),
    ("stage-1", "-i br0 -o br0 -j DROP"),
    ("stage-1", "-i veth+ -j RETURN"),
    ("stage-2", "-o br0 -j DROP"),
    ("stage-2", "-j RETURN"),
];

/// Rules with the addresses HOST, POD and LOCAL.
const WITH_ADDRESSES: [(&str, &str); 11] = [
    ("dn", "-s POD/24 -d HOST -p tcp --dport 8080 -j setmark"),
    ("dn", "-s LOCAL -p tcp --dport 8080 -j setmark"),
    ("dn", "-s ANY -p tcp --dport 8080 -j setmark"),
    ("dn", "-d HOST -p tcp --dport 8080 -j DNAT --to-destination TO:80"),
    ("dn", "-p udp --dport 8080 -j DNAT --to-destination TO:80"),
    ("dn", "-p sctp --dport 8080 -j DNAT --to-destination TO:80"),
    ("dn", "-j DNAT --to-destination POD"),
    ("masquerading", "-s POD -d POD -j MASQUERADE"),
    ("masquerading", "-s LOCAL -d POD -j MASQUERADE"),
    ("cni-forward", "-d POD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"),
    ("cni-forward", "-s POD -j ACCEPT"),
];

fn rule(words: &str) -> Rule {
    Rule::parse(words).unwrap_or_else(|| panic!("{words}"))
}

fn common() -> Vec<(String, Rule)> {
    COMMON.map(|(chain, words)| (chain.to_owned(), rule(words))).to_vec()
}

fn of(values: [(&str, &str); 5]) -> Vec<(String, Rule)> {
    let fill = |words: &str| values.iter().fold(words.to_owned(), |words, (name, value)| words.replace(name, value));
    WITH_ADDRESSES.map(|(chain, words)| (chain.to_owned(), rule(&fill(words)))).to_vec()
}

fn v4() -> Vec<(String, Rule)> {
    of([("HOST", "192.0.2.1"), ("POD", "10.1.0.2"), ("LOCAL", "127.0.0.1"), ("ANY", "0.0.0.0/0"), ("TO", "10.1.0.2")])
}

fn v6() -> Vec<(String, Rule)> {
    of([("HOST", "2001:db8::1"), ("POD", "fd00::2"), ("LOCAL", "::1"), ("ANY", "::/0"), ("TO", "[fd00::2]")])
}

/// Writes rules for two owners in turn, into chains made for them.
fn write(place: &NativeTable, rules: &[(String, Rule)]) {
    let mut filter = Filter::open("").unwrap();
    let mut table = filter.native(place.clone());
    let chains = ["hostports", "dn", "setmark", "cni-forward", "cni-admin", "stage-1", "stage-2"];
    let made = chains.map(|chain| Edit::CreateChain(chain.to_owned()));
    let rules = OWNERS.iter().cycle().zip(rules).map(|(owner, (chain, rule))| {
        Edit::Append(NewRule { chain: chain.clone(), rule: rule.clone(), note: Some((*owner).to_owned()) })
    });
    let mut edits = Some(made.into_iter().chain(rules).collect());
    table.change(|_| Ok(edits.take().unwrap())).unwrap();
}

fn found(place: &NativeTable, rules: &[(String, Rule)]) -> Vec<(String, Vec<FoundRule>)> {
    let mut filter = Filter::open("").unwrap();
    let mut table = filter.native(place.clone());
    let mut chains: Vec<_> = rules.iter().map(|(chain, _)| chain.clone()).collect();
    chains.sort();
    chains.dedup();
    chains.into_iter().map(|chain| (chain.clone(), table.list(&chain).unwrap().unwrap())).collect()
}

fn says(found: &[(String, Vec<FoundRule>)]) -> Vec<(String, Option<Rule>)> {
    found.iter().flat_map(|(chain, found)| found.iter().map(|found| (chain.clone(), found.rule.clone()))).collect()
}

fn expressions(place: &NativeTable) -> Vec<(String, Vec<Vec<nft::Expr>>)> {
    let mut nft = Nft::open("the host").unwrap();
    let chains = nft.list_chains(&place.table).unwrap();
    let rules = chains.into_iter().map(|chain| {
        let rules = nft.list_rules(&place.table.chain(chain.name.clone())).unwrap();
        (chain.name, rules.into_iter().map(|rule| rule.exprs).collect())
    });
    rules.collect()
}

/// `expected` is the table as nft(8) lists it.
fn check(family: Family, rules: Vec<(String, Rule)>, expected: Option<Expect>) {
    in_netns_with("nft", move || {
        let place = table(family);
        write(&place, &rules);
        if let Some(expected) = expected {
            expected.assert_eq(&sh(&format!("nft list table {}", place.table)));
        }

        let mut filter = Filter::open("").unwrap();
        let native = filter.native(place.clone());
        let mut wanted: Vec<_> = rules
            .iter()
            .flat_map(|(chain, rule)| native.spelled(rule).unwrap().into_iter().map(|rule| (chain.clone(), Some(rule))))
            .collect();
        wanted.sort_by(|(a, _), (b, _)| a.cmp(b));
        let ours = found(&place, &rules);
        assert_eq!(says(&ours), wanted);

        // What nft(8) makes of its own words is what we made.
        let exprs = expressions(&place);
        sh(&format!("rules=$(nft list table {0}); nft delete table {0}; echo \"$rules\" | nft -f -", place.table));
        assert_eq!(expressions(&place), exprs);
        assert_eq!(says(&found(&place, &rules)), wanted);

        // By owner.
        sh(&format!("nft delete table {}", place.table));
        write(&place, &rules);
        let owned = |owner| {
            let all = found(&place, &rules).into_iter().flat_map(|(_, found)| found);
            all.filter(|found| found.note.as_deref() == Some(owner)).collect::<Vec<_>>()
        };
        let (of_a, of_b) = (owned("a").len(), owned("b").len());
        assert!(of_a > 0 && of_b > 0 && of_a + of_b == wanted.len());
        let edits = || owned("a").into_iter().map(Edit::Delete).collect();
        filter.native(place.clone()).sweep(|_| Ok(edits())).unwrap();
        assert_eq!((owned("a").len(), owned("b").len()), (0, of_b));
    });
}

#[test]
fn every_shape_is_native_in_a_table_of_one_family() {
    check(Family::Ip, [common(), v4()].concat(), None);
    check(Family::Ip6, [common(), v6()].concat(), None);
}

#[test]
fn every_shape_is_native_in_a_table_of_both_families() {
    check(
        Family::Inet,
        [common(), v4(), v6()].concat(),
        Some(expect![[r#"
            table inet cni_test {
            	chain prerouting {
            		type nat hook prerouting priority dstnat; policy accept;
            		fib daddr type local jump hostports
            	}

            	chain output {
            		type nat hook output priority -100; policy accept;
            		fib daddr type local jump hostports
            	}

            	chain masquerading {
            		type nat hook postrouting priority srcnat; policy accept;
            		meta mark & 0x00002000 == 0x00002000 masquerade
            		ip saddr 10.1.0.2 ip daddr 10.1.0.2 masquerade
            		ip saddr 127.0.0.1 ip daddr 10.1.0.2 masquerade
            		ip6 saddr fd00::2 ip6 daddr fd00::2 masquerade
            		ip6 saddr ::1 ip6 daddr fd00::2 masquerade
            	}

            	chain forward {
            		type filter hook forward priority filter; policy accept;
            		jump cni-forward comment "CNI firewall plugin rules"
            	}

            	chain hostports {
            		tcp dport 8080 jump dn comment "dnat name: net id: c1"
            		tcp dport 8443 jump dn comment "dnat name: net id: c1"
            	}

            	chain dn {
            		ip saddr 10.1.0.0/24 ip daddr 192.0.2.1 tcp dport 8080 jump setmark
            		ip saddr 127.0.0.1 tcp dport 8080 jump setmark
            		meta nfproto ipv4 tcp dport 8080 jump setmark
            		ip daddr 192.0.2.1 tcp dport 8080 dnat ip to 10.1.0.2:80
            		udp dport 8080 dnat ip to 10.1.0.2:80
            		sctp dport 8080 dnat ip to 10.1.0.2:80
            		dnat ip to 10.1.0.2
            		ip6 saddr fd00::/24 ip6 daddr 2001:db8::1 tcp dport 8080 jump setmark
            		ip6 saddr ::1 tcp dport 8080 jump setmark
            		meta nfproto ipv6 tcp dport 8080 jump setmark
            		ip6 daddr 2001:db8::1 tcp dport 8080 dnat ip6 to [fd00::2]:80
            		udp dport 8080 dnat ip6 to [fd00::2]:80
            		sctp dport 8080 dnat ip6 to [fd00::2]:80
            		dnat ip6 to fd00::2
            	}

            	chain setmark {
            		meta mark set meta mark | 0x00002000 comment "CNI portfwd masquerade mark"
            	}

            	chain cni-forward {
            		jump cni-admin
            		ip daddr 10.1.0.2 ct state established,related accept
            		ip saddr 10.1.0.2 accept
            		ip6 daddr fd00::2 ct state established,related accept
            		ip6 saddr fd00::2 accept
            	}

            	chain cni-admin {
            	}

            	chain stage-1 {
            		iifname "br0" oifname != "br0" jump stage-2
            		iifname "br0" oifname "br0" drop
            		iifname "veth*" return
            	}

            	chain stage-2 {
            		oifname "br0" drop
            		return
            	}
            }
        "#]]),
    );
}

#[test]
fn prepended_ports_keep_their_order() {
    in_netns_with("nft", || {
        let ports = rule("-p udp -m multiport --dports 3,1,2,1 -j ACCEPT");
        let new = |rule| NewRule { chain: "forward".to_owned(), rule, note: None };
        let edits = vec![Edit::Append(new(rule("-j DROP"))), Edit::Prepend(new(ports))];
        Filter::open("").unwrap().native(table(Family::Ip6)).change(|_| Ok(edits.clone())).unwrap();
        let listed = sh("nft list chain ip6 cni_test forward");
        let rules: Vec<_> = listed.lines().skip(3).map(str::trim).take(4).collect();
        assert_eq!(rules, ["udp dport 1 accept", "udp dport 2 accept", "udp dport 3 accept", "drop"]);
    });
}

/// Refused as a whole, before anything is there.
#[test]
fn a_rule_that_only_iptables_can_have_changes_nothing() {
    in_netns(|| {
        let mut filter = Filter::open("").unwrap();
        let mut table = filter.native(table(Family::Ip));
        let new = |rule| Edit::Append(NewRule { chain: "prerouting".to_owned(), rule, note: None });
        let edits = vec![new(Rule::default()), new(rule("-s fd00::2 -j ACCEPT"))];
        let error = table.change(|_| Ok(edits.clone())).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot write rule \"-s fd00::2/128 -j ACCEPT\" in nft table ip cni_test: it has addresses of both families, \
             or of another than its table's; write one rule for each family"
        );
        assert!(table.list_chains().unwrap().is_empty());
    });
}
