//! The command line of `plugin` and of `stress`: which subjects, which rules.

use super::trial_options::Trials;
use super::unknown;
use crate::finding::CallRecord;
use crate::profile::{Profile, ProfileFile, Role, Stage};
use crate::report::{self, Document, Expected};
use crate::rule::Rule;
use crate::run::{self, Order, Outcome, Run};
use crate::schedule::Wanted;
use crate::subject::{self, Subject};
use crate::trial::{Report, Trial};
use crate::{progress::Progress, rules};
use clap::Args;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Options of `plugin` and of `stress`.
#[derive(Debug, Args)]
pub struct Options {
    /// Folder of executables to test, with a name for reports if wanted; once for each subject to compare
    #[arg(long, value_name = "[LABEL=]DIR", required_unless_present_any = ["list_rules", "profile"])]
    bin_dir: Vec<String>,
    /// File that says how a plugin is used, see PROFILES.md; may be repeated
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    profile: Vec<PathBuf>,
    /// Network config to test with, .conf or .conflist; else each known executable is tested with a built-in one
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// What kind of plugin the config is of, where it does not show that
    #[arg(long, requires = "config")]
    role: Option<Role>,
    /// Folder in which a plugin finds others to delegate to, beside its own
    #[arg(long, value_name = "DIR")]
    also: Vec<PathBuf>,
    /// Folder that plugins may write to beside those that every node has: it is empty for each trial
    #[arg(long, value_name = "DIR")]
    writable: Vec<PathBuf>,
    /// Executable or built-in profile; may be repeated
    #[arg(long, value_name = "PLUGIN", conflicts_with = "config")]
    only: Vec<String>,
    /// File of the findings that are expected, as the format `findings` writes them: they decide the status in place of the
    /// levels, which is 0 if no finding is new and none is lost
    #[arg(long, value_name = "FILE")]
    expect: Option<PathBuf>,
    /// Kill, refuse and fail calls at every point, not at 60 of each at most; of `stress`
    #[arg(long)]
    every_point: bool,
    #[command(flatten)]
    trials: Trials,
}

impl Options {
    /// Does what the options say with some of all these rules. `None` if nothing was to be tried.
    pub fn run(&self, all: impl Iterator<Item = &'static Rule>) -> Result<Option<Outcome>, String> {
        let wanted = self.wanted(all)?;
        if self.trials.list_rules {
            self.profile.iter().try_for_each(|file| ProfileFile::read(file).map(drop))?;
            self.config.iter().try_for_each(|file| given(file, self.role).map(drop))?;
            let mut stdout = std::io::stdout().lock();
            let printed = rules::table(&wanted.rules, &mut stdout);
            return printed.map(|()| None).map_err(|error| error.to_string());
        }
        report::can_be_delivered(&self.trials.report)?;
        let expected = self.expect.as_ref().map(|file| Expected::read(file)).transpose()?;
        let mut notes = Vec::new();
        let pairs = self.pairs(&mut notes)?;
        let names: Vec<_> = pairs.iter().map(|(_, profile)| profile.name.as_str()).collect();
        notes.extend(expected.as_ref().and_then(|expected| expected.strangers(&names)));
        let order = Order {
            pairs,
            wanted,
            side_by_side: self.trials.side_by_side(),
            deadline: self.trials.case_deadline(),
            command: std::env::args().skip(1).collect(),
            notes,
        };
        let mut progress = Progress::on_stderr();
        let run = run::run(order, |count, news| progress.report(count, &news));
        progress.end();
        let mut run = run?;
        let is_known = |trial: &Trial| expected.as_ref().is_some_and(|expected| expected.knows(trial));
        run.name_delegates(is_known, self.trials.side_by_side(), self.trials.case_deadline());
        run.notes.extend(self.hint(&run));
        if run.reports.is_empty() {
            return Err("nothing was tried: none of these rules and cases binds a plugin of this kind (explain RULE)"
                .to_owned());
        }
        let mut document = Document::new(&run);
        let compared = expected.map_or(Ok(()), |expected| expected.compare(&mut document));
        report::deliver(&document, &self.trials.report)?;
        self.trials.tell_slowest(run.reports.iter().map(|report| (report.trial.to_string(), report.milliseconds)));
        Ok(Some(match compared {
            Ok(()) => document.outcome(self.trials.fail_level),
            Err(differences) => {
                writeln!(std::io::stderr(), "cni-conformance: {differences}").ok();
                Outcome::Failed
            }
        }))
    }

    /// Says what may be wrong where a plugin whose role was guessed, and that has no `ipam`, succeeds and makes no
    /// interface, or misses a prevResult.
    fn hint(&self, run: &Run) -> Option<String> {
        let is_guessed = self.config.is_some() && self.role.is_none();
        let says_so = |Report { trial, verdict, calls, .. }: &&Report| {
            let may_be_chained =
                trial.profile.role == Role::Interface && trial.profile.plugins[0].get("ipam").is_none();
            let misses =
                |call: &CallRecord| format!("{}{}", call.stdout, call.stderr).to_lowercase().contains("prevresult");
            is_guessed
                && may_be_chained
                && verdict.finding().is_some()
                && match trial.rule.as_str() {
                    "add.makes-the-interface" => true,
                    "add.prints-a-result" => calls.iter().any(misses),
                    _ => false,
                }
        };
        let report = run.reports.iter().find(says_so)?;
        Some(format!(
            "{} was taken for a plugin that makes an interface, and makes none: if it comes after such a plugin, say --role \
             chained, and it gets a prevResult",
            report.trial.profile.executable
        ))
    }

    fn wanted(&self, all: impl Iterator<Item = &'static Rule>) -> Result<Wanted, String> {
        let rules = self.trials.rules(all)?;
        let Trials { case, repeat, call_deadline, .. } = &self.trials;
        Ok(Wanted {
            rules,
            cases: case.clone(),
            seed: self.trials.seed(),
            repeat: *repeat,
            call_seconds: *call_deadline,
            every_point: self.every_point,
        })
    }

    fn pairs(&self, notes: &mut Vec<String>) -> Result<Vec<(Subject, Profile)>, String> {
        let also: Vec<_> = self.also.iter().map(|dir| subject::folder(dir)).collect::<Result<_, _>>()?;
        let subjects: Vec<_> = self.bin_dir.iter().map(|text| Subject::parse(text, &also)).collect::<Result<_, _>>()?;
        if let Some(label) = twice(subjects.iter().map(|subject| &subject.label)) {
            return Err(format!("two subjects are called {label}"));
        }
        let mut profiles: Vec<ProfileFile> = match &self.config {
            Some(file) => vec![given(file, self.role)?.into()],
            None if self.profile.is_empty() => Profile::built_in().into_iter().map(ProfileFile::from).collect(),
            None => self.profile.iter().map(|file| ProfileFile::read(file)).collect::<Result<_, _>>()?,
        };
        let known: Vec<_> = profiles.iter().map(|one| one.profile.clone()).collect();
        let names: Vec<_> = known.iter().flat_map(|profile| [profile.name.as_str(), &profile.executable]).collect();
        if let Some(name) = self.only.iter().find(|name| !names.contains(&name.as_str())) {
            return Err(unknown("plugin", name, &names));
        }
        let is_named = |profile: &Profile| {
            self.only.is_empty() || self.only.iter().any(|name| [&profile.name, &profile.executable].contains(&name))
        };
        profiles.retain(|one| is_named(&one.profile));
        for ProfileFile { profile, .. } in &mut profiles {
            profile
                .stage
                .splice(..0, self.writable.iter().map(|dir| Stage::Folder { path: report::absolute(dir).into() }));
        }
        if subjects.is_empty() {
            return of_files(profiles, &also);
        }
        let mut pairs = Vec::new();
        for subject in &subjects {
            for ProfileFile { profile, .. } in &profiles {
                let absent = absent(subject, profile);
                match (absent, self.config.is_some() || !self.profile.is_empty()) {
                    (None, _) => pairs.push((subject.clone(), profile.clone().for_subject(subject))),
                    (Some(executable), true) => {
                        return Err(no_executable(subject, executable));
                    }
                    (Some(_), false) => {}
                }
            }
            notes.extend(self.unknown_executables(subject));
        }
        let executables = known.iter().map(|profile| profile.executable.as_str()).collect();
        match pairs.is_empty() {
            true => Err(nothing_known(&subjects, executables, !self.only.is_empty())),
            false => Ok(pairs),
        }
    }

    /// Says which executables are there for which there is no profile, unless the caller has chosen some.
    fn unknown_executables(&self, subject: &Subject) -> Option<String> {
        let known = Profile::built_in();
        let is_unknown = |name: &String| !known.iter().any(|profile| profile.executable == *name);
        let others: Vec<_> = subject.executables().into_iter().filter(is_unknown).collect();
        let is_told = self.only.is_empty() && self.config.is_none() && self.profile.is_empty() && !others.is_empty();
        is_told
            .then(|| format!("not tested, for want of a config (--config): {} of {}", others.join(", "), subject.label))
    }
}

/// The first of some names that another one has, too.
fn twice<'a>(names: impl Iterator<Item = &'a String>) -> Option<&'a String> {
    let mut seen = std::collections::BTreeSet::new();
    names.into_iter().find(|name| !seen.insert(*name))
}

/// Profile files with the executables that they name.
fn of_files(files: Vec<ProfileFile>, also: &[PathBuf]) -> Result<Vec<(Subject, Profile)>, String> {
    if let Some(name) = twice(files.iter().map(|one| &one.profile.name)) {
        return Err(format!("two profiles have the name {name}: say another in `name`"));
    }
    let pair = |ProfileFile { profile, subject }: ProfileFile| {
        let none = format!(
            "{0}: its profile has neither `command` nor `folder`, so --bin-dir has to say where {0} is",
            profile.executable
        );
        let mut subject = subject.ok_or(none)?;
        subject.also.extend_from_slice(also);
        let profile = profile.for_subject(&subject);
        Ok::<_, String>((subject, profile))
    };
    let mut pairs: Vec<(Subject, Profile)> = files.into_iter().map(pair).collect::<Result<_, _>>()?;
    // Plugins of one name in several folders are called by their profiles.
    let labels: Vec<_> = pairs.iter().map(|(subject, _)| subject.clone()).collect();
    let is_shared = |one: &Subject| labels.iter().any(|other| other.label == one.label && other != one);
    for (subject, profile) in pairs.iter_mut().filter(|(subject, _)| is_shared(subject)) {
        subject.label.clone_from(&profile.name);
    }
    Ok(pairs)
}

/// The executable of a profile that a subject does not have.
fn absent<'a>(subject: &Subject, profile: &'a Profile) -> Option<&'a str> {
    let count = if profile.role == Role::List { profile.plugins.len() } else { 1 };
    (0..count).map(|index| profile.executable(index)).find(|name| subject.find(name).is_none())
}

/// Says what is found in place of an executable.
fn no_executable(subject: &Subject, name: &str) -> String {
    let folder = subject.bin_dir.display();
    match subject.bin_dir.join(name).exists() {
        true => format!("{folder}/{name} is not executable"),
        false => {
            let there = subject.executables();
            let there: Vec<_> = there.iter().map(String::as_str).collect();
            unknown(&format!("executable in {folder} called"), name, &there)
        }
    }
}

/// The reason why none of the built-in profiles can be used.
fn nothing_known(subjects: &[Subject], mut known: Vec<&str>, some_were_chosen: bool) -> String {
    let there = match subjects.iter().flat_map(Subject::executables).collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => "there are no executables".to_owned(),
        there => format!("there are {there}"),
    };
    if some_were_chosen {
        return format!("nothing to test: what --only names is not there; {there}");
    }
    known.dedup();
    let known = known.join(", ");
    format!("nothing to test without --config FILE, which says how a plugin is used; that is known of {known}; {there}")
}

fn given(file: &Path, role: Option<Role>) -> Result<Profile, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    Profile::given(&name, &text, role).map_err(|error| format!("{}: {error}", file.display()))
}
