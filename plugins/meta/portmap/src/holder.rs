//! Containers that hold a host port which another one asks for.
//!
//! The kernel lets the first rule decide. Rules of a container that is gone, which no DEL has removed, do not count: no
//! namespace has the address that they forward to, or it is the new container's by now.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use filter::iptables::rule::{Protocol, Rule};
use filter::iptables::{Found, Table};
use netops::error::Result;
use netops::places::Places;

use crate::pod::{Pod, target};

/// A container that holds a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) protocol: Protocol,
    pub(crate) port: u16,
    /// The comment of its rule, which names network and container.
    pub(crate) name: String,
    /// Where it forwards the port to.
    pub(crate) address: IpAddr,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { protocol, port, name, address } = self;
        write!(f, "host port {port}/{} is held by the container of rule \"{name}\", {address}", protocol.name())
    }
}

/// Protocol number and port.
pub(crate) type Port = (u8, u16);

/// Looks which rules hold ports of `pod`: those of containers that live, and the ports that only containers hold that are
/// gone. `rules` come with the name of their container.
pub(crate) fn of_rules<'a>(
    rules: impl Iterator<Item = (&'a Found, String)>,
    pod: &Pod<'_>,
) -> (Vec<Holder>, BTreeSet<Port>) {
    let places = OnceCell::new();
    let mut addresses: BTreeMap<IpAddr, bool> = BTreeMap::new();
    let (mut living, mut dead): (Vec<Holder>, BTreeSet<Port>) = (Vec::new(), BTreeSet::new());
    for (found, name) in rules {
        let (Some(address), Some(rule)) = (target(found), &found.rule) else { continue };
        let Some((protocol, port)) = held(rule, pod) else { continue };
        let lives = *addresses.entry(address).or_insert_with(|| {
            let places = || places.get_or_init(Places::look);
            address != pod.address.ip() && places().find(&[address]) != Some(false)
        });
        if lives {
            living.push(Holder { protocol, port, name, address });
        } else {
            dead.insert((protocol as u8, port));
        }
    }
    dead.retain(|(protocol, port)| {
        living.iter().all(|holder| (holder.protocol as u8, holder.port) != (*protocol, *port))
    });
    (living, dead)
}

/// The same for rules that jump to the containers' chains.
pub(crate) fn in_chains(
    table: &mut Table<'_>,
    entries: &[&Found],
    pod: &Pod<'_>,
) -> Result<(Vec<Holder>, BTreeSet<Port>)> {
    let mut chains: BTreeMap<&str, String> = BTreeMap::new();
    for entry in entries {
        if let Some(chain) = entry.goes_to() {
            chains.entry(chain).or_insert_with(|| entry.comment().unwrap_or_default());
        }
    }
    let mut rules = Vec::new();
    for (chain, name) in chains {
        rules.extend(table.list(chain)?.unwrap_or_default().into_iter().map(|found| (found, name.clone())));
    }
    Ok(of_rules(rules.iter().map(|(found, name)| (found, name.clone())), pod))
}

/// The port of `pod` that a forwarding rule takes, if it takes any: same protocol and port, and an address of the node that
/// both are for.
fn held(rule: &Rule, pod: &Pod<'_>) -> Option<(Protocol, u16)> {
    let (protocol, port) = (rule.protocol?, rule.port?);
    let taken = rule.destination.as_ref().map(|is| is.value.ip());
    let mut own = pod.conf.mappings.iter().filter(|mapping| mapping.is_for(pod.family));
    let meets = own.any(|mapping| {
        let both = taken.zip(mapping.destination());
        (mapping.protocol, mapping.host_port) == (protocol, port) && both.is_none_or(|(taken, wanted)| taken == wanted)
    });
    meets.then_some((protocol, port))
}
