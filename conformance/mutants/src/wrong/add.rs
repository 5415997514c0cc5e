//! ADD: what it makes, and when it refuses.

use super::at_once;
use crate::{Mutant, deed, memory};
use netops::link::Settings;
use serde_json::json;
use skel::Reply;
use skel::cni_spec::Command::{Add, Del};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new("bridge", "add.makes-the-interface", "calls-the-interface-otherwise", |scene| match scene.is(Add) {
        true => scene.with_env(|env| env.ifname = "other0".to_owned()).honest(),
        false => scene.honest(),
    }),
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
    Mutant::new("bridge", "add.gives-connectivity", "leaves-the-interface-down", |scene| {
        let down = Settings { up: Some(false), ..Settings::default() };
        scene.after(Add, || deed::set_link(&scene.container(), &scene.env.ifname, &down))
    }),
    Mutant::new("tuning", "add.passes-prev-result-on", "forgets-an-interface", |scene| {
        scene.on(Add, |result| result["interfaces"] = json!([]))
    }),
    Mutant::new("bridge", "add.refuses-an-existing-interface", "replaces-the-interface", |scene| {
        if scene.is(Add) && scene.has_netns() {
            deed::remove_link(&scene.container(), &scene.env.ifname);
        }
        scene.honest()
    }),
    Mutant::new("bridge", "add.needs-the-namespace", "makes-do-without-a-namespace", |scene| {
        match scene.is(Add) && !scene.has_netns() {
            true => scene.boast(),
            false => scene.honest(),
        }
    }),
    Mutant::new("bridge", "add.needs-the-namespace", "takes-a-namespace-of-any-kind", |scene| {
        // Links to namespaces say which kind they are of, as `uts:[4026531838]`.
        let kind = std::fs::read_link(&scene.env.netns).unwrap_or_default().display().to_string();
        match scene.is(Add) && kind.ends_with(']') && !kind.starts_with("net:") {
            true => scene.boast(),
            false => scene.honest(),
        }
    })
    .with(&["other-namespace"]),
    Mutant::new("bridge", "add.failed-leaves-nothing", "leaves-a-link-when-it-fails", |scene| {
        let reply = scene.honest();
        if scene.is(Add) && reply.exit != 0 {
            deed::make_link(&deed::node(), &deed::name_for(&scene.env.container_id));
        }
        reply
    }),
    Mutant::new("bridge", "add.leaves-others-alone", "sets-all-other-ports-down", |scene| {
        let before = match scene.is(Add) && memory::has("bridge") {
            true => deed::ports(&deed::node(), "cni0"),
            false => Vec::new(),
        };
        scene.after(Add, || {
            memory::mark("bridge");
            let node = deed::node();
            before.iter().for_each(|port| deed::remove_link(&node, &port.name));
        })
    }),
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
        if scene.is(Add) && reply.exit == 0 && scene.env.ifname != "eth0" {
            deed::remove_link(&scene.container(), "eth0");
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
