//! Where namespaces are mounted: in the caller's mount namespace, and in those of other processes, as some runtimes keep them.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The mount namespaces and the mounted network namespaces that were seen. A namespace that is mounted in many places, as each
/// copy of a node's mounts has it, is named once.
#[derive(Default)]
pub(super) struct Seen {
    /// The caller's user namespace. A process in another one may mount a file system, such as FUSE, on which
    /// each look waits for ever.
    user: Option<PathBuf>,
    /// The caller's network namespace. A process in another one is of a container, or of a node within the node,
    /// which has pods of its own.
    network: Option<PathBuf>,
    mount_namespaces: BTreeSet<PathBuf>,
    /// The roots of the mounts that were seen, such as `net:[4026531840]`.
    roots: BTreeSet<Vec<u8>>,
}

impl Seen {
    /// Where namespaces are mounted for the caller.
    pub(super) fn here(&mut self) -> std::io::Result<Vec<PathBuf>> {
        let own = Path::new("/proc/thread-self");
        self.user = fs::read_link(own.join("ns/user")).ok();
        self.network = fs::read_link(own.join("ns/net")).ok();
        self.mount_namespaces.extend(fs::read_link(own.join("ns/mnt")).ok());
        Ok(self.find(&fs::read(own.join("mountinfo"))?))
    }

    /// Where further namespaces are mounted for a process, `/proc/PID`, by way of its root: nothing if its mount namespace is
    /// one that was seen, or the process has a user or a network namespace of its own.
    pub(super) fn of(&mut self, process: &Path) -> Vec<PathBuf> {
        // The process may have ended.
        let Ok(namespace) = fs::read_link(process.join("ns/mnt")) else { return Vec::new() };
        let is_same = |name, own: &Option<PathBuf>| own.is_some() && fs::read_link(process.join(name)).ok() == *own;
        let is_callers = || is_same("ns/user", &self.user) && is_same("ns/net", &self.network);
        if self.mount_namespaces.contains(&namespace) || !is_callers() {
            return Vec::new();
        }
        self.mount_namespaces.insert(namespace);
        let places = self.find(&fs::read(process.join("mountinfo")).unwrap_or_default());
        places.iter().map(|place| process.join("root").join(place.strip_prefix("/").unwrap_or(place))).collect()
    }

    /// The places of a mountinfo where namespaces are that were not seen yet.
    ///
    /// proc_pid_mountinfo(5): the fourth word is the root, the fifth the place, in octal escapes. Places may be any bytes: a user
    /// who may mount anything chooses them.
    fn find(&mut self, mountinfo: &[u8]) -> Vec<PathBuf> {
        let mut mounted = |line: &[u8]| {
            let mut words = line.split(|byte| *byte == b' ').skip(3);
            let root = words.next().filter(|root| root.starts_with(b"net:["))?;
            self.roots.insert(root.to_owned()).then(|| words.next().map(unescaped))?
        };
        mountinfo.split(|byte| *byte == b'\n').filter_map(&mut mounted).collect()
    }
}

/// A path of mountinfo: space, tab, newline and backslash are three octal digits behind a backslash.
fn unescaped(path: &[u8]) -> PathBuf {
    let (mut bytes, mut rest) = (Vec::with_capacity(path.len()), path);
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| *first == b'\\').and_then(|digits| str::from_utf8(digits).ok());
        let escaped = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { after.get(3..).unwrap_or_default() } else { after };
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn a_place_of_mountinfo_is_a_path_of_any_bytes() {
        let cases: [(&[u8], &[u8]); 5] = [
            (b"/run/netns/a", b"/run/netns/a"),
            (br"/a\040b\134\011\012", b"/a b\\\t\n"),
            (b"/a\xff\xfe", b"/a\xff\xfe"),
            (br"/a\", br"/a\"),
            (br"/\999\04", br"/\999\04"),
        ];
        for (written, path) in cases {
            assert_eq!(unescaped(written).as_os_str(), OsStr::from_bytes(path));
        }
    }
}
