//! SPEC 3: what a runtime keeps of an attachment, from ADD to DEL.

use super::RUNTIMES;
use crate::finding::{Finding, Stop};
use crate::rule::{before, relied, since, spec};
use crate::runtime::assertions::{End, order, previous, same};
use crate::runtime::mock_plugin::{Order, Received};
use crate::runtime::{Rule, RuntimeBench};
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

fn del_of_all(bench: &RuntimeBench) -> End {
    let fail = Order::fail(&bench.version, 142, "the plugin will not");
    bench.lay(&bench.list(&[bench.plugin(1), bench.plugin_with(2, &[(Add, fail)]), bench.plugin(3)]));
    let request = bench.request();
    bench.run(Add, &request)?.fails("its plugin did")?;
    // A runtime that rolls back has called DEL already, and may or may not do so again.
    bench.does(Del, &request)?;
    let mut places: Vec<_> = bench.received_of(Del).iter().map(Received::place).collect();
    places.sort_unstable();
    places.dedup();
    same("places of plugins that were called with DEL", [1, 2, 3].as_slice(), places.as_slice())
}

fn del_after_failed_add(bench: &RuntimeBench) -> End {
    let fail = Order::fail(&bench.version, 142, "the plugin will not");
    bench.lay(&bench.list(&[bench.plugin(1), bench.plugin_with(2, &[(Add, fail)]), bench.plugin(3)]));
    let request = bench.request();
    bench.run(Add, &request)?.fails("its plugin did")?;
    // A runtime that rolls back has called DEL already, and may or may not do so again.
    bench.does(Del, &request)?;
    let mut places: Vec<_> = bench.received_of(Del).iter().map(Received::place).filter(|place| *place < 3).collect();
    let all = places.clone();
    places.truncate(2);
    Finding::unless(places == [2, 1], "DEL of plugin 2, then of plugin 1", format!("DEL was called for {all:?}"))
}

fn del_after_failed_del(bench: &RuntimeBench) -> End {
    let fail = Order::fail(&bench.version, 11, "try again");
    bench.lay(&bench.list(&[bench.plugin(1), bench.plugin_with(2, &[(Del, fail)])]));
    let request = bench.request();
    bench.does(Add, &request)?;
    let result = bench.received().last().map(Received::result).unwrap_or_default();
    bench.run(Del, &request)?.fails("its plugin did")?;
    bench.forget();
    bench.lay(&bench.list(&[bench.plugin(1), bench.plugin(2)]));
    bench.does(Del, &request)?;
    let received = bench.received();
    // With the configuration of ADD, plugin 2 fails once more; this one has no cause to.
    let first = received.first().ok_or_else(|| Stop::Skips("it called no plugin".to_owned()))?;
    previous(first, &result)
}

fn result_is_forgotten(bench: &RuntimeBench) -> End {
    bench.lay(&bench.list(&[bench.plugin(1)]));
    let request = bench.request();
    bench.does(Add, &request)?;
    bench.does(Del, &request)?;
    bench.forget();
    bench.run(Del, &request)?;
    let stale: Vec<_> =
        bench.received().iter().filter(|call| call.config().get("prevResult").is_some()).map(Received::place).collect();
    same("places of plugins that got a prevResult with the second DEL", [0; 0].as_slice(), stale.as_slice())?;
    bench.lay(&bench.list(&[bench.plugin(3)]));
    bench.forget();
    bench.does(Add, &request)?;
    let result = bench.received().last().map(Received::result).unwrap_or_default();
    bench.forget();
    bench.does(Del, &request)?;
    let received = bench.received();
    order(&received, &[(Del, 3)])?;
    received.iter().try_for_each(|call| previous(call, &result))
}

fn result_is_of_attachment(bench: &RuntimeBench) -> End {
    let (one, other) = (bench.request(), bench.request());
    bench.lay(&bench.list(&[bench.plugin(1)]));
    bench.does(Add, &one)?;
    let result = bench.received().last().map(Received::result).unwrap_or_default();
    bench.does(Add, &other)?;
    bench.forget();
    bench.does(Del, &one)?;
    let received = bench.received();
    order(&received, &[(Del, 1)])?;
    received.iter().try_for_each(|call| previous(call, &result))
}

fn check_of_nothing(bench: &RuntimeBench) -> End {
    bench.works()?;
    bench.lay_three();
    bench.run(Check, &bench.request())?; // an error or a success, as it likes
    order(&bench.received(), &[])
}

fn check_after_del(bench: &RuntimeBench) -> End {
    bench.lay_three();
    let request = bench.request();
    bench.does(Add, &request)?;
    bench.does(Del, &request)?;
    bench.forget();
    bench.run(Check, &request)?;
    order(&bench.received(), &[])
}

fn del_twice(bench: &RuntimeBench) -> End {
    bench.lay_three();
    let request = bench.request();
    bench.does(Add, &request)?;
    bench.does(Del, &request)?;
    bench.does(Del, &request).map(|_| ())
}

/// The folder in which libcni keeps results, and others below it.
const STATE: &str = "/var/lib/cni";

fn del_after_a_full_disk(bench: &RuntimeBench) -> End {
    bench.works()?;
    bench.lay_three();
    let request = bench.request();
    let laid = lay_empty(Path::new(STATE), "mode=0755,size=256k");
    laid.unwrap_or_else(|errno| panic!("cannot lay a small disk on {STATE}: {errno}"));
    let ballast = Path::new(STATE).join("ballast");
    // Write until the disk is full.
    let written = fs::File::create(&ballast).map(|mut file| io::copy(&mut io::repeat(0), &mut file));
    written.unwrap_or_else(|error| panic!("cannot fill {STATE}: {error}")).ok();
    bench.run(Add, &request)?; // an error or, of a runtime that keeps nothing there, a success
    fs::remove_file(&ballast).unwrap_or_else(|error| panic!("cannot make room: {error}"));
    bench.does(Del, &request)?;
    let places = |verb| bench.received_of(verb).iter().map(Received::place).collect::<BTreeSet<_>>();
    let (added, deleted) = (places(Add), places(Del));
    Finding::unless(
        added.is_subset(&deleted),
        format!("DEL of plugins {added:?}"),
        format!("DEL was called for {deleted:?}"),
    )
}

fn del_without_config(bench: &RuntimeBench) -> End {
    bench.lay_three();
    let request = bench.request();
    bench.does(Add, &request)?;
    bench.take_away();
    bench.forget();
    bench.does(Del, &request)?;
    order(&bench.received(), &[(Del, 3), (Del, 2), (Del, 1)])
}
