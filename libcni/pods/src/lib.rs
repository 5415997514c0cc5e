//! The kubelet's end of CNI: which networks a pod gets, in which order, and what becomes of them.
//!
//! `libcni` runs one network for one attachment. This crate is the policy on top of it that kubelets and container
//! runtimes share: the networks of a folder ([`Networks`]), a pod's loopback and interfaces set up together or not at
//! all ([`Pods::set_up`]), taken down from the cache alone ([`Pods::tear_down`]), looked at ([`Pods::status`]),
//! collected ([`Pods::gc`]), and the answer to "is the network ready" ([`Pods::ready`]).
//!
//! Reading order: what a runtime says of a pod ([`pod`]), what the folder holds ([`networks`]), what is done.

// What goes in.
pub mod pod;
pub mod quantity;

// Which networks there are.
pub mod networks;

pub use libcni;
