//! nf_tables: a ruleset as data, applied in one transaction, without nft(8).
//!
//! Start at [`Nft::commit`] and [`Change`]. Objects carry their comments where nft(8) keeps them,
//! so `nft list ruleset` prints what is written here as if it had been typed. Left out: whatever no
//! plugin needs yet. An expression of the kernel that [`Expr`] has no variant for is carried as
//! [`Expr::Other`], so nothing that is read gets lost.

pub mod conntrack;
mod expr;
mod extension;
mod object;
mod reply;
mod socket;
mod transaction;
mod wire;

pub use expr::{
    Base, Cmp, Expr, Meta, Register, Side, Verdict, address_in, load_address, load_ether_saddr, nfproto_is, normalised,
    octets,
};
pub use extension::{Extension, ExtensionKind};
pub use object::{BaseChain, Chain, ChainType, Element, Family, Hook, KeyField, KeyType, Name, Rule, Set, Table};
pub use reply::{BaseInfo, Body, ChainInfo, ElementInfo, Reply, RuleInfo, TableInfo, parse_replies};
pub use socket::{MAX_CHANGES, Nft};
pub use transaction::{Change, Transaction};

/// A transaction's bytes, for [`crate::fuzzing`].
pub(crate) fn encoded(transaction: &Transaction, seq: u32) -> Option<Vec<u8>> {
    transaction.encode(seq)
}
