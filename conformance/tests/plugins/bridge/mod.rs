//! bridge: pods on a Linux bridge.

mod gateway;
mod invalid_config;
mod keys;
mod mac;
mod neighbours;
mod result;
mod verbs;
mod vlan;

pub(crate) use conformance::shared_objects::{nft_for_containers, stays};
