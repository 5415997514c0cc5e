//! Every rule that the reference plugins write: iptables takes ours for its own, and we its for ours.

use std::io::Write;
use std::process::{Command, Stdio};

use cni_filter::Filter;
use cni_filter::iptables::TableName::{Filter as Filtering, Nat};
use cni_filter::iptables::{Edit, FoundRule, NewRule, Rule, Table, TableName};
use netops::nft::Family::{Ip, Ip6};
use netops::nft::{self, Family, Nft};

use crate::node::in_netns_with;

/// The rules of the reference's masquerade, portmap and firewall, by the words of its commands.
#[rustfmt::skip]
const SHAPES: &[(Family, TableName, &str, &str)] = &[
    // Masquerade.
    (Ip, Nat, "CNI-A", r#"-d 10.1.0.2/24 -j ACCEPT -m comment --comment "name: \"net-1\" id: \"c'1\\\"""#),
    (Ip, Nat, "CNI-A", "-d 10.1.2.0/23 -j ACCEPT -m comment --comment plain_1"),
    (Ip, Nat, "CNI-A", r#"! -d 224.0.0.0/4 -j MASQUERADE -m comment --comment "a b""#),
    (Ip, Nat, "POSTROUTING", r#"-s 10.1.0.2 -j CNI-B -m comment --comment "a b""#),
    (Ip6, Nat, "CNI-A", r#"-d fd00::5/64 -j ACCEPT -m comment --comment "a b""#),
    (Ip6, Nat, "CNI-A", "-d fd00::5/61 -j ACCEPT"),
    (Ip6, Nat, "CNI-A", r#"! -d ff00::/8 -j MASQUERADE -m comment --comment "a b""#),
    (Ip6, Nat, "POSTROUTING", r#"-s fd00::5 -j CNI-B -m comment --comment "a b""#),
    // Host ports.
    (Ip, Nat, "PREROUTING", "-m addrtype --dst-type LOCAL -j CNI-B"),
    (Ip6, Nat, "OUTPUT", "-m addrtype --dst-type LOCAL -j CNI-B"),
    (Ip, Nat, "CNI-A", r#"-p tcp -m comment --comment "dnat name: \"n\" id: \"c\"" -m multiport --dports 8080,8443 -j CNI-B"#),
    (Ip6, Nat, "CNI-A", "-p udp -m comment --comment x -m multiport --dports 1,2,3,4,5,6,7,8,9,10,11,12,13,14,65535 -j CNI-B"),
    (Ip, Nat, "CNI-A", "-p sctp -m multiport --dports 99 -j CNI-B"),
    (Ip, Nat, "CNI-A", "-p tcp --dport 8080 -s 10.1.0.0/24 -j CNI-B"),
    (Ip, Nat, "CNI-A", "-p tcp --dport 8080 -d 192.0.2.1 -s 127.0.0.1 -j CNI-B"),
    (Ip, Nat, "CNI-A", "-p tcp --dport 8080 -s 0.0.0.0/0 -j CNI-B"),
    (Ip6, Nat, "CNI-A", "-p tcp --dport 8080 -s ::/0 -j CNI-B"),
    (Ip, Nat, "CNI-D", "-p udp --dport 53 -d 192.0.2.1 -j DNAT --to-destination 10.1.0.2:5353"),
    (Ip, Nat, "CNI-D", "-p sctp --dport 99 -j DNAT --to-destination 10.1.0.2:99"),
    (Ip, Nat, "CNI-D", "-j DNAT --to-destination 10.1.0.2"),
    (Ip6, Nat, "CNI-D", "-p tcp --dport 8080 -d fd00::1 -j DNAT --to-destination [fd01::2]:80"),
    (Ip, Nat, "CNI-M", r#"-m comment --comment "CNI portfwd masquerade mark" -j MARK --set-xmark 0x2000/0x2000"#),
    (Ip, Nat, "CNI-A", "-m mark --mark 0x2000/0x2000 -j MASQUERADE"),
    (Ip6, Nat, "CNI-A", "-m mark --mark 0x1 -j MASQUERADE"),
    (Ip, Nat, "POSTROUTING", r#"-m comment --comment "CNI portfwd requiring masquerade" -j CNI-B"#),
    // Firewall.
    (Ip, Filtering, "FORWARD", r#"-m comment --comment "CNI firewall plugin rules" -j CNI-B"#),
    (Ip, Filtering, "CNI-F", "-d 10.1.0.2/32 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"),
    (Ip6, Filtering, "CNI-F", "-d fd00::2/128 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"),
    (Ip6, Filtering, "CNI-F", "-s fd00::2/128 -j ACCEPT"),
    (Ip, Filtering, "CNI-F", "-i cni0 ! -o cni0 -j CNI-B -m comment --comment x"),
    (Ip6, Filtering, "CNI-F", "-i a-name-of-15-ch -o cni+ -j DROP"),
    (Ip, Filtering, "CNI-F", "-j RETURN"),
];

/// A rule of the reference plugins, as it is stored.
struct Shape {
    family: Family,
    table: TableName,
    chain: &'static str,
    rule: Rule,
}

/// What a lost condition changes is seen by the kernel's rules: those of iptables come from the words alone.
fn shapes() -> impl Iterator<Item = Shape> {
    SHAPES.iter().map(|&(family, table, chain, words)| {
        let rule = Rule::parse(words).unwrap_or_else(|| panic!("{words}")).as_stored();
        Shape { family, table, chain, rule }
    })
}

impl Shape {
    fn program(&self) -> &'static str {
        if self.family == Family::Ip6 { "ip6tables" } else { "iptables" }
    }

    fn change(&self, edits: impl FnOnce(&mut Table<'_>) -> Vec<Edit>) {
        let mut filter = Filter::open("").unwrap();
        let mut table = filter.iptables(self.family, self.table).unwrap().unwrap();
        let mut edits = Some(edits(&mut table));
        table.change(|_| Ok(edits.take().unwrap())).unwrap();
    }

    fn new_rule(&self) -> NewRule {
        NewRule { chain: self.chain.to_owned(), rule: self.rule.clone(), note: Some("whose".to_owned()) }
    }

    fn found(&self, table: &mut Table<'_>) -> Vec<FoundRule> {
        table.list(self.chain).unwrap().unwrap()
    }
}

/// Down to the kernel's expressions: what Debian's iptables-restore makes of the line that we would print, and what we make of
/// the rule over netlink.
#[test]
fn every_shape_has_the_expressions_that_iptables_restore_writes() {
    for shape in shapes() {
        in_netns_with("iptables-nft", move || {
            let mut chains = vec!["CNI-B"];
            chains.extend(shape.chain.starts_with("CNI-").then_some(shape.chain));
            let declared: String = chains.iter().map(|chain| format!(":{chain} - [0:0]\n")).collect();
            let name = shape.table.as_str();
            let lines = format!("*{name}\n{declared}-A {}{}\nCOMMIT\n", shape.chain, shape.rule);
            let mut child = Command::new(format!("{}-restore", shape.program()))
                .arg("--noflush")
                .stdin(Stdio::piped())
                .spawn()
                .unwrap();
            child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
            assert!(child.wait().unwrap().success(), "{lines}");
            let expressions = || -> Vec<_> {
                let chain = nft::Table::new(shape.family, name).chain(shape.chain);
                let rules = Nft::open("the host").unwrap().list_rules(&chain).unwrap();
                rules.into_iter().map(|rule| rule.exprs).collect()
            };
            let theirs = expressions();
            shape.change(|table| shape.found(table).into_iter().map(Edit::Delete).collect());
            shape.change(|_| vec![Edit::Append(shape.new_rule())]);
            assert_eq!(theirs.len(), 1);
            assert_eq!(expressions(), theirs, "{lines}");
        });
    }
}
