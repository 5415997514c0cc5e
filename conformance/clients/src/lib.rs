//! Helpers that the tests of container runtimes share: a node to install one on, and an image without a registry.
//!
//! A runtime mounts file systems, makes devices and cgroups, which the kernel grants only to the machine's own root.
//! `conformance/clients/run` therefore starts the tests in namespaces and in a cgroup of their own, and [`RuntimeNode`] puts a
//! [`testns::Node`] inside: own network, empty `/etc/cni`, `/opt/cni/bin`, `/var/lib/cni` and `/run`. Functions that fail panic,
//! as a test would.
//!
//! ```no_run
//! let Some(node) = clients::RuntimeNode::with(&["containerd", "ctr", "runc"]) else {
//!     return; // it said SKIP, and why
//! };
//! let image = clients::Image::busybox(&node, "localhost/busybox:1", &["sh"]);
//! ```

#![expect(clippy::unwrap_used, reason = "what fails here fails the test that called it")]

pub mod containerd;
mod image;
mod runtime_node;

pub use image::Image;
pub use runtime_node::{Cached, DEADLINE, RuntimeNode, until};
