//! The gateways' addresses, as a step of ADD: on the bridge, or on its port in a VLAN.
//!
//! The step comes behind everything in the container, where the kernel may refuse addresses and routes of the lease: what is
//! refused before has changed no gateway. Containers need theirs only once they run. What fails behind the step is taken back.

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;

use cni_spec::{CniError, Code};
use interface::container::AddressWatch;
use interface::sides::Sides;
use interface::undo::{Left, OwnUndo, Undo};
use interface::{Side, Stage, failed};
use ipnetwork::IpNetwork;
use netops::addr::{self, Address, Kept};
use netops::error::Result;
use netops::link::{self, Link};
use netops::route::MAIN_TABLE;
use netops::route::whole::{self, Whole};
use netops::{Errno, Family, Kernel};

use crate::ensure_bridge::MadeBridge;
use crate::plan::Gateways;
use crate::vlan_gateway;

#[derive(Debug)]
pub(crate) struct Announcement(AddressWatch, Vec<IpAddr>);

impl Announcement {
    /// Waits until the addresses answer.
    pub(crate) async fn settle(self, router: &Link) -> Result<()> {
        self.0.settle(router, &self.1).await
    }
}

pub(crate) fn changes(
    host: &Kernel,
    router: &Link,
    wanted: &Gateways,
) -> std::result::Result<AddressChanges, CniError> {
    if wanted.addresses.is_empty() {
        return Ok(AddressChanges::default());
    }
    let found = addr::list(host, router).map_err(failed)?;
    address_changes(&router.name, &found, &wanted.addresses, wanted.force)
}

/// Makes the gateways' addresses, and first the port that has them in a VLAN.
pub(crate) fn ensure(
    stage: &mut Stage<'_>,
    made: &mut MadeBridge,
    wanted: &Gateways,
) -> std::result::Result<(), CniError> {
    let host = &stage.sides.host;
    match &wanted.vlan {
        Some(vlan) => made.vlan_gateway = Some(vlan_gateway::ensure(host, &made.bridge, wanted, *vlan)?),
        None if made.has_gateways => return Ok(()),
        None => (),
    }
    let router = made.router().clone();
    // Looked at again: another ADD may have been faster.
    let changes = changes(host, &router, wanted)?;
    if changes.add.is_empty() {
        return Ok(());
    }
    let mark = stage.names.alias.clone();
    let port = Port { bridge: made.bridge.index, index: stage.link(Side::Host)?.index, mark };
    let before = Before::read(host, port, router.clone(), &changes).map_err(failed)?;
    let added = Rc::clone(&before.added);
    stage.txn.push(Undo::Own(Box::new(before)));
    made.announced = change(host, &router, &changes, &added).map_err(failed)?;
    Ok(())
}

fn change(host: &Kernel, router: &Link, changes: &AddressChanges, added: &Added) -> Result<Option<Announcement>> {
    for net in &changes.delete {
        match host.run(addr::delete(router, *net)) {
            // Another ADD was faster, here and below.
            Err(error) if error.is_absent() => (),
            outcome => outcome?,
        }
    }
    let has_ipv6 = changes.add.iter().any(|gateway| gateway.net.is_ipv6());
    let watch = if has_ipv6 { Some(AddressWatch::watch()?) } else { None };
    for address in &changes.add {
        // Noted first: the answer may be lost.
        added.borrow_mut().push(*address);
        match host.run(addr::add(router, address)) {
            Err(error) if error.os_errno() == Some(Errno::EEXIST) => drop(added.borrow_mut().pop()),
            outcome => outcome?,
        }
    }
    let added = added.borrow();
    let added = added.iter().map(|address| address.net.ip()).filter(IpAddr::is_ipv6).collect();
    Ok(watch.map(|watch| Announcement(watch, added)))
}

/// The addresses that the step has added so far.
type Added = Rc<RefCell<Vec<Address>>>;

#[derive(Debug)]
struct Port {
    bridge: u32,
    index: u32,
    mark: String,
}

/// What the step replaces and has added, to take it back.
#[derive(Debug)]
struct Before {
    port: Port,
    router: Link,
    replaced: Vec<Kept>,
    /// The link's routes. Those with a replaced address end with it, and with a link's last IPv4 address all of IPv4.
    routes: Vec<Whole>,
    added: Added,
}

impl Before {
    fn read(host: &Kernel, port: Port, router: Link, changes: &AddressChanges) -> Result<Self> {
        let mut replaced = Vec::new();
        if !changes.delete.is_empty() {
            replaced = addr::kept(host, &router)?;
            replaced.retain(|kept| changes.delete.contains(&kept.net));
        }
        let mut routes = Vec::new();
        for family in Family::BOTH {
            if changes.add.iter().any(|gateway| Family::from(gateway.net) == family) {
                routes.extend(whole::list(host, router.index, MAIN_TABLE, family)?);
            }
        }
        Ok(Self { port, router, replaced, routes, added: Rc::default() })
    }

    /// Whether another attachment may count on the new gateways: one of the same network, or one whose port came later. It has
    /// found them there, or not looked for them yet. An older one of another network had others.
    fn has_other_users(&self, host: &Kernel) -> Result<bool> {
        let network = |mark: &str| mark.split_once('/').map(|(network, _)| network.to_owned());
        let Port { bridge, index, mark } = &self.port;
        let own = network(mark);
        let is_other = |port: &Link| port.index != *index && Some(port.index) != self.router.peer;
        let is_of_network = |port: &Link| port.alias.as_deref().is_some_and(|mark| network(mark) == own);
        let counts = |port: &Link| port.index > *index || is_of_network(port);
        Ok(link::list(host, Some(*bridge))?.iter().any(|port| is_other(port) && counts(port)))
    }

    fn put_back(&self, host: &Kernel) -> Result<()> {
        let router = &self.router;
        match self.has_other_users(host)? {
            true => tracing::warn!(link = router.name, "new gateways stay for other containers of the bridge"),
            false => self.added.borrow().iter().try_for_each(|address| {
                match host.run(addr::delete(router, address.net)) {
                    Err(error) if error.is_absent() => Ok(()),
                    outcome => outcome,
                }
            })?,
        }
        let addresses = self.replaced.iter().map(|kept| addr::add_kept(router, kept));
        // The kernel makes those of addresses itself.
        let routes = self.routes.iter().map(whole::add_only);
        addresses.chain(routes).try_for_each(|request| match host.run(request) {
            Err(error) if error.os_errno() == Some(Errno::EEXIST) => Ok(()),
            outcome => outcome,
        })
    }
}

impl OwnUndo for Before {
    fn text(&self) -> String {
        format!("gateways of {} put back", self.router.name)
    }

    /// Undoes the change by a new connection: one that has failed may still have an answer to what it was asked.
    fn run(&self, _: &Sides) -> std::result::Result<(), Left> {
        Ok(self.put_back(&Kernel::host()?)?)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AddressChanges {
    /// Addresses in the way.
    pub delete: Vec<IpNetwork>,
    pub add: Vec<Address>,
}

/// Compares the addresses a link has with the gateways it needs: every other IPv4 address, and IPv6 ones of an
/// overlapping subnet, are in the way.
pub fn address_changes(
    link: &str,
    found: &[Address],
    wanted: &[Address],
    force: bool,
) -> std::result::Result<AddressChanges, CniError> {
    let is = |net: IpNetwork| move |address: &&Address| address.net == net;
    let missing = wanted.iter().filter(|gateway| !found.iter().any(|address| address.net == gateway.net));
    let mut changes = AddressChanges { add: missing.copied().collect(), ..AddressChanges::default() };
    for address in found {
        let in_way = |gateway: &&Address| match (address.net, gateway.net) {
            (IpNetwork::V4(_), IpNetwork::V4(_)) => true,
            (IpNetwork::V6(has), IpNetwork::V6(needs)) => has.contains(needs.ip()) || needs.contains(has.ip()),
            (IpNetwork::V4(_), IpNetwork::V6(_)) | (IpNetwork::V6(_), IpNetwork::V4(_)) => false,
        };
        let Some(gateway) = changes.add.iter().find(in_way) else { continue };
        if wanted.iter().any(|gateway| is(gateway.net)(&address)) {
            continue;
        }
        if !force {
            let msg = format!("cannot add gateway {} to {link}: it has address {} already", gateway.net, address.net);
            let detail = format!(
                "Give this network a bridge of its own: forceAddress would remove {} from {link}, with its routes.",
                address.net
            );
            return Err(CniError::new(Code::EXISTS, msg).detail(detail));
        }
        changes.delete.push(address.net);
    }
    Ok(changes)
}
