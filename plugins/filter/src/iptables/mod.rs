//! iptables' tables as administrators know them, without running iptables.
//!
//! Start at [`Rule`], the content of a rule, and [`Table`], where rules are. On current nodes `iptables` is the variant
//! that uses nf_tables. There, rules are written over netlink in the same encoding, so that `iptables-save` prints
//! them, and `iptables -C` and `-D` find them, like its own. On nodes with the legacy variant, its programs are run. A
//! plugin's own table ([`NativeTable`]) has the same rules encoded by nf_tables' own expressions.
//!
//! A plugin describes its rules once, takes the table of either dialect ([`crate::Filter::iptables`], [`crate::Filter::native`]), and gives
//! its edits to [`Table::change`] for ADD and DEL: all edits of a look are one transaction, and a ruleset that another process changed
//! since is looked at again. [`Table::has`] and [`Table::expect_packets`] are for CHECK and STATUS, [`Table::sweep`] for GC, which others'
//! changes do not keep waiting. The plugin portmap does all of it in both dialects.

pub mod rule;

mod decode;
mod native;
mod parse;
mod xt;

pub mod table;

mod add_missing;

pub(crate) mod executable;
pub(crate) mod variant;

pub(crate) mod masquerade;

pub use executable::unusable_input;
pub use native::{NativeTable, NotNative};
pub use rule::Rule;
pub use table::{Before, Edit, FoundRule, NewRule, PutBack, Table, TableName};
pub use variant::{TableHome, Variants, in_legacy, unread_tables, variants_with_rules};

/// The words of a line as `iptables-restore` splits it, for [`crate::fuzzing`].
pub(crate) fn words(line: &str) -> Vec<String> {
    parse::split_words(line)
}

/// The rule that iptables would write for one of nf_tables; `None`: it has conditions that this crate does not read.
#[must_use]
pub fn read_rule(rule: &netops::nft::Rule) -> Option<Rule> {
    decode::rule(rule)
}

/// The rule in a line of `iptables-save` after `-A`, for [`crate::fuzzing`].
pub(crate) fn parsed(line: &str) -> Option<Rule> {
    parse::rule(line)
}

/// A rule of nf_tables, for [`crate::fuzzing`].
pub(crate) fn decoded(rule: &netops::nft::Rule) -> Option<Rule> {
    decode::rule(rule)
}
