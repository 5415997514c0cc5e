//! The specification as tests: a module per section, then one per plugin.

#![expect(clippy::disallowed_methods, reason = "programs are looked for in PATH")]
#![allow(missing_docs, reason = "a test's name is its documentation")]
#![allow(clippy::unwrap_used, reason = "a test that cannot set up its objects fails")]

use conformance::configs;

mod runtime;
mod subjects;

mod protocol;

mod address_plugins;
mod bridge;
mod chained;
mod firewall;
mod foreign_rules;
mod host_device;
mod host_local;
mod kinds;
mod link_names;
mod loopback;
mod masquerade;
mod namespaces;
mod noop;
mod orphans;
mod portmap;
mod ptp;
mod records;
mod stacked;
mod status;
mod tap;
mod veth;

mod cnitool;

mod conflists;
mod errors;
#[cfg(feature = "every-test")]
mod features;
mod interop;
mod layers;
mod legacy;
mod reference_chain;
mod registry;
mod security;
mod without_nft_compat;

mod documents;
