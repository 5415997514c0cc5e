//! SPEC 2, ADD: what it makes, and when it refuses. What its result says of that is in [`super::add_result`].

use super::attached::{Attached, lay_network, nothing_left, room_for, skip, unchanged, with_key};
use crate::profile::Role;
use crate::rules::prelude::*;
use crate::spec_version;
use std::time::Duration;

pub(super) const CASES: &[Code] = &[
    ("add.makes-the-interface", makes_the_interface),
    ("add.prints-a-result", prints_a_result),
    ("add.gives-connectivity/gateway", reaches_its_gateway),
    ("add.refuses-an-existing-interface/of-others", |testbed| {
        refuses_to_replace(testbed, &pod_with_foreign_interface(testbed)?)
    }),
    ("add.failed-leaves-nothing/name-is-taken", leaves_nothing_when_the_name_is_taken),
    ("add.failed-leaves-nothing/unknown-value", leaves_nothing_when_a_value_is_unknown),
    ("add.failed-leaves-nothing/layer-2-before-0.3.0", leaves_nothing_when_its_version_has_no_result),
    ("add.leaves-others-alone", leaves_others_alone),
    ("add.serves-containers-at-once", serves_containers_at_once),
    ("add.serves-a-container-twice", serves_a_container_twice),
];

fn makes_the_interface(testbed: &Testbed) -> Result<(), Stop> {
    let attached = Attached::add(testbed)?;
    if testbed.profile.role != Role::Chained && attached.made_in_pod().is_empty() {
        let reported = attached.parsed.interfaces.iter().find(|reported| reported.sandbox.is_some());
        let adjusted = reported.is_some_and(|reported| attached.pod.namespace().find_link(&reported.name).is_some());
        return match adjusted || !spec_version::is_from(&testbed.version, "0.3.0") {
            true => Err(skip("it adjusts an interface that every container has")),
            false => Err(Finding::new("an interface in the container", "ADD made none").into()),
        };
    }
    match attached.pod.namespace().find_link(&attached.attachment.ifname) {
        Some(_) => Ok(()),
        None => {
            let names: Vec<_> = attached.pod.namespace().links().into_iter().map(|link| link.name).collect();
            let expected = format!("an interface {} in the container", attached.attachment.ifname);
            Err(Finding::new(expected, format!("it has {names:?}")).into())
        }
    }
}

fn prints_a_result(testbed: &Testbed) -> Result<(), Stop> {
    match testbed.add(&testbed.pod())? {
        Value::Object(_) => Ok(()),
        other => Err(Finding::new("a result, which is a JSON object", format!("it printed {other}")).into()),
    }
}

/// The gateway of a result has to answer if its address is on the node: elsewhere nothing of the testbed would answer.
fn reaches_its_gateway(testbed: &Testbed) -> Result<(), Stop> {
    let attached = Attached::add(testbed)?;
    let on_node = testbed.node.host().addresses();
    let gateways = attached.parsed.ips.iter().filter_map(|ip| ip.gateway.as_ref()?.parse().ok());
    let gateways: Vec<std::net::IpAddr> = gateways.filter(|ip| on_node.iter().any(|own| own.ip == *ip)).collect();
    Stop::skip_if(gateways.is_empty(), "the node has no address that its result names as a gateway")?;
    let silent = gateways.iter().find(|ip| !attached.pod.namespace().pings(**ip, Duration::from_secs(20)));
    Finding::unless_none(silent, |silent| (format!("an answer from the gateway {silent}"), "there was none".to_owned()))
}

/// A container with an interface that has the name which ADD wants to give.
fn pod_with_foreign_interface(testbed: &Testbed) -> Result<Container, Stop> {
    Attached::add(testbed)?.interface()?;
    let pod = testbed.pod();
    pod.namespace().add_veth(&pod.attachment().ifname, testbed.node.host(), "taken");
    Ok(pod)
}

fn refuses_to_replace(testbed: &Testbed, pod: &Container) -> Result<(), Stop> {
    testbed.make(&testbed.call(Verb::Add, pod))?.refuses()
}

fn leaves_nothing_when_the_name_is_taken(testbed: &Testbed) -> Result<(), Stop> {
    let pod = pod_with_foreign_interface(testbed)?;
    testbed.remember();
    testbed.make(&testbed.call(Verb::Add, &pod))?.refused_by("add.refuses-an-existing-interface").fails()?;
    unchanged(testbed, "all as before the ADD that failed")
}

/// An ADD that fails and changes nothing. Skips if it succeeds.
fn undoes(testbed: &Testbed, call: &Call) -> Result<(), Stop> {
    match testbed.make(call)?.is_success() {
        true => Err(skip("its ADD succeeds")),
        false => unchanged(testbed, "all as before the ADD that failed"),
    }
}

/// Each text of the config in turn.
fn leaves_nothing_when_a_value_is_unknown(testbed: &Testbed) -> Result<(), Stop> {
    lay_network(testbed)?;
    let config = testbed.config();
    let is_own = |key: &str| !["cniVersion", "name", "type"].contains(&key);
    let texts = config.as_object().into_iter().flatten().filter(|(key, value)| value.is_string() && is_own(key));
    let mut refused = 0;
    for (key, _) in texts {
        let pod = testbed.pod();
        testbed.remember();
        let config = with_key(testbed.config_for(Verb::Add, &pod.attachment()), key, json!("no such/value"));
        let answer = testbed.make(&testbed.call_with(Verb::Add, &config, &pod))?;
        if answer.is_success() {
            let result = answer.succeeds()?;
            testbed.make(&testbed.call_with(Verb::Del, &config, &pod).prev_result(&result))?.succeeds()?;
            continue;
        }
        unchanged(testbed, &format!("all as before the ADD that failed for its {key}"))?;
        refused += 1;
    }
    Stop::skip_if(refused == 0, "it refuses no text of its config")
}

/// Results had an address before 0.3.0, so that there is none without IPAM.
fn leaves_nothing_when_its_version_has_no_result(testbed: &Testbed) -> Result<(), Stop> {
    testbed.config_with_kit_ipam().ok_or_else(|| skip("it delegates to no IPAM plugin"))?;
    lay_network(testbed)?;
    let pod = testbed.pod();
    testbed.remember();
    let config = with_key(testbed.config_for(Verb::Add, &pod.attachment()), "ipam", json!({}));
    undoes(testbed, &testbed.call_with(Verb::Add, &config, &pod))
}

fn leaves_others_alone(testbed: &Testbed) -> Result<(), Stop> {
    let (first, second) = (testbed.pod(), testbed.pod());
    testbed.add(&first)?;
    testbed.remember();
    let result = testbed.add(&second)?;
    // Added lines are the second's. Removed and changed ones are of the first or the node, but for a link that moved in.
    let of_first = format!("(in {})", first.id());
    let moved = second.namespace().links().into_iter().map(|link| link.mac);
    let moved: Vec<_> = moved.filter(|mac| mac.bytes().any(|byte| !b"0:".contains(&byte))).collect();
    let is_harm = |line: &&str| {
        let of_node = line.starts_with('-') && !line.contains(" (in ");
        line.ends_with(&of_first) || of_node && !moved.iter().any(|mac| line.contains(mac.as_str()))
    };
    let harm: String = testbed.left_behind().lines().filter(is_harm).map(|line| format!("{line}\n")).collect();
    testbed.del(&second, &result)?;
    Finding::unless_differs(harm, "all of the first container as it was", "it is not")
}

fn serves_containers_at_once(testbed: &Testbed) -> Result<(), Stop> {
    let pods = [testbed.pod(), testbed.pod()];
    testbed.remember();
    let at_once = |work: &(dyn Fn(usize) -> Result<Value, Stop> + Sync)| {
        std::thread::scope(|scope| {
            let both = [0, 1].map(|index| scope.spawn(move || work(index)));
            both.map(|one| one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })
    };
    let [first, second] = at_once(&|index| testbed.add(&pods[index]));
    let results = match (first, second) {
        (Ok(first), Ok(second)) => [first, second],
        (Err(stop), _) | (_, Err(stop)) => return Err(room_for(testbed, &pods, stop)),
    };
    let [first, second] = at_once(&|index| testbed.del(&pods[index], &results[index]).map(|()| Value::Null));
    first.and(second)?;
    // Files that the network has once came with them and may stay: a file that names both is a log.
    let named = pods.each_ref().map(|pod| testbed.files_naming(pod));
    for (own, others) in [(&named[0], &named[1]), (&named[1], &named[0])] {
        if let Some(file) = own.iter().find(|file| !others.contains(file)) {
            let finding = Finding::new("nothing of the containers", format!("{} is left", file.display()));
            return Err(finding.based_on(basis_of_del(testbed)).into());
        }
    }
    Ok(())
}

/// The rule that says that DEL leaves nothing.
fn basis_of_del(testbed: &Testbed) -> Option<&'static str> {
    super::basis("DEL", testbed.profile.role)
}

fn serves_a_container_twice(testbed: &Testbed) -> Result<(), Stop> {
    // Anything that the first DEL of a node leaves belongs to the network.
    lay_network(testbed)?;
    let attached = Attached::add(testbed)?;
    if testbed.profile.role != Role::Ipam {
        attached.interface()?;
    }
    let again = attached.pod.attachment_as("net1");
    testbed.remember();
    let answer = testbed.make(&testbed.call(Verb::Add, &again))?;
    if !answer.is_success() {
        answer.fails()?;
        unchanged(testbed, "all as before the ADD that failed")?;
        return Err(skip("its config serves a container once, and a second ADD is an error that changes nothing"));
    }
    let result = answer.succeeds()?;
    testbed.make(&testbed.call(Verb::Del, &again).prev_result(&result))?.succeeds()?;
    nothing_left(testbed).map_err(|stop| stop.based_on(basis_of_del(testbed)))?;
    unchanged(testbed, "the first attachment as it was")
}
