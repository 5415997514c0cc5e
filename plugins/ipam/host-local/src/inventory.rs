//! The reservations in a network's folder, for a caller that has to know before GC what it would release.

use std::fs::DirEntry;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use cni_spec::{Attachment, CniError, Code, ConfObject, ContainerId, FromAnyConf, FromConf, IfName, NetworkName, json};
use serde::Deserialize;

use crate::address::Address;
use crate::conf::{Conf, DATA_DIR, Removal};
use crate::range::Span;
use crate::store::{Content, Reservations, Reserved, Store, StoreLocation, read, try_read};
use crate::store_error;

/// The folder of a network whose plugin has this `ipam` object; `None` if that names another plugin, or cannot be read.
pub fn folder(network: &NetworkName, ipam: &str) -> Option<PathBuf> {
    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct Keys {
        #[serde(rename = "type")]
        plugin: String,
        data_dir: String,
    }
    let keys: Keys = json::decode(&json::parse(ipam.as_bytes()).ok()?).ok()?;
    let data_dir = if keys.data_dir.is_empty() { DATA_DIR } else { &keys.data_dir };
    (keys.plugin == "host-local").then(|| Path::new(data_dir).join(network.as_str()))
}

/// A container, and its interface except in files of the older form.
pub type Holder = (ContainerId, Option<IfName>);

/// The owner of a file of a network's folder that holds an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    Container(Holder),
    /// An operator: the text is a note, which no attachment has as its name.
    Operator,
    /// Unknown: the text has the form of an attachment's name, a single word or two with CR LF between, and is none.
    Invalid,
    /// Unknown: the file cannot be read; those of root cannot by other users.
    Unreadable,
}

impl Owner {
    pub(crate) fn of(content: &Content) -> Self {
        let Content::Held(text) = content else { return Self::Unreadable };
        let parse = |(container, ifname): (&str, Option<&str>)| {
            Some((ContainerId::parse(container).ok()?, ifname.map(IfName::parse).transpose().ok()?))
        };
        match content.attachment().and_then(parse) {
            Some(holder) => Self::Container(holder),
            None if text.contains("\r\n") || !text.trim().contains(char::is_whitespace) => Self::Invalid,
            None => Self::Operator,
        }
    }
}

/// A file of a network's folder that holds an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    pub address: IpAddr,
    pub owner: Owner,
    pub written: SystemTime,
}

impl Held {
    pub fn holder(&self) -> Option<&Holder> {
        match &self.owner {
            Owner::Container(holder) => Some(holder),
            Owner::Operator | Owner::Invalid | Owner::Unreadable => None,
        }
    }

    /// Whether the attachment holds it; a file of the older form is of each of the container's interfaces.
    pub fn is_of(&self, owner: &Attachment) -> bool {
        self.holder().is_some_and(|(container, ifname)| {
            *container == owner.container_id && ifname.as_ref().is_none_or(|ifname| *ifname == owner.ifname)
        })
    }
}

/// All addresses that a folder holds, in order. Takes no lock and changes nothing. A missing folder holds none.
pub fn list_held(folder: &Path) -> io::Result<Vec<Held>> {
    let mut held = Vec::new();
    for entry in entries(folder)? {
        let Some(address) = entry.file_name().to_str().and_then(Address::from_file_name) else { continue };
        // A file that is gone meanwhile reserves nothing, nor does an empty one.
        let content = try_read(&entry.path()).unwrap_or(Some(Content::Opaque));
        let (Some(content), Ok(meta)) = (content, entry.metadata()) else { continue };
        if content == Content::Debris {
            continue;
        }
        held.push((address, Held { address: address.ip(), owner: Owner::of(&content), written: meta.modified()? }));
    }
    held.sort_unstable_by_key(|(address, _)| *address);
    Ok(held.into_iter().map(|(_, held)| held).collect())
}

fn entries(folder: &Path) -> io::Result<Vec<DirEntry>> {
    match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries?.collect(),
    }
}

/// A defect of a file in a network's folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// The file's name is an address, and it names no owner: its writer died before it wrote.
    Empty,
    /// The file's name is an address, and its owner is unknown: [`Owner::Invalid`], or no file that can be read.
    Unowned,
    /// A temporary file of a killed writer.
    Unfinished,
}

/// The damaged files of a folder that are at least a minute old, in order: an ADD may be about to finish a younger one.
pub fn flaws(folder: &Path) -> io::Result<Vec<(PathBuf, Flaw)>> {
    const OLD: Duration = Duration::from_secs(60);
    let mut found = Vec::new();
    for entry in entries(folder)? {
        let (name, path) = (entry.file_name(), entry.path());
        let name = name.to_string_lossy();
        let flaw = match name.starts_with('.') {
            true => Some(Flaw::Unfinished),
            false if Address::from_file_name(&name).is_some() => flaw_of(&path),
            false => None,
        };
        let Some(flaw) = flaw else { continue };
        let age = path.symlink_metadata().and_then(|meta| meta.modified()).map(|written| written.elapsed());
        if age.is_ok_and(|age| age.is_ok_and(|age| age > OLD)) {
            found.push((path, flaw));
        }
    }
    found.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    Ok(found)
}

fn flaw_of(path: &Path) -> Option<Flaw> {
    match try_read(path) {
        Ok(Some(Content::Debris)) => Some(Flaw::Empty),
        Ok(content) => matches!(Owner::of(&content?), Owner::Invalid | Owner::Unreadable).then_some(Flaw::Unowned),
        // Reservations of root say nothing to other users.
        Err(error) => (error.kind() != io::ErrorKind::PermissionDenied).then_some(Flaw::Unowned),
    }
}

/// How many addresses of a range are given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// The range set's place: a container gets an address of each.
    pub set: usize,
    pub first: IpAddr,
    pub last: IpAddr,
    /// How many addresses containers may get: all but gateways and excluded ones.
    pub total: u128,
    /// The number of these that are held.
    pub used: u128,
}

/// The ranges of a plugin's config, and how many of their addresses the folder holds.
pub fn usage(object: &ConfObject) -> Result<Vec<Usage>, CniError> {
    usage_of(object, None)
}

/// Whether ADD may give a container the address: it is in a range, is no gateway, is not excluded, and nothing holds it.
pub fn may_give(object: &ConfObject, address: IpAddr) -> Result<bool, CniError> {
    let conf = Conf::from_conf(object)?;
    let wanted = Address::from(address);
    if conf.sets.iter().all(|set| set.find(wanted).is_none()) || conf.barred.end(wanted).is_some() {
        return Ok(false);
    }
    let folder = &conf.place.folder;
    let held = list_held(folder)
        .map_err(|error| CniError::new(Code::STATE, format!("cannot read store {}: {error}", folder.display())))?;
    Ok(held.iter().all(|held| held.address != address))
}

/// As [`usage`], of these spans in place of the ranges; those of no range are left out.
pub fn usage_of(object: &ConfObject, spans: Option<&[Span]>) -> Result<Vec<Usage>, CniError> {
    let conf = Conf::from_conf(object)?;
    let folder = &conf.place.folder;
    let unreadable = |error| CniError::new(Code::STATE, format!("cannot read store {}: {error}", folder.display()));
    let held: Vec<Address> =
        list_held(folder).map_err(unreadable)?.into_iter().map(|held| Address::from(held.address)).collect();
    let range = |set: usize, span: Span| {
        let used = held.iter().filter(|held| span.contains(**held) && conf.barred.end(**held).is_none()).count();
        Usage {
            set,
            first: span.first.ip(),
            last: span.last.ip(),
            total: conf.barred.count_allowed(span),
            used: used as u128,
        }
    };
    let ranges = conf
        .sets
        .iter()
        .enumerate()
        .flat_map(|(set, ranges)| ranges.ranges().iter().map(move |range| (set, range.span())));
    let Some(spans) = spans else { return Ok(ranges.map(|(set, span)| range(set, span)).collect()) };
    let set_of = |span: &Span| conf.sets.iter().position(|set| set.find(span.first).is_some());
    Ok(spans.iter().filter_map(|span| Some(range(set_of(span)?, *span))).collect())
}

/// No container can have this name, so neither DEL nor GC releases it.
const NOTE: &str = "reserved by an operator\n";

/// Reserves an address of the ranges for no container, until it is released. Waits for the store's lock as ADD does, and
/// no longer than `patience`.
pub async fn reserve(object: &ConfObject, address: IpAddr, patience: Duration) -> Result<(), CniError> {
    let conf = Conf::from_conf(object)?;
    let address = Address::from(address);
    if conf.sets.iter().all(|set| set.find(address).is_none()) {
        return Err(CniError::new(Code::INVALID_CONFIG, "it is in no range of the network"));
    }
    if conf.barred.end(address).is_some() {
        let is_gateway = conf.barred.is_gateway(address);
        let why = if is_gateway { "it is the gateway of a range" } else { "the network's file excludes it" };
        return Err(CniError::new(Code::INVALID_CONFIG, format!("{why}, so no container gets it")));
    }
    let mut store = Store::create(&within(patience, conf.place)).await.map_err(|error| store_error(&error))?;
    let outcome = store.occupy(address, NOTE, None);
    store.finish();
    match outcome.map_err(|error| store_error(&error))? {
        Reserved::Done => Ok(()),
        Reserved::Taken => Err(CniError::new(Code::STATE, "it is reserved already")),
    }
}

/// Releases an address as it was listed: an address that another container has reserved since is kept. Waits as [`reserve`].
pub async fn release(object: &ConfObject, held: &Held, patience: Duration) -> Result<(), CniError> {
    let place = within(patience, Removal::from_any_conf(object).place);
    let address = Address::from(held.address);
    let changed =
        || CniError::new(Code::STATE, "another process has reserved or released it meanwhile: run the command again");
    let mut store = Store::find(&place).await.map_err(|error| store_error(&error))?.ok_or_else(changed)?;
    let outcome = match read(&place.folder.join(address.to_string())) {
        Some(Content::Held(text)) if Owner::of(&Content::Held(text.clone())) == held.owner => {
            store.release(address, &text).map_err(|error| store_error(&error))
        }
        _ => Err(changed()),
    };
    store.finish();
    outcome
}

fn within(patience: Duration, place: StoreLocation) -> StoreLocation {
    StoreLocation { deadline: place.deadline.min(patience), ..place }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage_of(folder: &Path, ipam: &str) -> String {
        let text = format!(
            r#"{{"name":"n","cniVersion":"1.0.0","ipam":{{"type":"host-local","dataDir":{folder:?},{ipam}}}}}"#
        );
        let usage = usage(&ConfObject::parse(text.as_bytes()).unwrap()).unwrap();
        let line = |one: &Usage| format!("{} {}-{} {}/{}", one.set, one.first, one.last, one.used, one.total);
        usage.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn gateways_and_excluded_addresses_are_not_free() {
        let folder = tempfile::tempdir().unwrap();
        let network = folder.path().join("n");
        std::fs::create_dir(&network).unwrap();
        for (name, content) in [
            ("10.1.0.1", "operator"),
            ("10.1.0.2", "c1\r\neth0"),
            ("10.1.0.9", "an operator's note"),
            ("10.1.0.10", ""),
            ("10.9.0.1", "c2\r\neth0"),
            ("last_reserved_ip.0", "10.1.0.2"),
        ] {
            std::fs::write(network.join(name), content).unwrap();
        }
        // 14 addresses; .1 is the gateway, .4 to .7 are excluded.
        let ipam = r#""subnet":"10.1.0.0/28","exclude":["10.1.0.4/30","10.1.0.5/32"]"#;
        assert_eq!(usage_of(folder.path(), ipam), "0 10.1.0.1-10.1.0.14 2/9");
        let held = list_held(&network).unwrap();
        let shown: Vec<_> = held.iter().map(|held| (held.address.to_string(), held.holder().is_some())).collect();
        let held = |address: &str, has_holder| (address.to_owned(), has_holder);
        assert_eq!(
            shown,
            [held("10.1.0.1", true), held("10.1.0.2", true), held("10.1.0.9", false), held("10.9.0.1", true)]
        );
    }

    #[test]
    fn a_file_that_cannot_be_read_is_not_held_by_hand() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("10.1.0.9"), "an operator's note").unwrap();
        // To root, whom permissions do not stop, a folder is as unreadable.
        std::fs::create_dir(folder.path().join("10.1.0.10")).unwrap();
        let held = list_held(folder.path()).unwrap();
        let owners: Vec<_> = held.into_iter().map(|held| held.owner).collect();
        assert_eq!(owners, [Owner::Operator, Owner::Unreadable]);
    }

    #[test]
    fn a_text_that_looks_like_an_owner_and_is_none_is_not_held_by_hand() {
        let owner = |text: &str| Owner::of(&Content::parse(text.as_bytes()));
        for text in ["q/q", "foo\n", "\r\neth0", "q/q\r\neth0", "c1\r\neth 0", "c1\r\n"] {
            assert_eq!(owner(text), Owner::Invalid, "{text:?}");
        }
        for text in ["an operator's note", "printer, old\n", "reserved by an operator\n"] {
            assert_eq!(owner(text), Owner::Operator, "{text:?}");
        }
        assert!(matches!(owner("c1\r\neth0"), Owner::Container(_)) && matches!(owner("c1"), Owner::Container(_)));
    }

    #[test]
    fn a_folder_that_is_not_there_holds_nothing() {
        let ipam = r#""ranges":[[{"subnet":"10.1.0.0/24"}],[{"subnet":"fd00::/64"}]]"#;
        let usage = usage_of(Path::new("/nonexistent"), ipam);
        assert_eq!(usage, "0 10.1.0.1-10.1.0.254 0/253\n1 fd00::1-fd00::ffff:ffff:ffff:ffff 0/18446744073709551614");
    }
}
