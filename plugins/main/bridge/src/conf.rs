//! The bridge plugin's keys: every rule about them, so that nothing later can meet a bad value.

use cni_spec::{CniError, ConfObject, Dns, FromAnyConf, FromConf, IfName};
use interface::conf::{self, ArgsKey, DnsKey, IpamKey, MacKey, Masquerade, invalid, vlan_id};
use interface::container::{Dad, RouterAdvertisements};
use netops::bridge_port::Vlans;
use netops::link::{Mac, Port};
use serde::Deserialize;

/// The bridge that is used when `bridge` is not set.
pub const DEFAULT_BRIDGE: &str = "cni0";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conf {
    /// The bridge, made if it is missing.
    pub bridge: String,
    /// Whether the bridge is the containers' router.
    pub gateway: Gateway,
    /// Replaces a conflicting address of the bridge instead of failing.
    pub force_address: bool,
    /// Containers leave the node under its address.
    pub masquerade: Option<Masquerade>,
    /// MTU of a new bridge and of both veth ends, in bytes; `None` is the kernel's default.
    pub mtu_bytes: Option<u32>,
    pub promisc: bool,
    /// The link-local groups that a new bridge forwards, a bit each; `None` is the kernel's default.
    pub group_forward_mask: Option<u16>,
    /// Whether a new bridge sends multicast only where somebody listens; `None` is the kernel's default.
    pub multicast_snooping: Option<bool>,
    pub port: Port,
    /// VLANs of the container's port; `None`: the bridge does not filter VLANs.
    pub vlans: Option<PortVlans>,
    /// The container may send from its own Ethernet address only.
    pub mac_spoof_check: bool,
    pub dad: Dad,
    pub routers: RouterAdvertisements,
    pub leave_down: bool,
    /// `args.cni.mac`, or `runtimeConfig.mac`, which is stronger.
    pub mac: Option<Mac>,
    pub has_ipam: bool,
    /// Name service that replaces IPAM's.
    pub dns: Option<Dns>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    /// The bridge, if it can have that name. Only veths of the reference plugin are known by it: ours have their owner's
    /// mark.
    pub bridge: Option<IfName>,
    /// The bridge is the containers' gateway: the node may have routes of its own to a container.
    pub is_gateway: bool,
    /// The VLAN of the container's port; 0 is none.
    pub vlan: u16,
}

impl Removal {
    /// The links by which the node may have routes to a container.
    pub(crate) fn routers(&self) -> Vec<String> {
        let Some(bridge) = &self.bridge else { return Vec::new() };
        let gateway = (self.vlan != 0).then(|| format!("{bridge}.{}", self.vlan));
        [Some(bridge.as_str().to_owned()), gateway].into_iter().flatten().collect()
    }
}

impl FromAnyConf for Removal {
    fn from_any_conf(object: &ConfObject) -> Self {
        let name: String = object.find(&["bridge"]).unwrap_or_default();
        let is_set = |key: &str| object.find::<bool>(&[key]).unwrap_or_default();
        let is_gateway = is_set("isGateway") || is_set("isDefaultGateway");
        let vlan = object.find(&["vlan"]).unwrap_or_default();
        Self { bridge: object.unless_unread(bridge_name(&name)), is_gateway, vlan }
    }
}

/// What the bridge is to the containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gateway {
    /// A switch and nothing more.
    None,
    /// The bridge has the gateway's addresses, and the node forwards.
    Address,
    /// The bridge is the default gateway, too.
    DefaultRoute,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortVlans {
    /// VLANs to be in; the last wins where they overlap.
    pub member_of: Vec<Vlans>,
    /// The VLAN of untagged frames, if `vlan` asks for one.
    pub access: Option<u16>,
    /// Keeps the VLAN that the kernel gives every new port.
    pub keep_default: bool,
}

#[derive(Debug, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Wire {
    bridge: String,
    is_gateway: bool,
    is_default_gateway: bool,
    force_address: bool,
    ip_masq: bool,
    ip_masq_backend: String,
    ip_masq_except: Vec<String>,
    rules: Option<String>,
    mtu: u16,
    hairpin_mode: bool,
    promisc_mode: bool,
    group_forward_mask: u16,
    multicast_snooping: Option<bool>,
    #[serde(deserialize_with = "conf::vlan_or_none")]
    vlan: u16,
    vlan_trunk: Option<Vec<WireTrunk>>,
    preserve_default_vlan: bool,
    macspoofchk: bool,
    enabledad: bool,
    #[serde(rename = "acceptRA")]
    accept_ra: Option<bool>,
    port_isolation: bool,
    disable_container_interface: bool,
    ipam: IpamKey,
    dns: DnsKey,
    args: ArgsKey,
    runtime_config: MacKey,
}

#[derive(Debug, Deserialize, Default, Clone, Copy)]
#[serde(default)]
struct WireTrunk {
    #[serde(rename = "minID")]
    min_id: Option<u16>,
    #[serde(rename = "maxID")]
    max_id: Option<u16>,
    id: Option<u16>,
}

impl FromConf for Conf {
    fn from_conf(object: &ConfObject) -> Result<Self, CniError> {
        let wire: Wire = object.decode()?;
        wire.refuse_contradictions()?;
        Ok(Self {
            bridge: bridge_name(&wire.bridge)?.as_str().to_owned(),
            gateway: wire.gateway(),
            masquerade: conf::masquerade(
                wire.ip_masq,
                &wire.ip_masq_backend,
                &wire.ip_masq_except,
                wire.rules.as_deref(),
            )?,
            mtu_bytes: conf::mtu(wire.mtu),
            port: Port { hairpin: wire.hairpin_mode, isolated: wire.port_isolation },
            vlans: wire.vlans()?,
            dad: if wire.enabledad { Dad::Enhanced } else { Dad::Off },
            routers: wire.routers(),
            mac: conf::mac(&wire.args, &wire.runtime_config)?,
            force_address: wire.force_address,
            promisc: wire.promisc_mode,
            group_forward_mask: Some(wire.group_forward_mask).filter(|mask| *mask != 0),
            multicast_snooping: wire.multicast_snooping,
            mac_spoof_check: wire.macspoofchk,
            leave_down: wire.disable_container_interface,
            has_ipam: !wire.ipam.plugin.is_empty(),
            dns: wire.dns.into_dns(),
        })
    }
}

/// The bridge of this name; empty stands for the default.
fn bridge_name(text: &str) -> Result<IfName, CniError> {
    let name = if text.is_empty() { DEFAULT_BRIDGE } else { text };
    let refused = |why: &str| CniError::invalid_key("bridge", format_args!("{text:?}"), why);
    match name {
        // Folders of /proc/sys/net/ipv4/conf, beside those of links.
        "all" | "default" => Err(refused("the kernel has settings of this name, and gives it to no link")),
        _ => IfName::parse(name).map_err(|error| refused(&error.msg)),
    }
}

impl Wire {
    fn refuse_contradictions(&self) -> Result<(), CniError> {
        if self.hairpin_mode && self.promisc_mode {
            return Err(invalid("hairpinMode and promiscMode exclude each other").at_key("promiscMode"));
        }
        // BR_GROUPFWD_RESTRICTED of the kernel's net/bridge/br_private.h: spanning tree, pause, and aggregation of links.
        if self.group_forward_mask & 7 != 0 {
            let why = "Linux forwards no group of the bits 1, 2 and 4";
            return Err(CniError::invalid_key("groupForwardMask", self.group_forward_mask, why));
        }
        if self.disable_container_interface && !self.ipam.plugin.is_empty() {
            return Err(invalid("disableContainerInterface needs a network without ipam")
                .detail("An interface that stays down cannot use its addresses.")
                .at_key("disableContainerInterface"));
        }
        Ok(())
    }

    fn gateway(&self) -> Gateway {
        match (self.is_default_gateway, self.is_gateway) {
            (true, _) => Gateway::DefaultRoute,
            (false, true) => Gateway::Address,
            (false, false) => Gateway::None,
        }
    }

    /// Where the bridge is the containers' router there is no other to listen to.
    fn routers(&self) -> RouterAdvertisements {
        match (self.accept_ra, self.gateway()) {
            (Some(true), _) => RouterAdvertisements::Accepted,
            (Some(false), _) | (None, Gateway::Address | Gateway::DefaultRoute) => RouterAdvertisements::Refused,
            (None, Gateway::None) => RouterAdvertisements::Kernels,
        }
    }

    fn vlans(&self) -> Result<Option<PortVlans>, CniError> {
        // Templates write an empty list where there is no trunk.
        if self.vlan == 0 && self.vlan_trunk.as_ref().is_none_or(Vec::is_empty) {
            return Ok(None);
        }
        let access = match self.vlan {
            0 => None,
            id => Some(vlan_id("vlan", id)?),
        };
        let mut member_of = Vec::new();
        for (number, entry) in self.vlan_trunk.iter().flatten().enumerate() {
            member_of.extend(entry.vlans(&format!("vlanTrunk[{number}]"))?);
        }
        // Last, as it may be in the trunk, too: the flags of the last setting count.
        member_of.push(Vlans::access(access.unwrap_or(1)));
        Ok(Some(PortVlans { member_of, access, keep_default: self.preserve_default_vlan }))
    }
}

impl WireTrunk {
    /// A range, a single VLAN, or both.
    fn vlans(self, path: &str) -> Result<Vec<Vlans>, CniError> {
        let mut vlans = Vec::new();
        let refused = |why: &str| invalid(format_args!("key {path}: {why}")).at_key(path);
        match (self.min_id, self.max_id) {
            (None, None) => (),
            (Some(first), Some(last)) => {
                let first = vlan_id(&format!("{path}.minID"), first)?;
                let last = vlan_id(&format!("{path}.maxID"), last)?;
                if first > last {
                    return Err(refused(&format!("minID {first} is above maxID {last}")));
                }
                vlans.push(Vlans::tagged(first, last));
            }
            (Some(_), None) => return Err(refused("minID has no maxID")),
            (None, Some(_)) => return Err(refused("maxID has no minID")),
        }
        if let Some(id) = self.id {
            let id = vlan_id(&format!("{path}.id"), id)?;
            vlans.push(Vlans::tagged(id, id));
        }
        Ok(vlans)
    }
}

#[cfg(test)]
mod tests;
