//! IPAM plugins.

use super::{put, says};
use crate::{Act, MutantCall, side_effect};
use serde_json::json;
use skel::cni_spec::Command::{Add, Check, Del};
use std::fs;
use std::path::PathBuf;

pub(super) const ACTS: &[Act] = &[
    ("gives-one-to-each-request", |call| {
        // The address that the container already has is another container's during this call.
        call.with_env_if(
            call.is(Add) && call.env.args.contains("IP=") && !call.env.container_id.contains("web"),
            |env| env.container_id.push_str("-again"),
        )
    }),
    ("reports-an-index-of-an-interface", |call| call.reports(|result| put(result, "/ips/0", "interface", json!(0)))),
    ("forgets-the-routes-of-the-config", |call| call.reports(|result| result["routes"] = json!([]))),
    ("makes-an-interface", |call| {
        if !call.has_netns() || call.env.ifname.len() > 10 {
            return call.honest();
        }
        let name = format!("ipam-{}", call.env.ifname);
        if call.is(Del) {
            side_effect::remove_link(&call.container(), &name);
        }
        call.after(Add, || side_effect::make_link(&call.container(), &name))
    }),
    ("gives-all-the-same-address", |call| {
        // Of those that were not asked for.
        call.reports(|result| {
            let address = &mut result["ips"][0]["address"];
            if address.as_str().is_some_and(|address| address.starts_with("10.77.0.") || address.starts_with("10.66."))
            {
                *address = json!("10.77.0.2/16");
            }
        })
    }),
    ("releases-with-a-namespace-only", |call| {
        call.does_nothing_if(call.is(Del) && is_small(call) && !call.has_netns())
    }),
    ("gives-whatever-is-requested", |call| {
        let requested = call.env.args.split(';').find_map(|pair| pair.strip_prefix("IP=").map(str::to_owned));
        if let Some(address) = requested.filter(|_| call.is(Add)) {
            let held = files().into_iter().filter(|file| file.ends_with(&address));
            held.for_each(|file| fs::remove_file(&file).unwrap_or_else(|error| panic!("{error}")));
        }
        call.honest()
    }),
    ("misses-no-reservation", |call| {
        call.does_nothing_if(call.is(Check) && super::del::has_file_of("pod-")) // anybody's
    }),
    ("gives-nothing-when-there-is-nothing", |call| {
        let reply = call.honest();
        match call.is(Add) && reply.exit != 0 && says(&reply, "no IP addresses available") {
            true => call.boast(),
            false => reply,
        }
    }),
    ("forgets-the-priority-of-a-route", |call| {
        call.reports(|result| {
            for route in result["routes"].as_array_mut().into_iter().flatten() {
                route.as_object_mut().map(|route| route.shift_remove("priority"));
            }
        })
    }),
    ("gives-the-address-of-the-gateway", |call| {
        call.reports(|result| {
            if !is_unasked(call) {
                return;
            }
            let gateway = result["ips"][0]["gateway"].as_str().unwrap_or_default().to_owned();
            result["ips"][0]["address"] = json!(format!("{gateway}/16"));
        })
    }),
    ("gives-the-broadcast-address", |call| {
        call.reports(|result| {
            if is_unasked(call) {
                result["ips"][0]["address"] = json!("10.77.255.255/16");
            }
        })
    }),
    ("releases-all-of-a-container", |call| {
        call.after(Del, || {
            // The kit's names where one begins like another: other rules have others.
            for file in files().into_iter().filter(|_| call.env.container_id.starts_with("web-")) {
                let is_its = fs::read_to_string(&file).is_ok_and(|text| text.starts_with(&call.env.container_id));
                if is_its {
                    fs::remove_file(&file).unwrap_or_else(|error| panic!("{error}"));
                }
            }
        })
    }),
];

/// Whether a rule about pools has made the range small.
pub(super) fn is_small(call: &MutantCall) -> bool {
    call.config()["ipam"]["ranges"][0][0]["rangeEnd"].is_string()
}

/// Whether no caller asks for an address or a range: other rules ask that such a request is heeded.
fn is_unasked(call: &MutantCall) -> bool {
    let config = call.config();
    call.env.args.is_empty() && config["args"].is_null() && config["runtimeConfig"].is_null()
}

fn files() -> Vec<PathBuf> {
    let folders = fs::read_dir("/var/lib/cni/networks").into_iter().flatten().flatten();
    folders.flat_map(|folder| fs::read_dir(folder.path())).flatten().flatten().map(|file| file.path()).collect()
}
