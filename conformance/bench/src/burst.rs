//! Calls back to back, one or several at a time, as when a node starts or is drained: no call waits for what the one before it
//! has left to helpers.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use testns::Verb;

use crate::call::Cost;
use crate::callers::{self, Init, Job};
use crate::comparison::{ComparedSubject, Comparison};
use crate::latency::warm_up;
use crate::report::{Burst, Figures, Outcome};
use crate::scene::{self, Scene};
use crate::subject::Subject;
use crate::subject_node::settle;

/// The number of calls.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Amount {
    /// Rounds in each of which every subject is asked once.
    pub(crate) rounds: usize,
    /// Pods of a round.
    pub(crate) pods: usize,
}

/// Pods of each round that come first and do not count.
const WARM_UP: usize = 2;

/// The scene that is called, by the name of its row.
pub(crate) fn scenes() -> [(&'static str, Scene); 3] {
    [("burst", scene::bridge()), ("burst-masq", scene::bridge_masq()), ("burst-chain", scene::chain_without_ports())]
}

/// The outcome of some rounds.
#[derive(Default)]
struct Tally {
    costs: Vec<Cost>,
    /// From each round's first call to its last answer.
    busy: Duration,
    /// From each round's last answer until nothing of its processes was left.
    left: Duration,
}

/// ADD and DEL, so many at a time. A call that fails is an outcome, no error.
pub(crate) fn measure(
    scene: &Scene,
    subjects: &[Arc<Subject>],
    at_once: usize,
    init: Init,
    amount: Amount,
) -> Result<Vec<Burst>, String> {
    let mut comparison = Comparison::new(scene.clone(), subjects)?;
    warm_up(&mut comparison)?;
    let count = comparison.compared_subjects.len();
    let verbs = [Verb::Add, Verb::Del];
    let mut tallies: Vec<_> = (0..count).map(|_| verbs.map(|_| Tally::default())).collect();
    for round in 0..amount.rounds {
        let pods = comparison.add_pods(WARM_UP + amount.pods)?;
        for place in 0..count {
            let place = (round + place) % count;
            for (verb, tally) in verbs.iter().zip(tallies.get_mut(place).into_iter().flatten()) {
                let compared = comparison.compared_subjects.get_mut(place);
                compared.into_iter().for_each(|compared| crowd(compared, *verb, pods.clone(), at_once, init, tally));
            }
        }
    }
    let mut bursts = Vec::new();
    for (index, verb) in verbs.into_iter().enumerate() {
        for (compared, tallies) in comparison.compared_subjects.iter().zip(&tallies) {
            let reported = compared.subject.is_reported(&comparison.scene, verb);
            bursts.extend(tallies.get(index).filter(|_| reported).and_then(|tally| {
                burst(compared, verb, tally).map(|(per_second, left_ms, outcome)| Burst {
                    scene: scene.name.to_owned(),
                    verb: verb.to_string(),
                    subject: compared.subject.name.clone(),
                    at_once,
                    init,
                    per_second,
                    left_ms,
                    outcome,
                })
            }));
        }
    }
    drop(comparison);
    settle()?;
    Ok(bursts)
}

/// Calls per second, what was left in ms, and the figures.
fn burst(compared: &ComparedSubject, verb: Verb, tally: &Tally) -> Option<(f64, f64, Outcome)> {
    let outcome = match compared.failure_at(verb) {
        Some(why) => Outcome::Failed(why),
        None => Outcome::Measured(Box::new(Figures::of(&tally.costs, None)?)),
    };
    // None per second of a subject that failed: JSON has no word for 0 / 0.
    let per_second = tally.costs.len() as f64 / tally.busy.as_secs_f64().max(f64::MIN_POSITIVE);
    Some((per_second, crate::report::ms(tally.left), outcome))
}

/// Lets a subject do this for all of these pods, and waits until nothing of it is left.
fn crowd(
    compared: &mut ComparedSubject,
    verb: Verb,
    pods: Range<usize>,
    at_once: usize,
    init: Init,
    tally: &mut Tally,
) {
    if compared.has_failed() {
        return;
    }
    let mut first: Vec<_> = pods.clone().filter_map(|pod| compared.calls(verb, pod)?.only()).collect();
    let calls = first.split_off(WARM_UP.min(first.len()));
    let job = Job { at_once, first, calls };
    let done = compared.node.run(move |_| callers::make(&job, init));
    match done.and_then(|done| done) {
        Ok(done) => {
            let places = compared.pods.get_mut(pods).into_iter().flatten();
            places.zip(done.answers).filter(|_| verb == Verb::Add).for_each(|(pod, answer)| pod.result = answer);
            tally.costs.extend(done.costs);
            tally.busy += done.busy;
            tally.left += done.left;
        }
        Err(why) => compared.fail(verb, why),
    }
}
