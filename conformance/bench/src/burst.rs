//! Several calls at a time, as when a node starts.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::call::{Call, Cost, DEADLINE, Ended, spent};
use crate::contest::{Contender, Contest};
use crate::latency::warm_up;
use crate::report::{Burst, Figures, Outcome};
use crate::scene::{self, Verb};
use crate::station::settle;
use crate::subject::Subject;

/// How much of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Amount {
    /// Rounds in each of which every subject is asked once.
    pub(crate) rounds: usize,
    /// Pods of a round.
    pub(crate) pods: usize,
}

/// What some rounds have come to.
#[derive(Default)]
struct Tally {
    costs: Vec<Cost>,
    /// From each round's first call to its last answer.
    busy: Duration,
    /// From each round's last answer until nothing of its processes was left.
    left: Duration,
}

/// ADD and DEL of bridge, so many at a time.
///
/// # Errors
/// A node or a namespace cannot be made; a call that fails is an outcome.
pub(crate) fn measure(subjects: &[Arc<Subject>], at_once: usize, amount: Amount) -> Result<Vec<Burst>, String> {
    let scene = scene::bridge();
    let mut contest = Contest::new(scene, subjects)?;
    warm_up(&mut contest)?;
    let count = contest.contenders.len();
    let verbs = [Verb::Add, Verb::Del];
    let mut tallies: Vec<_> = (0..count).map(|_| verbs.map(|_| Tally::default())).collect();
    for round in 0..amount.rounds {
        let pods = contest.add_pods(amount.pods)?;
        for place in 0..count {
            let place = (round + place) % count;
            for (verb, tally) in verbs.iter().zip(tallies.get_mut(place).into_iter().flatten()) {
                let contender = contest.contenders.get_mut(place);
                contender.into_iter().for_each(|contender| crowd(contender, *verb, pods.clone(), at_once, tally));
            }
        }
    }
    let mut bursts = Vec::new();
    for (index, verb) in verbs.into_iter().enumerate() {
        for (contender, tallies) in contest.contenders.iter().zip(&tallies) {
            let reported = contender.subject.is_reported(&contest.scene, verb);
            bursts.extend(
                tallies.get(index).filter(|_| reported).and_then(|tally| burst(contender, verb, at_once, tally)),
            );
        }
    }
    drop(contest);
    settle()?;
    Ok(bursts)
}

fn burst(contender: &Contender, verb: Verb, at_once: usize, tally: &Tally) -> Option<Burst> {
    let outcome = match contender.failure_at(verb) {
        Some(why) => Outcome::Failed(why),
        None => Outcome::Measured(Box::new(Figures::of(&tally.costs, None)?)),
    };
    Some(Burst {
        scene: "bridge".to_owned(),
        verb: verb.name().to_owned(),
        subject: contender.subject.name.clone(),
        at_once,
        // None of a subject that failed: JSON has no word for 0 / 0.
        per_second: tally.costs.len() as f64 / tally.busy.as_secs_f64().max(f64::MIN_POSITIVE),
        left_ms: crate::report::ms(tally.left),
        outcome,
    })
}

/// Lets a subject do this for all of these pods, and waits until nothing of it is left.
fn crowd(contender: &mut Contender, verb: Verb, pods: Range<usize>, at_once: usize, tally: &mut Tally) {
    if contender.has_failed() {
        return;
    }
    let calls: Vec<_> = pods.clone().filter_map(|pod| contender.calls(verb, pod)?.only()).collect();
    let done = contender.station.run(move |_| all_at_once(&calls, at_once));
    match done.and_then(|done| done) {
        Ok((answers, costs, busy, left)) => {
            let places = contender.pods.get_mut(pods).into_iter().flatten();
            places.zip(answers).filter(|_| verb == Verb::Add).for_each(|(pod, answer)| pod.result = answer);
            tally.costs.extend(costs);
            tally.busy += busy;
            tally.left += left;
        }
        Err(why) => contender.fail(verb, why),
    }
}

type Done = (Vec<serde_json::Value>, Vec<Cost>, Duration, Duration);

/// Makes the calls by so many callers, each of which takes the next one when it is through with one.
fn all_at_once(calls: &[Call], at_once: usize) -> Result<Done, String> {
    let (next, before, start) = (AtomicUsize::new(0), spent(), Instant::now());
    let mut ends: Vec<(usize, Result<Ended, String>)> = thread::scope(|scope| {
        let caller = || {
            let mut ends = Vec::new();
            loop {
                let place = next.fetch_add(1, Ordering::Relaxed);
                let Some(call) = calls.get(place) else {
                    return ends;
                };
                ends.push((place, call.run()));
            }
        };
        let callers: Vec<_> = (0..at_once).map(|_| scope.spawn(caller)).collect();
        callers.into_iter().flat_map(|caller| caller.join().unwrap_or_default()).collect()
    });
    let busy = start.elapsed();
    let gone = testns::orphans::wait(DEADLINE)?.map_or(busy, |end| end - start);
    let after = spent();
    ends.sort_by_key(|(place, _)| *place);
    let count = u32::try_from(calls.len()).unwrap_or(u32::MAX).max(1);
    let (cpu, switches) = ((after.0 - before.0) / count, (after.1 - before.1) / i64::from(count));
    let (mut answers, mut costs) = (Vec::new(), Vec::new());
    for ((_, end), call) in ends.into_iter().zip(calls) {
        let ended = end?;
        answers.push(call.verify(&ended)?);
        costs.push(Cost { wall: ended.wall, gone: ended.wall, cpu, switches });
    }
    if answers.len() < calls.len() {
        return Err("a caller ended early: stderr says why".to_owned());
    }
    Ok((answers, costs, busy, gone - busy))
}
