//! SPEC 3: adding, checking, deleting an attachment, collecting garbage, asking for the status. In which order plugins
//! run, what stops them, and what they are told of the result.

use super::{before, from, newest, rule};
use crate::finding::Stop;
use crate::rule::Source::{Relied, Spec};
use crate::rule::Versions;
use crate::runtime::judge::{Heard, KEY, Order};
use crate::runtime::look::{End, holds, order, plain, previous, same};
use crate::runtime::{Case, Request, Rule, Stand};
use serde_json::{Value, json};
use testns::Verb::{Add, Check, Del, Gc, Status};
use testns::{Remains, Verb};

pub(super) const RULES: &[Rule] = &[
    rule(
        "chain.add-in-order",
        Spec(&["adding/order"]),
        "ADD runs the plugins in the order of the list.",
        &[from("0.3.0", add_in_order)],
    ),
    rule(
        "chain.add-stops-at-error",
        Spec(&["adding/error"]),
        "A plugin's error ends ADD: no later plugin runs, and the runtime fails.",
        &[
            newest("first", |stand| add_stops(stand, 1)),
            newest("middle", |stand| add_stops(stand, 2)),
            newest("last", |stand| add_stops(stand, 3)),
        ],
    ),
    rule(
        "chain.error-is-told",
        Spec(&["adding/error"]),
        "The caller learns code and message of a plugin's error.",
        &[from("0.3.0", error_is_told)],
    ),
    rule(
        "chain.add-gives-last-result",
        Relied("callers of the runtime, who learn addresses from it"),
        "The result of ADD is that of the last plugin.",
        &[Case { name: "", versions: Versions::Each, run: last_result }],
    ),
    rule(
        "chain.check-in-order",
        Spec(&["checking/order"]),
        "CHECK runs the plugins in the order of the list.",
        &[from("0.4.0", check_in_order)],
    ),
    rule(
        "chain.check-has-result",
        Spec(&["check/prev-result"]),
        "Every plugin of CHECK gets the final result of ADD as prevResult.",
        &[Case { name: "", versions: Versions::Each, run: |stand| has_result(stand, Check) }],
    ),
    rule(
        "chain.check-fails",
        Spec(&["checking/error"]),
        "A plugin's error to CHECK is the runtime's; whether it asks later plugins is its own affair.",
        &[from("0.4.0", check_fails)],
    ),
    rule(
        "chain.no-check-before-0.4.0",
        Spec(&["check/since"]),
        "A network of a version before 0.4.0 has no CHECK.",
        &[before("0.4.0", no_check)],
    ),
    rule(
        "chain.check-disabled",
        Spec(&["check/disabled"]),
        "A list with disableCheck is not checked, and that is a success.",
        &[from("0.4.0", check_disabled)],
    ),
    rule(
        "chain.del-in-reverse",
        Spec(&["deleting/order"]),
        "DEL runs the plugins in reverse order.",
        &[from("0.3.0", del_in_reverse)],
    ),
    rule(
        "chain.del-has-result",
        Spec(&["del/prev-result", "deriving/prev-result", "del/prev-result-0.4.0"]),
        "Every plugin of DEL gets the final result of ADD as prevResult.",
        &[Case { name: "", versions: Versions::Each, run: |stand| has_result(stand, Del) }],
    ),
    rule(
        "chain.del-stops-at-error",
        Spec(&["deleting/error"]),
        "A plugin's error ends DEL, and the runtime fails.",
        &[from("0.3.0", del_stops)],
    ),
    rule(
        "chain.gc-names-valid-attachments",
        Spec(&["gc/list"]),
        "GC tells every plugin, below cni.dev/valid-attachments, the container ID and interface name of each \
         attachment that is still in use, and of no other.",
        &[from("1.1.0", gc_names_valid)],
    ),
    rule(
        "chain.gc-is-no-del",
        Spec(&["gc/no-substitute"]),
        "GC, and whatever else collects garbage, calls no DEL of attachments that are valid.",
        &[from("1.1.0", gc_is_no_del)],
    ),
    rule(
        "chain.gc-goes-on-after-error",
        Spec(&["collecting/error"]),
        "A plugin's error does not end GC, but the runtime fails in the end.",
        &[from("1.1.0", gc_goes_on)],
    ),
    rule(
        "chain.no-gc-before-1.1.0",
        Spec(&["status/since"]),
        "A network of a version before 1.1.0 has no GC.",
        &[before("1.1.0", no_gc)],
    ),
    rule(
        "chain.gc-disabled",
        Spec(&["format/disable-gc"]),
        "A list with disableGC is not collected.",
        &[from("1.1.0", gc_disabled)],
    ),
    rule(
        "chain.status-asks-each",
        Relied("runtimes that show the STATUS of a network, as libcni asks it"),
        "STATUS asks every plugin of the list.",
        &[from("1.1.0", status_asks_each)],
    ),
    rule(
        "chain.status-fails",
        Relied("runtimes that show the STATUS of a network, as libcni asks it"),
        "A plugin's error to STATUS is the runtime's.",
        &[from("1.1.0", status_fails)],
    ),
    rule(
        "chain.no-status-before-1.1.0",
        Spec(&["status/since"]),
        "A network of a version before 1.1.0 has no STATUS.",
        &[before("1.1.0", no_status)],
    ),
    rule(
        "chain.del-without-namespace",
        Relied("nodes after a reboot, which would lose addresses"),
        "DEL runs the plugins though the namespace is gone: they may still hold something for the container.",
        &[
            newest("gone", |stand| del_without(stand, Remains::Gone)),
            newest("plain-file", |stand| del_without(stand, Remains::PlainFile)),
        ],
    ),
];

fn failing(stand: &Stand, place: u8, verb: Verb) -> [Value; 3] {
    let fail = Order::fail(&stand.version, 142, "the judge will not");
    [1, 2, 3].map(|n| match n == place {
        true => stand.judge_with(n, &[(verb, fail.clone())]),
        false => stand.judge(n),
    })
}

/// A container that was added to the list of three; what was heard of that is forgotten.
fn added(stand: &Stand, plugins: &[Value]) -> Result<Request, Stop> {
    stand.lay(&stand.list(plugins));
    let request = stand.request();
    stand.does(Add, &request)?;
    stand.forget();
    Ok(request)
}

fn three(stand: &Stand) -> [Value; 3] {
    [1, 2, 3].map(|place| stand.judge(place))
}

fn add_in_order(stand: &Stand) -> End {
    stand.lay_three();
    stand.does(Add, &stand.request())?;
    order(&stand.heard(), &[(Add, 1), (Add, 2), (Add, 3)])
}

fn add_stops(stand: &Stand, place: u8) -> End {
    stand.lay(&stand.list(&failing(stand, place, Add)));
    stand.run(Add, &stand.request())?.fails("its plugin did")?;
    let expected: Vec<_> = (1..=u64::from(place)).map(|place| (Add, place)).collect();
    order(&stand.heard_of(Add), &expected)
}

fn error_is_told(stand: &Stand) -> End {
    stand.lay(&stand.list(&failing(stand, 2, Add)));
    let ran = stand.run(Add, &stand.request())?.fails("its plugin did")?;
    let told = ran.output.stdout + &ran.output.stderr;
    holds(
        told.contains("the judge will not"),
        "the plugin's message in what the runtime prints",
        format!("it printed {told:?}"),
    )
}

fn last_result(stand: &Stand) -> End {
    if !stand.driver.prints_result {
        return Err(Stop::Skips(format!("{} prints no result", stand.driver.name)));
    }
    let is_list = crate::form::is_from(&stand.version, "0.3.0");
    stand.lay(&stand.list(&three(stand)[..if is_list { 3 } else { 1 }]));
    let ran = stand.does(Add, &stand.request())?;
    let last = stand.heard().last().map(Heard::result).unwrap_or_default();
    let printed: Value = serde_json::from_str(&ran.output.stdout).unwrap_or_default();
    same("cniVersion of the result", &json!(stand.version), &printed["cniVersion"])?;
    same("the result", &plain(last), &plain(printed))
}

fn check_in_order(stand: &Stand) -> End {
    let request = added(stand, &three(stand))?;
    stand.does(Check, &request)?;
    order(&stand.heard(), &[(Check, 1), (Check, 2), (Check, 3)])
}

fn has_result(stand: &Stand, verb: Verb) -> End {
    if !crate::form::is_from(&stand.version, "0.4.0") {
        return Err(Stop::Skips("this came with 0.4.0".to_owned()));
    }
    stand.lay_three();
    let request = stand.request();
    stand.does(Add, &request)?;
    let result = stand.heard().last().map(Heard::result).unwrap_or_default();
    stand.forget();
    stand.does(verb, &request)?;
    let heard = stand.heard();
    same("plugins called", &3, &heard.len())?;
    heard.iter().try_for_each(|call| previous(call, &result))
}

fn check_fails(stand: &Stand) -> End {
    let request = added(stand, &failing(stand, 2, Check))?;
    stand.run(Check, &request)?.fails("its plugin did")?;
    let heard = stand.heard();
    order(heard.get(..2).unwrap_or(&heard), &[(Check, 1), (Check, 2)])
}

fn no_check(stand: &Stand) -> End {
    let request = added(stand, &[stand.judge(1)])?;
    stand.run(Check, &request)?; // an error or a success, as it likes
    order(&stand.heard(), &[])
}

/// A list of three with one key more.
fn with_key(stand: &Stand, key: &str, value: Value) -> Value {
    let mut list = stand.list(&three(stand));
    list[key] = value;
    list
}

fn check_disabled(stand: &Stand) -> End {
    stand.lay(&with_key(stand, "disableCheck", json!(true)));
    let request = stand.request();
    stand.does(Add, &request)?;
    stand.forget();
    stand.does(Check, &request)?;
    order(&stand.heard(), &[])
}

fn del_in_reverse(stand: &Stand) -> End {
    let request = added(stand, &three(stand))?;
    stand.does(Del, &request)?;
    order(&stand.heard(), &[(Del, 3), (Del, 2), (Del, 1)])
}

fn del_stops(stand: &Stand) -> End {
    let request = added(stand, &failing(stand, 2, Del))?;
    stand.run(Del, &request)?.fails("its plugin did")?;
    order(&stand.heard(), &[(Del, 3), (Del, 2)])
}

fn del_without(stand: &Stand, remains: Remains) -> End {
    stand.needs("netns")?;
    let request = added(stand, &three(stand))?;
    request.container.leave(remains);
    stand.does(Del, &request)?;
    order(&stand.heard(), &[(Del, 3), (Del, 2), (Del, 1)])
}

/// Container ID and interface name of each ADD that was heard.
fn attachments(stand: &Stand) -> Vec<(String, String)> {
    let mut all: Vec<_> = stand
        .heard_of(Add)
        .iter()
        .map(|call| (call.variable("CNI_CONTAINERID").to_owned(), call.variable("CNI_IFNAME").to_owned()))
        .collect();
    all.dedup();
    all
}

/// A request to collect what belongs to none of two containers that are there, and the two.
fn two_valid(stand: &Stand) -> Result<(Request, Vec<(String, String)>), Stop> {
    let mut last = stand.request();
    stand.does(Add, &last)?;
    last = stand.request();
    stand.does(Add, &last)?;
    let valid = attachments(stand);
    last.keep = valid.iter().map(|(id, ifname)| format!("{id}/{ifname}")).collect();
    stand.forget();
    Ok((last, valid))
}

fn gc_names_valid(stand: &Stand) -> End {
    stand.lay_three();
    let (mut request, mut valid) = two_valid(stand)?;
    if stand.driver.gives("keep") {
        // One of the two is no longer in use.
        request.keep.truncate(1);
        valid.truncate(1);
    }
    stand.does(Gc, &request)?;
    let heard = stand.heard_of(Gc);
    same("plugins called", &3, &heard.len())?;
    for call in &heard {
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

fn gc_goes_on(stand: &Stand) -> End {
    stand.lay(&stand.list(&failing(stand, 2, Gc)));
    let (request, _) = two_valid(stand)?;
    stand.run(Gc, &request)?.fails("a plugin did")?;
    let mut places: Vec<_> = stand.heard_of(Gc).iter().map(Heard::place).collect();
    places.sort_unstable();
    same("places of plugins that were called with GC", [1, 2, 3].as_slice(), places.as_slice())
}

/// Also of a runtime whose driver cannot name what is valid: both containers are.
fn gc_is_no_del(stand: &Stand) -> End {
    stand.lay_three();
    let (request, _) = two_valid(stand)?;
    stand.run(Gc, &request)?;
    order(&stand.heard_of(Del), &[])
}

fn no_gc(stand: &Stand) -> End {
    stand.lay_three();
    let (request, _) = two_valid(stand)?;
    stand.run(Gc, &request)?;
    order(&stand.heard_of(Gc), &[])
}

fn gc_disabled(stand: &Stand) -> End {
    stand.lay(&with_key(stand, "disableGC", json!(true)));
    let (request, _) = two_valid(stand)?;
    stand.run(Gc, &request)?;
    order(&stand.heard_of(Gc), &[])
}

fn status_asks_each(stand: &Stand) -> End {
    stand.lay_three();
    stand.does(Status, &stand.request())?;
    let mut places: Vec<_> = stand.heard_of(Status).iter().map(Heard::place).collect();
    places.sort_unstable();
    same("places of plugins that were called with STATUS", [1, 2, 3].as_slice(), places.as_slice())?;
    let has_attachments = |call: &Heard| call.config().get("prevResult").is_some() || call.config().get(KEY).is_none();
    holds(!stand.heard().iter().any(has_attachments), "the plugin object and no prevResult", "it was otherwise")
}

fn status_fails(stand: &Stand) -> End {
    let fail = Order::fail(&stand.version, 50, "no more addresses");
    stand.lay(&stand.list(&[stand.judge(1), stand.judge_with(2, &[(Status, fail)])]));
    let ran = stand.run(Status, &stand.request())?.fails("a plugin did")?;
    let told = ran.output.stdout + &ran.output.stderr;
    holds(
        told.contains("no more addresses"),
        "the plugin's message in what the runtime prints",
        format!("it printed {told:?}"),
    )
}

fn no_status(stand: &Stand) -> End {
    stand.works()?;
    stand.lay_three();
    stand.run(Status, &stand.request())?;
    order(&stand.heard(), &[])
}
