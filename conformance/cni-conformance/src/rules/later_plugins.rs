//! Changes by later plugins of a chain to an attachment, which CHECK of an earlier one has to bear.

use super::add_result::leads_to;
use super::attached::{Attached, foreign_result, skip};
use super::attachment_damage::{OTHER_MAC, change_mac};
use crate::rules::prelude::*;

pub(super) fn bears_more_addresses(testbed: &Testbed) -> Result<(), Stop> {
    let attached = Attached::add(testbed)?;
    attached.has_to_check()?;
    attached.pod.namespace().add_address(&attached.interface_name()?, "192.0.2.177/28");
    attached.checks()
}

pub(super) fn bears_more_routes(testbed: &Testbed) -> Result<(), Stop> {
    let attached = Attached::add(testbed)?;
    attached.has_to_check()?;
    let name = attached.interface_name()?;
    let gateway = attached.addresses().iter().find_map(|ip| ip.gateway.clone().filter(|text| !text.contains(':')));
    let gateway =
        gateway.ok_or_else(|| skip("its result names no gateway through which there could be more routes"))?;
    let on_link = |hop: &testns::Hop| hop.link == name && hop.via.is_none();
    let mut routes = attached.pod.namespace().routes();
    routes.retain(|route| route.table == 254 && route.hops.iter().any(on_link));
    Stop::skip_if(
        !gateway.parse().is_ok_and(|gateway| routes.iter().any(|route| leads_to(route, gateway))),
        "the container has no route to its gateway",
    )?;
    attached.pod.namespace().add_route("203.0.113.64/26", &gateway, &name);
    attached.checks()
}

/// Interfaces of later plugins: on the node, such as bandwidth's, or a second one in the container.
pub(super) fn bears_more_interfaces(testbed: &Testbed) -> Result<(), Stop> {
    let attached = Attached::add(testbed)?;
    attached.has_to_check()?;
    attached.interface()?;
    let (node, pod) = (testbed.node.host(), attached.pod.namespace());
    pod.add_veth("foreign0", node, "foreign1");
    pod.set_mac("foreign0", "0a:00:00:00:00:99");
    pod.add_address("foreign0", "192.0.2.199/28");
    let mut result = attached.result.clone();
    let foreign = foreign_result(&attached.attachment, &testbed.version);
    let on_node = json!({ "name": "foreign1", "mac": node.link("foreign1").mac });
    let Some(interfaces) = result.get_mut("interfaces").and_then(Value::as_array_mut) else {
        return Err(skip("its result has no interfaces"));
    };
    let index = interfaces.len();
    interfaces.extend([foreign["interfaces"][0].clone(), on_node]);
    let mut ip = foreign["ips"][0].clone();
    ip["interface"] = json!(index);
    match result.get_mut("ips") {
        Some(Value::Array(ips)) => ips.push(ip),
        Some(_) => return Err(skip("its result has no list of ips")),
        None => result["ips"] = json!([ip]),
    }
    testbed.check(&attached.attachment, &result)
}

/// The change is tuning's: the mac of the result is the new one.
pub(super) fn bears_another_mac(testbed: &Testbed) -> Result<(), Stop> {
    let attached = Attached::add(testbed)?;
    attached.has_to_check()?;
    let name = attached.interface()?.name;
    change_mac(&attached)?;
    let mut result = attached.result.clone();
    for entry in entries(&mut result, "interfaces").filter(|entry| entry["name"] == json!(name)) {
        entry["mac"] = json!(OTHER_MAC);
    }
    testbed.check(&attached.attachment, &result)
}

pub(super) fn bears_another_mtu(testbed: &Testbed) -> Result<(), Stop> {
    let attached = Attached::add(testbed)?;
    attached.has_to_check()?;
    let name = attached.interface()?.name;
    attached.pod.namespace().set_mtu(&name, 1300);
    let mut result = attached.result.clone();
    for entry in entries(&mut result, "interfaces").filter(|entry| entry["name"] == json!(name)) {
        if entry.get("mtu").is_some() {
            entry["mtu"] = json!(1300);
        }
    }
    testbed.check(&attached.attachment, &result)
}

pub(super) fn entries<'a>(result: &'a mut Value, list: &str) -> impl Iterator<Item = &'a mut Value> + use<'a> {
    result.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten()
}
