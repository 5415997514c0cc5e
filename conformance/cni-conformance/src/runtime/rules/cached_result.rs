//! SPEC 3: what a runtime keeps of an attachment, from ADD to DEL.

use super::RUNTIMES;
use crate::finding::{Finding, Stop};
use crate::rule::{before, relied, since, spec};
use crate::runtime::assertions::{End, order, previous, same};
use crate::runtime::mock_plugin::{Order, Received};
use crate::runtime::{Rule, RuntimeTestbed};
use crate::write_protection::lay_empty;
use std::collections::BTreeSet;
use std::path::Path;
use std::{fs, io};
use testns::Verb::{Add, Check, Del};

pub(super) const RULES: &[Rule] = &[
    spec("lifecycle.del-after-failed-add", &["lifecycle/del-follows"], RUNTIMES)
        .says("DEL follows an ADD that failed: every plugin that ran is called with it, the last one first.")
        .by(&[since("0.3.0", "", del_after_failed_add)
            .does("The second of three plugins fails; DEL has to call the second, then the first.")]),
    spec("lifecycle.del-of-all-in-0.4.0", &["adding/del-of-all-0.4.0"], RUNTIMES)
        .says("After an ADD that failed, DEL calls all plugins of the list, those that ADD did not call too.")
        .by(&[before("1.0.0", "", del_of_all).does("The second of three plugins fails; DEL has to call all three.")]),
    spec(
        "lifecycle.del-again-after-failed-del",
        &["del/prev-result", "deriving/prev-result", "del/prev-result-0.4.0"],
        RUNTIMES,
    )
    .says("The result of ADD is kept until DEL succeeds: a DEL after one that failed has it still.")
    .by(&[since("0.4.0", "", del_after_failed_del)
        .does("DEL fails by its second plugin, and comes again; it has to have prevResult.")]),
    relied("lifecycle.result-is-forgotten", "plugins, which DEL an earlier container by its result", RUNTIMES)
        .says("The result of ADD is forgotten with DEL: a next ADD and DEL of the container know nothing of it.")
        .by(&[since("0.4.0", "", result_is_forgotten)
            .does("ADD and DEL, DEL again; then ADD and DEL with another plugin.")]),
    spec("lifecycle.result-is-forgotten-in-0.4.0", &["del/forgets-0.4.0"], RUNTIMES)
        .says("A kept result is deleted when DEL succeeded.")
        .by(&[before("1.0.0", "", result_is_forgotten)
            .does("ADD and DEL, DEL again; then ADD and DEL with another plugin.")]),
    spec(
        "lifecycle.result-is-of-attachment",
        &["del/prev-result", "deriving/prev-result", "del/prev-result-0.4.0"],
        RUNTIMES,
    )
    .says("The result that is kept is that of the container and interface, not one of the network.")
    .by(&[since("0.4.0", "", result_is_of_attachment)
        .does("ADD of two containers, DEL of the first; prevResult has to be its own.")]),
    spec("lifecycle.no-check-without-add", &["check/not-added"], RUNTIMES)
        .says("CHECK is not called for what was not added, or was deleted.")
        .by(&[
            since("0.4.0", "never-added", check_of_nothing)
                .does("CHECK of a container that was never added; no plugin may be called."),
            since("0.4.0", "deleted", check_after_del).does("The same after DEL."),
        ]),
    relied("lifecycle.del-twice", "kubelet, which stops a pod more than once", RUNTIMES)
        .says("DEL of what was deleted succeeds.")
        .by(&[since("0.4.0", "", del_twice).does("ADD, DEL, DEL.")]),
    relied("lifecycle.del-after-a-full-disk", "kubelet, which ends no pod whose DEL fails", RUNTIMES)
        .says(
            "An ADD for which the disk has no room leaves nothing at which DEL fails: it succeeds, for the \
              plugins that ran.",
        )
        .by(&[since("0.4.0", "", del_after_a_full_disk)
            .does("ADD while /var/lib/cni is full; with room again, DEL has to call each plugin that ADD called.")]),
    relied("lifecycle.del-without-config", "operators, who change or remove a network while containers run", RUNTIMES)
        .says("DEL is done with the configuration of ADD, and so succeeds when the file of the network is gone.")
        .by(&[since("0.4.0", "", del_without_config)
            .does("The network's file is deleted before DEL, which has to call all three plugins.")]),
];

fn del_of_all(testbed: &RuntimeTestbed) -> End {
    let fail = Order::fail(&testbed.version, 142, "the plugin will not");
    testbed.lay(&testbed.list(&[testbed.plugin(1), testbed.plugin_with(2, &[(Add, fail)]), testbed.plugin(3)]));
    let request = testbed.request();
    testbed.run(Add, &request)?.fails("its plugin did")?;
    // A runtime that rolls back has called DEL already, and may or may not do so again.
    testbed.does(Del, &request)?;
    let mut places: Vec<_> = testbed.received_of(Del).iter().map(Received::place).collect();
    places.sort_unstable();
    places.dedup();
    same("places of plugins that were called with DEL", [1, 2, 3].as_slice(), places.as_slice())
}

fn del_after_failed_add(testbed: &RuntimeTestbed) -> End {
    let fail = Order::fail(&testbed.version, 142, "the plugin will not");
    testbed.lay(&testbed.list(&[testbed.plugin(1), testbed.plugin_with(2, &[(Add, fail)]), testbed.plugin(3)]));
    let request = testbed.request();
    testbed.run(Add, &request)?.fails("its plugin did")?;
    // A runtime that rolls back has called DEL already, and may or may not do so again.
    testbed.does(Del, &request)?;
    let mut places: Vec<_> = testbed.received_of(Del).iter().map(Received::place).filter(|place| *place < 3).collect();
    let all = places.clone();
    places.truncate(2);
    Finding::unless(places == [2, 1], "DEL of plugin 2, then of plugin 1", format!("DEL was called for {all:?}"))
}

fn del_after_failed_del(testbed: &RuntimeTestbed) -> End {
    let fail = Order::fail(&testbed.version, 11, "try again");
    testbed.lay(&testbed.list(&[testbed.plugin(1), testbed.plugin_with(2, &[(Del, fail)])]));
    let request = testbed.request();
    testbed.does(Add, &request)?;
    let result = testbed.received().last().map(Received::result).unwrap_or_default();
    testbed.run(Del, &request)?.fails("its plugin did")?;
    testbed.forget();
    testbed.lay(&testbed.list(&[testbed.plugin(1), testbed.plugin(2)]));
    testbed.does(Del, &request)?;
    let received = testbed.received();
    // With the configuration of ADD, plugin 2 fails once more; this one has no cause to.
    let first = received.first().ok_or_else(|| Stop::Skips("it called no plugin".to_owned()))?;
    previous(first, &result)
}

fn result_is_forgotten(testbed: &RuntimeTestbed) -> End {
    testbed.lay(&testbed.list(&[testbed.plugin(1)]));
    let request = testbed.request();
    testbed.does(Add, &request)?;
    testbed.does(Del, &request)?;
    testbed.forget();
    testbed.run(Del, &request)?;
    let stale: Vec<_> = testbed
        .received()
        .iter()
        .filter(|call| call.config().get("prevResult").is_some())
        .map(Received::place)
        .collect();
    same("places of plugins that got a prevResult with the second DEL", [0; 0].as_slice(), stale.as_slice())?;
    testbed.lay(&testbed.list(&[testbed.plugin(3)]));
    testbed.forget();
    testbed.does(Add, &request)?;
    let result = testbed.received().last().map(Received::result).unwrap_or_default();
    testbed.forget();
    testbed.does(Del, &request)?;
    let received = testbed.received();
    order(&received, &[(Del, 3)])?;
    received.iter().try_for_each(|call| previous(call, &result))
}

fn result_is_of_attachment(testbed: &RuntimeTestbed) -> End {
    let (one, other) = (testbed.request(), testbed.request());
    testbed.lay(&testbed.list(&[testbed.plugin(1)]));
    testbed.does(Add, &one)?;
    let result = testbed.received().last().map(Received::result).unwrap_or_default();
    testbed.does(Add, &other)?;
    testbed.forget();
    testbed.does(Del, &one)?;
    let received = testbed.received();
    order(&received, &[(Del, 1)])?;
    received.iter().try_for_each(|call| previous(call, &result))
}

fn check_of_nothing(testbed: &RuntimeTestbed) -> End {
    testbed.works()?;
    testbed.lay_three();
    testbed.run(Check, &testbed.request())?; // an error or a success, as it likes
    order(&testbed.received(), &[])
}

fn check_after_del(testbed: &RuntimeTestbed) -> End {
    testbed.lay_three();
    let request = testbed.request();
    testbed.does(Add, &request)?;
    testbed.does(Del, &request)?;
    testbed.forget();
    testbed.run(Check, &request)?;
    order(&testbed.received(), &[])
}

fn del_twice(testbed: &RuntimeTestbed) -> End {
    testbed.lay_three();
    let request = testbed.request();
    testbed.does(Add, &request)?;
    testbed.does(Del, &request)?;
    testbed.does(Del, &request).map(|_| ())
}

/// The folder in which libcni keeps results, and others below it.
const STATE: &str = "/var/lib/cni";

fn del_after_a_full_disk(testbed: &RuntimeTestbed) -> End {
    testbed.works()?;
    testbed.lay_three();
    let request = testbed.request();
    let laid = lay_empty(Path::new(STATE), "mode=0755,size=256k");
    laid.unwrap_or_else(|errno| panic!("cannot lay a small disk on {STATE}: {errno}"));
    let ballast = Path::new(STATE).join("ballast");
    // Write until the disk is full.
    let written = fs::File::create(&ballast).map(|mut file| io::copy(&mut io::repeat(0), &mut file));
    written.unwrap_or_else(|error| panic!("cannot fill {STATE}: {error}")).ok();
    testbed.run(Add, &request)?; // an error or, of a runtime that keeps nothing there, a success
    fs::remove_file(&ballast).unwrap_or_else(|error| panic!("cannot make room: {error}"));
    testbed.does(Del, &request)?;
    let places = |verb| testbed.received_of(verb).iter().map(Received::place).collect::<BTreeSet<_>>();
    let (added, deleted) = (places(Add), places(Del));
    Finding::unless(
        added.is_subset(&deleted),
        format!("DEL of plugins {added:?}"),
        format!("DEL was called for {deleted:?}"),
    )
}

fn del_without_config(testbed: &RuntimeTestbed) -> End {
    testbed.lay_three();
    let request = testbed.request();
    testbed.does(Add, &request)?;
    testbed.take_away();
    testbed.forget();
    testbed.does(Del, &request)?;
    order(&testbed.received(), &[(Del, 3), (Del, 2), (Del, 1)])
}
