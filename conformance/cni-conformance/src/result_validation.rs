//! Faults in the shape of a result, by the version that it is in (SPEC 5 of each version).
//!
//! Only the text is checked, not whether it is true. [`crate::result_conversion`] writes results; this reads them.

use crate::spec_version::is_from;
use serde_json::{Map, Value};
use std::net::IpAddr;

type Object = Map<String, Value>;

/// Returns the faults of a result that should be in `version`, a sentence each; empty if it has none.
pub fn faults(result: &Value, version: &str) -> Vec<String> {
    let mut faults = Faults(Vec::new());
    let Some(result) = result.as_object() else {
        return vec![format!("the result is no JSON object but {result}")];
    };
    if result.contains_key("code") && result.contains_key("msg") {
        faults.add("it is an error object".to_owned());
    }
    match is_from(version, "0.3.0") {
        true => newer(result, version, &mut faults),
        false => by_family(result, &mut faults),
    }
    if let Some(dns) = faults.object(result, "dns") {
        of_dns(dns, &mut faults);
    }
    faults.0
}

/// Keys that the version does not know, with the place of each.
pub fn unknown_keys(result: &Value, version: &str) -> Vec<String> {
    let is_newest = is_from(version, "1.1.0");
    let interface = if is_newest { "name mac mtu sandbox socketPath pciID" } else { "name mac sandbox" };
    let ip = if is_from(version, "1.0.0") { "address gateway interface" } else { "version address gateway interface" };
    let route = if is_newest { "dst gw mtu advmss priority table scope" } else { "dst gw" };
    let dns = ("dns", "nameservers domain search options");
    let places: &[_] = match is_from(version, "0.3.0") {
        true => &[
            ("", "cniVersion interfaces ips routes dns"),
            ("interfaces/*", interface),
            ("ips/*", ip),
            ("routes/*", route),
            dns,
        ],
        false => &[
            ("", "cniVersion ip4 ip6 dns"),
            ("ip4", "ip gateway routes"),
            ("ip6", "ip gateway routes"),
            ("ip4/routes/*", route),
            ("ip6/routes/*", route),
            dns,
        ],
    };
    let mut unknown = Vec::new();
    for (place, known) in places {
        for object in at(result, place) {
            let keys = object.as_object().into_iter().flatten().map(|(key, _)| key);
            let others = keys.filter(|key| !known.split(' ').any(|name| name == *key));
            let shown = |key: &String| if key.is_empty() { "\"\"".to_owned() } else { key.clone() };
            let placed = |key: String| if place.is_empty() { key } else { format!("{place}/{key}") };
            unknown.extend(others.map(|key| placed(shown(key))));
        }
    }
    unknown
}

/// Values at a path of keys, `*` for each of a list.
fn at<'a>(value: &'a Value, path: &str) -> Vec<&'a Value> {
    path.split('/').filter(|key| !key.is_empty()).fold(vec![value], |values, key| match key {
        "*" => values.into_iter().filter_map(Value::as_array).flatten().collect(),
        key => values.into_iter().filter_map(|value| value.get(key)).collect(),
    })
}

/// 0.3.0 and newer.
fn newer(result: &Object, version: &str, faults: &mut Faults) {
    for key in ["ip4", "ip6"].into_iter().filter(|key| result.contains_key(*key)) {
        faults.add(format!("{key} is of results before 0.3.0"));
    }
    let interfaces = faults.objects(result, "interfaces");
    for (place, interface) in &interfaces {
        faults.text(interface, place, "name", true, |name| !name.is_empty());
        faults.text(interface, place, "mac", false, is_mac);
        faults.text(interface, place, "sandbox", false, |_| true);
        faults.text(interface, place, "socketPath", false, |path| path.starts_with('/'));
        faults.text(interface, place, "pciID", false, |id| !id.is_empty());
        faults.number(interface, place, "mtu");
    }
    for (place, ip) in &faults.objects(result, "ips") {
        faults.text(ip, place, "address", true, |text| family_of_cidr(text).is_some());
        let family = ip.get("address").and_then(Value::as_str).and_then(family_of_cidr);
        faults.gateway(ip, place, "gateway", None);
        let said = ip.get("version");
        match (is_from(version, "1.0.0"), family) {
            (true, _) if said.is_some() => faults.add(format!("{place}.version was removed in 1.0.0")),
            (false, Some(family)) if said.and_then(Value::as_str) != Some(family.digit()) => {
                faults.add(format!("{place}.version has to be {:?}, and is {}", family.digit(), shown(said)));
            }
            _ => {}
        }
        let index = ip.get("interface");
        let names_one = |index: &Value| index.as_u64().is_some_and(|index| index < interfaces.len() as u64);
        if index.is_some_and(|index| !names_one(index)) {
            let count = interfaces.len();
            faults.add(format!(
                "{place}.interface has to be an index of the {count} interfaces, and is {}",
                shown(index)
            ));
        }
    }
    of_routes(result, "routes", None, faults);
}

/// 0.1.0 and 0.2.0.
fn by_family(result: &Object, faults: &mut Faults) {
    for key in ["interfaces", "ips", "routes"].into_iter().filter(|key| result.contains_key(*key)) {
        faults.add(format!("{key} is of results from 0.3.0 on"));
    }
    for (key, family) in [("ip4", Family::Four), ("ip6", Family::Six)] {
        if let Some(ip) = faults.object(result, key) {
            faults.text(ip, key, "ip", true, |text| family_of_cidr(text) == Some(family));
            faults.gateway(ip, key, "gateway", Some(family));
            of_routes(ip, "routes", Some(family), faults);
        }
    }
}

fn of_routes(holder: &Object, key: &str, family: Option<Family>, faults: &mut Faults) {
    for (place, route) in &faults.objects(holder, key) {
        faults.text(route, place, "dst", true, |text| {
            family_of_cidr(text).is_some_and(|found| family.is_none_or(|family| family == found))
        });
        // RFC 8950: the next hop of IPv4 may be of IPv6.
        faults.gateway(route, place, "gw", family);
        for number in ["mtu", "advmss", "priority", "table", "scope"] {
            faults.number(route, place, number);
        }
    }
}

fn of_dns(dns: &Object, faults: &mut Faults) {
    faults.text(dns, "dns", "domain", false, |_| true);
    for key in ["nameservers", "search", "options"] {
        let is_list = |value: &Value| value.as_array().is_some_and(|list| list.iter().all(Value::is_string));
        if dns.get(key).is_some_and(|value| !is_list(value)) {
            faults.add(format!("dns.{key} has to be a list of texts, and is {}", shown(dns.get(key))));
        }
    }
    for server in dns.get("nameservers").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
        if server.parse::<IpAddr>().is_err() {
            faults.add(format!("dns.nameservers has {server:?}, which is no address"));
        }
    }
}

/// Sentences so far.
struct Faults(Vec<String>);

impl Faults {
    fn add(&mut self, sentence: String) {
        self.0.push(sentence);
    }

    fn object<'a>(&mut self, holder: &'a Object, key: &str) -> Option<&'a Object> {
        let value = holder.get(key)?;
        if !value.is_object() {
            self.add(format!("{key} has to be an object, and is {value}"));
        }
        value.as_object()
    }

    /// Each object of a list, with its place.
    fn objects<'a>(&mut self, holder: &'a Object, key: &str) -> Vec<(String, &'a Object)> {
        let list = match holder.get(key) {
            None => return Vec::new(),
            Some(Value::Array(list)) => list,
            Some(other) => {
                self.add(format!("{key} has to be a list, and is {other}"));
                return Vec::new();
            }
        };
        if let Some(other) = list.iter().find(|entry| !entry.is_object()) {
            self.add(format!("{key} has to be a list of objects, and has {other}"));
        }
        let objects = list.iter().enumerate();
        objects.filter_map(|(index, entry)| Some((format!("{key}[{index}]"), entry.as_object()?))).collect()
    }

    fn text(&mut self, holder: &Object, place: &str, key: &str, must: bool, is_right: impl Fn(&str) -> bool) {
        let value = holder.get(key);
        let is_right = match value {
            None => !must,
            Some(value) => value.as_str().is_some_and(is_right),
        };
        if !is_right {
            self.add(format!("{place}.{key} is {}", shown(value)));
        }
    }

    fn number(&mut self, holder: &Object, place: &str, key: &str) {
        let value = holder.get(key);
        if value.is_some_and(|value| !value.is_u64()) {
            self.add(format!("{place}.{key} has to be a number from 0 on, and is {}", shown(value)));
        }
    }

    /// An address without prefix, of a family if that is known.
    fn gateway(&mut self, holder: &Object, place: &str, key: &str, family: Option<Family>) {
        self.text(holder, place, key, false, |text| {
            let found = text.parse::<IpAddr>().ok().map(Family::of);
            found.is_some() && (family.is_none() || found == family)
        });
    }
}

fn shown(value: Option<&Value>) -> String {
    value.map_or("missing".to_owned(), Value::to_string)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Four,
    Six,
}

impl Family {
    fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::Four } else { Self::Six }
    }

    /// As 0.3.0 to 0.4.0 write it.
    fn digit(self) -> &'static str {
        match self {
            Self::Four => "4",
            Self::Six => "6",
        }
    }
}

/// The family of an address with a prefix length.
fn family_of_cidr(text: &str) -> Option<Family> {
    let (address, length) = text.split_once('/')?;
    let family = Family::of(address.parse().ok()?);
    let longest = if family == Family::Four { 32 } else { 128 };
    (length.parse::<u8>().ok()? <= longest).then_some(family)
}

/// Pairs of hex digits with colons: six of Ethernet, or as many as the kind of link has.
fn is_mac(text: &str) -> bool {
    text.is_empty()
        || text.split(':').count() >= 6
            && text.split(':').all(|pair| pair.len() == 2 && pair.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::{faults, unknown_keys};
    use serde_json::{Value, json};

    fn newest() -> Value {
        json!({
            "cniVersion": "1.1.0",
            "interfaces": [{ "name": "eth0", "mac": "0a:00:00:00:00:01", "mtu": 1500, "sandbox": "/run/netns/a" }],
            "ips": [{ "address": "10.1.0.2/16", "gateway": "10.1.0.1", "interface": 0 }, { "address": "fd01::2/64" }],
            "routes": [{ "dst": "0.0.0.0/0", "gw": "10.1.0.1", "table": 0 }],
            "dns": { "nameservers": ["10.1.0.1"], "search": ["a.b"], "options": [], "domain": "b" },
        })
    }

    #[test]
    fn each_form_is_right_in_its_version_only() {
        for version in crate::spec_version::VERSIONS {
            let result = crate::result_conversion::in_version(&newest(), version);
            assert_eq!(faults(&result, version), Vec::<String>::new(), "{version}");
            assert_eq!(unknown_keys(&result, version), Vec::<String>::new(), "{version}");
        }
        assert_eq!(faults(&crate::result_conversion::in_version(&newest(), "0.2.0"), "0.3.0").len(), 2);
        assert_eq!(faults(&newest(), "0.2.0").len(), 3);
        assert_eq!(faults(&newest(), "0.4.0").len(), 2); // the families of both addresses
        assert_eq!(faults(&crate::result_conversion::in_version(&newest(), "0.4.0"), "1.0.0").len(), 2);
        assert_eq!(unknown_keys(&newest(), "1.0.0"), ["interfaces/*/mtu", "routes/*/table"]);
        assert_eq!(
            unknown_keys(&json!({"": 1, "/": 2}), "1.0.0"),
            ["\"\"", "/"],
            "a key without letters has a name all the same"
        );
    }

    #[test]
    fn each_fault_is_told() {
        let faulty = [
            ("/interfaces/0/name", json!("")),
            ("/interfaces/0/mac", json!("0a:00")),
            ("/interfaces/0/mtu", json!("1500")),
            ("/interfaces/0/sandbox", json!(1)),
            ("/interfaces/0", json!("eth0")),
            ("/ips/0/address", json!("10.1.0.2")),
            ("/ips/0/address", json!("10.1.0.2/33")),
            ("/ips/0/gateway", json!("10.1.0.1/16")),
            ("/ips/0/interface", json!(1)),
            ("/ips/0/interface", json!(-1)),
            ("/ips/0/interface", json!("0")),
            ("/ips", json!({})),
            ("/routes/0/dst", json!("default")),
            ("/routes/0/gw", json!("fd01::1/64")),
            ("/routes/0/table", json!(-1)),
            ("/dns", json!([])),
            ("/dns/nameservers", json!("10.1.0.1")),
            ("/dns/nameservers/0", json!("a.b")),
            ("/dns/domain", json!(["b"])),
        ];
        for (place, value) in faulty {
            let mut result = newest();
            *result.pointer_mut(place).unwrap() = value.clone();
            assert!(!faults(&result, "1.1.0").is_empty(), "{place} {value}");
        }
        for other in [json!([]), json!(null), json!({ "code": 7, "msg": "no" })] {
            assert_eq!(faults(&other, "1.1.0").len(), 1, "{other}");
        }
    }

    #[test]
    fn old_faults_are_told() {
        for (place, value) in
            [("/ip4/ip", json!("fd01::2/64")), ("/ip4/gateway", json!("fd01::1")), ("/ip4/routes", json!(""))]
        {
            let mut result = json!({ "ip4": { "ip": "10.1.0.2/16", "gateway": "10.1.0.1", "routes": [] } });
            assert!(faults(&result, "0.2.0").is_empty());
            *result.pointer_mut(place).unwrap() = value;
            assert!(!faults(&result, "0.1.0").is_empty(), "{place}");
        }
    }
}
