//! Trials of what the kernel can do, once a boot.
//!
//! A runtime asks a plugin every few seconds whether it could serve, and a trial makes and deletes objects, which takes the
//! kernel's lock of all links. The kernel's answer is the same until the next boot, so a trial that succeeded leaves a mark.

use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::libc::{O_DIRECTORY, O_NOFOLLOW};
use nix::unistd::geteuid;

use crate::boot::Boot;
use crate::file;

/// The folder of marks, a file for each trial. It is root's, and may be deleted at any time.
const FOLDER: &str = "/run/cni/trials";

/// A boot's number and a kernel's release.
const BYTES_MAX: u64 = 256;

/// Whether this process leaves no mark.
static IS_UNMARKED: AtomicBool = AtomicBool::new(false);

/// From now on this process leaves no mark of a trial: for programs that change nothing.
pub fn leave_no_marks() {
    IS_UNMARKED.store(true, Ordering::Relaxed);
}

/// Makes a trial, unless the one of this name has succeeded since the boot. The name says all that the outcome depends on: it
/// has letters, digits and `-` only.
///
/// # Errors
/// The errors of `trial`.
pub fn once<E>(name: &str, trial: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
    once_in(Path::new(FOLDER), name, trial)
}

fn once_in<E>(folder: &Path, name: &str, trial: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
    let Some(running) = running().filter(|_| geteuid().is_root()) else { return trial() };
    if is_marked(folder, name, &running) {
        return Ok(());
    }
    trial()?;
    if IS_UNMARKED.load(Ordering::Relaxed) {
        return Ok(());
    }
    if let Err(error) = mark(folder, name, &running) {
        tracing::debug!(%error, name, "the next call makes this trial again");
    }
    Ok(())
}

/// The content of a mark.
fn running() -> Option<String> {
    let boot = Boot::read().ok()?;
    let release = file::read_small("/proc/sys/kernel/osrelease").ok()?;
    Some(format!("{} {}\n", boot.id, release.trim()))
}

/// A mark that is damaged, a link, another user's or of another boot is none.
fn is_marked(folder: &Path, name: &str, running: &str) -> bool {
    is_own(folder) && file::read_plain(&folder.join(name), BYTES_MAX).is_ok_and(|found| found == running.as_bytes())
}

fn mark(folder: &Path, name: &str, running: &str) -> io::Result<()> {
    // All users can read `/run/cni`, as other programs keep sockets there.
    file::make_folders(folder.parent().unwrap_or(folder))?;
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    if !is_own(folder) {
        return Err(io::Error::other("another user can write the folder"));
    }
    file::replace(&folder.join(name), running.as_bytes(), 0o600).map_err(io::Error::other)
}

/// Whether no other user can put anything into the folder.
fn is_own(folder: &Path) -> bool {
    let opened = OpenOptions::new().read(true).custom_flags(O_DIRECTORY | O_NOFOLLOW).open(folder);
    let about = opened.and_then(|folder| folder.metadata());
    about.is_ok_and(|about| about.uid() == geteuid().as_raw() && about.mode() & 0o022 == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// The number of calls in the trial, the second after `between`.
    fn trials(folder: &Path, between: impl FnOnce()) -> usize {
        let made = Cell::new(0);
        let trial = || {
            made.set(made.get() + 1);
            Ok::<_, ()>(())
        };
        once_in(folder, "veth", trial).unwrap();
        between();
        once_in(folder, "veth", trial).unwrap();
        made.get()
    }

    #[test]
    fn a_mark_that_is_damaged_or_of_another_boot_or_a_link_does_not_count() {
        type Spoil = fn(&Path);
        let spoilt: [(&str, Spoil); 4] = [
            ("damaged", |mark| fs::write(mark, "x").unwrap()),
            ("boot", |mark| {
                let text = fs::read_to_string(mark).unwrap();
                fs::write(mark, text.replacen(&text[..1], if text.starts_with('0') { "1" } else { "0" }, 1)).unwrap();
            }),
            ("link", |mark| {
                let real = mark.with_extension("real");
                fs::rename(mark, &real).unwrap();
                symlink(real, mark).unwrap();
            }),
            ("fifo", |mark| {
                fs::remove_file(mark).unwrap();
                nix::unistd::mkfifo(mark, nix::sys::stat::Mode::S_IRWXU).unwrap();
            }),
        ];
        for (name, spoil) in spoilt {
            let dir = tempfile::tempdir().unwrap();
            let folder = dir.path().join("trials");
            assert_eq!(trials(&folder, || spoil(&folder.join("veth"))), 2, "{name}");
        }
    }

    #[test]
    fn a_folder_that_others_can_write_has_no_marks() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("trials");
        assert_eq!(trials(&folder, || fs::set_permissions(&folder, PermissionsExt::from_mode(0o777)).unwrap()), 2);
    }
}
