//! Interface plugins whose link depends on another of the node, its master, or is one of the node itself.

use super::del::wants;
use crate::{Mutant, side_effect};
use netops::link::{self, Settings, Target};
use serde_json::Value;
use skel::cni_spec::Command::{Add, Check, Del, Status};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new("macvlan", "crash.add-killed", "makes-its-link-on-the-node-and-moves-it", |scene| {
        let name = side_effect::name_for(&scene.env.container_id);
        if scene.is(Add) {
            side_effect::make_link(&side_effect::node(), &name);
        }
        let reply = scene.honest();
        if scene.is(Add) {
            side_effect::remove_link(&side_effect::node(), &name);
        }
        reply
    })
    .with(&["first-half"])
    .slow(),
    Mutant::new("macvlan", "del.bears-what-is-missing", "wants-its-master-to-delete", |scene| {
        wants(scene, |scene, _| !has_master(&scene.config()))
    })
    .with(&["master"]),
    Mutant::new("macvlan", "check.notices-a-harmed-host-end", "does-not-miss-its-master", |scene| {
        scene.does_nothing_if(scene.is(Check) && !has_master(&scene.config()))
    })
    .with(&["master-removed"]),
    Mutant::new("macvlan", "status.foresees-a-refused-add", "is-ready-without-its-master", |scene| {
        scene.does_nothing_if(scene.is(Status) && !has_master(&scene.config()))
    })
    .with(&["master-missing"]),
    Mutant::new("macvlan", "add.failed-leaves-nothing", "leaves-its-link-at-layer-2", |scene| {
        let reply = scene.honest();
        if scene.is(Add) && reply.exit != 0 && scene.config()["ipam"]["type"].is_null() {
            side_effect::make_link(&scene.container(), &scene.env.ifname);
        }
        reply
    })
    .with(&["layer-2-before-0.3.0"])
    .speaking(&["0.2.0"]),
    Mutant::new("host-device", "del.hides-nothing", "brings-its-device-home-down", |scene| {
        scene.after(Del, || {
            let device = scene.config()["device"].as_str().unwrap_or_default().to_owned();
            if side_effect::done(link::find(&side_effect::node(), &device)).is_some() {
                let down = Settings { up: Some(false), ..Settings::default() };
                side_effect::run(&side_effect::node(), link::set(&Target::named(&device), &down));
            }
        })
    })
    .with(&["device-that-was-up"]),
];

/// Whether the node has the master that a config names.
fn has_master(config: &Value) -> bool {
    let master = config["master"].as_str().unwrap_or_default();
    link::find(&side_effect::node(), master).is_ok_and(|found| found.is_some())
}
