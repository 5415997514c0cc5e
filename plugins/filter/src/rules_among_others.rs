//! Puts rules of the reference into a chain that may also contain an administrator's rules.

use netops::nft::{Chain, Change, Expr, Rule, normalised};

/// Whether the chain has these rules, each once and in this order; other rules may be between them.
pub(crate) fn stand_in_order(found: &[Rule], wanted: &[Vec<Expr>]) -> bool {
    found.iter().map(|rule| normalised(&rule.exprs)).filter(|rule| wanted.contains(rule)).eq(wanted.iter().cloned())
}

/// The changes that put these rules into the chain in this order. Other rules stay. No changes if the rules are right
/// already.
pub(crate) fn put_in_order(chain: &Chain, found: &[Rule], wanted: &[Vec<Expr>]) -> Vec<Change> {
    if stand_in_order(found, wanted) {
        return Vec::new();
    }
    let ours = found.iter().filter(|rule| wanted.contains(&normalised(&rule.exprs)));
    let deleted = ours.cloned().map(Change::DeleteRule);
    deleted.chain(wanted.iter().cloned().map(|exprs| Change::AppendRule(chain.rule(exprs)))).collect()
}
