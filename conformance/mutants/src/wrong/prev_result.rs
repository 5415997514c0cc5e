//! The fate of prevResult.

use super::put;
use crate::{Act, MutantCall};
use serde_json::json;
use skel::Reply;
use skel::cni_spec::Command::Add;

pub(super) const ACTS: &[Act] = &[
    ("echoes-no-address-in-0.4.0", |call| {
        call.on(Add, |result| drop(result.as_object_mut().map(|result| result.shift_remove("ips"))))
    }),
    ("drops-dns", |call| call.on(Add, |result| drop(result.as_object_mut().map(|result| result.shift_remove("dns"))))),
    ("drops-gateways", |call| drops_of(call, "ips", "gateway")),
    ("makes-up-a-mac", |call| call.on(Add, |result| put(result, "/interfaces/0", "mac", json!("0a:99:99:99:99:99")))),
    ("drops-what-it-does-not-know", |call| {
        call.on(Add, |result| drop(result.as_object_mut().map(|result| result.shift_remove("newer"))))
    }),
    ("forgets-an-interface", |call| {
        // The bridge, which is the first: indices are one less then.
        call.on(Add, |result| {
            result["interfaces"].as_array_mut().map(|interfaces| interfaces.remove(0));
            for ip in result["ips"].as_array_mut().into_iter().flatten() {
                ip["interface"] = json!(ip["interface"].as_u64().unwrap_or(1) - 1);
            }
        })
    }),
    ("drops-mtus", |call| drops_of(call, "interfaces", "mtu")),
    ("drops-sockets-and-devices", |call| drops_of(call, "interfaces", "pciID")),
    ("drops-the-table-of-routes", |call| drops_of(call, "routes", "table")),
    ("doubles-addresses", |call| doubles(call, "ips")),
    ("doubles-routes", |call| doubles(call, "routes")),
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
