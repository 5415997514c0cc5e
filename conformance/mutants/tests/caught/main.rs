//! The kit can fail: each mutant is caught by the rule that it breaks, and the honest plugin is not.

mod kit;
mod table;

use kit::Kit;
use mutants::{Honest, wrong};

/// Tries the mutants of one of the kit's files of rules.
#[track_caller]
fn caught(group: &str) {
    let (_, mutants) = wrong::GROUPS.iter().find(|(name, _)| *name == group).expect("no such group");
    let faults = Kit::new(mutants.iter()).faults(mutants);
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}

macro_rules! groups {
    ($($group:ident)*) => {
        $(#[test]
        fn $group() {
            caught(stringify!($group));
        })*

        #[test]
        fn every_group_is_tried() {
            let tested = [$(stringify!($group)),*];
            let all: Vec<_> = wrong::GROUPS.iter().map(|(name, _)| *name).collect();
            assert_eq!(tested[..], all[..]);
        }
    };
}

groups! { configuration parameters add add_result del check gc status version results errors delegation ipam conventions relied crash faults concurrency model hostile }

#[test]
#[ignore = "takes some minutes"]
fn honest_plugins_keep_to_slow_rules() {
    let slow = || wrong::all().filter(|mutant| mutant.honest == Honest::Slowly);
    let faults = Kit::new(slow()).faults_of_honest(slow());
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}

#[test]
#[ignore = "tries each mutant with each rule, which takes an hour"]
fn mutants_break_no_other_rule() {
    let mut faults = Vec::new();
    for mutant in wrong::all() {
        let mut broken = Kit::new([mutant].into_iter()).broken_by(mutant);
        broken.retain(|rule| rule != mutant.rule && !mutant.also.contains(&rule.as_str()));
        if !broken.is_empty() {
            faults.push(format!("{} breaks also {}", mutant.name, broken.join(", ")));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
