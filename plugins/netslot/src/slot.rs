//! A slot: made, checked, repaired, handed over.

use std::fs::File;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use ipnetwork::IpNetwork;
use netops::error::Result as OpResult;
use netops::link::tun::{Queue, Tap, create_tap, open_tap};
use netops::link::{self, Link, LinkName, Mac, Place, Settings, Target, Veth, create_veth};
use netops::route::{self, Route};
use netops::sysctl::{self, Key, Need};
use netops::{Errno, Kernel, Netns, OpError, Request, addr, link_removal};
use nix::unistd::Pid;
use processes::ProcessId;

use crate::error::{Error, Result};
use crate::pool::{Gone, Shared, locked};
use crate::spec::{Device, Port};

/// The interface in the namespace.
const INSIDE: &str = "eth0";
/// `RT_SCOPE_LINK` of linux/rtnetlink.h.
const LINK_SCOPE: u8 = 253;

/// A namespace with its network, taken from a [`crate::Pool`]. Dropping it destroys it soon, without waiting; [`Slot::destroy`] waits and
/// reports.
#[derive(Debug)]
#[must_use = "a slot that is dropped is destroyed"]
pub struct Slot {
    shared: Arc<Shared>,
    index: u32,
    ports: Vec<Port>,
    /// The slot may have ports, and is the value's to destroy; `None`: it is another's.
    gone: Option<Gone>,
}

impl Slot {
    pub(crate) fn new(shared: Arc<Shared>, gone: Gone) -> Self {
        Self { shared, index: gone.index, ports: Vec::new(), gone: Some(gone) }
    }

    /// The number, from 1 on, that no other slot of the pool has at the time.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The addresses, each with the length of its subnet's prefix. The interface has them with a prefix of all bits, and a route to the
    /// gateway: other slots are reached by the node alone.
    #[must_use]
    pub fn addresses(&self) -> Vec<IpNetwork> {
        self.shared.spec.addresses(self.index)
    }

    /// The addresses of its gateways, which are the node's.
    #[must_use]
    pub fn gateways(&self) -> Vec<IpAddr> {
        self.shared.spec.gateways()
    }

    /// The name of the veth or tap on the node.
    #[must_use]
    pub fn link(&self) -> String {
        self.shared.marks.link(self.index)
    }

    /// The path that the namespace is mounted at as long as the slot lives, for runtimes that take one.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.shared.marks.netns(self.index)
    }

    /// Opens the namespace: a descriptor to hand over, or [`Netns::run`] to start a program in it.
    ///
    /// # Errors
    /// The mark was removed.
    pub fn netns(&self) -> Result<Netns> {
        self.shared.netns(self.index).map_err(Error::Op)
    }

    /// Opens a queue of the slot's tap, for a monitor that takes descriptors.
    ///
    /// # Errors
    /// As [`netops::link::tun::open_tap`]; the slot has no tap.
    pub fn open_tap(&self, queue: Queue) -> Result<File> {
        let place = Place { netns: &self.shared.host_netns, kernel: &locked(&self.shared.host) };
        Ok(open_tap(place, &name(&self.link())?, queue)?)
    }

    /// Forwards these ports of the node to the slot, and no longer those of an earlier call. The node's own connections by 127.0.0.1 are
    /// not forwarded.
    ///
    /// # Errors
    /// The kernel's refusal; another slot, or a container of a CNI network with `rules: shared`, has one of the ports.
    pub fn publish(&mut self, ports: &[Port]) -> Result<()> {
        let Shared { spec, marks, rules, .. } = &*self.shared;
        if let Some(gone) = &mut self.gone {
            gone.may_have_ports = true;
        }
        locked(rules).publish(spec, marks, self.index, ports)?;
        self.ports = ports.to_vec();
        Ok(())
    }

    /// Compares the node with what was made for the slot.
    ///
    /// # Errors
    /// The first difference.
    pub fn check(&self) -> Result<()> {
        let Shared { spec, marks, rules, .. } = &*self.shared;
        self.shared.check(self.index)?;
        Ok(locked(rules).check(spec, marks, self.index, &self.ports)?)
    }

    /// Makes what [`Slot::check`] finds missing, except for the namespace. A new interface has the addresses of the old one.
    ///
    /// # Errors
    /// The namespace is gone: destroy the slot. The kernel's refusal.
    pub fn repair(&self) -> Result<()> {
        let Shared { spec, marks, rules, host, .. } = &*self.shared;
        locked(rules).repair(spec, marks, self.index)?;
        self.shared.wire(&locked(host), self.index, &self.netns()?)?;
        if !self.ports.is_empty() {
            locked(rules).publish(spec, marks, self.index, &self.ports)?;
        }
        Ok(())
    }

    /// Hands the slot over to another process: it lives as long as that process, also without this one. Returns its number, by which
    /// [`crate::Pool::adopt`] takes it back; when the process has ended, [`crate::Pool::reclaim`] or [`crate::reconcile`] destroys it.
    ///
    /// # Errors
    /// `ESRCH`: no process has this pid. The mark cannot be written. After an error the slot is destroyed.
    pub fn hand_over(mut self, pid: u32) -> Result<u32> {
        let raw = i32::try_from(pid).unwrap_or(0);
        let failed = |error| OpError::io("find", format!("process {pid}"), &error);
        let found = ProcessId::of(Pid::from_raw(raw)).map_err(failed)?;
        let to = found.ok_or_else(|| OpError::errno("find", format!("process {pid}"), Errno::ESRCH))?;
        self.shared.marks.hand_over(self.index, &to)?;
        self.gone = None;
        self.shared.give_up(self.index, None);
        Ok(self.index)
    }

    /// Destroys the slot, and waits for the kernel: about 20 ms, as long as [`crate::Pool::destroy`] takes for many.
    ///
    /// # Errors
    /// [`Error::Left`] with all that could not be removed.
    pub fn destroy(mut self) -> Result<()> {
        let gone = self.give_up().into_iter().collect();
        self.shared.destroy(gone)
    }

    pub(crate) fn is_of(&self, shared: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.shared, shared)
    }

    /// Gives up the slot; returns what another part of the pool has to remove.
    pub(crate) fn give_up(&mut self) -> Option<Gone> {
        self.gone.take()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(gone) = self.gone.take() {
            self.shared.give_up(self.index, Some(gone));
        }
    }
}

fn name(link: &str) -> OpResult<LinkName> {
    LinkName::parse(link).map_err(|error| OpError::state("use", format!("link {link}"), error.to_string()))
}

/// Sends requests. Returns whether some object was there already.
fn ensure(net: &Kernel, requests: Vec<Request>) -> OpResult<bool> {
    let (there, faults): (Vec<_>, Vec<_>) = net
        .run_each(requests)
        .into_iter()
        .filter_map(OpResult::err)
        .partition(|error| error.os_errno() == Some(Errno::EEXIST));
    faults.into_iter().next().map_or(Ok(!there.is_empty()), Err)
}

/// The address alone.
fn alone(ip: IpAddr) -> IpNetwork {
    ip.into()
}

fn address(ip: IpAddr) -> addr::Address {
    // Nobody else is on the link.
    addr::Address { nodad: true, ..alone(ip).into() }
}

fn on_link(ip: IpAddr, link: &Link) -> Route {
    let scope = ip.is_ipv4().then_some(LINK_SCOPE);
    Route { scope, ..Route::new(alone(ip), None, Some(link.index)) }
}

fn by_default(gateway: IpAddr, link: &Link) -> Option<Route> {
    let all = IpNetwork::new(netops::Family::from(gateway).unspecified(), 0).ok()?;
    Some(Route::new(all, Some(gateway), Some(link.index)))
}

impl Shared {
    fn netns(&self, index: u32) -> OpResult<Netns> {
        let path = self.marks.netns(index);
        Netns::open(path).map_err(|error| OpError::state("open", format!("slot {index}"), error.to_string()))
    }

    /// Makes a slot: all of it or nothing.
    pub(crate) fn make(&self, host: &Kernel, index: u32) -> OpResult<()> {
        locked(&self.rules).prepare(&self.spec, &self.marks, index)?;
        let netns = Netns::create_at(&self.marks.netns(index));
        let made = netns.and_then(|netns| self.wire(host, index, &netns));
        if made.is_err() {
            self.marks.remove(host, &[index]).iter().for_each(|error| tracing::warn!(%error, index, "a slot is left"));
        }
        made
    }

    /// Makes the interface, its addresses and routes, as far as they are missing.
    fn wire(&self, host: &Kernel, index: u32, netns: &Netns) -> OpResult<()> {
        let addresses: Vec<_> = self.spec.addresses(index).into_iter().map(|address| address.ip()).collect();
        let gateways = self.spec.gateways();
        let link = self.interface(host, index, netns)?;
        let up = Settings { up: Some(true), ..Settings::default() };
        let mut own = vec![link::set(&(&link).into(), &up)];
        own.extend(gateways.iter().map(|ip| addr::add(&link, &address(*ip))));
        own.extend(addresses.iter().map(|ip| route::add_only(&on_link(*ip, &link))));
        if ensure(host, own)? {
            // A route that is there may be another's, which leads elsewhere.
            let link = Link { up: true, ..link.clone() };
            expect_side(host, &link, &gateways, &addresses)?;
        }
        if let (Device::Veth, Some(index)) = (self.spec.device, link.peer) {
            let (inside, eth0) = (Kernel::in_netns(netns)?, Link { index, name: INSIDE.into(), ..Link::default() });
            let mut requests = vec![link::set(&Target::named("lo"), &up)];
            requests.extend(addresses.iter().map(|ip| addr::add(&eth0, &address(*ip))));
            requests.push(link::set(&(&eth0).into(), &up));
            for gateway in &gateways {
                requests.push(route::add_only(&on_link(*gateway, &eth0)));
                requests.extend(by_default(*gateway, &eth0).map(|route| route::add_only(&route)));
            }
            ensure(&inside, requests)?;
        }
        Ok(())
    }

    /// The link of this name that is there already, if it is the slot's; one without its other side is removed.
    fn found(&self, host: &Kernel, link: &str, alias: &str, netns: &Netns) -> OpResult<Option<Link>> {
        let found = link::get(host, &Target::named(link))?;
        if found.alias.as_deref() != Some(alias) {
            let fault =
                format!("another program made it: remove it, or open the pool by another name than {}", self.spec.name);
            return Err(OpError::state("use", format!("link {link}"), fault));
        }
        let other_side = match self.spec.device {
            Device::Veth => link::find(&Kernel::in_netns(netns)?, INSIDE)?.map(|eth0| eth0.index),
            Device::Tap { .. } => found.peer,
        };
        if found.peer == other_side {
            return Ok(Some(found));
        }
        host.run(link_removal::request(&(&found).into()))?;
        Ok(None)
    }

    /// The link on the node. It is made unless it is there.
    fn interface(&self, host: &Kernel, index: u32, netns: &Netns) -> OpResult<Link> {
        let (link, alias) = (self.marks.link(index), self.marks.alias(index));
        let [_, a, b, c] = index.to_be_bytes();
        let mac = |side| Mac([0x02, side, 0x6e, a, b, c]);
        let make = || match self.spec.device {
            Device::Veth => {
                let mut veth = Veth::new(&link, INSIDE);
                (veth.alias, veth.mtu_bytes, veth.queues) = (&alias, self.spec.mtu_bytes, Some(1));
                (veth.mac, veth.peer_mac, veth.peer_netns) = (Some(mac(1)), Some(mac(2)), Some(netns));
                create_veth(host, &veth)
            }
            Device::Tap { owner, group, multi_queue } => {
                let (name, mtu_bytes, mac, alias) = (&name(&link)?, self.spec.mtu_bytes, Some(mac(1)), Some(&*alias));
                let tap = Tap { name, multi_queue, owner, group, master: None, mtu_bytes, mac, alias };
                create_tap(Place { netns: &self.host_netns, kernel: host }, &tap)
            }
        };
        let found = match make() {
            Err(error) if error.os_errno() == Some(Errno::EEXIST) => {
                self.found(host, &link, &alias, netns)?.map_or_else(make, Ok)?
            }
            made => made?,
        };
        if self.spec.subnets.iter().all(IpNetwork::is_ipv4) {
            // The kernel's IPv6 routes of a link cost the more, the more links there are: 1,200 slots took 1.7 times as much CPU.
            let key = Key::of_link("ipv6", &link, "disable_ipv6")?;
            self.host_netns.run(|| sysctl::set(&key, "1", Need::WhereWritable))??;
        }
        Ok(found)
    }

    /// Compares the interface, its addresses and routes with what [`Shared::make`] makes.
    fn check(&self, index: u32) -> OpResult<()> {
        let (host, netns, alias) = (&*locked(&self.host), self.netns(index)?, self.marks.alias(index));
        let addresses: Vec<_> = self.spec.addresses(index).into_iter().map(|address| address.ip()).collect();
        let (gateways, link) = (self.spec.gateways(), link::get(host, &Target::named(self.marks.link(index)))?);
        expect(&link, "alias is not what it was", link.alias.as_ref() == Some(&alias))?;
        expect_side(host, &link, &gateways, &addresses)?;
        if self.spec.device == Device::Veth {
            let inside = Kernel::in_netns(&netns)?;
            let eth0 = link::get(&inside, &Target::named(INSIDE))?;
            expect(&link, "other side is not eth0", link.peer == Some(eth0.index))?;
            let routes = expect_side(&inside, &eth0, &addresses, &gateways)?;
            let by_gateway = |gateway: &IpAddr| routes.iter().any(|route| route.gateway == Some(*gateway));
            expect(&eth0, "default route is gone", gateways.iter().all(by_gateway))?;
        }
        Ok(())
    }
}

/// Errors: a side of the link is not as it was made. Returns its routes.
fn expect_side(net: &Kernel, link: &Link, own: &[IpAddr], others: &[IpAddr]) -> OpResult<Vec<Route>> {
    expect(link, "flag UP is off", link.up)?;
    let (had, routes) = (addr::list(net, link)?, route::list_both(net, Some(link.index), None)?);
    expect(link, "address is gone", own.iter().all(|ip| had.iter().any(|address| address.net.ip() == *ip)))?;
    let leads = |ip: &IpAddr| routes.iter().any(|route| route.dst == alone(*ip));
    expect(link, "route to the other side is missing, or leads elsewhere", others.iter().all(leads))?;
    Ok(routes)
}

fn expect(link: &Link, fault: &str, is_so: bool) -> OpResult<()> {
    let failed = || OpError::state("use", format!("link {} of a slot", link.name), format!("its {fault}"));
    is_so.then_some(()).ok_or_else(failed)
}
