//! Calls one at a time: every scene, every verb.

use std::mem::take;
use std::sync::Arc;

use testns::Verb;

use crate::comparison::{Comparison, ComparisonState};
use crate::progress;
use crate::report::Row;
use crate::scene::Scene;
use crate::subject::Subject;
use crate::subject_node::settle;

/// The sizes of all rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Amount {
    /// Pods that count.
    pub(crate) pods: usize,
    /// Pods whose calls are traced.
    pub(crate) traced: usize,
}

/// Pods of a scene in a row. With half a dozen subjects that makes a hundred namespaces, as many as a full node of a
/// cluster has; opening a sysctl takes longer with each that the machine has, of any subject.
const PODS_IN_A_ROW: usize = 20;

/// Takes all subjects through the scenes, in rounds of some pods of each: what the machine does in some minute is no
/// scene's alone, so that scenes can be compared, too. A call that fails is an outcome, no error.
pub(crate) fn measure(scenes: &[Scene], subjects: &[Arc<Subject>], amount: Amount) -> Result<Vec<Row>, String> {
    let mut states: Vec<_> = scenes.iter().map(|_| ComparisonState::default()).collect();
    let mut rows = Vec::new();
    let rounds = amount.pods.div_ceil(PODS_IN_A_ROW).max(1);
    for round in 0..rounds {
        for (scene, state) in scenes.iter().zip(&mut states) {
            progress(&format!("{}, {} of {rounds} ...", scene.name, round + 1));
            let mut comparison = Comparison::new(scene.clone(), subjects)?;
            comparison.recall(take(state));
            warm_up(&mut comparison)?;
            for pod in comparison.add_pods(PODS_IN_A_ROW.min(amount.pods - round * PODS_IN_A_ROW))? {
                comparison.life(pod, true);
            }
            if round + 1 == rounds {
                for pod in comparison.add_pods(amount.traced)? {
                    scene.verbs.iter().for_each(|verb| comparison.trace(*verb, pod));
                }
                rows.extend(comparison.outcomes().into_iter().map(|(verb, subject, outcome)| Row {
                    scene: scene.name.to_owned(),
                    verb: verb.to_string(),
                    subject,
                    outcome,
                }));
            }
            *state = comparison.into_state();
            settle()?;
        }
    }
    Ok(rows)
}

/// A pod comes and goes, so that executables are in memory and the store has its folder; another one stays, so that
/// the bridge does. Neither counts.
pub(crate) fn warm_up(comparison: &mut Comparison) -> Result<(), String> {
    let pods = comparison.add_pods(2)?;
    comparison.life(pods.start, false);
    let first = *comparison.scene.verbs.first().unwrap_or(&Verb::Version);
    comparison.each(first, pods.start + 1, false);
    Ok(())
}
