//! Preview of an ADD: the addresses that it would give, chosen by the same code from a snapshot of the store.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cni_spec::{AddResult, Attachment, CniError};
use netops::OpError;
use skel::AddRequest;

use crate::add::{self, Leasing};
use crate::address::Address;
use crate::conf::{Conf, Reclaim};
use crate::inventory::list_held;
use crate::range::Span;
use crate::store::private_files::PrivateFiles;
use crate::store::{Reservations, Reserved, last_reserved, released};
use crate::{asked, store_error};

/// The addresses that a folder held when it was read, without its lock.
struct Snapshot {
    folder: PathBuf,
    held: BTreeSet<Address>,
    /// All are held, and ADD would look for reservations of earlier boots.
    is_exhausted: bool,
}

impl Reservations for Snapshot {
    fn next_free(&mut self, span: Span) -> Result<Option<Address>, OpError> {
        Ok(first_not_in(&self.held, span))
    }

    fn reserve(&mut self, address: Address, _owner: &Attachment) -> Result<Reserved, OpError> {
        Ok(if self.held.insert(address) { Reserved::Done } else { Reserved::Taken })
    }

    fn release(&mut self, address: Address, _content: &str) -> Result<(), OpError> {
        self.held.remove(&address);
        Ok(())
    }

    fn last_reserved(&self, set: usize) -> Option<Address> {
        last_reserved(&self.folder, set)
    }

    fn set_last_reserved(&mut self, _set: usize, _address: Address) -> Result<(), OpError> {
        Ok(())
    }

    fn reclaim_earlier_boots(&mut self, _keep: Option<&Attachment>) -> Result<usize, OpError> {
        self.is_exhausted = true;
        Ok(0)
    }

    fn folder(&self) -> &Path {
        &self.folder
    }
}

pub(crate) fn first_not_in(held: &BTreeSet<Address>, span: Span) -> Option<Address> {
    let mut address = Some(span.first);
    while let Some(taken) = address.filter(|address| *address <= span.last && held.contains(address)) {
        address = taken.next();
    }
    address.filter(|address| *address <= span.last)
}

/// What ADD would give now, for programs that show it; `None` if that depends on which reservations are of an earlier boot.
/// Changes nothing and takes no lock, so another ADD may be first.
pub fn preview(request: &AddRequest, keys: &Conf) -> Result<Option<AddResult>, CniError> {
    let (conf, owner) = (&asked(request, keys)?, &request.attachment);
    let folder = &conf.place.folder;
    let object = || format!("store {}", folder.display());
    let all = list_held(folder).map_err(|error| store_error(&OpError::io("read", object(), &error)))?;
    if conf.reclaim == Reclaim::Always && !all.is_empty() {
        return Ok(None);
    }
    let held = all.iter().filter(|held| held.is_of(owner)).map(|held| held.address.into()).collect();
    let private_files = File::open(folder).and_then(|dir| PrivateFiles::about(&dir, &conf.place.private_files));
    let cooling = match (conf.cool_down, private_files) {
        (Duration::ZERO, _) | (_, Err(_)) => Vec::new(),
        (cool_down, Ok(private_files)) => released::read(&private_files, cool_down),
    };
    let taken = all.iter().map(|held| held.address.into()).collect();
    let mut snapshot = Snapshot { folder: folder.clone(), held: taken, is_exhausted: false };
    let dns = add::dns(conf)?;
    let reservations = &mut snapshot;
    let ips = Leasing { reservations, conf, owner, held, cooling, made: Vec::new() }.all();
    match ips {
        Err(_) if snapshot.is_exhausted => Ok(None),
        ips => Ok(Some(add::result(conf, ips?, dns))),
    }
}
