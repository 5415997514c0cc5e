//! Interface plugins whose link depends on another of the node, its master, or is one of the node itself.

use super::del::wants;
use crate::{Act, side_effect};
use netops::link::{self, Settings, Target};
use serde_json::Value;
use skel::cni_spec::Command::{Check, Del, Status};

pub(super) const ACTS: &[Act] = &[
    ("wants-its-master-to-delete", |call| wants(call, |call, _| !has_master(&call.config()))),
    ("does-not-miss-its-master", |call| call.does_nothing_if(call.is(Check) && !has_master(&call.config()))),
    ("is-ready-without-its-master", |call| call.does_nothing_if(call.is(Status) && !has_master(&call.config()))),
    ("brings-its-device-home-down", |call| {
        call.after(Del, || {
            let device = call.config()["device"].as_str().unwrap_or_default().to_owned();
            if side_effect::done(link::find(&side_effect::node(), &device)).is_some() {
                let down = Settings { up: Some(false), ..Settings::default() };
                side_effect::run(&side_effect::node(), link::set(&Target::named(&device), &down));
            }
        })
    }),
];

/// Whether the node has the master that a config names.
fn has_master(config: &Value) -> bool {
    let master = config["master"].as_str().unwrap_or_default();
    link::find(&side_effect::node(), master).is_ok_and(|found| found.is_some())
}
