//! The bridge, as a step of ADD: made by the first ADD that needs it; later ones find it, and make the rest of what a failed one
//! left half-made. It is never taken back.

use std::net::IpAddr;

use cni_spec::{CniError, Code};
use interface::alias::is_marked;
use interface::failed;
use interface::veth::{advertisements_are_refused, refuse_advertisements};
use netops::error::Result;
use netops::link::{self, Link, Mac, Settings, Target};
use netops::sysctl::{self, Key, Need};
use netops::{Errno, Kernel, addr};

use crate::gateways::{self, Announcement};
use crate::plan::Shared;

/// The shared part, as far as it is made.
#[derive(Debug)]
pub(crate) struct MadeBridge {
    pub(crate) bridge: Link,
    /// The interface that holds the gateways if the bridge does not.
    pub(crate) vlan_gateway: Option<Link>,
    pub(crate) has_gateways: bool,
    /// New addresses to wait for.
    pub(crate) announced: Option<Announcement>,
}

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

/// Makes the shared part as the plan needs it. `found` is the link of the bridge's name; `mac` is for a new one.
pub(crate) fn ensure(
    host: &Kernel,
    wanted: &Shared,
    found: Option<Link>,
    mac: Option<Mac>,
) -> std::result::Result<MadeBridge, CniError> {
    let found = expect_bridge(host, &wanted.bridge.name, found)?;
    let is_found = found.is_some();
    let bridge = found.map_or_else(|| create(host, wanted, mac), Ok)?;
    // The look at the addresses first: it may find a conflict, and nothing is changed yet.
    let has_gateways = match wanted.gateways.vlan {
        None => gateways::changes(host, &bridge, &wanted.gateways)?.add.is_empty(),
        Some(_) => true,
    };
    let made = MadeBridge { has_gateways, ..MadeBridge::of(bridge) };
    let mut making = Making { host, made };
    making.ensure_up(wanted, is_found).map_err(failed)?;
    match wanted.gateways.addresses.is_empty() {
        // No packet reaches a gateway of such an address, so no neighbour has to unlearn it.
        _ if wanted.keeps_mac && !has_own_mac(&making.made.bridge) => making.keep_mac().map_err(failed)?,
        true if is_found && wanted.keeps_mac => making.keep_mac_before_lease().map_err(failed)?,
        // Before the port joins, and before processes that see the addresses count on it.
        false if !has_gateways => making.keep_mac().map_err(failed)?,
        true | false => (),
    }
    Ok(making.made)
}

/// Whether a bridge has an Ethernet address by which others reach it.
pub(crate) fn has_own_mac(bridge: &Link) -> bool {
    bridge.mac.is_some_and(Mac::is_of_one_link)
}

struct Making<'a> {
    host: &'a Kernel,
    made: MadeBridge,
}

fn create(host: &Kernel, wanted: &Shared, mac: Option<Mac>) -> std::result::Result<Link, CniError> {
    // From its birth: another ADD that finds the bridge reports its address in a result, and CHECK holds it to that. Neither
    // do its ports change it then, nor udev.
    let (wanted, mac) = (&wanted.bridge, Some(mac.unwrap_or_else(Mac::random)));
    let options = link::Bridge {
        mtu_bytes: wanted.mtu_bytes,
        mac,
        vlan_filtering: wanted.vlan_filtering,
        group_forward_mask: wanted.group_forward_mask,
        multicast_snooping: wanted.multicast_snooping,
    };
    match host.run(link::create_bridge(&wanted.name, &options)) {
        // Another ADD was faster.
        Err(error) if error.os_errno() == Some(Errno::EEXIST) => {
            find_bridge(host, &wanted.name)?.ok_or_else(|| failed(error))
        }
        outcome => {
            outcome.map_err(failed)?;
            link::get(host, &Target::named(&wanted.name)).map_err(failed)
        }
    }
}

impl Making<'_> {
    fn ensure_up(&mut self, wanted: &Shared, is_found: bool) -> Result<()> {
        let (name, need) = (&self.made.bridge.name, wanted.gateways.need_of_ipv6());
        match is_found.then(|| advertisements_are_refused(name).unwrap_or(false)) {
            Some(true) => {}
            Some(false) if hears_own_routers(self.host, &self.made.bridge)? => keep_advertisements(name, need)?,
            Some(false) | None => refuse_advertisements(name, need)?,
        }
        let promisc = (wanted.bridge.promisc && !self.made.bridge.promisc).then_some(true);
        if self.made.bridge.up && promisc.is_none() {
            return Ok(());
        }
        let settings = Settings { up: Some(true), promisc, ..Settings::default() };
        self.made.bridge = link::set_and_get(self.host, &(&self.made.bridge).into(), &settings)?;
        Ok(())
    }

    /// A bridge that another process made follows the lowest address of its ports until its own is set. Neighbours must not
    /// have to learn their gateway's address anew with each container. A bridge that has lost its last port has none of its own.
    fn keep_mac(&self) -> Result<()> {
        let bridge = &self.made.bridge;
        let mac = bridge.mac.filter(|_| has_own_mac(bridge)).unwrap_or_else(Mac::random);
        self.host.run(link::set(&bridge.into(), &Settings { mac: Some(mac), ..Settings::default() }))
    }

    /// The same where an address plugin of another project has not said yet which addresses the bridge gets, and the port joins
    /// before it does. A bridge that has addresses was made to keep its own before: setting that makes neighbours unlearn it.
    fn keep_mac_before_lease(&self) -> Result<()> {
        let is_link_local = |ip: IpAddr| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
        let addresses = addr::list(self.host, &self.made.bridge)?;
        match addresses.iter().all(|address| is_link_local(address.net.ip())) {
            true => self.keep_mac(),
            false => Ok(()),
        }
    }
}

/// Whether the node has routes or addresses of its own by router advertisements on a bridge. Where all ports are containers', only these can have
/// sent them.
pub(crate) fn hears_own_routers(host: &Kernel, bridge: &Link) -> Result<bool> {
    Ok(link::has_routers(host, bridge)? && link::list(host, Some(bridge.index))?.iter().any(|port| !is_marked(port)))
}

/// The node itself has routes or addresses by router advertisements on a bridge that another process made: a host whose uplink is
/// its port. A router keeps them only where the value is 2.
fn keep_advertisements(name: &str, need: Need) -> Result<()> {
    let key = Key::of_link("ipv6", name, "accept_ra")?;
    if !sysctl::is(&key, "2")? {
        tracing::warn!(
            "{key} is 2 now, not 0: the node has its own routes by router advertisements there, and keeps them"
        );
    }
    sysctl::set(&key, "2", need)
}

impl MadeBridge {
    /// The shared part of a bridge that is there, of which nothing else is known yet.
    pub(crate) fn of(bridge: Link) -> Self {
        Self { bridge, vlan_gateway: None, has_gateways: false, announced: None }
    }

    pub(crate) fn router(&self) -> &Link {
        self.vlan_gateway.as_ref().unwrap_or(&self.bridge)
    }

    /// Waits until the gateways that this ADD added answer.
    pub(crate) async fn settle(&mut self) -> Result<()> {
        match self.announced.take() {
            Some(announced) => announced.settle(self.router()).await,
            None => Ok(()),
        }
    }
}
