//! The cluster address plugin: addresses that are unique in a cluster.
//!
//! A node claims runs of addresses in a store that all nodes share; inside its runs everything is host-local's own code and
//! files. Reading order: PROTOCOL.md and [`protocol`], the records and every change of them; [`node_view`], what the node keeps of
//! them, and [`view_age`], for how long; [`transaction`], which changes the records in the [`store`]; then the verbs.

pub mod commands;
pub mod node_view;
pub mod protocol;
pub mod store;
pub mod this_node;
pub mod transaction;
pub mod view_age;

mod add;
mod reservations;
mod return_unused_runs;
mod status;

use std::process::ExitCode;

use cni_spec::{AddResult, CniError, Code};
use host_local::address::Address;
use skel::{AddRequest, CheckRequest, DelRequest, Entry, EventLoop, GcRequest, Plugin, StatusRequest};

use cluster_keys::{Conf, Removal};
use node_view::View;

/// The executable: an operator's command, or a call of the plugin.
#[must_use]
pub fn main() -> ExitCode {
    match commands::run_if_asked(std::env::args().skip(1)) {
        Some(exit) => exit.into(),
        None => skel::main(const { &Entry::of::<Cluster>() }, env!("CARGO_PKG_VERSION")),
    }
}

/// The plugin.
#[derive(Debug)]
pub struct Cluster;

impl Plugin for Cluster {
    const NAME: &'static str = "cluster";
    const DELEGATES: bool = false;
    const EVENT_LOOP: EventLoop = EventLoop::WhenWaiting;
    const ALL_OR_NOTHING: bool = true;
    type Conf = Conf;
    type Removal = Removal;

    async fn add(request: &AddRequest, conf: &Conf) -> Result<AddResult, CniError> {
        let conf = conf.clone().asking(&request.raw.parse_args()?)?;
        add::add(&conf, &request.attachment).await
    }

    async fn del(request: &DelRequest, conf: &Removal) -> Result<(), CniError> {
        host_local::del(&conf.local, &request.attachment).await?;
        return_unused_runs::return_unused_runs(conf.whole.as_deref()).await;
        Ok(())
    }

    async fn check(request: &CheckRequest, conf: &Conf) -> Result<(), CniError> {
        host_local::check(&conf.local, &request.attachment).await?;
        let Some(view) = View::read(conf.folder())? else { return Err(moved(conf, "any address")) };
        let given = request.conf.find_prev_result().map(|result| result.ips).unwrap_or_default();
        let mut addresses = given.iter().map(|ip| ip.address.ip());
        match addresses.find(|ip| conf.is_in_a_set(Address::from(*ip)) && !view.holds(Address::from(*ip))) {
            Some(lost) => Err(moved(conf, &lost.to_string())),
            None => Ok(()),
        }
    }

    async fn gc(request: &GcRequest, conf: &Removal) -> Result<(), CniError> {
        host_local::gc(&conf.local, &request.sweep()).await?;
        return_unused_runs::return_unused_runs(conf.whole.as_deref()).await;
        Ok(())
    }

    async fn status(_: &StatusRequest, conf: &Conf) -> Result<(), CniError> {
        status::status(conf).await
    }
}

fn moved(conf: &Conf, lost: &str) -> CniError {
    let text = format!("cluster: {lost} of this container is in no run of this node any more");
    CniError::new(Code::CHECK_FAILED, text).detail(format!(
        "File {} has the node's runs. The node was forgotten while it was away: delete the container and make it again.",
        View::path(conf.folder()).display()
    ))
}
