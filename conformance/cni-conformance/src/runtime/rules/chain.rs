//! SPEC 3: adding, checking, deleting an attachment, collecting garbage, asking for the status. In which order plugins
//! run, what stops them, and what they learn of the result.

use super::RUNTIMES;
use crate::finding::{Finding, Stop};
use crate::rule::{before, each, newest, relied, since, spec};
use crate::runtime::assertions::{End, order, plain, previous, same};
use crate::runtime::mock_plugin::{KEY, Order, Received};
use crate::runtime::{Request, Rule, RuntimeTestbed};
use serde_json::{Value, json};
use testns::Verb::{Add, Check, Del, Gc, Status};
use testns::{Remains, Verb};

pub(super) const RULES: &[Rule] = &[
    spec("chain.add-in-order", &["adding/order"], RUNTIMES)
        .says("ADD runs the plugins in the order of the list.")
        .by(&[since("0.3.0", "", add_in_order).does("ADD of a list of three.")]),
    spec("chain.add-stops-at-error", &["adding/error"], RUNTIMES)
        .says("A plugin's error ends ADD: no later plugin runs, and the runtime fails.")
        .by(&[
            newest("first", |testbed| add_stops(testbed, 1)).does("The first of three plugins fails."),
            newest("middle", |testbed| add_stops(testbed, 2)).does("The second of three plugins fails."),
            newest("last", |testbed| add_stops(testbed, 3)).does("The last of three plugins fails."),
        ]),
    spec("chain.order-in-0.4.0", &["adding/order-0.4.0"], RUNTIMES)
        .says("ADD runs the plugins in the order of the list, DEL in reverse order.")
        .by(&[
            before("1.0.0", "ADD", add_in_order).does("ADD of a list of three."),
            before("1.0.0", "DEL", del_in_reverse).does("DEL of a list of three."),
        ]),
    spec("chain.ends-at-error-in-0.4.0", &["adding/error-0.4.0"], RUNTIMES)
        .says("A plugin's error ends ADD and DEL of the list, and the runtime fails.")
        .by(&[
            before("1.0.0", "ADD", |testbed| add_stops(testbed, 2)).does("The second of three plugins fails with ADD."),
            before("1.0.0", "DEL", del_stops).does("The second of three plugins fails with DEL."),
        ]),
    spec("chain.error-is-reported", &["adding/error"], RUNTIMES)
        .says("The caller learns code and message of a plugin's error.")
        .by(&[since("0.3.0", "", error_is_told)
            .does("The second of three plugins fails; the runtime has to print its message.")]),
    relied("chain.add-gives-last-result", "callers of the runtime, who learn addresses from it", RUNTIMES)
        .says("The result of ADD is that of the last plugin.")
        .by(&[each("", last_result)
            .does("ADD of a list of three; what the runtime prints is compared with the last result.")]),
    spec("chain.check-in-order", &["checking/order"], RUNTIMES)
        .says("CHECK runs the plugins in the order of the list.")
        .by(&[since("0.4.0", "", check_in_order).does("CHECK of a list of three.")]),
    spec("chain.check-has-result", &["check/prev-result"], RUNTIMES)
        .says("Every plugin of CHECK gets the final result of ADD as prevResult.")
        .by(&[each("", |testbed| has_result(testbed, Check))
            .does("CHECK of a list of three; each prevResult is compared with the last result of ADD.")]),
    spec("chain.check-fails", &["checking/error"], RUNTIMES)
        .says("A plugin's error to CHECK is the runtime's; whether it asks later plugins is its own affair.")
        .by(&[since("0.4.0", "", check_fails).does("The second of three plugins fails with CHECK.")]),
    spec("chain.no-check-before-0.4.0", &["check/since"], RUNTIMES)
        .says("A network of a version before 0.4.0 has no CHECK.")
        .by(&[before("0.4.0", "", no_check)
            .does("CHECK of a list of one, with the newest version before 0.4.0; no plugin may be called.")]),
    spec("chain.check-disabled", &["check/disabled"], RUNTIMES)
        .says("A list with disableCheck is not checked, and that is a success.")
        .by(&[since("0.4.0", "", check_disabled).does("CHECK of a list with disableCheck; no plugin may be called.")]),
    spec("chain.del-in-reverse", &["deleting/order"], RUNTIMES)
        .says("DEL runs the plugins in reverse order.")
        .by(&[since("0.3.0", "", del_in_reverse).does("DEL of a list of three.")]),
    spec("chain.del-has-result", &["del/prev-result", "deriving/prev-result", "del/prev-result-0.4.0"], RUNTIMES)
        .says("Every plugin of DEL gets the final result of ADD as prevResult.")
        .by(&[each("", |testbed| has_result(testbed, Del))
            .does("DEL of a list of three; each prevResult is compared with the last result of ADD.")]),
    spec("chain.del-stops-at-error", &["deleting/error"], RUNTIMES)
        .says("A plugin's error ends DEL, and the runtime fails.")
        .by(&[since("0.3.0", "", del_stops)
            .does("The second of three plugins fails with DEL; the first may not be called.")]),
    spec("chain.gc-names-valid-attachments", &["gc/list"], RUNTIMES)
        .says(
            "GC gives every plugin, below cni.dev/valid-attachments, the container ID and interface name of each \
              attachment that is still in use, and of no other.",
        )
        .by(&[since("1.1.0", "", gc_names_valid)
            .does("GC of a list of three, with two containers of which one is in use, or both.")]),
    relied("chain.gc-is-no-del", "containers that run, which would lose their network", RUNTIMES)
        .says("GC, and whatever else collects garbage, calls no DEL of attachments that are valid.")
        .by(&[since("1.1.0", "", gc_is_no_del)
            .does("GC with two containers that are in use; no plugin may be called with DEL.")]),
    spec("chain.del-is-no-gc", &["gc/no-substitute"], RUNTIMES)
        .says("To delete an attachment the runtime calls DEL of each plugin, and no GC in its place.")
        .by(&[since("1.1.0", "", del_is_no_gc).does("DEL of a list of three; each has to be called with DEL.")]),
    spec("chain.gc-goes-on-after-error", &["collecting/error"], RUNTIMES)
        .says("A plugin's error does not end GC, but the runtime fails in the end.")
        .by(&[since("1.1.0", "", gc_goes_on)
            .does("The second of three plugins fails with GC; the third has to be called.")]),
    spec("chain.no-gc-before-1.1.0", &["status/since"], RUNTIMES)
        .says("A network of a version before 1.1.0 has no GC.")
        .by(&[before("1.1.0", "", no_gc)
            .does("GC of a list of three, with the newest version before 1.1.0; no plugin may be called with it.")]),
    spec("chain.gc-disabled", &["format/disable-gc"], RUNTIMES)
        .says("A list with disableGC is not collected.")
        .by(&[since("1.1.0", "", gc_disabled).does("GC of a list with disableGC; no plugin may be called with it.")]),
    relied("chain.status-asks-each", "runtimes that show the STATUS of a network, as libcni asks it", RUNTIMES)
        .says("STATUS asks every plugin of the list.")
        .by(&[since("1.1.0", "", status_asks_each).does("STATUS of a list of three.")]),
    relied("chain.status-fails", "runtimes that show the STATUS of a network, as libcni asks it", RUNTIMES)
        .says("A plugin's error to STATUS is the runtime's.")
        .by(&[since("1.1.0", "", status_fails)
            .does("The second plugin fails with STATUS; the runtime has to print its message.")]),
    spec("chain.no-status-before-1.1.0", &["status/since"], RUNTIMES)
        .says("A network of a version before 1.1.0 has no STATUS.")
        .by(&[before("1.1.0", "", no_status)
            .does("STATUS of a list of three, with the newest version before 1.1.0; no plugin may be called.")]),
    relied("chain.del-without-namespace", "nodes after a reboot, which would lose addresses", RUNTIMES)
        .says("DEL runs the plugins though the namespace is gone: they may still hold something for the container.")
        .by(&[
            newest("gone", |testbed| del_without(testbed, Remains::Gone))
                .does("DEL of a list of three when the namespace has gone."),
            newest("plain-file", |testbed| del_without(testbed, Remains::PlainFile))
                .does("The same where its path is a plain file."),
        ]),
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

fn add_in_order(testbed: &RuntimeTestbed) -> End {
    testbed.lay_three();
    testbed.does(Add, &testbed.request())?;
    order(&testbed.received(), &[(Add, 1), (Add, 2), (Add, 3)])
}

fn add_stops(testbed: &RuntimeTestbed, place: u8) -> End {
    testbed.lay(&testbed.list(&failing(testbed, place, Add)));
    testbed.run(Add, &testbed.request())?.fails("its plugin did")?;
    let expected: Vec<_> = (1..=u64::from(place)).map(|place| (Add, place)).collect();
    order(&testbed.received_of(Add), &expected)
}

fn error_is_told(testbed: &RuntimeTestbed) -> End {
    testbed.lay(&testbed.list(&failing(testbed, 2, Add)));
    let ran = testbed.run(Add, &testbed.request())?.fails("its plugin did")?;
    let printed = ran.output.stdout + &ran.output.stderr;
    Finding::unless(
        printed.contains("the plugin will not"),
        "the plugin's message in what the runtime prints",
        format!("it printed {printed:?}"),
    )
}

fn last_result(testbed: &RuntimeTestbed) -> End {
    Stop::skip_if(!testbed.driver.prints_result, format!("{} prints no result", testbed.driver.name))?;
    let is_list = crate::spec_version::is_from(&testbed.version, "0.3.0");
    testbed.lay(&testbed.list(&three(testbed)[..if is_list { 3 } else { 1 }]));
    let ran = testbed.does(Add, &testbed.request())?;
    let last = testbed.received().last().map(Received::result).unwrap_or_default();
    let printed: Value = serde_json::from_str(&ran.output.stdout).unwrap_or_default();
    same("cniVersion of the result", &json!(testbed.version), &printed["cniVersion"])?;
    same("the result", &plain(last), &plain(printed))
}

fn check_in_order(testbed: &RuntimeTestbed) -> End {
    let request = added(testbed, &three(testbed))?;
    testbed.does(Check, &request)?;
    order(&testbed.received(), &[(Check, 1), (Check, 2), (Check, 3)])
}

fn has_result(testbed: &RuntimeTestbed, verb: Verb) -> End {
    Stop::skip_if(!crate::spec_version::is_from(&testbed.version, "0.4.0"), "this came with 0.4.0")?;
    testbed.lay_three();
    let request = testbed.request();
    testbed.does(Add, &request)?;
    let result = testbed.received().last().map(Received::result).unwrap_or_default();
    testbed.forget();
    testbed.does(verb, &request)?;
    let received = testbed.received();
    same("plugins called", &3, &received.len())?;
    received.iter().try_for_each(|call| previous(call, &result))
}

fn check_fails(testbed: &RuntimeTestbed) -> End {
    let request = added(testbed, &failing(testbed, 2, Check))?;
    testbed.run(Check, &request)?.fails("its plugin did")?;
    let received = testbed.received();
    order(received.get(..2).unwrap_or(&received), &[(Check, 1), (Check, 2)])
}

fn no_check(testbed: &RuntimeTestbed) -> End {
    let request = added(testbed, &[testbed.plugin(1)])?;
    testbed.run(Check, &request)?; // an error or a success, as it likes
    order(&testbed.received(), &[])
}

/// A list of three with one key more.
fn with_key(testbed: &RuntimeTestbed, key: &str, value: Value) -> Value {
    let mut list = testbed.list(&three(testbed));
    list[key] = value;
    list
}

fn check_disabled(testbed: &RuntimeTestbed) -> End {
    testbed.lay(&with_key(testbed, "disableCheck", json!(true)));
    let request = testbed.request();
    testbed.does(Add, &request)?;
    testbed.forget();
    testbed.does(Check, &request)?;
    order(&testbed.received(), &[])
}

fn del_in_reverse(testbed: &RuntimeTestbed) -> End {
    let request = added(testbed, &three(testbed))?;
    testbed.does(Del, &request)?;
    order(&testbed.received(), &[(Del, 3), (Del, 2), (Del, 1)])
}

fn del_stops(testbed: &RuntimeTestbed) -> End {
    let request = added(testbed, &failing(testbed, 2, Del))?;
    testbed.run(Del, &request)?.fails("its plugin did")?;
    order(&testbed.received(), &[(Del, 3), (Del, 2)])
}

fn del_without(testbed: &RuntimeTestbed, remains: Remains) -> End {
    testbed.needs("netns")?;
    let request = added(testbed, &three(testbed))?;
    request.container.leave(remains);
    testbed.does(Del, &request)?;
    order(&testbed.received(), &[(Del, 3), (Del, 2), (Del, 1)])
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
    same("plugins called", &3, &received.len())?;
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
    let mut places: Vec<_> = testbed.received_of(Gc).iter().map(Received::place).collect();
    places.sort_unstable();
    same("places of plugins that were called with GC", [1, 2, 3].as_slice(), places.as_slice())
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
fn nothing_collected(testbed: &RuntimeTestbed) -> Stop {
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
    let dels = verbs.iter().filter(|verb| *verb == "DEL").count();
    Finding::unless(dels == 3, "DEL of each of the three plugins", format!("they were called with {verbs:?}"))
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
    let mut places: Vec<_> = testbed.received_of(Status).iter().map(Received::place).collect();
    places.sort_unstable();
    same("places of plugins that were called with STATUS", [1, 2, 3].as_slice(), places.as_slice())?;
    let has_attachments =
        |call: &Received| call.config().get("prevResult").is_some() || call.config().get(KEY).is_none();
    Finding::unless(
        !testbed.received().iter().any(has_attachments),
        "the plugin object and no prevResult",
        "it was otherwise",
    )
}

fn status_fails(testbed: &RuntimeTestbed) -> End {
    let fail = Order::fail(&testbed.version, 50, "no more addresses");
    testbed.lay(&testbed.list(&[testbed.plugin(1), testbed.plugin_with(2, &[(Status, fail)])]));
    let ran = testbed.run(Status, &testbed.request())?.fails("a plugin did")?;
    let printed = ran.output.stdout + &ran.output.stderr;
    Finding::unless(
        printed.contains("no more addresses"),
        "the plugin's message in what the runtime prints",
        format!("it printed {printed:?}"),
    )
}

fn no_status(testbed: &RuntimeTestbed) -> End {
    testbed.works()?;
    testbed.lay_three();
    testbed.run(Status, &testbed.request())?;
    order(&testbed.received(), &[])
}
