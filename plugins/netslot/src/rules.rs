//! The pool's rules in the packet filter. Their number does not depend on that of the slots, which have elements in sets: a block of
//! slots gets these by one transaction, before the first of them is made, and they stay for the next slots with the same numbers.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use cni_filter::{Backend, EgressMember, EgressOfMany, Filter, SharedPort, SharedPorts};
use ipnetwork::IpNetwork;
use netops::error::Result;

use crate::marks::Marks;
use crate::spec::{Port, Spec};

/// The container in the comments of the pool's policy.
pub(crate) const GROUP: &str = "slots";
/// Slots in a block: the elements of both families still fit into one send.
const BLOCK: u32 = 32;

#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) filter: Filter,
    /// The blocks that have their elements, each with the ruleset's number at which that was seen.
    blocks: BTreeMap<u32, u32>,
}

fn block_of(index: u32) -> u32 {
    (index - 1) / BLOCK
}

impl Rules {
    pub(crate) fn new(filter: Filter) -> Self {
        Self { filter, blocks: BTreeMap::new() }
    }

    /// Makes the rules and elements that the slot with this number needs, where they were not made before, or where somebody may have
    /// removed them.
    pub(crate) fn prepare(&mut self, spec: &Spec, marks: &Marks, index: u32) -> Result<()> {
        // Read first: what another process changes from now on is seen by the next slot.
        let (block, generation) = (block_of(index), self.filter.generation()?);
        match self.blocks.get(&block).copied() {
            Some(seen) if seen == generation => return Ok(()),
            Some(_) if self.check(spec, marks, index, &[]).is_ok() => (),
            Some(_) | None => self.make(spec, marks, block)?,
        }
        self.blocks.insert(block, generation);
        Ok(())
    }

    /// Makes what a block has lost.
    pub(crate) fn repair(&mut self, spec: &Spec, marks: &Marks, index: u32) -> Result<()> {
        self.make(spec, marks, block_of(index))
    }

    fn make(&mut self, spec: &Spec, marks: &Marks, block: u32) -> Result<()> {
        let (gateways, addresses, members) = of_block(spec, marks, block);
        let egress = EgressOfMany { group: marks.names(GROUP), gateways: &gateways, policy: &spec.egress };
        // The policy first: no packet is masqueraded that was not judged.
        self.filter.ensure_egress_of_many(egress, &members)?;
        self.filter.add_masquerade(Backend::Shared, marks.names(&block_name(block)), &addresses)
    }

    /// Compares the rules with those that are made for this slot.
    pub(crate) fn check(&mut self, spec: &Spec, marks: &Marks, index: u32, ports: &[Port]) -> Result<()> {
        let block = block_of(index);
        let (gateways, addresses, members) = of_block(spec, marks, block);
        let egress = EgressOfMany { group: marks.names(GROUP), gateways: &gateways, policy: &spec.egress };
        self.filter.check_egress_of_many(egress, &members)?;
        self.filter.check_masquerade(Backend::Shared, marks.names(&block_name(block)), &addresses)?;
        if ports.is_empty() {
            return Ok(());
        }
        self.filter.check_ports(marks.names(&index.to_string()), &shared(ports, &spec.addresses(index)))
    }

    /// Forwards these ports of the node and no others to the slot.
    pub(crate) fn publish(&mut self, spec: &Spec, marks: &Marks, index: u32, ports: &[Port]) -> Result<()> {
        let ports = shared(ports, &spec.addresses(index));
        self.filter.add_ports(marks.names(&index.to_string()), &ports).map(drop)
    }

    pub(crate) fn unpublish(&mut self, marks: &Marks, index: u32) -> Result<()> {
        self.filter.remove_ports(marks.names(&index.to_string())).map(drop)
    }
}

fn block_name(block: u32) -> String {
    format!("block-{block}")
}

/// The gateways, and the addresses and links of a block's slots.
fn of_block(spec: &Spec, marks: &Marks, block: u32) -> (Vec<IpAddr>, Vec<IpNetwork>, Vec<EgressMember>) {
    let first = block * BLOCK + 1;
    let numbers = first..(first + BLOCK).min(spec.slots_max + 1);
    let addresses = |index| spec.addresses(index).into_iter().map(|address| address.ip()).collect();
    let member = |index| EgressMember { link: marks.link(index), addresses: addresses(index) };
    let all = numbers.clone().flat_map(|index| spec.addresses(index)).collect();
    (spec.gateways(), all, numbers.map(member).collect())
}

/// The slot's own connections to its ports of the node come back to it, so they get the node's address.
fn shared(ports: &[Port], addresses: &[IpNetwork]) -> SharedPorts {
    let mut shared = SharedPorts::default();
    for ip in addresses.iter().map(IpNetwork::ip) {
        let of_family = ports.iter().filter(|port| port.address.is_none_or(|node| node.is_ipv4() == ip.is_ipv4()));
        for Port { protocol, address, node: port, slot } in of_family.copied() {
            shared.forwarded.push(SharedPort { protocol, address, port, to: SocketAddr::new(ip, slot) });
        }
        if shared.forwarded.iter().any(|port| port.to.ip() == ip) {
            shared.masqueraded.push((Some(ip), ip));
        }
    }
    shared
}
