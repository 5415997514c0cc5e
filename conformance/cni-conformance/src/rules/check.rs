//! SPEC 2, CHECK: it passes right after ADD, it bears what later plugins change, and it notices what is missing.

use super::attached::{Attached, lay_network, skip, unchanged, with_key, with_kit_ipam};
use super::attachment_damage::{
    Harm, change_mac, detach_host_end, flush_filters, lose_files, remove_address, remove_bridge, remove_host_end,
    remove_interface, remove_last_address, remove_master, remove_route, rename_interface, set_host_end_down,
    set_interface_down, sysctls_before,
};
use super::conventions::honours;
use super::later_plugins::{
    bears_another_mac, bears_another_mtu, bears_more_addresses, bears_more_interfaces, bears_more_routes, entries,
};
use crate::finding::{Finding, Stop};
use crate::kit_ipam::Order;
use crate::profile::Role;
use crate::rule::{Case, Rule, before, relied, since, spec};
use crate::spec_version;
use crate::testbed::Testbed;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use testns::{Attachment, Verb};

/// A case with the newest version; there was no CHECK before 0.4.0.
const fn check(name: &'static str, run: fn(&Testbed) -> Result<(), Stop>) -> Case {
    since("0.4.0", name, run)
}

pub(super) const RULES: &[Rule] = &[
    spec("check.passes-after-add", &["check/at-once"], Role::ALL)
        .says("CHECK immediately after ADD passes: what takes its time is waited for.")
        .by(&[
            check("newest", passes_after_add).does("CHECK right after ADD."),
            before("1.0.0", "oldest", passes_after_add).does("The same with the newest version before 1.0.0."),
            since("1.1.0", "route-in-a-table", passes_with_a_route_in_a_table)
                .does("The same with a route of the delegate in a table of its own."),
            check("mac-in-capitals", passes_with_a_mac_in_capitals)
                .does("The same with a runtimeConfig.mac in capitals."),
        ]),
    spec("check.prints-nothing", &["check/nothing"], Role::ALL)
        .says("CHECK that succeeds prints nothing.")
        .by(&[check("", prints_nothing).does("CHECK right after ADD; its stdout has to be empty.")]),
    spec("check.returns-nothing-or-an-error", &["check/nothing-0.4.0"], Role::ALL)
        .says("CHECK returns either nothing or an error.")
        .by(&[check("", prints_nothing).does("CHECK right after ADD; its stdout has to be empty.")]),
    relied("check.needs-prev-result", "operators, who so learn that a runtime forgot it", &[Role::Interface])
        .says("CHECK without prevResult is an error.")
        .by(&[check("", wants_a_prev_result).does("CHECK without prevResult, of an attachment that is there.")]),
    relied("check.changes-nothing", "operators, who look at a node with it", Role::ALL)
        .says("CHECK looks, and repairs or changes nothing.")
        .by(&[
            check("when-all-is-well", changes_nothing)
                .does("CHECK right after ADD; node and container are compared with before."),
            check("when-something-is-missing", repairs_nothing)
                .does("An address, filter rules, the link's state or files are taken away first."),
        ]),
    spec("check.consults-prev-result", &["check/consults"], &[Role::Interface])
        .says(
            "CHECK takes from prevResult which addresses to expect: one that a later plugin took away, and \
              prevResult has no more, is not missing.",
        )
        .by(&[check("", expects_no_address_that_was_taken)
            .does("One of two addresses is taken from the interface and from prevResult; CHECK has to pass.")]),
    relied(
        "check.expects-what-prev-result-has",
        "operators, who so learn that a container lacks what it was promised",
        &[Role::Interface],
    )
    .says("CHECK is an error when the container has not the interface or the addresses of prevResult.")
    .by(&[
        check("without-the-interface", expects_the_interface_of_prev_result)
            .does("CHECK with a prevResult whose interface is called absent0."),
        check("another-address", expects_the_address_of_prev_result)
            .does("CHECK with a prevResult whose addresses are others."),
    ]),
    spec("check.bears-later-plugins", &["check/later"], &[Role::Interface])
        .says(
            "CHECK passes when a later plugin of the chain added to what this one made, or changed it and said \
              so.",
        )
        .by(&[
            check("more-addresses", bears_more_addresses)
                .does("The kit adds an address to the interface; CHECK has to pass."),
            check("more-routes", bears_more_routes).does("The same with a route by the gateway of the result."),
            check("more-interfaces", bears_more_interfaces)
                .does("The same with a second interface, which stands in prevResult."),
            check("other-mac", bears_another_mac).does("The same with another MAC, which stands in prevResult."),
            check("other-mtu", bears_another_mtu)
                .does("The same with another MTU, which stands in prevResult if it has mtu."),
        ]),
    spec("check.notices-a-harmed-interface", &["check/listed"], Role::ATTACHING)
        .says("CHECK is an error when an interface of the result is missing or in an invalid state.")
        .by(&[
            check("removed", |testbed| notices(testbed, remove_interface))
                .does("The interface is deleted; CHECK has to fail."),
            check("renamed", |testbed| notices(testbed, rename_interface))
                .does("The interface gets another name; CHECK has to fail."),
            check("down", |testbed| notices(testbed, set_interface_down))
                .does("The interface is set down; CHECK has to fail."),
            check("other-mac", |testbed| notices(testbed, change_mac))
                .does("The interface gets another MAC; CHECK has to fail."),
        ]),
    spec("check.notices-a-harmed-host-end", &["check/listed"], Role::ATTACHING)
        .says("CHECK is an error when what connects the interface to the node is missing or in an invalid state.")
        .by(&[
            check("removed", |testbed| notices(testbed, remove_host_end))
                .does("The other end of the veth is deleted; CHECK has to fail."),
            check("down", |testbed| notices(testbed, set_host_end_down))
                .does("The other end of the veth is set down; CHECK has to fail."),
            check("detached", |testbed| notices(testbed, detach_host_end))
                .does("The other end of the veth is taken off its bridge; CHECK has to fail."),
            check("bridge-removed", |testbed| notices(testbed, remove_bridge))
                .does("The bridge is deleted; CHECK has to fail."),
            check("master-removed", |testbed| notices(testbed, remove_master))
                .does("The master on the node is deleted; CHECK has to fail."),
        ]),
    spec("check.notices-a-missing-address", &["check/listed"], Role::ATTACHING)
        .says("CHECK is an error when an address of the result is not on the interface.")
        .by(&[
            check("first", |testbed| notices(testbed, remove_address))
                .does("The first address of the result is taken away; CHECK has to fail."),
            check("last", |testbed| notices(testbed, remove_last_address))
                .does("The last address of the result is taken away; CHECK has to fail."),
        ]),
    spec("check.notices-a-missing-route", &["check/listed"], Role::ATTACHING)
        .says("CHECK is an error when a route of the result is not there.")
        .by(&[check("", |testbed| notices(testbed, remove_route))
            .does("A route of the result is deleted; CHECK has to fail.")]),
    spec("check.notices-missing-filter-rules", &["check/unlisted"], NOT_IPAM)
        .says("CHECK is an error when firewall rules that ADD set are missing.")
        .by(&[check("", notices_missing_filter_rules)
            .does("The rules of nftables and iptables are flushed, if ADD made some; CHECK has to fail.")]),
    spec("check.notices-a-lost-reservation", &["check/unlisted"], &[Role::Interface, Role::Ipam, Role::List])
        .says("CHECK is an error when the reservation of an address is missing.")
        .by(&[check("", notices_a_lost_reservation).does(
            "Files that name the container, and are shown to reserve its address, are deleted; CHECK has to fail.",
        )]),
    spec("check.notices-settings-undone", &["check/unlisted"], &[Role::Chained])
        .says("CHECK is an error when sysctls or link settings that ADD set in the container have their old values.")
        .by(&[
            check("sysctl", notices_sysctls_undone)
                .does("Sysctls of the container that ADD set get their old values; CHECK has to fail."),
            check("mtu", notices_an_mtu_undone).does("An MTU that ADD set gets its old value; CHECK has to fail."),
        ]),
    spec("check.notices-a-missing-daemon", &["check/unlisted"], Role::PLUGINS)
        .says("CHECK is an error when a daemon that connectivity depends on is gone.")
        .by(&[check("", notices_a_missing_daemon).does("The plugin's daemon is ended; CHECK has to fail.")]),
    spec("check.asks-the-delegate", &["check/delegates"], &[Role::Interface])
        .says("CHECK calls CHECK of the plugins that it delegates to, and passes their error on.")
        .by(&[check("", asks_the_delegate)
            .does("CHECK with the kit's own delegate, which fails; its message has to be in the error.")]),
    spec("check.notices-missing-traffic-shaping", &["check/unlisted"], NOT_IPAM)
        .says("CHECK is an error when traffic shaping that ADD set up is missing.")
        .by(&[check("", notices_missing_shaping)
            .does("Queueing disciplines that ADD made are deleted; CHECK has to fail.")]),
];

const NOT_IPAM: &[Role] = &[Role::Interface, Role::Chained, Role::List];

fn passes_after_add(testbed: &Testbed) -> Result<(), Stop> {
    match spec_version::is_from(&testbed.version, "0.4.0") {
        true => Attached::add(testbed)?.checks(),
        false => Err(skip("it speaks none from 0.4.0 on that is older than 1.0.0")),
    }
}

/// The kit's IPAM plugin gives the route, so that it is the result's.
fn passes_with_a_route_in_a_table(testbed: &Testbed) -> Result<(), Stop> {
    let attachment = testbed.pod().attachment();
    let route = json!([{ "dst": "198.51.100.0/24", "gw": "10.88.0.1", "table": 4711 }]);
    let config = with_kit_ipam(testbed, Verb::Add, &attachment, &[("routes", route)])?;
    checks_as_added(testbed, config, &attachment)
}

fn passes_with_a_mac_in_capitals(testbed: &Testbed) -> Result<(), Stop> {
    honours(testbed, "mac")?;
    let attachment = testbed.pod().attachment();
    let mac = json!({ "mac": "0A:BC:DE:F0:00:01" });
    checks_as_added(testbed, with_key(testbed.config_for(Verb::Add, &attachment), "runtimeConfig", mac), &attachment)
}

/// CHECK of a container with the config of its ADD.
fn checks_as_added(testbed: &Testbed, config: Value, attachment: &Attachment) -> Result<(), Stop> {
    let result = testbed.make(&testbed.call_with(Verb::Add, &config, attachment))?.succeeds()?;
    let call = testbed.call_with(Verb::Check, with_key(config, "prevResult", result), attachment);
    testbed.make(&call)?.succeeds().map(drop)
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

fn changes_nothing(testbed: &Testbed) -> Result<(), Stop> {
    let attached = Attached::add(testbed)?;
    testbed.remember();
    attached.has_to_check()?;
    unchanged(testbed, "all as before CHECK")
}

fn repairs_nothing(testbed: &Testbed) -> Result<(), Stop> {
    let attached = Attached::add(testbed)?;
    let harms: [Harm; 4] = [remove_address, flush_filters, set_interface_down, lose_files];
    Stop::skip_if(!harms.into_iter().any(|harm| harm(&attached).is_ok()), "nothing of it could be taken away")?;
    testbed.remember();
    for index in 0..testbed.plugin_count() {
        let call = testbed.call_plugin(index, Verb::Check, &attached.attachment, Some(&attached.result));
        testbed.make(&call)?; // whether it notices is asked elsewhere
    }
    unchanged(testbed, "all as before CHECK")
}

fn wants_a_prev_result(testbed: &Testbed) -> Result<(), Stop> {
    let attached = Attached::add(testbed)?;
    attached.interface()?;
    attached.check_objects_to(None, "there is no prevResult").map(drop)
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

fn expects_the_interface_of_prev_result(testbed: &Testbed) -> Result<(), Stop> {
    let attached = Attached::add(testbed)?;
    let name = attached.interface()?.name;
    let mut result = attached.result.clone();
    for entry in entries(&mut result, "interfaces") {
        if entry["name"] == json!(name) {
            entry["name"] = json!("absent0");
        }
    }
    attached.check_objects_to(Some(&result), "prevResult has another interface").map(drop)
}

fn expects_the_address_of_prev_result(testbed: &Testbed) -> Result<(), Stop> {
    let attached = Attached::add(testbed)?;
    attached.interface()?;
    Stop::skip_if(attached.addresses().is_empty(), "its result has no address of the container")?;
    let mut result = attached.result.clone();
    for entry in entries(&mut result, "ips") {
        let is_six = entry["address"].as_str().is_some_and(|address| address.contains(':'));
        entry["address"] = json!(if is_six { "2001:db8::77/64" } else { "192.0.2.77/28" });
    }
    attached.check_objects_to(Some(&result), "prevResult has another address").map(drop)
}

/// CHECK passes; after the harm it does not.
fn notices(testbed: &Testbed, harm: Harm) -> Result<(), Stop> {
    let attached = Attached::add(testbed)?;
    attached.has_to_check()?;
    let reason = harm(&attached)?;
    attached.check_objects(reason).map(drop)
}

/// Of the files that name the container, it is shown first that they are what reserves the address: a pool of one gives
/// it to another container once they are gone. Logs and what else names a container may go unnoticed.
fn notices_a_lost_reservation(testbed: &Testbed) -> Result<(), Stop> {
    testbed.needs_pool(1)?;
    let second = testbed.pod();
    let attached = Attached::add(testbed)?;
    lose_files(&attached)?;
    let Ok(other) = testbed.try_add(&second.attachment())? else {
        return Err(skip("no file of it that names the container reserves its address"));
    };
    testbed.del(&second, &other)?;
    attached.dels()?;
    testbed.forget_calls();
    let attached = Attached::add(testbed)?;
    attached.has_to_check()?;
    lose_files(&attached)?;
    attached.check_objects("the reservation was removed").map(drop)
}

fn notices_a_missing_daemon(testbed: &Testbed) -> Result<(), Stop> {
    let attached = Attached::add(testbed)?;
    attached.has_to_check()?;
    match testbed.end_daemons() {
        0 => Err(skip("it has no daemon")),
        _ => attached.check_objects("its daemon is gone").map(drop),
    }
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

fn asks_the_delegate(testbed: &Testbed) -> Result<(), Stop> {
    let attachment = testbed.pod().attachment();
    let config = with_kit_ipam(testbed, Verb::Add, &attachment, &[])?;
    let result = testbed.make(&testbed.call_with(Verb::Add, &config, &attachment))?.succeeds()?;
    let check = testbed.call_with(Verb::Check, &config, &attachment).prev_result(&result);
    testbed.make(&check)?.succeeds()?;
    let msg = "the kit was ordered to object";
    testbed.ipam().order(Verb::Check, Some(Order::Fail { code: 117, msg: msg.to_owned() }));
    let error = testbed.make(&check)?.refused_by("delegation.forwards").fails()?;
    Finding::unless(
        error.object.to_string().contains(msg),
        format!("{msg:?} in the error"),
        format!("it printed {}", error.object),
    )
}
