//! The ptp plugin's keys.

use cni_spec::{CniError, ConfObject, Dns, FromConf};
use interface::conf::{self, DnsKey, Masquerade};
use serde::Deserialize;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conf {
    /// Containers leave the node under its address.
    pub masquerade: Option<Masquerade>,
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
    ip_masq_except: Vec<String>,
    rules: Option<String>,
    mtu: u16,
    dns: DnsKey,
}

impl FromConf for Conf {
    fn from_conf(object: &ConfObject) -> Result<Self, CniError> {
        let wire: Wire = object.decode()?;
        Ok(Self {
            masquerade: conf::masquerade(
                wire.ip_masq,
                &wire.ip_masq_backend,
                &wire.ip_masq_except,
                wire.rules.as_deref(),
            )?,
            mtu_bytes: conf::mtu(wire.mtu),
            dns: wire.dns.into_dns(),
        })
    }
}
