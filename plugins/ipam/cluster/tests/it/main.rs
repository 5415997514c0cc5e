//! The protocol in every order of events; the plugin as processes of several nodes on one store.

#![expect(clippy::unwrap_used, reason = "the helpers of tests fail by panicking")]

mod model;
mod test_cluster;

mod accidents;
mod claims;
mod cost;
mod crash;
mod etcd;
mod identity;
#[cfg(feature = "kubernetes")]
mod kubernetes;
mod nodes;
mod probe;
mod restored_store;
