//! iptables' tables as administrators know them, written without iptables.
//!
//! Start at [`Rule`], what a rule says, and [`Table`], where rules are. On today's nodes `iptables` is the variant that
//! writes nf_tables rules; such rules come from here over netlink, encoded so that `iptables-save` prints, and `iptables
//! -C` and `-D` find them like its own. Where the legacy variant is in use, its programs are run. A plugin's own table
//! ([`NativeTable`]) has the same rules in nf_tables' own words.

pub mod rule;

mod decode;
mod encode;
mod native;
mod parse;
mod xt;

pub mod table;

mod once;

pub(crate) mod executable;
pub(crate) mod world;

pub(crate) mod masquerade;

pub use native::{NativeTable, NotNative};
pub use rule::Rule;
pub use table::{Edit, Found, NewRule, Table, TableName};

/// Words of a line as `iptables-restore` splits it, for [`crate::fuzzing`].
pub(crate) fn words(line: &str) -> Vec<String> {
    parse::split_words(line)
}

/// A line of `iptables-save` behind `-A`, for [`crate::fuzzing`].
pub(crate) fn parsed(line: &str) -> Option<Rule> {
    parse::rule(line)
}

/// A rule of nf_tables, for [`crate::fuzzing`].
pub(crate) fn decoded(rule: &netops::nft::Rule) -> Option<Rule> {
    decode::rule(rule)
}
