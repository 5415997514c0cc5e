//! ADD: one address of each range set, or none at all.

use std::fs::{File, OpenOptions};
use std::io;
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use cni_spec::{AddResult, Attachment, CniError, Code, Dns, Ip};
use ipnetwork::IpNetwork;
use nix::libc::{O_NOCTTY, O_NONBLOCK};

use crate::address::Address;
use crate::conf::{Conf, Reclaim};
use crate::range::RangeSet;
use crate::status::count;
use crate::store::released::{self, Released};
use crate::store::{Reservations, Reserved, Store, content_of};
use crate::store_error;

/// ADD: an address of each range set for `owner`, or none at all.
pub async fn add(conf: &Conf, owner: &Attachment) -> Result<AddResult, CniError> {
    add_and_count(conf, owner, 0).await.map(|(result, _)| result)
}

/// As [`add`]; also counts what each set has left, up to `most`, by the index that is open.
pub async fn add_and_count(
    conf: &Conf,
    owner: &Attachment,
    most: usize,
) -> Result<(AddResult, Option<Vec<usize>>), CniError> {
    let dns = dns(conf)?;
    let mut store = Store::create(&conf.place).await.map_err(|error| store_error(&error))?;
    let ips = begin(&mut store, conf, owner).and_then(Leasing::all);
    let left = ips.is_ok().then(|| count(conf, most, &mut |span| store.next_free(span).ok())).flatten();
    store.finish();
    let ips = ips?;
    netops::all_namespaces::record_caller();
    Ok((result(conf, ips, dns), left))
}

pub(crate) fn dns(conf: &Conf) -> Result<Dns, CniError> {
    conf.resolv_conf.as_deref().map_or_else(|| Ok(Dns::default()), read)
}

pub(crate) fn result(conf: &Conf, ips: Vec<Ip>, dns: Dns) -> AddResult {
    AddResult::of_addresses(ips, conf.routes.clone(), dns)
}

fn begin<'a>(store: &'a mut Store, conf: &'a Conf, owner: &'a Attachment) -> Result<Leasing<'a, Store>, CniError> {
    if conf.reclaim == Reclaim::Always {
        let kept = conf.reuse_address.then_some(owner);
        store.reclaim_earlier_boots(kept).map_err(|error| store_error(&error))?;
    }
    let held = store.owned_by(owner).map_err(|error| store_error(&error))?;
    let cooling = match conf.cool_down {
        Duration::ZERO => Vec::new(),
        cool_down => released::read(store.private_files(), cool_down),
    };
    Ok(Leasing { reservations: store, conf, owner, held, cooling, made: Vec::new() })
}

fn ip(address: Address, set: &RangeSet) -> Result<Ip, CniError> {
    let outside = || CniError::new(Code::INTERNAL, format!("address {address} is in no range of its set"));
    let range = set.find(address).ok_or_else(outside)?;
    let network = IpNetwork::new(address.ip(), range.subnet.prefix()).map_err(|_bad_prefix| outside())?;
    Ok(Ip::new(network, Some(range.gateway.ip())))
}

pub(crate) struct Leasing<'a, S> {
    pub(crate) reservations: &'a mut S,
    pub(crate) conf: &'a Conf,
    pub(crate) owner: &'a Attachment,
    /// The addresses that the owner held before.
    pub(crate) held: Vec<Address>,
    /// Recently released addresses, with the time that they must still wait.
    pub(crate) cooling: Vec<(Released, Duration)>,
    pub(crate) made: Vec<Address>,
}

impl<S: Reservations> Leasing<'_, S> {
    /// An address of each set; after a failure this ADD has nothing reserved.
    pub(crate) fn all(mut self) -> Result<Vec<Ip>, CniError> {
        self.each().map_err(|error| self.undo(error))
    }

    fn each(&mut self) -> Result<Vec<Ip>, CniError> {
        let mut requested = self.conf.requested.clone();
        let mut leased = Vec::new();
        for (index, set) in self.conf.sets.iter().enumerate() {
            let wanted = requested.iter().find(|address| set.find(**address).is_some()).copied();
            requested.retain(|address| Some(*address) != wanted);
            let address = self.one(index, set, wanted).map_err(|error| {
                let msg = format!("failed to allocate for range {index}: {}", error.msg);
                CniError { msg, ..error }
            })?;
            leased.push(ip(address, set)?);
        }
        if requested.is_empty() {
            return Ok(leased);
        }
        let texts: Vec<String> = requested.iter().map(Address::to_string).collect();
        Err(CniError::new(Code::INVALID_CONFIG, format!("failed to allocate all requested IPs: {}", texts.join(" ")))
            .detail("No range set has them, or a set has more than the one that a container gets of it."))
    }

    /// Releases what was reserved, newest first.
    fn undo(&mut self, error: CniError) -> CniError {
        let content = content_of(self.owner);
        let mut error = error;
        while let Some(address) = self.made.pop() {
            error = match self.reservations.release(address, &content) {
                Ok(()) => error.detail(format!("Undone: {address} released.")),
                Err(left) => error.detail(format!("Left behind for DEL: {left}.")),
            };
        }
        error
    }

    pub(crate) fn reserve(&mut self, index: usize, address: Address) -> Result<Reserved, CniError> {
        let reserved = self.reservations.reserve(address, self.owner).map_err(|error| store_error(&error))?;
        if reserved == Reserved::Done {
            self.made.push(address);
            self.reservations.set_last_reserved(index, address).map_err(|error| store_error(&error))?;
        }
        Ok(reserved)
    }
}

/// A thousand times the size of a long one.
const MAX_BYTES: u64 = 1 << 20;

/// Reads the file that `ipam.resolvConf` names, following links, as `/etc/resolv.conf` is often one.
pub(crate) fn read(path: &Path) -> Result<Dns, CniError> {
    // A fifo must not block until a writer comes, nor a terminal become this process's.
    let file = OpenOptions::new().read(true).custom_flags(O_NONBLOCK | O_NOCTTY).open(path);
    let text = file.and_then(read_bounded).map_err(|error| {
        let object = path.display();
        CniError::new(Code::IO, format!("cannot read {object}: {error}")).detail("It is named by key ipam.resolvConf.")
    })?;
    Ok(parse(&String::from_utf8_lossy(&text)))
}

fn read_bounded(file: File) -> io::Result<Vec<u8>> {
    // A device such as /dev/null means "no DNS"; a fifo without a writer must not look like one.
    let kind = file.metadata()?.file_type();
    if !kind.is_file() && !kind.is_char_device() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut bytes = Vec::new();
    match file.take(MAX_BYTES + 1).read_to_end(&mut bytes)? as u64 > MAX_BYTES {
        true => Err(io::Error::other("it is larger than 1 MiB")),
        false => Ok(bytes),
    }
}

/// Parses `nameserver`, `domain`, `search` and `options`. Lists accumulate over lines; other keywords, lines of one
/// word and comments (`#`, `;`) are skipped.
pub(crate) fn parse(text: &str) -> Dns {
    let mut dns = Dns::default();
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
        let mut words = line.split_whitespace().map(str::to_owned);
        let keyword = words.next();
        let mut values = words.peekable();
        if values.peek().is_none() {
            continue;
        }
        match keyword.as_deref() {
            Some("nameserver") => dns.nameservers.extend(values.next()),
            Some("domain") => dns.domain = values.next().unwrap_or_default(),
            Some("search") => dns.search.extend(values),
            Some("options") => dns.options.extend(values),
            Some(_) | None => {}
        }
    }
    dns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_accumulate_and_comments_are_skipped() {
        let dns = parse(
            "# head\n ; head\nnameserver 10.0.0.1 trailing\nnameserver\nnameserver fd00::1\n\
             domain a.example\ndomain b.example\nsearch x.example\tz.example\nsearch y.example\n\
             options ndots:5 rotate\nsortlist 1.2.3.4\r\n",
        );
        assert_eq!(dns.nameservers, ["10.0.0.1", "fd00::1"]);
        assert_eq!(dns.domain, "b.example");
        assert_eq!(dns.search, ["x.example", "z.example", "y.example"]);
        assert_eq!(dns.options, ["ndots:5", "rotate"]);
        assert!(parse("").is_empty());
    }
}
