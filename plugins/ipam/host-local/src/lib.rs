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
pub mod operator_reservations;
pub mod range;
mod resolv;
pub mod store;

#[doc(hidden)]
pub mod fuzzing;
mod store_error;

mod add;
mod check;
mod del;
mod gc;
mod next_address;
mod preview;
mod status;

use cni_spec::{AddResult, CniError};
use skel::{AddRequest, CheckRequest, DelRequest, EventLoop, GcRequest, Plugin, StatusRequest};

use conf::{Conf, Removal};

// The verbs on given keys, for a plugin that chooses the ranges itself.
pub use add::{add, add_and_count};
pub use check::check;
pub use del::del;
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
        del::del(keys, &request.attachment).await
    }

    async fn check(request: &CheckRequest, keys: &Conf) -> Result<(), CniError> {
        check::check(keys, &request.attachment).await
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
