//! SPEC 2, DEL: what it takes back, and what it must not need for that.

use super::attached::{Attached, again, lay_network, nothing_left, pod_of_before, pod_with_kit_ipam, skip, unchanged};
use crate::kit_ipam::Order;
use crate::profile::{Role, Stage, fill_text};
use crate::rules::prelude::*;
use crate::spec_version;

pub(super) const CASES: &[Code] = &[
    ("del.hides-nothing/sysctls-of-the-first", leaves_no_sysctl_of_the_first),
    ("del.hides-nothing/device-that-was-up", brings_a_device_home_up),
    ("del.undoes-modifications/sysctls", |testbed| undoes(testbed, is_sysctl)),
    ("del.undoes-modifications/all-else", |testbed| undoes(testbed, |line| !is_sysctl(line))),
    ("del.removes-the-interface", removes_the_interface),
    ("del.of-nothing-changes-nothing/never-added", of_what_was_never_added_changes_nothing),
    ("del.bears-that-nothing-was-added/network-in-use", bears_that_nothing_was_added),
    ("del.bears-that-nothing-was-added/first-call-of-all", bears_that_nothing_was_ever_done),
    ("del.needs-no-dynamic-parameters/runtime-config", needs_no_runtime_config),
    ("del.needs-no-dynamic-parameters/args", needs_no_args),
    ("del.follows-a-failed-add/no-namespace", follows_an_add_without_namespace),
    ("del.follows-a-failed-add/ipam-failed", follows_an_add_without_address),
    ("del.cleans-up-a-failed-add/no-namespace", |testbed| {
        follows_an_add_without_namespace(testbed).and_then(|()| nothing_left(testbed))
    }),
    ("del.cleans-up-a-failed-add/ipam-failed", |testbed| {
        follows_an_add_without_address(testbed)?;
        unchanged(testbed, "all as before the ADD that failed")
    }),
];

/// Forwarding is of a node with containers at all, and may stay; the kernel accepts no redirects then (`ip-sysctl`).
fn leaves_no_sysctl_of_the_first(testbed: &Testbed) -> Result<(), Stop> {
    let pod = testbed.pod();
    testbed.remember();
    Attached::add_to(testbed, pod)?.dels()?;
    let is_of_node = |line: &&str| {
        let key = line.get(2..).and_then(|line| line.strip_prefix("sysctl "));
        let is_forwarding = |key: &str| key.contains("forward") || key.contains("accept_redirects");
        key.is_some_and(|key| !is_forwarding(key) && !key.contains(" (in "))
    };
    let left: String = testbed.left_behind().lines().filter(is_of_node).map(|line| format!("{line}\n")).collect();
    Finding::unless_differs(left, "sysctls of the node as before the first ADD", "they differ")
}

/// A device that was up, as one that carries the node's own traffic, is moved and comes home. Its addresses are not asked for:
/// the kernel takes them with the move.
fn brings_a_device_home_up(testbed: &Testbed) -> Result<(), Stop> {
    let name = testbed.profile.stage.iter().find_map(|part| match part {
        Stage::Device { name } => Some(fill_text(name, 1)),
        _ => None,
    });
    let name = name.ok_or_else(|| skip("it moves no device of the node"))?;
    let pod = testbed.pod();
    let node = testbed.node.host();
    node.set_up(&name);
    Attached::add_to(testbed, pod)?.dels()?;
    let state = node.find_link(&name).map_or("missing", |link| if link.up { "up" } else { "down" });
    Finding::unless(state == "up", format!("the device {name} up, as before ADD"), format!("it is {state}"))
}

/// Of containers. They end with them, so that a plugin may have a reason to leave them; those of the node do not.
fn is_sysctl(line: &str) -> bool {
    line.get(2..).is_some_and(|line| line.starts_with("sysctl ")) && line.contains(" (in ")
}

fn undoes(testbed: &Testbed, is_meant: fn(&str) -> bool) -> Result<(), Stop> {
    lay_network(testbed)?;
    let pod = testbed.pod();
    testbed.remember();
    Attached::add_to(testbed, pod)?.dels()?;
    let left = testbed.left_behind();
    let left: String = left.lines().filter(|line| is_meant(line)).map(|line| format!("{line}\n")).collect();
    Finding::unless_differs(left, "all as before ADD", "something is not")
}

fn removes_the_interface(testbed: &Testbed) -> Result<(), Stop> {
    let attached = Attached::add(testbed)?;
    let name = attached.interface()?.name;
    attached.dels()?;
    Finding::unless_none(attached.pod.namespace().find_link(&name), |link| {
        (format!("no interface {name} in the container"), format!("there is {link}"))
    })
}

fn bears_that_nothing_was_added(testbed: &Testbed) -> Result<(), Stop> {
    testbed.add(&testbed.pod())?;
    let never = testbed.pod();
    testbed.remember();
    testbed.del_blindly(&never).map_err(|stop| for_want_of_a_result(testbed, stop))
}

fn of_what_was_never_added_changes_nothing(testbed: &Testbed) -> Result<(), Stop> {
    bears_that_nothing_was_added(testbed).map_err(|stop| stop.based_on("del.bears-that-nothing-was-added"))?;
    unchanged(testbed, "all as before DEL")
}

fn bears_that_nothing_was_ever_done(testbed: &Testbed) -> Result<(), Stop> {
    testbed.del_blindly(&testbed.pod()).map_err(|stop| for_want_of_a_result(testbed, stop))
}

/// A plugin that refuses each DEL without prevResult breaks `del.needs-no-prev-result`, which is no MUST, and nothing can
/// be concluded from such a DEL.
fn for_want_of_a_result(testbed: &Testbed, stop: Stop) -> Stop {
    let Ok(attached) = Attached::add(testbed) else {
        return stop;
    };
    match del_without_result(testbed, &attached.attachment) {
        Ok(()) => stop,
        Err(_refused) => skip("it refuses any DEL without prevResult, which is del.needs-no-prev-result's"),
    }
}

/// DEL of each plugin, from the last on. Before 0.4.0 it has no prevResult.
fn del_each(
    testbed: &Testbed,
    attachment: &Attachment,
    result: Option<&Value>,
    change: impl Fn(Call) -> Call,
) -> Result<(), Stop> {
    let result = result.filter(|_| spec_version::is_from(&testbed.version, "0.4.0"));
    let calls = (0..testbed.plugin_count()).rev();
    calls.map(|index| change(testbed.call_plugin(index, Verb::Del, attachment, result))).try_for_each(|call| {
        testbed.make(&call)?.succeeds()?;
        Ok(())
    })
}

fn del_without_result(testbed: &Testbed, attachment: &Attachment) -> Result<(), Stop> {
    del_each(testbed, attachment, None, |call| call)
}

fn needs_no_runtime_config(testbed: &Testbed) -> Result<(), Stop> {
    // Pass one more capability than the config has: a plugin that does not know it ignores it.
    let (capability, value) = match testbed.profile.role {
        Role::Ipam => ("ipRanges", json!([[{ "subnet": "10.76.0.0/16" }]])),
        Role::Interface | Role::Chained | Role::List | Role::Runtime => ("mac", json!("0a:00:00:00:00:77")),
    };
    let pass = |call: Call| call.with_config(|config| config["runtimeConfig"][capability] = value.clone());
    let (attachment, _) = added_again(testbed, pass)?;
    testbed.del_blindly(&attachment)?;
    unchanged(testbed, "the node as before ADD")
}

fn needs_no_args(testbed: &Testbed) -> Result<(), Stop> {
    let pass = |call: Call| call.args("IgnoreUnknown=1;K8S_POD_NAMESPACE=n;K8S_POD_NAME=p");
    let (attachment, result) = added_again(testbed, pass)?;
    testbed.del(&attachment, &result)?;
    unchanged(testbed, "the node as before ADD")
}

/// A container that came, went and came again, each time with calls that were changed; what ADD made of it.
fn added_again(testbed: &Testbed, change: impl Fn(Call) -> Call) -> Result<(Attachment, Value), Stop> {
    let attachment = testbed.pod().attachment();
    let result = add_each(testbed, &attachment, &change)?;
    del_each(testbed, &attachment, Some(&result), &change)?;
    testbed.remember();
    let result = again(add_each(testbed, &attachment, &change))?;
    Ok((attachment, result))
}

/// ADD of each plugin; what the last one made of it.
fn add_each(testbed: &Testbed, attachment: &Attachment, change: impl Fn(Call) -> Call) -> Result<Value, Stop> {
    let mut result = None;
    for index in 0..testbed.plugin_count() {
        let call = testbed.call_plugin(index, Verb::Add, attachment, result.as_ref());
        result = Some(testbed.make(&change(call))?.succeeds()?);
    }
    Ok(result.unwrap_or_default())
}

fn follows_an_add_without_namespace(testbed: &Testbed) -> Result<(), Stop> {
    let attachment = pod_of_before(testbed)?.leave(Remains::Gone);
    testbed.remember();
    Stop::skip_if(
        testbed.make(&testbed.call(Verb::Add, &attachment))?.is_success(),
        "its ADD succeeds without a namespace",
    )?;
    testbed.del_blindly(&attachment).map_err(|stop| for_want_of_a_result(testbed, stop))
}

fn follows_an_add_without_address(testbed: &Testbed) -> Result<(), Stop> {
    let (attachment, config) = pod_with_kit_ipam(testbed)?;
    testbed.remember();
    testbed.ipam().order(Verb::Add, Some(Order::Fail { code: 11, msg: "ordered to fail".to_owned() }));
    testbed.make(&testbed.call_with(Verb::Add, &config, &attachment))?.refused_by("delegation.error").fails()?;
    let deleted = testbed.make(&testbed.call_with(Verb::Del, &config, &attachment))?.succeeds();
    deleted.map(drop).map_err(|stop| {
        testbed.ipam().order(Verb::Add, None);
        for_want_of_a_result(testbed, stop)
    })
}
