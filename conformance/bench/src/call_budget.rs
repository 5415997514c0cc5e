//! The counts of a call of a plugin or of cnitool: system calls, netlink, processes, memory, instructions.
//!
//! Counts repeat where times do not, so they can decide a test. Start at [`count_all`]; `README.md` says what each number
//! is, [`limits`] compares them with a file.

mod callgrind;
mod calls;
pub mod limits;
mod metric;
pub mod order;
pub mod table;

pub use crate::scene::Scene;
pub use calls::{CountedCall, Folder, count_all, scenes};
pub use metric::{Counts, Metric};
