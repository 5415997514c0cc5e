//! SPEC 2, DEL.

use crate::bench::Bench;
use crate::finding::{Finding, Stop};
use crate::profile::Role;
use crate::rule::{Case, Level, Proof, Rule, Versions};

pub(super) const RULES: &[Rule] = &[Rule {
    id: "del.leaves-nothing",
    section: "SPEC 2, DEL",
    level: Level::Must,
    sentence: "DEL takes back everything that ADD did, on the node and in the container.",
    roles: Role::ATTACHING,
    proof: Proof::Cases(&[Case { name: "", versions: Versions::Each, run: leaves_nothing }]),
}];

fn leaves_nothing(bench: &Bench) -> Result<(), Stop> {
    // The bridge and its like may stay after the first pod: they are the network's, not the attachment's.
    let first = bench.pod();
    let result = bench.add(&first)?;
    bench.del(&first, &result)?;
    let second = bench.pod();
    bench.remember();
    let result = bench.add(&second)?;
    bench.del(&second, &result)?;
    match bench.left_behind() {
        left if left.is_empty() => Ok(()),
        left => Err(Finding::new("the node as before ADD", "something is left").with_diff(left).into()),
    }
}
