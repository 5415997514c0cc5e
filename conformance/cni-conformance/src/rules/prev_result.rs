//! SPEC 2, ADD, and SPEC 5: what becomes of the prevResult of a plugin that is not the first of its chain.
//!
//! An entry that the kernel has no more was changed, and may be missing in the result. An entry that it still has is
//! reported as it was.

use super::attached::{namespace_of, with_key};
use crate::profile::Role;
use crate::result_conversion;
use crate::rules::prelude::*;
use crate::testbed::Answer;
use testns::{Hop, Route};

pub(super) const CASES: &[Code] = &[
    ("add.passes-prev-result-on/interfaces", passes_interfaces_on),
    ("add.passes-prev-result-on/devices", passes_devices_on),
    ("add.passes-prev-result-on/macs", |testbed| passes_of_links_on(testbed, "mac")),
    ("add.passes-prev-result-on/mtus", |testbed| passes_of_links_on(testbed, "mtu")),
    ("add.passes-prev-result-on/ips", passes_ips_on),
    ("add.passes-prev-result-on/routes", passes_routes_on),
    ("add.passes-prev-result-on/dns", passes_dns_on),
    ("add.echoes-prev-result", passes_ips_on),
    ("add.passes-unknown-keys-on", passes_unknown_keys_on),
];

/// Addresses that an interface has beside its first, and the gateway of the last.
const MORE: [&str; 2] = ["198.18.0.9/24", "2001:db8:77::9/64"];
/// Keys of an interface, and values, that came with 1.1.0.
const DEVICE: [(&str, &str); 2] = [("socketPath", "/run/vhost/net1.sock"), ("pciID", "0000:03:00.1")];
const GATEWAYS: [&str; 2] = ["198.18.0.1", "2001:db8:77::1"];

/// An ADD of a plugin that is not the first of its chain.
struct Later {
    /// prevResult in the form of the version.
    given: Value,
    result: Value,
    pod: Container,
}

impl Later {
    /// With a prevResult that has two addresses of IPv4 and one of IPv6, an MTU, and routes with attributes, as far as the
    /// version has them, all of which is there; with a plain one if that makes ADD fail.
    fn add(testbed: &Testbed, more: &[(&str, Value)]) -> Result<Self, Stop> {
        let pod = testbed.pod();
        let plain = before_it(testbed, &pod);
        let rich = enriched(&pod, plain);
        let (given, answer) = add_after(testbed, &pod, &rich, more)?;
        if answer.is_success() {
            return Ok(Self { given, result: result_conversion::in_one_notation(answer.succeeds()?), pod });
        }
        let pod = testbed.pod();
        let (given, answer) = add_after(testbed, &pod, &before_it(testbed, &pod), more)?;
        Ok(Self { given, result: result_conversion::in_one_notation(answer.succeeds()?), pod })
    }

    /// The place of an interface of a result: its name, and its sandbox if it has one.
    fn place<'a>(result: &'a Value, index: &Value) -> Option<(&'a Value, &'a Value)> {
        let index = usize::try_from(index.as_u64()?).ok()?;
        result["interfaces"].get(index).map(|entry| (&entry["name"], &entry["sandbox"]))
    }

    fn link(&self, testbed: &Testbed, entry: &Value) -> Option<testns::Link> {
        let name = entry["name"].as_str()?;
        match entry["sandbox"].as_str().unwrap_or_default() {
            "" => testbed.node.host().find_link(name),
            _ => namespace_of(entry).and_then(|_inside| self.pod.namespace().find_link(name)),
        }
    }

    /// Interfaces of prevResult that have a key, each with itself in the result: another case asks whether it is there.
    fn interfaces_with(&self, key: &str) -> Vec<(Value, Value)> {
        let printed = entries(&self.result, "interfaces");
        let given = entries(&self.given, "interfaces").into_iter().filter(|entry| entry.get(key).is_some());
        let is_same = |entry: &Value| printed.iter().find(|other| same(entry, other, &["name", "sandbox"])).cloned();
        given.filter_map(|entry| is_same(&entry).map(|other| (entry, other))).collect()
    }

    /// Checks that each entry of a list that is still there is in the result, as often as it was.
    fn keeps(
        &self,
        list: &str,
        is_there: impl Fn(&Value) -> bool,
        is_same: impl Fn(&Value, &Value) -> bool,
    ) -> Result<(), Stop> {
        let printed = entries(&self.result, list);
        let given = entries(&self.given, list);
        for entry in given.iter().filter(|entry| is_there(entry)) {
            let was = given.iter().filter(|other| *other == entry).count();
            let is = printed.iter().filter(|other| is_same(entry, other)).count();
            let times = if is > was {
                format!("{was} time{}, not {is}, ", if was == 1 { "" } else { "s" })
            } else {
                String::new()
            };
            let expected = format!("{entry} {times}among the {list} of the result");
            Finding::unless(is == was, expected, format!("it printed {}", self.result))?;
        }
        Ok(())
    }
}

/// Checks the indexes of addresses that the plugin adds to those of prevResult.
pub(super) fn own_addresses_are_set(testbed: &Testbed) -> Result<(), Stop> {
    Stop::skip_if(testbed.profile.role == Role::List, "a runtime gives a list no prevResult")?;
    let later = Later::add(testbed, &[])?;
    let given: Vec<_> = entries(&later.given, "ips").iter().map(|ip| ip["address"].clone()).collect();
    for ip in entries(&later.result, "ips").iter().filter(|ip| !given.contains(&ip["address"])) {
        let Some(index) = ip["interface"].as_u64().and_then(|index| usize::try_from(index).ok()) else { continue };
        let entry = &later.result["interfaces"][index];
        let is_inside = namespace_of(entry).is_some();
        if entry["sandbox"].as_str().is_some_and(|sandbox| !sandbox.is_empty() && !is_inside) {
            continue;
        }
        let namespace = if is_inside { later.pod.namespace() } else { testbed.node.host() };
        let is_it = |found: &testns::Address| {
            entry["name"] == json!(found.link) && ip["address"] == json!(format!("{}/{}", found.ip, found.prefix))
        };
        let expected = format!("the address {} on {}, which its index names", ip["address"], entry["name"]);
        Finding::unless(namespace.addresses().iter().any(is_it), expected, format!("it printed {}", later.result))?;
    }
    Ok(())
}

/// The result of the plugins before it, in the newest form: what the profile of a chained plugin has, else an interface
/// of the kit's.
fn before_it(testbed: &Testbed, pod: &Container) -> Value {
    let ifname = pod.attachment().ifname;
    if let Some(laid) = testbed.laid_for(&pod.attachment()) {
        return laid;
    }
    let (node, inside) = (testbed.node.host(), pod.namespace());
    let name = if testbed.profile.is_chained() { ifname.as_str() } else { "foreign0" };
    if inside.find_link(name).is_none() {
        // Each container's has an end of its own on the node.
        inside.add_veth(name, node, &format!("foreign{}", testbed.pods().len()));
        inside.add_address(name, "192.0.2.199/28");
    }
    let mac = inside.link(name).mac;
    json!({
        "cniVersion": "1.1.0",
        "interfaces": [{ "name": name, "mac": mac, "sandbox": inside.path() }],
        "ips": [{ "address": "192.0.2.199/28", "gateway": "192.0.2.193", "interface": 0 }],
    })
}

/// The same with more of everything, in the container and in the result.
fn enriched(pod: &Container, mut result: Value) -> Value {
    const MTU: u32 = 1450;
    let is_inside = |entry: &Value| namespace_of(entry).is_some();
    let Some(index) = entries(&result, "interfaces").iter().position(is_inside) else {
        return result;
    };
    let inside = pod.namespace();
    let name = result["interfaces"][index]["name"].as_str().unwrap_or_default().to_owned();
    if inside.find_link(&name).is_none() {
        return result; // a profile's own keys may name what is not there
    }
    inside.set_mtu(&name, MTU);
    result["interfaces"][index]["mtu"] = json!(MTU);
    for (key, value) in DEVICE {
        result["interfaces"][index][key] = json!(value);
    }
    for (address, gateway) in MORE.iter().zip(GATEWAYS) {
        inside.add_address(&name, address);
        push(&mut result, "ips", json!({ "address": address, "gateway": gateway, "interface": index }));
    }
    let route = |to: &str, via: &str, table| Route {
        to: to.to_owned(),
        hops: vec![Hop { via: via.parse().ok(), link: name.clone() }],
        table,
        source: None,
        metric: 77,
        scope: 0,
        protocol: 4,
        kind: 1,
        mtu_bytes: 1400,
        advmss_bytes: 1300,
    };
    for (to, via, table) in [
        ("203.0.113.0/25", GATEWAYS[0], 254),
        ("203.0.113.128/25", GATEWAYS[0], 4711),
        ("2001:db8:78::/64", GATEWAYS[1], 254),
    ] {
        inside.lay_route(&route(to, via, table));
        let entry =
            json!({ "dst": to, "gw": via, "mtu": 1400, "advmss": 1300, "priority": 77, "table": table, "scope": 0 });
        push(&mut result, "routes", entry);
    }
    result
}

fn push(result: &mut Value, list: &str, entry: Value) {
    match result[list].as_array_mut() {
        Some(list) => list.push(entry),
        None => result[list] = json!([entry]),
    }
}

/// ADD with a prevResult, given in the newest form; it in the form of the version, and the answer.
fn add_after(
    testbed: &Testbed,
    pod: &Container,
    newest: &Value,
    more: &[(&str, Value)],
) -> Result<(Value, Answer), Stop> {
    let mut given = result_conversion::in_version(newest, &testbed.version);
    more.iter().for_each(|(key, value)| given[*key] = value.clone());
    let config = with_key(testbed.config_for(Verb::Add, &pod.attachment()), "prevResult", given.clone());
    Ok((given, testbed.make(&testbed.call_with(Verb::Add, config, pod))?))
}

fn entries(result: &Value, list: &str) -> Vec<Value> {
    result.get(list).and_then(Value::as_array).cloned().unwrap_or_default()
}

/// Whether entries have the same under these keys.
fn same(one: &Value, other: &Value, keys: &[&str]) -> bool {
    keys.iter().all(|key| one.get(key) == other.get(key))
}

fn passes_interfaces_on(testbed: &Testbed) -> Result<(), Stop> {
    let later = Later::add(testbed, &[])?;
    let is_there = |entry: &Value| later.link(testbed, entry).is_some();
    later.keeps("interfaces", is_there, |entry, other| same(entry, other, &["name", "sandbox"]))
}

fn passes_devices_on(testbed: &Testbed) -> Result<(), Stop> {
    let later = Later::add(testbed, &[])?;
    for (entry, other) in later.interfaces_with(DEVICE[0].0) {
        let expected = format!("socketPath and pciID of {entry} in the result");
        Finding::unless(same(&entry, &other, &DEVICE.map(|(key, _)| key)), expected, format!("it has {other}"))?;
    }
    Ok(())
}

/// A plugin may have changed what it is of a link, and then says so.
fn passes_of_links_on(testbed: &Testbed, key: &str) -> Result<(), Stop> {
    let later = Later::add(testbed, &[])?;
    for (entry, other) in later.interfaces_with(key) {
        let Some(link) = later.link(testbed, &entry) else { continue };
        let is = if key == "mac" { json!(link.mac) } else { json!(link.mtu_bytes) };
        let value = other.get(key).unwrap_or(&Value::Null);
        let expected = format!("{key} {} of {} in the result", entry[key], entry["name"]);
        Finding::unless(*value == entry[key] || *value == is, expected, format!("it is {value}"))?;
    }
    Ok(())
}

/// The index is another where the plugin has put its own interfaces before the others, and leads to the same.
fn passes_ips_on(testbed: &Testbed) -> Result<(), Stop> {
    let later = Later::add(testbed, &[])?;
    let links: Vec<_> =
        [later.pod.namespace(), testbed.node.host()].into_iter().flat_map(testns::Namespace::addresses).collect();
    let is_there = |entry: &Value| {
        let text = entry["address"].as_str().unwrap_or_default();
        links.iter().any(|address| format!("{}/{}", address.ip, address.prefix) == text)
    };
    later.keeps("ips", is_there, |entry, other| {
        let places =
            [(&later.given, entry), (&later.result, other)].map(|(result, ip)| Later::place(result, &ip["interface"]));
        same(entry, other, &["address", "gateway"]) && places[0] == places[1]
    })
}

fn passes_routes_on(testbed: &Testbed) -> Result<(), Stop> {
    let later = Later::add(testbed, &[])?;
    let routes = later.pod.namespace().routes();
    let is_there = |entry: &Value| {
        let via = |hop: &Hop| entry["gw"].is_null() || hop.via.is_some_and(|via| json!(via) == entry["gw"]);
        let is_it = |route: &Route| {
            let table = entry["table"].as_u64().is_none_or(|table| table == u64::from(route.table));
            json!(route.to) == entry["dst"] && table && route.hops.iter().any(via)
        };
        routes.iter().any(is_it)
    };
    let keys = ["dst", "gw", "mtu", "advmss", "priority", "table", "scope"];
    later.keeps("routes", is_there, |entry, other| same(entry, other, &keys))
}

/// A plugin that has something to say itself may put it before what others said, or in its place.
fn passes_dns_on(testbed: &Testbed) -> Result<(), Stop> {
    let dns = json!({ "nameservers": ["192.0.2.53", "192.0.2.1"], "domain": "a.test",
        "search": ["a.test", "b.test"], "options": ["ndots:2", "rotate"] });
    Stop::skip_if(
        testbed.config().get("dns").is_some() || testbed.profile.role == Role::Interface,
        "it has a dns of its own",
    )?;
    let Later { result, .. } = Later::add(testbed, &[("dns", dns.clone())])?;
    let texts = |value: &Value| match value {
        Value::Array(list) => list.clone(),
        Value::Null => Vec::new(),
        one => vec![one.clone()],
    };
    for (key, given) in dns.as_object().into_iter().flatten() {
        let printed = &result["dns"][key];
        let has_own = texts(printed).iter().any(|text| !texts(given).contains(text));
        let expected = format!("{key} {given} in dns of the result");
        Finding::unless(has_own || printed == given, expected, format!("it printed {result}"))?;
    }
    Ok(())
}

fn passes_unknown_keys_on(testbed: &Testbed) -> Result<(), Stop> {
    let newer = json!({ "since": "9.9.9" });
    let Later { result, .. } = Later::add(testbed, &[("newer", newer.clone())])?;
    Finding::unless(result["newer"] == newer, "the key newer in the result", format!("it printed {result}"))
}
