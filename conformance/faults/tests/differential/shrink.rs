//! Reduces a case that differs: leaves out whatever is not needed for the difference.

use std::time::Instant;

use serde_json::Value;

use crate::case::Case;

/// The smallest case found until `deadline` for which `differs` holds, as it does for `case`.
pub(crate) fn shrink(case: &Case, deadline: Instant, differs: impl Fn(&Case) -> bool) -> Case {
    let mut smallest = case.clone();
    loop {
        let smaller = smaller(&smallest.0).into_iter().map(Case);
        let usable = smaller.filter(|case| case.0["config"].is_object() && case.0["plugin"].is_string());
        match usable.take_while(|_| Instant::now() < deadline).find(|case| differs(case)) {
            Some(case) => smallest = case,
            None => return smallest,
        }
    }
}

/// A value with one part left out, the large parts first.
fn smaller(value: &Value) -> Vec<Value> {
    let mut all = Vec::new();
    match value {
        Value::Object(object) => {
            for key in object.keys() {
                let mut rest = object.clone();
                rest.remove(key);
                all.push(Value::Object(rest));
            }
            for (key, part) in object {
                let with = |part| Value::Object(object.clone().into_iter().chain([(key.clone(), part)]).collect());
                all.extend(smaller(part).into_iter().map(with));
            }
        }
        Value::Array(list) => {
            for at in 0..list.len() {
                let rest = list.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, part)| part.clone());
                all.push(Value::Array(rest.collect()));
            }
            for (at, part) in list.iter().enumerate() {
                let with = |part| {
                    let mut list = list.clone();
                    list[at] = part;
                    Value::Array(list)
                };
                all.extend(smaller(part).into_iter().map(with));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    all
}
