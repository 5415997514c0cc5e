//! SPEC 2, GC.

use super::attached::{lay_network, nothing_left, nothing_lost, pod_with_kit_ipam, skip, with_key};
use crate::finding::{Finding, Stop};
use crate::kit_ipam::Order;
use crate::profile::Role;
use crate::rule::{Rule, since, spec};
use crate::testbed::Testbed;
use serde_json::{Value, json};
use std::time::Duration;
use testns::{Attachment, Call, Container, Remains, Verb};

/// The longest time that an answer to a packet may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Key of the attachments that are still there.
const VALID: &str = "cni.dev/valid-attachments";

pub(super) const RULES: &[Rule] = &[
    spec("gc.removes-what-is-stale", &["gc/removes"], Role::ALL)
        .says(
            "GC removes everything on the node that belongs to attachments of the network that are not valid any \
              more; their containers may be gone.",
        )
        .by(&[
            since("1.1.0", "one-of-two", removes_one_of_two)
                .does("Of two containers one is gone; GC with the other; nothing may be left of the first."),
            since("1.1.0", "none-is-valid", removes_all).does("The only container is gone; GC with an empty list."),
            since("1.1.0", "one-interface-of-a-container", removes_one_interface).does(
                "Of two interfaces of a container one is valid; no file may name the other once its link is gone.",
            ),
            since("1.1.0", "an-id-that-a-valid-one-starts-with", removes_the_shorter_id)
                .does("web-1 is gone, web-10 is valid."),
            since("1.1.0", "namespace-is-a-plain-file", removes_one_whose_namespace_is_a_file)
                .does("The path of the namespace that is gone is a plain file."),
            since("1.1.0", "after-a-reboot", removes_after_a_reboot)
                .does("The links are gone with the container's and the node's boot; no file may name the container."),
        ]),
    spec("gc.keeps-what-is-valid", &["gc/valid"], Role::ALL).says("GC leaves valid attachments as they are.").by(&[
        since("1.1.0", "all-are-valid", keeps_all)
            .does("GC with both of two containers; nothing may go or change, and CHECK has to pass."),
        since("1.1.0", "one-of-two", |testbed| keeps(testbed, &testbed.pod(), &testbed.pod()))
            .does("Of two containers one is gone; CHECK of the other has to pass after GC."),
        since("1.1.0", "one-interface-of-a-container", keeps_one_interface)
            .does("Of two interfaces of a container one is valid; CHECK of it has to pass after GC."),
        since("1.1.0", "an-id-that-a-stale-one-starts-with", keeps_the_shorter_id)
            .does("web-10 is gone, web-1 is valid."),
        since("1.1.0", "packets-still-pass", keeps_connectivity)
            .does("The valid container pings its gateway before GC and after it."),
    ]),
    spec("gc.keeps-other-networks", &["gc/may-remove"], Role::PLUGINS)
        .says("GC removes nothing of another network, whatever they share.")
        .by(&[since("1.1.0", "", keeps_other_networks).does(
            "GC of a network beside a container of another, of which nothing may go; its CHECK has to pass still.",
        )]),
    spec("gc.succeeds", &["gc/completes"], Role::ALL).says("GC succeeds, even if there is nothing to remove.").by(&[
        since("1.1.0", "nothing-was-attached", |testbed: &Testbed| testbed.gc(&[]))
            .does("GC as the first call of a node."),
        since("1.1.0", "valid-ones-that-it-never-saw", succeeds_with_unknown_ones)
            .does("GC with two containers that were never added."),
        since("1.1.0", "twice", succeeds_twice).does("GC twice, when the only container has gone."),
    ]),
    spec("gc.prints-nothing", &["gc/output"], Role::PLUGINS)
        .says("GC that succeeds prints nothing on stdout.")
        .by(&[since("1.1.0", "", prints_nothing).does("GC with an empty list; its stdout has to be empty.")]),
    spec("gc.forwards", &["gc/forwards"], &[Role::Interface])
        .says("GC is forwarded to the plugins that the plugin delegates to, with the same list.")
        .by(&[since("1.1.0", "", forwards).does("GC with the kit's own delegate, which has to get the same list.")]),
    spec("gc.goes-on-past-errors", &["gc/goes-on"], &[Role::Interface])
        .says("GC goes on past an error, removes what it can, and reports the error in the end.")
        .by(&[
            since("1.1.0", "reports", reports_errors).does("GC with a delegate that fails; GC has to fail."),
            since("1.1.0", "goes-on", goes_on)
                .does("The same with a container that has gone, of which nothing may be left."),
        ]),
    spec("gc.is-followed-by-del", &["del/repeats"], Role::ALL)
        .says("DEL of what GC has removed succeeds.")
        .by(&[since("1.1.0", "", is_followed_by_del).does("The container is gone; GC, then DEL.")]),
];

fn removes_one_of_two(testbed: &Testbed) -> Result<(), Stop> {
    let (valid, stale) = (testbed.pod(), testbed.pod());
    testbed.add(&valid)?;
    removed(testbed, &stale, &[valid.attachment()])
}

fn removes_all(testbed: &Testbed) -> Result<(), Stop> {
    // The bridge and its like are the network's, and may stay.
    let (first, stale) = (testbed.pod(), testbed.pod());
    let result = testbed.add(&first)?;
    testbed.del(&first, &result)?;
    removed(testbed, &stale, &[])
}

fn removes_the_shorter_id(testbed: &Testbed) -> Result<(), Stop> {
    let (valid, stale) = (testbed.pod_named("web-10"), testbed.pod_named("web-1"));
    testbed.add(&valid)?;
    removed(testbed, &stale, &[valid.attachment()])
}

/// Checks that GC leaves nothing of a container that has gone. What stays when an attachment comes and goes is of the
/// network, and a matter of `del.leaves-nothing`.
fn removed(testbed: &Testbed, stale: &Container, valid: &[Attachment]) -> Result<(), Stop> {
    lay_network(testbed)?;
    testbed.remember();
    testbed.add(stale)?;
    stale.leave(Remains::Gone);
    testbed.gc(valid)?;
    nothing_left(testbed)
}

fn removes_one_whose_namespace_is_a_file(testbed: &Testbed) -> Result<(), Stop> {
    let (valid, stale) = (testbed.pod(), testbed.pod());
    testbed.add(&valid)?;
    lay_network(testbed)?;
    testbed.remember();
    testbed.add(&stale)?;
    stale.leave(Remains::PlainFile);
    testbed.gc(&[valid.attachment()])?;
    nothing_left(testbed)
}

/// The links are gone with the containers and the node's own, and files are what is left.
fn removes_after_a_reboot(testbed: &Testbed) -> Result<(), Stop> {
    let before: Vec<_> = testbed.node.host().links().into_iter().map(|link| link.name).collect();
    let stale = testbed.pod();
    testbed.add(&stale)?;
    // Before the namespace: the kernel removes its links at a time of its own.
    for link in testbed.node.host().links().iter().filter(|link| !before.contains(&link.name)) {
        if testbed.node.host().find_link(&link.name).is_some() {
            testbed.node.host().delete_link(&link.name);
        }
    }
    stale.leave(Remains::Gone);
    testbed.gc(&[])?;
    let files: Vec<_> = testbed.files_naming(&stale).iter().map(|path| path.display().to_string()).collect();
    Finding::unless(files.is_empty(), "no file that names the container", format!("there are {}", files.join(", ")))
}

/// An address that the living container still has may stay reserved, as its next owner would meet it on the network; it goes
/// once the interface is gone, which the plugin may assume in the first place.
fn removes_one_interface(testbed: &Testbed) -> Result<(), Stop> {
    let pod = testbed.pod();
    testbed.add(&pod)?;
    testbed.remember();
    let other = second_interface(testbed, &pod)?;
    testbed.gc(&[pod.attachment()])?;
    if files_of(testbed, &pod, &other).is_empty() {
        return Ok(());
    }
    if pod.namespace().find_link(&other.ifname).is_some() {
        pod.namespace().delete_link(&other.ifname);
        testbed.gc(&[pod.attachment()])?;
    }
    let left = files_of(testbed, &pod, &other);
    Finding::unless(left.is_empty(), format!("no file of {}", other.ifname), format!("there are {}", left.join(", ")))
}

/// The files that name an attachment.
fn files_of(testbed: &Testbed, pod: &Container, attachment: &Attachment) -> Vec<String> {
    let names =
        |path: &std::path::PathBuf| std::fs::read_to_string(path).is_ok_and(|text| text.contains(&attachment.ifname));
    testbed.files_naming(pod).into_iter().filter(names).map(|path| path.display().to_string()).collect()
}

fn keeps_all(testbed: &Testbed) -> Result<(), Stop> {
    let (one, other) = (testbed.pod(), testbed.pod());
    let results = [testbed.add(&one)?, testbed.add(&other)?];
    testbed.remember();
    testbed.gc(&[one.attachment(), other.attachment()])?;
    nothing_lost(testbed, "the valid attachments as they were")?;
    testbed.check(&one, &results[0])?;
    testbed.check(&other, &results[1])
}

fn keeps_the_shorter_id(testbed: &Testbed) -> Result<(), Stop> {
    keeps(testbed, &testbed.pod_named("web-1"), &testbed.pod_named("web-10"))
}

fn keeps(testbed: &Testbed, valid: &Container, stale: &Container) -> Result<(), Stop> {
    let result = testbed.add(valid)?;
    testbed.add(stale)?;
    stale.leave(Remains::Gone);
    testbed.gc(&[valid.attachment()])?;
    testbed.check(valid, &result)
}

fn keeps_connectivity(testbed: &Testbed) -> Result<(), Stop> {
    let (valid, stale) = (testbed.pod(), testbed.pod());
    let result = testbed.add(&valid)?;
    testbed.add(&stale)?;
    let on_node = testbed.node.host().addresses();
    let ips = result["ips"].as_array().cloned().unwrap_or_default();
    let gateways = ips.iter().filter_map(|ip| ip["gateway"].as_str()?.parse::<std::net::IpAddr>().ok());
    let reached: Vec<_> = gateways
        .filter(|ip| on_node.iter().any(|own| own.ip == *ip))
        .filter(|ip| valid.namespace().pings(*ip, PATIENCE))
        .collect();
    stale.leave(Remains::Gone);
    testbed.gc(&[valid.attachment()])?;
    match reached.iter().find(|ip| !valid.namespace().pings(**ip, PATIENCE)) {
        _ if reached.is_empty() => Err(Stop::skip("it reaches no gateway on the node before GC either")),
        None => Ok(()),
        Some(silent) => {
            Err(Finding::new(format!("an answer from the gateway {silent} after GC"), "there was none").into())
        }
    }
}

fn keeps_one_interface(testbed: &Testbed) -> Result<(), Stop> {
    let pod = testbed.pod();
    let result = testbed.add(&pod)?;
    second_interface(testbed, &pod)?;
    testbed.gc(&[pod.attachment()])?;
    testbed.check(&pod, &result)
}

/// A second attachment of a container, if the plugin can make one.
fn second_interface(testbed: &Testbed, pod: &Container) -> Result<Attachment, Stop> {
    let other = pod.attachment_as("eth1");
    let mut result: Option<Value> = None;
    for index in 0..testbed.plugin_count() {
        let mut config = testbed.config_of(index, Verb::Add, &other);
        // Two interfaces of a container have one default route between them.
        config.as_object_mut().map(|config| config.shift_remove("isDefaultGateway"));
        config.pointer_mut("/ipam").and_then(Value::as_object_mut).map(|ipam| ipam.shift_remove("routes"));
        if let Some(result) = result {
            config["prevResult"] = result;
        }
        let call = testbed.call_executable(testbed.profile.executable(index), Verb::Add, &config, &other);
        match testbed.make(&call)?.succeeds() {
            Ok(added) => result = Some(added),
            Err(_refused) => return Err(Stop::skip("it makes no second interface in a container with this config")),
        }
    }
    Ok(other)
}

fn keeps_other_networks(testbed: &Testbed) -> Result<(), Stop> {
    let (own, others) = (testbed.pod().attachment(), testbed.pod().attachment());
    // From their own IPAM plugin both networks could get the same address.
    let config = |verb, attachment: &Attachment| {
        super::attached::with_kit_ipam(testbed, verb, attachment, &[])
            .unwrap_or_else(|_| testbed.config_for(verb, attachment))
    };
    testbed.make(&testbed.call_with(Verb::Add, config(Verb::Add, &own), &own))?.succeeds()?;
    let another = with_key(config(Verb::Add, &others), "name", json!("another"));
    let added = testbed.make(&testbed.call_with(Verb::Add, &another, &others))?.succeeds();
    let result = added.map_err(|_failed| skip("its ADD fails in a second network of the same config"))?;
    // A file with the entries of all networks is still there without some of them. The kit's own IPAM plugin has one.
    let check = testbed.call_with(Verb::Check, &another, &others).prev_result(&result);
    let delegates_to_the_kits = super::attached::with_kit_ipam(testbed, Verb::Add, &own, &[]).is_ok();
    let passes = !delegates_to_the_kits && testbed.make(&check)?.is_success();
    testbed.remember();
    let valid = json!([{ "containerID": own.container_id, "ifname": own.ifname }]);
    let gc = with_key(config(Verb::Gc, &Attachment::none()), VALID, valid);
    testbed.make(&testbed.call_with(Verb::Gc, gc, Attachment::none()))?.succeeds()?;
    nothing_lost(testbed, "the other network as it was")?;
    let still = !passes || testbed.make(&check)?.is_success();
    Finding::unless(still, "CHECK of the other network's attachment to pass, as before GC", "it fails")
}

fn succeeds_with_unknown_ones(testbed: &Testbed) -> Result<(), Stop> {
    let stale = |id: &str| Attachment { container_id: id.to_owned(), netns: String::new(), ifname: "eth0".to_owned() };
    testbed.gc(&[stale("stale-1"), stale("stale-2")])
}

fn succeeds_twice(testbed: &Testbed) -> Result<(), Stop> {
    let pod = testbed.pod();
    testbed.add(&pod)?;
    pod.leave(Remains::Gone);
    testbed.gc(&[])?;
    testbed.gc(&[])
}

fn prints_nothing(testbed: &Testbed) -> Result<(), Stop> {
    testbed.gc_calls(&[]).iter().try_for_each(|call| testbed.make(call)?.prints_nothing())
}

fn forwards(testbed: &Testbed) -> Result<(), Stop> {
    let call = with_kit_ipam(testbed)?;
    testbed.make(&call)?.succeeds()?;
    let calls = testbed.ipam().calls();
    let lists: Vec<Value> =
        calls.iter().filter(|call| call.verb == "GC").map(|call| call.config()[VALID].clone()).collect();
    let expected = json!([{ "containerID": "stale", "ifname": "eth0" }]);
    Finding::unless(
        !lists.is_empty() && lists.iter().all(|list| *list == expected),
        "GC of the IPAM plugin, with the list",
        format!("its calls were {:?}, with the lists {lists:?}", testbed.ipam().verbs()),
    )
}

fn reports_errors(testbed: &Testbed) -> Result<(), Stop> {
    let call = with_kit_ipam(testbed)?;
    testbed.ipam().order(Verb::Gc, Some(Order::Fail { code: 105, msg: "kit-ipam is out of order".to_owned() }));
    testbed.make(&call)?.refused_by("gc.forwards").fails().map(drop)
}

fn goes_on(testbed: &Testbed) -> Result<(), Stop> {
    let call = with_kit_ipam(testbed)?;
    pod_with_kit_ipam(testbed)?;
    let stale = testbed.pod();
    testbed.remember();
    let config = super::attached::with_kit_ipam(testbed, Verb::Add, &stale.attachment(), &[])?;
    testbed.make(&testbed.call_with(Verb::Add, &config, &stale))?.succeeds()?;
    stale.leave(Remains::Gone);
    testbed.ipam().order(Verb::Gc, Some(Order::Fail { code: 105, msg: "kit-ipam is out of order".to_owned() }));
    testbed.make(&call)?.refused_by("gc.forwards").fails()?;
    nothing_left(testbed)
}

/// A GC in which one attachment is valid, which never was, with the kit's own IPAM plugin as delegate.
fn with_kit_ipam(testbed: &Testbed) -> Result<Call, Stop> {
    let mut config = testbed.config_with_kit_ipam().ok_or_else(|| Stop::skip("it delegates to no plugin"))?;
    config[VALID] = json!([{ "containerID": "stale", "ifname": "eth0" }]);
    Ok(testbed.call_with(Verb::Gc, &config, Attachment::none()))
}

fn is_followed_by_del(testbed: &Testbed) -> Result<(), Stop> {
    let pod = testbed.pod();
    let result = testbed.add(&pod)?;
    let after = pod.leave(Remains::Gone);
    testbed.gc(&[])?;
    testbed.del(&after, &result)
}
