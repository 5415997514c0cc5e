//! SPEC 2, CHECK: it passes right after ADD, it bears what later plugins change, and it notices what is missing.

use super::attached::{Attached, again, foreign_result, lay_network, skip, unchanged, with_kit_ipam};
use super::attachment_damage::{flush_filters, lose_files, remove_address, set_interface_down, sysctls_before};
use crate::rules::prelude::*;
use crate::spec_version;
use std::collections::BTreeSet;

pub(super) const CASES: &[Code] = &[
    ("check.passes-after-add/oldest", passes_after_add),
    ("check.prints-nothing", prints_nothing),
    ("check.returns-nothing-or-an-error", prints_nothing),
    ("check.changes-nothing/when-something-is-missing", repairs_nothing),
    ("check.consults-prev-result", expects_no_address_that_was_taken),
    ("check.expects-what-prev-result-has/another-address", expects_the_address_of_prev_result),
    ("check.bears-later-plugins/more-interfaces", bears_more_interfaces),
    ("check.notices-missing-filter-rules", notices_missing_filter_rules),
    ("check.notices-a-lost-reservation", notices_a_lost_reservation),
    ("check.notices-settings-undone/sysctl", notices_sysctls_undone),
    ("check.notices-settings-undone/mtu", notices_an_mtu_undone),
    ("check.notices-missing-traffic-shaping", notices_missing_shaping),
];

fn passes_after_add(testbed: &Testbed) -> Result<(), Stop> {
    match spec_version::is_from(&testbed.version, "0.4.0") {
        true => Attached::add(testbed)?.checks(),
        false => Err(skip("it speaks none from 0.4.0 on that is older than 1.0.0")),
    }
}

fn prints_nothing(testbed: &Testbed) -> Result<(), Stop> {
    let attached = Attached::add(testbed)?;
    attached.has_to_check()?;
    for index in 0..testbed.plugin_count() {
        let call = testbed.call_plugin(index, Verb::Check, &attached.attachment, Some(&attached.result));
        testbed.make(&call)?.prints_nothing()?;
    }
    Ok(())
}

fn repairs_nothing(testbed: &Testbed) -> Result<(), Stop> {
    let attached = Attached::add(testbed)?;
    let harms = [remove_address, flush_filters, set_interface_down, lose_files];
    Stop::skip_if(!harms.into_iter().any(|harm| harm(&attached).is_ok()), "nothing of it could be taken away")?;
    testbed.remember();
    for index in 0..testbed.plugin_count() {
        let call = testbed.call_plugin(index, Verb::Check, &attached.attachment, Some(&attached.result));
        testbed.make(&call)?; // whether it notices is asked elsewhere
    }
    unchanged(testbed, "all as before CHECK")
}

/// The address is from the kit's IPAM plugin, whose CHECK asks for no address in particular.
fn expects_no_address_that_was_taken(testbed: &Testbed) -> Result<(), Stop> {
    const TAKEN: &str = "10.88.0.77/16";
    let pod = testbed.pod();
    let attachment = pod.attachment();
    let first = json!({ "address": "10.88.0.2/16", "gateway": "10.88.0.1" });
    let both = json!([first, { "address": TAKEN, "gateway": "10.88.0.1" }]);
    let config = with_kit_ipam(testbed, Verb::Add, &attachment, &[("addresses", both)])?;
    let added = testbed.make(&testbed.call_with(Verb::Add, &config, &attachment))?;
    Stop::skip_if(!added.is_success(), "its ADD fails with two addresses of one network")?;
    let mut result = added.succeeds()?;
    let check =
        |result: &Value| testbed.make(&testbed.call_with(Verb::Check, &config, &attachment).prev_result(result));
    Stop::skip_if(
        !check(&result)?.is_success()
            || !pod.namespace().global_addresses(&attachment.ifname).contains(&TAKEN.to_owned()),
        "it does not set the second address, or its CHECK fails right after ADD",
    )?;
    pod.namespace().delete_address(&attachment.ifname, TAKEN);
    result["ips"].as_array_mut().into_iter().for_each(|ips| ips.retain(|ip| ip["address"] != json!(TAKEN)));
    check(&result)?.succeeds().map(drop)
}

fn expects_the_address_of_prev_result(testbed: &Testbed) -> Result<(), Stop> {
    let attached = Attached::add(testbed)?;
    attached.interface()?;
    Stop::skip_if(attached.addresses().is_empty(), "its result has no address of the container")?;
    let mut result = attached.result.clone();
    for entry in result["ips"].as_array_mut().into_iter().flatten() {
        let is_six = entry["address"].as_str().is_some_and(|address| address.contains(':'));
        entry["address"] = json!(if is_six { "2001:db8::77/64" } else { "192.0.2.77/28" });
    }
    attached.check_objects_to(Some(&result), "prevResult has another address").map(drop)
}

/// Interfaces of later plugins: on the node, such as bandwidth's, or a second one in the container.
fn bears_more_interfaces(testbed: &Testbed) -> Result<(), Stop> {
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

/// Of the files that name the container, it is shown first that they are what reserves the address: a pool of one gives
/// it to another container once they are gone. Logs and what else names a container may go unnoticed.
fn notices_a_lost_reservation(testbed: &Testbed) -> Result<(), Stop> {
    if testbed.config()["ipam"]["type"] == crate::kit_ipam::NAME {
        let attached = Attached::add(testbed)?;
        attached.has_to_check()?;
        testbed.ipam().lose_all();
        return attached.check_objects("the kit's delegate has lost the reservation").map(drop);
    }
    testbed.needs_pool(1)?;
    let second = testbed.pod();
    let attached = Attached::add(testbed)?;
    if let Ok(twice) = testbed.try_add(&second.attachment())? {
        testbed.del(&second, &twice)?;
        return Err(skip("it reserves no address: another container got one of its pool of one"));
    }
    lose_files(&attached)?;
    let Ok(other) = testbed.try_add(&second.attachment())? else {
        return Err(skip("no file of it that names the container reserves its address"));
    };
    testbed.del(&second, &other)?;
    attached.dels()?;
    testbed.forget_calls();
    let attached = again(Attached::add(testbed))?;
    attached.has_to_check()?;
    lose_files(&attached)?;
    attached.check_objects("the reservation was removed").map(drop)
}

/// ADD itself has to have set rules: those of a firewall that an administrator runs are none of its business.
fn notices_missing_filter_rules(testbed: &Testbed) -> Result<(), Stop> {
    let pod = testbed.pod();
    let before = (testbed.node.host().nft(), pod.namespace().nft());
    let attached = Attached::add_to(testbed, pod)?;
    Stop::skip_if(
        before == (testbed.node.host().nft(), attached.pod.namespace().nft()),
        "its ADD sets no filter rules",
    )?;
    attached.has_to_check()?;
    attached.check_objects(flush_filters(&attached)?).map(drop)
}

fn notices_sysctls_undone(testbed: &Testbed) -> Result<(), Stop> {
    lay_network(testbed)?;
    let pod = testbed.pod();
    let before = pod.namespace().snapshot();
    let attached = Attached::add_to(testbed, pod)?;
    let changed = sysctls_before(&before, &attached.pod.namespace().snapshot());
    Stop::skip_if(changed.is_empty(), "its ADD sets no sysctl of the container")?;
    attached.has_to_check()?;
    for (key, value) in &changed {
        attached.pod.namespace().set_sysctl(key, value);
    }
    attached.check_objects("sysctls have their old values").map(drop)
}

fn notices_an_mtu_undone(testbed: &Testbed) -> Result<(), Stop> {
    let pod = testbed.pod();
    let before = pod.namespace().links();
    let attached = Attached::add_to(testbed, pod)?;
    let pod = attached.pod.namespace();
    let has_changed = |old: &&testns::Link| pod.find_link(&old.name).is_some_and(|new| new.mtu_bytes != old.mtu_bytes);
    let old = before.iter().find(has_changed).ok_or_else(|| skip("its ADD sets no MTU"))?;
    attached.has_to_check()?;
    pod.set_mtu(&old.name, old.mtu_bytes);
    attached.check_objects("the MTU has its old value").map(drop)
}

/// Links that got a queueing discipline lose it.
fn notices_missing_shaping(testbed: &Testbed) -> Result<(), Stop> {
    let pod = testbed.pod();
    let before = testbed.node.snapshot();
    let attached = Attached::add_to(testbed, pod)?;
    let came = testns::changes(&before, &testbed.node.snapshot());
    let shaped = came.lines().filter_map(|line| line.strip_prefix("+ qdisc ")?.split_once(" on "));
    let shaped = shaped.filter(|(kind, _)| !kind.starts_with("noqueue"));
    let links: BTreeSet<_> = shaped.filter_map(|(_, rest)| rest.split(' ').next()).collect();
    Stop::skip_if(links.is_empty(), "its ADD shapes no traffic")?;
    attached.has_to_check()?;
    links.iter().for_each(|link| testbed.node.host().clear_qdiscs(link));
    attached.check_objects("the traffic shaping was removed").map(drop)
}
