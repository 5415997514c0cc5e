//! The private decoders, for the targets of conformance/fuzz. No interface: it changes with them.

use netops::nft;

use crate::iptables::{self, Rule};
use crate::owner::{self, Names};

/// Words of a line as `iptables-restore` splits it.
#[must_use]
pub fn words(line: &str) -> Vec<String> {
    iptables::words(line)
}

/// A line of `iptables-save` behind `-A`; `None` if it says anything that no rule of ours does.
#[must_use]
pub fn saved_rule(line: &str) -> Option<Rule> {
    iptables::parsed(line)
}

/// A rule that nf_tables has, likewise.
#[must_use]
pub fn nft_rule(rule: &nft::Rule) -> Option<Rule> {
    iptables::decoded(rule)
}

/// The key in an object's comment.
#[must_use]
pub fn key_of(comment: &str) -> Option<&str> {
    owner::key_of(comment)
}

/// An attachment's comment, and whether it is told to be its own.
#[must_use]
pub fn comment(attachment: Names<'_>) -> (String, bool) {
    let comment = attachment.comment();
    let is_own = attachment.owner().owns(Some(&comment));
    (comment, is_own)
}
