//! SPEC 3: what a runtime keeps of an attachment, from ADD to DEL.

use crate::rules::prelude::*;
use crate::runtime::assertions::{End, first_run, order, previous, same};
use crate::runtime::mock_plugin::{Order, Received};
use crate::runtime::{Request, RuntimeTestbed};
use crate::write_protection::lay_empty;
use std::collections::BTreeSet;
use std::path::Path;
use std::{fs, io};
use testns::Verb::{Add, Check, Del};

pub(super) const CASES: &[Code<RuntimeTestbed>] = &[
    ("lifecycle.del-after-failed-add", del_after_failed_add),
    ("lifecycle.del-of-all-in-0.4.0", del_of_all),
    ("lifecycle.del-again-after-failed-del", del_after_failed_del),
    ("lifecycle.result-is-forgotten", result_is_forgotten),
    ("lifecycle.result-is-forgotten-in-0.4.0", result_is_forgotten),
    ("lifecycle.result-is-of-attachment/containers", |testbed| {
        result_is_own(testbed, &testbed.request(), &testbed.request())
    }),
    ("lifecycle.result-is-of-attachment/interfaces", result_is_of_interface),
    ("lifecycle.no-check-without-add/never-added", check_of_nothing),
    ("lifecycle.no-check-without-add/deleted", check_after_del),
    ("lifecycle.del-twice", del_twice),
    ("lifecycle.del-after-a-full-disk", del_after_a_full_disk),
    ("lifecycle.del-without-config", del_without_config),
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
    let result = testbed.received_of(Add).last().map(Received::result).unwrap_or_default();
    testbed.run(Del, &request)?.fails("its plugin did")?;
    testbed.forget();
    testbed.lay(&testbed.list(&[testbed.plugin(1), testbed.plugin(2)]));
    testbed.does(Del, &request)?;
    let received = testbed.received_of(Del);
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
    let result = testbed.received_of(Add).last().map(Received::result).unwrap_or_default();
    testbed.forget();
    testbed.does(Del, &request)?;
    let received = testbed.received_of(Del);
    order(&received, &[(Del, 3)])?;
    first_run(&received).iter().try_for_each(|call| previous(call, &result))
}

fn result_is_of_interface(testbed: &RuntimeTestbed) -> End {
    testbed.needs("ifname")?;
    let one = testbed.request();
    let mut other = one.clone();
    other.attachment.ifname = "net1".to_owned();
    result_is_own(testbed, &one, &other)
}

fn result_is_own(testbed: &RuntimeTestbed, one: &Request, other: &Request) -> End {
    testbed.lay(&testbed.list(&[testbed.plugin(1)]));
    testbed.does(Add, one)?;
    let result = testbed.received_of(Add).last().map(Received::result).unwrap_or_default();
    testbed.does(Add, other)?;
    testbed.forget();
    testbed.does(Del, one)?;
    let received = testbed.received_of(Del);
    order(&received, &[(Del, 1)])?;
    first_run(&received).iter().try_for_each(|call| previous(call, &result))
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
