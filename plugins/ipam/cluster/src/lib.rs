//! The cluster address plugin: addresses that are unique in a cluster.
//!
//! A node claims runs of addresses in a store that all nodes share; inside its runs everything is host-local's own code and
//! files. Reading order: PROTOCOL.md and [`protocol`], the records and every change of them; [`node_view`], what the node keeps of
//! them, and [`view_age`], for how long; [`transaction`], which changes the records in the [`store`]; then the verbs, and `upkeep`, what follows them.

pub mod commands;
pub mod node_view;
pub mod protocol;
pub mod store;
pub mod this_node;
pub mod transaction;
pub mod view_age;

mod add;
mod reservations;
mod status;
mod upkeep;

use cni_spec::{AddResult, CniError, Code};
use host_local::address::Address;
use skel::{AddRequest, CheckRequest, DelRequest, Entry, EventLoop, GcRequest, Plugin, StatusRequest};

use add::Given;
use cluster_keys::{Conf, Removal};
use node_view::View;

const ENTRIES: &[Entry] = &[Entry::of::<Cluster>()];

/// The whole process, up to its exit status: an operator's command, or a call of the plugin. `words` are its arguments, its own name first.
pub fn main(words: impl Iterator<Item = String>) -> u8 {
    if let Err(error) = skel::start() {
        return skel::refuse(&error);
    }
    commands::run_if_asked(words.skip(1)).unwrap_or_else(|| {
        let exit = skel::run([Cluster::NAME.to_owned()].into_iter(), ENTRIES, env!("CARGO_PKG_VERSION"));
        upkeep::start();
        exit
    })
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
        let Given { result, view, left } = add::add(&conf, &request.attachment).await?;
        upkeep::note(Some(&conf), request.conf.object(), Some((&view, left)));
        Ok(result)
    }

    async fn del(request: &DelRequest, conf: &Removal) -> Result<(), CniError> {
        host_local::del(&conf.local, &request.attachment).await?;
        upkeep::note(conf.whole.as_deref(), request.conf.object(), None);
        Ok(())
    }

    async fn check(request: &CheckRequest, conf: &Conf) -> Result<(), CniError> {
        host_local::check(&conf.local, &request.attachment).await?;
        let Some(view) = View::read(conf.folder())? else { return Err(moved(conf, "any address")) };
        let given = request.conf.find_prev_result().map(|result| result.ips).unwrap_or_default();
        let mut addresses = given.iter().map(|ip| ip.address.ip());
        match addresses.find(|ip| conf.is_in_a_set(Address::from(*ip)) && !view.holds(Address::from(*ip))) {
            Some(lost) => Err(moved(conf, &lost.to_string())),
            None => {
                upkeep::note(Some(conf), request.conf.object(), Some((&view, None)));
                Ok(())
            }
        }
    }

    async fn gc(request: &GcRequest, conf: &Removal) -> Result<(), CniError> {
        host_local::gc(&conf.local, &request.sweep()).await?;
        upkeep::note(conf.whole.as_deref(), request.conf.object(), None);
        Ok(())
    }

    async fn status(request: &StatusRequest, conf: &Conf) -> Result<(), CniError> {
        let status = status::status(conf).await;
        upkeep::note(Some(conf), request.conf.object(), None);
        status
    }
}

fn moved(conf: &Conf, lost: &str) -> CniError {
    let text = format!("cluster: {lost} of this container is in no run of this node any more");
    CniError::new(Code::CHECK_FAILED, text).detail(format!(
        "File {} has the node's runs. The node was forgotten while it was away: delete the container and make it again.",
        View::path(conf.folder()).display()
    ))
}
