//! The least raw netlink that reaches the kernel state of ADD and DEL of our bridge, ptp and macvlan. README.md shows the
//! command line.

mod arguments;
mod child;
mod link;
mod macvlan;
mod message;
mod nft;
mod ptp;
mod socket;

use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::process::ExitCode;

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::SockProtocol;

use arguments::{Add, Command, Del, Plugin, parse};
use message::{Answer, Batch};
use socket::Socket;

/// Everything here takes milliseconds; SIGALRM ends what a driver holds up.
const DEADLINE_SECONDS: u32 = 10;

/// A result whose error says what was being done, and why it failed.
type Result<T> = std::result::Result<T, String>;

fn main() -> ExitCode {
    nix::unistd::alarm::set(DEADLINE_SECONDS);
    let done = parse(std::env::args().skip(1)).and_then(|command| match command {
        Command::Loopback { netns, up } => loopback(&netns, up),
        Command::Add(Plugin::Bridge, add) => attach(&add),
        Command::Add(Plugin::Ptp, add) => ptp::attach(&add),
        Command::Add(Plugin::Macvlan, add) => macvlan::attach(&add),
        Command::Del(Plugin::Bridge | Plugin::Ptp, del) => detach(&del),
        Command::Del(Plugin::Macvlan, del) => macvlan::detach(&del),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("floor: {error}");
            ExitCode::FAILURE
        }
    }
}

fn doing(what: &str) -> impl Fn(Errno) -> String {
    move |errno| format!("cannot {what}: {errno}")
}

fn loopback(netns: &str, up: bool) -> Result<()> {
    enter(&open(netns)?)?;
    let mut batch = Batch::new();
    link::set_loopback(&mut batch, up);
    let socket = Socket::open(SockProtocol::NetlinkRoute).map_err(doing("open a socket"))?;
    socket.call(&batch, link::read).map(drop).map_err(doing("set lo up or down"))
}

fn attach(add: &Add) -> Result<()> {
    let netns = open(&add.netns)?;
    let host = Socket::open(SockProtocol::NetlinkRoute).map_err(doing("open a socket"))?;
    let found = link::find(&host, &add.bridge).map_err(doing("find the bridge"))?;
    // A bridge that is up is one that was made here.
    let (bridge, is_new) = match found.filter(|bridge| bridge.up) {
        Some(bridge) => (bridge.index, false),
        None => (make_bridge(&host, add, found.map(|bridge| bridge.index))?, true),
    };

    let mut batch = Batch::new();
    link::create_veth(&mut batch, &add.veth, Some(bridge), &add.ifname, netns.as_raw_fd());
    link::set_alias(&mut batch, &add.veth, &add.alias);
    link::get(&mut batch, 0, &add.veth);
    let veth = host.call(&batch, link::read).map_err(doing("create the veth"))?.ok_or("cannot read the veth")?;
    write(&["ipv6/conf/", &add.veth, "/accept_ra"], "0")?;
    if add.gateways.iter().any(|gateway| gateway.ip.is_ipv4()) {
        write(&["ipv4/ip_forward"], "1")?;
    }
    if add.gateways.iter().any(|gateway| gateway.ip.is_ipv6()) {
        write(&["ipv6/conf/all/forwarding"], "1")?;
    }
    if !add.masquerade.chain.is_empty() {
        nft::open().and_then(|nft| nft::add(&nft, &add.masquerade, &add.addresses)).map_err(doing("masquerade"))?;
    }
    let watch = match add.returns_early {
        true => None,
        false => Some(Socket::listening(link::RTMGRP_LINK).map_err(doing("open a socket"))?),
    };

    configure(add, &netns, veth.peer)?;
    if let Some(watch) = watch {
        until_seen_up(&host, &watch, veth.index).map_err(doing("wait for the host's end"))?;
    }
    if is_new {
        let mut batch = Batch::new();
        link::set_oper_up(&mut batch, bridge);
        host.call(&batch, link::read).map_err(doing("set the bridge's state"))?;
    }
    Ok(())
}

/// Makes a bridge, or sets up one that is down; returns its index.
fn make_bridge(host: &Socket, add: &Add, index: Option<u32>) -> Result<u32> {
    let index = match index {
        Some(index) => index,
        None => {
            let mut batch = Batch::new();
            // A gateway keeps its address; else it is one of its ports'.
            let mac = (!add.gateways.is_empty()).then(random_mac);
            link::create_bridge(&mut batch, &add.bridge, mac);
            link::get(&mut batch, 0, &add.bridge);
            let made = host.call(&batch, link::read).map_err(doing("create the bridge"))?;
            made.ok_or("cannot read the bridge")?.index
        }
    };
    write(&["ipv6/conf/", &add.bridge, "/accept_ra"], "0")?;
    let mut batch = Batch::new();
    link::set_up(&mut batch, index);
    add.gateways.iter().for_each(|gateway| link::add_address(&mut batch, index, gateway, true));
    link::get(&mut batch, index, &add.bridge);
    let watch = Socket::listening(link::RTMGRP_IPV6_IFADDR).map_err(doing("open a socket"))?;
    host.call(&batch, link::read).map_err(doing("set up the bridge"))?;
    until_settled(&watch, index, ipv6_of(&add.gateways)).map_err(doing("wait for the gateways"))?;
    Ok(index)
}

/// The container's end, from its own namespace.
fn configure(add: &Add, netns: &File, index: u32) -> Result<()> {
    enter(netns)?;
    let ipv6 = add.addresses.iter().any(|address| address.ip.is_ipv6());
    if !add.gateways.is_empty() {
        write(&["ipv6/conf/", &add.ifname, "/accept_ra"], "0")?;
    }
    write(&["ipv6/conf/", &add.ifname, "/accept_dad"], "0")?;
    if ipv6 {
        write(&["ipv6/conf/", &add.ifname, "/keep_addr_on_down"], "1")?;
    }
    let mut batch = Batch::new();
    link::set_arp_notify(&mut batch, index);
    // IPv4 addresses before the link gets up: the announcement is for those that are there by then.
    let (ipv4, ipv6): (Vec<_>, Vec<_>) = add.addresses.iter().partition(|address| address.ip.is_ipv4());
    ipv4.into_iter().for_each(|address| link::add_address(&mut batch, index, address, false));
    link::set_up(&mut batch, index);
    ipv6.into_iter().for_each(|address| link::add_address(&mut batch, index, address, false));
    add.routes.iter().for_each(|(dst, gateway)| link::Route::via(*dst, *gateway).add(&mut batch, index));
    let groups = if add.returns_early { 0 } else { link::RTMGRP_LINK | link::RTMGRP_IPV6_IFADDR };
    let inside = Socket::listening(groups).map_err(doing("open a socket"))?;
    match add.returns_early {
        false => configure_until_up(&inside, batch, index, ipv6_of(&add.addresses)),
        true => {
            link::get(&mut batch, index, &add.ifname);
            inside.call(&batch, link::read).map(drop)
        }
    }
    .map_err(doing("configure the container's end"))
}

fn ipv6_of(addresses: &[arguments::Prefix]) -> usize {
    addresses.iter().filter(|address| address.ip.is_ipv6()).count()
}

/// Returns when the kernel has said of so many IPv6 addresses of a link that they answer.
fn until_settled(watch: &Socket, index: u32, mut count: usize) -> std::result::Result<(), Errno> {
    if count == 0 {
        return Ok(());
    }
    watch.receive(|answer| {
        if let Answer::Object { kind, body, .. } = answer {
            count -= usize::from(link::is_settled(kind, body, index));
        }
        count == 0
    })
}

/// Sends a batch, and returns when the kernel has said that the link can carry packets and so many IPv6 addresses answer: in
/// its answer, or later unasked. Nothing else happens in a new namespace, so all that is said has room.
fn configure_until_up(
    socket: &Socket,
    mut batch: Batch,
    index: u32,
    mut unsettled: usize,
) -> std::result::Result<(), Errno> {
    link::get(&mut batch, index, "");
    socket.send(&batch)?;
    let mut is_through = false;
    let mut is_up = false;
    socket.receive(|answer| {
        if let Answer::Object { kind, number, body, .. } = answer {
            is_through |= number == batch.count;
            is_up |= link::read(kind, body).is_some_and(|link| link.index == index && link.oper_up);
            unsettled -= usize::from(link::is_settled(kind, body, index));
        }
        is_through && is_up && unsettled == 0
    })
}

/// Asks whether the link can carry packets, and if not waits for the kernel to say so. Where others' links are announced, too,
/// an answer on the same socket would be lost with them when there are more than it has room for.
fn until_seen_up(socket: &Socket, watch: &Socket, index: u32) -> std::result::Result<(), Errno> {
    let mut batch = Batch::new();
    link::get(&mut batch, index, "");
    loop {
        if socket.call(&batch, link::read)?.is_some_and(|link| link.oper_up) {
            return Ok(());
        }
        let ready = watch.receive(|answer| match answer {
            Answer::Object { kind, body, .. } => {
                link::read(kind, body).is_some_and(|link| link.index == index && link.oper_up)
            }
            Answer::Done { .. } | Answer::Refused(_) => false,
        });
        match ready {
            Err(Errno::ENOBUFS) => (),
            ready => return ready,
        }
    }
}

fn detach(del: &Del) -> Result<()> {
    // Closing this after a deletion waits for the kernel, so it stays open until the end, the child's.
    let nft = match del.chain.as_str() {
        "" => None,
        chain => {
            let nft = nft::open().map_err(doing("open a socket"))?;
            nft::remove(&nft, chain, &del.addresses).map_err(doing("end the masquerade"))?;
            Some(nft)
        }
    };
    let deleted = delete(&del.veth, del.waits);
    drop(nft);
    deleted
}

/// Deletes a link of this namespace.
fn delete(name: &str, waits: bool) -> Result<()> {
    let mut batch = Batch::new();
    link::delete(&mut batch, name);
    let deleted = match waits {
        true => Socket::open(SockProtocol::NetlinkRoute).and_then(|socket| socket.call(&batch, link::read)).map(drop),
        false => Socket::listening(link::RTMGRP_LINK).and_then(|socket| delete_announced(&socket, &batch, name)),
    };
    deleted.map_err(doing("delete the link"))
}

/// Returns when the kernel has announced the removal: the child's request is answered 20 ms later.
fn delete_announced(socket: &Socket, batch: &Batch, name: &str) -> std::result::Result<(), Errno> {
    child::leave_to_child(|| {
        socket.send(batch).ok(); // the parent hears the verdict
    })?;
    loop {
        let received = socket.receive(|answer| match answer {
            Answer::Object { kind, body, .. } => link::is_gone(kind, body, name),
            Answer::Done { .. } | Answer::Refused(_) => true,
        });
        match received {
            // More was announced than there is room for. If it is still there, the announcement is still to come.
            Err(Errno::ENOBUFS) => match link::find(&Socket::open(SockProtocol::NetlinkRoute)?, name)? {
                None => return Ok(()),
                Some(_) => continue,
            },
            received => return received,
        }
    }
}

fn open(netns: &str) -> Result<File> {
    File::open(netns).map_err(|error| format!("cannot open {netns}: {error}"))
}

#[expect(clippy::disallowed_methods, reason = "the only thread enters the namespace at last and never comes back")]
fn enter(netns: &File) -> Result<()> {
    setns(netns, CloneFlags::CLONE_NEWNET).map_err(doing("enter the namespace"))
}

/// Writes a value below /proc/sys/net. A kernel without IPv6 has no such files.
fn write(key: &[&str], value: &str) -> Result<()> {
    let path = format!("/proc/sys/net/{}", key.concat());
    let written = OpenOptions::new().write(true).open(&path).and_then(|mut file| file.write_all(value.as_bytes()));
    match written {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        written => written.map_err(|error| format!("cannot write {value} to {path}: {error}")),
    }
}

/// A locally administered address.
fn random_mac() -> [u8; 6] {
    let [a, b, c, d, e, f, ..] = RandomState::new().build_hasher().finish().to_ne_bytes();
    [a & 0xfc | 2, b, c, d, e, f]
}
