//! The bridge plugin: containers on a Linux bridge, each by a veth.
//!
//! Start at [`plan`]: it says what an attachment is on the node. The driver in crate `interface` makes it so, compares,
//! and removes; [`mod@step`] has the steps that only this plugin makes.

use cni_spec::gc::Sweep;
use cni_spec::{AddResult, Attachment, CniError, NetworkName};
use interface::{
    AddOrCheck, Detaching, InterfacePlugin, LinkKind, Side, Stage, Step, Uncollected, Verb, alias, conf as keys, veth,
};
use netops::link::{self, Kind, Link, Mac};
use netops::{Kernel, OpError};

pub mod conf;
pub mod gateways;
pub mod plan;

mod ensure_bridge;
mod host_routes;
mod preview;
mod status;
pub mod step;
mod vlan_gateway;

pub use conf::{Conf, Removal};

use conf::Gateway;

use plan::{Own, Plan};
use step::State;

pub struct Bridge;

impl InterfacePlugin for Bridge {
    const NAME: &'static str = "bridge";
    const LINK: LinkKind = LinkKind::Veth;
    const FILTERS: bool = true;
    type Conf = Conf;
    type Removal = Removal;
    type State = State;
    type Step = Own;

    /// What the container may send from is decided here: it can change an address that is read there later.
    fn observe(call: &AddOrCheck<'_>, conf: &Conf) -> Result<State, CniError> {
        match call.verb {
            Verb::Check => Ok(State::of_result(call.conf.prev_result()?.as_ref(), &conf.bridge)),
            Verb::Add => {
                let requested = keys::requested_mac(call.raw, conf.mac)?;
                Ok(State::new(&conf.bridge, requested.or_else(|| conf.mac_spoof_check.then(Mac::random))))
            }
        }
    }

    fn plan(call: &AddOrCheck<'_>, keys: &Conf, state: &State, lease: Option<AddResult>) -> Result<Plan, CniError> {
        plan::plan(keys, call.attachment, state.mac, lease)
    }

    fn shared_link(conf: &Conf) -> Option<&str> {
        Some(conf.bridge.as_str())
    }

    fn links(stage: &mut Stage<'_>, state: &State) -> Result<Vec<(Side, Link)>, CniError> {
        state.links(stage)
    }

    fn names(_: &Conf, plan: &Plan) -> Vec<(Side, String)> {
        let shared = plan.steps.iter().find_map(|step| match step {
            Step::Own(Own::Shared(shared)) => Some(shared),
            _ => None,
        });
        let bridge = shared.map(|shared| (Side::Host, shared.bridge.name.clone()));
        let ends = [(Side::Host, plan.names.host.clone()), (Side::Container, plan.names.container.clone())];
        let gateways = shared.map(|shared| &shared.gateways).filter(|gateways| gateways.vlan.is_some());
        let gateway = gateways.map(|gateways| (Side::Host, gateways.holder.clone()));
        bridge.into_iter().chain(ends).chain(gateway).collect()
    }

    fn remove_link(detaching: &Detaching<'_>, removal: &Removal) -> Result<(), OpError> {
        let bridge = removal.bridge.as_ref().map(|name| name.as_str());
        host_routes::remove(detaching.attachment, removal, detaching.prev)
            .and(veth::remove(detaching, veth::Unmarked::PortOf(bridge)))
    }

    fn collect(network: &NetworkName, sweep: &Sweep<&Attachment>) -> Vec<Uncollected> {
        host_routes::collect(network, sweep)
    }

    /// The veths without a mark that the bridge has: what the reference made has none, so its attachment is not known.
    fn list_unmarked(removal: &Removal) -> Result<Vec<Link>, OpError> {
        let host = Kernel::host()?;
        let Some(name) = &removal.bridge else { return Ok(Vec::new()) };
        let Some(bridge) = link::find(&host, name.as_str())? else { return Ok(Vec::new()) };
        let mut ports = link::list(&host, Some(bridge.index))?;
        // The other end of a VLAN gateway's port is in the node itself.
        ports.retain(|port| port.kind == Kind::Veth && port.peer_netns_id.is_some() && !alias::is_marked(port));
        Ok(ports)
    }

    fn gateway_link(conf: &Conf) -> Option<String> {
        (conf.gateway != Gateway::None).then(|| plan::gateway_link(conf, conf.has_ipam).ok()).flatten()
    }

    fn status(conf: &Conf, search_path: &str) -> Result<(), CniError> {
        status::node(conf, search_path)
    }
}
