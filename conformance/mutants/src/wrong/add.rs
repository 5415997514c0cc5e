//! ADD: what it makes, and when it refuses.

use super::stress;
use crate::{Act, MutantCall, memory, side_effect};
use netops::link::{self, Link, Settings, Target};
use netops::sysctl;
use serde_json::{Value, json};
use skel::Reply;
use skel::cni_spec::Command::{Add, Del, Gc};
use std::path::Path;

pub(super) const ACTS: &[Act] = &[
    ("calls-the-interface-otherwise", calls_otherwise),
    ("prints-a-log-on-stdout", |call| {
        let mut reply = call.honest();
        if call.is(Add) && reply.exit == 0 {
            reply.stdout.splice(0..0, *b"adding the container\n");
        }
        reply
    }),
    ("does-not-answer-the-container", |call| {
        call.after(Add, || {
            let key = sysctl::Key::of_link("ipv4", "cni0", "arp_ignore");
            side_effect::done(key.and_then(|key| sysctl::ensure(&key, NEVER)));
        })
    }),
    ("replaces-the-interface", |call| {
        if call.is(Add) && call.has_netns() {
            side_effect::remove_link(&call.container(), &call.env.ifname);
        }
        call.honest()
    }),
    ("makes-do-without-a-namespace", |call| call.boasts_if(call.is(Add) && !call.has_netns())),
    ("takes-a-namespace-of-any-kind", |call| {
        // Links to namespaces say which kind they are of, as `uts:[4026531838]`.
        let kind = std::fs::read_link(&call.env.netns).unwrap_or_default().display().to_string();
        call.boasts_if(call.is(Add) && kind.ends_with(']') && !kind.starts_with("net:"))
    }),
    ("leaves-a-link-when-it-fails", |call| {
        let reply = call.honest();
        if call.is(Add) && reply.exit != 0 && call.has_netns() {
            side_effect::make_link(&side_effect::node(), &side_effect::name_for(&call.env.container_id));
        }
        if call.is(Del) {
            side_effect::remove_link(&side_effect::node(), &side_effect::name_for(&call.env.container_id));
        }
        reply
    }),
    ("leaves-a-link-for-an-unknown-value", |call| {
        let reply = call.honest();
        if call.is(Add) && reply.exit != 0 && call.config()["bridge"] == "no such/value" {
            side_effect::make_link(&side_effect::node(), &side_effect::name_for(&call.env.container_id));
        }
        reply
    }),
    ("leaves-a-link-without-a-result-for-it", |call| {
        let reply = call.honest();
        if call.is(Add) && reply.exit != 0 && call.config()["cniVersion"] == "0.2.0" {
            side_effect::make_link(&side_effect::node(), &side_effect::name_for(&call.env.container_id));
        }
        reply
    }),
    ("opens-the-ports-of-others", opens_others),
    ("is-busy", |call| match call.is(Add) {
        true => stress::alone(call),
        false => call.honest(),
    }),
    ("adds-once-for-all", |call| {
        let key = format!("deleted-{}", call.attachment());
        if call.is(Add) && memory::has(&key) {
            return call.refuse(110, "that container is gone");
        }
        call.after(Del, || memory::mark(&key))
    }),
    ("moves-the-interface", |call| {
        let reply = call.honest();
        if call.is(Add) && reply.exit == 0 && call.env.ifname == "net1" {
            side_effect::remove_link(&call.container(), "eth0");
        }
        reply
    }),
];

/// The bridge answers no question for its address (`net/ipv4/conf/*/arp_ignore`, kernel's `ip-sysctl`).
const NEVER: &str = "8";

/// The mutant's interface has the right name during its calls only.
fn calls_otherwise(call: &MutantCall) -> Reply {
    if call.env.ifname != "eth0" || call.has_kit_ipam() {
        return call.honest();
    }
    let (key, name, other) = (call.attachment(), &call.env.ifname, &format!("{}x", call.env.ifname));
    let rename = |from: &str, to: &str| {
        if memory::has(&key) && call.has_netns() {
            side_effect::rename_link(&call.container(), from, to);
        }
    };
    rename(other, name);
    let reply = call.reports(|result| {
        for interface in result.get_mut("interfaces").and_then(Value::as_array_mut).into_iter().flatten() {
            if interface["name"] == name.as_str() {
                interface["name"] = json!(other);
            }
        }
    });
    if call.is(Add) && reply.exit == 0 {
        memory::mark(&key);
    }
    rename(name, other);
    reply
}

/// Ports of other containers are promiscuous from an ADD to the next DEL, or to a GC that finds a container gone.
fn opens_others(call: &MutantCall) -> Reply {
    let set = |port: &Link, promisc: bool| {
        let settings = Settings { promisc: Some(promisc), ..Settings::default() };
        side_effect::run(&side_effect::node(), link::set(&Target::from(port), &settings));
    };
    let ports = || match side_effect::done(link::find(&side_effect::node(), "cni0")) {
        Some(_) => side_effect::ports(&side_effect::node(), "cni0"),
        None => Vec::new(),
    };
    let (own, before) = (&call.env.container_id, ports());
    let reply = call.honest();
    if reply.exit != 0 {
        return reply;
    }
    let is_gone = || memory::find_all("netns-").iter().any(|netns| !Path::new(netns).exists());
    if call.is(Add) {
        memory::note(&format!("netns-{own}"), &call.env.netns);
        let others = before.iter().filter(|port| memory::find(&port.name).is_some_and(|of| of != *own));
        others.for_each(|port| set(port, true));
        let made = ports().into_iter().filter(|port| !before.iter().any(|old| old.name == port.name));
        made.for_each(|port| memory::note(&port.name, own));
    } else if call.is(Del) || call.is(Gc) && is_gone() {
        ports().iter().for_each(|port| set(port, false));
    }
    reply
}
