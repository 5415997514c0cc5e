//! A folder: of each key a folder of numbered files, of which the highest is the record. For one machine, for tests, and for a file system that
//! machines share.
//!
//! A write gives the next number to a complete file by link(2), which fails if the number is taken: no lock is needed, so it does not matter
//! which of its locks a file system shares. An empty file is a record that was removed: numbers of a key are never used again.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use cni_spec::{CniError, Code};
use netops::OpError;

use super::{Found, Store, Written, decode, encode};
use crate::protocol::{Key, Record, Write};

const BYTES_MAX: u64 = 1 << 20;
/// Earlier numbers that stay. A writer that was stopped, and links a number which is gone, finds so many after it.
const KEPT: u64 = 8;

/// The folder of one network.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// The folder of `network` in `folder`.
    #[must_use]
    pub fn new(folder: &Path, network: &str) -> Self {
        Self { path: folder.join(network) }
    }

    /// Makes the network's folder: a folder without it may be that of a missing mount.
    ///
    /// # Errors
    /// Code 11: it cannot be made.
    pub fn init(&self) -> Result<(), CniError> {
        match fs::create_dir(&self.path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(self.failed("create", &self.path, &error)),
            _ => Ok(()),
        }
    }

    /// The folder of a key. Names of claims have slashes, and may be `..`.
    fn of(&self, key: &Key) -> PathBuf {
        match key {
            Key::Claim(name) => self.path.join("claims").join(format!("={}", name.replace('/', "+"))),
            other => self.path.join(other.to_string()),
        }
    }

    fn failed(&self, verb: &'static str, path: &Path, error: &std::io::Error) -> CniError {
        let error = OpError::io(verb, path.display().to_string(), error);
        let text = format!("the store {} is not available: {error}", self.path.display());
        if self.path.is_dir() {
            return CniError::new(Code::TRY_AGAIN, text);
        }
        CniError::new(Code::TRY_AGAIN, text).detail(format!(
            "Key ipam.store.path names its folder. If a shared file system is to be there, mount it. If the network is new: cnitool cluster init {}.",
            self.path.file_name().unwrap_or_default().to_string_lossy()
        ))
    }

    /// The highest number of a key; 0: there is none.
    fn number(&self, folder: &Path) -> Result<u64, CniError> {
        let entries = match fs::read_dir(folder) {
            Err(error) if error.kind() == ErrorKind::NotFound && self.path.is_dir() => return Ok(0),
            entries => entries.map_err(|error| self.failed("read", folder, &error))?,
        };
        let mut highest = 0;
        for entry in entries {
            let entry = entry.map_err(|error| self.failed("read", folder, &error))?;
            highest = highest.max(entry.file_name().to_str().and_then(|name| name.parse().ok()).unwrap_or_default());
        }
        Ok(highest)
    }

    fn load(&self, key: &Key) -> Result<Found, CniError> {
        let folder = self.of(key);
        loop {
            let number = self.number(&folder)?;
            if number == 0 {
                return Ok((0, None));
            }
            let path = folder.join(number.to_string());
            match netops::file::read_plain(&path, BYTES_MAX) {
                // So many writes came meanwhile that it is gone.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(self.failed("read", &path, &error)),
                Ok(bytes) if bytes.is_empty() => return Ok((number, None)),
                Ok(bytes) => return Ok((number, Some(decode(&path.display().to_string(), key, &bytes)?))),
            }
        }
    }

    /// Writes one record; `None`: whether it is the record is not known.
    fn store(&self, write: &Write) -> Result<Option<bool>, CniError> {
        let (folder, number) = (self.of(&write.key), write.version + 1);
        let text = write.record.as_ref().map(|record| encode(&write.key, record)).transpose()?.unwrap_or_default();
        let failed = |error: std::io::Error| self.failed("write", &folder, &error);
        fs::metadata(&self.path).map_err(failed)?;
        netops::file::make_folders(&folder).map_err(failed)?;
        let unique = getrandom::u64().map_err(|error| CniError::new(Code::IO, format!("no random number: {error}")))?;
        let unfinished = folder.join(format!(".{number}-{unique:016x}"));
        let linked = write_and_link(&unfinished, &folder.join(number.to_string()), text.as_bytes());
        drop(fs::remove_file(&unfinished));
        if !linked.map_err(failed)? {
            return Ok(Some(false));
        }
        let highest = self.number(&folder)?;
        self.remove_older(&folder, number);
        Ok((highest < number + KEPT).then_some(true))
    }

    /// Removes records of lower numbers but some, and all unfinished files for numbers that are taken, which killed writers have left.
    fn remove_older(&self, folder: &Path, number: u64) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let text = name.to_str().unwrap_or_default();
            let unfinished = text.strip_prefix('.').and_then(|name| name.split_once('-')?.0.parse::<u64>().ok());
            let is_old = |of: u64| of < number.saturating_sub(KEPT);
            if unfinished.map_or_else(|| text.parse().is_ok_and(is_old), |of| of <= number) {
                drop(fs::remove_file(entry.path()));
            }
        }
    }
}

/// Makes a complete file with this name; `false`: the name is taken.
fn write_and_link(unfinished: &Path, path: &Path, bytes: &[u8]) -> std::io::Result<bool> {
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(unfinished)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    match fs::hard_link(unfinished, path) {
        Ok(()) => {}
        // NFS may ask twice, and be told the second answer.
        Err(error) if error.kind() == ErrorKind::AlreadyExists && file.metadata()?.nlink() == 2 => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(false),
        // Who has taken the number has removed the unfinished file.
        Err(error) if error.kind() == ErrorKind::NotFound && !unfinished.exists() => return Ok(false),
        Err(error) => return Err(error),
    }
    fs::File::open(path.parent().unwrap_or(path))?.sync_all()?;
    Ok(true)
}

impl Store for Folder {
    async fn read(&self, keys: &[Key]) -> Result<Vec<Found>, CniError> {
        keys.iter().map(|key| self.load(key)).collect()
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(Key, u64, Record)>, CniError> {
        let folder = self.path.join(prefix);
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == ErrorKind::NotFound && self.path.is_dir() => return Ok(Vec::new()),
            entries => entries.map_err(|error| self.failed("read", &folder, &error))?,
        };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let plain = |name: String| name.strip_prefix('=').map(|name| name.replace('+', "/")).unwrap_or(name);
        let mut found = Vec::new();
        for key in names.filter_map(|name| Key::parse(&format!("{prefix}{}", plain(name)))) {
            if let (version, Some(record)) = self.load(&key)? {
                found.push((key, version, record));
            }
        }
        found.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        Ok(found)
    }

    /// By a file that all use: one that a killed call has left is removed by the next.
    async fn check_writable(&self) -> Result<(), CniError> {
        let path = self.path.join(".writable");
        let write = |mut file: fs::File| file.write_all(&[b' '; 512]).and_then(|()| file.sync_all());
        let written = fs::File::create(&path).and_then(write);
        drop(fs::remove_file(&path));
        written.map_err(|error| self.failed("write", &self.path, &error))
    }

    async fn write(&self, writes: &[Write]) -> Result<Written, CniError> {
        for (at, write) in writes.iter().enumerate() {
            match self.store(write)? {
                Some(true) => {}
                Some(false) => return Ok(if at == 0 { Written::Nothing } else { Written::InPart }),
                None => {
                    let text = format!("record {} of the store was written by others meanwhile", write.key);
                    return Err(CniError::new(Code::TRY_AGAIN, text));
                }
            }
        }
        Ok(Written::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Network;

    fn now<T>(future: impl Future<Output = T>) -> T {
        let mut future = std::pin::pin!(future);
        match future.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
            std::task::Poll::Ready(done) => done,
            std::task::Poll::Pending => panic!("a folder does not wait"),
        }
    }

    fn write(version: u64) -> Vec<Write> {
        let record = Record::Network(Network { forgotten: version, ..Network::default() });
        vec![Write { key: Key::Network, version, record: Some(record) }]
    }

    #[test]
    fn a_record_is_replaced_once_for_each_version_however_many_try() {
        let folder = tempfile::tempdir().unwrap();
        let store = Folder::new(folder.path(), "n");
        store.init().unwrap();
        for version in 0..20 {
            let done = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4)
                    .map(|_| scope.spawn(|| now(Folder::new(folder.path(), "n").write(&write(version))).unwrap()))
                    .collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).filter(|done| *done == Written::Done).count()
            });
            assert_eq!(done, 1, "version {version}");
        }
        let (version, record) = now(store.read(&[Key::Network])).unwrap().remove(0);
        assert!(version == 20 && matches!(record, Some(Record::Network(network)) if network.forgotten == 19));
        assert!(fs::read_dir(folder.path().join("n/network")).unwrap().count() <= 10, "earlier ones are removed");
    }

    /// The writer was stopped before its link, and the number that it wants is gone again.
    #[test]
    fn a_writer_that_was_stopped_for_long_does_not_count_itself_done() {
        let folder = tempfile::tempdir().unwrap();
        let store = Folder::new(folder.path(), "n");
        store.init().unwrap();
        let network = folder.path().join("n/network");
        fs::create_dir(&network).unwrap();
        fs::write(network.join(".4-0123456789abcdef"), "").unwrap();
        for version in 0..20 {
            assert_eq!(now(store.write(&write(version))).unwrap(), Written::Done);
        }
        assert!(!network.join(".4-0123456789abcdef").exists(), "what a killed writer has left is removed");
        assert_eq!(now(store.write(&write(3))).unwrap_err().code, Code::TRY_AGAIN);
        assert_eq!(now(store.read(&[Key::Network])).unwrap()[0].0, 20);
    }

    #[test]
    fn a_folder_that_is_missing_or_damaged_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = now(Folder::new(folder.path(), "n").read(&[Key::Network])).unwrap_err();
        assert!(error.code == Code::TRY_AGAIN && error.details.contains("cnitool cluster init n"), "{error}");
        fs::create_dir_all(folder.path().join("n/runs/10.0.0.0")).unwrap();
        let key = Key::parse("runs/10.0.0.0").unwrap();
        for text in [
            "{",
            r#"{"writes":1,"runs":{"a":[[3,2]]}}"#,
            r#"{"writes":1,"runs":{"a":[[2,4]],"b":[[4,9]]}}"#,
            r#"{"writes":1,"runs":{},"more":1}"#,
        ] {
            fs::write(folder.path().join("n/runs/10.0.0.0/1"), text).unwrap();
            let error = now(Folder::new(folder.path(), "n").read(std::slice::from_ref(&key))).unwrap_err();
            assert!(error.code == Code::STATE && error.msg.contains("n/runs/10.0.0.0/1"), "{error}");
        }
    }
}
