//! CHECK.

use crate::{Act, MutantCall, memory};
use netops::link::{self, Link};
use netops::{addr, route};
use serde_json::{Value, json};
use skel::Reply;
use skel::cni_spec::Command::{Add, Check};

pub(super) const ACTS: &[Act] = &[
    ("needs-its-time", |call| {
        if call.is(Check) && memory::forget(&call.attachment()) {
            return call.refuse(107, "the interface has not settled yet");
        }
        call.after(Add, || memory::mark(&call.attachment()))
    }),
    ("is-ready-at-the-second-check", |call| match call.is(Check) && memory::forget(&call.attachment()) {
        true => call.refuse(107, "the link is not ready"),
        false => call.after(Add, || memory::mark(&call.attachment())),
    }),
    ("prints-what-it-checked", |call| {
        let reply = call.honest();
        match call.is(Check) && reply.exit == 0 {
            true => Reply::success(call.config()["prevResult"].to_string()),
            false => reply,
        }
    }),
    ("looks-for-routes-in-the-main-table-alone", |call| {
        let has_table = call.config()["prevResult"]["routes"].to_string().contains("\"table\"");
        call.refuses_if(call.is(Check) && has_table, 110, "a route is not in the main table")
    }),
    ("compares-macs-by-their-letters", |call| {
        let mac = call.config()["runtimeConfig"]["mac"].as_str().unwrap_or_default().to_owned();
        call.refuses_if(call.is(Check) && mac != mac.to_lowercase(), 110, "the link has another mac")
    }),
    ("checks-nothing-without-prev-result", |call| {
        call.does_nothing_if(call.is(Check) && call.config().get("prevResult").is_none())
    }),
    ("checks-what-it-remembers", |call| {
        let key = call.attachment();
        match remembered(&key).filter(|_| call.is(Check) && call.config().get("prevResult").is_some()) {
            Some(result) => call.with_config(|config| config["prevResult"] = result).honest(),
            None => remembers(call),
        }
    }),
    ("expects-the-addresses-that-it-made", |call| {
        let key = call.attachment();
        match remembered(&key).filter(|_| call.is(Check) && call.config()["prevResult"].is_object()) {
            Some(result) => call.with_config(|config| config["prevResult"]["ips"] = result["ips"].clone()).honest(),
            None => remembers(call),
        }
    }),
    ("wants-its-own-result-back", |call| match remembered(&call.attachment()).filter(|_| call.is(Check)) {
        Some(result) if result != call.config()["prevResult"] => call.refuse(107, "the result was changed"),
        _ => remembers(call),
    }),
    ("does-not-look-at-the-interface", |call| {
        // An interface that is gone has taken its end on the node with it, which is left to another rule.
        call.does_nothing_if(call.is(Check) && find_interface(call).is_some() && !is_interface_well(call))
    }),
    ("does-not-look-at-the-host-end", |call| call.does_nothing_if(call.is(Check) && !is_host_end_well(call))),
    ("does-not-look-at-addresses", |call| call.does_nothing_if(call.is(Check) && !has_addresses(call))),
    ("does-not-look-at-routes", |call| {
        // Other harm takes the route with it.
        let is_well = is_interface_well(call) && is_host_end_well(call) && has_addresses(call);
        call.does_nothing_if(call.is(Check) && is_well && !has_default_route(call))
    }),
    ("does-not-look-at-filter-rules", |call| {
        call.with_config_if(call.is(Check) && !call.has_kit_ipam(), |config| config["ipMasq"] = json!(false))
    }),
    ("does-not-look-at-reservations", |call| call.does_nothing_if(call.is(Check))),
    ("does-not-look-at-sysctls", |call| checks_without(call, "/sysctl")),
    ("checks-alone", |call| {
        call.with_config_if(call.is(Check) && call.has_kit_ipam(), |config| config["ipam"] = json!({}))
    }),
    ("checks-with-a-link-of-its-own", |call| {
        call.after(Check, || crate::side_effect::make_link(&crate::side_effect::node(), "checked0"))
    }),
    ("wants-no-address-more", |call| wants_as_added(call, addresses)),
    ("wants-no-route-more", |call| wants_as_added(call, routes)),
    ("wants-no-interface-more", |call| wants_as_added(call, interfaces)),
    ("wants-the-mac-that-it-gave", |call| wants_as_added(call, mac)),
    ("wants-the-mtu-that-it-gave", |call| wants_as_added(call, mtu)),
];

fn remembered(key: &str) -> Option<Value> {
    serde_json::from_str(&memory::find(key)?).ok()
}

/// The honest plugin's reply; the result of ADD is kept.
fn remembers(call: &MutantCall) -> Reply {
    let reply = call.honest();
    if call.is(Add) && reply.exit == 0 {
        memory::note(&call.attachment(), &String::from_utf8_lossy(&reply.stdout));
    }
    reply
}

/// The honest plugin's reply, but CHECK wants something of the container to be as ADD left it.
fn wants_as_added(call: &MutantCall, what: fn(&MutantCall, &Link) -> String) -> Reply {
    let key = call.attachment();
    let now = || find_interface(call).map(|link| what(call, &link)).unwrap_or_default();
    match memory::find(&key).filter(|_| call.is(Check) && find_interface(call).is_some()) {
        Some(then) if then != now() => call.refuse(107, "that is not as it was left"),
        _ => call.after(Add, || memory::note(&key, &now())),
    }
}

fn addresses(call: &MutantCall, link: &Link) -> String {
    let found = addr::list(&call.container(), link).unwrap_or_default();
    found.iter().filter(|address| address.net.is_ipv4()).count().to_string()
}

fn routes(call: &MutantCall, link: &Link) -> String {
    let found = route::list(&call.container(), Some(link.index), Some(MAIN), netops::Family::V4).unwrap_or_default();
    found.len().to_string()
}

fn interfaces(call: &MutantCall, _: &Link) -> String {
    link::list(&call.container(), None).unwrap_or_default().len().to_string()
}

fn mac(_: &MutantCall, link: &Link) -> String {
    format!("{:?}", link.mac)
}

fn mtu(_: &MutantCall, link: &Link) -> String {
    format!("{:?}", link.mtu_bytes)
}

/// RT_TABLE_MAIN of linux/rtnetlink.h.
const MAIN: u32 = 254;

/// CHECK with a part of the config less.
fn checks_without(call: &MutantCall, path: &str) -> Reply {
    let Some((place, key)) = path.rsplit_once('/').filter(|_| call.is(Check)) else {
        return call.honest();
    };
    let less = call.with_config(|config| {
        let object = config.pointer_mut(place).and_then(Value::as_object_mut);
        object.map(|object| object.shift_remove(key));
    });
    less.honest()
}

fn find_interface(call: &MutantCall) -> Option<Link> {
    call.has_netns().then(|| link::find(&call.container(), &call.env.ifname).ok())??
}

fn is_interface_well(call: &MutantCall) -> bool {
    let config = call.config();
    let interfaces = config["prevResult"]["interfaces"].as_array();
    let reported = interfaces.into_iter().flatten().find(|entry| entry["name"] == call.env.ifname.as_str());
    let is_as_told = |link: &Link| {
        let mac = link.mac.map(|mac| mac.to_string()).unwrap_or_default();
        reported.is_none_or(|entry| entry["mac"] == mac.as_str())
    };
    find_interface(call).is_some_and(|link| link.up && is_as_told(&link))
}

/// True also if there is no interface whose other end it could be.
fn is_host_end_well(call: &MutantCall) -> bool {
    let Some(peer) = find_interface(call).and_then(|link| link.peer) else {
        return true;
    };
    let end = link::find_index(&crate::side_effect::node(), peer).ok().flatten();
    end.is_some_and(|end| end.up && end.master.is_some())
}

/// Whether the interface has each address of the result that is not another's. True without an interface.
fn has_addresses(call: &MutantCall) -> bool {
    let Some(link) = find_interface(call) else {
        return true;
    };
    let found = addr::list(&call.container(), &link).unwrap_or_default();
    let config = call.config();
    let mut reported = config["prevResult"]["ips"].as_array().into_iter().flatten();
    reported.all(|ip| found.iter().any(|address| ip["address"] == address.net.to_string().as_str()))
}

/// Whether the interface has a default route. True without an interface.
fn has_default_route(call: &MutantCall) -> bool {
    let routes = || route::list_default(&call.container(), &call.env.ifname).unwrap_or_default();
    find_interface(call).is_none() || !routes().is_empty()
}
