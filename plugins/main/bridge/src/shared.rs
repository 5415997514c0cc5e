//! What all attachments of a bridge share, as a step of ADD: the bridge, its addresses, the VLAN gateway. Made by the first ADD that
//! needs it; later ones find it, and make the rest of what a failed one left half-made. It is never taken back.

use std::net::IpAddr;

use cni_spec::{CniError, Code};
use interface::announced::Announced;
use interface::veth::refuse_advertisements;
use interface::{failed, host_veth};
use netops::addr;
use netops::bridge_port::{self, Vlans};
use netops::error::Result;
use netops::link::{self, Link, Mac, Settings, Target, Veth};
use netops::{Errno, Kernel, OpError};

use crate::plan::{self, Shared};

/// The shared part, as far as it is made.
#[derive(Debug)]
pub(crate) struct Made {
    /// The bridge as it was found or made.
    pub(crate) bridge: Link,
    /// The interface that holds the gateways if the bridge does not.
    pub(crate) vlan_gateway: Option<Link>,
    /// New IPv6 addresses, and where they will be announced.
    announced: Option<(Announced, Vec<IpAddr>)>,
}

/// The bridge of this name, if there is one.
///
/// # Errors
/// Code 103: a link of another kind has the name.
pub(crate) fn find_bridge(host: &Kernel, name: &str) -> std::result::Result<Option<Link>, CniError> {
    expect_bridge(host, name, link::find(host, name).map_err(failed)?)
}

fn expect_bridge(host: &Kernel, name: &str, found: Option<Link>) -> std::result::Result<Option<Link>, CniError> {
    match found {
        Some(link) if !link.kind.is_bridge() => {
            let msg =
                format!("cannot use bridge {name} on {}: {name} already exists and is a {}", host.place(), link.kind);
            Err(CniError::new(Code::EXISTS, msg).detail("Choose another name by key bridge."))
        }
        found => Ok(found),
    }
}

/// Makes the shared part as the plan needs it. `found` is the link of the bridge's name.
pub(crate) fn ensure(host: &Kernel, plan: &Shared, found: Option<Link>) -> std::result::Result<Made, CniError> {
    let found = expect_bridge(host, &plan.bridge.name, found)?;
    let is_found = found.is_some();
    let bridge = found.map_or_else(|| create(host, plan), Ok)?;
    let made = Made { bridge, vlan_gateway: None, announced: None };
    let mut making = Making { host, made };
    // The look at the addresses first: it may find a conflict, and nothing is changed yet.
    let addresses = match plan.vlan_gateway {
        None => making.address_changes(plan)?,
        Some(_) => plan::AddressChanges::default(),
    };
    making.ensure_up(&plan.bridge).map_err(failed)?;
    if is_found && plan.keeps_mac && plan.gateways.is_empty() {
        making.keep_mac_before_lease().map_err(failed)?;
    }
    match &plan.vlan_gateway {
        None => making.change_addresses(&addresses).map_err(failed)?,
        Some(gateway) => {
            making.made.vlan_gateway = Some(making.ensure_vlan_gateway(gateway)?);
            let addresses = making.address_changes(plan)?;
            making.change_addresses(&addresses).map_err(failed)?;
        }
    }
    Ok(making.made)
}

struct Making<'a> {
    host: &'a Kernel,
    made: Made,
}

fn create(host: &Kernel, plan: &Shared) -> std::result::Result<Link, CniError> {
    // From its birth: another ADD that finds the bridge reports its address in a result, and CHECK holds it to that. Neither
    // do its ports change it then, nor udev.
    let (plan, mac) = (&plan.bridge, Some(Mac::random()));
    let options = link::Bridge { mtu_bytes: plan.mtu_bytes, mac, vlan_filtering: plan.vlan_filtering };
    match host.run(link::create_bridge(&plan.name, &options)) {
        // Another ADD was faster.
        Err(error) if error.os_errno() == Some(Errno::EEXIST) => {
            find_bridge(host, &plan.name)?.ok_or_else(|| failed(error))
        }
        outcome => {
            outcome.map_err(failed)?;
            link::get(host, &Target::named(&plan.name)).map_err(failed)
        }
    }
}

impl Making<'_> {
    fn ensure_up(&mut self, plan: &plan::Bridge) -> Result<()> {
        refuse_advertisements(&self.made.bridge.name)?;
        let promisc = (plan.promisc && !self.made.bridge.promisc).then_some(true);
        if self.made.bridge.up && promisc.is_none() {
            return Ok(());
        }
        let settings = Settings { up: Some(true), promisc, ..Settings::default() };
        self.made.bridge = link::set_and_get(self.host, &(&self.made.bridge).into(), &settings)?;
        Ok(())
    }

    fn address_changes(&self, plan: &Shared) -> std::result::Result<plan::AddressChanges, CniError> {
        if plan.gateways.is_empty() {
            return Ok(plan::AddressChanges::default());
        }
        let found = addr::list(self.host, self.made.router()).map_err(failed)?;
        plan::address_changes(&self.made.router().name, &found, &plan.gateways, plan.force)
    }

    /// A bridge that another process made follows the lowest address of its ports until its own is set. Neighbours must not
    /// have to learn their gateway's address anew with each container.
    fn keep_mac(&self, router: &Link) -> Result<()> {
        let settings = Settings { mac: router.mac, ..Settings::default() };
        if router.mac.is_some() { self.host.run(link::set(&router.into(), &settings)) } else { Ok(()) }
    }

    /// The same where an address plugin of another make has not said yet which addresses the bridge gets, and the port joins
    /// before it does. A bridge that has addresses was made to keep its own before: setting that makes neighbours unlearn it.
    fn keep_mac_before_lease(&self) -> Result<()> {
        let is_link_local = |ip: IpAddr| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
        let addresses = addr::list(self.host, &self.made.bridge)?;
        match addresses.iter().all(|address| is_link_local(address.net.ip())) {
            true => self.keep_mac(&self.made.bridge),
            false => Ok(()),
        }
    }

    fn change_addresses(&mut self, changes: &plan::AddressChanges) -> Result<()> {
        let router = &self.made.router().clone();
        // First, as processes that see the addresses count on it.
        if !changes.add.is_empty() {
            self.keep_mac(router)?;
        }
        for net in &changes.delete {
            match self.host.run(addr::delete(router, *net)) {
                // Another ADD was faster, here and below.
                Err(error) if error.is_absent() => (),
                outcome => outcome?,
            }
        }
        let has_ipv6 = changes.add.iter().any(|gateway| gateway.net.is_ipv6());
        let watch = if has_ipv6 { Some(Announced::watch()?) } else { None };
        let mut added = Vec::new();
        for address in &changes.add {
            match self.host.run(addr::add(router, address)) {
                Err(error) if error.os_errno() == Some(Errno::EEXIST) => (),
                Err(error) => return Err(self.put_back(router, changes, error)),
                Ok(()) => added.push(address.net.ip()),
            }
        }
        added.retain(IpAddr::is_ipv6);
        self.made.announced = watch.map(|watch| (watch, added));
        Ok(())
    }

    /// The containers there are keep their gateway when the kernel refuses the one that was to replace it.
    fn put_back(&self, router: &Link, changes: &plan::AddressChanges, error: OpError) -> OpError {
        let lost = changes.delete.iter().filter(|net| self.host.run(addr::add(router, &(**net).into())).is_err());
        lost.for_each(|net| tracing::error!(%net, link = router.name, "a gateway's address is lost"));
        error
    }

    /// It gets up last: one that is down may be half-made.
    fn ensure_vlan_gateway(&self, plan: &plan::VlanGateway) -> std::result::Result<Link, CniError> {
        match link::find(self.host, &plan.name).map_err(failed)? {
            Some(found) if found.up => Ok(found),
            Some(found) => {
                self.finish_vlan_gateway(plan, found.peer.filter(|_| found.peer_netns_id.is_none())).map_err(failed)
            }
            None => self.create_vlan_gateway(plan).map_err(failed),
        }
    }

    fn create_vlan_gateway(&self, plan: &plan::VlanGateway) -> Result<Link> {
        let veth = Veth {
            name: &host_veth::random_name(),
            master: Some(self.made.bridge.index),
            alias: "",
            mtu_bytes: Some(self.made.bridge.mtu_bytes),
            up: false,
            mac: Some(Mac::random()),
            peer_name: &plan.name,
            peer_mac: Some(Mac::random()),
            peer_netns: None,
        };
        match link::create_veth(self.host, &veth) {
            Err(error) if error.os_errno() == Some(Errno::EEXIST) => link::get(self.host, &Target::named(&plan.name)),
            made => self.finish_vlan_gateway(plan, Some(made?.index)),
        }
    }

    /// `port` is its end in the bridge. A link of that name without one is an administrator's: it gets up and no more.
    fn finish_vlan_gateway(&self, plan: &plan::VlanGateway, port: Option<u32>) -> Result<Link> {
        let up = Settings { up: Some(true), ..Settings::default() };
        let port = match port {
            Some(index) => {
                link::find_index(self.host, index)?.filter(|port| port.master == Some(self.made.bridge.index))
            }
            None => None,
        };
        if let Some(port) = port {
            refuse_advertisements(&port.name)?;
            refuse_advertisements(&plan.name)?;
            let mut requests = leave_default(&self.made.bridge, &port);
            requests.push(bridge_port::add_vlans(&port, Vlans::access(plan.vlan)));
            requests.push(link::set(&(&port).into(), &up));
            self.host.run_all(requests)?;
        }
        link::set_and_get(self.host, &Target::named(&plan.name), &up)
    }
}

impl Made {
    /// The interface that has the gateways.
    pub(crate) fn router(&self) -> &Link {
        self.vlan_gateway.as_ref().unwrap_or(&self.bridge)
    }

    /// Waits until the gateways that this ADD added answer.
    pub(crate) async fn settle(&mut self) -> Result<()> {
        match self.announced.take() {
            Some((announced, addresses)) => announced.settle(self.router(), &addresses).await,
            None => Ok(()),
        }
    }
}

/// Takes a new port out of the VLAN that its bridge put it in.
fn leave_default(bridge: &Link, port: &Link) -> Vec<netops::Request> {
    match bridge.kind.bridge_vlans().default_pvid {
        Some(id @ 1..) => vec![bridge_port::delete_vlans(port, Vlans::tagged(id, id))],
        Some(0) | None => Vec::new(),
    }
}
