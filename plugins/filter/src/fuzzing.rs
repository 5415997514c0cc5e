//! The private decoders, for the targets of conformance/fuzz. No interface: it changes with them.

use std::net::IpAddr;

use netops::nft::Rule;

use crate::nat_chain::{self, NatChain, Removal};
use crate::owner::{self, Attachment};

/// What of the chain `chain` in the output of `iptables-save` is the attachment's: rules that are saved there, and
/// whether the chain goes with them. `None` if it is not there.
#[must_use]
pub fn removal(
    text: &str,
    chain: &str,
    attachment: Attachment<'_>,
    addresses: &[IpAddr],
) -> Option<(Vec<String>, bool)> {
    let chain: NatChain<String> = nat_chain::from_save(text, chain)?;
    Some(match chain.removal(attachment, addresses) {
        Removal::Chain(jumps) => (jumps, true),
        Removal::Rules(rules) => (rules, false),
    })
}

/// Words of a line as `iptables-restore` splits it.
#[must_use]
pub fn words(line: &str) -> Vec<String> {
    nat_chain::split_words(line)
}

/// A comment as it is written for `iptables-restore`.
#[must_use]
pub fn quoted(comment: &str) -> String {
    crate::iptables::quoted(comment)
}

/// Reads a rule of iptables-nft: its target, and what identifies it is the rule itself.
#[must_use]
pub fn nat_target(rule: Rule) -> (String, Rule) {
    let rule = nat_chain::from_nft(rule);
    (rule.target, rule.id)
}

/// The key in an object's comment.
#[must_use]
pub fn key_of(comment: &str) -> Option<&str> {
    owner::key_of(comment)
}

/// An attachment's comment, and whether it is told to be its own.
#[must_use]
pub fn comment(attachment: Attachment<'_>) -> (String, bool) {
    let comment = attachment.comment("");
    let is_own = attachment.owner().owns(Some(&comment));
    (comment, is_own)
}
