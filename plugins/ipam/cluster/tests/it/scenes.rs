//! The scenes of the model: which accidents may happen, and how often. The search of a scene is exhaustive.

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::model::{Fault, Scene, World};

/// More would take longer than a test should.
const MOST: usize = 300_000;

/// Searches all worlds; the number of them, or the events that lead to a fault.
fn explore(scene: &Scene) -> Result<usize, Vec<String>> {
    let hash = |world: &World| {
        let mut hasher = DefaultHasher::new();
        world.hash(&mut hasher);
        hasher.finish()
    };
    let first = World::new(scene);
    let mut seen = HashSet::from([hash(&first)]);
    let mut trail: Vec<(usize, String)> = vec![(0, "the start".to_owned())];
    let mut queue = VecDeque::from([(0, first)]);
    while let Some((at, world)) = queue.pop_front() {
        for (label, next) in world.next(scene) {
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
            assert!(trail.len() < MOST, "the scene has more than {MOST} worlds: allow fewer accidents");
            queue.push_back((trail.len() - 1, next));
        }
    }
    Ok(seen.len())
}

const THREE: Scene = Scene {
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
const TWO: Scene = Scene { machines: 2, addresses: 2, adds: 2, ..THREE };

#[track_caller]
fn check_holds(scene: &Scene) {
    match explore(scene) {
        Ok(count) => {
            assert!(count > 1000, "only {count} worlds");
        }
        Err(events) => panic!("{events:#?}"),
    }
}

#[test]
fn three_machines_never_give_one_address_twice() {
    check_holds(&Scene { adds: 2, ..THREE });
}

#[test]
fn a_run_that_is_given_back_has_one_owner() {
    check_holds(&Scene { give_backs: 1, ..TWO });
}

#[test]
fn a_forgotten_node_that_was_cut_off_or_started_again_gives_nothing_twice() {
    check_holds(&Scene { forgets: 1, crashes: 1, adds: 1, losses: 0, ..TWO });
    check_holds(&Scene { forgets: 1, adds: 0, losses: 0, ..THREE });
}

#[test]
fn a_clone_gives_nothing() {
    check_holds(&Scene { clones: 1, adds: 2, losses: 0, ..THREE });
    check_holds(&Scene { clones: 1, crashes: 1, losses: 0, ..THREE });
}

#[test]
fn an_emptied_folder_gives_nothing() {
    check_holds(&Scene { emptied: 1, forgets: 1, losses: 0, ..TWO });
}

#[test]
fn a_claim_is_on_two_machines_at_most_and_no_other_gets_its_address() {
    check_holds(&Scene { claims: 3, addresses: 1, losses: 0, ..THREE });
    check_holds(&Scene { claims: 2, adds: 1, losses: 0, ..TWO });
    check_holds(&Scene { claims: 2, adds: 0, ..TWO });
    check_holds(&Scene { claims: 2, forgets: 1, crashes: 1, adds: 0, losses: 0, ..TWO });
}

#[test]
fn nodes_that_write_back_to_a_restored_store_give_nothing_twice() {
    check_holds(&Scene { restores: 1, give_backs: 1, adds: 1, losses: 0, ..TWO });
    check_holds(&Scene { restores: 1, claims: 2, adds: 0, losses: 0, ..TWO });
}

#[test]
fn each_seeded_fault_is_found() {
    for (fault, scene) in [
        (Fault::LeaveFirst, Scene { claims: 1, adds: 1, losses: 0, ..TWO }),
        (Fault::NoRepair, Scene { restores: 1, losses: 0, ..TWO }),
        (Fault::ForgetAtOnce, Scene { forgets: 1, losses: 0, ..TWO }),
        (Fault::AnyMachine, Scene { clones: 1, adds: 1, ..THREE }),
        (Fault::AddOnce, Scene { give_backs: 1, ..TWO }),
        (Fault::NoWriteWhenPending, Scene { give_backs: 1, ..TWO }),
        (Fault::AnyFolder, Scene { emptied: 1, losses: 0, ..TWO }),
        (Fault::GiveBackFirst, Scene { give_backs: 1, ..TWO }),
    ] {
        let found = explore(&Scene { fault, ..scene });
        assert!(found.is_err(), "{fault:?} was not found among {found:?} worlds");
    }
}
