//! containerd on a throwaway node, and a client of its Container Runtime Interface (CRI).
//!
//! [`Daemon`] is one containerd with all its files in a [`RuntimeNode`](crate::RuntimeNode); [`Cri`] asks it for pods as a kubelet
//! does, over gRPC on HTTP/2, in messages of [`runtime_v1`]. The tests are in `tests/containerd`.

mod cri;
mod daemon;
mod grpc;
pub mod runtime_v1;

pub use cri::{Cri, Pod};
pub use daemon::{Daemon, IMAGE, NETWORKS_OF_CRI};
pub use grpc::{Channel, Refusal};
