//! No stability: the driver of the suite's chained plugins, which change an attachment that an earlier plugin has made.
//!
//! Start at [`ChainedPlugin`], which is what a plugin writes, and at README.md.

pub mod plugin;

pub mod attached;
pub mod lazy_sides;

mod verbs;

pub use attached::Attached;
pub use interface::check::{all, differs};
pub use interface::conf::invalid;
pub use interface::failed;
pub use interface::preview::{Preview, Shown};
pub use lazy_sides::{LazySides, lock};
pub use plugin::{AddOrCheck, ChainedPlugin, Collecting, Removing, entry};
pub use plugin::{DeleteIngress, Left, Txn, Undo, unless_absent};
pub use skel;
pub use skel::Timer;
