//! The CNI specification as an executable suite: what its tests share.
//!
//! `tests/plugins` has a module per section of the specification, then one per plugin; a test's name is the
//! specification's sentence. `faults` has calls that fail, are killed or come all at once. `cni-conformance rules` maps the sentences
//! to the kit's rules, `DIFFERENCES.md` lists what differs from the reference plugins on purpose.

pub mod subjects;

pub mod chained_plugins;
pub mod configs;
pub mod interface_plugins;

pub mod libcni_operations;
pub mod shared_objects;
pub mod shell;

pub mod iptables;

pub mod firewall;
pub mod host_device;
pub mod portmap;
