//! ADD: what it makes, and when it refuses.

use super::at_once;
use crate::{Mutant, Scene, memory, side_effect};
use netops::link::{self, Link, Settings, Target};
use netops::sysctl;
use serde_json::{Value, json};
use skel::Reply;
use skel::cni_spec::Command::{Add, Del, Gc};
use std::path::Path;

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new("bridge", "add.makes-the-interface", "calls-the-interface-otherwise", calls_otherwise),
    Mutant::new("bridge", "add.prints-a-result", "prints-a-log-on-stdout", |scene| {
        let mut reply = scene.honest();
        if scene.is(Add) && reply.exit == 0 {
            reply.stdout.splice(0..0, *b"adding the container\n");
        }
        reply
    }),
    Mutant::new("host-local", "add.prints-a-result", "prints-a-list", |scene| {
        scene.on(Add, |result| *result = json!([]))
    }),
    Mutant::new("bridge", "add.gives-connectivity", "does-not-answer-the-container", |scene| {
        scene.after(Add, || {
            let key = sysctl::Key::of_link("ipv4", "cni0", "arp_ignore");
            side_effect::done(key.and_then(|key| sysctl::write(&key, NEVER)));
        })
    }),
    Mutant::new("bridge", "add.refuses-an-existing-interface", "replaces-the-interface", |scene| {
        if scene.is(Add) && scene.has_netns() {
            side_effect::remove_link(&scene.container(), &scene.env.ifname);
        }
        scene.honest()
    })
    .also(&["add.failed-leaves-nothing"]),
    Mutant::new("bridge", "add.needs-the-namespace", "makes-do-without-a-namespace", |scene| {
        scene.boasts_if(scene.is(Add) && !scene.has_netns())
    }),
    Mutant::new("bridge", "add.needs-the-namespace", "takes-a-namespace-of-any-kind", |scene| {
        // Links to namespaces say which kind they are of, as `uts:[4026531838]`.
        let kind = std::fs::read_link(&scene.env.netns).unwrap_or_default().display().to_string();
        scene.boasts_if(scene.is(Add) && kind.ends_with(']') && !kind.starts_with("net:"))
    })
    .with(&["other-namespace"]),
    Mutant::new("bridge", "add.failed-leaves-nothing", "leaves-a-link-when-it-fails", |scene| {
        let reply = scene.honest();
        if scene.is(Add) && reply.exit != 0 && scene.has_netns() {
            side_effect::make_link(&side_effect::node(), &side_effect::name_for(&scene.env.container_id));
        }
        if scene.is(Del) {
            side_effect::remove_link(&side_effect::node(), &side_effect::name_for(&scene.env.container_id));
        }
        reply
    }),
    Mutant::new("bridge", "add.failed-leaves-nothing", "leaves-a-link-for-an-unknown-value", |scene| {
        let reply = scene.honest();
        if scene.is(Add) && reply.exit != 0 && scene.config()["bridge"] == "no such/value" {
            side_effect::make_link(&side_effect::node(), &side_effect::name_for(&scene.env.container_id));
        }
        reply
    })
    .with(&["unknown-value"]),
    Mutant::new("firewall-same-bridge", "add.failed-leaves-nothing", "lets-in-before-it-knows-the-policy", |scene| {
        match scene.is(Add) && scene.config()["ingressPolicy"] == "no such/value" {
            true => {
                drop(scene.with_config(|config| config["ingressPolicy"] = json!("open")).honest());
                scene.refuse(110, "the policy is unknown")
            }
            false => scene.honest(),
        }
    })
    .with(&["unknown-value"]),
    Mutant::new("bridge", "add.failed-leaves-nothing", "leaves-a-link-without-a-result-for-it", |scene| {
        let reply = scene.honest();
        if scene.is(Add) && reply.exit != 0 && scene.config()["cniVersion"] == "0.2.0" {
            side_effect::make_link(&side_effect::node(), &side_effect::name_for(&scene.env.container_id));
        }
        reply
    })
    .with(&["layer-2-before-0.3.0"])
    .speaking(&["0.2.0"])
    .also(&["del.cleans-up-a-failed-add"]),
    Mutant::new("bridge", "add.leaves-others-alone", "opens-the-ports-of-others", opens_others)
        .also(&["gc.removes-what-is-stale"]),
    Mutant::new("bridge", "add.serves-containers-at-once", "is-busy", |scene| match scene.is(Add) {
        true => at_once::alone(scene),
        false => scene.honest(),
    }),
    Mutant::new("bridge", "add.follows-del", "adds-once-for-all", |scene| {
        let key = format!("deleted-{}", scene.attachment());
        if scene.is(Add) && memory::has(&key) {
            return scene.refuse(110, "that container is gone");
        }
        scene.after(Del, || memory::mark(&key))
    }),
    Mutant::new("bridge", "add.serves-a-container-twice", "moves-the-interface", |scene| {
        let reply = scene.honest();
        if scene.is(Add) && reply.exit == 0 && scene.env.ifname == "net1" {
            side_effect::remove_link(&scene.container(), "eth0");
        }
        reply
    }),
    Mutant::new("host-local", "add.serves-a-container-twice", "frees-all-of-a-container", |scene| {
        if scene.is(Del) && scene.env.ifname != "eth0" {
            let freed = scene.with_env(|env| env.ifname = "eth0".to_owned()).honest();
            if freed != Reply::default() {
                return freed;
            }
        }
        scene.honest()
    }),
];

/// The bridge answers no question for its address (`net/ipv4/conf/*/arp_ignore`, kernel's `ip-sysctl`).
const NEVER: &str = "8";

/// The mutant's interface has the right name during its calls only.
fn calls_otherwise(scene: &Scene) -> Reply {
    if scene.env.ifname != "eth0" || scene.has_kit_ipam() {
        return scene.honest();
    }
    let (key, name, other) = (scene.attachment(), &scene.env.ifname, &format!("{}x", scene.env.ifname));
    let rename = |from: &str, to: &str| {
        if memory::has(&key) && scene.has_netns() {
            side_effect::rename_link(&scene.container(), from, to);
        }
    };
    rename(other, name);
    let reply = scene.reports(|result| {
        for interface in result.get_mut("interfaces").and_then(Value::as_array_mut).into_iter().flatten() {
            if interface["name"] == name.as_str() {
                interface["name"] = json!(other);
            }
        }
    });
    if scene.is(Add) && reply.exit == 0 {
        memory::mark(&key);
    }
    rename(name, other);
    reply
}

/// Ports of other containers are promiscuous from an ADD to the next DEL, or to a GC that finds a container gone.
fn opens_others(scene: &Scene) -> Reply {
    let set = |port: &Link, promisc: bool| {
        let settings = Settings { promisc: Some(promisc), ..Settings::default() };
        side_effect::run(&side_effect::node(), link::set(&Target::from(port), &settings));
    };
    let ports = || match side_effect::done(link::find(&side_effect::node(), "cni0")) {
        Some(_) => side_effect::ports(&side_effect::node(), "cni0"),
        None => Vec::new(),
    };
    let (own, before) = (&scene.env.container_id, ports());
    let reply = scene.honest();
    if reply.exit != 0 {
        return reply;
    }
    let is_gone = || memory::find_all("netns-").iter().any(|netns| !Path::new(netns).exists());
    if scene.is(Add) {
        memory::note(&format!("netns-{own}"), &scene.env.netns);
        let others = before.iter().filter(|port| memory::find(&port.name).is_some_and(|of| of != *own));
        others.for_each(|port| set(port, true));
        let made = ports().into_iter().filter(|port| !before.iter().any(|old| old.name == port.name));
        made.for_each(|port| memory::note(&port.name, own));
    } else if scene.is(Del) || scene.is(Gc) && is_gone() {
        ports().iter().for_each(|port| set(port, false));
    }
    reply
}
