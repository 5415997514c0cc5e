//! The host-local address plugin: addresses from ranges, reserved by files on this node.
//!
//! Same files, same lock and same order as the reference, so that both can work on one folder in turn. Unlike there,
//! the cost of ADD, DEL and CHECK depends neither on the number of reservations nor on the size of the range.
//!
//! Reading order: [`conf`] (the keys) and [`range`]; [`store`], a folder of reservations under its lock, and `index`,
//! the hint beside it that saves reading the folder; then the verbs. What the plugin leaves on the node is in
//! README.md.

pub mod address;
pub mod conf;
mod index;
pub mod inventory;
pub mod range;
pub mod store;

#[doc(hidden)]
pub mod fuzzing;

mod add;
mod gc;
mod next_address;
mod preview;
mod status;

use crate::store::{Store, released};
use cni_spec::{AddResult, Attachment, CniError, Code};
use skel::{AddRequest, CheckRequest, DelRequest, EventLoop, GcRequest, Plugin, StatusRequest};

use conf::{Conf, Removal};
use interface::error::{On, failed_on};
use netops::OpError;

// The verbs on given keys, for a plugin that chooses the ranges itself.
pub use add::{add, add_and_count};
pub use gc::gc;
pub use preview::preview;
pub use status::{count_free, find_full, list_cooling, status};

#[derive(Debug)]
pub struct HostLocal;

impl Plugin for HostLocal {
    const NAME: &'static str = "host-local";
    const DELEGATES: bool = false;
    const EVENT_LOOP: EventLoop = EventLoop::WhenWaiting;
    /// ADD waits for the folder's lock alone, and releases what it reserved before it fails.
    const ALL_OR_NOTHING: bool = true;
    type Conf = Conf;
    type Removal = Removal;

    async fn add(request: &AddRequest, keys: &Conf) -> Result<AddResult, CniError> {
        add::add(&asked(request, keys)?, &request.attachment).await
    }

    async fn del(request: &DelRequest, keys: &Removal) -> Result<(), CniError> {
        del(keys, &request.attachment).await
    }

    async fn check(request: &CheckRequest, keys: &Conf) -> Result<(), CniError> {
        check(keys, &request.attachment).await
    }

    async fn gc(request: &GcRequest, keys: &Removal) -> Result<(), CniError> {
        gc::gc(keys, &request.sweep()).await
    }

    async fn status(_: &StatusRequest, keys: &Conf) -> Result<(), CniError> {
        status::status(keys).await
    }
}

/// The keys, with the address that `CNI_ARGS` asks for.
fn asked(request: &AddRequest, keys: &Conf) -> Result<Conf, CniError> {
    keys.clone().asking(&request.raw.parse_args()?, &[])
}

/// CHECK: `owner` holds an address.
pub async fn check(conf: &Conf, owner: &Attachment) -> Result<(), CniError> {
    let Some(mut store) = Store::find(&conf.place).await.map_err(|error| store_error(&error))? else {
        return Err(missing(conf, owner));
    };
    let held = store.owned_by_for_certain(owner);
    store.finish();
    match held.map_err(|error| store_error(&error))?.is_empty() {
        true => Err(missing(conf, owner)),
        false => Ok(()),
    }
}

fn missing(conf: &Conf, owner: &Attachment) -> CniError {
    let text = format!("host-local: Failed to find address added by container {}", owner.container_id);
    CniError::new(Code::CHECK_FAILED, text).detail(format!(
        "No file in {} names it with interface {}.",
        conf.place.folder.display(),
        owner.ifname
    ))
}

/// DEL: releases all that `owner` holds.
pub async fn del(conf: &Removal, owner: &Attachment) -> Result<(), CniError> {
    let Some(mut store) = Store::find(&conf.place).await.map_err(|error| store_error(&error))? else { return Ok(()) };
    let outcome = store.release_all(owner);
    if let Ok(addresses) = &outcome
        && !addresses.is_empty()
        && !conf.cool_down.is_zero()
        && let Err(error) = released::note(store.private_files(), addresses, owner)
    {
        tracing::warn!(%error, "cannot note that addresses were released: they do not cool down");
    }
    store.finish();
    outcome.map(drop).map_err(|error| store_error(&error))
}

pub(crate) fn store_error(error: &OpError) -> CniError {
    failed_on(On::Files("dataDir"), error)
}
