//! SPEC 1: how a runtime reads a network's list, and finds the executables that it names.

use crate::rules::prelude::*;
use crate::runtime::RuntimeTestbed;
use crate::runtime::assertions::{End, each, same};
use crate::runtime::mock_plugin::{PREFIX, Received};
use std::fs;
use testns::Verb::{Add, Check, Del, Gc};

pub(super) const CASES: &[Code<RuntimeTestbed>] = &[
    ("config.aside-come-last", aside_come_last),
    ("config.aside-is-validated", aside_is_validated),
    ("config.search-order/first", |testbed| found_in(testbed, "a", 0)),
    ("config.search-order/second", |testbed| found_in(testbed, "far", 1)),
    ("config.missing-executable/CHECK", |testbed| missing_later(testbed, Check)),
    ("config.missing-executable/DEL", |testbed| missing_later(testbed, Del)),
    ("config.missing-executable/GC", |testbed| missing_later(testbed, Gc)),
    ("config.broken-neighbour", broken_neighbour),
];

fn aside(testbed: &RuntimeTestbed) {
    testbed.lay_aside("20-last.conf", &testbed.plugin(3));
    testbed.lay_aside("10-first.conf", &testbed.plugin(2));
    testbed.lay_aside("30-note.txt", &json!("no plugin object"));
}

fn aside_come_last(testbed: &RuntimeTestbed) -> End {
    testbed.lay(&testbed.list(&[testbed.plugin(1)]));
    aside(testbed);
    testbed.does(Add, &testbed.request())?;
    let received = testbed.received_of(Add);
    match received.first().map(Received::place) {
        Some(1) if received.iter().all(|call| call.place() == 1) => {
            Err(Stop::Skips("it loads no plugins from elsewhere".to_owned()))
        }
        place => same("the plugin that is called first", &Some(1), &place),
    }
}

fn aside_is_validated(testbed: &RuntimeTestbed) -> End {
    testbed.works()?;
    let list = testbed.list(&[testbed.plugin(1)]);
    let mut invalid = testbed.plugin(2);
    invalid["type"] = json!(format!("../bin/{PREFIX}-a"));
    testbed.lay(&list);
    testbed.lay_aside("10-invalid.conf", &invalid);
    // The runtime may go on without the invalid object, or not.
    testbed.run(Add, &testbed.request())?;
    let called: Vec<_> = testbed.received().iter().map(Received::place).filter(|place| *place == 2).collect();
    same("calls of the plugin whose object is not valid", [0; 0].as_slice(), called.as_slice())
}

fn found_in(testbed: &RuntimeTestbed, ending: &str, folder: usize) -> End {
    testbed.needs("bin_dir")?;
    let mut object = testbed.plugin(1);
    object["type"] = json!(format!("{PREFIX}-{ending}"));
    testbed.lay(&testbed.list(&[object]));
    testbed.does(Add, &testbed.request())?;
    let expected = testbed.bin_dirs()[folder].join(format!("{PREFIX}-{ending}")).display().to_string();
    each(&testbed.received_of(Add), |call| {
        same("the executable", &expected, &call.arguments.first().cloned().unwrap_or_default())
    })
}

fn missing_later(testbed: &RuntimeTestbed, verb: testns::Verb) -> End {
    testbed.lay(&testbed.list(&[testbed.plugin(1), testbed.plugin(2)]));
    let request = testbed.request();
    testbed.does(Add, &request)?;
    let removed = fs::remove_file(testbed.node.bin_dir().join(format!("{PREFIX}-b")));
    removed.unwrap_or_else(|error| panic!("cannot remove a plugin: {error}"));
    testbed.run(verb, &request)?.fails("an executable is missing").map(|_| ())
}

fn broken_neighbour(testbed: &RuntimeTestbed) -> End {
    let written = fs::write("/etc/cni/net.d/05-broken.conflist", "{\"name\":");
    written.unwrap_or_else(|error| panic!("cannot write: {error}"));
    testbed.lay(&testbed.list(&[testbed.plugin(1)]));
    testbed.does(Add, &testbed.request())?;
    each(&testbed.received_of(Add), |_call| Ok(()))
}
