//! How a plugin such as portmap uses this crate: host ports in either dialect from one description. The reference's portmap
//! is the measure.

use std::io::Write;
use std::process::{Command, Stdio};

use cni_filter::iptables::rule::{Masked, Protocol, Rule, Target, is};
use cni_filter::iptables::{Edit, NativeTable, NewRule, Table, TableName};
use cni_filter::{Filter, Names, Stale};
use ipnetwork::IpNetwork;
use netops::nft::{self, BaseChain, Family, Hook};

use crate::node::{ETH0, OtherNamespace, has, in_netns, sh};

const MARK: Masked = Masked { value: 0x2000, mask: 0x2000 };
const BASE_CHAINS: &[(&str, BaseChain)] = &[
    ("PREROUTING", BaseChain::dstnat(Hook::Prerouting)),
    ("OUTPUT", BaseChain::dstnat(Hook::Output)),
    ("POSTROUTING", BaseChain::srcnat(Hook::Postrouting)),
];
const DNAT: &str = "CNI-HOSTPORT-DNAT";
const SET_MARK: &str = "CNI-HOSTPORT-SETMARK";
const MASQ: &str = "CNI-HOSTPORT-MASQ";

fn native() -> NativeTable {
    NativeTable { table: nft::Table::new(Family::Ip, "host_ports"), base_chains: BASE_CHAINS }
}

/// Port 8080 of the node is port 80 of the container.
struct Mapping {
    pod: Names<'static>,
    address: IpNetwork,
}

impl Mapping {
    fn chain(&self) -> String {
        self.pod.iptables_chain_of("DN-")
    }

    /// The rule with the attachment's note, by which DEL and GC find it.
    fn own(&self, chain: &str, rule: Rule) -> NewRule {
        NewRule { chain: chain.to_owned(), rule, note: Some(self.pod.comment()) }
    }

    fn entry(&self) -> Rule {
        // nft cannot load quotation marks in a comment, so the native dialect would have a plain one.
        let comment = format!("dnat name: {} id: {}", self.pod.network, self.pod.container);
        Rule { protocol: Some(Protocol::Tcp), comment: Some(comment), ports: vec![8080], ..Rule::jump(self.chain()) }
    }

    /// In the order in which they stand: marks first.
    fn rules(&self) -> Vec<Rule> {
        let port = || Rule { protocol: Some(Protocol::Tcp), port: Some(8080), ..Rule::default() };
        let mark = |source: IpNetwork| Rule { source: is(source), target: Target::Jump(SET_MARK.to_owned()), ..port() };
        let to = Target::Dnat((self.address.ip(), 80).into());
        vec![mark(self.address), mark("127.0.0.1/32".parse().unwrap()), Rule { target: to, ..port() }]
    }
}

/// What all containers share: each is made once, by the first.
fn shared(table: &mut Table<'_>) -> netops::error::Result<Vec<Edit>> {
    let rule = |chain: &str, rule: Rule| NewRule { chain: chain.to_owned(), rule, note: None };
    let comment = |text: &str| Some(text.to_owned());
    let local = Rule { to_local: true, ..Rule::jump(DNAT) };
    let mark =
        Rule { comment: comment("CNI portfwd masquerade mark"), target: Target::SetMark(MARK), ..Rule::default() };
    let masquerade = Rule { mark: Some(MARK), target: Target::Masquerade, ..Rule::default() };
    let first = Rule { comment: comment("CNI portfwd requiring masquerade"), ..Rule::jump(MASQ) };
    let mut edits = Vec::new();
    for chain in [DNAT, SET_MARK, MASQ] {
        edits.extend(table.create_chain_once(chain)?);
    }
    edits.extend(table.append_once(rule(SET_MARK, mark))?);
    edits.extend(table.append_once(rule(MASQ, masquerade))?);
    edits.extend(table.prepend_once(rule("POSTROUTING", first))?);
    for chain in ["PREROUTING", "OUTPUT"] {
        edits.extend(table.append_once(rule(chain, local.clone()))?);
    }
    Ok(edits)
}

fn add(table: &mut Table<'_>, mapping: &Mapping) {
    table
        .change(|table| {
            let mut edits = shared(table)?;
            edits.extend(table.create_chain_once(&mapping.chain())?);
            for rule in mapping.rules() {
                edits.extend(table.append_once(mapping.own(&mapping.chain(), rule))?);
            }
            edits.extend(table.append_once(mapping.own(DNAT, mapping.entry()))?);
            Ok(edits)
        })
        .unwrap();
}

fn is_right(table: &mut Table<'_>, mapping: &Mapping) -> bool {
    let own = mapping.rules().iter().all(|rule| table.has(&mapping.chain(), rule).unwrap());
    own && table.has(DNAT, &mapping.entry()).unwrap()
}

fn del(table: &mut Table<'_>, pod: Names<'_>) {
    let (owner, chain) = (pod.owner(), pod.iptables_chain_of("DN-"));
    table
        .change(|table| {
            let mut edits = table.delete_where(DNAT, |found| owner.owns(found.note.as_deref()))?;
            edits.extend(table.delete_chain_if_there(&chain)?);
            Ok(edits)
        })
        .unwrap();
}

fn gc(table: &mut Table<'_>, network: &str, valid: &[Names<'_>]) {
    let stale = Stale::new(network, &valid.into());
    table
        .sweep(|table| {
            let gone = |found: &cni_filter::iptables::FoundRule| stale.has(found.note.as_deref());
            let entries = table.list(DNAT)?.unwrap_or_default().into_iter().filter(gone);
            let mut edits = Vec::new();
            for entry in entries {
                let chain = entry.goes_to().map(str::to_owned);
                edits.push(Edit::Delete(entry));
                edits.extend(chain.map(Edit::DeleteChain));
            }
            Ok(edits)
        })
        .unwrap();
}

/// The whole life of two containers' ports; returns what the first ADD made.
fn course(table: &mut Table<'_>, listed: impl Fn() -> String) -> String {
    let mapping =
        |container, address: &str| Mapping { pod: Names { container, ..ETH0 }, address: address.parse().unwrap() };
    let (one, two) = (mapping("c1", "10.1.0.2/24"), mapping("c2", "10.1.0.3/24"));
    add(table, &one);
    let first = listed();
    add(table, &one); // changes nothing
    assert_eq!(listed(), first);
    assert!(is_right(table, &one) && !is_right(table, &two));
    add(table, &two);
    assert!(is_right(table, &one) && is_right(table, &two));
    del(table, two.pod);
    del(table, two.pod);
    assert_eq!(listed(), first);
    add(table, &two);
    gc(table, "other", &[]);
    gc(table, "office", &[one.pod]);
    assert_eq!(listed(), first);
    del(table, one.pod);
    assert!(!is_right(table, &one));
    let left = table.list_chains().unwrap();
    assert!(left.iter().all(|chain| !chain.starts_with("CNI-DN-")) && left.contains(&DNAT.to_owned()), "{left:?}");
    first
}

fn saved() -> String {
    let text = sh("iptables-save -t nat 2>/dev/null");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split(" [").next().unwrap_or(line).to_owned() + "\n").collect()
}

/// The reference's portmap plugin, with a result that says as much as it looks at.
fn saved_after_the_reference() -> String {
    let pod = OtherNamespace::new();
    let conf = r#"{"cniVersion":"1.0.0","name":"office","type":"portmap","runtimeConfig":{"portMappings":[
        {"hostPort":8080,"containerPort":80,"protocol":"tcp"}]},"prevResult":{"cniVersion":"1.0.0",
        "interfaces":[{"name":"eth0","sandbox":"there"}],"ips":[{"address":"10.1.0.2/24","interface":0}]}}"#;
    let plugins = testns::find_reference().unwrap();
    let mut child = Command::new(plugins.join("portmap"))
        .envs([("CNI_COMMAND", "ADD"), ("CNI_CONTAINERID", "c1"), ("CNI_NETNS", &pod.netns())])
        .env("CNI_IFNAME", "eth0")
        .env("CNI_PATH", plugins)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(conf.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    saved()
}

/// ADD, CHECK, DEL and GC of host ports, and `iptables-save` prints what it prints after the reference's ADD.
#[test]
fn host_ports_in_the_tables_of_iptables_are_the_references() {
    in_netns(|| {
        let test = "host_ports_in_the_tables_of_iptables_are_the_references";
        if !has(test, "iptables-nft") || testns::reference_or_skip(test).is_none() {
            return;
        }
        let mut filter = Filter::open().unwrap();
        let first = course(&mut filter.iptables(Family::Ip, TableName::Nat).unwrap().unwrap(), saved);
        sh("nft flush ruleset");
        let theirs = saved_after_the_reference();
        let sorted = |text: &str| {
            // Chains stand in the order in which they were made; rules in that of their chains. Quotation marks are
            // left out for the native dialect's sake.
            let mut lines: Vec<_> = text.replace("\\\"", "").lines().map(str::to_owned).collect();
            lines.sort_by_key(|line| line.split(' ').nth(1).map(str::to_owned));
            lines
        };
        assert_eq!(sorted(&first), sorted(&theirs));
    });
}

/// The same description natively: STATUS asks whether packets come there, and nothing needs iptables.
#[test]
fn host_ports_in_a_plugins_own_table() {
    in_netns(|| {
        let mut filter = Filter::open().unwrap();
        let mut table = filter.native(native());
        table.expect_packets("PREROUTING").unwrap();
        course(&mut table, || if has("host_ports", "nft") { sh("nft -s list ruleset") } else { String::new() });
        table.expect_packets("PREROUTING").unwrap();
    });
}

/// Conditions that only iptables knows are written by its programs, and refused over netlink before anything is changed.
#[test]
fn options_that_only_iptables_knows_are_written_by_its_programs() {
    in_netns(|| {
        testns::needs!(has("options_that_only_iptables_knows_are_written_by_its_programs", "iptables-nft"));
        assert_eq!(Rule::parse("-s 10.1.0.0/24 -p tcp -j CNI-B").unwrap().goes_to(), Some("CNI-B"));
        assert_eq!(Rule::parse("-m ttl --ttl-gt 3 -j CNI-B"), None);
        let words = ["-m", "ttl", "!", "--ttl-eq", "3", "-m", "comment", "--comment", "a \"b\""].map(str::to_owned);
        let rule = Rule { words: words.to_vec(), ..Rule::jump("CNI-B") };
        let new = NewRule { chain: "CNI-A".to_owned(), rule, note: None };
        let edits = ["CNI-B", "CNI-A"].map(|chain| Edit::CreateChain(chain.to_owned())).to_vec();
        let edits = [edits, vec![Edit::Append(new)]].concat();
        let mut filter = Filter::open().unwrap();
        let mut over_netlink = filter.iptables(Family::Ip, TableName::Nat).unwrap().unwrap();
        let error = over_netlink.change(|_| Ok(edits.clone())).unwrap_err().to_string();
        assert!(error.contains("install iptables, or leave them out"), "{error}");
        assert!(over_netlink.list_chains().unwrap().is_empty());
        let mut table = filter.iptables_by_program(Family::Ip, TableName::Nat).unwrap().unwrap();
        table.change(|_| Ok(edits.clone())).unwrap();
        assert!(
            saved().contains("-A CNI-A -m ttl ! --ttl-eq 3 -m comment --comment \"a \\\"b\\\"\" -j CNI-B\n"),
            "{}",
            saved()
        );
    });
}
