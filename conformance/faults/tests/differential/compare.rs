//! The differences between two runs of a case.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::case::Case;
use crate::run::{self, Line};
use crate::tolerances::{self, How, Tolerance};
use faults::subjects::Who;

/// A line that only one of the two has.
#[derive(Debug, Clone)]
pub(crate) struct Difference {
    pub(crate) who: Who,
    pub(crate) line: Line,
}

impl Difference {
    /// The difference without names and numbers, so that two faults can be distinguished.
    pub(crate) fn kind(&self) -> String {
        let words = self.line.text.split(' ').filter(|word| !word.contains(|letter: char| letter.is_ascii_digit()));
        format!("{:?} {} {}", self.who, self.line.place, words.collect::<Vec<_>>().join(" "))
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "only {:?}: {}", self.who, self.line)
    }
}

/// A case and a difference of its nodes, for a tolerance to judge.
pub(crate) struct DifferenceContext<'a> {
    pub(crate) case: &'a Case,
    pub(crate) difference: &'a Difference,
    pub(crate) ours: &'a [Line],
    pub(crate) theirs: &'a [Line],
}

impl DifferenceContext<'_> {
    pub(crate) fn said(&self, who: Who, place: &str) -> Option<&Line> {
        let lines = if who == Who::Ours { self.ours } else { self.theirs };
        lines.iter().find(|line| line.place == place)
    }

    /// Whether the call failed with this text, on either side.
    pub(crate) fn is_failure(&self, words: &str) -> bool {
        let said = [Who::Ours, Who::Reference].map(|who| self.said(who, self.difference.line.place));
        said.into_iter().flatten().any(|line| line.fails() && line.words.contains(words))
    }

    /// Whether a call of the verb fails with this text with the plugin of `who`, and succeeds with the other.
    pub(crate) fn is_only_refused_by(&self, who: Who, verb: &str, words: &str) -> bool {
        let place = self.difference.line.place;
        // The call is made by the plugin that did not make the ADD.
        let by = |who: Who| self.said(if place.ends_with(" by the other") { who.other() } else { who }, place);
        let is_refused = by(who).is_some_and(|line| line.fails() && line.words.contains(words));
        place.contains(verb) && is_refused && by(who.other()).is_some_and(|line| !line.fails())
    }

    /// Returns whether the difference is a line about the state of the node or of a pod that contains this text.
    pub(crate) fn is_state(&self, words: &str) -> bool {
        self.difference.line.place.contains(" after ") && self.difference.line.text.contains(words)
    }

    pub(crate) fn fails(&self, who: Who) -> bool {
        ["pod1 ADD", "pod2 ADD"].iter().any(|place| self.said(who, place).is_some_and(Line::fails))
    }

    /// Returns whether a call succeeded and its counterpart did not.
    pub(crate) fn is_about_success(&self) -> bool {
        let fails = |who| self.said(who, self.difference.line.place).is_some_and(Line::fails);
        fails(Who::Ours) != fails(Who::Reference)
    }
}

pub(crate) struct Verdict {
    /// Differences that no tolerance excuses.
    pub(crate) differences: Vec<Difference>,
    pub(crate) tolerances: BTreeSet<&'static str>,
}

pub(crate) fn compare(case: &Case) -> Verdict {
    compare_lines(case, &run::run(case, Who::Ours), &run::run(case, Who::Reference))
}

pub(crate) fn compare_lines(case: &Case, ours: &[Line], theirs: &[Line]) -> Verdict {
    let mut verdict = Verdict { differences: Vec::new(), tolerances: BTreeSet::new() };
    let [ours, theirs] = [ours, theirs].map(|lines| in_common(lines, &mut verdict.tolerances));
    for difference in differences(&ours, &theirs) {
        let seen = DifferenceContext { case, difference: &difference, ours: &ours, theirs: &theirs };
        let excuses = |tolerance: &&Tolerance| matches!(tolerance.how, How::Excuse(excuses) if excuses(&seen));
        let Some(tolerance) = tolerances::ALL.iter().find(excuses) else {
            verdict.differences.push(difference);
            continue;
        };
        verdict.tolerances.insert(tolerance.name);
        // If only one run has a pod, everything that follows differs.
        let decides = ["ADD", "DEL"].iter().any(|verb| difference.line.place.contains(verb));
        if seen.is_about_success() && decides {
            break;
        }
    }
    verdict
}

/// The lines in the form in which both runs are compared.
fn in_common(lines: &[Line], used: &mut BTreeSet<&'static str>) -> Vec<Line> {
    let mut lines = lines.to_vec();
    for Tolerance { name, how, .. } in tolerances::ALL {
        let How::Common(common) = how else { continue };
        lines.retain_mut(|line| {
            let text = common(&line.text);
            if text.as_ref() != Some(&line.text) {
                used.insert(name);
            }
            text.map(|text| line.text = text).is_some()
        });
    }
    lines
}

/// The lines that only one run has, in the order of the run, the reference's first.
fn differences(ours: &[Line], theirs: &[Line]) -> Vec<Difference> {
    // The reference's code for any error that has no type.
    let is_untyped =
        |lines: &[Line], place| lines.iter().any(|line| line.place == place && line.text == "fails with 999");
    let equal_code = |line: &Line| match line.fails() && [ours, theirs].iter().any(|all| is_untyped(all, line.place)) {
        true => Line { text: "fails with 999".to_owned(), ..line.clone() },
        false => line.clone(),
    };
    let [ours, theirs] = [ours, theirs].map(|lines| lines.iter().map(equal_code).collect::<Vec<_>>());
    let mut places = Vec::new();
    ours.iter().chain(&theirs).for_each(|line| {
        if !places.contains(&line.place) {
            places.push(line.place)
        }
    });
    let mut found = Vec::new();
    for place in places {
        let [ours, theirs] =
            [&ours, &theirs].map(|lines| lines.iter().filter(|line| line.place == place).collect::<Vec<_>>());
        // The lines about a link that only one run has follow from that difference.
        let keys = [&ours, &theirs].map(|lines| lines.iter().filter_map(|line| line.sysctl()).collect::<BTreeSet<_>>());
        let is_of_both = |key: &str| keys.iter().all(|keys| keys.contains(key));
        let [ours, theirs] = [&ours, &theirs].map(|lines| {
            let lasting = lines.iter().filter(|line| line.sysctl().is_none_or(is_of_both));
            lasting.copied().collect::<Vec<_>>()
        });
        found.extend(only(&theirs, &ours).map(|line| Difference { who: Who::Reference, line: line.clone() }));
        found.extend(only(&ours, &theirs).map(|line| Difference { who: Who::Ours, line: line.clone() }));
    }
    found
}

/// The lines of `one` that `other` does not have, or has less often.
fn only<'a>(one: &[&'a Line], other: &[&Line]) -> impl Iterator<Item = &'a Line> + use<'a> {
    let mut there = BTreeMap::<&str, usize>::new();
    other.iter().for_each(|line| *there.entry(&line.text).or_default() += 1);
    let is_missing = |line: &&&'a Line| match there.get_mut(line.text.as_str()).filter(|count| **count > 0) {
        Some(count) => {
            *count -= 1;
            false
        }
        None => true,
    };
    one.iter().filter(is_missing).copied().collect::<Vec<_>>().into_iter()
}
