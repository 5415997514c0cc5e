//! The keys: JSON to [`Conf`]. Every rule about them is here and in [`crate::options`].

use std::path::PathBuf;

use cni_spec::{CniError, Code, ConfObject, FromAnyConf, FromConf};
use serde::Deserialize;

use crate::options::{self, Provided, Requested, code};
use crate::rpc::Extras;

/// Where the reference's daemon listens.
pub const SOCKET: &str = "/run/cni/dhcp.sock";

/// The keys, checked but for what `CNI_ARGS` decide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conf {
    pub socket: PathBuf,
    /// Options for the server.
    pub provide: Vec<Provided>,
    /// The numbers of the options that the server is asked for.
    pub request: Vec<u8>,
    /// The metric of the result's routes.
    pub priority: u32,
    /// Features beyond the reference's.
    pub extras: Extras,
    /// An address by SLAAC is in the result.
    pub reports_slaac: bool,
}

/// The one key that removal needs: the daemon's socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    pub socket: PathBuf,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default)]
struct Wire {
    ipam: Ipam,
}

#[derive(Debug, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Ipam {
    // Known here so that it does not look misspelt; the base parses it.
    #[serde(rename = "type")]
    _plugin: String,
    daemon_socket_path: String,
    provide: Vec<Provided>,
    request: Vec<Requested>,
    priority: i64,
    #[serde(rename = "useMTU")]
    use_mtu: bool,
    detect_conflict: bool,
    ipv6: bool,
    slaac_in_result: bool,
}

impl FromConf for Conf {
    fn from_conf(object: &ConfObject) -> Result<Self, CniError> {
        let ipam = object.decode::<Wire>()?.ipam;
        let Ipam { daemon_socket_path, provide, request, priority, use_mtu, detect_conflict, ipv6, .. } = ipam;
        for entry in &provide {
            options::number("ipam.provide.option", &entry.option)?;
        }
        let priority = u32::try_from(priority).map_err(|_out_of_range| {
            let msg = format!("cannot use key ipam.priority = {priority}: a metric is a number from 0 to {}", u32::MAX);
            CniError::new(Code::INVALID_CONFIG, msg).at_key("ipam.priority")
        })?;
        let mut request = options::requested(&request)?;
        if use_mtu && !request.contains(&code::MTU) {
            request.push(code::MTU);
        }
        let extras = Extras { use_mtu, detect_conflict, ipv6 };
        let (socket, reports_slaac) = (socket(daemon_socket_path), ipam.slaac_in_result);
        Ok(Self { socket, provide, request, priority, extras, reports_slaac })
    }
}

impl FromAnyConf for Removal {
    fn from_any_conf(object: &ConfObject) -> Self {
        Self { socket: socket(object.find(&["ipam", "daemonSocketPath"]).unwrap_or_default()) }
    }
}

fn socket(path: String) -> PathBuf {
    if path.is_empty() { SOCKET.into() } else { path.into() }
}
