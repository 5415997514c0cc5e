//! Throwaway nodes and containers, for tests of CNI plugins on a real kernel.
//!
//! ```no_run
//! use testns::{Node, Subject, Verb};
//!
//! let node = Node::with(&Subject::ours()); // own network and mount namespaces; gone with the test
//! let pod = node.container();
//! let config = r#"{"cniVersion": "1.1.0", "name": "lo", "type": "loopback"}"#;
//! let result = node.call(Verb::Add, config, &pod).ok();
//! assert_eq!(result["interfaces"][0]["name"], "lo");
//! node.call(Verb::Del, config, &pod).ok();
//! node.assert_as_before();
//! ```
//!
//! Start at [`Node`]. [`Call`] is one call of one plugin with every parameter that a runtime can set, and [`trace`]
//! makes it while it is killed, or its system calls fail, at any point. [`Namespace`] reads a namespace's state, makes
//! links in it ([`Namespace::add_veth`]) and sends packets from it ([`Namespace::ping`], [`exchange`]). [`Feature`]
//! says what this kernel lacks.
//!
//! Every function fails with a panic whose message is a sentence, as a test would. Nothing needs `ip`, `nft` or any
//! other program, and nothing sleeps: each wait has a deadline.

#![expect(clippy::disallowed_methods, reason = "nodes are made of namespaces, on threads of their own")]

/// Ends a test that this node cannot run: one of these is false, and has said what is missing.
#[macro_export]
macro_rules! needs {
    ($($is_here:expr),+) => {
        if !($($is_here)&&+) {
            return;
        }
    };
}

mod must;
mod netlink;

mod container;
mod executables;
mod mounts;
mod namespace;
mod node;
mod subject;
mod sysctls;

mod background;
mod call;
pub mod orphans;
mod pid_namespace;
mod process;
mod random;
pub mod trace;

mod address;
mod link;
mod nft;
mod route;
mod snapshot;
mod tc;

mod icmp;
mod many_objects;
mod namespace_teardown;
mod shell_steps;
mod topology;
mod traffic;

mod etcd;
mod feature;

pub use address::{Address, Neighbour};
pub use background::Background;
pub use call::{Call, Failure, Reply, Verb};
pub use container::{Attachment, Container, Remains};
pub use etcd::Etcd;
pub use executables::{cnitool, plugins};
pub use executables::{find_reference, reference_or_skip};
pub use feature::{Feature, note, note_panics, skip};
pub use link::{Link, Port, PortVlan};
pub use mounts::{THROWAWAY_MACHINE, THROWAWAY_PROCESS};
pub use namespace::Namespace;
pub use node::Node;
pub use pid_namespace::PidNamespace;
pub use process::{Output, own_descriptors, run, try_run, unshared, write_executable, write_unshared};
pub use random::Random;
pub use route::{Hop, Route};
pub use shell_steps::{keep_steps, step, step_of_node, take_steps};
pub use snapshot::{Snapshot, changes};
pub use subject::Subject;
pub use traffic::{Transport, exchange, uninterrupted};
