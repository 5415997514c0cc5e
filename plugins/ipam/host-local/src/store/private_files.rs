//! Private files about a store: its index, and recently released addresses.
//!
//! The private files are not in the store's folder, where audits and scripts take each file for an address, nor beside it, where
//! they take each folder for a network; but in a folder that only this plugin's user can write. The private files are useless
//! after a reboot, and may be deleted at any time. Their names are the folder's device and inode, so that every path to
//! a store leads to the same private files.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

pub(crate) const FOLDER: &str = "/run/cni/host-local";

/// The private files about one store.
#[derive(Debug)]
pub(crate) struct PrivateFiles {
    folder: PathBuf,
    store: String,
    /// The folder, once it was opened and found to be writable by this user only.
    opened: std::cell::OnceCell<File>,
}

impl PrivateFiles {
    pub(crate) fn about(dir: &File, folder: &Path) -> io::Result<Self> {
        let stat = dir.metadata()?;
        let store = format!("{:x}-{:x}", stat.dev(), stat.ino());
        Ok(Self { folder: folder.to_owned(), store, opened: std::cell::OnceCell::new() })
    }

    pub(crate) fn read(&self, name: &str) -> io::Result<File> {
        self.open(name, OFlag::O_RDONLY)
    }

    /// Opens the file `name` for reading and writing, making it and the folder if they are missing.
    pub(crate) fn write(&self, name: &str) -> io::Result<File> {
        if self.opened.get().is_none() {
            // All users can read `/run/cni`, as other programs keep sockets there.
            netops::file::make_folders(self.folder.parent().unwrap_or(&self.folder))?;
            match DirBuilder::new().mode(0o700).create(&self.folder) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        self.open(name, OFlag::O_RDWR | OFlag::O_CREAT)
    }

    fn open(&self, name: &str, how: OFlag) -> io::Result<File> {
        let folder = match self.opened.get() {
            Some(folder) => folder,
            None => {
                let folder = open_own_folder(&self.folder)?;
                self.opened.get_or_init(|| folder)
            }
        };
        let flags = how | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let file = File::from(openat(folder, self.file_name(name).as_str(), flags, Mode::from_bits_retain(0o600))?);
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(io::Error::other("it is no regular file")),
        }
    }

    fn file_name(&self, name: &str) -> String {
        format!("{}.{name}", self.store)
    }

    #[cfg(test)]
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(self.file_name(name))
    }
}

/// Opens a folder into which no other user can put anything.
fn open_own_folder(path: &Path) -> io::Result<File> {
    let folder = netops::file::open(path, OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW, 0)?;
    let stat = folder.metadata()?;
    match stat.uid() == nix::unistd::geteuid().as_raw() && stat.mode() & 0o022 == 0 {
        true => Ok(folder),
        false => Err(io::Error::other(format!("others can write {}: give it to root, with mode 0700", path.display()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_folder_that_others_can_write_is_not_believed() {
        let data = tempfile::tempdir().unwrap();
        let folder = data.path().join("a/b");
        let about = || PrivateFiles::about(&File::open(data.path()).unwrap(), &folder).unwrap();
        assert_eq!(about().read("index").unwrap_err().kind(), io::ErrorKind::NotFound);
        about().write("index").unwrap();
        about().read("index").unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
        fs::set_permissions(&folder, PermissionsExt::from_mode(0o720)).unwrap();
        about().read("index").unwrap_err();
        about().write("index").unwrap_err();
    }

    #[test]
    fn a_link_and_a_fifo_are_no_notes() {
        let data = tempfile::tempdir().unwrap();
        let private_files = PrivateFiles::about(&File::open(data.path()).unwrap(), &data.path().join("notes")).unwrap();
        private_files.write("index").unwrap();
        nix::unistd::mkfifo(&private_files.path("fifo"), Mode::S_IRWXU).unwrap();
        std::os::unix::fs::symlink(private_files.path("index"), private_files.path("link")).unwrap();
        for name in ["fifo", "link"] {
            private_files.read(name).unwrap_err();
            private_files.write(name).unwrap_err();
        }
    }
}
