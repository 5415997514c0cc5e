//! bridge: pods on a Linux bridge.

mod check;
mod del;
mod gateway;
mod gc;
mod invalid_config;
mod keys;
mod layer2;
mod mac;
mod neighbours;
mod result;
mod status;
mod vlan;

pub(crate) use conformance::shared_objects::{is_empty_store, nft_for_containers, stays};
