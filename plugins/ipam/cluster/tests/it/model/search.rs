//! The search through the model, which is exhaustive within its bounds: which accidents may happen, and how often.

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use super::{Bounds, Fault, World};

/// More would take longer than a test should.
const MOST: usize = 300_000;

/// Searches all worlds; the number of them, or the events that lead to a fault.
fn explore(bounds: &Bounds) -> Result<usize, Vec<String>> {
    let hash = |world: &World| {
        let mut hasher = DefaultHasher::new();
        world.hash(&mut hasher);
        hasher.finish()
    };
    let first = World::new(bounds);
    let mut seen = HashSet::from([hash(&first)]);
    let mut trail: Vec<(usize, String)> = vec![(0, "the start".to_owned())];
    let mut queue = VecDeque::from([(0, first)]);
    while let Some((at, world)) = queue.pop_front() {
        for (label, next) in world.next(bounds) {
            if !seen.insert(hash(&next)) {
                continue;
            }
            trail.push((at, label));
            if let Some(fault) = next.fault() {
                let mut events = vec![fault];
                let mut at = trail.len() - 1;
                while at > 0 {
                    events.push(trail[at].1.clone());
                    at = trail[at].0;
                }
                return Err(events);
            }
            assert!(trail.len() < MOST, "the bounds allow more than {MOST} worlds: allow fewer accidents");
            queue.push_back((trail.len() - 1, next));
        }
    }
    Ok(seen.len())
}

const THREE: Bounds = Bounds {
    machines: 3,
    addresses: 2,
    fault: Fault::None,
    crashes: 0,
    clones: 0,
    emptied: 0,
    forgets: 0,
    give_backs: 0,
    adds: 0,
    losses: 1,
    claims: 0,
    restores: 0,
};
const TWO: Bounds = Bounds { machines: 2, addresses: 2, adds: 2, ..THREE };

#[track_caller]
fn check_holds(bounds: &Bounds) {
    match explore(bounds) {
        Ok(count) => {
            assert!(count > 1000, "only {count} worlds");
        }
        Err(events) => panic!("{events:#?}"),
    }
}

#[test]
fn three_machines_never_give_one_address_twice() {
    check_holds(&Bounds { adds: 2, ..THREE });
}

#[test]
fn a_run_that_is_given_back_has_one_owner() {
    check_holds(&Bounds { give_backs: 1, ..TWO });
}

#[test]
fn a_forgotten_node_that_was_cut_off_or_started_again_gives_nothing_twice() {
    check_holds(&Bounds { forgets: 1, crashes: 1, adds: 1, losses: 0, ..TWO });
    check_holds(&Bounds { forgets: 1, adds: 0, losses: 0, ..THREE });
}

#[test]
fn a_clone_gives_nothing() {
    check_holds(&Bounds { clones: 1, adds: 2, losses: 0, ..THREE });
    check_holds(&Bounds { clones: 1, crashes: 1, losses: 0, ..THREE });
}

#[test]
fn an_emptied_folder_gives_nothing() {
    check_holds(&Bounds { emptied: 1, forgets: 1, losses: 0, ..TWO });
}

#[test]
fn a_claim_is_on_two_machines_at_most_and_no_other_gets_its_address() {
    check_holds(&Bounds { claims: 3, addresses: 1, losses: 0, ..THREE });
    check_holds(&Bounds { claims: 2, adds: 1, losses: 0, ..TWO });
    check_holds(&Bounds { claims: 2, adds: 0, ..TWO });
    check_holds(&Bounds { claims: 2, forgets: 1, crashes: 1, adds: 0, losses: 0, ..TWO });
}

#[test]
fn nodes_that_write_back_to_a_restored_store_give_nothing_twice() {
    check_holds(&Bounds { restores: 1, give_backs: 1, adds: 1, losses: 0, ..TWO });
    check_holds(&Bounds { restores: 1, claims: 2, adds: 0, losses: 0, ..TWO });
}

#[test]
fn each_seeded_fault_is_found() {
    for (fault, bounds) in [
        (Fault::LeaveFirst, Bounds { claims: 1, adds: 1, losses: 0, ..TWO }),
        (Fault::NoRepair, Bounds { restores: 1, losses: 0, ..TWO }),
        (Fault::ForgetAtOnce, Bounds { forgets: 1, losses: 0, ..TWO }),
        (Fault::AnyMachine, Bounds { clones: 1, adds: 1, ..THREE }),
        (Fault::AddOnce, Bounds { give_backs: 1, ..TWO }),
        (Fault::NoWriteWhenPending, Bounds { give_backs: 1, ..TWO }),
        (Fault::AnyFolder, Bounds { emptied: 1, losses: 0, ..TWO }),
        (Fault::GiveBackFirst, Bounds { give_backs: 1, ..TWO }),
    ] {
        let found = explore(&Bounds { fault, ..bounds });
        assert!(found.is_err(), "{fault:?} was not found among {found:?} worlds");
    }
}
