//! The ptp plugin's keys.

use cni_filter::Backend;
use cni_spec::{CniError, ConfObject, Dns, FromConf};
use interface::conf::{self, DnsKey};
use serde::Deserialize;

/// The ptp plugin's own config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conf {
    /// Containers leave the node under its address.
    pub masquerade: Option<Backend>,
    /// MTU of both ends, in bytes; `None` is the kernel's default.
    pub mtu_bytes: Option<u32>,
    /// Name service that replaces IPAM's.
    pub dns: Option<Dns>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Wire {
    ip_masq: bool,
    ip_masq_backend: String,
    rules: Option<String>,
    mtu: u16,
    dns: DnsKey,
}

impl FromConf for Conf {
    fn from_conf(object: &ConfObject) -> Result<Self, CniError> {
        let wire: Wire = object.decode()?;
        Ok(Self {
            masquerade: conf::masquerade(wire.ip_masq, &wire.ip_masq_backend, wire.rules.as_deref())?,
            mtu_bytes: conf::mtu(wire.mtu),
            dns: wire.dns.into_dns(),
        })
    }
}
