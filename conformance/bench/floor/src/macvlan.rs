//! The state of our macvlan, IPv4 only: a link in the container, on one of the host's.

use std::os::fd::AsRawFd;

use nix::sys::socket::SockProtocol;

use crate::arguments::{Add, Del};
use crate::link::{self, Route};
use crate::message::Batch;
use crate::socket::Socket;
use crate::{Result, delete, doing, enter, open};

pub(crate) fn attach(add: &Add) -> Result<()> {
    let netns = open(&add.netns)?;
    let host = Socket::open(SockProtocol::NetlinkRoute).map_err(doing("open a socket"))?;
    let master = link::find(&host, &add.master).map_err(doing("find the master"))?.ok_or("there is no such master")?;
    let mut batch = Batch::new();
    link::create_macvlan(&mut batch, &add.ifname, master.index, netns.as_raw_fd());
    batch.acknowledge_last();
    host.call(&batch, link::read).map_err(doing("create the macvlan"))?;

    enter(&netns)?;
    let inside = Socket::open(SockProtocol::NetlinkRoute).map_err(doing("open a socket"))?;
    let mut batch = Batch::new();
    link::set_alias(&mut batch, &add.ifname, &add.alias);
    link::get(&mut batch, 0, &add.ifname);
    let made = inside.call(&batch, link::read).map_err(doing("mark the macvlan"))?.ok_or("cannot read the macvlan")?;
    let mut batch = Batch::new();
    link::set_arp_notify(&mut batch, made.index);
    add.addresses.iter().for_each(|address| link::add_address(&mut batch, made.index, address, false));
    link::set_up(&mut batch, made.index);
    add.routes.iter().for_each(|(dst, gateway)| Route::via(*dst, *gateway).add(&mut batch, made.index));
    link::get(&mut batch, made.index, "");
    inside.call(&batch, link::read).map(drop).map_err(doing("configure the macvlan"))
}

pub(crate) fn detach(del: &Del) -> Result<()> {
    enter(&open(&del.netns)?)?;
    delete(&del.ifname, del.waits)
}
