//! `/proc/sys/net`, read and written inside a namespace.
//!
//! `/proc/sys/net` shows the namespace of the thread that reads it. So the functions here act on the calling thread's
//! namespace; [`in_netns`] enters another.

use std::borrow::Cow;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::Mode;
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};

use crate::addr::Family;
use crate::error::{OpError, Result};
use crate::netns::Netns;
use crate::{file, text};

const ROOT: &str = "/proc/sys/net/";

/// Whether `/proc/sys/net` is there. Without it an absent key says nothing about the kernel.
#[must_use]
pub fn are_visible() -> bool {
    Path::new(ROOT).join("core").is_dir()
}

/// A key below `/proc/sys/net`. It is a path with slashes because interface names may contain dots.
///
/// The key contains the whole path, so that reading and writing allocate no memory: a thread in another namespace often
/// does nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key(String);

impl Key {
    /// A key from its parts, `["ipv6", "conf", "eth0", "accept_ra"]`.
    ///
    /// # Errors
    /// A part is empty, `.` or `..`, or contains a slash or NUL, so the path would leave its folder.
    pub fn new(parts: &[&str]) -> Result<Self> {
        for part in parts {
            let leaves = matches!(*part, "" | "." | "..") || part.contains(['/', '\0']);
            if leaves {
                let name = parts.join("/");
                let sentence = format!("{part:?} is no name of one file or folder");
                return Err(OpError::state("use", format!("sysctl {name:?}"), sentence));
            }
        }
        Ok(Self(format!("{ROOT}{}", parts.join("/"))))
    }

    /// A key of one link: `net/FAMILY/conf/LINK/NAME`.
    ///
    /// # Errors
    /// As [`Key::new`].
    pub fn of_link(family: &str, link: &str, name: &str) -> Result<Self> {
        Self::new(&[family, "conf", link, name])
    }

    fn path(&self) -> Cow<'_, Path> {
        match text::written(self.0.as_bytes()) {
            Cow::Borrowed(_) => Cow::Borrowed(Path::new(&self.0)),
            Cow::Owned(bytes) => Cow::Owned(OsString::from_vec(bytes).into()),
        }
    }

    fn object(&self) -> String {
        self.to_string()
    }

    /// The key as programs take it: `net/ipv6/conf/eth0/accept_ra`. Dots belong to names of links.
    #[must_use]
    pub fn name(&self) -> String {
        format!("net/{}", self.0.strip_prefix(ROOT).unwrap_or(&self.0))
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "sysctl {}", self.name())
    }
}

/// The reason for which links cannot have IPv6 addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoIpv6 {
    /// The kernel was started without IPv6.
    Kernel,
    /// The sysctl that is 1.
    Disabled(Key),
}

/// Whether a link of the calling thread's namespace can have IPv6 addresses: the one of this name, or, if it is missing, a new
/// one. `net/ipv6/conf/all/disable_ipv6` does not count: its value is that of the last write to all, and each link's own decides
/// (`addrconf_add_dev` of net/ipv6/addrconf.c).
///
/// # Errors
/// As [`find`].
pub fn find_ipv6_refusal(link: &str) -> Result<Option<NoIpv6>> {
    if !are_visible() {
        return Ok(None);
    }
    for name in [link, "default"] {
        let key = Key::of_link("ipv6", name, "disable_ipv6")?;
        if let Some(value) = find(&key)? {
            return Ok((value != "0").then_some(NoIpv6::Disabled(key)));
        }
    }
    Ok(Some(NoIpv6::Kernel))
}

/// Reads a value, without the newline.
///
/// # Errors
/// `ENOENT`: the key does not exist: the link is gone, or the kernel lacks the feature.
pub fn read(key: &Key) -> Result<String> {
    match std::fs::read_to_string(key.path()) {
        Ok(text) => Ok(text.trim_end().to_owned()),
        Err(error) => Err(OpError::io("read", key.object(), &error)),
    }
}

/// Reads a value if the key exists.
///
/// # Errors
/// As [`read`]; `ENOENT` is `None`.
pub fn find(key: &Key) -> Result<Option<String>> {
    match std::fs::read_to_string(key.path()) {
        Ok(text) => Ok(Some(text.trim_end().to_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(OpError::io("read", key.object(), &error)),
    }
}

/// The outcome when a key cannot get its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// An error.
    Always,
    /// An error unless the kernel has no such key: one without IPv6.
    WhereThere,
    /// The same, but a warning where `/proc/sys` is read-only or belongs to another user.
    WhereWritable,
    /// A warning.
    Wish,
}

/// Gives a key its value as [`ensure`], and judges a failure: what only is a wish may fail, with a warning that names key and
/// reason. All sysctls of plugins but those that a config lists are written this way.
///
/// # Errors
/// As [`ensure`], for what is needed.
pub fn set(key: &Key, value: &str, need: Need) -> Result<()> {
    match (ensure(key, value), need) {
        // Only where the kernel's values can be seen is an absent one a kernel without IPv6.
        (Err(error), Need::WhereThere | Need::WhereWritable | Need::Wish) if error.is_absent() && are_visible() => {
            Ok(())
        }
        (Err(error), Need::WhereWritable | Need::Wish) if need == Need::Wish || is_read_only(&error) => {
            tracing::warn!(%error, "going on without");
            Ok(())
        }
        (done, _) => done,
    }
}

fn is_read_only(error: &OpError) -> bool {
    matches!(error.os_errno(), Some(Errno::EROFS | Errno::EACCES | Errno::EPERM))
}

/// Writes a value unless the key has it, also where `/proc/sys` is read-only. Some writes (`forwarding`, `disable_ipv6`) retry in
/// a busy loop while another process changes links.
///
/// # Errors
/// `ENOENT` as for [`read`]; `EINVAL`: the kernel refuses the value; `EROFS`, `EACCES`: the key cannot be written, and has
/// another value.
pub fn ensure(key: &Key, value: &str) -> Result<()> {
    use std::os::unix::fs::FileExt;
    let failed = |error: &std::io::Error| OpError::io("write", format!("{} = {value}", key.object()), error);
    // Never create a file: where /proc/sys is a plain folder, a new file would look like success.
    let opened = file::open(key.path(), OFlag::O_RDWR, 0);
    let is_so = match &opened {
        Ok(file) => has(file, value),
        Err(_) => file::open(key.path(), OFlag::O_RDONLY, 0).and_then(|file| has(&file, value)),
    };
    match opened {
        _ if is_so.unwrap_or(false) => Ok(()),
        Err(error) => Err(failed(&error)),
        Ok(file) => {
            tracing::debug!("write {} = {value}", key.object());
            // The kernel takes a value at the start of the file only.
            file.write_all_at(value.as_bytes(), 0).map_err(|error| failed(&error))
        }
    }
}

/// Whether a key has a value. One that does not exist has none.
///
/// # Errors
/// As [`read`].
pub fn is(key: &Key, value: &str) -> Result<bool> {
    match file::open(key.path(), OFlag::O_RDONLY, 0).and_then(|file| has(&file, value)) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        read => read.map_err(|error| OpError::io("read", key.object(), &error)),
    }
}

fn has(mut file: &std::fs::File, value: &str) -> std::io::Result<bool> {
    use std::io::Read;
    let mut text = [0; 64];
    let length = file.read(&mut text)?;
    Ok(text.get(..length).is_some_and(|text| text.trim_ascii_end() == value.as_bytes()))
}

/// Reads a value and writes another, by one file that is opened without following any link out of `/proc/sys/net`: for keys
/// that a config names. A key that has the value is not written. `None`: the key can be written only, and was.
///
/// # Errors
/// As [`ensure`]; `ELOOP`, `EXDEV`: a link is in the way.
pub fn swap(key: &Key, value: &str) -> Result<Option<String>> {
    use std::os::unix::fs::FileExt;
    let object = || format!("{} = {value}", key.object());
    let failed = |error: &std::io::Error| OpError::io("write", object(), error);
    let write = |file: &std::fs::File| {
        tracing::debug!("write {} = {value}", key.object());
        // The kernel takes a value at the start of the file only.
        file.write_all_at(value.as_bytes(), 0).map_err(|error| failed(&error))
    };
    let file = match open_beneath(key, OFlag::O_RDWR) {
        Err(Errno::EACCES) => {
            let file = open_beneath(key, OFlag::O_WRONLY).map_err(|errno| OpError::errno("write", object(), errno))?;
            return write(&file).map(|()| None);
        }
        Err(Errno::EROFS) => {
            return read_strictly(key).and_then(|old| match old {
                Some(old) if old == value => Ok(Some(old)),
                Some(_) | None => Err(OpError::errno("write", object(), Errno::EROFS)),
            });
        }
        opened => opened.map_err(|errno| OpError::errno("write", object(), errno))?,
    };
    let old = text_of(&file).map_err(|error| failed(&error))?;
    if old != value {
        write(&file)?;
    }
    Ok(Some(old))
}

/// Finds out whether [`swap`] would find the key, and changes nothing.
///
/// # Errors
/// As [`swap`]'s: `ENOENT`, `ELOOP`, `EXDEV`.
pub fn look_before_swap(key: &Key, value: &str) -> Result<()> {
    let found = open_beneath(key, OFlag::O_PATH);
    found.map(drop).map_err(|errno| OpError::errno("write", format!("{} = {value}", key.object()), errno))
}

/// Reads a value without following a link, as [`swap`]. `None`: the key can be written only.
///
/// # Errors
/// As [`read`]; `ELOOP`, `EXDEV`: a link is in the way.
pub fn read_strictly(key: &Key) -> Result<Option<String>> {
    match open_beneath(key, OFlag::O_RDONLY) {
        Ok(file) => text_of(&file).map(Some).map_err(|error| OpError::io("read", key.object(), &error)),
        Err(Errno::EACCES) => Ok(None),
        Err(errno) => Err(OpError::errno("read", key.object(), errno)),
    }
}

fn text_of(mut file: &std::fs::File) -> std::io::Result<String> {
    use std::io::Read;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(text.trim_end().to_owned())
}

/// Opens the file of a key, which has to be the kernel's own.
fn open_beneath(key: &Key, flags: OFlag) -> std::result::Result<std::fs::File, Errno> {
    let root = nix::fcntl::open(ROOT, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
    if fstatfs(&root)?.filesystem_type() != PROC_SUPER_MAGIC {
        return Err(Errno::ENOENT);
    }
    let flags = flags | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    let below = key.0.strip_prefix(ROOT).unwrap_or_default();
    let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
    let opened = match openat2(&root, below, how) {
        // Before Linux 5.6; a container runtime's filter says EPERM of a call that it does not know.
        Err(Errno::ENOSYS | Errno::EPERM) => nix::fcntl::openat(&root, below, flags, Mode::empty()),
        opened => opened,
    };
    opened.map(Into::into)
}

/// Runs `work` on a thread that sees `/proc/sys/net` of `netns`.
///
/// # Errors
/// As [`Netns::run`].
pub fn in_netns<T: Send>(netns: &Netns, work: impl FnOnce() -> T + Send) -> Result<T> {
    netns.run(work)
}

/// The sysctl by which the node forwards packets of a family between links.
///
/// # Errors
/// None for these keys.
pub fn forwarding(family: Family) -> Result<Key> {
    match family {
        Family::V4 => Key::new(&["ipv4", "ip_forward"]),
        Family::V6 => Key::new(&["ipv6", "conf", "all", "forwarding"]),
    }
}

/// Turns on forwarding between links.
///
/// # Errors
/// As [`ensure`]; `ENOENT` for IPv6 on a kernel without it.
pub fn forward(family: Family) -> Result<()> {
    ensure(&forwarding(family)?, "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stay_in_their_folder() {
        for parts in [
            &["ipv4", "..", "kernel"][..],
            &["ipv4", "conf", "", "x"],
            &["ipv4", "conf/eth0"],
            &["ipv4", "a\0b"],
            &["."],
        ] {
            assert!(Key::new(parts).is_err(), "{parts:?}");
        }
        let dotted = Key::of_link("ipv4", "eth0.100", "arp_notify").unwrap();
        assert_eq!(dotted.to_string(), "sysctl net/ipv4/conf/eth0.100/arp_notify");
    }

    #[test]
    fn ensure_does_not_write_a_value_that_the_key_has() {
        // The kernel refuses to write this key; the error appears only on an attempt.
        let fixed = Key::new(&["ipv4", "tcp_available_congestion_control"]).unwrap();
        let value = read(&fixed).unwrap();
        ensure(&fixed, &value).unwrap();
        ensure(&fixed, "none").unwrap_err();
        let key = Key::new(&["ipv4", "ip_default_ttl"]).unwrap();
        let netns = Netns::create().unwrap();
        let after = in_netns(&netns, || ensure(&key, "77").and_then(|()| read(&key))).unwrap();
        assert_eq!(after.unwrap(), "77");
    }

    #[test]
    fn swap_returns_the_old_value_and_writes_from_the_start() {
        let netns = Netns::create().unwrap();
        let key = Key::new(&["ipv4", "ip_local_port_range"]).unwrap();
        let all = netns.run(|| (swap(&key, "2000 3000"), swap(&key, "1024\t999999"), read_strictly(&key))).unwrap();
        assert_eq!(all.0.unwrap().unwrap(), "32768\t60999");
        assert_eq!(all.1.unwrap_err().os_errno(), Some(Errno::EINVAL));
        assert_eq!(all.2.unwrap().unwrap(), "2000\t3000");
        let written_only = Key::new(&["ipv4", "route", "flush"]).unwrap();
        assert_eq!(netns.run(|| swap(&written_only, "1")).unwrap().unwrap(), None);
        let absent = Key::of_link("ipv4", "no-such", "arp_notify").unwrap();
        assert!(swap(&absent, "1").unwrap_err().is_absent());
        let look =
            || (look_before_swap(&absent, "1"), look_before_swap(&key, "1"), look_before_swap(&written_only, "1"));
        let seen = netns.run(look).unwrap();
        assert_eq!(seen.0.unwrap_err().to_string(), swap(&absent, "1").unwrap_err().to_string());
        assert!(seen.1.is_ok() && seen.2.is_ok());
    }

    #[test]
    fn a_link_out_of_proc_sys_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().to_owned();
        let victim = folder.join("victim");
        std::fs::write(&victim, "safe").unwrap();
        std::os::unix::fs::symlink(&victim, folder.join("somaxconn")).unwrap();
        let key = Key::new(&["core", "somaxconn"]).unwrap();
        let error = std::thread::spawn(move || {
            #[expect(clippy::disallowed_methods, reason = "the mount is for this thread alone")]
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS | nix::sched::CloneFlags::CLONE_FS).unwrap();
            let mount = |source: Option<&Path>, target: &str, flags| {
                nix::mount::mount(source, target, None::<&str>, flags, None::<&str>).unwrap();
            };
            mount(None, "/", nix::mount::MsFlags::MS_REC | nix::mount::MsFlags::MS_PRIVATE);
            mount(Some(folder.as_path()), "/proc/sys/net/core", nix::mount::MsFlags::MS_BIND);
            swap(&key, "followed").unwrap_err()
        });
        assert_eq!(error.join().unwrap().os_errno(), Some(Errno::ELOOP));
        assert_eq!(std::fs::read_to_string(victim).unwrap(), "safe");
    }
}
