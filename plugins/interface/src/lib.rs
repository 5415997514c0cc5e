//! No stability: the driver of the suite's interface plugins, and the parts that it drives, which change with them.
//!
//! Start at [`InterfacePlugin`], which is what a plugin writes, and at README.md.
//!
//! | Module | What it has |
//! |---|---|
//! | [`plugin`](mod@plugin) | what an interface plugin is |
//! | [`plan`] | an attachment as a list of steps, and its text |
//! | [`attach`] | a plugin's entry in its executable's list; ADD and CHECK: the same plan, applied or compared |
//! | [`repair`] | CHECK that makes what the node has lost again |
//! | [`detach`] | DEL and GC: by attachment alone |
//! | [`status`] | STATUS |
//! | [`preview`] | the plan as text, for programs that show what ADD would do |
//! | [`apply`], [`check`] | a plan's steps, made or compared |
//! | [`undo`] | what a failed ADD takes back |
//! | [`lease`] | what an IPAM plugin gave, and its release |
//! | [`sides`] | the two sides of an attachment: the node and one container's namespace, opened once |
//! | [`container`] | sysctls, addresses and routes of the container's link; when new IPv6 addresses answer |
//! | [`alias`] | the alias of an attachment's link, on the node or in the container |
//! | [`host_veth`] | the host end of a container's veth, and its name |
//! | [`veth`], [`container_only`] | finding and removing links that are a pair, or in the container alone |
//! | [`link_by_name`] | the container's link of whatever kind, for a `type` that has changed; a device of host-device's |
//! | [`link_owner`], [`owner_by_reservation`] | whose a link is: the rule for DEL of all plugins; host-local's reservations, which it asks |
//! | [`stacked`] | links on top of another one: their master, settings, and why the kernel refuses one |
//! | [`address_in_use`] | whether a container uses addresses that are reserved for it |
//! | [`conf`] | keys that interface plugins have in common |
//! | [`result`] | the result of ADD |
//! | [`error`] | from [`netops::OpError`] to [`cni_spec::CniError`] |

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
