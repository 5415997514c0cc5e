//! The kubelet's end of CNI: which networks a pod gets, in which order, and what becomes of them.
//!
//! `libcni` runs one network for one attachment. This crate is the policy on top of it that kubelets and container
//! runtimes share: the networks of a folder ([`Networks`]), a pod's loopback and interfaces set up together or not at
//! all ([`Pods::set_up`]), taken down from the cache alone ([`Pods::tear_down`]), looked at ([`Pods::status`]),
//! collected ([`Pods::gc`]), and the answer to "is the network ready" ([`Pods::ready`]).
//!
//! Reading order: what a runtime says of a pod ([`pod`]), what the folder holds ([`networks`]), which attachments that
//! makes (`attachments`), the handle ([`Pods`]), and each thing that it does.

// What goes in.
mod attachments;
pub mod pod;
pub mod quantity;

// Which networks there are.
pub mod networks;

// What is done.
mod gc;
mod loopback;
mod pods;
mod ready;
mod set_up;
mod standing;
mod status;
mod tear_down;

// How it is kept in order, watched, and told when it goes wrong.
mod error;
mod lock;
mod watch;

pub use error::{BandwidthError, Error, Known, RequestError, SetUpError};
pub use gc::Collected;
pub use libcni;
pub use lock::{Busy, Operation, Task};
pub use loopback::Loopback;
pub use networks::{Network, Networks, PassedOver};
pub use pod::{Bandwidth, Dns, NetworkRequest, Pod, PodId, PortMapping};
pub use pods::{Builder, DEFAULT_CONF_DIR, DEFAULT_DEADLINE, DEFAULT_UNDO_DEADLINE, Order, Pods};
pub use ready::{NotReady, NotReadyReason};
pub use status::{NetworkStatus, Status};
pub use tear_down::TearDown;

/// The example of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
