//! The bridge plugin: containers on a Linux bridge, each by a veth.
//!
//! Start at [`plan`]: it says what an attachment is on the node. [`add`] makes it so, [`check`] compares, [`del`]
//! removes it by its owner alone, [`gc`] removes everybody's but the valid ones', [`status`] tells whether ADD
//! could work.

use cni_spec::{AddResult, CniError};
use skel::{AddRequest, CheckRequest, DelRequest, EventLoop, GcRequest, Plugin, StatusRequest};

pub mod conf;
pub mod plan;

pub mod add;
mod links;
mod observe;
mod shared;
mod undo;

pub mod check;
pub mod del;
pub mod gc;
pub mod status;

pub use conf::{Conf, Removal};

/// The plugin.
pub struct Bridge;

impl Plugin for Bridge {
    const NAME: &'static str = "bridge";
    const EVENT_LOOP: EventLoop = EventLoop::WhenWaiting;
    type Conf = Conf;
    type Removal = Removal;

    async fn add(request: &AddRequest<Conf>) -> Result<AddResult, CniError> {
        add::add(request).await
    }

    async fn del(request: &DelRequest<Removal>) -> Result<(), CniError> {
        del::del(request).await
    }

    async fn check(request: &CheckRequest<Conf>) -> Result<(), CniError> {
        check::check(request).await
    }

    async fn gc(request: &GcRequest<Removal>) -> Result<(), CniError> {
        gc::gc(request).await
    }

    async fn status(request: &StatusRequest<Conf>) -> Result<(), CniError> {
        status::status(request).await
    }
}
