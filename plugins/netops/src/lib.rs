//! What plugins do to a node, one kernel object a module.
//!
//! netops knows nothing of CNI: it names links, addresses, routes, rules, sysctls and files,
//! and says exactly what the kernel answered. Start at [`kernel::Kernel`], a netlink connection bound to one
//! namespace, and [`txn`], which takes back what a failed plan has done.

pub mod error;

pub use error::{Errno, OpError};
