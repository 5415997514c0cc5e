//! Stress: calls that are killed. A node loses power, a runtime is restarted with its children, the kernel
//! picks a process when memory is short.
//!
//! A call is killed before one state-changing system call after the other, each time followed by the DEL (or GC) that
//! the specification obliges the runtime to make. The pool has one address where the kit can make it so small: one
//! that leaks is missed by the next container.

use crate::profile::Stage;
use crate::rules::prelude::*;
use crate::stress::interruption_points::{At, Share};
use crate::stress::operations::{Operations, within};
use crate::stress::recovery::Recovery;
use crate::testbed::Answer;
use testns::trace::Fate;

pub(super) const CASES: &[Code] = &[
    ("crash.add-killed/first-half", |testbed| killed(testbed, Verb::Add, Fate::Kill, half(0))),
    ("crash.add-killed/second-half", |testbed| killed(testbed, Verb::Add, Fate::Kill, half(1))),
    ("crash.add-killed/namespace-gone", add_killed_and_gone),
    ("crash.del-killed", |testbed| killed(testbed, Verb::Del, Fate::Kill, WHOLE)),
    ("crash.gc-killed", gc_killed),
    ("crash.caller-killed/add", |testbed| killed(testbed, Verb::Add, Fate::KillCaller, WHOLE)),
    ("crash.caller-killed/del", |testbed| killed(testbed, Verb::Del, Fate::KillCaller, WHOLE)),
];

/// Points of a call at which a case kills, at most.
const LIMIT: usize = 60;
/// The same where each point has a container of its own.
const FEW: usize = 12;

const WHOLE: Share = Share { number: 0, of: 1, limit: LIMIT };

/// Every second point.
fn half(number: usize) -> Share {
    Share { number, of: 2, limit: LIMIT }
}

/// Kills ADD or DEL at each point of a share.
fn killed(testbed: &Testbed, verb: Verb, fate: Fate, share: Share) -> Result<(), Stop> {
    let recovery = Recovery::new(testbed)?;
    let mut random = testbed.random();
    let mut is_tried = false;
    for index in 0..testbed.plugin_count() {
        let (whole, answer) = recovery.disturb(verb, index, None)?;
        answer.succeeds()?;
        recovery.operations.testbed.del(recovery.pod.attachment(), None)?;
        let is_alone = !whole.calls.iter().any(|call| call.name() == "execve");
        if matches!(fate, Fate::KillCaller) && is_alone {
            continue;
        }
        is_tried = true;
        let what = format!("{verb} of {} was killed before change", testbed.profile.executable(index));
        for point in share.points(whole.changes().count(), testbed, &mut random) {
            testbed.forget_calls();
            let (traced, answer) = recovery.disturb(verb, index, Some((point, fate)))?;
            let at = At { what: &what, point, hit: traced.hit.as_ref() };
            recovery.bears(survivor(&answer), 2, &at)?;
        }
    }
    Stop::skip_if(!(is_tried), "it is one process, and has none that could be killed alone")
}

/// SIGKILL.
const KILLED: i32 = 9;

/// The answer of a plugin that was not the one that was killed.
fn survivor(answer: &Answer) -> Option<&Answer> {
    Some(answer).filter(|answer| answer.signal() != Some(KILLED))
}

/// The runtime noticed late: the container's namespace is gone when DEL comes.
fn add_killed_and_gone(testbed: &Testbed) -> Result<(), Stop> {
    Stop::skip_if(
        testbed.profile.stage.iter().any(|part| matches!(part, Stage::Device { .. })),
        "its device goes with the namespace",
    )?;
    let mut operations = Operations::with_pool(testbed, 1);
    operations.warm_up()?;
    let last = testbed.plugin_count() - 1;
    let add = |pod: &Container| -> Result<Call, Stop> {
        let attachment = pod.attachment();
        let before = operations.testbed.add_until(last, &attachment)?;
        Ok(operations.call(last, Verb::Add, &attachment, before.as_ref()))
    };
    let (pod, other) = (testbed.pod(), testbed.pod());
    let (whole, answer) = operations.disturb(&add(&pod)?, None)?;
    answer.succeeds()?;
    operations.testbed.del(pod.attachment(), None)?;
    pod.leave(Remains::Gone);
    operations.others_are_served(&other, "nothing")?;
    operations.serves_again(&other)?;
    let share = Share { number: 0, of: 1, limit: FEW };
    for point in share.points(whole.changes().count(), testbed, &mut testbed.random()) {
        testbed.forget_calls();
        let pod = testbed.pod();
        testbed.remember();
        let (traced, _) = operations.disturb(&add(&pod)?, Some((point, Fate::Kill)))?;
        let attachment = pod.leave(Remains::Gone);
        let what = "the namespace went after ADD was killed before change";
        let at = At { what, point, hit: traced.hit.as_ref() };
        for _ in 0..2 {
            operations.testbed.del(&attachment, None).map_err(|stop| within(stop, &format!("of DEL after {at}")))?;
        }
        operations.nothing_is_left(&format!("{at}, and DEL"))?;
        operations.others_are_served(&other, &at.to_string())?;
    }
    Ok(())
}

/// Where a plugin changes what the kit laid out in the container, GC may leave that as it is, as it ends with the container: there
/// each point has a container of its own, which is gone when GC comes.
fn gc_killed(testbed: &Testbed) -> Result<(), Stop> {
    let is_device = |part: &Stage| matches!(part, Stage::Device { .. });
    let goes = testbed.profile.stage.iter().any(|part| part.lays_in_containers() && !is_device(part));
    let mut operations = Operations::with_pool(testbed, 2);
    operations.warm_up()?;
    let valid = testbed.pod();
    let lasting = if goes { None } else { Some(operations.used_pod()?) };
    let kept = operations.testbed.add(&valid)?;
    let share = Share { limit: if goes { FEW } else { LIMIT }, ..WHOLE };
    testbed.remember();
    for index in 0..testbed.plugin_count() {
        let gc = || operations.testbed.gc_calls(&[valid.attachment()]);
        let killed = |fate| {
            let pod = lasting.clone().unwrap_or_else(|| {
                let pod = testbed.pod();
                testbed.remember();
                pod
            });
            operations.testbed.add(&pod)?;
            let ended = operations.disturb(&gc()[index], fate)?;
            let attachment = if goes { pod.leave(Remains::Gone) } else { pod.attachment() };
            Ok::<_, Stop>((attachment, ended))
        };
        let (attachment, (whole, answer)) = killed(None)?;
        answer.succeeds()?;
        operations.testbed.del(&attachment, None)?;
        let what = format!("GC of {} was killed before change", testbed.profile.executable(index));
        for point in share.points(whole.changes().count(), testbed, &mut testbed.random()) {
            testbed.forget_calls();
            let (attachment, (traced, _)) = killed(Some((point, Fate::Kill)))?;
            let at = At { what: &what, point, hit: traced.hit.as_ref() };
            for call in gc() {
                let again = testbed.make(&call)?.succeeds();
                again.map_err(|stop| within(stop, &format!("of GC after {at}")))?;
            }
            let done = operations.testbed.del(&attachment, None);
            done.map_err(|stop| within(stop, &format!("of DEL after {at} and GC")))?;
            operations.nothing_is_left(&format!("{at}, GC and DEL"))?;
            let check = operations.check(&valid.attachment(), &kept);
            check.map_err(|stop| within(stop, &format!("of CHECK of a valid attachment, after {at}")))?;
        }
    }
    Ok(())
}
