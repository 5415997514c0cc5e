//! A folder: a file for each network, and a lock beside it. For one machine, for tests, and for a shared file system whose
//! locks work on all machines.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cni_spec::{CniError, Code};
use netops::OpError;
use netops::lock::Lock;

use super::{Store, Version, decode};
use crate::protocol::State;

const BYTES_MAX: u64 = 64 << 20;

/// The folder's file of one network.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    timeout: Duration,
}

impl Folder {
    /// The file of `network` in `folder`.
    #[must_use]
    pub fn new(folder: &Path, network: &str, timeout: Duration) -> Self {
        Self { path: folder.join(format!("{network}.json")), timeout }
    }

    fn lock(&self) -> Result<Lock, CniError> {
        Lock::take(&self.path.with_extension("lock"), 0o600, self.timeout).map_err(|error| self.unavailable(&error))
    }

    fn unavailable(&self, error: &OpError) -> CniError {
        let text = format!("the store {} is not available: {error}", self.path.display());
        CniError::new(Code::TRY_AGAIN, text)
            .detail("Key ipam.store.path names its folder, which must exist and be the same on all nodes.")
    }

    /// The document and its bytes; a missing file is an empty document.
    fn load(&self) -> Result<(State, Vec<u8>), CniError> {
        let bytes = match netops::file::read_plain(&self.path, BYTES_MAX) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok((State::default(), Vec::new())),
            Err(error) => {
                return Err(self.unavailable(&OpError::io("read", self.path.display().to_string(), &error)));
            }
            Ok(bytes) => bytes,
        };
        Ok((decode(&self.path.display().to_string(), &bytes)?, bytes))
    }
}

impl Store for Folder {
    async fn read(&self) -> Result<(State, Version), CniError> {
        let _lock = self.lock()?;
        let (state, bytes) = self.load()?;
        Ok((state, Version(bytes)))
    }

    async fn replace(&self, version: &Version, next: &State) -> Result<bool, CniError> {
        let _lock = self.lock()?;
        if self.load()?.1 != version.0 {
            return Ok(false);
        }
        netops::file::replace(&self.path, cni_spec::json::to_text(next).as_bytes(), 0o600)
            .map_err(|error| self.unavailable(&error))?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now<T>(future: impl Future<Output = T>) -> T {
        let mut future = std::pin::pin!(future);
        match future.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
            std::task::Poll::Ready(done) => done,
            std::task::Poll::Pending => panic!("a folder does not wait"),
        }
    }

    #[test]
    fn a_document_is_replaced_once_for_each_version() {
        let folder = tempfile::tempdir().unwrap();
        let store = Folder::new(folder.path(), "n", Duration::from_secs(1));
        let (state, version) = now(store.read()).unwrap();
        let next = State { writes: 1, ..state };
        assert!(now(store.replace(&version, &next)).unwrap());
        assert!(!now(store.replace(&version, &next)).unwrap(), "the version is old");
        assert_eq!(now(store.read()).unwrap().0, next);
    }

    #[test]
    fn a_folder_that_is_missing_or_damaged_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let missing = Folder::new(&folder.path().join("none"), "n", Duration::from_secs(1));
        let error = now(missing.read()).unwrap_err();
        assert!(error.code == Code::TRY_AGAIN && error.msg.contains("none/n.json"), "{error}");
        for text in ["{", r#"{"writes":1,"nodes":{},"runs":[{"first":"10.0.0.1","last":"10.0.0.2","node":"a"}]}"#] {
            std::fs::write(folder.path().join("n.json"), text).unwrap();
            let error = now(Folder::new(folder.path(), "n", Duration::from_secs(1)).read()).unwrap_err();
            assert!(error.code == Code::STATE && error.msg.contains("n.json"), "{error}");
        }
    }
}
