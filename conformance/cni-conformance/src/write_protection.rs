//! Write protection: a trial may write to its own node's folders and kernel objects, and to nothing of the machine.
//!
//! A plugin that is tested may write where it likes, and in a user namespace it is still its user. So every mount of
//! the machine is for reading only, and where programs put what they soon forget there are empty folders.

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Folders for files that are soon forgotten: empty for each trial.
pub(crate) const SCRATCH: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];

/// The kernel's error for a write that is stopped, as C's and Go's libraries word it; in lower case.
const REFUSAL: &str = "read-only file system";

/// Makes the mounts of this process, which have to be private, read-only. What is mounted later can be written to.
/// Errors: the kernel's error. A mount that this process cannot reach is no error: nor can a plugin.
pub(crate) fn protect() -> io::Result<()> {
    for (place, flags) in mounts(&fs::read("/proc/self/mountinfo")?) {
        // Files below /proc belong to namespaces, or are guarded by capabilities over the machine's own.
        if place.starts_with("/proc") {
            continue;
        }
        close(&place, flags)?;
    }
    for folder in SCRATCH.map(Path::new).into_iter().filter(|folder| folder.is_dir()) {
        lay_empty(folder, "mode=1777").map_err(|errno| refused(folder, "lay an empty folder over it", errno))?;
    }
    Ok(())
}

/// Makes a mount read-only, if it can be reached.
fn close(place: &Path, flags: MsFlags) -> io::Result<()> {
    let none = None::<&str>;
    let flags = flags | MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
    match mount(none, place, none, flags, none) {
        // Under another mount, or behind a folder that is closed.
        Ok(()) | Err(Errno::EINVAL | Errno::ENOENT | Errno::EACCES | Errno::ENOTDIR) => Ok(()),
        Err(errno) => Err(refused(place, "make it read-only", errno)),
    }
}

/// Makes read-only what a node has laid anew, to make its own folders on a machine without them. Else a plugin could write beside
/// `/var/lib/cni` on machines that do not have it, and only there.
/// Errors: the kernel's error.
pub(crate) fn close_above(folders: &[&str]) -> io::Result<()> {
    let above: Vec<_> = folders.iter().filter_map(|folder| Path::new(folder).parent()).collect();
    let laid =
        mounts(&fs::read("/proc/self/mountinfo")?).into_iter().filter(|(place, _)| above.contains(&place.as_path()));
    laid.filter(|(place, _)| place != Path::new("/")).try_for_each(|(place, flags)| close(&place, flags))
}

/// Lays an empty folder over one that is there.
pub(crate) fn lay_empty(folder: &Path, options: &str) -> nix::Result<()> {
    mount(Some("tmpfs"), folder, Some("tmpfs"), MsFlags::MS_NOSUID | MsFlags::MS_NODEV, Some(options))
}

/// Makes a folder of the trial's own, empty and writable, whether or not the machine has one there.
///
/// Without a folder of that name, the nearest one above is mounted anew, with all that was in it.
/// Errors: the kernel's error, and the path that it is about.
pub(crate) fn own_folder(folder: &Path) -> io::Result<()> {
    if !folder.is_dir() {
        let above = folder.ancestors().skip(1).find(|above| above.is_dir()).unwrap_or(Path::new("/"));
        lay_anew(above).map_err(|error| io::Error::other(format!("cannot lay {} anew: {error}", above.display())))?;
        fs::create_dir_all(folder)?;
        close(above, MsFlags::MS_NOSUID | MsFlags::MS_NODEV)?;
    }
    lay_empty(folder, "mode=0755").map_err(|errno| refused(folder, "lay an empty folder over it", errno))
}

/// Lays a folder to which can be added over one that is there; what that has is in it too, as it was.
fn lay_anew(folder: &Path) -> io::Result<()> {
    let none = None::<&str>;
    let was = PathBuf::from(SCRATCH[0]).join("cni-conformance-was");
    fs::create_dir_all(&was)?;
    mount(Some(folder), &was, none, MsFlags::MS_BIND | MsFlags::MS_REC, none)?;
    lay_empty(folder, "mode=0755")?;
    for entry in fs::read_dir(&was)? {
        let (entry, kind) = entry.and_then(|entry| Ok((entry.file_name(), entry.file_type()?)))?;
        let (from, to) = (was.join(&entry), folder.join(&entry));
        if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(from)?, to)?;
            continue;
        }
        if kind.is_dir() { fs::create_dir(&to) } else { File::create(&to).map(drop) }?;
        mount(Some(&from), &to, none, MsFlags::MS_BIND | MsFlags::MS_REC, none)?;
    }
    umount2(&was, MntFlags::MNT_DETACH)?;
    fs::remove_dir(&was)
}

fn refused(place: &Path, what: &str, errno: Errno) -> io::Error {
    io::Error::other(format!("cannot keep {} from harm: {what}: {errno}", place.display()))
}

/// Whether a plugin was refused: it may not write somewhere.
pub(crate) fn has_stopped(text: &str) -> bool {
    text.to_ascii_lowercase().contains(REFUSAL)
}

/// Places of mounts and the flags that a remount has to repeat, lowest first (proc_pid_mountinfo(5)). Flags of
/// access times stay as they are if none is given (mount(2)).
pub(crate) fn mounts(mountinfo: &[u8]) -> Vec<(PathBuf, MsFlags)> {
    let mount = |line: &[u8]| {
        let mut fields = line.split(|byte| *byte == b' ');
        let (place, options) = (fields.nth(4)?, fields.next()?);
        let flag = |option: &[u8]| match option {
            b"nosuid" => MsFlags::MS_NOSUID,
            b"nodev" => MsFlags::MS_NODEV,
            b"noexec" => MsFlags::MS_NOEXEC,
            _ => MsFlags::empty(),
        };
        let flags = options.split(|byte| *byte == b',').map(flag).collect();
        Some((PathBuf::from(OsString::from_vec(unescaped(place))), flags))
    };
    mountinfo.split(|byte| *byte == b'\n').filter_map(mount).collect()
}

/// Space, tab, line break and backslash stand there as a backslash and three octal digits.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                plain.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                plain.push(*first);
                rest = after;
            }
        }
    }
    plain
}
