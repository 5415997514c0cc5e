//! An interface that joins a VRF. The kernel sets it down and up for that: its routes are lost, and where it does not keep them
//! (`keep_addr_on_down`) its IPv6 addresses.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use chained::{LazySides, Left, Txn, Undo, failed};
use cni_spec::{CniError, Code};
use interface::sides::Sides;
use netops::addr::{self, Address};
use netops::link::vrf::Vrf;
use netops::link::{self, Kind, Link, LinkName, Settings};
use netops::route::MAIN_TABLE;
use netops::route::whole::{self, Whole};
use netops::watch::Watch;
use netops::{Errno, Family, Kernel, link_removal};

/// How long the kernel may take to make the routes of new addresses; the reference's.
const DEADLINE: Duration = Duration::from_millis(2500);

/// The container's interface, with what it may lose.
#[derive(Debug, Clone)]
pub struct Member {
    link: Link,
    addresses: Vec<Address>,
    routes: Vec<Whole>,
}

impl Member {
    pub fn read(sides: &Sides, link: Link) -> Result<Self, CniError> {
        let inside = &sides.container;
        let is_global = |address: &Address| matches!(address.net.ip(), IpAddr::V6(ip) if !ip.is_unicast_link_local());
        let mut addresses = addr::list(inside, &link).map_err(failed)?;
        addresses.retain(is_global);
        let routes = list(inside, &link).map_err(failed)?;
        Ok(Self { link, addresses, routes })
    }

    /// Puts the interface into the VRF, and gives it back what it lost.
    pub async fn join(self, sides: &Sides, txn: &Txn, vrf: &Link) -> Result<(), CniError> {
        let Kind::Vrf(Vrf { table }) = vrf.kind else {
            return Err(CniError::new(Code::INTERNAL, format!("{} is no VRF", vrf.name)));
        };
        let routes: Vec<Whole> = self.routes.iter().map(|route| route.in_table(table)).collect();
        let mut watch = Watch::in_netns(&sides.netns).map_err(failed)?;
        let master = Settings { master: Some(vrf.index), ..Settings::default() };
        txn.push(Box::new(Leave(self.clone())));
        sides.container.run(link::set(&(&self.link).into(), &master)).map_err(failed)?;
        let lost = self.restore_addresses(&sides.container).map_err(failed)?;
        if !lost.is_empty() {
            // The routes by gateways need those of the addresses.
            watch.until_announced(&self.link, &lost, DEADLINE).await.map_err(failed)?;
        }
        sides.container.run_all(routes.iter().map(whole::put).collect()).map_err(failed)?;
        // Of an IPv6 route that another interface has, too, the kernel makes the part in the main table again.
        whole::remove(&sides.container, &list(&sides.container, &self.link).map_err(failed)?).map_err(failed)
    }

    /// Adds the addresses that the interface has lost, usable at once: they were looked for before. Returns them.
    fn restore_addresses(&self, inside: &Kernel) -> netops::error::Result<Vec<IpAddr>> {
        let kept = addr::list(inside, &self.link)?;
        let is_lost = |address: &&Address| !kept.iter().any(|kept| kept.net == address.net);
        let lost: Vec<Address> =
            self.addresses.iter().filter(is_lost).map(|address| Address { nodad: true, ..*address }).collect();
        for address in &lost {
            match inside.run(addr::add(&self.link, address)) {
                Err(error) if error.os_errno() == Some(Errno::EEXIST) => (),
                done => done?,
            }
        }
        Ok(lost.iter().map(|address| address.net.ip()).collect())
    }
}

/// The link's routes in the main table, but for those that the kernel made of the link and its addresses.
fn list(inside: &Kernel, link: &Link) -> netops::error::Result<Vec<Whole>> {
    let mut routes = whole::list(inside, link.index, MAIN_TABLE, Family::V4)?;
    routes.extend(whole::list(inside, link.index, MAIN_TABLE, Family::V6)?);
    routes.retain(|route| route.hops().iter().all(|hop| hop.scope == Some(0)));
    Ok(routes)
}

/// Takes the interface out of the VRF again, with the addresses and routes that it had.
#[derive(Debug)]
struct Leave(Member);

impl fmt::Display for Leave {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "link {} out of the VRF", self.0.link.name)
    }
}

impl Undo for Leave {
    fn run(&self, sides: &LazySides<'_>) -> Result<(), Left> {
        let inside = &sides.open()?.container;
        let free = Settings { master: Some(0), ..Settings::default() };
        let done = inside
            .run(link::set(&(&self.0.link).into(), &free))
            .and_then(|()| self.0.restore_addresses(inside))
            .and_then(|_lost| whole::restore(inside, self.0.routes.iter().cloned()));
        match done {
            Err(error) if !error.is_absent() => Err(error.into()),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// Deletes the VRF that ADD made.
#[derive(Debug)]
pub struct DeleteVrf(pub LinkName);

impl fmt::Display for DeleteVrf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VRF {} deleted", self.0)
    }
}

impl Undo for DeleteVrf {
    fn run(&self, sides: &LazySides<'_>) -> Result<(), Left> {
        let inside = &sides.open()?.container;
        let found = link::find(inside, self.0.as_str())?;
        let Some(vrf) = found.filter(|link| matches!(link.kind, Kind::Vrf(_))) else { return Ok(()) };
        match inside.run(link_removal::request(&(&vrf).into())) {
            Err(error) if !error.is_absent() => Err(error.into()),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}
