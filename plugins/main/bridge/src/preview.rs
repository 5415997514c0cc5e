//! The part of the shared objects that exists already, for programs that show what ADD would do.

use cni_spec::CniError;
use interface::{Shown, failed, veth};
use netops::Kernel;
use netops::link::{self, Link};

use crate::ensure_bridge::{find_bridge, hears_own_routers};
use crate::gateways;
use crate::gateways::AddressChanges;
use crate::plan::{Bridge, Gateways, Shared};

pub(crate) fn shared(host: &Kernel, shared: &Shared) -> Result<Vec<Shown>, CniError> {
    let Bridge { name, promisc, .. } = &shared.bridge;
    let bridge = find_bridge(host, name)?;
    let is_ready = |link: &Link| link.up && (!promisc || link.promisc);
    let refuses = bridge.is_some() && veth::advertisements_are_refused(name).map_err(failed)?;
    let keeps = match &bridge {
        Some(bridge) if !refuses => hears_own_routers(host, bridge).map_err(failed)?,
        Some(_) | None => false,
    };
    // A bridge that is there keeps its MTU.
    let mtu_bytes = shared.bridge.mtu_bytes.filter(|_| bridge.is_none());
    let shown = Shared { bridge: Bridge { mtu_bytes, ..shared.bridge.clone() }, ..shared.clone() };
    // As the text has them: the bridge, its sysctl, up.
    let text = shown.to_string();
    let mut lines = text.lines();
    let mut steps = Vec::new();
    steps.extend(lines.next().map(|line| Shown::new(line).so_if(bridge.is_some())));
    let value = |line: &str| if keeps { line.replace("accept_ra=0", "accept_ra=2") } else { line.to_owned() };
    steps.extend(lines.next().map(|line| Shown::new(value(line)).so_if(refuses).uncompared()));
    steps.extend(lines.map(|line| Shown::new(line).so_if(bridge.as_ref().is_some_and(is_ready))));
    Ok(steps)
}

pub(crate) fn gateways(host: &Kernel, plan: &Gateways) -> Result<Vec<Shown>, CniError> {
    let router = link::find(host, &plan.holder).map_err(failed)?;
    let changes = match &router {
        Some(router) => gateways::changes(host, router, plan)?,
        None => AddressChanges { add: plan.addresses.clone(), delete: Vec::new() },
    };
    let text = plan.to_string();
    let mut lines = text.lines();
    let mut steps = Vec::new();
    if plan.vlan.is_some() {
        steps.extend(lines.next().map(|line| Shown::new(line).so_if(router.is_some())));
    }
    let holder = &plan.holder;
    steps
        .extend(changes.delete.iter().map(|net| Shown::new(format!("ip address del {net} dev {holder}")).uncompared()));
    let is_there = |place: usize| plan.addresses.get(place).is_some_and(|gateway| !changes.add.contains(gateway));
    steps.extend(lines.enumerate().map(|(place, line)| Shown::new(line).so_if(is_there(place))));
    Ok(steps)
}
