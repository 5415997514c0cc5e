//! The state of our ptp, IPv4 only: a veth, and the node routes.

use std::net::IpAddr;
use std::os::fd::AsRawFd;

use nix::sys::socket::SockProtocol;

use crate::arguments::{Add, Prefix};
use crate::link::{self, Route};
use crate::message::Batch;
use crate::socket::Socket;
use crate::{Result, configure_until_up, doing, enter, open, until_seen_up, write};

/// Makes it; the gateways are those of the addresses, in their order.
pub(crate) fn attach(add: &Add) -> Result<()> {
    let netns = open(&add.netns)?;
    let host = Socket::open(SockProtocol::NetlinkRoute).map_err(doing("open a socket"))?;
    let mut batch = Batch::new();
    link::create_veth(&mut batch, &add.veth, None, &add.ifname, netns.as_raw_fd());
    link::set_alias(&mut batch, &add.veth, &add.alias);
    link::get(&mut batch, 0, &add.veth);
    let veth = host.call(&batch, link::read).map_err(doing("create the veth"))?.ok_or("cannot read the veth")?;
    write(&["ipv6/conf/", &add.veth, "/accept_ra"], "0")?;
    let mut batch = Batch::new();
    link::set_up(&mut batch, veth.index);
    add.gateways.iter().for_each(|gateway| link::add_address(&mut batch, veth.index, &single(gateway.ip), true));
    for address in &add.addresses {
        Route::direct(single(address.ip), Route::HOST).add(&mut batch, veth.index);
    }
    link::get(&mut batch, veth.index, "");
    host.call(&batch, link::read).map_err(doing("set up the host's end"))?;
    let watch = Socket::listening(link::RTMGRP_LINK).map_err(doing("open a socket"))?;
    write(&["ipv4/ip_forward"], "1")?;

    enter(&netns)?;
    let mut batch = Batch::new();
    let index = veth.peer;
    add.addresses.iter().for_each(|address| link::add_address(&mut batch, index, address, false));
    link::set_up(&mut batch, index);
    let pairs = || add.addresses.iter().zip(&add.gateways);
    for (address, gateway) in pairs() {
        let route = Route::direct(single(gateway.ip), Route::LINK);
        Route { source: Some(address.ip), ..route }.add(&mut batch, index);
    }
    add.routes.iter().for_each(|(dst, gateway)| Route::via(*dst, *gateway).add(&mut batch, index));
    for (address, gateway) in pairs() {
        Route { protocol: Route::KERNEL, ..Route::direct(*address, Route::LINK) }.delete(&mut batch, index);
        Route { source: Some(address.ip), ..Route::via(*address, gateway.ip) }.add(&mut batch, index);
    }
    let inside = Socket::listening(link::RTMGRP_LINK).map_err(doing("open a socket"))?;
    configure_until_up(&inside, batch, index, 0).map_err(doing("configure the container's end"))?;
    until_seen_up(&host, &watch, veth.index).map_err(doing("wait for the host's end"))
}

fn single(ip: IpAddr) -> Prefix {
    Prefix { ip, length: if ip.is_ipv4() { 32 } else { 128 } }
}
