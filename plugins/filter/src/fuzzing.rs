//! Access to private decoders for the fuzz targets of conformance/fuzz. Not a stable interface: it changes with the
//! decoders.

use netops::nft;

use crate::iptables::{self, Rule};
use crate::names_and_comments::{self, Names};

/// The words of a line, split as `iptables-restore` splits it.
#[must_use]
pub fn words(line: &str) -> Vec<String> {
    iptables::words(line)
}

/// Decodes a line of `iptables-save` after `-A`; `None` if it contains anything that our rules do not have.
#[must_use]
pub fn saved_rule(line: &str) -> Option<Rule> {
    iptables::parsed(line)
}

/// Decodes a rule of nf_tables; `None` if it contains anything that our rules do not have.
#[must_use]
pub fn nft_rule(rule: &nft::Rule) -> Option<Rule> {
    iptables::decoded(rule)
}

/// The key in the comment of an object.
#[must_use]
pub fn key_of(comment: &str) -> Option<&str> {
    names_and_comments::key_of(comment)
}

/// The comment of an attachment, and whether the attachment recognises it as its own.
#[must_use]
pub fn comment(attachment: Names<'_>) -> (String, bool) {
    let comment = attachment.comment();
    let is_own = attachment.owner().owns(Some(&comment));
    (comment, is_own)
}
