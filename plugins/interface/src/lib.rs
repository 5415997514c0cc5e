//! What every interface plugin shares (CNI's interface plugins do these alike): names that DEL can find again,
//! applying an IPAM result, comparing the node with it.
//!
//! | Module | What it has |
//! |---|---|
//! | [`error`] | from [`netops::OpError`] to [`cni_spec::CniError`] |
//! | [`host_veth`] | name and mark of the host end of a container's veth |
//! | [`lease`] | what an IPAM plugin gave, checked; its release when ADD fails |
//! | [`container`] | the plan for a container's interface, and applying it |
//! | [`check`] | CHECK's comparisons |
//! | [`txn`] | the error of a plan that was undone |
//! | [`mac`] | a requested Ethernet address |

pub mod error;
pub mod host_veth;
pub mod lease;
pub mod mac;

pub mod container;

pub mod check;
pub mod txn;

pub use error::failed;
