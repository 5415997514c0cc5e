//! No stability: what the executables of this suite share beyond the protocol.

#![warn(missing_docs, clippy::missing_errors_doc)]

pub mod repair;
pub mod text;

pub use repair::{Repair, Repaired};

/// The mark of this suite's executables: it is among their bytes, `cni-plugins --mark` prints it, and `cnitool install`
/// overwrites a file without it only on request.
pub const MARK: &str = "CNI suite executable, mark 5b1f0c9e7a2d4836";
