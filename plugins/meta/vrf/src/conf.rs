//! The vrf plugin's keys.

use chained::invalid;
use cni_spec::{CniError, ConfObject, FromAnyConf, FromConf};
use netops::link::LinkName;
use serde::Deserialize;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conf {
    pub name: LinkName,
    /// The VRF's routing table; `None`: a free one, or that of the existing VRF.
    pub table: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Wire {
    vrfname: String,
    table: u32,
}

impl FromConf for Conf {
    fn from_conf(object: &ConfObject) -> Result<Self, CniError> {
        let Wire { vrfname, table } = object.decode()?;
        if vrfname.is_empty() {
            return Err(invalid("key vrfname is missing").at_key("vrfname"));
        }
        let refused = |why: &str| CniError::invalid_key("vrfname", format_args!("{vrfname:?}"), why);
        let name = LinkName::parse(&vrfname).map_err(|error| refused(&error.to_string()))?;
        Ok(Self { name, table: (table != 0).then_some(table) })
    }
}

/// Key `vrfname`, for DEL.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Name(pub Option<LinkName>);

impl FromAnyConf for Name {
    fn from_any_conf(object: &ConfObject) -> Self {
        let text: Option<String> = object.find(&["vrfname"]);
        Self(text.and_then(|text| LinkName::parse(&text).ok()))
    }
}
