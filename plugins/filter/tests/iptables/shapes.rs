//! Every rule that the reference plugins write: iptables takes ours for its own, and we its for ours.

use std::io::Write;
use std::process::{Command, Stdio};

use cni_filter::Filter;
use cni_filter::iptables::rule::{Masked, Protocol, Rule, Target, is, is_not};
use cni_filter::iptables::{Edit, FoundRule, NewRule, Table, TableName};
use netops::nft::{self, Family, Nft};

use crate::node::{has, in_netns, sh};

const MARK: Masked = Masked { value: 0x2000, mask: 0x2000 };

/// A rule of the reference plugins: the command's words, and what they say.
struct Shape {
    family: Family,
    table: TableName,
    chain: &'static str,
    words: &'static str,
    rule: Rule,
}

fn shape(family: Family, table: TableName, chain: &'static str, words: &'static str, rule: Rule) -> Shape {
    Shape { family, table, chain, words, rule }
}

fn comment(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn name(text: &str) -> String {
    text.to_owned()
}

/// Every shape of the reference's masquerade, portmap and firewall.
#[expect(clippy::too_many_lines, reason = "a table")]
fn shapes() -> Vec<Shape> {
    use Family::{Ip, Ip6};
    use TableName::{Filter, Nat};
    let none = Rule::default;
    let tcp = |port| Rule { protocol: Some(Protocol::Tcp), port: Some(port), ..none() };
    let whose = || comment("name: \"net-1\" id: \"c'1\\\"");
    vec![
        // Masquerade.
        shape(
            Ip,
            Nat,
            "CNI-A",
            r#"-d 10.1.0.2/24 -j ACCEPT -m comment --comment "name: \"net-1\" id: \"c'1\\\"""#,
            Rule {
                destination: is("10.1.0.0/24".parse().unwrap()),
                comment: whose(),
                target: Target::Accept,
                ..none()
            },
        ),
        shape(
            Ip,
            Nat,
            "CNI-A",
            "-d 10.1.2.0/23 -j ACCEPT -m comment --comment plain_1",
            Rule {
                destination: is("10.1.2.0/23".parse().unwrap()),
                comment: comment("plain_1"),
                target: Target::Accept,
                ..none()
            },
        ),
        shape(
            Ip,
            Nat,
            "CNI-A",
            "! -d 224.0.0.0/4 -j MASQUERADE -m comment --comment 'a b'",
            Rule {
                destination: is_not("224.0.0.0/4".parse().unwrap()),
                comment: comment("a b"),
                target: Target::Masquerade,
                ..none()
            },
        ),
        shape(
            Ip,
            Nat,
            "POSTROUTING",
            "-s 10.1.0.2 -j CNI-B -m comment --comment 'a b'",
            Rule { source: is("10.1.0.2/32".parse().unwrap()), comment: comment("a b"), ..Rule::jump("CNI-B") },
        ),
        shape(
            Ip6,
            Nat,
            "CNI-A",
            "-d fd00::5/64 -j ACCEPT -m comment --comment 'a b'",
            Rule {
                destination: is("fd00::/64".parse().unwrap()),
                comment: comment("a b"),
                target: Target::Accept,
                ..none()
            },
        ),
        shape(
            Ip6,
            Nat,
            "CNI-A",
            "-d fd00::5/61 -j ACCEPT",
            Rule { destination: is("fd00::/61".parse().unwrap()), target: Target::Accept, ..none() },
        ),
        shape(
            Ip6,
            Nat,
            "CNI-A",
            "! -d ff00::/8 -j MASQUERADE -m comment --comment 'a b'",
            Rule {
                destination: is_not("ff00::/8".parse().unwrap()),
                comment: comment("a b"),
                target: Target::Masquerade,
                ..none()
            },
        ),
        shape(
            Ip6,
            Nat,
            "POSTROUTING",
            "-s fd00::5 -j CNI-B -m comment --comment 'a b'",
            Rule { source: is("fd00::5/128".parse().unwrap()), comment: comment("a b"), ..Rule::jump("CNI-B") },
        ),
        // Host ports.
        shape(
            Ip,
            Nat,
            "PREROUTING",
            "-m addrtype --dst-type LOCAL -j CNI-B",
            Rule { to_local: true, ..Rule::jump("CNI-B") },
        ),
        shape(
            Ip6,
            Nat,
            "OUTPUT",
            "-m addrtype --dst-type LOCAL -j CNI-B",
            Rule { to_local: true, ..Rule::jump("CNI-B") },
        ),
        shape(
            Ip,
            Nat,
            "CNI-A",
            r#"-p tcp -m comment --comment 'dnat name: "n" id: "c"' -m multiport --destination-ports 8080,8443 -j CNI-B"#,
            Rule {
                protocol: Some(Protocol::Tcp),
                comment: comment("dnat name: \"n\" id: \"c\""),
                ports: vec![8080, 8443],
                ..Rule::jump("CNI-B")
            },
        ),
        shape(
            Ip6,
            Nat,
            "CNI-A",
            "-p udp -m comment --comment x -m multiport --destination-ports 1,2,3,4,5,6,7,8,9,10,11,12,13,14,65535 -j CNI-B",
            Rule {
                protocol: Some(Protocol::Udp),
                comment: comment("x"),
                ports: (1..15).chain([65535]).collect(),
                ..Rule::jump("CNI-B")
            },
        ),
        shape(
            Ip,
            Nat,
            "CNI-A",
            "-p sctp -m multiport --destination-ports 99 -j CNI-B",
            Rule { protocol: Some(Protocol::Sctp), ports: vec![99], ..Rule::jump("CNI-B") },
        ),
        shape(
            Ip,
            Nat,
            "CNI-A",
            "-p tcp --dport 8080 -s 10.1.0.0/24 -j CNI-B",
            Rule {
                source: is("10.1.0.0/24".parse().unwrap()),
                ..Rule { target: Target::Jump(name("CNI-B")), ..tcp(8080) }
            },
        ),
        shape(
            Ip,
            Nat,
            "CNI-A",
            "-p tcp --dport 8080 -d 192.0.2.1 -s 127.0.0.1 -j CNI-B",
            Rule {
                source: is("127.0.0.1/32".parse().unwrap()),
                destination: is("192.0.2.1/32".parse().unwrap()),
                target: Target::Jump(name("CNI-B")),
                ..tcp(8080)
            },
        ),
        shape(
            Ip,
            Nat,
            "CNI-A",
            "-p tcp --dport 8080 -s 0.0.0.0/0 -j CNI-B",
            Rule { target: Target::Jump(name("CNI-B")), ..tcp(8080) },
        ),
        shape(
            Ip6,
            Nat,
            "CNI-A",
            "-p tcp --dport 8080 -s ::/0 -j CNI-B",
            Rule { target: Target::Jump(name("CNI-B")), ..tcp(8080) },
        ),
        shape(
            Ip,
            Nat,
            "CNI-D",
            "-p udp --dport 53 -d 192.0.2.1 -j DNAT --to-destination 10.1.0.2:5353",
            Rule {
                protocol: Some(Protocol::Udp),
                port: Some(53),
                destination: is("192.0.2.1/32".parse().unwrap()),
                target: Target::Dnat("10.1.0.2:5353".parse().unwrap()),
                ..none()
            },
        ),
        shape(
            Ip,
            Nat,
            "CNI-D",
            "-p sctp --dport 99 -j DNAT --to-destination 10.1.0.2:99",
            Rule {
                protocol: Some(Protocol::Sctp),
                port: Some(99),
                target: Target::Dnat("10.1.0.2:99".parse().unwrap()),
                ..none()
            },
        ),
        shape(
            Ip,
            Nat,
            "CNI-D",
            "-j DNAT --to-destination 10.1.0.2",
            Rule { target: Target::Dnat("10.1.0.2:0".parse().unwrap()), ..none() },
        ),
        shape(
            Ip6,
            Nat,
            "CNI-D",
            "-p tcp --dport 8080 -d fd00::1 -j DNAT --to-destination [fd01::2]:80",
            Rule {
                destination: is("fd00::1/128".parse().unwrap()),
                target: Target::Dnat("[fd01::2]:80".parse().unwrap()),
                ..tcp(8080)
            },
        ),
        shape(
            Ip,
            Nat,
            "CNI-M",
            "-m comment --comment 'CNI portfwd masquerade mark' -j MARK --set-xmark 0x2000/0x2000",
            Rule { comment: comment("CNI portfwd masquerade mark"), target: Target::SetMark(MARK), ..none() },
        ),
        shape(
            Ip,
            Nat,
            "CNI-A",
            "-m mark --mark 0x2000/0x2000 -j MASQUERADE",
            Rule { mark: Some(MARK), target: Target::Masquerade, ..none() },
        ),
        shape(
            Ip6,
            Nat,
            "CNI-A",
            "-m mark --mark 0x1 -j MASQUERADE",
            Rule { mark: Some(Masked { value: 1, mask: u32::MAX }), target: Target::Masquerade, ..none() },
        ),
        shape(
            Ip,
            Nat,
            "POSTROUTING",
            "-m comment --comment 'CNI portfwd requiring masquerade' -j CNI-B",
            Rule { comment: comment("CNI portfwd requiring masquerade"), ..Rule::jump("CNI-B") },
        ),
        // Firewall.
        shape(
            Ip,
            Filter,
            "FORWARD",
            "-m comment --comment 'CNI firewall plugin rules' -j CNI-B",
            Rule { comment: comment("CNI firewall plugin rules"), ..Rule::jump("CNI-B") },
        ),
        shape(
            Ip,
            Filter,
            "CNI-F",
            "-d 10.1.0.2/32 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
            Rule {
                destination: is("10.1.0.2/32".parse().unwrap()),
                established: true,
                target: Target::Accept,
                ..none()
            },
        ),
        shape(
            Ip6,
            Filter,
            "CNI-F",
            "-d fd00::2/128 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
            Rule {
                destination: is("fd00::2/128".parse().unwrap()),
                established: true,
                target: Target::Accept,
                ..none()
            },
        ),
        shape(
            Ip6,
            Filter,
            "CNI-F",
            "-s fd00::2/128 -j ACCEPT",
            Rule { source: is("fd00::2/128".parse().unwrap()), target: Target::Accept, ..none() },
        ),
        shape(
            Ip,
            Filter,
            "CNI-F",
            "-i cni0 ! -o cni0 -j CNI-B -m comment --comment x",
            Rule {
                input: is(name("cni0")),
                output: is_not(name("cni0")),
                comment: comment("x"),
                ..Rule::jump("CNI-B")
            },
        ),
        shape(
            Ip6,
            Filter,
            "CNI-F",
            "-i a-name-of-15-ch -o cni+ -j DROP",
            Rule { input: is(name("a-name-of-15-ch")), output: is(name("cni+")), target: Target::Drop, ..none() },
        ),
        shape(Ip, Filter, "CNI-F", "-j RETURN", Rule { target: Target::Return, ..none() }),
    ]
}

impl Shape {
    fn program(&self) -> &'static str {
        if self.family == Family::Ip6 { "ip6tables" } else { "iptables" }
    }

    /// Runs iptables with the words of the shape behind an option.
    fn iptables(&self, option: &str) {
        let Self { table, chain, words, .. } = self;
        sh(&format!("{} -w -t {} {option} {chain} {words}", self.program(), table.as_str()));
    }

    /// The rules that iptables shows, and the chains it says are there.
    fn saved(&self) -> String {
        let text = sh(&format!("{}-save -t {} 2>/dev/null", self.program(), self.table.as_str()));
        text.lines().filter(|line| !line.starts_with('#')).map(|line| line.to_owned() + "\n").collect()
    }

    fn change(&self, edits: impl FnOnce(&mut Table<'_>) -> Vec<Edit>) {
        let mut filter = Filter::open().unwrap();
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

/// Ours and iptables' are one rule: saved alike, found and deleted by either.
#[test]
fn every_shape_is_the_same_rule_to_iptables_and_to_us() {
    for shape in shapes() {
        in_netns(move || {
            testns::needs!(has("every_shape_is_the_same_rule_to_iptables_and_to_us", "iptables-nft"));
            let is_own_chain = shape.chain.starts_with("CNI-");
            let chains = if is_own_chain { vec![shape.chain, "CNI-B"] } else { vec!["CNI-B"] };
            let made: Vec<Edit> = chains.iter().map(|chain| Edit::CreateChain((*chain).to_owned())).collect();
            shape.change(|_| [made, vec![Edit::Append(shape.new_rule())]].concat());
            let ours = shape.saved();
            shape.iptables("-C");
            shape.iptables("-D");
            assert_ne!(shape.saved(), ours);
            shape.iptables("-A");
            assert_eq!(shape.saved(), ours, "{}", shape.words);
            shape.change(|table| {
                let found = shape.found(table);
                assert_eq!(found.len(), 1);
                assert_eq!(found[0].rule.as_ref(), Some(&shape.rule), "{}", shape.words);
                vec![Edit::Delete(found[0].clone())]
            });
            assert!(!ours.is_empty() && !shape.saved().contains("\n-A "), "{}", shape.saved());
        });
    }
}

/// Down to the kernel's expressions: what Debian's iptables-restore makes of the line that we would print, and what we make of
/// the rule over netlink.
#[test]
fn every_shape_has_the_expressions_that_iptables_restore_writes() {
    for shape in shapes() {
        in_netns(move || {
            testns::needs!(has("every_shape_has_the_expressions_that_iptables_restore_writes", "iptables-nft"));
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
