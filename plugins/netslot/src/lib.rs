#![doc = include_str!("../README.md")]
#![warn(missing_docs, clippy::missing_errors_doc)]

mod error;
mod marks;
mod pool;
mod rules;
mod slot;
mod spec;

pub use cni_filter::iptables::rule::Protocol;
pub use error::{Error, Result};
pub use marks::{Reconciled, reconcile};
pub use netops::link::tun::Queue;
pub use netops::{Netns, OpError};
pub use pool::Pool;
pub use slot::Slot;
pub use spec::{Device, Egress, Port, RUN_FOLDER, Spec};
