//! bridge: pods on a Linux bridge.

mod check;
mod del;
mod gateway;
mod keys;
mod layer2;
mod mac;
mod neighbours;
mod pods;
mod removal;
mod result;
mod service;
mod vlan;

pub(crate) use conformance::shared::{is_empty_store, nft_for_containers, stays};
