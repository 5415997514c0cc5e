//! The kit can fail: each mutant is caught by the rule that it breaks, and the honest plugin is not.

mod table;
mod trials;

use mutants::{Honest, Mutant, wrong};
use trials::Kit;

/// Tries the mutants of one of the kit's files of rules.
#[track_caller]
fn caught(group: &str) {
    let mutants = group_of(group);
    let faults = Kit::new(mutants.iter()).faults(mutants);
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}

/// Tries the mutants of a group with all other rules.
#[track_caller]
fn keep_to_others(group: &str) {
    let mutants = group_of(group);
    let faults = Kit::new(mutants.iter()).broken_besides(mutants);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

fn group_of(name: &str) -> &'static [Mutant] {
    wrong::groups().iter().find(|(group, _)| *group == name).map(|(_, mutants)| &mutants[..]).expect("no such group")
}

macro_rules! groups {
    ($($group:ident)*) => {
        $(#[test]
        fn $group() {
            caught(stringify!($group));
        })*

        /// No mutant breaks another rule.
        mod others {
            $(#[test]
            #[ignore = "tries each mutant with each quick rule; all groups take forty minutes"]
            fn $group() {
                super::keep_to_others(stringify!($group));
            })*
        }

        #[test]
        fn every_group_is_tried() {
            let tested = [$(stringify!($group)),*];
            let all: Vec<_> = wrong::groups().iter().map(|(name, _)| *name).collect();
            assert_eq!(tested[..], all[..]);
        }
    };
}

groups! { add add_result check concurrency configuration conventions crash daemon del delegation errors faults gc hostile ipam links model parameters prev_result relied results status version }

#[test]
#[ignore = "takes some minutes"]
fn honest_plugins_keep_to_slow_rules() {
    let slow = || wrong::all().filter(|mutant| mutant.honest == Honest::Slowly);
    let faults = Kit::new(slow()).faults_of_honest(slow());
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}
