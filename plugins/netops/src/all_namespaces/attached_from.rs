//! The PID namespaces that containers were attached from. A process sees its own PID namespace and those inside it: to a cleaner in a container,
//! those of the runtime are hidden, and a network namespace that only their processes hold cannot be found.

use std::fs::{metadata, read_dir};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Once;

use nix::fcntl::OFlag;

use crate::file;
use crate::lock::FOLDER;

/// What the name of a record begins with, before the inode of the namespace. A record is a file that exists.
pub(crate) const RECORD: &str = "attached-from.";

/// Records the PID namespace of this process, which attaches a container; once in a process. Where the record cannot be made, such as where
/// `/run` is read-only, ADD goes on: other PID namespaces then take their view for complete.
pub fn record_caller() {
    static RECORDED: Once = Once::new();
    RECORDED.call_once(|| {
        if let Err(error) = record_in(Path::new(FOLDER)) {
            tracing::debug!(%error, "cannot record the PID namespace that containers are attached from");
        }
    });
}

fn record_in(folder: &Path) -> io::Result<()> {
    let path = folder.join(format!("{RECORD}{}", own()?));
    let how = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW;
    let create = || file::open(&path, how, 0o600);
    match create() {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            file::make_folders(folder)?;
            create().map(drop)
        }
        made => made.map(drop),
    }
}

fn own() -> io::Result<u64> {
    Ok(metadata("/proc/self/ns/pid")?.ino())
}

/// Whether this process sees the processes of all containers: it is in the first PID namespace, or no container was attached from another one.
pub(super) fn is_seen() -> bool {
    processes::is_first_namespace().is_ok_and(|is_first| is_first || is_only_one(Path::new(FOLDER)).unwrap_or_default())
}

fn is_only_one(folder: &Path) -> io::Result<bool> {
    let own = format!("{RECORD}{}", own()?);
    let entries = match read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        entries => entries?,
    };
    for entry in entries {
        let name = entry?.file_name();
        if name.as_encoded_bytes().starts_with(RECORD.as_bytes()) && name != *own {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::write;

    #[test]
    fn another_pid_namespace_that_attaches_hides_its_containers() {
        let run = tempfile::tempdir().unwrap();
        let folder = run.path().join("cni");
        assert!(is_only_one(&folder).unwrap(), "nothing was attached");
        record_in(&folder).unwrap();
        record_in(&folder).unwrap();
        write(folder.join("helper.4026531836"), "").unwrap();
        assert!(is_only_one(&folder).unwrap());
        write(folder.join("attached-from.1"), "").unwrap();
        assert!(!is_only_one(&folder).unwrap());
    }
}
