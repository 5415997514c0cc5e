//! Random operations.

use crate::{Act, memory};
use skel::Reply;
use skel::cni_spec::Command::{Add, Del};

pub(super) const ACTS: &[Act] = &[("keeps-addresses-of-those-who-vanished", |call| {
    let count = memory::find("count").map_or(0, |count| count.parse::<usize>().unwrap_or_default());
    match call.is(Del) && !call.has_netns() && count > BUSY {
        true => Reply::default(),
        false => call.after(Add, || memory::note("count", &(count + 1).to_string())),
    }
})];

/// A number of ADDs that no other rule makes.
const BUSY: usize = 10;
