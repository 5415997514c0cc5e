//! The sbr plugin's keys.

use std::net::IpAddr;

use chained::invalid;
use cni_spec::{CniError, ConfObject, FromAnyConf, FromConf};
use serde::Deserialize;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Conf {
    /// The table that the container's own routes are in already; `None`: a table for each address is made.
    pub table: Option<u32>,
    /// The gateway of each family that replaces the address's own.
    pub gateways: Vec<IpAddr>,
    /// Routes to the interface's subnets stay in the main table, with its address as source.
    pub add_source_hints: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Wire {
    table: Option<u32>,
    gateways: Vec<String>,
    add_source_hints: bool,
}

impl FromConf for Conf {
    fn from_conf(object: &ConfObject) -> Result<Self, CniError> {
        let Wire { table, gateways: texts, add_source_hints } = object.decode()?;
        if table == Some(0) {
            return Err(CniError::invalid_key("table", 0, "tables are numbered from 1"));
        }
        let mut gateways: Vec<IpAddr> = Vec::new();
        for text in &texts {
            let refused = |why: &str| invalid(format_args!("key gateways has {text:?}: {why}")).at_key("gateways");
            let gateway: IpAddr = text.parse().map_err(|_not_one| refused("it is no IP address"))?;
            if gateway.is_unspecified() {
                return Err(refused("it is the address of no gateway"));
            }
            if gateways.iter().any(|other| other.is_ipv4() == gateway.is_ipv4()) {
                return Err(refused("a family has one gateway at most"));
            }
            gateways.push(gateway);
        }
        Ok(Self { table, gateways, add_source_hints })
    }
}

/// What DEL uses of the config, as far as it can be read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Removal {
    pub table: Option<u32>,
    pub gateways: Vec<IpAddr>,
}

impl FromAnyConf for Removal {
    fn from_any_conf(object: &ConfObject) -> Self {
        Self { table: object.find(&["table"]), gateways: object.find(&["gateways"]).unwrap_or_default() }
    }
}
