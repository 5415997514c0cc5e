//! What all attachments of a bridge share: the bridge, its addresses, the VLAN gateway. Made by the first ADD that
//! needs it; later ones find it.

use std::collections::BTreeSet;

use cni_spec::CniError;
use interface::{failed, host_veth};
use netops::addr;
use netops::bridge_port::{self, Vlans};
use netops::error::Result;
use netops::link::{self, Link, Mac, Settings, Target, Veth};
use netops::sysctl::{self, Key};
use netops::txn::{NodeUndo, Txn};
use netops::{Errno, Kernel};

use crate::observe::find_bridge;
use crate::plan::{self, Plan};
use crate::undo::Undo;

/// The shared part, as far as it is made.
pub(crate) struct Shared<'a> {
    host: &'a Kernel,
    txn: &'a Txn<Undo>,
    /// The bridge as it was found or made.
    pub(crate) bridge: Link,
    /// The interface that holds the gateways if the bridge does not.
    pub(crate) vlan_gateway: Option<Link>,
    /// The bridge's ports before this ADD, looked up when a change first needs them.
    ports: Option<BTreeSet<u32>>,
}

/// Makes the shared part as the plan needs it.
pub(crate) fn ensure<'a>(
    host: &'a Kernel,
    txn: &'a Txn<Undo>,
    plan: &Plan,
    force: bool,
) -> std::result::Result<Shared<'a>, CniError> {
    let (bridge, ports) = match find_bridge(host, &plan.bridge.name)? {
        Some(bridge) => (bridge, None),
        None => create(host, txn, plan)?,
    };
    let mut shared = Shared { host, txn, bridge, vlan_gateway: None, ports };
    // The look at the addresses first: it may find a conflict, and nothing is changed yet.
    let addresses = match plan.vlan_gateway {
        None => shared.address_changes(plan, force)?,
        Some(_) => plan::AddressChanges::default(),
    };
    shared.ensure_up(&plan.bridge).map_err(failed)?;
    match &plan.vlan_gateway {
        None => shared.change_addresses(&addresses).map_err(failed)?,
        Some(gateway) => {
            shared.vlan_gateway = Some(shared.ensure_vlan_gateway(gateway)?);
            let addresses = shared.address_changes(plan, force)?;
            shared.change_addresses(&addresses).map_err(failed)?;
        }
    }
    Ok(shared)
}

fn create(host: &Kernel, txn: &Txn<Undo>, plan: &Plan) -> std::result::Result<(Link, Option<BTreeSet<u32>>), CniError> {
    // From its birth: another ADD that finds the bridge tells its address in a result, and CHECK holds it to that.
    let mac = plan.keeps_mac().then(Mac::random);
    let plan = &plan.bridge;
    let options = link::Bridge { mtu_bytes: plan.mtu_bytes, mac, vlan_filtering: plan.vlan_filtering };
    let outcome = match host.run(link::create_bridge(&plan.name, &options)) {
        // Another ADD was faster: then it is its bridge to take back, not ours.
        Err(error) if error.os_errno() == Some(Errno::EEXIST) => {
            let found = find_bridge(host, &plan.name)?;
            return found.map(|bridge| (bridge, None)).ok_or_else(|| failed(error));
        }
        outcome => outcome,
    };
    // An error may be that of a lost answer: then the bridge is there.
    if outcome.is_ok() || find_bridge(host, &plan.name).is_ok_and(|found| found.is_some()) {
        let change = NodeUndo::DeleteLink(Link { name: plan.name.clone(), ..Link::default() });
        txn.push(Undo::Shared { bridge: plan.name.clone(), ports: BTreeSet::new(), change });
    }
    outcome.map_err(failed)?;
    let bridge = link::get(host, &Target::named(&plan.name)).map_err(failed)?;
    Ok((bridge, Some(BTreeSet::new())))
}

impl Shared<'_> {
    /// The interface that has the gateways.
    pub(crate) fn router(&self) -> &Link {
        self.vlan_gateway.as_ref().unwrap_or(&self.bridge)
    }

    fn ensure_up(&mut self, plan: &plan::Bridge) -> Result<()> {
        if let Some((key, value)) = advertisements_accepted(&self.bridge)? {
            self.push(NodeUndo::WriteSysctl { key: key.clone(), value })?;
            sysctl::write(&key, "0")?;
        }
        let promisc = (plan.promisc && !self.bridge.promisc).then_some(true);
        if self.bridge.up && promisc.is_none() {
            return Ok(());
        }
        if promisc.is_some() {
            self.push(NodeUndo::ClearPromisc(self.bridge.clone()))?;
        }
        let settings = Settings { up: Some(true), promisc, ..Settings::default() };
        self.bridge = link::set_and_get(self.host, &(&self.bridge).into(), &settings)?;
        Ok(())
    }

    fn address_changes(&self, plan: &Plan, force: bool) -> std::result::Result<plan::AddressChanges, CniError> {
        if plan.gateways.is_empty() {
            return Ok(plan::AddressChanges::default());
        }
        let found = addr::list(self.host, self.router()).map_err(failed)?;
        plan::address_changes(&self.router().name, &found, &plan.gateways, force)
    }

    fn change_addresses(&mut self, changes: &plan::AddressChanges) -> Result<()> {
        let router = &self.router().clone();
        // A bridge that somebody else made follows the lowest address of its ports until its own is set. Neighbours must
        // not have to learn their gateway's address anew with each container. First, as who sees the addresses counts on it.
        if let (false, Some(_)) = (changes.add.is_empty(), router.mac) {
            let settings = Settings { mac: router.mac, ..Settings::default() };
            self.host.run(link::set(&router.into(), &settings))?;
        }
        for net in &changes.delete {
            self.push(NodeUndo::AddAddress { link: router.clone(), net: *net })?;
            self.host.run(addr::delete(router, *net))?;
        }
        for address in &changes.add {
            self.push(NodeUndo::DeleteAddress { link: router.clone(), net: address.net })?;
            match self.host.run(addr::add(router, address)) {
                // Another ADD was faster.
                Err(error) if error.os_errno() == Some(Errno::EEXIST) => self.txn.forget_newest(),
                outcome => outcome?,
            }
        }
        Ok(())
    }

    fn ensure_vlan_gateway(&mut self, plan: &plan::VlanGateway) -> std::result::Result<Link, CniError> {
        let up = Settings { up: Some(true), ..Settings::default() };
        if let Some(found) = link::find(self.host, &plan.name).map_err(failed)? {
            return match found.up {
                true => Ok(found),
                false => link::set_and_get(self.host, &(&found).into(), &up).map_err(failed),
            };
        }
        self.create_vlan_gateway(plan, &up).map_err(failed)
    }

    fn create_vlan_gateway(&mut self, plan: &plan::VlanGateway, up: &Settings) -> Result<Link> {
        let veth = Veth {
            name: &host_veth::random_name(),
            master: Some(self.bridge.index),
            alias: "",
            mtu_bytes: Some(self.bridge.mtu_bytes),
            peer_name: &plan.name,
            peer_mac: None,
            peer_netns: None,
        };
        let port = match link::create_veth(self.host, &veth) {
            Err(error) if error.os_errno() == Some(Errno::EEXIST) => {
                return link::get(self.host, &Target::named(&plan.name));
            }
            made => made?,
        };
        self.ports_before()?.insert(port.index);
        self.push(NodeUndo::DeleteLink(port.clone()))?;
        refuse_advertisements(&port)?;
        refuse_advertisements(&Link { name: plan.name.clone(), ..Link::default() })?;
        let mut requests = leave_default(&self.bridge, &port);
        requests.push(bridge_port::add_vlans(&port, Vlans::access(plan.vlan)));
        requests.push(link::set(&(&port).into(), up));
        self.host.run_all(requests)?;
        link::set_and_get(self.host, &Target::named(&plan.name), up)
    }

    /// Notes a change that others may count on once they see it.
    fn push(&mut self, change: NodeUndo) -> Result<()> {
        let ports = self.ports_before()?.clone();
        self.txn.push(Undo::Shared { bridge: self.bridge.name.clone(), ports, change });
        Ok(())
    }

    fn ports_before(&mut self) -> Result<&mut BTreeSet<u32>> {
        let ports = match self.ports.take() {
            Some(ports) => ports,
            None => link::list(self.host, Some(self.bridge.index))?.iter().map(|port| port.index).collect(),
        };
        Ok(self.ports.insert(ports))
    }
}

/// Takes a new port out of the VLAN that its bridge put it in.
pub(crate) fn leave_default(bridge: &Link, port: &Link) -> Vec<netops::Request> {
    match bridge.default_pvid {
        Some(id @ 1..) => vec![bridge_port::delete_vlans(port, Vlans::tagged(id, id))],
        Some(0) | None => Vec::new(),
    }
}

/// CVE-2020-10749: the node must not take a container's word for who its router is. For links just made, which the
/// kernel lets accept them.
pub(crate) fn refuse_advertisements(link: &Link) -> Result<()> {
    match sysctl::write(&Key::of_link("ipv6", &link.name, "accept_ra")?, "0") {
        // A kernel without IPv6 has no such key.
        Err(error) if error.is_absent() => Ok(()),
        written => written,
    }
}

/// The key and its value, if the link accepts router advertisements.
fn advertisements_accepted(link: &Link) -> Result<Option<(Key, String)>> {
    let key = Key::of_link("ipv6", &link.name, "accept_ra")?;
    Ok(sysctl::find(&key)?.filter(|value| value != "0").map(|value| (key, value)))
}
