//! Conversion of results of every version: the only place that knows the older forms.
//!
//! | versions | addresses | here |
//! | --- | --- | --- |
//! | 0.1.0, 0.2.0 | `ip4`, `ip6`, one each, with routes of their own that have only `dst` and `gw` | `V02` |
//! | 0.3.0, 0.3.1, 0.4.0 | `ips` with a `version` field, `interfaces` with fewer fields; all of a route | `V04` |
//! | 1.0.0, 1.1.0 | `ips` without it | [`AddResult`] itself |

use crate::error::{CniError, Code};
use crate::json;
use crate::result::{AddResult, Dns, Interface, Ip, Route};
use crate::version::{Family, SpecVersion};
use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::net::IpAddr;

/// A result of 0.1.0 or 0.2.0.
#[derive(Serialize, Deserialize, Default)]
#[serde(default)]
struct V02 {
    #[serde(skip_serializing_if = "Option::is_none")]
    ip4: Option<Config02>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ip6: Option<Config02>,
    dns: Dns,
}

#[derive(Serialize, Deserialize)]
struct Config02 {
    #[serde(with = "json::cidr")]
    ip: IpNetwork,
    #[serde(default, with = "json::optional_ip", skip_serializing_if = "Option::is_none")]
    gateway: Option<IpAddr>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    routes: Vec<Route02>,
}

/// A result of 0.3.0 to 0.4.0.
#[derive(Serialize, Deserialize, Default)]
#[serde(default)]
struct V04 {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    interfaces: Vec<Interface04>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ips: Vec<Ip04>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    routes: Vec<Route>,
    dns: Dns,
}

#[derive(Serialize, Deserialize, Default)]
#[serde(default)]
struct Interface04 {
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    mac: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    sandbox: String,
}

#[derive(Serialize, Deserialize)]
struct Ip04 {
    /// `"4"` or `"6"`; not read, as the address implies it.
    #[serde(skip_deserializing)]
    version: &'static str,
    #[serde(default, with = "json::index", skip_serializing_if = "Option::is_none")]
    interface: Option<usize>,
    #[serde(with = "json::cidr")]
    address: IpNetwork,
    #[serde(default, with = "json::optional_ip", skip_serializing_if = "Option::is_none")]
    gateway: Option<IpAddr>,
}

#[derive(Serialize, Deserialize)]
struct Route02 {
    #[serde(with = "json::cidr")]
    dst: IpNetwork,
    #[serde(default, with = "json::optional_ip", skip_serializing_if = "Option::is_none")]
    gw: Option<IpAddr>,
}

/// Reads a result; see [`AddResult::from_value`].
pub(crate) fn read(value: &Value, default: SpecVersion) -> Result<AddResult, CniError> {
    let version = version_of(value)?.unwrap_or(default);
    if value.is_null() {
        return Ok(AddResult::default());
    }
    let result = match version.family() {
        Family::V02 => return decode::<V02>(value, version).map(AddResult::from),
        Family::V04 => decode::<V04>(value, version).map(AddResult::from),
        Family::V1 => decode::<AddResult>(value, version),
    };
    result.map(|result| AddResult { unknown: unknown_keys(value), ..result })
}

/// The keys that no result has, whatever their case.
fn unknown_keys(value: &Value) -> Map<String, Value> {
    const KNOWN: [&str; 5] = ["cniVersion", "interfaces", "ips", "routes", "dns"];
    let is_known = |key: &str| KNOWN.iter().any(|known| known.eq_ignore_ascii_case(key));
    let all = value.as_object().into_iter().flatten();
    let unknown = all.filter(|(key, value)| !value.is_null() && !is_known(key));
    unknown.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// The `cniVersion` that a result carries, if any.
///
/// # Errors
/// Code 1 if it is no known version, code 6 if it is no text.
pub fn version_of(result: &Value) -> Result<Option<SpecVersion>, CniError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Labelled {
        cni_version: Option<String>,
    }
    if result.is_null() {
        return Ok(None);
    }
    let labelled: Labelled = decode(result, SpecVersion::LATEST)?;
    match labelled.cni_version.as_deref() {
        None | Some("") => Ok(None),
        Some(text) => SpecVersion::find(text).map(Some).ok_or_else(|| {
            CniError::new(Code::INCOMPATIBLE_VERSION, format!("cannot read result: unknown cniVersion {text:?}"))
        }),
    }
}

fn decode<T: serde::de::DeserializeOwned>(value: &Value, version: SpecVersion) -> Result<T, CniError> {
    json::decode(value).map_err(|error| {
        CniError::new(Code::DECODING, format!("cannot read result: {error}"))
            .detail(format!("The result was read as one of version {version}."))
    })
}

/// Writes a result; see [`AddResult::to_value`].
pub(crate) fn write(result: &AddResult, version: SpecVersion) -> Result<Value, CniError> {
    let body = match version.family() {
        Family::V02 => serde_json::to_value(V02::try_from(result)?),
        Family::V04 => serde_json::to_value(V04::from(result)),
        Family::V1 => serde_json::to_value(result),
    };
    let body = body.map_err(|error| CniError::new(Code::INTERNAL, format!("cannot write result: {error}")))?;
    let mut object = serde_json::Map::new();
    object.insert("cniVersion".into(), version.as_str().into());
    if let Value::Object(fields) = body {
        object.extend(fields);
    }
    if version.family() != Family::V02 {
        object.extend(result.unknown.clone());
    }
    Ok(Value::Object(object))
}

impl From<V02> for AddResult {
    fn from(old: V02) -> Self {
        let mut result = AddResult { dns: old.dns, ..AddResult::default() };
        for config in [old.ip4, old.ip6].into_iter().flatten() {
            result.ips.push(Ip { interface: None, address: config.ip, gateway: config.gateway });
            result.routes.extend(config.routes.into_iter().map(Route::from));
        }
        result
    }
}

impl TryFrom<&AddResult> for V02 {
    type Error = CniError;

    fn try_from(result: &AddResult) -> Result<Self, CniError> {
        if result.ips.is_empty() {
            return Err(CniError::new(
                Code::UNUSABLE_RESULT,
                "cannot write result: cniVersion 0.1.0 and 0.2.0 need an IP address, and there is none",
            )
            .detail("Use cniVersion 0.3.0 or newer for a network without addresses."));
        }
        let config = |is_family: fn(&IpNetwork) -> bool| {
            let ip = result.ips.iter().find(|ip| is_family(&ip.address))?;
            let routes = result.routes.iter().filter(|route| is_family(&route.dst)).map(Route02::from).collect();
            Some(Config02 { ip: ip.address, gateway: ip.gateway, routes })
        };
        Ok(V02 { ip4: config(IpNetwork::is_ipv4), ip6: config(IpNetwork::is_ipv6), dns: result.dns.clone() })
    }
}

impl From<V04> for AddResult {
    fn from(old: V04) -> Self {
        let interface =
            |old: Interface04| Interface { name: old.name, mac: old.mac, sandbox: old.sandbox, ..Interface::default() };
        let ip = |old: Ip04| Ip { interface: old.interface, address: old.address, gateway: old.gateway };
        AddResult {
            interfaces: old.interfaces.into_iter().map(interface).collect(),
            ips: old.ips.into_iter().map(ip).collect(),
            routes: old.routes,
            dns: old.dns,
            unknown: Map::new(),
        }
    }
}

impl From<&AddResult> for V04 {
    fn from(result: &AddResult) -> Self {
        let interface = |new: &Interface| Interface04 {
            name: new.name.clone(),
            mac: new.mac.clone(),
            sandbox: new.sandbox.clone(),
        };
        let ip = |new: &Ip| Ip04 {
            version: if new.address.is_ipv4() { "4" } else { "6" },
            interface: new.interface,
            address: new.address,
            gateway: new.gateway,
        };
        V04 {
            interfaces: result.interfaces.iter().map(interface).collect(),
            ips: result.ips.iter().map(ip).collect(),
            routes: result.routes.clone(),
            dns: result.dns.clone(),
        }
    }
}

impl From<Route02> for Route {
    fn from(old: Route02) -> Self {
        Route::new(old.dst, old.gw)
    }
}

impl From<&Route> for Route02 {
    fn from(route: &Route) -> Self {
        Route02 { dst: route.dst, gw: route.gw }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn newest() -> AddResult {
        let value = json!({"cniVersion": "1.1.0",
            "interfaces": [{"name": "eth0", "mac": "0a:00:00:00:00:05", "mtu": 1500, "sandbox": "/run/netns/a"},
                           {"name": "net1", "socketPath": "/run/x.sock", "pciID": "0000:03:00.1"}],
            "ips": [{"interface": 0, "address": "10.7.0.5/24", "gateway": "10.7.0.1"}, {"address": "fd07::5/64"}],
            "routes": [{"dst": "0.0.0.0/0", "gw": "10.7.0.1"},
                       {"dst": "fd00::/8", "mtu": 1400, "advmss": 1360, "priority": 50, "table": 0, "scope": 0}],
            "dns": {"nameservers": ["10.7.0.1"], "domain": "a.b", "search": ["a.b"], "options": ["ndots:5"]}});
        AddResult::from_value(&value, SpecVersion::V0_1_0).unwrap()
    }

    #[test]
    fn newest_form_is_kept_whole() {
        let result = newest();
        let value = result.to_value(SpecVersion::V1_1_0).unwrap();
        assert_eq!(AddResult::from_value(&value, SpecVersion::V0_1_0).unwrap(), result);
        assert_eq!(value["ips"][0]["interface"], 0);
        assert_eq!(value["routes"][1]["table"], 0);
        assert_eq!(value["interfaces"][1]["pciID"], "0000:03:00.1");
    }

    /// The reference reads any integer, and its plugins ignore what is no index.
    #[test]
    fn an_index_that_is_no_place_is_passed_on() {
        for version in [SpecVersion::V0_4_0, SpecVersion::V1_1_0] {
            let value = json!({"cniVersion": version.as_str(), "ips": [{"interface": -1, "address": "10.7.0.5/24"}]});
            let result = AddResult::from_value(&value, version).unwrap();
            assert_eq!(result.ips[0].interface.and_then(|index| result.interfaces.get(index)), None);
            assert_eq!(result.to_value(version).unwrap()["ips"][0]["interface"], -1);
        }
        let none = json!({"cniVersion": "1.1.0", "ips": [{"interface": -1.5, "address": "10.7.0.5/24"}]});
        assert_eq!(AddResult::from_value(&none, SpecVersion::V1_1_0).unwrap_err().code.0, 6);
    }

    #[test]
    fn unknown_keys_are_kept_from_0_3_0_on() {
        let value = json!({"cniVersion": "1.1.0", "IPs": [], "newer": {"since": "9.9.9"}, "none": null});
        let result = AddResult::from_value(&value, SpecVersion::V0_1_0).unwrap();
        for version in [SpecVersion::V0_3_0, SpecVersion::V0_4_0, SpecVersion::V1_1_0] {
            let written = result.to_value(version).unwrap();
            assert_eq!(written["newer"], value["newer"], "{version}");
            assert_eq!((written.get("IPs"), written.get("none")), (None, None), "{version}");
            assert_eq!(AddResult::from_value(&written, SpecVersion::V0_1_0).unwrap(), result, "{version}");
        }
    }

    #[test]
    fn form_of_0_4_0_adds_version_and_drops_what_interfaces_had_not_yet() {
        let value = newest().to_value(SpecVersion::V0_4_0).unwrap();
        assert_eq!(
            value["ips"][0],
            json!({"version": "4", "interface": 0, "address": "10.7.0.5/24", "gateway": "10.7.0.1"})
        );
        assert_eq!(value["ips"][1]["version"], "6");
        assert_eq!(value["interfaces"][1], json!({"name": "net1"}));
        assert_eq!(value["routes"], newest().to_value(SpecVersion::V1_1_0).unwrap()["routes"]);
        assert_eq!(AddResult::from_value(&value, SpecVersion::V0_1_0).unwrap().routes, newest().routes);
    }

    #[test]
    fn form_of_0_2_0_has_one_address_a_family() {
        let value = newest().to_value(SpecVersion::V0_2_0).unwrap();
        assert_eq!(
            value["ip4"],
            json!({"ip": "10.7.0.5/24", "gateway": "10.7.0.1", "routes": [{"dst": "0.0.0.0/0", "gw": "10.7.0.1"}]})
        );
        assert_eq!(value["ip6"]["routes"], json!([{"dst": "fd00::/8"}]));
        assert!(AddResult::default().to_value(SpecVersion::V0_1_0).is_err());
    }

    #[test]
    fn empty_dns_is_printed_before_1_0_0_only() {
        assert_eq!(
            AddResult::default().to_value(SpecVersion::V0_4_0).unwrap(),
            json!({"cniVersion": "0.4.0", "dns": {}})
        );
        assert_eq!(AddResult::default().to_value(SpecVersion::V1_0_0).unwrap(), json!({"cniVersion": "1.0.0"}));
    }

    #[test]
    fn old_forms_are_read_by_their_own_version() {
        let value = json!({"cniVersion": "0.2.0", "IP4": {"ip": "10.7.0.5/24", "Routes": [{"Dst": "0.0.0.0/0"}]}, "ip6": {"ip": "fd07::5/64"}});
        let result = AddResult::from_value(&value, SpecVersion::V1_0_0).unwrap();
        assert_eq!((result.ips.len(), result.routes.len()), (2, 1));
        let value = json!({"ips": [{"version": "4", "address": "10.7.0.5/24", "gateway": ""}]});
        let result = AddResult::from_value(&value, SpecVersion::V0_4_0).unwrap();
        assert_eq!(result.ips[0].gateway, None);
    }

    #[test]
    fn a_bad_value_is_named() {
        let value = json!({"cniVersion": "1.0.0", "ips": [{"address": "10.7.0.5"}]});
        let error = AddResult::from_value(&value, SpecVersion::V1_0_0).unwrap_err();
        assert!(error.msg.contains(r#"ips[0].address = "10.7.0.5""#), "{}", error.msg);
        assert!(AddResult::from_value(&json!({"cniVersion": "9"}), SpecVersion::V1_0_0).is_err());
        assert!(AddResult::from_value(&json!([1]), SpecVersion::V1_0_0).is_err());
    }
}
