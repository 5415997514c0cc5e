//! Stress: many calls at once, for different containers, as a runtime makes them when a node comes up.

use super::attached::{addresses_in_container, room_for};
use crate::addresses;
use crate::rules::prelude::*;
use crate::stress::operations::{Operations, within};
use crate::testbed::Answer;
use std::collections::BTreeMap;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

pub(super) const CASES: &[Code] = &[
    ("concurrency.containers-at-once/8", |testbed| at_once(testbed, 8)),
    ("concurrency.containers-at-once/64", |testbed| at_once(testbed, 64)),
    ("concurrency.containers-at-once/256", |testbed| at_once(testbed, 256)),
    ("concurrency.no-address-twice", no_address_twice),
    ("concurrency.first-containers-at-once", first_at_once),
    ("concurrency.small-pool", small_pool),
    ("concurrency.pool-is-whole-again", pool_is_whole_again),
];

/// Skips what a smaller case has tried already, as the pool has no addresses for more. Interfaces of 256 containers on one
/// node are costly for the kernel; a chained plugin's are laid by the kit, too.
fn fits(testbed: &Testbed, count: usize) -> Result<(), Stop> {
    let smaller = if count > 64 { 64 } else { 8 };
    if let Some(addresses) = testbed.profile.capacity().filter(|addresses| count > 8 && *addresses <= smaller) {
        return Err(Stop::skip(format!(
            "{count} at once are not tried: its pool has {addresses} address{}, and case {} tries as many",
            if addresses == 1 { "" } else { "es" },
            if addresses <= 8 { 8 } else { smaller }
        )));
    }
    Stop::skip_if(
        count > 64 && testbed.profile.stage.iter().any(|part| part.lays_in_containers()),
        format!("{count} at once are not tried where the kit has to lay links for each container; case {smaller} is"),
    )
}

fn at_once(testbed: &Testbed, count: usize) -> Result<(), Stop> {
    fits(testbed, count)?;
    let mut operations = Operations::new(testbed);
    operations.warm_up()?;
    let alone = testbed.pod();
    testbed.remember_node();
    let start = Instant::now();
    all_through(&operations, std::slice::from_ref(&alone)).map_err(|stop| room_for(testbed, &[alone], stop))?;
    let count = load(testbed, count, start.elapsed())?;
    // A trace that a container leaves when it comes alone is not for want of a lock: `del.` has rules for it.
    let leaves = !testbed.left_behind().is_empty();
    let pods: Vec<_> = (0..count).map(|_| testbed.pod()).collect();
    testbed.remember_node();
    all_through(&operations, &pods).map_err(|stop| room_for(testbed, &pods, stop))?;
    if leaves || testbed.left_behind().is_empty() {
        return Ok(());
    }
    // A thing that a plugin makes once, when calls first get into each other's way, such as a file to lock, is no
    // container's: more containers do not leave more of it.
    testbed.remember_node();
    all_through(&operations, &pods)?;
    operations.nothing_is_left(&format!("ADD, CHECK and DEL of {count} containers at once, for the second time"))
}

/// The fair number of containers at once: no more than the pool has addresses for, and than this machine can serve in
/// time, if one alone takes that long.
fn load(testbed: &Testbed, count: usize, alone: Duration) -> Result<usize, Stop> {
    let count = testbed.profile.capacity().map_or(count, |addresses| count.min(addresses));
    let processors = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    // Other trials run beside this one.
    let whole = alone * u32::try_from(count / processors).unwrap_or(u32::MAX);
    match whole > testbed.call_deadline() / 2 {
        true => Err(Stop::not_here(format!(
            "one container takes {} ms, so that {count} at once would take longer than a call may (--call-deadline)",
            alone.as_millis()
        ))),
        false => Ok(count),
    }
}

fn first_at_once(testbed: &Testbed) -> Result<(), Stop> {
    let count = testbed.profile.capacity().map_or(8, |addresses| addresses.min(8));
    let pods: Vec<_> = (0..count).map(|_| testbed.pod()).collect();
    all_through(&Operations::new(testbed), &pods).map_err(|stop| room_for(testbed, &pods, stop))
}

fn no_address_twice(testbed: &Testbed) -> Result<(), Stop> {
    let count = testbed.profile.capacity().map_or(8, |addresses| addresses.min(8));
    let pods: Vec<_> = (0..count).map(|_| testbed.pod()).collect();
    let added = side_by_side(&pods, |_, pod| testbed.try_add(&pod.attachment()))?;
    addresses_differ(testbed, pods.iter().zip(&added).filter_map(|(pod, answer)| Some((pod, answer.as_ref().ok()?))))
}

/// ADD, CHECK and DEL, each for all at once.
fn all_through(operations: &Operations<'_>, pods: &[Container]) -> Result<(), Stop> {
    let count = pods.len();
    let of = |verb: &str| format!("of each {verb} of {count} at once");
    let added: Vec<Value> =
        side_by_side(pods, |_, pod| operations.testbed.add(pod)).map_err(|stop| within(stop, &of("ADD")))?;
    let result = |index: usize| added.get(index).cloned().unwrap_or_default();
    side_by_side(pods, |index, pod| operations.check(&pod.attachment(), &result(index)))
        .map_err(|stop| within(stop, &of("CHECK")))?;
    side_by_side(pods, |index, pod| operations.testbed.del(pod.attachment(), Some(&result(index))))
        .map_err(|stop| within(stop, &of("DEL")))?;
    let differ = addresses_differ(operations.testbed, pods.iter().zip(&added));
    differ.map_err(|stop| stop.based_on("concurrency.no-address-twice"))
}

fn addresses_differ<'a>(
    testbed: &Testbed,
    added: impl Iterator<Item = (&'a Container, &'a Value)>,
) -> Result<(), Stop> {
    let added: Vec<_> = added.collect();
    let mut owners: BTreeMap<String, &str> = BTreeMap::new();
    for (pod, result) in &added {
        let is_given = |address: &String| {
            let config = |index| testbed.config_of(index, Verb::Add, &pod.attachment());
            !(0..testbed.plugin_count()).any(|index| addresses::stands_in(&config(index), address))
        };
        // Each container has a loopback address, and the same one.
        let is_own = |address: &String| !address.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
        // A chained plugin has its addresses from prevResult, which each pod has of its own.
        for address in addresses_in_container(result).into_iter().filter(is_own).filter(is_given) {
            let other = owners.insert(address.clone(), pod.id()).filter(|other| *other != pod.id());
            if let Some(other) = other.filter(|_| !is_shared(testbed, &added, &address)) {
                let seen = format!("{other} and {} both have {address}", pod.id());
                return Err(Finding::new("addresses that no other has", seen).into());
            }
        }
    }
    Ok(())
}

/// Whether an address is each container's, as that of a service: also of two that come one after the other.
fn is_shared(testbed: &Testbed, added: &[(&Container, &Value)], address: &String) -> bool {
    for (pod, _) in added {
        testbed.del_blindly(*pod).ok(); // as far as it goes: this makes room
    }
    let pods = [testbed.pod(), testbed.pod()];
    let gets = |pod| testbed.add(pod).is_ok_and(|result| addresses_in_container(&result).contains(address));
    let is_shared = pods.iter().all(gets);
    pods.iter().for_each(|pod| drop(testbed.del_blindly(pod)));
    is_shared
}

/// Does something for all pods, as nearly at once as threads can; the first failure, if there is one.
fn side_by_side<T: Send>(
    pods: &[Container],
    work: impl Fn(usize, &Container) -> Result<T, Stop> + Sync,
) -> Result<Vec<T>, Stop> {
    let start = Barrier::new(pods.len());
    let (start, work) = (&start, &work);
    thread::scope(|scope| {
        let one = |(index, pod)| {
            scope.spawn(move || {
                start.wait();
                work(index, pod)
            })
        };
        let threads: Vec<_> = pods.iter().enumerate().map(one).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

/// ADD of three times as many containers as a small pool has addresses: how many it has, the containers, their answers.
#[expect(clippy::type_complexity, reason = "two cases begin so, each with a pattern")]
fn too_many(testbed: &Testbed) -> Result<(usize, Vec<Container>, Vec<Result<Value, Answer>>), Stop> {
    let size = testbed.profile.few();
    let count = usize::try_from(size).unwrap_or(usize::MAX);
    if testbed.profile.capacity() != Some(count) {
        testbed.needs_pool(size)?;
    }
    let pods: Vec<_> = (0..3 * count).map(|_| testbed.pod()).collect();
    let answers = side_by_side(&pods, |_, pod| testbed.try_add(&pod.attachment()))?;
    Ok((count, pods, answers))
}

fn small_pool(testbed: &Testbed) -> Result<(), Stop> {
    let (addresses, pods, answers) = too_many(testbed)?;
    let served = || pods.iter().zip(&answers).filter_map(|(pod, answer)| Some((pod, answer.as_ref().ok()?)));
    let seen = format!("{} succeeded", served().count());
    let expected = format!("no more than {addresses} of {} ADDs to succeed", pods.len());
    Finding::unless(served().count() <= addresses, expected, seen)?;
    addresses_differ(testbed, served()).map_err(|stop| stop.based_on("concurrency.no-address-twice"))
}

fn pool_is_whole_again(testbed: &Testbed) -> Result<(), Stop> {
    let (addresses, pods, answers) = too_many(testbed)?;
    for (pod, answer) in pods.iter().zip(&answers) {
        testbed.del(pod, answer.as_ref().ok())?;
        pod.leave(Remains::Gone);
    }
    let again: Vec<_> = (0..addresses).map(|_| testbed.pod()).collect();
    all_through(&Operations::new(testbed), &again).map_err(|stop| stop.based_on("concurrency.containers-at-once"))
}
