//! Reservations by an operator: made and released under the store's lock, as ADD and DEL do.

use std::net::IpAddr;
use std::time::Duration;

use cni_spec::{CniError, Code, ConfObject, FromAnyConf, FromConf};

use crate::address::Address;
use crate::conf::{Conf, Removal};
use crate::inventory::{Held, Owner};
use crate::store::{Content, Reservations, Reserved, Store, StoreLocation, read};
use crate::store_error::store_error;

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
