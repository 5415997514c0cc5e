//! SPEC 5, Success: the form of what ADD prints, in each version. Whether it is true is asked beside ADD.

use crate::result_validation;
use crate::rules::prelude::*;

pub(super) const CASES: &[Code] = &[
    ("results.sandbox-in-0.4.0", has_a_sandbox),
    ("results.routes-are-of-one-family-in-0.4.0", routes_are_of_one_family),
];

fn has_a_sandbox(testbed: &Testbed) -> Result<(), Stop> {
    let pod = testbed.pod();
    let before: Vec<_> = pod.namespace().links().into_iter().map(|link| link.name).collect();
    let result = testbed.add(&pod)?;
    let came = pod.namespace().links().into_iter().map(|link| link.name).filter(|name| !before.contains(name));
    let on_node: Vec<_> = testbed.node.host().links().into_iter().map(|link| link.name).collect();
    for name in came.filter(|name| !on_node.contains(name)) {
        let entry = result["interfaces"].as_array().into_iter().flatten().find(|entry| entry["name"] == json!(name));
        let has_one = entry.is_none_or(|entry| entry["sandbox"].as_str().is_some_and(|sandbox| !sandbox.is_empty()));
        Finding::unless(has_one, format!("a sandbox of {name}"), format!("the result is {result}"))?;
    }
    Ok(())
}

fn routes_are_of_one_family(testbed: &Testbed) -> Result<(), Stop> {
    let result = testbed.add(&testbed.pod())?;
    let routes = result["routes"].as_array().into_iter().flatten();
    let is_six = |route: &Value, key: &str| route[key].as_str().map(|text| text.contains(':'));
    let mixed = |route: &&Value| is_six(route, "gw").is_some_and(|gateway| Some(gateway) != is_six(route, "dst"));
    Finding::unless_none(routes.into_iter().find(mixed), |route| {
        ("dst and gw of one family".to_owned(), format!("the result has {route}"))
    })
}

/// Checks that nothing is wrong in places that start so.
pub(super) fn has_no_faults_in(testbed: &Testbed, result: &Value, places: &[String]) -> Result<(), Stop> {
    let mut faults = result_validation::faults(result, &testbed.version);
    faults.retain(|fault| places.iter().any(|place| fault.starts_with(place)));
    let expected = format!("a result of {}", testbed.version);
    Finding::unless(faults.is_empty(), expected, format!("{}: {result}", faults.join("; ")))
}

/// Checks that a result has no keys that its version does not know.
pub(super) fn has_known_keys(testbed: &Testbed, result: &Value) -> Result<(), Stop> {
    let unknown = result_validation::unknown_keys(result, &testbed.version);
    let expected = format!("keys of {}", testbed.version);
    Finding::unless(unknown.is_empty(), expected, format!("there are {}: {result}", unknown.join(", ")))
}
