//! Objects of others, and slots of an earlier process.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant};

use netslot::{Egress, Error, Pool, Slot, Spec};
use testns::{Background, Transport, exchange};

use crate::{METADATA, PUBLIC, node, open, spec};

const SOON: Duration = Duration::from_secs(10);

fn take(pool: &Pool, count: usize) -> Vec<Slot> {
    (0..count).map(|_| pool.take().unwrap()).collect()
}

#[test]
fn a_link_of_the_same_name_stays() {
    let (node, _outside) = node();
    let pool = open(spec("names"));
    let slot = pool.take().unwrap();
    let link = slot.link();
    slot.destroy().unwrap();
    node.host().add_link(&link, "bridge");
    let error = pool.take().unwrap_err();
    assert!(error.to_string().contains("another program made it: remove it"), "{error}");
    pool.close().unwrap();
    assert_eq!(node.host().link(&link).kind, "bridge");
}

#[test]
fn a_route_to_another_link_is_told() {
    let (node, _outside) = node();
    node.host().add_route("10.88.0.2/32", "192.0.2.2", "uplink0");
    let pool = open(spec("routes"));
    let error = pool.take().unwrap_err();
    assert!(error.to_string().contains("leads elsewhere"), "{error}");
    pool.close().unwrap();
}

#[test]
fn an_adopted_slot_keeps_its_number() {
    let (_node, _outside) = node();
    let mut command = Command::new("sleep");
    command.arg("1000");
    let process = Background::with_stdout(command);
    let pool = open(spec("adopted"));
    let mut slots = take(&pool, 3);
    let [second, third] = [slots.remove(1), slots.remove(1)].map(|slot| slot.hand_over(process.id()).unwrap());
    pool.destroy(slots).unwrap();
    pool.close().unwrap();
    let pool = open(spec("adopted").slots_max(2));
    let adopted = [second, third].map(|number| pool.adopt(number).unwrap());
    let [second, third] = adopted;
    let first = pool.take().unwrap();
    assert_eq!((first.index(), pool.take().unwrap_err()), (1, Error::Exhausted(2)));
    // More than there may be now.
    third.destroy().unwrap();
    assert_eq!(pool.take().unwrap_err(), Error::Exhausted(2));
    second.check().unwrap();
    pool.destroy([first, second]).unwrap();
    let numbers: BTreeSet<_> = take(&pool, 2).iter().map(Slot::index).collect();
    assert_eq!(numbers, [1, 2].into());
    pool.close().unwrap();
}

#[test]
fn a_pool_destroys_the_slots_of_another_where_they_are() {
    let (node, _outside) = node();
    let (one, other) = (open(spec("one")), open(Spec::new("other", "10.99.0.0/24".parse().unwrap())));
    let (own, foreign) = (one.take().unwrap(), other.take().unwrap());
    let link = foreign.link();
    one.destroy([foreign]).unwrap();
    own.check().unwrap();
    assert_eq!(node.host().find_link(&link), None);
    own.destroy().unwrap();
    one.close().unwrap();
    other.close().unwrap();
}

#[test]
fn a_full_pool_is_not_waited_for_and_a_dropped_slot_is() {
    let (_node, _outside) = node();
    let pool = open(spec("full").ready(2).slots_max(1));
    let start = Instant::now();
    assert_eq!(pool.wait_ready(SOON).unwrap(), 1);
    assert!(start.elapsed() < SOON);
    for _ in 0..3 {
        drop(pool.take().unwrap());
    }
    pool.close().unwrap();
}

/// What `nft flush ruleset` took is there for the next slot.
#[test]
fn a_slot_that_is_made_after_a_flush_has_its_rules() {
    let (node, outside) = node();
    let pool = open(spec("flushed").egress(Egress::public()));
    let before = pool.take().unwrap();
    node.host().flush_nft();
    let slot = pool.take().unwrap();
    slot.check().unwrap();
    let reaches = |far: &str, within| {
        exchange(Transport::Tcp, &testns::Namespace::at(slot.path()), (&outside, far.parse().unwrap()), within).is_ok()
    };
    assert!(reaches(PUBLIC, SOON) && !reaches(METADATA, Duration::from_millis(500)));
    pool.destroy([before, slot]).unwrap();
    pool.close().unwrap();
}
