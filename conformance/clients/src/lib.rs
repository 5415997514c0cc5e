//! Helpers that the tests of container runtimes share: a machine to install one on, and an image without a registry.
//!
//! A runtime mounts file systems, makes devices and cgroups, which the kernel grants only to the machine's own root.
//! `conformance/clients/run` therefore starts the tests in namespaces and in a cgroup of their own, and [`Machine`] puts a
//! [`testns::Node`] inside: own network, empty `/etc/cni`, `/opt/cni/bin`, `/var/lib/cni` and `/run`. Functions that fail panic,
//! as a test would.
//!
//! ```no_run
//! let Some(machine) = clients::Machine::with_programs(&["containerd", "ctr", "runc"]) else {
//!     return; // it said SKIP, and why
//! };
//! let image = clients::Image::busybox(&machine, "localhost/busybox:1", &["sh"]);
//! ```

#![expect(clippy::unwrap_used, reason = "what fails here fails the test that called it")]

mod cgroup;
pub mod containerd;
mod image;
mod machine;
mod patience;

pub use image::Image;
pub use machine::{Cached, Machine, Whose};
pub use patience::{DEADLINE, until};
