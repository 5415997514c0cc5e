//! SPEC 2, ADD: what it makes, and when it refuses. What its result says of that is in [`super::add_result`].

use super::attached::{
    Attached, lay_network, nothing_left, pod_of_before, pod_with_kit_ipam, room_for, skip, unchanged, with_key,
    with_kit_ipam,
};
use crate::finding::{Finding, Stop};
use crate::kit_ipam::Order;
use crate::profile::Role;
use crate::rule::{Rule, before, each, newest, relied, spec};
use crate::spec_version;
use crate::testbed::Testbed;
use crate::trial::NOT_HERE;
use serde_json::{Value, json};
use std::fs;
use std::time::Duration;
use testns::{Attachment, Call, Container, Remains, Verb};

pub(super) const RULES: &[Rule] = &[
    spec("add.makes-the-interface", &["add/interface"], NOT_IPAM)
        .says("ADD creates the interface CNI_IFNAME in the container, or adjusts the one that is there.")
        .by(&[newest("", makes_the_interface).does("ADD; the container has to have a link called CNI_IFNAME.")]),
    spec("add.prints-a-result", &["add/result"], Role::ALL)
        .says("ADD that succeeds prints a result on stdout, and nothing else there.")
        .by(&[each("", prints_a_result).does("ADD; its stdout has to be one JSON object.")]),
    spec("add.gives-connectivity", &["overview/kinds"], Role::ATTACHING)
        .says("An interface plugin ensures that its interface has connectivity.")
        .by(&[newest("gateway", reaches_its_gateway)
            .does("The container pings the gateway of the result, where that address is on the node.")]),
    spec("add.refuses-an-existing-interface", &["add/existing-interface"], Role::ATTACHING)
        .says("If the container has an interface of that name, ADD is an error.")
        .by(&[
            newest("of-others", |testbed| refuses_to_replace(testbed, &pod_with_foreign_interface(testbed)?))
                .does("ADD to a container in which a link of the kit's has the name."),
            newest("of-its-own", refuses_its_own_interface).does("ADD a second time, with no DEL between."),
        ]),
    spec("add.needs-the-namespace", &["errors/exit"], Role::ATTACHING)
        .says("ADD is an error where CNI_NETNS is no network namespace.")
        .by(&[
            newest("no-file", |testbed| refuses_netns(testbed, "/run/netns/no-such-namespace"))
                .does("ADD with the path of a file that is not there."),
            newest("plain-file", refuses_a_plain_file).does("ADD with the path of a plain file."),
            newest("other-namespace", refuses_another_kind_of_namespace).does("ADD with the path of a UTS namespace."),
        ]),
    relied(
        "add.failed-leaves-nothing",
        "kubelet, which tries ADD again under another container ID",
        &[Role::Interface, Role::Chained],
    )
    .says("ADD that fails takes back what it did, and has its delegate release what it gave.")
    .by(&[
        newest("no-namespace", leaves_nothing_without_a_namespace)
            .does("ADD with a namespace that is not there; then the node is compared with before."),
        newest("impossible-name", leaves_nothing_when_the_name_is_impossible)
            .does("The same with an interface name of 16 letters."),
        newest("ipam-fails", leaves_nothing_when_ipam_fails)
            .does("The same with a delegate that fails; it may hold no address afterwards."),
        newest("address-twice", leaves_nothing_when_an_address_is_refused)
            .does("The same with a delegate that gives one address twice, which the kernel refuses."),
        newest("no-way-to-gateway", leaves_nothing_when_a_route_is_refused)
            .does("The same with a delegate whose route has a gateway that nothing leads to."),
        newest("name-is-taken", leaves_nothing_when_the_name_is_taken)
            .does("The same where the container has a link of that name, which is the kit's."),
        newest("name-is-its-own", leaves_its_own_interface_when_the_name_is_taken)
            .does("A second ADD without a DEL between; the interface of the first has to stay as it is."),
        newest("unknown-value", leaves_nothing_when_a_value_is_unknown)
            .does("Each text of the config in turn becomes \"no such/value\"; where ADD fails, the node is compared."),
        before("0.3.0", "layer-2-before-0.3.0", leaves_nothing_when_its_version_has_no_result)
            .does("ADD without addresses, in a version whose results need one."),
    ]),
    spec("add.leaves-others-alone", &["execution/attachment"], NOT_IPAM)
        .says("ADD of one container takes nothing from another, and changes nothing in it.")
        .by(&[newest("", leaves_others_alone)
            .does("ADD of a second container; nothing of the first one and of the node may go or change.")]),
    spec("add.serves-containers-at-once", &["lifecycle/at-once"], Role::PLUGINS)
        .says("Calls for different containers may run at the same time, the very first ones too.")
        .by(&[newest("", serves_containers_at_once)
            .does("ADD of a node's first two containers at the same time, then DEL; no file may name them.")]),
    spec("add.follows-del", &["add/again"], Role::ALL)
        .says("With a DEL between them, ADD may be called again for the same container and interface name.")
        .by(&[newest("", |testbed| Attached::add_to(testbed, pod_of_before(testbed)?)?.dels())
            .does("ADD, DEL, ADD and DEL of one container.")]),
    spec("add.serves-a-container-twice", &["add/again"], &[Role::Interface, Role::Ipam, Role::List])
        .says("A container may be added to a network again under another interface name; the first stays as it is.")
        .by(&[newest("", serves_a_container_twice)
            .does("ADD as eth0 and as net1, then DEL of net1; the first attachment has to be as it was.")]),
];

const NOT_IPAM: &[Role] = &[Role::Interface, Role::Chained, Role::List];

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
    match gateways.iter().find(|ip| !attached.pod.namespace().pings(**ip, Duration::from_secs(20))) {
        None => Ok(()),
        Some(silent) => Err(Finding::new(format!("an answer from the gateway {silent}"), "there was none").into()),
    }
}

fn refuses_its_own_interface(testbed: &Testbed) -> Result<(), Stop> {
    let attached = Attached::add(testbed)?;
    attached.interface()?;
    refuses_to_replace(testbed, &attached.pod)
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

fn leaves_its_own_interface_when_the_name_is_taken(testbed: &Testbed) -> Result<(), Stop> {
    let attached = Attached::add(testbed)?;
    attached.interface()?;
    testbed.remember();
    testbed.make(&testbed.call(Verb::Add, &attached.pod))?.refused_by("add.refuses-an-existing-interface").refuses()?;
    unchanged(testbed, "the interface as before the ADD that failed")
}

/// ADD with another `CNI_NETNS` than that of the pod.
fn refuses_netns(testbed: &Testbed, netns: &str) -> Result<(), Stop> {
    let attachment = Attachment { netns: netns.to_owned(), ..testbed.pod().attachment() };
    testbed.make(&testbed.call(Verb::Add, &attachment))?.refuses()
}

fn refuses_a_plain_file(testbed: &Testbed) -> Result<(), Stop> {
    let attachment = testbed.pod().leave(Remains::PlainFile);
    testbed.make(&testbed.call(Verb::Add, &attachment))?.refuses()
}

fn refuses_another_kind_of_namespace(testbed: &Testbed) -> Result<(), Stop> {
    let path = "/proc/self/ns/uts";
    match fs::exists(path) {
        Ok(true) => refuses_netns(testbed, path),
        _ => Err(skip(&format!("{NOT_HERE}the kernel has no UTS namespaces"))),
    }
}

fn leaves_nothing_without_a_namespace(testbed: &Testbed) -> Result<(), Stop> {
    let attachment = testbed.pod().attachment();
    leaves_nothing_of(testbed, Attachment { netns: "/run/netns/no-such-namespace".to_owned(), ..attachment })
}

fn leaves_nothing_when_the_name_is_impossible(testbed: &Testbed) -> Result<(), Stop> {
    let attachment = testbed.pod().attachment();
    leaves_nothing_of(testbed, Attachment { ifname: "abcdefghijklmnop".to_owned(), ..attachment })
}

/// An ADD that has to fail, or does not do so without anything that the plugin needs.
fn leaves_nothing_of(testbed: &Testbed, attachment: Attachment) -> Result<(), Stop> {
    lay_network(testbed)?;
    testbed.remember();
    undoes(testbed, &testbed.call(Verb::Add, attachment))
}

/// An ADD that fails and changes nothing. Skips if it succeeds.
fn undoes(testbed: &Testbed, call: &Call) -> Result<(), Stop> {
    match testbed.make(call)?.is_success() {
        true => Err(skip("its ADD succeeds")),
        false => unchanged(testbed, "all as before the ADD that failed"),
    }
}

fn leaves_nothing_when_ipam_fails(testbed: &Testbed) -> Result<(), Stop> {
    let order = Order::Fail { code: 11, msg: "ordered to fail".to_owned() };
    fails_late(testbed, &[], || testbed.ipam().order(Verb::Add, Some(order.clone())))
}

fn leaves_nothing_when_an_address_is_refused(testbed: &Testbed) -> Result<(), Stop> {
    let address = json!({ "address": "10.88.9.9/16", "gateway": "10.88.0.1" });
    fails_late(testbed, &[("addresses", json!([address, address]))], || ())
}

fn leaves_nothing_when_a_route_is_refused(testbed: &Testbed) -> Result<(), Stop> {
    fails_late(testbed, &[("routes", json!([{ "dst": "198.51.100.0/24", "gw": "203.0.113.254" }]))], || ())
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
    match refused {
        0 => Err(skip("it refuses no text of its config")),
        _ => Ok(()),
    }
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

/// ADD with an `ipam` that makes it fail, after one that showed that it could have succeeded.
fn fails_late(testbed: &Testbed, ipam: &[(&str, Value)], before: impl Fn()) -> Result<(), Stop> {
    let (attachment, _) = pod_with_kit_ipam(testbed)?;
    testbed.remember();
    before();
    let config = with_kit_ipam(testbed, Verb::Add, &attachment, ipam)?;
    undoes(testbed, &testbed.call_with(Verb::Add, config, &attachment))?;
    match testbed.ipam().held() {
        held if held.is_empty() => Ok(()),
        held => Err(Finding::new("DEL of the IPAM plugin", format!("it still holds an address for {held:?}")).into()),
    }
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
