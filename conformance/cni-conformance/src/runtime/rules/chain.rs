//! SPEC 3: adding, checking, deleting an attachment, collecting garbage, asking for the status. In which order plugins
//! run, what stops them, and what they learn of the result.

use crate::rules::prelude::*;
use crate::runtime::assertions::{End, first_run, order, plain, previous, same};
use crate::runtime::mock_plugin::{KEY, Order, Received};
use crate::runtime::{Request, RuntimeTestbed};
use std::collections::BTreeSet;
use testns::Verb::{Add, Check, Del, Gc, Status};

pub(super) const CASES: &[Code<RuntimeTestbed>] = &[
    ("chain.add-gives-last-result", last_result),
    ("chain.check-has-result", |testbed| has_result(testbed, Check)),
    ("chain.check-fails", check_fails),
    ("chain.del-has-result", |testbed| has_result(testbed, Del)),
    ("chain.gc-names-valid-attachments", gc_names_valid),
    ("chain.gc-is-no-del", gc_is_no_del),
    ("chain.del-is-no-gc", del_is_no_gc),
    ("chain.gc-goes-on-after-error", gc_goes_on),
    ("chain.no-gc-before-1.1.0", no_gc),
    ("chain.gc-disabled", gc_disabled),
    ("chain.status-asks-each", status_asks_each),
];

fn failing(testbed: &RuntimeTestbed, place: u8, verb: Verb) -> [Value; 3] {
    let fail = Order::fail(&testbed.version, 142, "the plugin will not");
    [1, 2, 3].map(|n| match n == place {
        true => testbed.plugin_with(n, &[(verb, fail.clone())]),
        false => testbed.plugin(n),
    })
}

/// A container that was added to the list of three; what was received of that is forgotten.
fn added(testbed: &RuntimeTestbed, plugins: &[Value]) -> Result<Request, Stop> {
    testbed.lay(&testbed.list(plugins));
    let request = testbed.request();
    testbed.does(Add, &request)?;
    testbed.forget();
    Ok(request)
}

fn three(testbed: &RuntimeTestbed) -> [Value; 3] {
    [1, 2, 3].map(|place| testbed.plugin(place))
}

fn last_result(testbed: &RuntimeTestbed) -> End {
    Stop::skip_if(!testbed.driver.prints_result, format!("{} prints no result", testbed.driver.name))?;
    let is_list = crate::spec_version::is_from(&testbed.version, "0.3.0");
    testbed.lay(&testbed.list(&three(testbed)[..if is_list { 3 } else { 1 }]));
    let ran = testbed.does(Add, &testbed.request())?;
    let last = testbed.received_of(Add).last().map(Received::result).unwrap_or_default();
    let printed: Value = serde_json::from_str(&ran.output.stdout).unwrap_or_default();
    same("cniVersion of the result", &json!(testbed.version), &printed["cniVersion"])?;
    same("the result", &plain(last), &plain(printed))
}

fn has_result(testbed: &RuntimeTestbed, verb: Verb) -> End {
    Stop::skip_if(!crate::spec_version::is_from(&testbed.version, "0.4.0"), "this came with 0.4.0")?;
    testbed.lay_three();
    let request = testbed.request();
    testbed.does(Add, &request)?;
    let result = testbed.received_of(Add).last().map(Received::result).unwrap_or_default();
    testbed.forget();
    testbed.does(verb, &request)?;
    let received = testbed.received_of(verb);
    let places = if verb == Del { [3, 2, 1] } else { [1, 2, 3] };
    order(&received, &places.map(|place| (verb, place)))?;
    let judged = if verb == Del { first_run(&received) } else { &received };
    judged.iter().try_for_each(|call| previous(call, &result))
}

fn check_fails(testbed: &RuntimeTestbed) -> End {
    let request = added(testbed, &failing(testbed, 2, Check))?;
    testbed.run(Check, &request)?.fails("its plugin did")?;
    let received = testbed.received_of(Check);
    let first = first_run(&received);
    order(first.get(..2).unwrap_or(first), &[(Check, 1), (Check, 2)])
}

/// A list of three with one key more.
fn with_key(testbed: &RuntimeTestbed, key: &str, value: Value) -> Value {
    let mut list = testbed.list(&three(testbed));
    list[key] = value;
    list
}

/// Container ID and interface name of each ADD that was received.
fn attachments(testbed: &RuntimeTestbed) -> Vec<(String, String)> {
    let mut all: Vec<_> = testbed
        .received_of(Add)
        .iter()
        .map(|call| (call.variable("CNI_CONTAINERID").to_owned(), call.variable("CNI_IFNAME").to_owned()))
        .collect();
    all.dedup();
    all
}

/// A request to collect what belongs to none of two containers that are there, and the two.
fn two_valid(testbed: &RuntimeTestbed) -> Result<(Request, Vec<(String, String)>), Stop> {
    let mut last = testbed.request();
    testbed.does(Add, &last)?;
    last = testbed.request();
    testbed.does(Add, &last)?;
    let valid = attachments(testbed);
    last.keep = valid.iter().map(|(id, ifname)| format!("{id}/{ifname}")).collect();
    testbed.forget();
    Ok((last, valid))
}

fn gc_names_valid(testbed: &RuntimeTestbed) -> End {
    testbed.lay_three();
    let (mut request, mut valid) = two_valid(testbed)?;
    if testbed.driver.gives("keep") {
        // The second of the two is no longer in use.
        request.keep.truncate(1);
        valid.truncate(1);
    }
    testbed.does(Gc, &request)?;
    let received = testbed.received_of(Gc);
    if received.is_empty() {
        return Err(Stop::Skips("its GC calls no plugin (SPEC 3, Garbage-collecting a network: it may)".to_owned()));
    }
    same("places of plugins that were called with GC", [1, 2, 3].as_slice(), places(&received).as_slice())?;
    for call in &received {
        let config = call.config();
        let list = config.get("cni.dev/valid-attachments").and_then(Value::as_array).cloned();
        let text = |entry: &Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
        let seen =
            list.map(|list| list.iter().map(|e| (text(e, "containerID"), text(e, "ifname"))).collect::<Vec<_>>());
        let sorted = seen.map(|mut seen| {
            seen.sort();
            seen
        });
        let mut expected = valid.clone();
        expected.sort();
        same("cni.dev/valid-attachments, as container ID and ifname", &Some(expected), &sorted)?;
    }
    Ok(())
}

fn gc_goes_on(testbed: &RuntimeTestbed) -> End {
    testbed.lay(&testbed.list(&failing(testbed, 2, Gc)));
    let (request, _) = two_valid(testbed)?;
    testbed.run(Gc, &request)?.fails("a plugin did")?;
    same(
        "places of plugins that were called with GC",
        [1, 2, 3].as_slice(),
        places(&testbed.received_of(Gc)).as_slice(),
    )
}

/// The places of plugins that were called, each once.
pub(super) fn places(received: &[Received]) -> Vec<u64> {
    let places: BTreeSet<_> = received.iter().map(Received::place).collect();
    places.into_iter().collect()
}

/// Also of a runtime whose driver cannot name what is valid: both containers are.
fn gc_is_no_del(testbed: &RuntimeTestbed) -> End {
    testbed.lay_three();
    let (request, _) = two_valid(testbed)?;
    testbed.run(Gc, &request)?;
    if testbed.received().is_empty() {
        return Err(nothing_collected(testbed));
    }
    order(&testbed.received_of(Del), &[])
}

/// The skip of a GC that calls no plugin, which shows nothing: a runtime prints its usage for a word it does not know.
pub(super) fn nothing_collected(testbed: &RuntimeTestbed) -> Stop {
    Stop::Skips(format!("the GC of {}'s driver calls no plugin", testbed.driver.name))
}

/// Shows that GC of a network of 1.1.0 calls plugins, and forgets it.
fn collects(testbed: &RuntimeTestbed) -> End {
    let mut list = testbed.list(&three(testbed));
    list["cniVersion"] = json!("1.1.0");
    testbed.lay(&list);
    let (request, _) = two_valid(testbed)?;
    testbed.run(Gc, &request)?;
    if testbed.received_of(Gc).is_empty() {
        return Err(nothing_collected(testbed));
    }
    testbed.forget();
    Ok(())
}

fn del_is_no_gc(testbed: &RuntimeTestbed) -> End {
    let request = added(testbed, &three(testbed))?;
    testbed.does(Del, &request)?;
    let verbs: Vec<_> = testbed.received().iter().map(|call| call.verb().to_owned()).collect();
    let all = places(&testbed.received_of(Del)) == [1, 2, 3];
    Finding::unless(all, "DEL of each of the three plugins", format!("they were called with {verbs:?}"))
}

fn no_gc(testbed: &RuntimeTestbed) -> End {
    collects(testbed)?;
    testbed.lay_three();
    let (request, _) = two_valid(testbed)?;
    testbed.run(Gc, &request)?;
    order(&testbed.received_of(Gc), &[])
}

fn gc_disabled(testbed: &RuntimeTestbed) -> End {
    collects(testbed)?;
    testbed.lay(&with_key(testbed, "disableGC", json!(true)));
    let (request, _) = two_valid(testbed)?;
    testbed.run(Gc, &request)?;
    order(&testbed.received_of(Gc), &[])
}

fn status_asks_each(testbed: &RuntimeTestbed) -> End {
    testbed.lay_three();
    testbed.does(Status, &testbed.request())?;
    let received = testbed.received_of(Status);
    same("places of plugins that were called with STATUS", [1, 2, 3].as_slice(), places(&received).as_slice())?;
    let has_attachments =
        |call: &Received| call.config().get("prevResult").is_some() || call.config().get(KEY).is_none();
    Finding::unless(!received.iter().any(has_attachments), "the plugin object and no prevResult", "it was otherwise")
}
