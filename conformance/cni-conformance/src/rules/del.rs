//! SPEC 2, DEL: what it takes back, and what it must not need for that.

use super::attached::{Attached, again, lay_network, nothing_left, pod_of_before, pod_with_kit_ipam, skip, unchanged};
use super::attachment_damage::{
    Harm, detach_host_end, flush_filters, lose_files, remove_address, remove_bridge, remove_host_end, remove_interface,
    remove_master, remove_route, rename_interface,
};
use crate::finding::{Finding, Stop};
use crate::kit_ipam::Order;
use crate::profile::{Role, Stage, fill_text};
use crate::rule::{Rule, each, newest, relied, spec};
use crate::spec_version;
use crate::testbed::Testbed;
use serde_json::{Value, json};
use testns::{Attachment, Call, Remains, Verb};

pub(super) const RULES: &[Rule] = &[
    spec("del.leaves-nothing", &["del/deletes"], Role::ATTACHING)
        .says("DEL takes back everything that ADD did, on the node and in the container.")
        .by(&[each("", leaves_nothing).does("ADD and DEL of a second container; the node is compared with before.")]),
    spec("del.hides-nothing", &["del/deletes"], Role::ATTACHING)
        .says(
            "DEL takes back, too, what an earlier container would hide: an address that the next one gets again, \
              a sysctl that only the first ADD of a node changes; and a device comes home up if it was.",
        )
        .by(&[
            newest("beside-another", leaves_nothing_beside_another)
                .does("ADD and DEL beside another container; the node is compared with before."),
            newest("sysctls-of-the-first", leaves_no_sysctl_of_the_first)
                .does("ADD and DEL of the first container of a node; its sysctls are compared, but for forwarding."),
            newest("device-that-was-up", brings_a_device_home_up)
                .does("A device that was up is moved by ADD and comes home by DEL; it has to be up."),
        ]),
    spec("del.undoes-modifications", &["del/deletes"], &[Role::Chained, Role::Ipam])
        .says("DEL of a plugin that makes no interface undoes what its ADD changed, and frees what it reserved.")
        .by(&[
            newest("sysctls", |testbed| undoes(testbed, is_sysctl))
                .does("ADD and DEL; sysctls of the container are compared with before."),
            newest("all-else", |testbed| undoes(testbed, |line| !is_sysctl(line)))
                .does("ADD and DEL; all else is compared with before."),
        ]),
    spec("del.removes-the-interface", &["del/deletes"], Role::ATTACHING)
        .says("After DEL the container has no interface CNI_IFNAME.")
        .by(&[newest("", removes_the_interface).does("ADD and DEL; the container may have no link of that name.")]),
    spec("del.is-repeatable", &["del/repeats"], Role::ALL)
        .says("DEL may be called again, and succeeds when everything is gone.")
        .by(&[
            newest("namespace-alive", is_repeatable).does("DEL three times."),
            newest("namespace-gone", is_repeatable_without_namespace)
                .does("DEL a second time, when the namespace has gone."),
        ]),
    spec("del.is-repeatable-in-0.4.0", &["del/repeats-0.4.0"], Role::ALL)
        .says("DEL may be called again, and succeeds when everything is gone.")
        .by(&[newest("", is_repeatable).does("DEL three times.")]),
    relied(
        "del.of-nothing-changes-nothing",
        "others on the node, as runtimes call DEL more often than needed",
        Role::ALL,
    )
    .says("DEL of what is gone, or was never added, changes nothing.")
    .by(&[
        newest("again", again_changes_nothing).does("DEL three times; the second and third may change nothing."),
        newest("again-without-namespace", again_leaves_nothing_without_namespace)
            .does("DEL a second time, when the namespace has gone; nothing may come."),
        newest("never-added", of_what_was_never_added_changes_nothing)
            .does("DEL of a container that was never added, beside one that was."),
    ]),
    spec("del.bears-that-nothing-was-added", &["del/repeats"], Role::ALL)
        .says("DEL of what was never added succeeds.")
        .by(&[
            newest("network-in-use", bears_that_nothing_was_added)
                .does("DEL of a container that was never added, beside one that was."),
            newest("first-call-of-all", bears_that_nothing_was_ever_done).does("DEL as the first call of a node."),
        ]),
    spec("del.needs-no-namespace", &["del/best-effort"], Role::ALL)
        .says("With the namespace gone, DEL succeeds, and nothing is left on the node.")
        .by(&[
            newest("gone", |testbed| del(testbed, Remains::Gone, Parsed::All))
                .does("DEL when the namespace has gone; nothing may be left on the node."),
            newest("plain-file", |testbed| del(testbed, Remains::PlainFile, Parsed::All))
                .does("The same where its path is a plain file."),
            newest("empty-path", |testbed| del(testbed, Remains::EmptyPath, Parsed::All))
                .does("The same with an empty CNI_NETNS; the namespace goes afterwards."),
            newest("no-variable", needs_no_variable).does("The same without CNI_NETNS."),
        ]),
    spec("del.needs-no-prev-result", &["del/empty-prev-result"], Role::ALL)
        .says("Without prevResult, with or without a namespace, DEL succeeds, and nothing is left on the node.")
        .by(&[
            newest("alive", |testbed| del(testbed, Remains::Alive, Parsed::NoResult))
                .does("DEL without prevResult; the node is compared with before."),
            newest("gone", |testbed| del(testbed, Remains::Gone, Parsed::NoResult))
                .does("The same when the namespace has gone."),
            newest("plain-file", |testbed| del(testbed, Remains::PlainFile, Parsed::NoResult))
                .does("The same where its path is a plain file."),
            newest("empty-path", |testbed| del(testbed, Remains::EmptyPath, Parsed::NoResult))
                .does("The same with an empty CNI_NETNS."),
            newest("empty-result", bears_an_empty_result).does("DEL with {} as prevResult."),
        ]),
    relied("del.needs-no-dynamic-parameters", "runtimes that lost their cache", Role::ALL)
        .says(
            "A runtime that lost its cache has neither prevResult nor runtimeConfig nor CNI_ARGS; DEL cleans up \
              all the same.",
        )
        .by(&[
            newest("runtime-config", needs_no_runtime_config)
                .does("ADD with a runtimeConfig, DEL without it and without prevResult."),
            newest("args", needs_no_args).does("ADD with CNI_ARGS, DEL without them."),
        ]),
    spec("del.follows-a-failed-add", &["del/repeats"], Role::ALL).says("DEL after an ADD that failed succeeds.").by(&[
        newest("no-namespace", follows_an_add_without_namespace)
            .does("DEL after an ADD whose namespace was not there."),
        newest("ipam-failed", follows_an_add_without_address).does("DEL after an ADD whose delegate failed."),
    ]),
    spec("del.cleans-up-a-failed-add", &["del/deletes"], Role::ALL)
        .says("After DEL nothing is left of an ADD that failed.")
        .by(&[
            newest("no-namespace", |testbed| {
                follows_an_add_without_namespace(testbed).and_then(|()| nothing_left(testbed))
            })
            .does("The same as in del.follows-a-failed-add; nothing may be left."),
            newest("ipam-failed", |testbed| {
                follows_an_add_without_address(testbed)?;
                unchanged(testbed, "all as before the ADD that failed")
            })
            .does("The same; the node is compared with before."),
        ]),
    spec("del.bears-what-is-missing", &["del/best-effort"], Role::ATTACHING)
        .says("Where the administrator removed a part of the attachment, DEL succeeds and removes the rest.")
        .by(&[
            newest("interface", |testbed| bears(testbed, remove_interface))
                .does("The interface is deleted before DEL; nothing may be left."),
            newest("interface-renamed", bears_another_name)
                .does("The interface gets another name before DEL, which has to succeed."),
            newest("address", |testbed| bears(testbed, remove_address))
                .does("An address is taken away before DEL; nothing may be left."),
            newest("route", |testbed| bears(testbed, remove_route))
                .does("A route is deleted before DEL; nothing may be left."),
            newest("host-end", |testbed| bears(testbed, remove_host_end))
                .does("The other end of the veth is deleted before DEL; nothing may be left."),
            newest("host-end-detached", |testbed| bears(testbed, detach_host_end))
                .does("The other end of the veth is taken off its bridge before DEL; nothing may be left."),
            newest("bridge", |testbed| bears(testbed, remove_bridge))
                .does("The bridge is deleted before DEL; nothing may be left."),
            newest("master", |testbed| bears(testbed, remove_master))
                .does("The master on the node is deleted before DEL; nothing may be left."),
        ]),
    spec("del.bears-lost-state", &["del/best-effort"], Role::ALL)
        .says("Where firewall rules, reservations or other files, or the plugin's daemon are gone, DEL succeeds.")
        .by(&[
            newest("filter-rules", |testbed| bears(testbed, flush_filters))
                .does("Filter rules are flushed before DEL; nothing may be left."),
            newest("files", bears_lost_files)
                .does("Files that name the container are deleted before DEL, which has to succeed."),
            newest("daemon", bears_a_missing_daemon)
                .does("The plugin's daemon is ended before DEL, which has to succeed."),
        ]),
];

fn leaves_nothing(testbed: &Testbed) -> Result<(), Stop> {
    // The bridge and its like may stay after the first pod: they are the network's, not the attachment's.
    lay_network(testbed)?;
    let second = testbed.pod();
    testbed.remember();
    Attached::add_to(testbed, second)?.dels()?;
    unchanged(testbed, "the node as before ADD")
}

/// The other has the address that a first one would leave, and that the next one would be given again.
fn leaves_nothing_beside_another(testbed: &Testbed) -> Result<(), Stop> {
    lay_network(testbed)?;
    let (first, second) = (testbed.pod(), testbed.pod());
    testbed.add(&first)?;
    testbed.remember();
    let Ok(attached) = Attached::add_to(testbed, second) else {
        return Err(skip("its config serves one container"));
    };
    attached.dels()?;
    unchanged(testbed, "the node as before ADD")
}

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
    match attached.pod.namespace().find_link(&name) {
        None => Ok(()),
        Some(link) => {
            Err(Finding::new(format!("no interface {name} in the container"), format!("there is {link}")).into())
        }
    }
}

fn is_repeatable(testbed: &Testbed) -> Result<(), Stop> {
    let attached = Attached::add(testbed)?;
    attached.dels()?;
    testbed.remember();
    attached.dels()?;
    attached.dels()
}

fn again_changes_nothing(testbed: &Testbed) -> Result<(), Stop> {
    is_repeatable(testbed).map_err(|stop| stop.based_on("del.is-repeatable"))?;
    unchanged(testbed, "all as before the second DEL")
}

fn is_repeatable_without_namespace(testbed: &Testbed) -> Result<(), Stop> {
    let attached = Attached::add(testbed)?;
    attached.dels()?;
    let gone = attached.pod.leave(Remains::Gone);
    testbed.remember();
    testbed.del(&gone, &attached.result)
}

fn again_leaves_nothing_without_namespace(testbed: &Testbed) -> Result<(), Stop> {
    is_repeatable_without_namespace(testbed).map_err(|stop| stop.based_on("del.is-repeatable"))?;
    nothing_left(testbed)
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

/// The knowledge of ADD that a runtime still has.
#[derive(Clone, Copy)]
enum Parsed {
    All,
    /// Everything but the result.
    NoResult,
}

fn del(testbed: &Testbed, remains: Remains, given: Parsed) -> Result<(), Stop> {
    Stop::skip_if(
        matches!(given, Parsed::All) && !spec_version::is_from(&testbed.version, "0.4.0"),
        "before 0.4.0 there is no prevResult on DEL",
    )?;
    let pod = pod_of_before(testbed)?;
    testbed.remember();
    let result = again(testbed.add(&pod))?;
    let attachment = pod.leave(remains);
    match given {
        Parsed::All => testbed.del(&attachment, &result)?,
        Parsed::NoResult => del_without_result(testbed, &attachment)?,
    }
    match remains {
        Remains::Alive => return unchanged(testbed, "the node as before ADD"),
        // The runtime ends the namespace once DEL is over.
        Remains::EmptyPath => drop(pod.leave(Remains::Gone)),
        Remains::Gone | Remains::PlainFile => {}
    }
    nothing_left(testbed)
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

fn needs_no_variable(testbed: &Testbed) -> Result<(), Stop> {
    let pod = pod_of_before(testbed)?;
    testbed.remember();
    let result = again(testbed.add(&pod))?;
    del_each(testbed, &pod.attachment(), Some(&result), |call| call.without("CNI_NETNS"))?;
    pod.leave(Remains::Gone);
    nothing_left(testbed)
}

fn bears_an_empty_result(testbed: &Testbed) -> Result<(), Stop> {
    let pod = pod_of_before(testbed)?;
    testbed.remember();
    again(testbed.add(&pod))?;
    del_each(testbed, &pod.attachment(), Some(&json!({})), |call| call)?;
    unchanged(testbed, "the node as before ADD")
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

fn bears(testbed: &Testbed, harm: Harm) -> Result<(), Stop> {
    let pod = pod_of_before(testbed)?;
    testbed.remember();
    let attached = again(Attached::add_to(testbed, pod))?;
    harm(&attached)?;
    attached.dels()?;
    nothing_left(testbed)
}

/// A link of another name and what belongs to it cannot be attributed.
fn bears_another_name(testbed: &Testbed) -> Result<(), Stop> {
    let attached = Attached::add(testbed)?;
    rename_interface(&attached)?;
    attached.dels()
}

/// Changes that cannot be undone without the lost files may stay.
fn bears_lost_files(testbed: &Testbed) -> Result<(), Stop> {
    let attached = Attached::add(testbed)?;
    lose_files(&attached)?;
    attached.dels()
}

fn bears_a_missing_daemon(testbed: &Testbed) -> Result<(), Stop> {
    let attached = Attached::add(testbed)?;
    match testbed.end_daemons() {
        0 => Err(skip("it has no daemon")),
        _ => attached.dels(),
    }
}
