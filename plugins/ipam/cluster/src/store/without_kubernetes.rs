//! The store in Kubernetes of an executable that has no client for it.

use std::time::Duration;

use cluster_keys::KubernetesConf;
use cni_spec::{CniError, Code};

use super::{Found, Store, Written};
use crate::protocol::{Key, Record, Write};

/// Refuses all.
pub struct Kubernetes;

impl Kubernetes {
    /// Names no records.
    #[must_use]
    pub fn new(_: &KubernetesConf, _: &str, _: Duration) -> Self {
        Self
    }
}

fn refused<T>() -> Result<T, CniError> {
    let text = "key ipam.store.kubernetes: this executable was built without the store in Kubernetes";
    Err(CniError::new(Code::INVALID_CONFIG, text)
        .detail("Released ones have it: cargo build --release --package cni-cluster --features kubernetes")
        .at_key("ipam.store.kubernetes"))
}

impl Store for Kubernetes {
    async fn read(&self, _: &[Key]) -> Result<Vec<Found>, CniError> {
        refused()
    }

    async fn list(&self, _: &str) -> Result<Vec<(Key, u64, Record)>, CniError> {
        refused()
    }

    async fn check_writable(&self) -> Result<(), CniError> {
        refused()
    }

    async fn write(&self, _: &[Write]) -> Result<Written, CniError> {
        refused()
    }
}
