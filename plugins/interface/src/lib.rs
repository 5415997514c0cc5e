//! No stability: the driver of the suite's interface plugins, and the parts that it drives, which change with them.
//!
//! Start at [`InterfacePlugin`], which is what a plugin writes, and at README.md.

pub mod plan;
pub mod plugin;

pub mod attach;
pub mod detach;
pub mod preview;
pub mod repair;
pub mod status;

pub mod apply;
pub mod check;
pub mod undo;

pub mod conf;
pub mod lease;
pub mod result;
pub mod sides;

pub mod address_in_use;
pub mod container;
pub mod container_only;
mod forwarding;
pub mod host_veth;
pub mod link_by_name;
pub mod link_owner;
pub mod owner_by_reservation;
pub mod stacked;
pub mod veth;

pub mod error;

pub use apply::Stage;
pub use attach::entry;
pub use check::Look;
pub use cni_filter::alias;
pub use detach::Detaching;
pub use error::failed;
pub use plan::{Plan, Side, Step};
pub use plugin::{AddOrCheck, InterfacePlugin, Ipam, LinkKind, NoStep, OwnStep, Uncollected, Verb};
pub use preview::{Preview, Shown};
pub use skel;
pub use skel::inventory;
