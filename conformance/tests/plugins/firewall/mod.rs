//! firewall: rules that let a container's packets pass, and policies that keep others' away.

mod firewalld;
mod nftables;
mod packets;
mod rules;

use crate::configs::{Attached, with};
use conformance::firewall::{accepting, config, isolating, made_up, saved};
use conformance::iptables::{has_iptables, on};
use serde_json::{Value, json};
use testns::{Attachment, Node};

#[track_caller]
fn add<'a>(node: &'a Node, config: Value, attachment: impl Into<Attachment>, previous: Value) -> Attached<'a> {
    Attached::add(node, &with(config, json!({"prevResult": previous})), attachment)
}
