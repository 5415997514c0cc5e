//! Several documents as one, so that subjects of different runs stand side by side.

use super::document::{Document, FORMAT, VERSION};
use super::target::{Target, deliver};
use crate::cli::FailLevel;
use crate::run::Outcome;
use clap::Args;
use std::path::PathBuf;

/// Options of `report`.
#[derive(Debug, Args)]
pub struct Options {
    /// JSON report of a run; once for each that is to stand beside the others
    #[arg(long, value_name = "FILE", required = true)]
    from: Vec<PathBuf>,
    /// summary, terminal, junit, json or findings, and into which file if not stdout; may be repeated
    #[arg(long, value_name = "FORMAT[=FILE]")]
    report: Vec<Target>,
    #[command(flatten)]
    fail: FailLevel,
}

impl Options {
    /// Writes reports of runs that are over. What they came to is what one run of all would have.
    pub fn run(&self) -> Result<Outcome, String> {
        let read = |file: &PathBuf| {
            let read = std::fs::read(file).map_err(|error| error.to_string());
            read.and_then(|text| Document::parse(&text)).map_err(|error| format!("{}: {error}", file.display()))
        };
        let document = merged(self.from.iter().map(read).collect::<Result<_, _>>()?);
        deliver(&document, &self.report).map(|()| document.outcome(self.fail.fail_level))
    }
}

/// The union of some documents. Labels that two of them give to different things are distinguished by a number.
pub fn merged(documents: Vec<Document>) -> Document {
    let mut all = Document { format: FORMAT.to_owned(), version: VERSION, ..Document::default() };
    for mut document in documents {
        for place in 0..document.subjects.len() {
            let old = document.subjects[place].label.clone();
            if all.subjects.iter().any(|subject| subject.label == old) && !joins(&all, &document, &old) {
                let is_free = |label: &String| {
                    [&all, &document].iter().all(|one| one.subjects.iter().all(|other| other.label != *label))
                };
                let new = (2..).map(|number| format!("{old} ({number})")).find(is_free).unwrap_or_else(|| old.clone());
                rename(&mut document, &old, &new);
            }
        }
        add(&mut all, document);
    }
    all
}

/// Whether a subject of both is the same one, used in other ways.
fn joins(all: &Document, new: &Document, label: &str) -> bool {
    let folder = |document: &Document| {
        document.subjects.iter().find(|subject| subject.label == label).map(|subject| subject.folder.clone())
    };
    let name = |trial: &super::document::Tried| (trial.profile.clone(), trial.rule.clone());
    let of = |document: &Document| -> Vec<_> {
        document.trials.iter().filter(|trial| trial.subject == label).map(name).collect()
    };
    let known = of(all);
    folder(all) == folder(new) && !of(new).iter().any(|trial| known.contains(trial))
}

fn rename(document: &mut Document, old: &str, new: &str) {
    let labels = document.subjects.iter_mut().map(|subject| &mut subject.label);
    let labels = labels.chain(document.profiles.iter_mut().map(|profile| &mut profile.subject));
    let labels = labels.chain(document.trials.iter_mut().map(|trial| &mut trial.subject));
    for label in labels.chain(document.runs.iter_mut().flat_map(|run| &mut run.subjects)) {
        if label == old {
            new.clone_into(label);
        }
    }
}

fn add(all: &mut Document, new: Document) {
    all.runs.extend(new.runs);
    for subject in new.subjects {
        if !all.subjects.contains(&subject) {
            all.subjects.push(subject);
        }
    }
    for profile in new.profiles {
        if !all.profiles.contains(&profile) {
            all.profiles.push(profile);
        }
    }
    // A rule that is new comes after the one that it followed, so that sections stay together.
    let mut place = 0;
    for rule in new.rules {
        match all.rules.iter().position(|known| known.id == rule.id) {
            Some(known) => place = known + 1,
            None => {
                all.rules.insert(place.min(all.rules.len()), rule);
                place += 1;
            }
        }
    }
    all.trials.extend(new.trials);
}
