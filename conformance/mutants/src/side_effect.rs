//! Side effects of mutants on a node. Each panics if it cannot be done: the mutant is then not what a test takes
//! it for.

use netops::addr::{self, Address};
use netops::link::{self, Bridge, Link, Settings, Target};
use netops::{Kernel, OpError, Request, link_removal};

pub(crate) fn node() -> Kernel {
    done(Kernel::host())
}

pub(crate) fn done<T>(result: Result<T, OpError>) -> T {
    result.unwrap_or_else(|error| panic!("{error}: {}", error.details()))
}

pub(crate) fn run(net: &Kernel, request: Request) {
    done(net.run(request));
}

pub(crate) fn make_link(net: &Kernel, name: &str) {
    if done(link::find(net, name)).is_none() {
        run(net, link::create_bridge(name, &Bridge::default()));
    }
}

pub(crate) fn remove_link(net: &Kernel, name: &str) {
    if done(link::find(net, name)).is_some() {
        run(net, link_removal::request(&Target::named(name)));
    }
}

pub(crate) fn rename_link(net: &Kernel, name: &str, new: &str) {
    if let Some(link) = done(link::find(net, name))
        && done(link::find(net, new)).is_none()
    {
        // By the link's index: a request has place for one name.
        run(net, link::set(&Target::from(&link), &Settings { name: Some(new.to_owned()), ..Settings::default() }));
    }
}

pub(crate) fn ports(net: &Kernel, bridge: &str) -> Vec<Link> {
    let bridge = done(link::get(net, &Target::named(bridge)));
    done(link::list(net, Some(bridge.index)))
}

pub(crate) fn remove_addresses(net: &Kernel, name: &str) {
    let link = done(link::get(net, &Target::named(name)));
    for address in done(addr::list(net, &link)) {
        run(net, addr::delete(&link, address.net));
    }
}

pub(crate) fn add_address(net: &Kernel, name: &str, address: &Address) {
    let link = done(link::get(net, &Target::named(name)));
    run(net, addr::add(&link, address));
}

/// A name for a link of this container alone.
pub(crate) fn name_for(container_id: &str) -> String {
    let last = container_id.get(container_id.len().saturating_sub(8)..).unwrap_or(container_id);
    format!("left{last}")
}
