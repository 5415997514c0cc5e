//! The specification as tests: a module per section, then one per plugin.

#![expect(clippy::disallowed_methods, reason = "programs are looked for in PATH")]
#![allow(clippy::unwrap_used, reason = "a test that cannot set up its objects fails")]

use conformance::configs;

mod runtime;
mod sources;
mod subjects;

/// The imports of most tests.
mod prelude {
    pub(crate) use crate::configs::*;
    pub(crate) use crate::subjects::*;
    pub(crate) use serde_json::{Value, json};
    pub(crate) use testns::{Attachment, Call, Container, Feature, Namespace, Node, Remains, Verb};
}

mod protocol;

mod bridge;
mod call_log;
mod chained;
mod firewall;
mod foreign_rules;
mod helper_processes;
mod host_device;
mod host_local;
mod interface_plugins;
mod link_names;
mod loopback;
mod masquerade;
mod namespace_paths;
mod noop;
mod other_clients;
mod portmap;
mod ptp;
mod stacked;
mod status;
mod tap;
mod third_party_ipam;
mod veth_plugins;

mod cnitool;

mod conflists;
mod errors;
mod interop;
mod layers;
mod legacy_iptables;
mod registry;
mod security;
mod without_nft_compat;

mod documents;
