//! The kit can fail: each mutant is caught by the rule that it breaks, and the honest plugin is not.

mod kit;
mod table;

use kit::Kit;
use mutants::{Honest, Mutant, wrong};

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
#[ignore = "tries each mutant with each quick rule, which takes minutes"]
fn mutants_break_no_other_rule() {
    let mutants: Vec<_> = wrong::all().collect();
    let broken = Kit::new(mutants.iter().copied()).broken_by(&mutants);
    let others = |mutant: &&Mutant| {
        let may = |rule: &&String| *rule == mutant.rule || mutant.also.contains(&rule.as_str());
        let others: Vec<_> = broken.get(mutant.name)?.iter().filter(|rule| !may(rule)).map(String::as_str).collect();
        (!others.is_empty()).then(|| format!("{} breaks also {}", mutant.name, others.join(", ")))
    };
    let faults: Vec<_> = mutants.iter().filter_map(others).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
