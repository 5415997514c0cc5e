//! Rules of the reference in a chain where an administrator's may stand too.

use netops::nft::{Chain, Change, Expr, Rule, normalised};

/// Whether the chain has these rules, each once and in this order; others may stand anywhere.
pub(crate) fn stand_in_order(found: &[Rule], wanted: &[Vec<Expr>]) -> bool {
    found.iter().map(|rule| normalised(&rule.exprs)).filter(|rule| wanted.contains(rule)).eq(wanted.iter().cloned())
}

/// What puts these rules into the chain in this order, and leaves all others: nothing where they are right.
pub(crate) fn put_in_order(chain: &Chain, found: &[Rule], wanted: &[Vec<Expr>]) -> Vec<Change> {
    if stand_in_order(found, wanted) {
        return Vec::new();
    }
    let ours = found.iter().filter(|rule| wanted.contains(&normalised(&rule.exprs)));
    let deleted = ours.cloned().map(Change::DeleteRule);
    deleted.chain(wanted.iter().cloned().map(|exprs| Change::AppendRule(chain.rule(exprs)))).collect()
}
