//! The bridge's own steps: made by ADD, compared by CHECK.

use cni_spec::{AddResult, CniError, Code, Interface};
use interface::apply::UP_DEADLINE;
use interface::check::{self, differs};
use interface::plan::Turn;
use interface::undo::Undo;
use interface::{Look, OwnStep, Shown, Side, Stage, failed};
use netops::link::{self, Link, Mac, Settings};
use netops::sysctl::{self, Key};
use netops::watch::Watch;
use netops::{addr, neighbour};

use crate::ensure_bridge::{self, MadeBridge, find_bridge, has_own_mac, hears_own_routers};
use crate::host_routes::{self, Unreach};
use crate::plan::{Gateways, Own, Shared};
use crate::{gateways, preview, vlan_gateway};

/// The state of one call beside its plan.
#[derive(Debug, Default)]
pub struct State {
    bridge: String,
    /// The container's Ethernet address, if one is asked for.
    pub(crate) mac: Option<Mac>,
    bridge_mac: Option<Mac>,
    made: Option<MadeBridge>,
    /// The bridge's MTU before the port joined it, in bytes.
    mtu_before: Option<u32>,
}

impl State {
    /// The state of a call in which the container is to have this address.
    pub(crate) fn new(bridge: &str, mac: Option<Mac>) -> Self {
        Self { bridge: bridge.to_owned(), mac, ..Self::default() }
    }

    /// The state of a call about an attachment with this result.
    pub(crate) fn of_result(result: Option<&AddResult>, bridge: &str) -> Self {
        let is_bridge = |entry: &&Interface| entry.name == bridge && entry.sandbox.is_empty();
        let entry = result.and_then(|result| result.interfaces.iter().find(is_bridge));
        let bridge_mac = entry.and_then(|entry| entry.mac.parse().ok()).filter(|mac: &Mac| mac.is_of_one_link());
        Self { bridge_mac, ..Self::new(bridge, None) }
    }

    /// The shared part, which a step before this one has made.
    fn made(&mut self) -> Result<&mut MadeBridge, CniError> {
        let Self { made, bridge, .. } = self;
        made.as_mut().ok_or_else(|| not_found(format_args!("bridge {bridge}")))
    }

    /// The links of the result: the bridge, both ends, and the VLAN gateway.
    pub(crate) fn links(&self, stage: &mut Stage<'_>) -> Result<Vec<(Side, Link)>, CniError> {
        let mut links = vec![
            (Side::Host, stage.link(Side::Host)?.clone()),
            (Side::Container, stage.link(Side::Container)?.clone()),
        ];
        if let Some(made) = &self.made {
            links.insert(0, (Side::Host, made.bridge.clone()));
            links.extend(made.vlan_gateway.clone().map(|gateway| (Side::Host, gateway)));
        }
        Ok(links)
    }
}

impl OwnStep for Own {
    type State = State;

    fn turn(&self) -> Turn {
        match self {
            Self::Shared(_) => Turn::Both,
            Self::AwaitPort { .. } | Self::Gateways(_) | Self::Forget(..) | Self::AwaitGateways | Self::Reach(..) => {
                Turn::AfterAddresses
            }
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Shared(_) => "ensure bridge",
            Self::AwaitPort { .. } => "wait for port",
            Self::Gateways(_) => "add gateways",
            Self::Forget(..) => "forget old neighbours",
            Self::AwaitGateways => "wait for gateways",
            Self::Reach(..) => "add routes to the container",
        }
    }

    async fn apply(&self, stage: &mut Stage<'_>, state: &mut State) -> Result<(), CniError> {
        match self {
            Self::Shared(shared) => {
                let found = stage.find_host_link(&shared.bridge.name)?;
                let made = ensure_bridge::ensure(&stage.sides.host, shared, found, state.bridge_mac)?;
                stage.master = Some(made.bridge.clone());
                state.mtu_before.get_or_insert(made.bridge.mtu_bytes);
                state.made = Some(made);
                Ok(())
            }
            Self::AwaitPort { carrier } => {
                let before = state.mtu_before;
                let made = state.made()?;
                await_port(stage, made, *carrier).await?;
                warn_of_lower_mtu(&made.bridge, before);
                Ok(())
            }
            Self::Gateways(plan) => gateways::ensure(stage, state.made()?, plan),
            Self::Forget(_, addresses) => {
                let (mac, router) = (stage.link(Side::Container)?.mac, state.made()?.router());
                neighbour::forget(&stage.sides.host, router, addresses, mac);
                Ok(())
            }
            Self::AwaitGateways => state.made()?.settle().await.map_err(failed),
            Self::Reach(_, routes) => {
                let router = state.made()?.router();
                stage.txn.push(Undo::Own(Box::new(Unreach(router.clone(), routes.clone()))));
                host_routes::add(&stage.sides.host, router, routes).map_err(failed)
            }
        }
    }

    fn is_on_node(&self) -> bool {
        true
    }

    /// The Ethernet address of a bridge that is there stays: other containers may know it.
    fn may_mend(&self, look: &Look<'_>) -> bool {
        match (self, &look.master) {
            (Self::Shared(shared), Some(bridge)) => {
                let has_no_mac = shared.keeps_mac && !has_own_mac(bridge);
                let is_open = || hears_containers(look, bridge).unwrap_or_default();
                !bridge.up || shared.bridge.promisc && !bridge.promisc || has_no_mac || is_open()
            }
            (Self::Gateways(gateways), _) => {
                interface::repair::can_have(&gateways.holder, gateways.addresses.iter().map(|it| it.net.ip()))
            }
            _ => true,
        }
    }

    /// A bridge that is missing gets the Ethernet address that its containers know; no address is replaced.
    async fn mend(&self, stage: &mut Stage<'_>, state: &mut State) -> Result<(), CniError> {
        if let (None, Some(bridge)) = (&state.made, &stage.master) {
            state.made = Some(MadeBridge::of(bridge.clone()));
        }
        match self {
            Self::Gateways(gateways) => {
                let made = state.made()?;
                made.has_gateways = false;
                if let Some(vlan) = gateways.vlan {
                    vlan_gateway::rejoin(&stage.sides.host, &made.bridge, gateways, vlan).map_err(failed)?;
                }
                gateways::ensure(stage, made, &Gateways { force: false, ..gateways.clone() })?;
                made.settle().await.map_err(failed)
            }
            Self::Reach(router, routes) => {
                let found = link::find(&stage.sides.host, router).map_err(failed)?;
                let router = found.ok_or_else(|| not_found(format_args!("link {router}")))?;
                host_routes::add(&stage.sides.host, &router, routes).map_err(failed)
            }
            Self::Shared(_) | Self::AwaitPort { .. } | Self::Forget(..) | Self::AwaitGateways => {
                self.apply(stage, state).await
            }
        }
    }

    fn is_compared(&self) -> bool {
        matches!(self, Self::Shared(_) | Self::Gateways(_) | Self::Reach(..))
    }

    fn preview(&self, look: &mut Look<'_>, _: &mut State) -> Result<Vec<Shown>, CniError> {
        match self {
            Self::Shared(shared) => preview::shared(&look.sides.host, shared),
            Self::Gateways(gateways) => preview::gateways(&look.sides.host, gateways),
            Self::Reach(..) => Ok(self.to_string().lines().map(Shown::new).collect()),
            other => Ok(other.to_string().lines().map(|line| Shown::new(line).uncompared()).collect()),
        }
    }

    fn check(&self, look: &mut Look<'_>, _: &mut State) -> Result<(), CniError> {
        match self {
            Self::Shared(shared) => {
                look.master = find_bridge(&look.sides.host, &shared.bridge.name)?;
                check_bridge(shared, look)
            }
            Self::Gateways(gateways) => check_gateways(gateways, look),
            Self::AwaitPort { .. } | Self::Forget(..) | Self::AwaitGateways => Ok(()),
            Self::Reach(router, routes) => {
                let host = &look.sides.host;
                let link = link::find(host, router).map_err(failed)?;
                let link = link.ok_or_else(|| differs(format!("link {router}"), "it is not found"))?;
                match host_routes::find_missing(host, &link, routes).map_err(failed)? {
                    None => Ok(()),
                    Some(route) => Err(differs(format!("link {router}"), format!("route {route} is not found"))),
                }
            }
        }
    }
}

/// The error of a step whose object no step before it has made or found.
fn not_found(object: impl std::fmt::Display) -> CniError {
    CniError::new(Code::KERNEL, format!("cannot use {object}: it is not found"))
}

/// Reads the links as they are now, the host's end when it can carry packets: a bridge may have taken its new port's
/// address.
async fn await_port(stage: &mut Stage<'_>, made: &mut MadeBridge, carrier: bool) -> Result<(), CniError> {
    let host = &stage.sides.host;
    let host_veth = stage.link(Side::Host)?.clone();
    let (seen, mut bridge) = link::get_both(host, &(&host_veth).into(), &(&made.bridge).into()).map_err(failed)?;
    if carrier && !seen.oper_up {
        let mut watch = Watch::host().map_err(failed)?;
        watch.until_up(host, &host_veth, UP_DEADLINE).await.map_err(failed)?;
        bridge = link::get(host, &(&bridge).into()).map_err(failed)?;
    }
    if bridge.oper_unknown {
        // A new bridge has carrier from the start, so its first port changes nothing and the kernel never works
        // out its state.
        let settings = Settings { oper_up: true, ..Settings::default() };
        bridge = link::set_and_get(host, &(&bridge).into(), &settings).map_err(failed)?;
    }
    made.bridge = bridge;
    Ok(())
}

/// The kernel gives a bridge the MTU of its lowest port, unless an administrator has set it while the bridge was there.
fn warn_of_lower_mtu(bridge: &Link, before: Option<u32>) {
    let Link { name, mtu_bytes, .. } = bridge;
    if let Some(before) = before.filter(|before| before > mtu_bytes) {
        tracing::warn!(
            bridge = name,
            "the bridge's MTU was {before} and is {mtu_bytes} by the new port, for all its containers: set key mtu = {before}"
        );
    }
}

fn check_bridge(shared: &Shared, look: &Look<'_>) -> Result<(), CniError> {
    let object = format!("bridge {}", shared.bridge.name);
    let bridge = look.master.as_ref().ok_or_else(|| differs(&object, "it is not found"))?;
    if !bridge.up {
        return Err(differs(&object, "it is down"));
    }
    if shared.bridge.promisc && !bridge.promisc {
        return Err(differs(&object, "it is not promiscuous"));
    }
    if look.is_repair && hears_containers(look, bridge).map_err(failed)? {
        return Err(differs(&object, "it takes router advertisements of containers: accept_ra is not 0"));
    }
    match look.entry_of(bridge) {
        None => Err(differs(&object, "prevResult does not have it")),
        Some(_) if shared.keeps_mac && !has_own_mac(bridge) => Err(differs(
            &object,
            format_args!("no host reaches its address {}", bridge.mac.map(|mac| mac.to_string()).unwrap_or_default()),
        )),
        // An earlier version may have reported an address that no bridge keeps.
        Some(entry) if shared.keeps_mac && entry.mac.parse().map_or(true, Mac::is_of_one_link) => {
            check::mac(bridge, entry)
        }
        Some(_) => Ok(()),
    }
}

/// Whether a container could become the node's router by the bridge (CVE-2020-10749), as on one that another process has made anew with the
/// kernel's value. The value 2 is chosen.
fn hears_containers(look: &Look<'_>, bridge: &Link) -> netops::error::Result<bool> {
    let key = Key::of_link("ipv6", &bridge.name, "accept_ra")?;
    Ok(sysctl::is(&key, "1")? && !hears_own_routers(&look.sides.host, bridge)?)
}

fn check_gateways(gateways: &Gateways, look: &Look<'_>) -> Result<(), CniError> {
    if gateways.addresses.is_empty() {
        return Ok(());
    }
    let (host, name) = (&look.sides.host, &gateways.holder);
    let router = match &look.master {
        Some(bridge) if bridge.name == *name => bridge.clone(),
        Some(_) | None => {
            let found = link::find(host, name).map_err(failed)?;
            found.ok_or_else(|| differs(format!("interface {name}"), "it is not found"))?
        }
    };
    if let (Some(_), Some(bridge)) = (gateways.vlan, &look.master)
        && let Some(port) = vlan_gateway::find_stray_port(host, bridge, &router).map_err(failed)?
    {
        return Err(differs(format!("link {}", port.name), format!("it is no port of bridge {}", bridge.name)));
    }
    let found = addr::list(host, &router).map_err(failed)?;
    match gateways.addresses.iter().find(|wanted| !found.iter().any(|address| address.net == wanted.net)) {
        None => Ok(()),
        Some(gateway) => Err(differs(format!("link {}", router.name), format!("gateway {} is not found", gateway.net))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_needs_the_bridge_fails_with_its_name_where_no_step_has_made_it() {
        let error = State::new("cni0", None).made().unwrap_err();
        assert_eq!((error.code, error.msg.as_str()), (Code::KERNEL, "cannot use bridge cni0: it is not found"));
    }
}
