//! nf_tables: a ruleset as data, applied in one transaction, without nft(8).
//!
//! Start at [`Nft::commit`] and [`Change`]. Comments are stored in the form that nft(8) uses, so `nft list ruleset`
//! prints rules written here as if they had been typed. Features that no plugin needs are left out. A kernel expression
//! without a variant in [`Expr`] is [`Expr::Other`], so nothing is lost when a rule is read and written.
//!
//! ```
//! use netops::nft::{BaseChain, Change, Cmp, Expr, Family, Hook, Meta, Nft, Register, Table, Transaction, Verdict};
//!
//! let sandbox = netops::Netns::create()?;
//! let table = Table::new(Family::Inet, "sandbox");
//! let mut chain = table.chain("output");
//! chain.base = Some(BaseChain::filter(Hook::Output));
//! let is_udp = [Expr::Meta(Meta::L4Proto, Register::R1), Expr::Cmp(Cmp::Eq, Register::R1, vec![17])];
//! let rule = chain.rule([is_udp.to_vec(), vec![Expr::Verdict(Verdict::Drop)]].concat());
//! let changes = vec![Change::EnsureTable(table), Change::EnsureChain(chain), Change::AppendRule(rule)];
//! Nft::in_netns(&sandbox)?.commit(&Transaction::new(changes))?;
//! # Ok::<(), netops::OpError>(())
//! ```

pub mod conntrack;
mod expr;
mod extension;
mod object;
mod query;
mod reply;
mod set;
mod socket;
mod statement;
pub mod trace;
mod transaction;
pub(crate) mod wire;

pub use expr::{Base, Cmp, Expr, Meta, Register, Verdict};
pub use extension::{Extension, ExtensionKind};
pub use object::{BaseChain, Chain, ChainType, Family, Hook, Name, Rule, Table};
pub use query::{Look, Wanted};
pub use reply::{BaseInfo, Body, ChainInfo, Reply, RuleInfo, TableInfo, Undecoded, parse_replies};
pub use set::{Data, DataType, Element, MapOf, Set};
pub(crate) use socket::rest;
pub use socket::{MAX_CHANGES, Nft};
pub use statement::{
    Side, address_in, load_address, load_address_to, load_ether_saddr, nfproto_is, normalised, octets,
};
pub use transaction::{Change, Transaction};

/// The bytes of a transaction, for [`crate::fuzzing`].
pub(crate) fn encoded(transaction: &Transaction, seq: u32) -> Option<Vec<u8>> {
    transaction.encode(seq)
}
