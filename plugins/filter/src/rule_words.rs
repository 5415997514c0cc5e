//! Rules of nf_tables in the words of the programs that show them, and the tables with rules that may drop packets: for programs that
//! explain what becomes of a packet.

use std::collections::BTreeMap;

use netops::nft::{Chain, Expr, Family, Nft, Rule, Table, Verdict};

use crate::egress::EGRESS_TABLE;
use crate::iptables::{executable, read_rule};
use crate::names_and_comments::key_of;

/// Whether iptables shows a base chain, by the names of its tables.
#[must_use]
pub fn is_of_iptables(table: &Table, base: &str) -> bool {
    matches!(table.family, Family::Ip | Family::Ip6)
        && ["filter", "nat", "mangle", "raw", "security"].contains(&&*table.name)
        && ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"].contains(&base)
}

/// The rule of a chain with this handle as `iptables -S` or `nft list` prints it, of which the chain's program is run; `None`: the rule
/// is gone, or the program is not installed and this crate does not read the rule.
#[must_use]
pub fn find(search_path: &str, nft: &mut Nft, chain: &Chain, handle: u64, is_of_iptables: bool) -> Option<String> {
    let rules = nft.list_rules(chain).ok()?;
    let place = rules.iter().position(|rule| rule.handle == Some(handle))?;
    let (table, name) = (&*chain.table.name, &*chain.name);
    // nft reads its words as a program, so a name has to be one.
    let is_plain = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    let output = |program: &str, words: &[&str]| {
        let program = executable::find(search_path, &[program]).filter(|_| is_plain(table) && is_plain(name))?;
        executable::run(&program, words, "").ok()
    };
    if !is_of_iptables {
        let family = chain.table.family.to_string();
        let text = output("nft", &["-a", "list", "chain", &family, table, name])?;
        let handle = format!(" # handle {handle}");
        return text.lines().find_map(|line| line.strip_suffix(&handle)).map(|line| line.trim().to_owned());
    }
    let program = if chain.table.family == Family::Ip6 { "ip6tables-nft" } else { "iptables-nft" };
    let text = output(program, &["-t", table, "-S", name]);
    let line = text.and_then(|text| text.lines().filter(|line| line.starts_with("-A ")).nth(place).map(str::to_owned));
    line.or_else(|| rules.get(place).and_then(read_rule).map(|rule| format!("-A {name}{rule}")))
}

/// The tables with rules or policies of other programs that may drop packets, with the command that shows each.
#[must_use]
pub fn that_may_drop(nft: &mut Nft) -> Vec<String> {
    let mut found = Vec::new();
    for family in [Family::Inet, Family::Ip, Family::Ip6, Family::Bridge, Family::Netdev] {
        let mut tables: BTreeMap<String, (String, bool)> = BTreeMap::new();
        for chain in nft.list_base_chains(family).unwrap_or_default() {
            let (base, drops) = tables.entry(chain.table).or_default();
            *drops |= chain.base.is_some_and(|base| base.drops);
            *base = chain.name;
        }
        for (name, (base, drops)) in tables {
            let table = Table { family, name: name.into() };
            let is_awake = nft.find_table(&table).is_ok_and(|found| found.is_some_and(|found| !found.is_dormant));
            let mut may_drop = || drops || nft.list_all_rules(&table).unwrap_or_default().iter().any(may_drop);
            if is_awake && may_drop() {
                let program = if family == Family::Ip6 { "ip6tables" } else { "iptables" };
                found.push(match is_of_iptables(&table, &base) {
                    true => format!("table {} of {program} ({program} -t {} -S)", table.name, table.name),
                    false => format!("nft table {table} (nft list table {table})"),
                });
            }
        }
    }
    found
}

/// Whether a rule may drop packets, or has a program decide on them. Those of this suite drop what a configuration says.
fn may_drop(rule: &Rule) -> bool {
    let is_key = |text: &str| key_of(text).is_some() || text.starts_with("macspoofchk-");
    let is_own = rule.chain.starts_with("CNI-")
        || rule.table.name == EGRESS_TABLE
        || rule.comment.as_deref().is_some_and(is_key);
    let drops = |expr: &Expr| match expr {
        Expr::Verdict(verdict) => *verdict == Verdict::Drop,
        Expr::VerdictMap(..) => true,
        Expr::Target(extension) => ["REJECT", "NFQUEUE"].contains(&&*extension.name),
        Expr::Other { name, .. } => name == "reject" || name == "queue",
        _ => false,
    };
    !is_own && rule.exprs.iter().any(drops)
}
