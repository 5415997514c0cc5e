//! The CNI specification as an executable suite: what its tests share.
//!
//! `tests/plugins` has a module per section of the specification, then one per plugin; a test's name is the
//! specification's sentence. `faults` has calls that fail, are killed or come all at once. `cni-conformance rules` maps the sentences
//! to the kit's rules, the pages of `plugins` list what differs from the reference plugins on purpose.

pub mod subjects;

pub mod chained_plugins;
pub mod configs;
pub mod interface_plugins;

pub mod shared_objects;
pub mod shell;

pub mod iptables;

pub mod firewall;
pub mod host_device;
pub mod portmap;

/// Runs an operation of our library to its end.
pub fn wait<T>(operation: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(operation)
}
