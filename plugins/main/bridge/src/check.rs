//! CHECK: the node compared with the plan that config and prevResult give.

use cni_spec::{AddResult, CniError, Code, Interface};
use filter::Filter;
use interface::check::{self, differs};
use interface::failed;
use interface::host_veth::Owner;
use netops::link::{self, Kind, Link};
use netops::{addr, bridge_port, pair};
use skel::CheckRequest;

use crate::conf::Conf;
use crate::observe::{Places, find_bridge, owner};
use crate::plan::Plan;
use crate::undo::attachment;

/// Compares the attachment with what ADD made. What later plugins added is no difference.
///
/// # Errors
/// The first difference.
pub async fn check(request: &CheckRequest<Conf>) -> Result<(), CniError> {
    let prev = request.conf.prev_result()?;
    let Some(prev) = &prev else {
        return Err(CniError::new(Code::INVALID_CONFIG, "cannot CHECK without prevResult"));
    };
    if let Some(ipam) = request.ipam() {
        ipam.check().await?;
    }
    let entry = check::container_interface(prev, request.ifname.as_str(), &request.netns)?;
    let owner = owner(&request.conf.name, &request.container_id, &request.ifname);
    let lease = request.conf.ipam.as_ref().map(|_| lease_of(prev, entry));
    let plan = Plan::new(&request.conf.own, &owner, None, lease)?;
    let places = Places::open(&request.netns)?;
    Checking { prev, entry, owner, plan, places, search_path: request.raw.search_path() }.all()
}

/// The part of the result that IPAM gave for this interface.
fn lease_of(prev: &AddResult, entry: &Interface) -> AddResult {
    let mut lease = prev.clone();
    lease.ips.retain(|ip| ip.interface.and_then(|index| prev.interfaces.get(index)) == Some(entry));
    lease
}

struct Checking<'a> {
    prev: &'a AddResult,
    entry: &'a Interface,
    owner: Owner<'a>,
    plan: Plan,
    places: Places,
    search_path: &'a str,
}

impl Checking<'_> {
    fn all(&self) -> Result<(), CniError> {
        let bridge = self.bridge()?;
        let container = self.container()?;
        let host_veth = self.host_veth(&bridge, &container)?;
        self.port(&bridge, &host_veth)?;
        self.gateways(&bridge)?;
        check::addresses(&self.places.inside, &container, &self.plan.container)?;
        check::routes(&self.places.inside, &container, &self.plan.container)?;
        self.filter(&host_veth, &container)
    }

    /// The result's entry for a link of the node.
    fn entry_of(&self, link: &Link) -> Option<&Interface> {
        self.prev.interfaces.iter().find(|entry| entry.name == link.name && entry.sandbox.is_empty())
    }

    fn bridge(&self) -> Result<Link, CniError> {
        let name = &self.plan.bridge.name;
        let object = format!("bridge {name}");
        let bridge = find_bridge(&self.places.host, name)?.ok_or_else(|| differs(&object, "it is not found"))?;
        if !bridge.up {
            return Err(differs(&object, "it is down"));
        }
        if self.plan.bridge.promisc && !bridge.promisc {
            return Err(differs(&object, "it is not promiscuous"));
        }
        match self.entry_of(&bridge) {
            None => Err(differs(&object, "prevResult does not have it")),
            Some(entry) if self.plan.keeps_mac() => check::mac(&bridge, entry).map(|()| bridge),
            Some(_) => Ok(bridge),
        }
    }

    fn container(&self) -> Result<Link, CniError> {
        let object = format!("interface {} in {}", self.entry.name, self.places.inside.place());
        let link = link::find(&self.places.inside, &self.entry.name).map_err(failed)?;
        let link = link.ok_or_else(|| differs(&object, "it is not found"))?;
        if link.kind != Kind::Veth {
            return Err(differs(&object, format!("it is a {}, not a veth", link.kind)));
        }
        if self.plan.container_up && !link.up {
            return Err(differs(&object, "it is down"));
        }
        check::mac(&link, self.entry).map(|()| link)
    }

    fn host_veth(&self, bridge: &Link, container: &Link) -> Result<Link, CniError> {
        let object = format!("host end of {}", container.name);
        let Places { host, netns, inside } = &self.places;
        let peer = pair::find_host_end(host, inside, netns, container).map_err(failed)?;
        let peer = peer.ok_or_else(|| differs(&object, "it is not found"))?;
        if self.entry_of(&peer).is_none() {
            return Err(differs(&object, format!("it is {}, which prevResult does not have", peer.name)));
        }
        if peer.master != Some(bridge.index) {
            return Err(differs(format!("link {}", peer.name), format!("it is no port of bridge {}", bridge.name)));
        }
        if !peer.up {
            return Err(differs(format!("link {}", peer.name), "it is down"));
        }
        Ok(peer)
    }

    fn port(&self, bridge: &Link, host_veth: &Link) -> Result<(), CniError> {
        let object = format!("bridge port {}", host_veth.name);
        let (wanted, found) = (self.plan.host_veth.port, host_veth.port.unwrap_or_default());
        if wanted.hairpin != found.hairpin {
            return Err(differs(object, format!("hairpin mode is {}", on_or_off(found.hairpin))));
        }
        if wanted.isolated != found.isolated {
            return Err(differs(object, format!("isolation is {}", on_or_off(found.isolated))));
        }
        let join = &self.plan.host_veth.vlans.join;
        if join.is_empty() {
            return Ok(());
        }
        let found = bridge_port::list_vlans(&self.places.host, bridge.index, host_veth.index).map_err(failed)?;
        let missing = join.iter().flat_map(|vlans| vlans.first..=vlans.last);
        match missing.into_iter().find(|id| !found.iter().any(|vlan| vlan.first == *id)) {
            None => Ok(()),
            Some(id) => Err(differs(object, format!("it is not in VLAN {id}"))),
        }
    }

    fn gateways(&self, bridge: &Link) -> Result<(), CniError> {
        if self.plan.gateways.is_empty() {
            return Ok(());
        }
        let host = &self.places.host;
        let router = match &self.plan.vlan_gateway {
            None => bridge.clone(),
            Some(gateway) => {
                let found = link::find(host, &gateway.name).map_err(failed)?;
                found.ok_or_else(|| differs(format!("interface {}", gateway.name), "it is not found"))?
            }
        };
        let found = addr::list(host, &router).map_err(failed)?;
        match self.plan.gateways.iter().find(|wanted| !found.iter().any(|address| address.net == wanted.net)) {
            None => Ok(()),
            Some(gateway) => {
                Err(differs(format!("link {}", router.name), format!("gateway {} is not found", gateway.net)))
            }
        }
    }

    fn filter(&self, host_veth: &Link, container: &Link) -> Result<(), CniError> {
        if self.plan.masquerade.is_none() && !self.plan.spoof_guard {
            return Ok(());
        }
        let different = |error: netops::OpError| CniError { code: Code::CHECK_FAILED, ..failed(error) };
        let mut filter = Filter::open().map_err(failed)?.searching(self.search_path);
        let attachment = attachment(&self.owner);
        if let Some((backend, addresses)) = &self.plan.masquerade {
            filter.check_masquerade(*backend, attachment, addresses).map_err(different)?;
        }
        match (self.plan.spoof_guard, container.mac) {
            (true, Some(mac)) => filter.check_spoof_guard(attachment, &host_veth.name, mac.0).map_err(different),
            _ => Ok(()),
        }
    }
}

fn on_or_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}
