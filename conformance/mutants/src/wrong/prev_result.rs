//! The fate of prevResult.

use super::put;
use crate::{Mutant, MutantCall};
use serde_json::{Value, json};
use skel::Reply;
use skel::cni_spec::Command::Add;

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new("tuning", "add.echoes-prev-result", "echoes-no-address-in-0.4.0", |call| {
        call.on(Add, |result| drop(result.as_object_mut().map(|result| result.shift_remove("ips"))))
    })
    .speaking(&["0.4.0"])
    .also(&["add.result-has-all-addresses"]),
    Mutant::new("tuning", "add.passes-prev-result-on", "drops-dns", |call| {
        call.on(Add, |result| drop(result.as_object_mut().map(|result| result.shift_remove("dns"))))
    })
    .with(&["dns"]),
    Mutant::new("tuning", "add.passes-prev-result-on", "sorts-the-nameservers-of-others", |call| {
        call.on(Add, |result| {
            if let Some(list) = result.pointer_mut("/dns/nameservers").and_then(Value::as_array_mut) {
                list.sort_by_key(ToString::to_string);
            }
        })
    })
    .with(&["dns"]),
    Mutant::new("tuning", "add.passes-prev-result-on", "keeps-one-route", |call| {
        call.on(Add, |result| result["routes"].as_array_mut().into_iter().for_each(|routes| routes.truncate(1)))
    })
    .with(&["routes"]),
    Mutant::new("tuning", "add.passes-prev-result-on", "drops-routes", |call| {
        call.on(Add, |result| drop(result.as_object_mut().map(|result| result.shift_remove("routes"))))
    })
    .with(&["routes"]),
    Mutant::new("tuning", "add.passes-prev-result-on", "drops-gateways", |call| drops_of(call, "ips", "gateway"))
        .with(&["ips"]),
    Mutant::new("tuning", "add.passes-prev-result-on", "moves-addresses-to-another-interface", |call| {
        call.on(Add, |result| {
            for ip in result["ips"].as_array_mut().into_iter().flatten() {
                ip["interface"] = json!(0);
            }
        })
    })
    .with(&["ips"])
    .also(&["add.result-addresses-are-set"]),
    Mutant::new("tuning", "add.passes-prev-result-on", "makes-up-a-mac", |call| {
        call.on(Add, |result| put(result, "/interfaces/0", "mac", json!("0a:99:99:99:99:99")))
    })
    .with(&["macs"])
    .also(&["add.result-mac-is-the-links"]),
    Mutant::new("tuning", "add.passes-unknown-keys-on", "drops-what-it-does-not-know", |call| {
        call.on(Add, |result| drop(result.as_object_mut().map(|result| result.shift_remove("newer"))))
    }),
    Mutant::new("tuning", "add.passes-prev-result-on", "forgets-an-interface", |call| {
        // The bridge, which is the first: indices are one less then.
        call.on(Add, |result| {
            result["interfaces"].as_array_mut().map(|interfaces| interfaces.remove(0));
            for ip in result["ips"].as_array_mut().into_iter().flatten() {
                ip["interface"] = json!(ip["interface"].as_u64().unwrap_or(1) - 1);
            }
        })
    })
    .with(&["interfaces"]),
    Mutant::new("tuning", "add.passes-prev-result-on", "drops-mtus", |call| drops_of(call, "interfaces", "mtu"))
        .with(&["mtus"]),
    Mutant::new("tuning", "add.passes-prev-result-on", "drops-the-scope-of-routes", |call| {
        drops_of(call, "routes", "scope")
    })
    .with(&["routes"]),
    Mutant::new("tuning", "add.passes-prev-result-on", "drops-the-table-of-routes", |call| {
        drops_of(call, "routes", "table")
    })
    .with(&["routes"]),
    Mutant::new("tuning", "add.passes-prev-result-on", "drops-the-priority-of-routes", |call| {
        drops_of(call, "routes", "priority")
    })
    .with(&["routes"]),
    Mutant::new("tuning", "add.passes-prev-result-on", "drops-the-second-address", |call| {
        call.on(Add, |result| {
            if let Some(ips) = result["ips"].as_array_mut().filter(|ips| ips.len() > 1) {
                ips.remove(1);
            }
        })
    })
    .with(&["ips"]),
    Mutant::new("tuning", "add.passes-prev-result-on", "drops-addresses-of-ipv6", |call| {
        call.on(Add, |result| {
            let is_six = |ip: &Value| ip["address"].as_str().is_some_and(|address| address.contains(':'));
            result["ips"].as_array_mut().into_iter().for_each(|ips| ips.retain(|ip| !is_six(ip)));
        })
    })
    .with(&["ips"]),
    Mutant::new("tuning", "add.passes-prev-result-on", "doubles-addresses", |call| doubles(call, "ips")).with(&["ips"]),
    Mutant::new("tuning", "add.passes-prev-result-on", "doubles-routes", |call| doubles(call, "routes"))
        .with(&["routes"]),
];

/// The entries of a list come without a key.
fn drops_of(call: &MutantCall, list: &str, key: &str) -> Reply {
    call.on(Add, |result| {
        for entry in result[list].as_array_mut().into_iter().flatten() {
            entry.as_object_mut().map(|entry| entry.shift_remove(key));
        }
    })
}

/// Each entry comes twice, as of a plugin that appends what it was given to what it was given.
fn doubles(call: &MutantCall, list: &str) -> Reply {
    call.on(Add, |result| {
        let again = result[list].as_array().cloned().unwrap_or_default();
        result[list].as_array_mut().into_iter().for_each(|entries| entries.extend(again.clone()));
    })
}
