//! SPEC 2, Errors, and what a runtime makes of plugins that answer otherwise than they should.

use super::RUNTIMES;
use crate::finding::{Finding, Stop};
use crate::rule::{newest, relied, spec};
use crate::runtime::assertions::{End, order};
use crate::runtime::mock_plugin::{Gate, Order};
use crate::runtime::{Rule, RuntimeTestbed};
use serde_json::json;
use testns::Verb::{Add, Del};

pub(super) const RULES: &[Rule] = &[
    spec("answers.status-counts", &["adding/error"], RUNTIMES)
        .says("A plugin that ends with another status than 0 has failed, whatever it printed.")
        .by(&[
            newest("error", |testbed| fails(testbed, |version| Order::fail(version, 7, "no")))
                .does("An error object and status 7."),
            newest("result", |testbed| {
                fails(testbed, |version| Order { exit: 3, stdout: Some(result(version)), ..Order::default() })
            })
            .does("A result and status 3."),
            newest("nothing", |testbed| {
                fails(testbed, |_| Order { exit: 1, stdout: Some(String::new()), ..Order::default() })
            })
            .does("Nothing and status 1."),
            newest("garbage", |testbed| {
                fails(testbed, |_| Order { exit: 1, stdout: Some("panic: <x>".to_owned()), ..Order::default() })
            })
            .does("No JSON and status 1."),
            newest("signal", |testbed| {
                fails(testbed, |version| Order { dies: true, stdout: Some(result(version)), ..Order::default() })
            })
            .does("A result, and the end by a signal."),
        ]),
    relied("answers.no-result", "runtimes, which would start a container without a network", RUNTIMES)
        .says("An ADD that printed no result has failed, though its plugin ended with 0.")
        .by(&[
            newest("nothing", |testbed| fails(testbed, |_| Order::print("")))
                .does("ADD prints nothing, with status 0."),
            newest("garbage", |testbed| fails(testbed, |_| Order::print("done\n")))
                .does("ADD prints no JSON, with status 0."),
            newest("cut-off", |testbed| fails(testbed, |_| Order::print(r#"{"cniVersion":"1.0.0","ips":["#)))
                .does("ADD prints half an object, with status 0."),
            newest("list", |testbed| fails(testbed, |_| Order::print("[]"))).does("ADD prints a list, with status 0."),
        ]),
    relied("answers.error-with-status-0", "containers, which would start without a network", RUNTIMES)
        .says("An error object in place of a result is no success, though the plugin ended with 0.")
        .by(&[newest("", |testbed| fails(testbed, |version| Order { exit: 0, ..Order::fail(version, 7, "no") }))
            .does("ADD prints an error object, with status 0.")]),
    relied("answers.busy-executable", "installers, which write a plugin in its place", RUNTIMES)
        .says("An executable that is being written is waited for, or ADD fails: it has given no result.")
        .by(&[newest("", busy_executable).does("ADD while the executable is open for writing.")]),
    relied("answers.del-prints-what-it-likes", "plugins that print a result with DEL, as many do", RUNTIMES)
        .says("What a plugin prints with a successful DEL is of no account.")
        .by(&[
            newest("", del_prints).does("The second plugin prints a line with DEL; the first has to be called still.")
        ]),
    relied("answers.much-stderr", "operators, who read it", RUNTIMES)
        .says("A plugin that logs a megabyte is not held up.")
        .by(&[newest("", much_stderr).does("The plugin of ADD writes a megabyte to stderr.")]),
    relied("answers.stderr-is-passed", "operators, who read it", RUNTIMES)
        .says("What a plugin logs comes to where the runtime logs, also when it fails.")
        .by(&[
            newest("success", |testbed| stderr_is_passed(testbed, false))
                .does("The plugin of ADD writes a line to stderr."),
            newest("failure", |testbed| stderr_is_passed(testbed, true)).does("The same, and fails."),
        ]),
    relied("answers.a-child-holds-stdout", "plugins that start a daemon", RUNTIMES)
        .says("A process that a plugin leaves behind with its stdout does not hold up the runtime.")
        .by(&[newest("", child_holds).does("The plugin of ADD leaves a process that keeps stdout open.")]),
    relied("answers.plugin-hangs", "runtimes, which would wait for good", RUNTIMES)
        .says("A plugin that does not end is ended, and that is an error.")
        .by(&[newest("", plugin_hangs).does("The plugin of ADD does not end; the runtime has to, within --patience.")]),
];

fn result(version: &str) -> String {
    let newest = json!({ "cniVersion": "1.1.0", "ips": [{ "address": "10.1.0.2/16" }] });
    crate::result_conversion::in_version(&newest, version).to_string()
}

/// ADD fails when the first of two plugins does this, and the second is not called.
fn fails(testbed: &RuntimeTestbed, answer: fn(&str) -> Order) -> End {
    testbed.lay(&testbed.list(&[testbed.plugin_with(1, &[(Add, answer(&testbed.version))]), testbed.plugin(2)]));
    testbed.run(Add, &testbed.request())?.fails("its plugin's answer is none")?;
    order(&testbed.received_of(Add), &[(Add, 1)])
}

/// The kernel refuses to execute a file that is open for writing (ETXTBSY of execve(2)).
fn busy_executable(testbed: &RuntimeTestbed) -> End {
    testbed.works()?;
    testbed.lay(&testbed.list(&[testbed.plugin(1), testbed.plugin(2)]));
    let _writer = testbed.keep_busy(1);
    testbed.run(Add, &testbed.request())?.fails("its plugin cannot be executed")?;
    order(&testbed.received_of(Add), &[])
}

fn del_prints(testbed: &RuntimeTestbed) -> End {
    testbed.lay(&testbed.list(&[testbed.plugin(1), testbed.plugin_with(2, &[(Del, Order::print("deleted\n"))])]));
    let request = testbed.request();
    testbed.does(Add, &request)?;
    testbed.forget();
    testbed.does(Del, &request)?;
    order(&testbed.received(), &[(Del, 2), (Del, 1)])
}

fn much_stderr(testbed: &RuntimeTestbed) -> End {
    testbed.lay(&testbed.list(&[testbed.plugin_with(1, &[(Add, Order { noise: 1 << 20, ..Order::default() })])]));
    testbed.does(Add, &testbed.request()).map(|_| ())
}

fn stderr_is_passed(testbed: &RuntimeTestbed, and_fails: bool) -> End {
    const LINE: &str = "the plugin has taken a seat";
    let base = if and_fails { Order::fail(&testbed.version, 7, "no") } else { Order::default() };
    testbed.lay(&testbed.list(&[testbed.plugin_with(1, &[(Add, Order { stderr: format!("{LINE}\n"), ..base })])]));
    let ran = testbed.run(Add, &testbed.request())?;
    Finding::unless(
        ran.output.stderr.contains(LINE),
        "the plugin's log on stderr",
        format!("it was {:?}", ran.output.stderr),
    )
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
