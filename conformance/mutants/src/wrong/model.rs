//! Random operations.

use crate::Mutant;
use skel::Reply;
use skel::cni_spec::Command::Del;

pub(super) const MUTANTS: &[Mutant] = &[Mutant::new(
    "host-local",
    "model.random-operations",
    "keeps-addresses-of-those-who-vanished",
    |scene| match scene.is(Del) && !scene.has_netns() {
        true => Reply::default(),
        false => scene.honest(),
    },
)
.with(&["250-steps"])
.slow()];
