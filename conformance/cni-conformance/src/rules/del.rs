//! SPEC 2, DEL: what it takes back, and what it must not need for that.

use super::attached::{Attached, again, lay_network, nothing_left, pod_of_before, pod_with_kit_ipam, skip, unchanged};
use super::cases::{each, newest};
use super::tamper::{
    Harm, detach_host_end, flush_filters, lose_files, remove_address, remove_bridge, remove_host_end, remove_interface,
    remove_master, remove_route, rename_interface,
};
use crate::bench::Bench;
use crate::finding::{Finding, Stop};
use crate::form;
use crate::kit_ipam::Order;
use crate::profile::{Role, Stage, fill_text};
use crate::rule::{Proof, Rule, Source};
use serde_json::{Value, json};
use testns::{Attachment, Call, Remains, Verb};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "del.leaves-nothing",
        source: Source::Spec(&["del/deletes"]),
        sentence: "DEL takes back everything that ADD did, on the node and in the container.",
        roles: Role::ATTACHING,
        proof: Proof::Cases(&[each("", leaves_nothing)]),
    },
    Rule {
        id: "del.hides-nothing",
        source: Source::Spec(&["del/deletes"]),
        sentence: "DEL takes back, too, what an earlier container would hide: an address that the next one gets again, a sysctl \
                   that only the first ADD of a node changes; and a device comes home up if it was.",
        roles: Role::ATTACHING,
        proof: Proof::Cases(&[
            newest("beside-another", leaves_nothing_beside_another),
            newest("sysctls-of-the-first", leaves_no_sysctl_of_the_first),
            newest("device-that-was-up", brings_a_device_home_up),
        ]),
    },
    Rule {
        id: "del.undoes-modifications",
        source: Source::Spec(&["del/deletes"]),
        sentence: "DEL of a plugin that makes no interface undoes what its ADD changed, and frees what it reserved.",
        roles: &[Role::Chained, Role::Ipam],
        proof: Proof::Cases(&[newest("sysctls", undoes_sysctls), newest("all-else", undoes_all_else)]),
    },
    Rule {
        id: "del.removes-the-interface",
        source: Source::Spec(&["del/deletes"]),
        sentence: "After DEL the container has no interface CNI_IFNAME.",
        roles: Role::ATTACHING,
        proof: Proof::Cases(&[newest("", removes_the_interface)]),
    },
    Rule {
        id: "del.is-repeatable",
        source: Source::Spec(&["del/repeats"]),
        sentence: "DEL may be called again, and succeeds when everything is gone.",
        roles: Role::ALL,
        proof: Proof::Cases(&[
            newest("namespace-alive", is_repeatable),
            newest("namespace-gone", is_repeatable_without_namespace),
        ]),
    },
    Rule {
        id: "del.is-repeatable-in-0.4.0",
        source: Source::Spec(&["del/repeats-0.4.0"]),
        sentence: "DEL may be called again, and succeeds when everything is gone.",
        roles: Role::ALL,
        proof: Proof::Cases(&[newest("", is_repeatable)]),
    },
    Rule {
        id: "del.of-nothing-changes-nothing",
        source: Source::Relied("others on the node, as runtimes call DEL more often than needed"),
        sentence: "DEL of what is gone, or was never added, changes nothing.",
        roles: Role::ALL,
        proof: Proof::Cases(&[
            newest("again", again_changes_nothing),
            newest("again-without-namespace", again_leaves_nothing_without_namespace),
            newest("never-added", of_what_was_never_added_changes_nothing),
        ]),
    },
    Rule {
        id: "del.bears-that-nothing-was-added",
        source: Source::Spec(&["del/repeats"]),
        sentence: "DEL of what was never added succeeds.",
        roles: Role::ALL,
        proof: Proof::Cases(&[
            newest("network-in-use", bears_that_nothing_was_added),
            newest("first-call-of-all", bears_that_nothing_was_ever_done),
        ]),
    },
    Rule {
        id: "del.needs-no-namespace",
        source: Source::Spec(&["del/best-effort"]),
        sentence: "With the namespace gone, DEL succeeds, and nothing is left on the node.",
        roles: Role::ALL,
        proof: Proof::Cases(&[
            newest("gone", |bench| del(bench, Remains::Gone, Parsed::All)),
            newest("plain-file", |bench| del(bench, Remains::PlainFile, Parsed::All)),
            newest("empty-path", |bench| del(bench, Remains::EmptyPath, Parsed::All)),
            newest("no-variable", needs_no_variable),
        ]),
    },
    Rule {
        id: "del.needs-no-prev-result",
        source: Source::Spec(&["del/empty-prev-result"]),
        sentence: "Without prevResult, with or without a namespace, DEL succeeds, and nothing is left on the node.",
        roles: Role::ALL,
        proof: Proof::Cases(&[
            newest("alive", |bench| del(bench, Remains::Alive, Parsed::NoResult)),
            newest("gone", |bench| del(bench, Remains::Gone, Parsed::NoResult)),
            newest("plain-file", |bench| del(bench, Remains::PlainFile, Parsed::NoResult)),
            newest("empty-path", |bench| del(bench, Remains::EmptyPath, Parsed::NoResult)),
            newest("empty-result", bears_an_empty_result),
        ]),
    },
    Rule {
        id: "del.needs-no-dynamic-parameters",
        source: Source::Relied("runtimes that lost their cache"),
        sentence: "A runtime that lost its cache has neither prevResult nor runtimeConfig nor CNI_ARGS; DEL cleans up all the same.",
        roles: Role::ALL,
        proof: Proof::Cases(&[newest("runtime-config", needs_no_runtime_config), newest("args", needs_no_args)]),
    },
    Rule {
        id: "del.follows-a-failed-add",
        source: Source::Spec(&["del/repeats"]),
        sentence: "DEL after an ADD that failed succeeds.",
        roles: Role::ALL,
        proof: Proof::Cases(&[
            newest("no-namespace", follows_an_add_without_namespace),
            newest("ipam-failed", follows_an_add_without_address),
        ]),
    },
    Rule {
        id: "del.cleans-up-a-failed-add",
        source: Source::Spec(&["del/deletes"]),
        sentence: "After DEL nothing is left of an ADD that failed.",
        roles: Role::ALL,
        proof: Proof::Cases(&[
            newest("no-namespace", |bench| follows_an_add_without_namespace(bench).and_then(|()| nothing_left(bench))),
            newest("ipam-failed", |bench| {
                follows_an_add_without_address(bench)?;
                unchanged(bench, "all as before the ADD that failed")
            }),
        ]),
    },
    Rule {
        id: "del.bears-what-is-missing",
        source: Source::Spec(&["del/best-effort"]),
        sentence: "Where the administrator removed a part of the attachment, DEL succeeds and removes the rest.",
        roles: Role::ATTACHING,
        proof: Proof::Cases(&[
            newest("interface", |bench| bears(bench, remove_interface)),
            newest("interface-renamed", bears_another_name),
            newest("address", |bench| bears(bench, remove_address)),
            newest("route", |bench| bears(bench, remove_route)),
            newest("host-end", |bench| bears(bench, remove_host_end)),
            newest("host-end-detached", |bench| bears(bench, detach_host_end)),
            newest("bridge", |bench| bears(bench, remove_bridge)),
            newest("master", |bench| bears(bench, remove_master)),
        ]),
    },
    Rule {
        id: "del.bears-lost-state",
        source: Source::Spec(&["del/best-effort"]),
        sentence: "Where firewall rules, reservations or other files, or the plugin's daemon are gone, DEL succeeds.",
        roles: Role::ALL,
        proof: Proof::Cases(&[
            newest("filter-rules", |bench| bears(bench, flush_filters)),
            newest("files", bears_lost_files),
            newest("daemon", bears_a_missing_daemon),
        ]),
    },
];

fn leaves_nothing(bench: &Bench) -> Result<(), Stop> {
    // The bridge and its like may stay after the first pod: they are the network's, not the attachment's.
    lay_network(bench)?;
    let second = bench.pod();
    bench.remember();
    Attached::add_to(bench, second)?.dels()?;
    unchanged(bench, "the node as before ADD")
}

/// The other has the address that a first one would leave, and that the next one would be given again.
fn leaves_nothing_beside_another(bench: &Bench) -> Result<(), Stop> {
    lay_network(bench)?;
    let (first, second) = (bench.pod(), bench.pod());
    bench.add(&first)?;
    bench.remember();
    let Ok(attached) = Attached::add_to(bench, second) else {
        return Err(skip("its config serves one container"));
    };
    attached.dels()?;
    unchanged(bench, "the node as before ADD")
}

/// Forwarding is of a node with containers at all, and may stay; the kernel accepts no redirects then (`ip-sysctl`).
fn leaves_no_sysctl_of_the_first(bench: &Bench) -> Result<(), Stop> {
    let pod = bench.pod();
    bench.remember();
    Attached::add_to(bench, pod)?.dels()?;
    let is_of_node = |line: &&str| {
        let key = line.get(2..).and_then(|line| line.strip_prefix("sysctl "));
        let is_forwarding = |key: &str| key.contains("forward") || key.contains("accept_redirects");
        key.is_some_and(|key| !is_forwarding(key) && !key.contains(" (in "))
    };
    let left: String = bench.left_behind().lines().filter(is_of_node).map(|line| format!("{line}\n")).collect();
    match left.is_empty() {
        true => Ok(()),
        false => Err(Finding::new("sysctls of the node as before the first ADD", "they differ").with_diff(left).into()),
    }
}

/// A device that was up, as one that carries the node's own traffic, is moved and comes home. Its addresses are not asked for:
/// the kernel takes them with the move.
fn brings_a_device_home_up(bench: &Bench) -> Result<(), Stop> {
    let name = bench.profile.stage.iter().find_map(|part| match part {
        Stage::Device { name } => Some(fill_text(name, 1)),
        _ => None,
    });
    let name = name.ok_or_else(|| skip("it moves no device of the node"))?;
    let pod = bench.pod();
    let node = bench.node.host();
    node.set_up(&name);
    Attached::add_to(bench, pod)?.dels()?;
    let state = node.find_link(&name).map_or("missing", |link| if link.up { "up" } else { "down" });
    Finding::unless(state == "up", format!("the device {name} up, as before ADD"), format!("it is {state}"))
}

/// Of containers. They end with them, so that a plugin may have a reason to leave them; those of the node do not.
fn is_sysctl(line: &str) -> bool {
    line.get(2..).is_some_and(|line| line.starts_with("sysctl ")) && line.contains(" (in ")
}

fn undoes_sysctls(bench: &Bench) -> Result<(), Stop> {
    undoes(bench, is_sysctl)
}

fn undoes_all_else(bench: &Bench) -> Result<(), Stop> {
    undoes(bench, |line| !is_sysctl(line))
}

fn undoes(bench: &Bench, is_meant: fn(&str) -> bool) -> Result<(), Stop> {
    lay_network(bench)?;
    let pod = bench.pod();
    bench.remember();
    Attached::add_to(bench, pod)?.dels()?;
    let left = bench.left_behind();
    let left: String = left.lines().filter(|line| is_meant(line)).map(|line| format!("{line}\n")).collect();
    match left.is_empty() {
        true => Ok(()),
        false => Err(Finding::new("all as before ADD", "something is not").with_diff(left).into()),
    }
}

fn removes_the_interface(bench: &Bench) -> Result<(), Stop> {
    let attached = Attached::add(bench)?;
    let name = attached.interface()?.name;
    attached.dels()?;
    match attached.pod.namespace().find_link(&name) {
        None => Ok(()),
        Some(link) => {
            Err(Finding::new(format!("no interface {name} in the container"), format!("there is {link}")).into())
        }
    }
}

fn is_repeatable(bench: &Bench) -> Result<(), Stop> {
    let attached = Attached::add(bench)?;
    attached.dels()?;
    bench.remember();
    attached.dels()?;
    attached.dels()
}

fn again_changes_nothing(bench: &Bench) -> Result<(), Stop> {
    is_repeatable(bench).map_err(|stop| stop.based_on("del.is-repeatable"))?;
    unchanged(bench, "all as before the second DEL")
}

fn is_repeatable_without_namespace(bench: &Bench) -> Result<(), Stop> {
    let attached = Attached::add(bench)?;
    attached.dels()?;
    let gone = attached.pod.leave(Remains::Gone);
    bench.remember();
    bench.del(&gone, &attached.result)
}

fn again_leaves_nothing_without_namespace(bench: &Bench) -> Result<(), Stop> {
    is_repeatable_without_namespace(bench).map_err(|stop| stop.based_on("del.is-repeatable"))?;
    nothing_left(bench)
}

fn bears_that_nothing_was_added(bench: &Bench) -> Result<(), Stop> {
    bench.add(&bench.pod())?;
    let never = bench.pod();
    bench.remember();
    bench.del_blindly(&never).map_err(|stop| for_want_of_a_result(bench, stop))
}

fn of_what_was_never_added_changes_nothing(bench: &Bench) -> Result<(), Stop> {
    bears_that_nothing_was_added(bench).map_err(|stop| stop.based_on("del.bears-that-nothing-was-added"))?;
    unchanged(bench, "all as before DEL")
}

fn bears_that_nothing_was_ever_done(bench: &Bench) -> Result<(), Stop> {
    bench.del_blindly(&bench.pod()).map_err(|stop| for_want_of_a_result(bench, stop))
}

/// A plugin that refuses each DEL without prevResult breaks `del.needs-no-prev-result`, which is no MUST, and nothing can
/// be concluded from such a DEL.
fn for_want_of_a_result(bench: &Bench, stop: Stop) -> Stop {
    let Ok(attached) = Attached::add(bench) else {
        return stop;
    };
    match del_without_result(bench, &attached.attachment) {
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

fn del(bench: &Bench, remains: Remains, given: Parsed) -> Result<(), Stop> {
    if matches!(given, Parsed::All) && !form::is_from(&bench.version, "0.4.0") {
        return Err(skip("before 0.4.0 there is no prevResult on DEL"));
    }
    let pod = pod_of_before(bench)?;
    bench.remember();
    let result = again(bench.add(&pod))?;
    let attachment = pod.leave(remains);
    match given {
        Parsed::All => bench.del(&attachment, &result)?,
        Parsed::NoResult => del_without_result(bench, &attachment)?,
    }
    match remains {
        Remains::Alive => return unchanged(bench, "the node as before ADD"),
        // The runtime ends the namespace once DEL is over.
        Remains::EmptyPath => drop(pod.leave(Remains::Gone)),
        Remains::Gone | Remains::PlainFile => {}
    }
    nothing_left(bench)
}

/// DEL of each plugin, from the last on. Before 0.4.0 it has no prevResult.
fn del_each(
    bench: &Bench,
    attachment: &Attachment,
    result: Option<&Value>,
    change: impl Fn(Call) -> Call,
) -> Result<(), Stop> {
    let result = result.filter(|_| form::is_from(&bench.version, "0.4.0"));
    let calls = (0..bench.plugin_count()).rev();
    calls.map(|index| change(bench.call_plugin(index, Verb::Del, attachment, result))).try_for_each(|call| {
        bench.make(&call)?.succeeds()?;
        Ok(())
    })
}

fn needs_no_variable(bench: &Bench) -> Result<(), Stop> {
    let pod = pod_of_before(bench)?;
    bench.remember();
    let result = again(bench.add(&pod))?;
    del_each(bench, &pod.attachment(), Some(&result), |call| call.without("CNI_NETNS"))?;
    pod.leave(Remains::Gone);
    nothing_left(bench)
}

fn bears_an_empty_result(bench: &Bench) -> Result<(), Stop> {
    let pod = pod_of_before(bench)?;
    bench.remember();
    again(bench.add(&pod))?;
    del_each(bench, &pod.attachment(), Some(&json!({})), |call| call)?;
    unchanged(bench, "the node as before ADD")
}

fn del_without_result(bench: &Bench, attachment: &Attachment) -> Result<(), Stop> {
    del_each(bench, attachment, None, |call| call)
}

fn needs_no_runtime_config(bench: &Bench) -> Result<(), Stop> {
    // Pass one more capability than the config has: a plugin that does not know it ignores it.
    let (capability, value) = match bench.profile.role {
        Role::Ipam => ("ipRanges", json!([[{ "subnet": "10.76.0.0/16" }]])),
        Role::Interface | Role::Chained | Role::List | Role::Runtime => ("mac", json!("0a:00:00:00:00:77")),
    };
    let pass = |call: Call| call.with_config(|config| config["runtimeConfig"][capability] = value.clone());
    let (attachment, _) = added_again(bench, pass)?;
    bench.del_blindly(&attachment)?;
    unchanged(bench, "the node as before ADD")
}

fn needs_no_args(bench: &Bench) -> Result<(), Stop> {
    let pass = |call: Call| call.args("IgnoreUnknown=1;K8S_POD_NAMESPACE=n;K8S_POD_NAME=p");
    let (attachment, result) = added_again(bench, pass)?;
    bench.del(&attachment, &result)?;
    unchanged(bench, "the node as before ADD")
}

/// A container that came, went and came again, each time with calls that were changed; what ADD made of it.
fn added_again(bench: &Bench, change: impl Fn(Call) -> Call) -> Result<(Attachment, Value), Stop> {
    let attachment = bench.pod().attachment();
    let result = add_each(bench, &attachment, &change)?;
    del_each(bench, &attachment, Some(&result), &change)?;
    bench.remember();
    let result = again(add_each(bench, &attachment, &change))?;
    Ok((attachment, result))
}

/// ADD of each plugin; what the last one made of it.
fn add_each(bench: &Bench, attachment: &Attachment, change: impl Fn(Call) -> Call) -> Result<Value, Stop> {
    let mut result = None;
    for index in 0..bench.plugin_count() {
        let call = bench.call_plugin(index, Verb::Add, attachment, result.as_ref());
        result = Some(bench.make(&change(call))?.succeeds()?);
    }
    Ok(result.unwrap_or_default())
}

fn follows_an_add_without_namespace(bench: &Bench) -> Result<(), Stop> {
    let attachment = pod_of_before(bench)?.leave(Remains::Gone);
    bench.remember();
    if bench.make(&bench.call(Verb::Add, &attachment))?.is_success() {
        return Err(skip("its ADD succeeds without a namespace"));
    }
    bench.del_blindly(&attachment).map_err(|stop| for_want_of_a_result(bench, stop))
}

fn follows_an_add_without_address(bench: &Bench) -> Result<(), Stop> {
    let (attachment, config) = pod_with_kit_ipam(bench)?;
    bench.remember();
    bench.ipam().order(Verb::Add, Some(Order::Fail { code: 11, msg: "ordered to fail".to_owned() }));
    bench.make(&bench.call_with(Verb::Add, &config, &attachment))?.refused_by("delegation.error").fails()?;
    let deleted = bench.make(&bench.call_with(Verb::Del, &config, &attachment))?.succeeds();
    deleted.map(drop).map_err(|stop| {
        bench.ipam().order(Verb::Add, None);
        for_want_of_a_result(bench, stop)
    })
}

fn bears(bench: &Bench, harm: Harm) -> Result<(), Stop> {
    let pod = pod_of_before(bench)?;
    bench.remember();
    let attached = again(Attached::add_to(bench, pod))?;
    harm(&attached)?;
    attached.dels()?;
    nothing_left(bench)
}

/// A link of another name and what belongs to it cannot be attributed.
fn bears_another_name(bench: &Bench) -> Result<(), Stop> {
    let attached = Attached::add(bench)?;
    rename_interface(&attached)?;
    attached.dels()
}

/// Changes that cannot be undone without the lost files may stay.
fn bears_lost_files(bench: &Bench) -> Result<(), Stop> {
    let attached = Attached::add(bench)?;
    lose_files(&attached)?;
    attached.dels()
}

fn bears_a_missing_daemon(bench: &Bench) -> Result<(), Stop> {
    let attached = Attached::add(bench)?;
    match bench.end_daemons() {
        0 => Err(skip("it has no daemon")),
        _ => attached.dels(),
    }
}
