//! ADD: what it makes, and when it refuses.

use super::at_once;
use crate::{Mutant, MutantCall, memory, side_effect};
use netops::link::{self, Link, Settings, Target};
use netops::sysctl;
use serde_json::{Value, json};
use skel::Reply;
use skel::cni_spec::Command::{Add, Del, Gc};
use std::path::Path;

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new("bridge", "add.makes-the-interface", "calls-the-interface-otherwise", calls_otherwise),
    Mutant::new("bridge", "add.prints-a-result", "prints-a-log-on-stdout", |call| {
        let mut reply = call.honest();
        if call.is(Add) && reply.exit == 0 {
            reply.stdout.splice(0..0, *b"adding the container\n");
        }
        reply
    }),
    Mutant::new("host-local", "add.prints-a-result", "prints-a-list", |call| {
        call.on(Add, |result| *result = json!([]))
    }),
    Mutant::new("bridge", "add.gives-connectivity", "does-not-answer-the-container", |call| {
        call.after(Add, || {
            let key = sysctl::Key::of_link("ipv4", "cni0", "arp_ignore");
            side_effect::done(key.and_then(|key| sysctl::write(&key, NEVER)));
        })
    }),
    Mutant::new("bridge", "add.refuses-an-existing-interface", "replaces-the-interface", |call| {
        if call.is(Add) && call.has_netns() {
            side_effect::remove_link(&call.container(), &call.env.ifname);
        }
        call.honest()
    })
    .also(&["add.failed-leaves-nothing"]),
    Mutant::new("bridge", "add.needs-the-namespace", "makes-do-without-a-namespace", |call| {
        call.boasts_if(call.is(Add) && !call.has_netns())
    }),
    Mutant::new("bridge", "add.needs-the-namespace", "takes-a-namespace-of-any-kind", |call| {
        // Links to namespaces say which kind they are of, as `uts:[4026531838]`.
        let kind = std::fs::read_link(&call.env.netns).unwrap_or_default().display().to_string();
        call.boasts_if(call.is(Add) && kind.ends_with(']') && !kind.starts_with("net:"))
    })
    .with(&["other-namespace"]),
    Mutant::new("bridge", "add.failed-leaves-nothing", "leaves-a-link-when-it-fails", |call| {
        let reply = call.honest();
        if call.is(Add) && reply.exit != 0 && call.has_netns() {
            side_effect::make_link(&side_effect::node(), &side_effect::name_for(&call.env.container_id));
        }
        if call.is(Del) {
            side_effect::remove_link(&side_effect::node(), &side_effect::name_for(&call.env.container_id));
        }
        reply
    }),
    Mutant::new("bridge", "add.failed-leaves-nothing", "leaves-a-link-for-an-unknown-value", |call| {
        let reply = call.honest();
        if call.is(Add) && reply.exit != 0 && call.config()["bridge"] == "no such/value" {
            side_effect::make_link(&side_effect::node(), &side_effect::name_for(&call.env.container_id));
        }
        reply
    })
    .with(&["unknown-value"]),
    Mutant::new("firewall-same-bridge", "add.failed-leaves-nothing", "lets-in-before-it-knows-the-policy", |call| {
        match call.is(Add) && call.config()["ingressPolicy"] == "no such/value" {
            true => {
                drop(call.with_config(|config| config["ingressPolicy"] = json!("open")).honest());
                call.refuse(110, "the policy is unknown")
            }
            false => call.honest(),
        }
    })
    .with(&["unknown-value"]),
    Mutant::new("bridge", "add.failed-leaves-nothing", "leaves-a-link-without-a-result-for-it", |call| {
        let reply = call.honest();
        if call.is(Add) && reply.exit != 0 && call.config()["cniVersion"] == "0.2.0" {
            side_effect::make_link(&side_effect::node(), &side_effect::name_for(&call.env.container_id));
        }
        reply
    })
    .with(&["layer-2-before-0.3.0"])
    .speaking(&["0.2.0"])
    .also(&["del.cleans-up-a-failed-add"]),
    Mutant::new("bridge", "add.leaves-others-alone", "opens-the-ports-of-others", opens_others)
        .also(&["gc.removes-what-is-stale"]),
    Mutant::new("bridge", "add.serves-containers-at-once", "is-busy", |call| match call.is(Add) {
        true => at_once::alone(call),
        false => call.honest(),
    }),
    Mutant::new("bridge", "add.follows-del", "adds-once-for-all", |call| {
        let key = format!("deleted-{}", call.attachment());
        if call.is(Add) && memory::has(&key) {
            return call.refuse(110, "that container is gone");
        }
        call.after(Del, || memory::mark(&key))
    }),
    Mutant::new("bridge", "add.serves-a-container-twice", "moves-the-interface", |call| {
        let reply = call.honest();
        if call.is(Add) && reply.exit == 0 && call.env.ifname == "net1" {
            side_effect::remove_link(&call.container(), "eth0");
        }
        reply
    }),
    Mutant::new("host-local", "add.serves-a-container-twice", "frees-all-of-a-container", |call| {
        if call.is(Del) && call.env.ifname != "eth0" {
            let freed = call.with_env(|env| env.ifname = "eth0".to_owned()).honest();
            if freed != Reply::default() {
                return freed;
            }
        }
        call.honest()
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
