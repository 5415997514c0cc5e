//! Checks that cases for runtimes share.

use super::mock_plugin::Received;
use crate::finding::{Finding, Stop};
use crate::spec_version::is_from;
use serde::Serialize;
use serde_json::{Value, json};
use testns::Verb;

pub(crate) type End = Result<(), Stop>;

pub(crate) fn same<T: PartialEq + Serialize + ?Sized>(what: &str, expected: &T, seen: &T) -> End {
    Finding::unless(expected == seen, format!("{what}: {}", json!(expected)), format!("it was {}", json!(seen)))
}

/// Checks that mock plugins were called with these verbs at these places of the list, in this order.
pub(crate) fn order(received: &[Received], expected: &[(Verb, u64)]) -> End {
    order_of(received, &expected.iter().map(|(verb, place)| format!("{verb} {place}")).collect::<Vec<_>>())
}

/// The same of calls as texts: `ADD 1`. Each run of the list is judged for itself, as a runtime may repeat one: DEL before ADD and more
/// than once (SPEC 3, Lifecycle & Ordering), ADD after one that failed. Calls with verbs that are not expected count if they attach.
pub(crate) fn order_of(received: &[Received], expected: &[String]) -> End {
    let places = |run: &[Received]| run.iter().map(text).collect::<Vec<_>>();
    let verb = |call: &str| call.split(' ').next().unwrap_or_default().to_owned();
    let is_wanted = |run: &&[Received]| {
        let asks_nothing = run.iter().any(|call| call.verb() == "VERSION");
        run.iter().any(|call| call.verb() == "ADD" || expected.iter().any(|wanted| verb(wanted) == call.verb()))
            || expected.is_empty() && !asks_nothing
    };
    let mut seen: Vec<Vec<String>> = Vec::new();
    let mut may_add = true;
    for run in runs(received) {
        let is_add = run.iter().any(|call| call.verb() == "ADD");
        if is_wanted(&run) && (seen.last() != Some(&places(run)) || is_add && !may_add) {
            seen.push(places(run));
        }
        may_add = run.iter().any(|call| call.verb() == "DEL" || call.has_failed());
    }
    if expected.first().is_some_and(|call| verb(call) == "ADD") {
        let first = seen.iter().position(|run| run.iter().any(|call| verb(call) == "ADD")).unwrap_or_default();
        seen.drain(..first);
    }
    let seen = seen.concat();
    // ADD that is taken back and tried again.
    let has_both = expected.iter().any(|call| expected.first().is_some_and(|first| verb(first) != verb(call)));
    let is_repeated = |seen: &[String]| has_both && seen.chunks(expected.len()).all(|run| run == expected);
    match seen == expected || !seen.is_empty() && is_repeated(&seen) {
        true => Ok(()),
        false => same("calls of plugins, by their places in the list", expected, places(received).as_slice()),
    }
}

fn text(call: &Received) -> String {
    format!("{} {}", call.verb(), call.place())
}

/// The runs of a list that calls are: neighbours with one verb, each place once.
pub(crate) fn runs(received: &[Received]) -> Vec<&[Received]> {
    let mut runs = Vec::new();
    let mut rest = received;
    while let Some(first) = rest.first() {
        let is_next = |(index, call): (usize, &Received)| {
            call.verb() != first.verb() || rest.iter().take(index).any(|before| before.place() == call.place())
        };
        let end = rest.iter().enumerate().position(is_next).unwrap_or(rest.len());
        let (run, others) = rest.split_at(end);
        runs.push(run);
        rest = others;
    }
    runs
}

/// The first run of a list among calls: with a DEL that succeeded a result is forgotten, and what follows may go without it.
pub(crate) fn first_run(received: &[Received]) -> &[Received] {
    runs(received).into_iter().next().unwrap_or_default()
}

/// Judges each call of the plugin, of which there has to be one at least.
pub(crate) fn each(received: &[Received], judge: impl FnMut(&Received) -> End) -> End {
    Finding::unless(!received.is_empty(), "a call of the plugin", "there was none")?;
    received.iter().try_for_each(judge)
}

/// A result without what may be left out or be there: an empty dns.
pub(crate) fn plain(mut result: Value) -> Value {
    if let Some(object) = result.as_object_mut() {
        object.retain(|_, value| !value.is_null() && value.as_object().is_none_or(|object| !object.is_empty()));
    }
    result
}

/// Checks that a config has this previous result.
pub(crate) fn previous(call: &Received, expected: &Value) -> End {
    let (verb, place) = (call.verb(), call.place());
    match call.config().get("prevResult") {
        // Before 1.0.0 a runtime gives a result with DEL if it knows one, and need not keep it.
        None if verb == "DEL" && !is_from(call.config()["cniVersion"].as_str().unwrap_or_default(), "1.0.0") => {
            Err(Stop::Skips("it keeps no result of ADD".to_owned()))
        }
        None => {
            Err(Finding::new(format!("a prevResult for {verb} of plugin {place}"), "there was none".to_owned()).into())
        }
        Some(seen) => {
            same(&format!("prevResult for {verb} of plugin {place}"), &plain(expected.clone()), &plain(seen.clone()))
        }
    }
}
