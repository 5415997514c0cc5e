//! Trials of mutants.

use cni_conformance::machine::Machine;
use cni_conformance::schedule::{self, Candidate, Planned, Wanted};
use cni_conformance::trial::{Report, Verdict};
use cni_conformance::{Profile, Rule, Subject, errand, rules, run};
use mutants::Mutant;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

/// Folders in which the plugins are honest, the second for mutants that are [`Mutant::apart`].
const HONEST: [&str; 2] = ["honest", "honest-apart"];

/// How long a call may take: mutants that hang are among them.
const CALL_SECONDS: u64 = 10;

const TRIAL_DEADLINE: Duration = Duration::from_secs(300);

/// Rules that any mutant but those that are named for it keeps to: quick ones, each about another end of a plugin.
const NEIGHBOURS: [&str; 1] = ["version.lists-versions"];

/// A folder of plugins for each mutant, and an honest one.
pub(crate) struct Kit {
    folders: tempfile::TempDir,
    machine: &'static Machine,
}

/// What came of the trials of one subject, by rule.
type ByRule = BTreeMap<String, Vec<Report>>;

impl Kit {
    pub(crate) fn new<'a>(mutants: impl Iterator<Item = &'a Mutant>) -> Self {
        static MACHINE: OnceLock<Machine> = OnceLock::new();
        errand::use_executable(env!("CARGO_BIN_EXE_kit-under-test"));
        let machine = MACHINE.get_or_init(|| run::look().expect("the kit can work here"));
        // Beside the executable, as hard links cannot leave its filesystem.
        let folders = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let honest = HONEST.into_iter().zip([false, true]);
        for (name, apart) in mutants.map(|mutant| (mutant.name, mutant.apart)).chain(honest) {
            fill(&folders.path().join(name), apart);
        }
        Self { folders, machine }
    }

    fn subject(&self, name: &str) -> Subject {
        Subject { label: name.to_owned(), bin_dir: Path::new(self.folders.path()).join(name), also: Vec::new() }
    }

    /// The trials of some rules.
    fn plan(&self, name: &str, mutant: &Mutant, rules: Vec<&'static Rule>) -> Vec<Planned> {
        let subject = self.subject(name);
        let profile = Profile::find(mutant.profile).expect("the profile is built in").for_subject(&subject);
        let versions = mutant.versions.iter().map(|version| (*version).to_owned()).collect();
        let candidate = Candidate { subject, profile, versions };
        let wanted = Wanted { rules, cases: Vec::new(), seed: 1, repeat: 1, call_seconds: CALL_SECONDS };
        schedule::trials(&candidate, &wanted, self.machine)
    }

    fn run(&self, planned: Vec<Planned>) -> BTreeMap<String, ByRule> {
        let mut all: BTreeMap<String, ByRule> = BTreeMap::new();
        for report in schedule::run(planned, self.machine, 1, TRIAL_DEADLINE, |_| ()) {
            let label = report.trial.subject.label.clone();
            all.entry(label).or_default().entry(report.trial.rule.clone()).or_default().push(report);
        }
        all
    }

    /// Tries each mutant with its rule and some others, and the honest plugin with the same. What is not as it should
    /// be, a text each.
    pub(crate) fn faults(&self, mutants: &[Mutant]) -> Vec<String> {
        let mut planned = Vec::new();
        for mutant in mutants {
            let mut wanted: Vec<&'static Rule> = NEIGHBOURS.iter().map(|id| rule(id)).collect();
            wanted.retain(|neighbour| neighbour.id != mutant.rule);
            wanted.push(rule(mutant.rule));
            planned.extend(self.plan(mutant.name, mutant, wanted));
            let honest = HONEST[usize::from(mutant.apart)];
            for once in self.plan(honest, mutant, vec![rule(mutant.rule)]) {
                if planned.iter().all(|other: &Planned| other.trial != once.trial) {
                    planned.push(once);
                }
            }
        }
        let mut reports = self.run(planned);
        let mut faults = Vec::new();
        for honest in HONEST.iter().filter_map(|name| reports.remove(*name)) {
            faults.extend(honest.iter().flat_map(|(rule, reports)| of_honest(rule, reports)));
        }
        for mutant in mutants {
            faults.extend(of_mutant(mutant, &reports.remove(mutant.name).unwrap_or_default()));
        }
        faults
    }

    /// Tries one mutant with every rule. Rules that it breaks.
    pub(crate) fn broken_by(&self, mutant: &Mutant) -> Vec<String> {
        let planned = self.plan(mutant.name, mutant, rules::all().collect());
        let reports = self.run(planned).remove(mutant.name).unwrap_or_default();
        let is_broken = |reports: &[Report]| reports.iter().any(|report| is_failure(&report.verdict));
        reports.into_iter().filter(|(_, reports)| is_broken(reports)).map(|(rule, _)| rule).collect()
    }
}

/// Makes a folder with all plugins.
fn fill(folder: &Path, apart: bool) {
    const MUTANT: &str = env!("CARGO_BIN_EXE_mutant");
    fs::create_dir(folder).unwrap();
    for plugin in ["bridge", "host-local", "tuning"] {
        let executable = folder.join(plugin);
        match apart {
            true => drop(fs::copy(MUTANT, executable).unwrap()),
            false => fs::hard_link(MUTANT, executable).unwrap(),
        }
    }
}

fn rule(id: &str) -> &'static Rule {
    rules::all().find(|rule| rule.id == id).unwrap_or_else(|| panic!("there is no rule {id}"))
}

fn is_failure(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Fail(_))
}

/// A mutant breaks its rule, and no other but those that its row names.
fn of_mutant(mutant: &Mutant, reports: &ByRule) -> Vec<String> {
    let Mutant { name, rule, also, .. } = mutant;
    let all = || reports.iter().flat_map(|(rule, reports)| reports.iter().map(move |report| (rule, report)));
    let mut faults = Vec::new();
    if !all().any(|(of, report)| of == rule && is_failure(&report.verdict)) {
        let own = reports.get(*rule).into_iter().flatten().map(told).collect::<String>();
        faults.push(format!("{name} is not caught by {rule}:{own}"));
    }
    for (of, report) in all() {
        let is_free = of == rule || also.contains(&of.as_str());
        match &report.verdict {
            Verdict::Fail(_) if !is_free => faults.push(format!("{name} breaks also {of}:{}", told(report))),
            Verdict::Broken { .. } => faults.push(format!("{name} breaks the kit:{}", told(report))),
            Verdict::Fail(_) | Verdict::Pass | Verdict::Skip { .. } => {}
        }
    }
    faults
}

/// The honest plugin keeps to a rule, and is not just passed over.
fn of_honest(rule: &str, reports: &[Report]) -> Vec<String> {
    let is_bad = |report: &&Report| matches!(report.verdict, Verdict::Fail(_) | Verdict::Broken { .. });
    let bad: Vec<_> = reports.iter().filter(is_bad).collect();
    let mut faults: Vec<_> = bad.iter().map(|report| format!("honest breaks {rule}:{}", told(report))).collect();
    if bad.is_empty() && !reports.iter().any(|report| report.verdict == Verdict::Pass) {
        faults.push(format!("honest is not tried with {rule}:{}", reports.iter().map(told).collect::<String>()));
    }
    faults
}

fn told(report: &Report) -> String {
    let trial = &report.trial;
    let verdict = match &report.verdict {
        Verdict::Pass => "pass".to_owned(),
        Verdict::Fail(finding) => format!("fail: {finding}\n{}", finding.diff),
        Verdict::Skip { why } => format!("skip: {why}"),
        Verdict::Broken { why } => format!("not tried: {why}"),
    };
    format!("\n  {} {} {:?} {}: {verdict}", trial.profile.name, trial.version, trial.case, report.milliseconds)
}
