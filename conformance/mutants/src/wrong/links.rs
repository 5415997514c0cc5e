//! Interface plugins whose link depends on another of the node, its master, or is one of the node itself.

use super::del::wants;
use crate::{Mutant, side_effect};
use netops::link::{self, Settings, Target};
use serde_json::Value;
use skel::cni_spec::Command::{Add, Check, Del, Status};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new("macvlan", "crash.add-killed", "makes-its-link-on-the-node-and-moves-it", |call| {
        let name = side_effect::name_for(&call.env.container_id);
        if call.is(Add) {
            side_effect::make_link(&side_effect::node(), &name);
        }
        let reply = call.honest();
        if call.is(Add) {
            side_effect::remove_link(&side_effect::node(), &name);
        }
        reply
    })
    .with(&["first-half"])
    .slow(),
    Mutant::new("macvlan", "del.bears-what-is-missing", "wants-its-master-to-delete", |call| {
        wants(call, |call, _| !has_master(&call.config()))
    })
    .with(&["master"]),
    Mutant::new("macvlan", "check.notices-a-harmed-host-end", "does-not-miss-its-master", |call| {
        call.does_nothing_if(call.is(Check) && !has_master(&call.config()))
    })
    .with(&["master-removed"]),
    Mutant::new("macvlan", "status.foresees-a-refused-add", "is-ready-without-its-master", |call| {
        call.does_nothing_if(call.is(Status) && !has_master(&call.config()))
    })
    .with(&["master-missing"]),
    Mutant::new("macvlan", "add.failed-leaves-nothing", "leaves-its-link-at-layer-2", |call| {
        let reply = call.honest();
        if call.is(Add) && reply.exit != 0 && call.config()["ipam"]["type"].is_null() {
            side_effect::make_link(&call.container(), &call.env.ifname);
        }
        reply
    })
    .with(&["layer-2-before-0.3.0"])
    .speaking(&["0.2.0"]),
    Mutant::new("host-device", "del.hides-nothing", "brings-its-device-home-down", |call| {
        call.after(Del, || {
            let device = call.config()["device"].as_str().unwrap_or_default().to_owned();
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
