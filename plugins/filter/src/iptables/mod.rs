//! iptables' tables as administrators know them, without running iptables.
//!
//! Start at [`Rule`], the content of a rule, and [`Table`], where rules are. On current nodes `iptables` is the variant
//! that uses nf_tables. There, rules are written over netlink in the same encoding, so that `iptables-save` prints
//! them, and `iptables -C` and `-D` find them, like its own. On nodes with the legacy variant, its programs are run. A
//! plugin's own table ([`NativeTable`]) has the same rules encoded by nf_tables' own expressions.
//!
//! A plugin describes its rules once and takes the table of either dialect:
//!
//! ```no_run
//! # use cni_filter::iptables::rule::{Masked, Protocol, Rule, Target, is};
//! # use cni_filter::iptables::{Edit, NewRule, TableName};
//! # use cni_filter::{Names, Filter, Stale};
//! # use netops::nft::Family;
//! # fn host_port(pod: Names<'_>, search_path: &str) -> netops::error::Result<()> {
//! let mut filter = Filter::open()?.searching(search_path);
//! // Or `filter.native(NativeTable { .. })`, or `iptables_by_program` where a rule has `words`.
//! let Some(mut table) = filter.iptables(Family::Ip, TableName::Nat)? else { return Ok(()) };
//! let chain = pod.iptables_chain_of("DN-"); // CNI-DN- and 21 digits, as the reference
//! let own = |chain: &str, rule| NewRule { chain: chain.to_owned(), rule, note: Some(pod.comment()) };
//! let port = Rule { protocol: Some(Protocol::Tcp), port: Some(8080), ..Rule::default() };
//! let to = Target::Dnat(([10, 1, 0, 2], 80).into());
//! let mark = Masked { value: 0x2000, mask: 0x2000 };
//!
//! // ADD. All edits of a look are one transaction, and a ruleset that another process changed since is looked at again.
//! table.change(|table| {
//!     let mut edits = table.create_chain_once("CNI-HOSTPORT-DNAT")?; // shared: unnoted
//!     let jump = Rule { to_local: true, ..Rule::jump("CNI-HOSTPORT-DNAT") };
//!     edits.extend(table.append_once(NewRule { chain: "PREROUTING".into(), rule: jump, note: None })?);
//!     edits.extend(table.create_chain_once("CNI-HOSTPORT-SETMARK")?);
//!     let set_mark = Rule { target: Target::SetMark(mark), ..Rule::default() };
//!     edits.extend(table.prepend_once(NewRule { chain: "CNI-HOSTPORT-SETMARK".into(), rule: set_mark, note: None })?);
//!     edits.extend(table.create_chain_once(&chain)?);
//!     edits.extend(table.append_once(own(&chain, Rule { target: to.clone(), ..port.clone() }))?);
//!     edits.extend(table.append_once(own("CNI-HOSTPORT-DNAT", Rule {
//!         protocol: Some(Protocol::Tcp), ports: vec![8080], ..Rule::jump(chain.clone())
//!     }))?);
//!     Ok(edits)
//! })?;
//! // CHECK; for STATUS, `expect_packets` and whether there was a table at all.
//! let _is_right = table.has(&chain, &Rule { target: to.clone(), ..port.clone() })?;
//! // DEL: the rules with the attachment's note. Legacy tables store no notes, so the chain's name decides there.
//! let owner = pod.owner();
//! table.change(|table| {
//!     let mut edits = table.delete_where("CNI-HOSTPORT-DNAT", |found| {
//!         owner.owns(found.note.as_deref()) || found.goes_to() == Some(&*chain)
//!     })?;
//!     edits.extend(table.delete_chain_if_there(&chain)?);
//!     Ok(edits)
//! })?;
//! // GC: `sweep` is not kept waiting by others' changes.
//! let stale = Stale::new(pod.network, &(&[]).into());
//! table.sweep(|table| table.delete_where("CNI-HOSTPORT-DNAT", |found| stale.has(found.note.as_deref())))?;
//! # Ok(())
//! # }
//! ```
//!
//! `tests/iptables/portmap.rs` does all of it against the reference's portmap.

mod concatenated;
pub mod rule;
mod sets;
pub mod states;

mod decode;
mod encode;
mod native;
mod parse;
mod xt;

pub mod table;

mod once;

pub(crate) mod executable;
pub(crate) mod variant;

pub(crate) mod masquerade;

pub use executable::unusable_input;
pub use native::{NativeTable, NotNative};
pub use rule::Rule;
pub use table::{Before, Edit, FoundRule, NewRule, PutBack, Table, TableName, UNTRACKED, ZONED};
pub use variant::{TableHome, Variants, in_legacy, variants_with_rules};

/// The words of a line as `iptables-restore` splits it, for [`crate::fuzzing`].
pub(crate) fn words(line: &str) -> Vec<String> {
    parse::split_words(line)
}

/// The rule in a line of `iptables-save` after `-A`, for [`crate::fuzzing`].
pub(crate) fn parsed(line: &str) -> Option<Rule> {
    parse::rule(line)
}

/// A rule of nf_tables, for [`crate::fuzzing`].
pub(crate) fn decoded(rule: &netops::nft::Rule) -> Option<Rule> {
    decode::rule(rule)
}
