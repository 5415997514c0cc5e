//! The addresses in all namespaces but the node's own: those that the node's links lead to, and those of processes and
//! mounts, as macvlan, ipvlan and host-device leave no link on the node.
//!
//! A link there that a plugin has made has the mark of its attachment as alias, wherever the address is: a virtual machine
//! behind it may have it. A namespace may have no address although a virtual machine in it has one: then the node's veth that leads there says
//! which addresses may be behind it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{metadata, read_dir};
use std::net::IpAddr;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::{fs, io};

use ipnetwork::IpNetwork;
use nix::fcntl::OFlag;

use crate::error::{Errno, Result};
use crate::link::{self, Kind, Link};
use crate::lock::FOLDER;
use crate::netns::NetnsError;
use crate::{Kernel, Netns, addr, file, route, veth_peer};

/// The addresses and marks found in all namespaces.
#[derive(Debug)]
pub struct AllNamespaces {
    addresses: BTreeMap<IpAddr, Aliases>,
    /// The aliases of the node's links that lead to a namespace that exists.
    leading: BTreeSet<String>,
    /// The aliases of links in these namespaces, but those of veths: their host ends are seen.
    marks: BTreeSet<String>,
    /// The addresses behind veths without an alias that lead to a namespace without addresses.
    behind: Vec<IpNetwork>,
    /// The namespaces that have a name in `/proc`, by device and inode.
    named: BTreeSet<[u64; 2]>,
    /// Whether the process may enter a namespace of its own user namespace.
    may_enter: bool,
    /// Whether a namespace could not be looked at that plugins of this node may have worked in.
    is_partial: bool,
}

/// The aliases of the node's links that lead to a namespace; `None`: one has no alias, or none leads there.
type Aliases = Option<BTreeSet<String>>;

/// The addresses and marks of one namespace.
struct NamespaceFacts {
    addresses: Vec<IpAddr>,
    /// The aliases of the node's links that lead there.
    aliases: Aliases,
    /// The aliases of its own links.
    marks: Vec<String>,
}

impl AllNamespaces {
    /// Looks through all of them. The cost grows with the number of processes: not for the hot path.
    #[must_use]
    pub fn read() -> Self {
        let (addresses, behind, may_enter) = (BTreeMap::new(), Vec::new(), may_enter());
        let (leading, marks) = (BTreeSet::new(), BTreeSet::new());
        let named = BTreeSet::new();
        let is_partial = !is_seen();
        if is_partial {
            tracing::warn!(
                "not all containers can be seen: some were attached from another PID namespace; call this in the runtime's"
            );
        }
        let mut places = Self { addresses, leading, marks, behind, named, may_enter, is_partial };
        match (places.linked(), places.entered()) {
            (Ok(linked), Ok(entered)) => linked.into_iter().chain(entered).for_each(|found| places.take(found)),
            (linked, entered) => {
                places.is_partial = true;
                linked.into_iter().chain(entered).flatten().for_each(|found| places.take(found));
            }
        }
        places
    }

    fn take(&mut self, found: Result<NamespaceFacts>) {
        match found {
            Ok(NamespaceFacts { addresses, aliases, marks }) => {
                self.marks.extend(marks);
                addresses.into_iter().for_each(|address| self.add(address, &aliases));
            }
            // The namespace has ended meanwhile.
            Err(error) if error.os_errno() == Some(Errno::EINVAL) => {}
            Err(error) if matches!(error.os_errno(), Some(Errno::EACCES | Errno::EPERM)) => self.is_refused(),
            Err(error) => {
                tracing::warn!(%error, "cannot look at the addresses of a namespace");
                self.is_partial = true;
            }
        }
    }

    /// A namespace cannot be entered: that of another user, where no plugin's caller has been who may enter this user's; or this
    /// process may enter none at all.
    fn is_refused(&mut self) {
        self.is_partial |= !self.may_enter;
    }

    fn add(&mut self, address: IpAddr, aliases: &Aliases) {
        let all = self.addresses.entry(address).or_insert_with(|| Some(BTreeSet::new()));
        match (&mut *all, aliases) {
            (Some(all), Some(aliases)) => all.extend(aliases.iter().cloned()),
            _ => *all = None,
        }
    }

    /// The aliases of the node's links that lead to the namespaces with this address; `None` where that says not for whom all
    /// of them are.
    #[must_use]
    pub fn find_aliases(&self, address: IpAddr) -> Option<&BTreeSet<String>> {
        self.addresses.get(&address).and_then(Option::as_ref).filter(|_| !self.is_partial)
    }

    /// Whether a namespace has one of these addresses; `None`: it was not found, but not all namespaces could be searched, or a
    /// virtual machine behind a veth without an alias may have it.
    #[must_use]
    pub fn find(&self, addresses: &[IpAddr]) -> Option<bool> {
        match addresses.iter().any(|address| self.addresses.contains_key(address)) {
            true => Some(true),
            false if self.is_partial || addresses.iter().any(|address| self.may_be_behind(*address)) => None,
            false => Some(false),
        }
    }

    /// Whether a virtual machine behind a veth without an alias may have the address.
    #[must_use]
    pub fn may_be_behind(&self, address: IpAddr) -> bool {
        self.behind.iter().any(|net| net.contains(address))
    }

    /// Whether the namespace with this device and inode exists; `None`: it was not found, but not all could be searched. The
    /// node's own is none of them.
    #[must_use]
    pub fn has_namespace(&self, numbers: [u64; 2]) -> Option<bool> {
        match self.named.contains(&numbers) {
            true => Some(true),
            false if self.is_partial => None,
            false => Some(false),
        }
    }

    /// Whether a link in a namespace has this alias.
    #[must_use]
    pub fn has_alias(&self, alias: &str) -> bool {
        self.marks.contains(alias)
    }

    /// The aliases of links in the namespaces.
    pub fn aliases(&self) -> impl Iterator<Item = &str> {
        self.marks.iter().map(String::as_str)
    }

    /// The aliases of the node's links that lead to a namespace that exists, whichever addresses are there.
    pub fn leading(&self) -> impl Iterator<Item = &str> {
        self.leading.iter().map(String::as_str)
    }

    /// The namespaces that the node's links lead to: also where no process and no mount is in sight, as in a container.
    fn linked(&mut self) -> Result<Vec<Result<NamespaceFacts>>> {
        let host = Kernel::host()?;
        let mut ids: BTreeMap<i32, Vec<Link>> = BTreeMap::new();
        for link in link::list(&host, None)? {
            if let Some(id) = link.peer_netns_id.filter(|id| *id >= 0) {
                ids.entry(id).or_default().push(link);
            }
        }
        let mut all = Vec::new();
        for (id, links) in ids {
            let found = addr::list_all(&host, Some(id));
            if let Ok(found) = &found {
                self.leading.extend(links.iter().filter_map(|link| link.alias.clone()));
                if !found.iter().any(|(_, address)| veth_peer::is_of_one(address.ip())) {
                    for link in links.iter().filter(|link| link.kind == Kind::Veth && link.alias.is_none()) {
                        self.behind.extend(networks_behind(&host, link)?);
                    }
                }
            }
            let aliases: Aliases = links.into_iter().map(|link| link.alias).collect();
            let addresses = found.map(|found| found.iter().map(|(_, address)| address.ip()).collect());
            all.push(addresses.map(|addresses| NamespaceFacts { addresses, aliases, marks: Vec::new() }));
        }
        Ok(all)
    }

    /// The namespaces that have a name in `/proc`, each entered once. A veth there that no link of the node leads to belongs
    /// to another node, such as one in a container, whose networks may have the same addresses.
    fn entered(&mut self) -> std::io::Result<Vec<Result<NamespaceFacts>>> {
        let mut netns: Vec<Netns> = Vec::new();
        for path in names()? {
            let opened = match Netns::open(path) {
                Ok(opened) => opened,
                Err(NetnsError::Unusable { errno: Errno::EACCES | Errno::EPERM, .. }) => {
                    self.is_refused();
                    continue;
                }
                // Gone meanwhile, or of another kind.
                Err(_) => continue,
            };
            let is_new = || netns.iter().all(|seen| seen.identity() != opened.identity());
            if is_new() && !opened.is_current().unwrap_or(false) {
                netns.push(opened);
            }
        }
        self.named = netns.iter().map(|netns| netns.identity().numbers()).collect();
        let of = |netns: Netns| {
            let inside = Kernel::in_netns(&netns)?;
            let links = link::list(&inside, None)?;
            let is_other = |index: &u32| links.iter().any(|link| link.index == *index && link.kind != Kind::Veth);
            let addresses = addr::list_all(&inside, None)?.into_iter().filter(|(index, _)| is_other(index));
            let addresses = addresses.map(|(_, address)| address.ip()).collect();
            let marks = links.iter().filter(|link| link.kind != Kind::Veth).filter_map(|link| link.alias.clone());
            Ok(NamespaceFacts { addresses, aliases: None, marks: marks.collect() })
        };
        // A container that keeps making links must not hold the addresses of all others.
        let unless_changing = |found: Result<NamespaceFacts>| match found {
            Err(error) if error.is_of_changing_list() => {
                tracing::warn!(%error, "the addresses of a namespace are not seen");
                Ok(NamespaceFacts { addresses: Vec::new(), aliases: None, marks: Vec::new() })
            }
            found => found,
        };
        Ok(netns.into_iter().map(of).map(unless_changing).collect())
    }
}

/// The addresses that packets of the node reach by this veth: those of the networks of its bridge, or of the routes by it.
fn networks_behind(host: &Kernel, veth: &Link) -> Result<Vec<IpNetwork>> {
    if let Some(master) = veth.master {
        let found = addr::list_all(host, None)?.into_iter();
        let is_its = |(index, net): &(u32, IpNetwork)| *index == master && veth_peer::is_of_one(net.ip());
        return Ok(found.filter(is_its).map(|(_, net)| net).collect());
    }
    let routes = route::list_both(host, Some(veth.index), Some(route::MAIN_TABLE))?;
    Ok(routes
        .into_iter()
        .map(|route| route.dst)
        .filter(|dst| dst.prefix() > 0 && veth_peer::is_of_one(dst.ip()))
        .collect())
}

/// `/proc/PID/ns/net` of every process, and where namespaces are mounted.
fn names() -> std::io::Result<Vec<PathBuf>> {
    let mut processes = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit())) {
            processes.push(entry.path());
        }
    }
    let mut mounts = Seen::default();
    let mut paths: Vec<PathBuf> = processes.iter().map(|process| process.join("ns/net")).collect();
    paths.extend(mounts.here()?);
    paths.extend(processes.iter().flat_map(|process| mounts.of(process)));
    Ok(paths)
}

/// Whether the process has `CAP_SYS_ADMIN` (capabilities(7)) in its user namespace. Without `/proc` nothing is found anyway.
fn may_enter() -> bool {
    const SYS_ADMIN: u64 = 1 << 21;
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).is_some_and(|set| set & SYS_ADMIN != 0)
}

/// The mount namespaces and the mounted network namespaces that were seen. A namespace that is mounted in many places, as each
/// copy of a node's mounts has it, is named once.
#[derive(Default)]
struct Seen {
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
    fn here(&mut self) -> std::io::Result<Vec<PathBuf>> {
        let own = Path::new("/proc/thread-self");
        self.user = fs::read_link(own.join("ns/user")).ok();
        self.network = fs::read_link(own.join("ns/net")).ok();
        self.mount_namespaces.extend(fs::read_link(own.join("ns/mnt")).ok());
        Ok(self.find(&fs::read(own.join("mountinfo"))?))
    }

    /// Where further namespaces are mounted for a process, `/proc/PID`, by way of its root: nothing if its mount namespace is
    /// one that was seen, or the process has a user or a network namespace of its own.
    fn of(&mut self, process: &Path) -> Vec<PathBuf> {
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
fn is_seen() -> bool {
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
    use std::ffi::OsStr;
    use std::fs::write;
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
