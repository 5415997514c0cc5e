//! SPEC 2, Errors, and what a runtime makes of plugins that answer otherwise than they should.

use crate::rules::prelude::*;
use crate::runtime::RuntimeTestbed;
use crate::runtime::assertions::{End, order};
use crate::runtime::mock_plugin::{Gate, Order};
use testns::Verb::Add;

pub(super) const CASES: &[Code<RuntimeTestbed>] = &[
    ("answers.busy-executable", busy_executable),
    ("answers.a-child-holds-stdout", child_holds),
    ("answers.plugin-hangs", plugin_hangs),
];

/// The kernel refuses to execute a file that is open for writing (ETXTBSY of execve(2)).
fn busy_executable(testbed: &RuntimeTestbed) -> End {
    testbed.works()?;
    testbed.lay(&testbed.list(&[testbed.plugin(1), testbed.plugin(2)]));
    let _writer = testbed.keep_busy(1);
    testbed.run(Add, &testbed.request())?.fails("its plugin cannot be executed")?;
    order(&testbed.received_of(Add), &[])
}

fn child_holds(testbed: &RuntimeTestbed) -> End {
    let _gate = Gate::close(); // the child waits for it
    testbed.lay(
        &testbed
            .list(&[testbed.plugin_with(1, &[(Add, Order { holds: true, ..Order::default() })]), testbed.plugin(2)]),
    );
    testbed.does(Add, &testbed.request())?;
    order(&testbed.received(), &[(Add, 1), (Add, 2)])
}

fn plugin_hangs(testbed: &RuntimeTestbed) -> End {
    let Some(patience) = testbed.patience else {
        return Err(Stop::Skips("only tried with --patience".to_owned()));
    };
    testbed.works()?;
    let _gate = Gate::close();
    testbed.lay(&testbed.list(&[testbed.plugin_with(1, &[(Add, Order { waits: true, ..Order::default() })])]));
    testbed.run_within(Add, &testbed.request(), patience)?.fails("its plugin hangs").map(|_| ())
}
