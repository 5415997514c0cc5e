//! Checks that cases for runtimes share.

use super::mock_plugin::Received;
use crate::finding::{Finding, Stop};
use serde_json::Value;
use std::fmt::Debug;
use testns::Verb;

/// The ending of a case.
pub(crate) type End = Result<(), Stop>;

/// Checks that something is as it should be.
pub(crate) fn same<T: PartialEq + Debug + ?Sized>(what: &str, expected: &T, seen: &T) -> End {
    Finding::unless(expected == seen, format!("{what}: {expected:?}"), format!("it was {seen:?}"))
}

/// Checks that mock plugins were called with these verbs at these places of the list, in this order.
pub(crate) fn order(received: &[Received], expected: &[(Verb, u64)]) -> End {
    order_of(received, &expected.iter().map(|(verb, place)| format!("{verb} {place}")).collect::<Vec<_>>())
}

/// The same of calls as texts: `ADD 1`.
pub(crate) fn order_of(received: &[Received], expected: &[String]) -> End {
    let seen: Vec<_> = received.iter().map(|call| format!("{} {}", call.verb(), call.place())).collect();
    same("calls of plugins, by their places in the list", expected, seen.as_slice())
}

/// The one call that there was.
pub(crate) fn only(received: &[Received]) -> Result<&Received, Stop> {
    match received {
        [call] => Ok(call),
        _ => Err(Finding::new("one call of the plugin", format!("there were {}", received.len())).into()),
    }
}

/// A result without what may be left out or be there: an empty dns, a version of its own.
pub(crate) fn plain(mut result: Value) -> Value {
    if let Some(object) = result.as_object_mut() {
        object.shift_remove("cniVersion");
        object.retain(|_, value| !value.is_null() && value.as_object().is_none_or(|object| !object.is_empty()));
    }
    result
}

/// Checks that a config has this previous result.
pub(crate) fn previous(call: &Received, expected: &Value) -> End {
    let (verb, place) = (call.verb(), call.place());
    match call.config().get("prevResult") {
        None => {
            Err(Finding::new(format!("a prevResult for {verb} of plugin {place}"), "there was none".to_owned()).into())
        }
        Some(seen) => {
            same(&format!("prevResult for {verb} of plugin {place}"), &plain(expected.clone()), &plain(seen.clone()))
        }
    }
}
