//! SPEC 2, GC.

use super::attached::{nothing_lost, skip, with_key};
use crate::rules::prelude::*;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

/// Key of the attachments that are still there.
const VALID: &str = "cni.dev/valid-attachments";

pub(super) const CASES: &[Code] = &[
    ("gc.removes-what-is-stale/one-interface-of-a-container", removes_one_interface),
    ("gc.removes-what-is-stale/after-a-reboot", removes_after_a_reboot),
    ("gc.keeps-what-is-valid/one-interface-of-a-container", keeps_one_interface),
    ("gc.keeps-what-is-valid/packets-still-pass", keeps_connectivity),
    ("gc.keeps-other-networks/other-name", |testbed| keeps_other_network(testbed, "another")),
    ("gc.keeps-other-networks/longer-name", |testbed| keeps_other_network(testbed, "conformance2")),
    ("gc.keeps-other-networks/other-case", |testbed| keeps_other_network(testbed, "Conformance")),
    ("gc.succeeds/valid-ones-that-it-never-saw", succeeds_with_unknown_ones),
];

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

fn files_of(testbed: &Testbed, pod: &Container, attachment: &Attachment) -> Vec<String> {
    let names =
        |path: &std::path::PathBuf| std::fs::read_to_string(path).is_ok_and(|text| text.contains(&attachment.ifname));
    testbed.files_naming(pod).into_iter().filter(names).map(|path| path.display().to_string()).collect()
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
    Stop::skip_if(reached.is_empty(), "it reaches no gateway on the node before GC either")?;
    Finding::unless_none(reached.iter().find(|ip| !valid.namespace().pings(**ip, PATIENCE)), |silent| {
        (format!("an answer from the gateway {silent} after GC"), "there was none".to_owned())
    })
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

fn keeps_other_network(testbed: &Testbed, name: &str) -> Result<(), Stop> {
    let (own, others) = (testbed.pod().attachment(), testbed.pod().attachment());
    // From their own IPAM plugin both networks could get the same address.
    let config = |verb, attachment: &Attachment| {
        super::attached::with_kit_ipam(testbed, verb, attachment, &[])
            .unwrap_or_else(|_| testbed.config_for(verb, attachment))
    };
    testbed.make(&testbed.call_with(Verb::Add, config(Verb::Add, &own), &own))?.succeeds()?;
    let another = with_key(config(Verb::Add, &others), "name", json!(name));
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
