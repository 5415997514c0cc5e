//! The data that outlives this program: a record for each sandbox, and the lock that keeps a second instance away.
//!
//! A record exists before anything is made for its sandbox and is removed after everything of it is gone, so the next
//! start knows all objects, however this program ended.

use crate::manifest::Manifest;
use crate::process::{Process, ProcessId};
use anyhow::{Context, Result, bail};
use netops::lock::Lock;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// A sandbox's record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The sandbox's ID, and the record's file name.
    pub(crate) sandbox: String,
    /// The manifest that the sandbox was created from.
    pub(crate) manifest: Manifest,
    /// Name of the manifest's file.
    pub(crate) file: String,
    /// Seconds since 1970.
    pub(crate) created: u64,
    /// The boot in which its process ran.
    pub(crate) boot: String,
    /// The pause process. Without one nothing was made yet.
    pub(crate) pause: Option<ProcessId>,
    /// Whether the pod came up: its network is complete.
    pub(crate) up: bool,
}

/// When a program was killed a child that it had just forked may hold the lock until it becomes another program.
const LOCK_DEADLINE: Duration = Duration::from_secs(2);
/// Folder of the sandboxes' resolv.conf files, each named by its sandbox.
const RESOLV_CONFS: &str = "resolv.conf";

/// The state folder, which is locked as long as this lives.
#[derive(Debug)]
pub(crate) struct State {
    records: PathBuf,
    resolv_confs: PathBuf,
    boot: String,
    _lock: Lock,
}

impl State {
    /// Takes the folder, making it if it is missing.
    pub(crate) fn open(dir: &Path) -> Result<Self> {
        let records = dir.join("sandboxes");
        fs::create_dir_all(&records).with_context(|| format!("cannot create {}", records.display()))?;
        let resolv_confs = dir.join(RESOLV_CONFS);
        fs::create_dir_all(&resolv_confs).with_context(|| format!("cannot create {}", resolv_confs.display()))?;
        let path = dir.join("lock");
        let lock = Lock::take(&path, 0o600, LOCK_DEADLINE).with_context(|| {
            let dir = dir.display();
            format!("{dir} is in use: stop the other static-pods first, or give this one its own --state-dir")
        })?;
        let boot = netops::boot::Boot::read()?.id;
        Ok(Self { records, resolv_confs, boot, _lock: lock })
    }

    /// A record for a sandbox of which nothing has been made yet.
    pub(crate) fn new_record(&self, manifest: &Manifest, file: &str) -> Result<Record> {
        let sandbox = crate::sandbox::new_id()?;
        let created = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let (manifest, file, boot) = (manifest.clone(), file.to_owned(), self.boot.clone());
        Ok(Record { sandbox, manifest, file, created, boot, pause: None, up: false })
    }

    /// Puts the record in place of what it was.
    pub(crate) fn save(&self, record: &Record) -> Result<()> {
        Ok(netops::file::replace(&self.path(&record.sandbox), &serde_json::to_vec_pretty(record)?, 0o600)?)
    }

    /// Writes the sandbox's resolv.conf, readable by all users as usual.
    pub(crate) fn save_resolv_conf(&self, record: &Record, text: &str) -> Result<()> {
        let path = self.resolv_confs.join(&record.sandbox);
        Ok(netops::file::replace(&path, text.as_bytes(), 0o644)?)
    }

    /// Removes the sandbox's files, the record last: then nothing of its sandbox is left.
    pub(crate) fn forget(&self, record: &Record) -> Result<()> {
        for path in [self.resolv_confs.join(&record.sandbox), self.path(&record.sandbox)] {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(error).with_context(|| format!("cannot remove {}", path.display()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// All records, the oldest first, and the errors of invalid files, which are renamed.
    pub(crate) fn records(&self) -> Result<(Vec<Record>, Vec<String>)> {
        let (mut records, mut problems) = (Vec::new(), Vec::new());
        for path in paths(&self.records)? {
            if is_temporary(&path) {
                // Of a program that was killed before it could rename it; if it stays, it only takes room.
                drop(fs::remove_file(&path));
            } else if is_record(&path) {
                read(&path).map_or_else(
                    |error| {
                        drop(fs::rename(&path, path.with_extension("broken")));
                        problems.push(format!("{error:#}; put aside as .broken"));
                    },
                    |record| records.push(record),
                );
            }
        }
        for path in paths(&self.resolv_confs)? {
            let is_of = |record: &Record| path.file_name().is_some_and(|name| name == record.sandbox.as_str());
            if !records.iter().any(is_of) {
                // If it stays, it only takes room.
                drop(fs::remove_file(&path));
            }
        }
        records.sort_by(|a, b| (a.created, &a.sandbox).cmp(&(b.created, &b.sandbox)));
        Ok((records, problems))
    }

    /// The record's pause process, if it still runs.
    pub(crate) fn process(&self, record: &Record) -> Option<Process> {
        record.pause.filter(|_| record.boot == self.boot).and_then(Process::find)
    }

    fn path(&self, sandbox: &str) -> PathBuf {
        self.records.join(format!("{sandbox}.json"))
    }
}

/// The sandbox's resolv.conf in a state folder, if it has one: from the moment its network is complete.
pub(crate) fn find_resolv_conf(dir: &Path, record: &Record) -> Option<PathBuf> {
    Some(dir.join(RESOLV_CONFS).join(&record.sandbox)).filter(|path| path.is_file())
}

/// The records in a state folder that another instance uses.
pub(crate) fn read_all(dir: &Path) -> Result<Vec<Record>> {
    let paths = paths(&dir.join("sandboxes"))?;
    // A record that cannot be read, as it is being removed, is skipped.
    Ok(paths.iter().filter(|path| is_record(path) && !is_temporary(path)).filter_map(|path| read(path).ok()).collect())
}

fn is_record(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "json")
}

fn paths(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))?;
    entries.map(|entry| Ok(entry?.path())).collect()
}

/// Names of [`netops::file::replace`] until it renames.
fn is_temporary(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

fn read(path: &Path) -> Result<Record> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let record: Record =
        serde_json::from_slice(&bytes).with_context(|| format!("{} is no record of a sandbox", path.display()))?;
    if path.file_stem().is_none_or(|stem| stem != record.sandbox.as_str()) {
        bail!("{} is the record of another sandbox, {}", path.display(), record.sandbox);
    }
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("static-pods-state-{}-{name}", std::process::id()));
        drop(fs::remove_dir_all(&path));
        path
    }

    fn manifest() -> Manifest {
        let text = b"{apiVersion: v1, kind: Pod, metadata: {name: web}}";
        crate::manifest::parse(text).remove(0).unwrap()
    }

    #[test]
    fn a_record_is_read_as_it_was_saved_and_forgotten_twice() {
        let dir = scratch("records");
        let state = State::open(&dir).unwrap();
        let mut record = state.new_record(&manifest(), "web.yaml").unwrap();
        state.save(&record).unwrap();
        state.save_resolv_conf(&record, "nameserver 192.0.2.1\n").unwrap();
        record.pause = Some(ProcessId { pid: 7, start_ticks: 8 });
        state.save(&record).unwrap();
        let stale = dir.join("resolv.conf/stale");
        fs::write(&stale, "").unwrap();
        assert_eq!(state.records().unwrap(), (vec![record.clone()], Vec::new()));
        let resolv_conf = find_resolv_conf(&dir, &record).unwrap();
        assert!(resolv_conf.exists() && !stale.exists());
        state.forget(&record).unwrap();
        state.forget(&record).unwrap();
        assert_eq!(state.records().unwrap(), (Vec::new(), Vec::new()));
        assert!(!resolv_conf.exists());
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn garbage_is_put_aside_and_half_written_files_go() {
        let dir = scratch("garbage");
        let state = State::open(&dir).unwrap();
        fs::write(dir.join("sandboxes/abc.json"), "{").unwrap();
        fs::write(dir.join("sandboxes/.def.json.1.ThreadId(1)"), "{").unwrap();
        let (records, problems) = state.records().unwrap();
        assert!(
            records.is_empty() && problems.len() == 1 && problems[0].contains("abc.json is no record"),
            "{problems:?}"
        );
        let left: Vec<_> = paths(&dir.join("sandboxes")).unwrap();
        assert_eq!(left, [dir.join("sandboxes/abc.broken")]);
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_second_instance_reports_why_it_cannot_start() {
        let dir = scratch("lock");
        let first = State::open(&dir).unwrap();
        let error = format!("{:#}", State::open(&dir).unwrap_err());
        let holder = format!("process {}", std::process::id());
        assert!(error.contains("is in use: stop the other static-pods") && error.contains(&holder), "{error}");
        drop(first);
        State::open(&dir).unwrap();
        fs::remove_dir_all(dir).unwrap();
    }

    /// After a restart of the machine another process may have the same pid and start time.
    #[test]
    fn a_process_of_another_boot_is_not_ours() {
        let dir = scratch("boot");
        let state = State::open(&dir).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut record = state.new_record(&manifest(), "web.yaml").unwrap();
            record.pause = Some(Process::open_child(std::process::id()).unwrap().id());
            assert!(state.process(&record).is_some());
            record.boot = "another".to_owned();
            assert!(state.process(&record).is_none());
        });
        fs::remove_dir_all(dir).unwrap();
    }
}
