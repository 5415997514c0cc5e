//! For the tests that give decoders any bytes: what a manifest file is read as.

use crate::manifest::{self, Manifest};

/// A pod as it was read.
#[derive(Debug)]
pub struct Read {
    /// `metadata.namespace` and `metadata.name`.
    pub key: [String; 2],
    /// `spec.hostname`.
    pub hostname: Option<String>,
    /// Whether the record that is kept of it reads as the same.
    pub is_kept: bool,
}

/// For each document of a file a pod, or what is wrong with it.
#[must_use]
pub fn manifests(bytes: &[u8]) -> Vec<Result<Read, String>> {
    let read = |manifest: Manifest| {
        let record = serde_json::to_string(&manifest).unwrap_or_default();
        let is_kept = serde_json::from_str::<Manifest>(&record).is_ok_and(|kept| kept == manifest);
        Read { key: [manifest.key.namespace, manifest.key.name], hostname: manifest.hostname, is_kept }
    };
    let all = manifest::parse(bytes).into_iter();
    all.map(|document| document.map(read).map_err(|problem| problem.to_string())).collect()
}
