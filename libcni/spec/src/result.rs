//! The result of ADD, in its newest form (SPEC 5, "Add Success"). Older forms are in [`crate::legacy`].

use crate::error::CniError;
use crate::json;
use crate::version::SpecVersion;
use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::net::IpAddr;

/// The result of ADD.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct AddResult {
    /// Interfaces made or used, in the host and in the container.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<Interface>,
    /// Addresses assigned.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<Ip>,
    /// Routes of the container.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
    /// Name service for the container.
    #[serde(skip_serializing_if = "Dns::is_empty")]
    pub dns: Dns,
    /// Keys that this library does not know: an ADD passes on those of its prevResult (SPEC 2, ADD).
    #[serde(skip)]
    pub unknown: Map<String, Value>,
}

/// An interface.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Interface {
    /// The interface's name in its namespace.
    pub name: String,
    /// Hardware address, colon-separated lower-case hex; empty if there is none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub mac: String,
    /// MTU in bytes; 0 if not given.
    #[serde(skip_serializing_if = "is_zero")]
    pub mtu: u32,
    /// The namespace's path, or a hypervisor's name; empty on the host.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub sandbox: String,
    /// Path of a socket that represents the interface; empty if there is none.
    #[serde(rename = "socketPath", skip_serializing_if = "String::is_empty")]
    pub socket_path: String,
    /// PCI device of the interface; empty if it has none.
    #[serde(rename = "pciID", skip_serializing_if = "String::is_empty")]
    pub pci_id: String,
}

/// An address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Ip {
    /// Index into [`AddResult::interfaces`]; `None` if unknown. As in the reference it need not be the place of one.
    #[serde(default, with = "json::index", skip_serializing_if = "Option::is_none")]
    pub interface: Option<usize>,
    /// Address with prefix length, host bits kept.
    #[serde(with = "json::cidr")]
    pub address: IpNetwork,
    /// Default gateway of the address's subnet, if there is one.
    #[serde(default, with = "json::optional_ip", skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
}

/// A route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Route {
    /// Destination.
    #[serde(with = "json::cidr")]
    pub dst: IpNetwork,
    /// Next hop; `None` means the first gateway of that family among the addresses.
    #[serde(default, with = "json::optional_ip", skip_serializing_if = "Option::is_none")]
    pub gw: Option<IpAddr>,
    /// Path MTU in bytes; 0 if not given.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub mtu: u32,
    /// Maximal segment size to advertise, in bytes; 0 if not given.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub advmss: u32,
    /// Metric, lower is preferred; 0 if not given.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: u32,
    /// Routing table; `None` is the main one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
    /// Scope (linux/rtnetlink.h `rt_scope_t`): 0 universe, 253 link, 254 host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<u8>,
}

/// Name service configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Dns {
    /// Name servers, by address.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nameservers: Vec<String>,
    /// The local domain.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub domain: String,
    /// Search domains.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub search: Vec<String>,
    /// Resolver options.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

impl Dns {
    /// Whether the configuration of name resolution is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Interface {
    /// An interface with only a name.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Sets the hardware address.
    #[must_use]
    pub fn mac(mut self, mac: impl Into<String>) -> Self {
        self.mac = mac.into();
        self
    }

    /// Sets the MTU in bytes.
    #[must_use]
    pub fn mtu(mut self, bytes: u32) -> Self {
        self.mtu = bytes;
        self
    }

    /// Sets the path of the container's namespace.
    #[must_use]
    pub fn sandbox(mut self, path: impl Into<String>) -> Self {
        self.sandbox = path.into();
        self
    }
}

impl Ip {
    /// An address of no interface.
    #[must_use]
    pub fn new(address: IpNetwork, gateway: Option<IpAddr>) -> Self {
        Self { interface: None, address, gateway }
    }

    /// Sets the interface, by its place in [`AddResult::interfaces`].
    #[must_use]
    pub fn of(mut self, interface: impl Into<Option<usize>>) -> Self {
        self.interface = interface.into();
        self
    }
}

impl Route {
    /// A route with only a destination and perhaps a next hop.
    #[must_use]
    pub fn new(dst: IpNetwork, gw: Option<IpAddr>) -> Self {
        Self { dst, gw, mtu: 0, advmss: 0, priority: 0, table: None, scope: None }
    }

    /// Whether the route is the default route of its family.
    #[must_use]
    pub fn is_default(&self) -> bool {
        self.dst.prefix() == 0
    }
}

impl AddResult {
    /// Adds an interface.
    #[must_use]
    pub fn interface(mut self, interface: Interface) -> Self {
        self.interfaces.push(interface);
        self
    }

    /// Adds an address.
    #[must_use]
    pub fn ip(mut self, ip: Ip) -> Self {
        self.ips.push(ip);
        self
    }

    /// Adds a route.
    #[must_use]
    pub fn route(mut self, route: Route) -> Self {
        self.routes.push(route);
        self
    }

    /// A result of addresses, routes and name service: an address plugin's.
    #[must_use]
    pub fn of_addresses(ips: Vec<Ip>, routes: Vec<Route>, dns: Dns) -> Self {
        Self { ips, routes, dns, ..Self::default() }
    }

    /// Reads a result of any version. Its own `cniVersion` decides the form; without one, `default` does.
    ///
    /// # Errors
    /// Code 6 naming the key and value that do not decode, code 1 for an unknown version.
    pub fn from_value(value: &Value, default: SpecVersion) -> Result<Self, CniError> {
        crate::legacy::read(value, default)
    }

    /// The result in the form of `version`.
    ///
    /// # Errors
    /// Code 110 when the version cannot express it: 0.1.0 and 0.2.0 need an address.
    pub fn to_value(&self, version: SpecVersion) -> Result<Value, CniError> {
        crate::legacy::write(self, version)
    }

    /// The result as text for stdout, indented by four spaces, in the form of `version`.
    ///
    /// # Errors
    /// As [`AddResult::to_value`].
    pub fn to_json(&self, version: SpecVersion) -> Result<String, CniError> {
        Ok(json::to_text(&self.to_value(version)?))
    }

    /// The entry of the container's interface `ifname`: the one of that name that has a sandbox.
    #[must_use]
    pub fn find_in_sandbox(&self, ifname: &str) -> Option<(usize, &Interface)> {
        self.interfaces.iter().enumerate().find(|(_, entry)| entry.name == ifname && !entry.sandbox.is_empty())
    }
}
