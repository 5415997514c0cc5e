//! The port that has the gateways of a VLAN: a veth between the bridge and the node itself, which all attachments in the VLAN
//! share, as they do the bridge.

use cni_spec::CniError;
use interface::veth::refuse_advertisements;
use interface::{failed, host_veth};
use netops::bridge_port::{self, Vlans};
use netops::error::Result;
use netops::link::{self, Kind, Link, Mac, Settings, Target, Veth};
use netops::sysctl::Need;
use netops::{Errno, Kernel, link_removal};

use crate::plan::Gateways;

/// Makes the port, or finishes a half-made one: it gets up last, so one that is down may be that.
pub(crate) fn ensure(
    host: &Kernel,
    bridge: &Link,
    gateways: &Gateways,
    vlan: u16,
) -> std::result::Result<Link, CniError> {
    let name = gateways.holder.as_str();
    let making = Making { host, bridge, name, vlan, of_ipv6: gateways.need_of_ipv6() };
    match link::find(host, name).map_err(failed)? {
        Some(found) if found.up => Ok(found),
        Some(found) => making.finish(found.peer.filter(|_| found.peer_netns_id.is_none())).map_err(failed),
        None => making.create().map_err(failed),
    }
}

/// The other end of the link that has the gateways of a VLAN, if it is no port of the bridge. A link of that name without such an
/// end is an administrator's.
pub(crate) fn find_stray_port(host: &Kernel, bridge: &Link, gateway: &Link) -> Result<Option<Link>> {
    let Some(index) = gateway.peer.filter(|_| gateway.peer_netns_id.is_none()) else { return Ok(None) };
    let port = link::find_index(host, index)?;
    Ok(port.filter(|port| port.kind == Kind::Veth && port.master != Some(bridge.index)))
}

/// Makes the other end of the gateways' link a port of the bridge again, and of its VLAN only.
pub(crate) fn rejoin(host: &Kernel, bridge: &Link, gateways: &Gateways, vlan: u16) -> Result<()> {
    let name = gateways.holder.as_str();
    let Some(gateway) = link::find(host, name)? else { return Ok(()) };
    let Some(port) = find_stray_port(host, bridge, &gateway)? else { return Ok(()) };
    let down = Settings { up: Some(false), ..Settings::default() };
    let join = Settings { master: Some(bridge.index), ..Settings::default() };
    host.run_all([down, join].iter().map(|settings| link::set(&(&port).into(), settings)).collect())?;
    Making { host, bridge, name, vlan, of_ipv6: gateways.need_of_ipv6() }.finish(Some(port.index)).map(drop)
}

struct Making<'a> {
    host: &'a Kernel,
    bridge: &'a Link,
    name: &'a str,
    vlan: u16,
    of_ipv6: Need,
}

impl Making<'_> {
    fn create(&self) -> Result<Link> {
        let name = host_veth::random_name();
        let veth = Veth {
            master: Some(self.bridge.index),
            mtu_bytes: Some(self.bridge.mtu_bytes),
            mac: Some(Mac::random()),
            peer_mac: Some(Mac::random()),
            ..Veth::new(&name, self.name)
        };
        match link::create_veth(self.host, &veth) {
            Err(error) if error.os_errno() == Some(Errno::EEXIST) => link::get(self.host, &Target::named(self.name)),
            made => {
                let port = made?;
                self.finish(Some(port.index)).inspect_err(|_| self.take_back(&port))
            }
        }
    }

    /// Deletes a pair that this ADD has made and cannot finish, unless another ADD has finished it meanwhile.
    fn take_back(&self, port: &Link) {
        let delete = || -> Result<()> {
            let host = Kernel::host()?;
            match link::find(&host, self.name)? {
                Some(found) if !found.up && found.peer == Some(port.index) => link_removal::remove_by(host, port, None),
                Some(_) | None => Ok(()),
            }
        };
        if let Err(error) = delete() {
            tracing::warn!(%error, link = self.name, "a half-made port for a VLAN's gateways stays");
        }
    }

    /// `port` is its end in the bridge. A link of that name without one is an administrator's: it gets up and no more.
    fn finish(&self, port: Option<u32>) -> Result<Link> {
        let up = Settings { up: Some(true), ..Settings::default() };
        let port = match port {
            Some(index) => link::find_index(self.host, index)?.filter(|port| port.master == Some(self.bridge.index)),
            None => None,
        };
        if let Some(port) = port {
            refuse_advertisements(&port.name, self.of_ipv6)?;
            refuse_advertisements(self.name, self.of_ipv6)?;
            let mut requests = leave_default(self.bridge, &port);
            requests.push(bridge_port::add_vlans(&port, Vlans::access(self.vlan)));
            requests.push(link::set(&(&port).into(), &up));
            self.host.run_all(requests)?;
        }
        link::set_and_get(self.host, &Target::named(self.name), &up)
    }
}

/// Takes a new port out of the VLAN that its bridge put it in.
fn leave_default(bridge: &Link, port: &Link) -> Vec<netops::Request> {
    match bridge.kind.bridge_vlans().default_pvid {
        Some(id @ 1..) => vec![bridge_port::delete_vlans(port, Vlans::tagged(id, id))],
        Some(0) | None => Vec::new(),
    }
}
