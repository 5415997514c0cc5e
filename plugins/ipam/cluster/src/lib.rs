//! The cluster address plugin: addresses that are unique in a cluster.
//!
//! A node claims runs of addresses in a store that all nodes share; inside its runs everything is host-local's own code and
//! files. Reading order: PROTOCOL.md and [`protocol`], the records and every change of them; [`view`], what the node keeps of
//! them; [`keeper`], which speaks with the [`store`]; then the verbs.

pub mod keeper;
pub mod node;
pub mod operator;
pub mod protocol;
pub mod store;
pub mod view;

mod add;
mod give_back;

use std::process::ExitCode;

use cni_spec::{AddResult, CniError, Code};
use host_local::address::Address;
use skel::{AddRequest, CheckRequest, DelRequest, Entry, EventLoop, GcRequest, Plugin, StatusRequest};

use cluster_keys::{Conf, Removal};
use view::View;

/// The executable: an operator's command, or a call of the plugin.
#[must_use]
pub fn main() -> ExitCode {
    match operator::run_if_asked(std::env::args().skip(1)) {
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
        give_back::give_back(conf.whole.as_deref()).await;
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
        give_back::give_back(conf.whole.as_deref()).await;
        Ok(())
    }

    /// Asks the store only where the node could not give an address without it.
    async fn status(_: &StatusRequest, conf: &Conf) -> Result<(), CniError> {
        if let Some(view) = View::read(conf.folder())?
            && view.is_trusted_now()?
            && let Some(within) = view.within(conf)
            && host_local::find_full(&within)?.is_none()
        {
            return host_local::status(&within).await;
        }
        host_local::status(&conf.local).await?;
        keeper::could_serve(conf).await
    }
}

fn moved(conf: &Conf, lost: &str) -> CniError {
    let text = format!("cluster: {lost} of this container is in no run of this node any more");
    CniError::new(Code::CHECK_FAILED, text).detail(format!(
        "File {} has the node's runs. The node was forgotten while it was away: delete the container and make it again.",
        View::path(conf.folder()).display()
    ))
}
