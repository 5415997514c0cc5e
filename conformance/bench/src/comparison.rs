//! Subjects side by side: each pod's call by every subject, in an order that changes, before the next pod's.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use testns::trace::Program;
use testns::{Node, Random, Verb};

use crate::call::{Call, Cost, DEADLINE};
use crate::report::{Figures, Outcome, TraceCounts};
use crate::scene::Scene;
use crate::subject::{Attached, Subject};
use crate::subject_node::SubjectNode;

/// Some subjects in one scene, each on a node of its own.
pub(crate) struct Comparison {
    pub(crate) scene: Arc<Scene>,
    pub(crate) compared_subjects: Vec<ComparedSubject>,
    /// Pods that stay attached to every node's bridge, so that it is full.
    pub(crate) crowd: usize,
    /// State of what decides the order.
    turn: Random,
}

/// The outcome of a comparison, for one on new nodes to go on with.
#[derive(Default)]
pub(crate) struct ComparisonState {
    turn: Option<Random>,
    records: BTreeMap<String, CostRecord>,
}

/// The cost of a subject's calls, by verb.
#[derive(Default)]
struct CostRecord {
    costs: BTreeMap<String, Vec<Cost>>,
    counts: BTreeMap<String, Vec<TraceCounts>>,
    /// The verb at which the subject failed first, and what was said; the subject is not called any more.
    failure: Option<(Verb, String)>,
}

/// A subject, its node, and what its calls have cost.
pub(crate) struct ComparedSubject {
    pub(crate) subject: Arc<Subject>,
    pub(crate) node: SubjectNode,
    scene: Arc<Scene>,
    pub(crate) pods: Vec<Attached>,
    record: CostRecord,
}

impl Comparison {
    /// Sets up the subjects that take part in the scene, on new nodes.
    pub(crate) fn new(scene: Scene, subjects: &[Arc<Subject>]) -> Result<Self, String> {
        let scene = Arc::new(scene);
        let is_reported = |subject: &&Arc<Subject>| scene.verbs.iter().any(|verb| subject.is_reported(&scene, *verb));
        let compared_subjects =
            subjects.iter().filter(is_reported).map(|subject| ComparedSubject::new(subject.clone(), scene.clone()));
        Ok(Self {
            compared_subjects: compared_subjects.collect::<Result<_, _>>()?,
            scene: scene.clone(),
            crowd: 0,
            turn: Random::new(0, ""),
        })
    }

    /// Goes on where another comparison of this scene and these subjects has ended.
    pub(crate) fn recall(&mut self, mut state: ComparisonState) {
        if let Some(turn) = state.turn {
            self.turn = turn;
        }
        for compared in &mut self.compared_subjects {
            compared.record = state.records.remove(&compared.subject.name).unwrap_or_default();
        }
    }

    /// Ends it; its nodes go.
    pub(crate) fn into_state(self) -> ComparisonState {
        let records =
            self.compared_subjects.into_iter().map(|compared| (compared.subject.name.clone(), compared.record));
        ComparisonState { turn: Some(self.turn), records: records.collect() }
    }

    /// Makes namespaces for so many more pods on each node.
    pub(crate) fn add_pods(&mut self, count: usize) -> Result<Range<usize>, String> {
        let first = self.compared_subjects.first().map_or(0, |compared| compared.pods.len());
        for compared in &mut self.compared_subjects {
            compared.add_pods(count)?;
        }
        Ok(first..first + count)
    }

    /// Lets each subject do this for a pod, and notes what it cost if that is `counted`.
    pub(crate) fn each(&mut self, verb: Verb, pod: usize, counted: bool) {
        for place in shuffled(self.compared_subjects.len(), &mut self.turn) {
            if let Some(compared) = self.compared_subjects.get_mut(place) {
                compared.call(verb, pod, counted);
            }
        }
    }

    /// Lets each subject do this for a pod under trace, and counts.
    pub(crate) fn trace(&mut self, verb: Verb, pod: usize) {
        self.compared_subjects.iter_mut().for_each(|compared| compared.trace(verb, pod));
    }

    /// All verbs of the scene for one pod.
    pub(crate) fn life(&mut self, pod: usize, counted: bool) {
        for verb in self.scene.clone().verbs {
            self.each(*verb, pod, counted);
        }
    }

    /// All verbs of the scene for each pod, one subject after the other: what one leaves in the processor's caches,
    /// sixty thousand files that it read for instance, is no cost of another. A slow subject gets through fewer pods than
    /// all.
    pub(crate) fn lives_apart(&mut self, pods: Range<usize>) {
        const BUDGET: Duration = Duration::from_secs(10);
        const AT_LEAST: usize = 7;
        for place in shuffled(self.compared_subjects.len(), &mut self.turn) {
            let Some(compared) = self.compared_subjects.get_mut(place) else { continue };
            for (done, pod) in pods.clone().enumerate() {
                let spent: Duration = compared.record.costs.values().flatten().map(|cost| cost.gone).sum();
                if spent > BUDGET && done >= AT_LEAST {
                    break;
                }
                self.scene.verbs.iter().for_each(|verb| compared.call(*verb, pod, true));
            }
        }
    }

    /// Returns the outcomes since the last time, by verb and then by subject.
    pub(crate) fn outcomes(&mut self) -> Vec<(Verb, String, Outcome)> {
        let scene = self.scene.clone();
        let mut outcomes = Vec::new();
        for verb in scene.verbs {
            for compared in &mut self.compared_subjects {
                if compared.subject.is_reported(&scene, *verb) {
                    outcomes
                        .extend(compared.outcome(*verb).map(|outcome| (*verb, compared.subject.name.clone(), outcome)));
                }
            }
        }
        for compared in &mut self.compared_subjects {
            compared.record.costs.clear();
            compared.record.counts.clear();
        }
        outcomes
    }
}

/// The numbers below `count` in an order that favours no subject: were it only rotated, each subject would always
/// come after the same one, and find the processor's caches as that one left them. The same in each run.
fn shuffled(count: usize, random: &mut Random) -> Vec<usize> {
    let mut order: Vec<_> = (0..count).collect();
    (1..count).rev().for_each(|left| order.swap(left, random.below(left + 1)));
    order
}

impl ComparedSubject {
    fn new(subject: Arc<Subject>, scene: Arc<Scene>) -> Result<Self, String> {
        let node = SubjectNode::new()?;
        let of_scene = scene.clone();
        node.run(move |node| Subject::prepare(node, &of_scene))??;
        Ok(Self { subject, node, scene, pods: Vec::new(), record: CostRecord::default() })
    }

    fn add_pods(&mut self, count: usize) -> Result<(), String> {
        let first = self.pods.len();
        let numbers =
            (first..first + count).map(|number| u32::try_from(number).unwrap_or(u32::MAX)).collect::<Vec<_>>();
        self.pods.extend(
            self.node
                .run(move |node| numbers.iter().map(|number| Attached::create(node, *number)).collect::<Vec<_>>())?,
        );
        Ok(())
    }

    /// Does this for a pod; after a failure, nothing.
    pub(crate) fn call(&mut self, verb: Verb, pod: usize, counted: bool) {
        let done = self.at(verb, pod, |_, calls, answer| calls.timed(answer));
        if let Some(cost) = done
            && counted
        {
            self.record.costs.entry(verb.to_string()).or_default().push(cost);
        }
    }

    /// Does this for a pod under trace.
    pub(crate) fn trace(&mut self, verb: Verb, pod: usize) {
        if let Some(counts) = self.at(verb, pod, |node, calls, answer| calls.traced(node, answer)) {
            self.record.counts.entry(verb.to_string()).or_default().push(counts);
        }
    }

    fn at<T: Send + 'static>(
        &mut self,
        verb: Verb,
        pod: usize,
        work: impl FnOnce(&Node, &Calls, &mut Value) -> Result<T, String> + Send + 'static,
    ) -> Option<T> {
        if self.has_failed() || !self.subject.takes_part(&self.scene, verb) {
            return None;
        }
        let calls = self.calls(verb, pod)?;
        let done = self.node.run(move |node| {
            let mut answer = Value::Null;
            work(node, &calls, &mut answer).map(|done| (done, answer))
        });
        match done {
            Ok(Ok((done, answer))) => {
                if verb == Verb::Add
                    && let Some(pod) = self.pods.get_mut(pod)
                {
                    pod.result = answer;
                }
                Some(done)
            }
            Ok(Err(why)) | Err(why) => {
                self.fail(verb, why);
                None
            }
        }
    }

    /// Returns the subject's calls for a pod.
    pub(crate) fn calls(&self, verb: Verb, pod: usize) -> Option<Calls> {
        let pod = self.pods.get(pod)?.clone();
        Some(Calls { subject: self.subject.clone(), scene: self.scene.clone(), verb, pod })
    }

    /// Returns whether the subject has failed, and is not called any more.
    pub(crate) fn has_failed(&self) -> bool {
        self.record.failure.is_some()
    }

    pub(crate) fn fail(&mut self, verb: Verb, why: String) {
        self.record.failure = Some((verb, why));
    }

    /// Why there are no figures of a verb.
    pub(crate) fn failure_at(&self, verb: Verb) -> Option<String> {
        let (at, why) = self.record.failure.as_ref()?;
        Some(if *at == verb { why.clone() } else { format!("its {at} failed") })
    }

    fn outcome(&self, verb: Verb) -> Option<Outcome> {
        if let Some(why) = self.failure_at(verb) {
            return Some(Outcome::Failed(why));
        }
        let counts = self.record.counts.get(&verb.to_string()).and_then(|counts| TraceCounts::median(counts));
        let figures = Figures::of(self.record.costs.get(&verb.to_string())?, counts)?;
        Some(Outcome::Measured(Box::new(figures)))
    }
}

/// All calls of what a subject does for one verb and one pod.
pub(crate) struct Calls {
    subject: Arc<Subject>,
    scene: Arc<Scene>,
    verb: Verb,
    pod: Attached,
}

impl Calls {
    /// Makes each, in order; returns the first one's answer.
    fn each(&self, first: &mut Value, mut make: impl FnMut(&Call) -> Result<Value, String>) -> Result<(), String> {
        let mut answer = Value::Null;
        for index in 0.. {
            let Some(call) = self.subject.call(&self.scene, self.verb, &self.pod, index, &answer) else {
                break;
            };
            answer = make(&call)?;
            if index == 0 {
                *first = answer.clone();
            }
        }
        Ok(())
    }

    fn timed(&self, first: &mut Value) -> Result<Cost, String> {
        let mut all = Cost::default();
        self.each(first, |call| {
            let (cost, answer) = call.timed()?;
            all += cost;
            Ok(answer)
        })?;
        Ok(all)
    }

    fn traced(&self, node: &Node, first: &mut Value) -> Result<TraceCounts, String> {
        let mut all = TraceCounts::default();
        self.each(first, |call| {
            let program = Program {
                executable: &call.program,
                arguments: &call.arguments,
                environment: &call.environment,
                stdin: &call.stdin,
                deadline: DEADLINE,
            };
            let seen = program
                .trace(node)
                .ok_or_else(|| format!("{}: not through in time under trace", call.description()))?;
            testns::orphans::reap();
            all.add(&seen);
            call.verify_output(&seen.output.status, seen.output.stdout.as_bytes(), seen.output.stderr.as_bytes())
        })?;
        Ok(all)
    }

    /// The only call, to be made beside others; `None` when it is several.
    pub(crate) fn only(&self) -> Option<Call> {
        let one = self.subject.call(&self.scene, self.verb, &self.pod, 0, &Value::Null)?;
        let second = self.subject.call(&self.scene, self.verb, &self.pod, 1, &Value::Null);
        second.is_none().then_some(one)
    }
}

#[cfg(test)]
mod tests {
    use super::shuffled;
    use testns::Random;

    #[test]
    fn everybody_comes_after_everybody_about_as_often() {
        let (mut random, mut after) = (Random::new(0, ""), [[0; 4]; 4]);
        for _ in 0..1200 {
            let order = shuffled(4, &mut random);
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3]);
            order.windows(2).for_each(|two| after[two[0]][two[1]] += 1);
        }
        // 3,600 pairs of 12 kinds.
        let others = (0..4)
            .flat_map(|first| (0..4).map(move |second| (first, second)))
            .filter(|(first, second)| first != second);
        for (first, second) in others {
            assert!((240..=360).contains(&after[first][second]), "{after:?}");
        }
    }
}
