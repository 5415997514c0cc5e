//! Calls one at a time: every scene, every verb.

use std::sync::Arc;

use crate::contest::Contest;
use crate::leftover;
use crate::report::Row;
use crate::scene::{Scene, Verb};
use crate::subject::Subject;

/// How much of everything.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Amount {
    /// Pods that count.
    pub(crate) pods: usize,
    /// Pods whose calls are traced.
    pub(crate) traced: usize,
}

/// Pods that each subject's node has at a time. With half a dozen subjects that makes a hundred namespaces, as many as a
/// full node of a cluster has; opening a sysctl takes longer with each that the machine has, whoever's it is.
const PODS_AT_A_TIME: usize = 20;

/// Takes all subjects through a scene.
///
/// # Errors
/// A node or a namespace cannot be made; a call that fails is an outcome.
pub(crate) fn measure(scene: Scene, subjects: &[Arc<Subject>], amount: Amount) -> Result<Vec<Row>, String> {
    let name = scene.name;
    let mut contest = Contest::new(scene, subjects)?;
    warm_up(&mut contest)?;
    for first in (0..amount.pods).step_by(PODS_AT_A_TIME) {
        let pods = contest.add_pods(PODS_AT_A_TIME.min(amount.pods - first))?;
        pods.clone().for_each(|pod| contest.life(pod, true));
        contest.end_pods(pods.start)?;
    }
    for pod in contest.add_pods(amount.traced)? {
        for verb in contest.scene.clone().verbs {
            contest.trace(*verb, pod);
        }
    }
    let outcomes = contest.outcomes();
    drop(contest);
    leftover::settle()?;
    let row = |(verb, subject, outcome): (Verb, _, _)| Row {
        scene: name.to_owned(),
        verb: verb.name().to_owned(),
        subject,
        outcome,
    };
    Ok(outcomes.into_iter().map(row).collect())
}

/// One pod comes and goes, so that executables are in memory and the store has its folder; another one stays, so that
/// the bridge does. Neither counts.
///
/// # Errors
/// A namespace cannot be made.
pub(crate) fn warm_up(contest: &mut Contest) -> Result<(), String> {
    let pods = contest.add_pods(2)?;
    contest.life(pods.start, false);
    let first = *contest.scene.verbs.first().unwrap_or(&Verb::Version);
    contest.each(first, pods.start + 1, false);
    Ok(())
}
