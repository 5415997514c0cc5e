//! What the slots of a pool are.

use std::net::IpAddr;
use std::path::PathBuf;

use cni_filter::iptables::rule::Protocol;
use cni_filter::{Destination, EgressPolicy, To};
use ipnetwork::IpNetwork;
use netops::Family;

use crate::error::{Error, Result};

/// The folder of all pools' marks, unless [`Spec::run_folder`] names another one.
pub const RUN_FOLDER: &str = "/run/netslot";

/// The destinations that [`Egress::public`] denies: private and shared addresses, links' own with the metadata services of clouds,
/// those of the node's loopback, and those that lead to IPv4's (RFC 1918, 3879, 3927, 4193, 4291, 6052, 6598, 6890, 8215).
const NOT_PUBLIC: [&str; 17] = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "168.63.129.16/32", // Azure's host, which also hands out keys
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "240.0.0.0/4",
    "fc00::/7",
    "fe80::/10",
    "fec0::/10",
    "64:ff9b::/96",
    "64:ff9b:1::/48",
    "::/96",
];

/// A pool of slots to open. All slots of a pool are alike, but for their addresses.
#[derive(Debug, Clone)]
#[must_use = "a description does nothing until Pool::open"]
pub struct Spec {
    pub(crate) name: String,
    pub(crate) subnets: Vec<IpNetwork>,
    pub(crate) device: Device,
    pub(crate) egress: EgressPolicy,
    pub(crate) mtu_bytes: Option<u32>,
    pub(crate) ready: usize,
    pub(crate) slots_max: u32,
    pub(crate) run_folder: PathBuf,
}

/// The kind of interface that a slot has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Device {
    /// A veth pair: `eth0` in the namespace, the peer on the node.
    #[default]
    Veth,
    /// A tap on the node, which a virtual machine's monitor opens ([`crate::Slot::open_tap`]); the namespace is for the
    /// monitor and has no interface. The guest configures the slot's addresses itself.
    Tap {
        /// The user who may open it without root privileges.
        owner: Option<u32>,
        /// The group that may open it without root privileges.
        group: Option<u32>,
        /// The tap has several queues.
        multi_queue: bool,
    },
}

impl Spec {
    /// A pool of veths without limits of what they may send, except that each slot has to use its own addresses, and with no slot
    /// ready ahead of demand. `name` has 1 to 32 lower-case letters, digits and dashes. `subnet`, of 4 addresses at least, is for
    /// this pool alone; its first address is the gateway of all slots. [`crate::Pool::open`] refuses others.
    pub fn new(name: impl Into<String>, subnet: IpNetwork) -> Self {
        Self {
            name: name.into(),
            subnets: vec![subnet],
            device: Device::Veth,
            egress: EgressPolicy::default(),
            mtu_bytes: None,
            ready: 0,
            slots_max: u32::MAX,
            run_folder: RUN_FOLDER.into(),
        }
    }

    /// Adds a subnet of the other family: each slot has an address of either.
    pub fn subnet(mut self, subnet: IpNetwork) -> Self {
        self.subnets.push(subnet);
        self
    }

    /// Sets the kind of interface.
    pub fn device(self, device: Device) -> Self {
        Self { device, ..self }
    }

    /// Sets what the slots may send.
    pub fn egress(self, egress: Egress) -> Self {
        Self { egress: egress.0, ..self }
    }

    /// Sets the MTU of the interfaces, in bytes.
    pub fn mtu_bytes(self, mtu_bytes: u32) -> Self {
        Self { mtu_bytes: Some(mtu_bytes), ..self }
    }

    /// Keeps this number of slots ready ahead of demand.
    pub fn ready(self, ready: usize) -> Self {
        Self { ready, ..self }
    }

    /// Limits the number of slots, ready and taken; the subnets limit it, too.
    pub fn slots_max(self, slots_max: u32) -> Self {
        Self { slots_max, ..self }
    }

    /// Keeps the marks of this pool's slots below another folder than [`RUN_FOLDER`].
    pub fn run_folder(self, run_folder: impl Into<PathBuf>) -> Self {
        Self { run_folder: run_folder.into(), ..self }
    }

    /// Checks the description, and limits the number of slots to that of the addresses.
    pub(crate) fn checked(mut self) -> Result<Self> {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if self.name.is_empty() || self.name.len() > 32 || !self.name.bytes().all(is_plain) {
            let wanted = "1 to 32 lower-case letters, digits and dashes";
            return Err(Error::Spec { key: "name", value: self.name, wanted });
        }
        let mut families: Vec<Family> = self.subnets.iter().map(|subnet| (*subnet).into()).collect();
        families.sort_unstable();
        for subnet in &self.subnets {
            let bits = if subnet.is_ipv4() { 32 } else { 128 } - subnet.prefix();
            if bits < 2 || families.windows(2).any(|two| two[0] == two[1]) {
                let wanted = "one of each family at most, with 4 addresses at least";
                return Err(Error::Spec { key: "subnet", value: subnet.to_string(), wanted });
            }
            // Without the network itself, the gateway, and IPv4's broadcast.
            self.slots_max = self.slots_max.min(1u32.checked_shl(bits.into()).unwrap_or(u32::MAX) - 3).min(MOST);
        }
        Ok(self)
    }

    /// The addresses of the slot with this number, from 1 on, each with its subnet's prefix. Number 0 is the gateway.
    pub(crate) fn addresses(&self, index: u32) -> Vec<IpNetwork> {
        let address = |subnet: &IpNetwork| {
            let ip = match subnet.network() {
                IpAddr::V4(ip) => IpAddr::V4((u32::from(ip) + index + 1).into()),
                IpAddr::V6(ip) => IpAddr::V6((u128::from(ip) + u128::from(index) + 1).into()),
            };
            IpNetwork::new(ip, subnet.prefix()).ok()
        };
        self.subnets.iter().filter_map(address).collect()
    }

    pub(crate) fn gateways(&self) -> Vec<IpAddr> {
        self.addresses(0).into_iter().map(|gateway| gateway.ip()).collect()
    }
}

/// The most slots of a pool: a link's name has room for six digits.
const MOST: u32 = 999_999;

/// The packets that a slot may send: first those allowed, then those denied, then all others, which are allowed or denied. Denied ones are
/// dropped without an answer: a client waits until its own timeout.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use]
pub struct Egress(EgressPolicy);

impl Egress {
    /// Everything.
    pub fn open() -> Self {
        Self::default()
    }

    /// Nothing but what [`Egress::allow`] and [`Egress::allow_port`] add.
    pub fn closed() -> Self {
        Self(EgressPolicy { is_closed: true, ..EgressPolicy::default() })
    }

    /// Public addresses alone: neither the node, nor other slots, nor private networks, nor a cloud's metadata service.
    pub fn public() -> Self {
        let denied = NOT_PUBLIC.iter().filter_map(|prefix| prefix.parse().ok());
        let mut public = denied.fold(Self::open(), Self::deny);
        public.0.deny.push(Destination { to: To::Node, protocol: None, ports: Vec::new() });
        public
    }

    /// Allows all packets to these addresses.
    pub fn allow(mut self, to: IpNetwork) -> Self {
        self.0.allow.push(Destination { to: To::Prefix(to), protocol: None, ports: Vec::new() });
        self
    }

    /// Allows packets to a port of these addresses, such as a resolver's.
    pub fn allow_port(mut self, to: IpNetwork, protocol: Protocol, port: u16) -> Self {
        let ports = vec![(port, port)];
        self.0.allow.push(Destination { to: To::Prefix(to), protocol: Some(protocol as u8), ports });
        self
    }

    /// Denies all packets to these addresses that are not allowed.
    pub fn deny(mut self, to: IpNetwork) -> Self {
        self.0.deny.push(Destination { to: To::Prefix(to), protocol: None, ports: Vec::new() });
        self
    }
}

/// A port of the node that leads to a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Port {
    /// The protocol.
    pub protocol: Protocol,
    /// The node's address; `None`: each.
    pub address: Option<IpAddr>,
    /// The node's port.
    pub node: u16,
    /// The slot's port.
    pub slot: u16,
}

impl Port {
    /// A port of all of the node's addresses.
    #[must_use]
    pub fn new(protocol: Protocol, node: u16, slot: u16) -> Self {
        Self { protocol, address: None, node, slot }
    }

    /// The same of one address alone.
    #[must_use]
    pub fn on(self, address: IpAddr) -> Self {
        Self { address: Some(address), ..self }
    }
}
