//! The specification sentence by sentence, with the rules that ask for it, as a page in Markdown.

use crate::rule::{Level, Rule, Source};
use crate::sentences::{self, Force, Sentence};
use crate::{rules, runtime, stress};

const HEAD: &str = "# Rules, version 1.0

What CNI SPEC 1.1.0, as it stands since library 1.3, and CONVENTIONS say, with what 1.0.0 and 0.4.0 said otherwise, sentence by \
sentence in our own words (**bold**: how bindingly, to whom, in which editions; without a word of force it is a definition or a step \
of a procedure, STATED). Below each are the rules that cite it: whom they bind, what they ask, their cases. A rule is as binding as the \
sentence that it cites, with every case, and is tried only with versions of an edition that has the sentence. The values of a result's \
keys are a MUST, as the list of keys is. In the row of a sentence are rules that ask for it beside another. What no sentence says comes \
last: RELIED ON, written nowhere, with those who depend on it; and ROBUSTNESS, which `cni-conformance stress` tries. \
`cni-conformance explain RULE` has what each case does.
";

const COLUMNS: &str = "| Sentence, rules | Binds | Says | Cases |\n|---|---|---|---|\n";

pub fn page() -> String {
    let of_plugins = rules::all().chain(stress::rules()).map(Row::new);
    let all: Vec<_> = of_plugins.chain(runtime::rules::all().map(Row::new)).collect();
    let mut text = HEAD.to_owned();
    let mut family = "";
    for sentence in sentences::all() {
        let (own, _) = sentence.id.split_once('/').unwrap_or((&sentence.id, ""));
        if own != family {
            family = own;
            text += &format!("\n## {family}\n\n{COLUMNS}");
        }
        let asking = sentence.rules();
        let first = |row: &&Row| row.cited.first().is_some_and(|id| *id == sentence.id);
        let (own, others): (Vec<_>, Vec<_>) = all.iter().filter(|row| asking.contains(&row.id)).partition(first);
        text += &said(sentence, &others.iter().map(|row| row.id).collect::<Vec<_>>().join(", "));
        text.extend(own.iter().map(|row| row.line("")));
    }
    text += &format!("\n## What no sentence says\n\n{COLUMNS}");
    text.extend(all.iter().filter(|row| row.cited.is_empty()).map(|row| row.line(&format!("{}. ", row.whom))));
    text
}

/// A sentence's row: how bindingly it speaks to whom, and rules in rows of other sentences that ask for it, too.
fn said(sentence: &Sentence, others: &str) -> String {
    let Sentence { id, section, force, binds, says, unasked, .. } = sentence;
    let editions = sentence.editions();
    let force = match force {
        Force::Plain => String::new(),
        Force::May => "MAY ".to_owned(),
        Force::Must => format!("{} ", Level::Must),
        Force::Should => format!("{} ", Level::Should),
    };
    let binds = format!("{binds:?}").to_lowercase();
    let asked = unasked.as_ref().map_or(others.to_owned(), |why| format!("none: {why}"));
    format!("| **{id}** | {force}{binds}{editions} | {says} ({section}) | {asked} |\n")
}

/// A rule, of plugins or of runtimes.
struct Row {
    id: &'static str,
    cited: &'static [&'static str],
    whom: String,
    binds: String,
    says: &'static str,
    cases: String,
}

impl Row {
    fn new<B>(rule: &'static Rule<B>) -> Self {
        let Rule { id, sentence, source, .. } = rule;
        let cited: &[&str] = if let Source::Spec(cited) = source { cited } else { &[] };
        Self { id, cited, whom: rule.section(), binds: rule.binds(), says: sentence, cases: cases(rule) }
    }

    fn line(&self, whom: &str) -> String {
        let Self { id, binds, says, cases, .. } = self;
        format!("| {id} | {binds} | {whom}{says} | {cases} |\n")
    }
}

/// Names of a rule's cases.
pub(crate) fn cases<B>(rule: &Rule<B>) -> String {
    match rule.cases {
        [case] if case.name.is_empty() => "one".to_owned(),
        cases => cases.iter().map(|case| case.name).collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests {
    /// Each rule is on the page: plugins are not judged by an undocumented rule.
    #[test]
    fn the_page_has_each_rule_once() {
        let page = super::page();
        let plugins = crate::rules::all().chain(crate::stress::rules()).map(|rule| rule.id);
        for id in plugins.chain(crate::runtime::rules::all().map(|rule| rule.id)) {
            assert_eq!(page.matches(&format!("\n| {id} |")).count(), 1, "{id}");
        }
    }
}
