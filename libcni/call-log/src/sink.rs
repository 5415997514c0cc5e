//! Where records go: the journal, a file, or stderr. What cannot be written at once is dropped.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::{Mode, SFlag, fstat, fstatat};
use nix::unistd::geteuid;

use crate::Record;
use crate::setting::warn;

/// Where the journal listens (systemd.io/JOURNAL_NATIVE_PROTOCOL).
const JOURNAL: &str = "/run/systemd/journal/socket";

/// Where records go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sink {
    /// Nowhere, and nothing that has lower precedence is asked.
    Off,
    /// The journal, by its native protocol.
    Journal,
    /// stderr, a line of JSON for each record.
    Stderr,
    /// The end of this file, a line of JSON for each record.
    File(PathBuf),
}

impl Sink {
    /// Returns whether records are wanted.
    pub fn is_on(&self) -> bool {
        *self != Self::Off
    }

    /// Writes a record, if that is possible at once. An administrator's mistake, such as a folder that others can write to,
    /// is reported on stderr; a journal that is not there, or does not read, is not.
    pub fn write(&self, record: &Record) {
        match self {
            Self::Off => {}
            Self::Journal => drop(send(&datagram(&record.fields()), Path::new(JOURNAL))),
            // If stderr is closed, that cannot be reported.
            Self::Stderr => drop(io::stderr().write_all(record.to_line().as_bytes())),
            Self::File(path) => {
                if let Err(why) = append(path, &record.to_line()) {
                    warn(&path.display().to_string(), &why);
                }
            }
        }
    }
}

/// The fields in the journal's form: `KEY=value`, or, for a value of several lines, the key, the length as a 64-bit number,
/// the lowest byte first, and the bytes.
fn datagram(fields: &[(&str, String)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (key, value) in fields {
        bytes.extend_from_slice(key.as_bytes());
        match value.contains('\n') {
            true => {
                bytes.push(b'\n');
                bytes.extend_from_slice(&(value.len() as u64).to_le_bytes());
            }
            false => bytes.push(b'='),
        }
        bytes.extend_from_slice(value.as_bytes());
        bytes.push(b'\n');
    }
    bytes
}

/// Sends a datagram without waiting: a queue that is full refuses it.
fn send(bytes: &[u8], to: &Path) -> io::Result<usize> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.send_to(bytes, to)
}

/// Appends a line in one write, so that lines of processes that write at the same time do not mix.
fn append(path: &Path, line: &str) -> Result<(), String> {
    let file = open(path)?;
    match File::from(file).write(line.as_bytes()) {
        Ok(count) if count == line.len() => Ok(()),
        Ok(_) => Err("the disk is full".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Opens the file for appending, and creates it if need be, with mode 0600.
///
/// No part of the path may be a symbolic link, so the folder that was checked is the one that the path names; neither the
/// folder nor the file may be another user's, or writable by one. A pipe or a device is refused, and opening one does not
/// wait.
fn open(path: &Path) -> Result<OwnedFd, String> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err("it names no file".to_owned());
    };
    let folder = open_folder(parent).map_err(|errno| match errno {
        Errno::ELOOP => "a part of its path is a symbolic link".to_owned(),
        Errno::ENOENT => format!("its folder does not exist: install -d -m 700 {}", parent.display()),
        errno => format!("its folder cannot be opened: {errno}"),
    })?;
    refuse_others(&folder, SFlag::S_IFDIR).map_err(|why| ["its folder ", why].concat())?;
    let flags = OFlag::O_WRONLY
        | OFlag::O_APPEND
        | OFlag::O_CREAT
        | OFlag::O_NOFOLLOW
        | OFlag::O_NONBLOCK
        | OFlag::O_NOCTTY
        | OFlag::O_CLOEXEC;
    let file = openat(&folder, name, flags, Mode::S_IRUSR | Mode::S_IWUSR).map_err(|errno| match errno {
        Errno::ELOOP => "it is a symbolic link".to_owned(),
        errno => errno.to_string(),
    })?;
    refuse_others(&file, SFlag::S_IFREG).map_err(|why| ["it ", why].concat())?;
    Ok(file)
}

/// Opens a folder; `ELOOP` if a part of the path is a symbolic link.
fn open_folder(path: &Path) -> nix::Result<OwnedFd> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
    match openat2(AT_FDCWD, path, how) {
        // Linux before 5.6; a container runtime's filter says EPERM of a call that it does not know.
        Err(Errno::ENOSYS | Errno::EPERM) => open_folder_by_parts(path),
        opened => opened,
    }
}

/// Opens a folder as [`open_folder`] does, part by part.
fn open_folder_by_parts(path: &Path) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    let start = if path.is_absolute() { "/" } else { "." };
    let start = openat(AT_FDCWD, start, flags, Mode::empty())?;
    path.components().try_fold(start, |folder, part| match part {
        Component::RootDir | Component::CurDir | Component::Prefix(_) => Ok(folder),
        Component::ParentDir | Component::Normal(_) => {
            openat(&folder, part.as_os_str(), flags, Mode::empty()).map_err(|errno| match errno {
                // O_DIRECTORY reports a symbolic link so.
                Errno::ENOTDIR if is_link(&folder, part) => Errno::ELOOP,
                errno => errno,
            })
        }
    })
}

fn is_link(folder: &OwnedFd, name: Component<'_>) -> bool {
    let stat = fstatat(folder, name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW);
    stat.is_ok_and(|stat| stat.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFLNK.bits())
}

/// Refuses a file of another kind, and one that a user other than root and this one owns or can write.
pub(crate) fn refuse_others(file: impl AsFd, kind: SFlag) -> Result<(), &'static str> {
    let stat = fstat(file).map_err(Errno::desc)?;
    let is_own = stat.st_uid == geteuid().as_raw() || stat.st_uid == 0;
    match stat.st_mode {
        mode if mode & SFlag::S_IFMT.bits() != kind.bits() => Err("is no plain file"),
        _ if !is_own => Err("belongs to another user"),
        mode if mode & 0o022 != 0 => Err("can be written to by others: chmod go-w"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn chmod(path: &Path, mode: u32) {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_file_of_ours_in_a_folder_of_ours_is_appended_to() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("calls.log");
        assert_eq!((append(&path, "a\n"), append(&path, "b\n")), (Ok(()), Ok(())));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a\nb\n");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, 0o600);
    }

    /// Files and folders that others can replace, read or write are refused, and left as they are.
    #[test]
    fn files_and_folders_of_others_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let says = |path: &Path| append(path, "a\n").unwrap_err();
        std::fs::create_dir(at("open")).unwrap();
        chmod(&at("open"), 0o770);
        assert_eq!(says(&at("open/log")), "its folder can be written to by others: chmod go-w");
        assert!(!at("open/log").exists());
        chmod(&at("open"), 0o1777);
        assert_eq!(says(&at("open/log")), "its folder can be written to by others: chmod go-w");
        std::fs::write(at("wide"), "").unwrap();
        chmod(&at("wide"), 0o620);
        assert_eq!(says(&at("wide")), "it can be written to by others: chmod go-w");
        std::fs::write(at("target"), "").unwrap();
        symlink("target", at("link")).unwrap();
        assert_eq!(says(&at("link")), "it is a symbolic link");
        symlink(".", at("here")).unwrap();
        assert_eq!(says(&at("here/log")), "a part of its path is a symbolic link");
        nix::unistd::mkfifo(&at("pipe"), Mode::S_IRWXU).unwrap();
        assert!(says(&at("pipe")).contains("ENXIO"));
        let _reader = File::options().read(true).write(true).open(at("pipe")).unwrap();
        assert_eq!(says(&at("pipe")), "it is no plain file");
        assert!(says(&at("none/log")).contains("its folder does not exist: install -d -m 700 "));
        assert_eq!(std::fs::read_to_string(at("target")).unwrap(), "");
    }

    #[test]
    fn values_of_several_lines_go_in_the_journals_binary_form() {
        let bytes = datagram(&[("A", "one".to_owned()), ("B", "x\nCNI_RESULT=ok".to_owned())]);
        assert_eq!(bytes, b"A=one\nB\n\x0f\0\0\0\0\0\0\0x\nCNI_RESULT=ok\n");
    }

    /// A journal that does not read takes what fits into its queue; the next record is dropped at once.
    #[test]
    fn a_full_journal_drops_the_record() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        assert_eq!(send(b"x", &path).unwrap_err().kind(), io::ErrorKind::NotFound);
        let _journal = UnixDatagram::bind(&path).unwrap();
        let refused = (0..100_000).find_map(|_| send(b"x", &path).err());
        assert_eq!(refused.unwrap().kind(), io::ErrorKind::WouldBlock);
    }
}
