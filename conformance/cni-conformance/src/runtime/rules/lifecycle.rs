//! SPEC 3, Lifecycle & Ordering: what may happen at the same time, and what twice.

use crate::rules::prelude::*;
use crate::runtime::assertions::{End, same};
use crate::runtime::mock_plugin::{Gate, Order, Received};
use crate::runtime::{FinishedRun, Request, RuntimeTestbed};
use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;
use testns::Verb::{Add, Del, Gc};

/// The time that a second operation gets to show that it does not wait for the first.
const GRACE: Duration = Duration::from_millis(1500);
/// The time that an operation gets to show that it runs beside another.
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) const CASES: &[Code<RuntimeTestbed>] = &[
    ("lifecycle.one-at-a-time/del-during-add", del_during_add),
    ("lifecycle.one-at-a-time/two-interfaces", two_interfaces),
    ("lifecycle.gc-alone/gc-during-add", gc_alone),
    ("lifecycle.gc-alone/add-during-gc", add_during_gc),
    ("lifecycle.no-second-add", no_second_add),
    ("lifecycle.no-second-add-in-0.4.0", no_second_add),
    ("lifecycle.containers-in-parallel", in_parallel),
];

fn waiting() -> Order {
    Order { waits: true, ..Order::default() }
}

/// Two operations, one of which began while the plugin of the other waited.
struct Both {
    /// Whether the second's plugin was called while the first's waited.
    overlapped: bool,
    first: FinishedRun,
}

/// Starts one operation, whose plugin waits, then another, and lets the first go on when the second has shown what it
/// does or has had its time.
fn both(
    testbed: &RuntimeTestbed,
    one: (Verb, &Request),
    other: (Verb, &Request),
    patience: Duration,
) -> Result<Both, Stop> {
    let gate = Gate::close();
    thread::scope(|scope| {
        let first = scope.spawn(|| testbed.run(one.0, one.1));
        let began = testbed.receives(PATIENCE, |received| received.iter().any(|call| call.verb() == one.0.to_string()));
        let of_other =
            |received: &[Received]| received.iter().filter(|call| call.verb() == other.0.to_string()).count();
        let known = of_other(&testbed.received());
        let second = scope.spawn(|| testbed.run(other.0, other.1));
        let overlapped = began && testbed.receives(patience, |received| of_other(received) > known);
        drop(gate);
        let [first, second] =
            [first, second].map(|run| run.join().unwrap_or_else(|_panic| panic!("a thread of the case panicked")));
        if one.0 == Gc && !began {
            return Err(Stop::Skips(
                "its GC calls no plugin (SPEC 3, Garbage-collecting a network: it may)".to_owned(),
            ));
        }
        let called = Finding::unless(began, format!("a plugin is called with {}", one.0), "none was");
        called.map_err(|stop| stop.of_call((one.0 == Add).then_some("call.command")))?;
        second?;
        Ok(Both { overlapped, first: first? })
    })
}

fn del_during_add(testbed: &RuntimeTestbed) -> End {
    testbed.lay(&testbed.list(&[testbed.plugin_with(1, &[(Add, waiting())])]));
    let request = testbed.request();
    let Both { overlapped, .. } = both(testbed, (Add, &request), (Del, &request), GRACE)?;
    Finding::unless(
        !overlapped,
        "DEL waits for ADD of the same container",
        "its plugin was called while that of ADD still ran",
    )
}

fn two_interfaces(testbed: &RuntimeTestbed) -> End {
    testbed.needs("ifname")?;
    testbed.lay(&testbed.list(&[testbed.plugin_with(1, &[(Add, waiting())])]));
    let one = testbed.request();
    let mut other = one.clone();
    other.attachment = Attachment { ifname: "net1".to_owned(), ..one.attachment.clone() };
    let Both { overlapped, .. } = both(testbed, (Add, &one), (Add, &other), GRACE)?;
    Finding::unless(
        !overlapped,
        "ADD of a second interface waits for that of the first",
        "its plugin was called meanwhile",
    )
}

fn gc_alone(testbed: &RuntimeTestbed) -> End {
    testbed.lay(&testbed.list(&[testbed.plugin_with(1, &[(Add, waiting())])]));
    let (one, other) = (testbed.request(), testbed.request());
    let Both { overlapped, .. } = both(testbed, (Add, &one), (Gc, &other), GRACE)?;
    Finding::unless(!overlapped, "GC waits for ADD", "its plugin was called while that of ADD still ran")
}

fn add_during_gc(testbed: &RuntimeTestbed) -> End {
    testbed.lay(&testbed.list(&[testbed.plugin_with(1, &[(Gc, waiting())])]));
    let (one, other) = (testbed.request(), testbed.request());
    let Both { overlapped, .. } = both(testbed, (Gc, &one), (Add, &other), GRACE)?;
    Finding::unless(!overlapped, "ADD waits for GC", "its plugin was called while that of GC still ran")
}

fn no_second_add(testbed: &RuntimeTestbed) -> End {
    testbed.lay(&testbed.list(&[testbed.plugin(1)]));
    let request = testbed.request();
    testbed.does(Add, &request)?;
    testbed.run(Add, &request)?; // an error or a success, as it likes
    let received = testbed.received();
    let verbs: Vec<_> = received.iter().map(Received::verb).filter(|verb| ["ADD", "DEL"].contains(verb)).collect();
    let is_twice = verbs.windows(2).any(|pair| pair == ["ADD", "ADD"]);
    Finding::unless(!is_twice, "one ADD, or a DEL before the second", format!("the plugin was called with {verbs:?}"))
}

fn in_parallel(testbed: &RuntimeTestbed) -> End {
    testbed.lay(&testbed.list(&[testbed.plugin_with(1, &[(Add, waiting())])]));
    let (one, other) = (testbed.request(), testbed.request());
    let Both { overlapped, first } = both(testbed, (Add, &one), (Add, &other), PATIENCE)?;
    Finding::unless(
        overlapped,
        "ADD of another container does not wait",
        "its plugin was not called while the first still ran",
    )?;
    // A runtime that gave the first up, and only then began the second, has not run them side by side.
    first.succeeds()?;
    let containers: BTreeSet<_> =
        testbed.received_of(Add).iter().map(|call| call.variable("CNI_CONTAINERID").to_owned()).collect();
    same("containers of which ADD was called", &2, &containers.len())
}
