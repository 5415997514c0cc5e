//! The kubelet side of CNI: which networks a pod gets, in which order, and their life cycle.
//!
//! `libcni` runs one network for one attachment. This crate is the policy on top of it that kubelets and container
//! runtimes share: the networks of a folder ([`Networks`]), a pod's loopback and interfaces set up together or not at
//! all ([`Pods::set_up`]), taken down from the cache alone ([`Pods::tear_down`]), their status ([`Pods::status`]),
//! garbage collection ([`Pods::gc`]), and the network's readiness ([`Pods::ready`]).
//!
//! Reading order: the description of a pod ([`pod`]), the networks of the folder ([`networks`]), the attachments that
//! follow (`pod_attachments`), the handle ([`Pods`]), and each of its operations.

// Input.
pub mod pod;
mod pod_attachments;

// The networks.
pub mod networks;

// The operations.
mod gc;
mod handle;
mod loopback;
mod ready;
mod set_up;
mod status;
mod tear_down;

// Locks, tracing and errors.
mod error;
mod lock;
mod pod_spans;

pub use error::{Error, KnownNetworks, RequestError, SetUpError};
pub use gc::Collected;
pub use handle::{Builder, DEFAULT_CONF_DIR, DEFAULT_DEADLINE, DEFAULT_UNDO_DEADLINE, Order, Pods};
pub use libcni;
pub use lock::{Busy, Operation, Task};
pub use loopback::Loopback;
pub use networks::{Network, Networks, PassedOver};
pub use pod::{Bandwidth, Dns, NetworkRequest, Pod, PodId, PortMapping};
pub use ready::{NotReady, NotReadyReason};
pub use status::{NetworkStatus, Status};
pub use tear_down::TearDown;

/// The example of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
