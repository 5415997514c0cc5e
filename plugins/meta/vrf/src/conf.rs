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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(own: &Value) -> Result<Conf, String> {
        let mut all = json!({"name": "n"});
        all.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
        let object = ConfObject::parse(all.to_string().as_bytes()).unwrap();
        Conf::from_conf(&object).map_err(|error| error.msg.replace("cannot use network config: ", ""))
    }

    #[test]
    fn a_vrf_needs_a_name_that_a_link_can_have() {
        assert_eq!(read(&json!({"vrfname": "blue", "table": 0})).unwrap().table, None);
        assert_eq!(read(&json!({"vrfname": "blue", "table": 7})).unwrap().table, Some(7));
        assert_eq!(read(&json!({})).unwrap_err(), "key vrfname is missing");
        for bad in ["sixteen-letters-", "a/b", "a b", "eth%d"] {
            assert!(read(&json!({"vrfname": bad})).unwrap_err().starts_with(&format!("key vrfname = {bad:?}: ")));
        }
    }
}
