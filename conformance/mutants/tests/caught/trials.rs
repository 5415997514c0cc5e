//! Trials of mutants.

use cni_conformance::machine_features::MachineFeatures;
use cni_conformance::profile::Stage;
use cni_conformance::schedule::{self, Candidate, Planned, Wanted};
use cni_conformance::trial::{Report, Verdict};
use cni_conformance::{Profile, Rule, Subject, isolated_task, rules, run};
use mutants::{Honest, Mutant, Row};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

/// Folders in which the plugins are honest, the second for mutants that are [`Mutant::ipam_as_process`].
const HONEST: [&str; 2] = ["honest", "honest-apart"];

/// The number of seconds that a call may take.
const CALL_SECONDS: u64 = 30;

const TRIAL_DEADLINE: Duration = Duration::from_secs(300);

/// Rules that any mutant but those that are named for it keeps to: quick ones, each about another end of a plugin.
const NEIGHBOURS: [&str; 3] = ["version.lists-versions", "add.prints-a-result", "errors.6-undecodable"];

pub(crate) struct Kit {
    folders: tempfile::TempDir,
    machine: &'static MachineFeatures,
}

/// Outcomes of the trials of one subject, by rule.
type ByRule = BTreeMap<String, Vec<Report>>;

impl Kit {
    pub(crate) fn new<'a>(mutants: impl Iterator<Item = &'a Mutant>) -> Self {
        static MACHINE: OnceLock<MachineFeatures> = OnceLock::new();
        isolated_task::use_executable(env!("CARGO_BIN_EXE_kit-under-test"));
        let machine = MACHINE.get_or_init(|| run::look().expect("the kit can work here"));
        // Beside the executable, as hard links cannot leave its filesystem.
        let folders = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("cannot create a folder");
        let honest = HONEST.into_iter().zip([false, true]);
        for (name, apart) in mutants.map(|mutant| (mutant.name, mutant.ipam_as_process)).chain(honest) {
            fill(&folders.path().join(name), apart);
        }
        Self { folders, machine }
    }

    fn subject(&self, name: &str) -> Subject {
        Subject { label: name.to_owned(), bin_dir: Path::new(self.folders.path()).join(name), also: Vec::new() }
    }

    fn plan(&self, subject: &Subject, mutant: &Mutant, rules: Vec<&'static Rule>, cases: &[&str]) -> Vec<Planned> {
        let mut profile = Profile::find(mutant.profile).expect("the profile is built in").for_subject(subject);
        let folders = mutant.writes.iter().map(|path| Stage::Folder { path: path.into() });
        profile.stage.splice(..0, folders);
        let versions = mutant.versions.iter().map(|version| (*version).to_owned()).collect();
        let candidate = Candidate { subject: subject.clone(), profile, versions };
        let cases = cases.iter().map(|name| (*name).to_owned()).collect();
        let wanted = Wanted { rules, cases, seed: 1, repeat: 1, call_seconds: CALL_SECONDS, every_point: false };
        schedule::trials(&candidate, &wanted, self.machine)
    }

    fn plan_honest(&self, mutant: &Mutant) -> Vec<Planned> {
        let subject = self.subject(HONEST[usize::from(mutant.ipam_as_process)]);
        self.plan(&subject, mutant, find_rule(mutant.rule).into_iter().collect(), &mutant.cases)
    }

    /// Runs one trial at a time: there is a test for each group of mutants, and those run side by side.
    fn run(&self, planned: Vec<Planned>) -> BTreeMap<String, ByRule> {
        self.run_on(planned, 1)
    }

    fn run_on(&self, planned: Vec<Planned>, jobs: usize) -> BTreeMap<String, ByRule> {
        let mut all: BTreeMap<String, ByRule> = BTreeMap::new();
        for report in schedule::run(planned, self.machine, jobs, TRIAL_DEADLINE, |_| ()) {
            let label = report.trial.subject.label.clone();
            all.entry(label).or_default().entry(report.trial.rule.clone()).or_default().push(report);
        }
        all
    }

    /// Tries each mutant with its rule and some others, and the honest plugin with the same. What is not as it should
    /// be, a text each.
    pub(crate) fn faults(&self, mutants: &[Mutant]) -> Vec<String> {
        let mut planned = Vec::new();
        let mutants: Vec<&Mutant> = mutants.iter().filter(|mutant| has_links(mutant)).collect();
        for mutant in &mutants {
            let subject = self.subject(mutant.name);
            let neighbours = NEIGHBOURS.iter().filter(|id| **id != mutant.rule && !mutant.also.contains(id));
            planned.extend(self.plan(&subject, mutant, neighbours.filter_map(|id| find_rule(id)).collect(), &[]));
            planned.extend(self.plan(&subject, mutant, find_rule(mutant.rule).into_iter().collect(), &mutant.cases));
            let honest = if mutant.honest == Honest::Too { self.plan_honest(mutant) } else { Vec::new() };
            for once in honest {
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

    /// Tries the honest plugins with the rules of slow mutants. What is not as it should be, a text each.
    pub(crate) fn faults_of_honest<'a>(&self, slow: impl Iterator<Item = &'a Mutant>) -> Vec<String> {
        let reports = self.run(slow.flat_map(|mutant| self.plan_honest(mutant)).collect());
        reports.values().flatten().flat_map(|(rule, reports)| of_honest(rule, reports)).collect()
    }

    /// Tries each mutant with every rule that takes no long. What it breaks that neither its row names nor the honest
    /// plugin breaks, and what its row names that it keeps to, a text each.
    pub(crate) fn broken_besides(&self, mutants: &[Mutant]) -> Vec<String> {
        let is_quick = |rule: &&'static Rule| !LONG.iter().any(|family| rule.id.starts_with(family));
        let rules: Vec<_> = rules::all().filter(is_quick).collect();
        let plan = |mutant: &Mutant| self.plan(&self.subject(mutant.name), mutant, rules.clone(), &[]);
        let planned = mutants.iter().filter(|mutant| has_links(mutant)).flat_map(plan).collect();
        let reports = self.run_on(planned, SIDE_BY_SIDE);
        let faults = |mutant: &Mutant| {
            let reports = reports.get(mutant.name)?;
            let keeps = |id: &&str| reports.get(*id).is_some_and(|own| !own.iter().any(|one| is_failure(&one.verdict)));
            let kept = mutant.also.iter().copied().filter(keeps);
            let stale = kept.map(|id| format!("{} keeps to {id}, which its row names", mutant.name));
            Some(broken_besides(mutant, reports).into_iter().chain(stale).collect::<Vec<_>>())
        };
        mutants.iter().filter_map(faults).flatten().collect()
    }
}

/// Trials at a time of a group, of which as many run as there are processors.
const SIDE_BY_SIDE: usize = 3;

/// Rules that are left out there: families in which each takes seconds.
const LONG: [&str; 1] = ["concurrency."];

fn has_links(mutant: &Mutant) -> bool {
    match mutant.profile {
        "macvlan" => testns::Feature::Macvlan.or_skip(),
        "tap-with-owner" => testns::Feature::Tun.or_skip(),
        "bandwidth" => testns::Feature::Ifb.or_skip(),
        _ => true,
    }
}

/// Plugins of which there are mutants; the first two are tried also as executables of their own.
const PLUGINS: [&str; 12] = [
    "bridge",
    "host-local",
    "ptp",
    "macvlan",
    "host-device",
    "tap",
    "static",
    "dhcp",
    "portmap",
    "bandwidth",
    "firewall",
    "tuning",
];

fn fill(folder: &Path, apart: bool) {
    const MUTANT: &str = env!("CARGO_BIN_EXE_mutant");
    fs::create_dir(folder).unwrap_or_else(|error| panic!("cannot create {}: {error}", folder.display()));
    for plugin in if apart { &PLUGINS[..2] } else { &PLUGINS[..] } {
        let executable = folder.join(plugin);
        let laid = match apart {
            // Of another size, so that it is no copy of this build, which would be called in the process.
            true => fs::read(MUTANT)
                .and_then(|bytes| fs::write(&executable, [&bytes, plugin.as_bytes()].concat()))
                .and_then(|()| fs::set_permissions(&executable, fs::metadata(MUTANT)?.permissions())),
            false => fs::hard_link(MUTANT, &executable),
        };
        laid.unwrap_or_else(|error| panic!("cannot create {}: {error}", executable.display()));
    }
}

/// A rule, or none: that there is no such rule is said by `mutants_name_what_there_is`.
fn find_rule(id: &str) -> Option<&'static Rule> {
    rules::rule(id)
}

fn is_failure(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Fail(_))
}

/// A mutant breaks its rule, and of those that were tried no other but those that its row names.
fn of_mutant(mutant: &Mutant, reports: &ByRule) -> Vec<String> {
    let Row { name, rule, .. } = &mutant.row;
    let all = || reports.iter().flat_map(|(rule, reports)| reports.iter().map(move |report| (rule, report)));
    let mut faults = Vec::new();
    if !all().any(|(of, report)| of == rule && is_failure(&report.verdict)) {
        let own = reports.get(*rule).into_iter().flatten().map(describe).collect::<String>();
        faults.push(format!("{name} is not caught by {rule}:{own}"));
    }
    // To be read with --nocapture: a mutant may be caught for another reason than its own.
    for (of, report) in all().filter(|(of, report)| of == rule && is_failure(&report.verdict)) {
        eprintln!("{name} is caught by {of}:{}", describe(report));
    }
    faults.extend(broken_besides(mutant, reports));
    faults
}

/// Rules that a mutant breaks although its row does not name them, each with a finding.
fn broken_besides(mutant: &Mutant, reports: &ByRule) -> Vec<String> {
    let Row { name, rule, also, .. } = &mutant.row;
    let of_rule = |(of, reports): (&String, &Vec<Report>)| {
        let may = |id: &str| id == *rule || also.contains(&id);
        let is_fault = |report: &&Report| match &report.verdict {
            // Of the basis it may be that it was not tried.
            Verdict::Fail(finding) => !may(of) && !finding.basis.as_ref().is_some_and(|basis| may(&basis.rule)),
            Verdict::Broken { .. } => true,
            Verdict::Pass | Verdict::Skip { .. } | Verdict::Exempt { .. } => false,
        };
        let found = reports.iter().find(is_fault)?;
        Some(format!("{name} breaks also {of}:{}", describe(found)))
    };
    reports.iter().filter_map(of_rule).collect()
}

/// The plugin without the mutation is checked by the rule and passes it; the rule is not skipped.
fn of_honest(rule: &str, reports: &[Report]) -> Vec<String> {
    let is_bad = |report: &&Report| matches!(report.verdict, Verdict::Fail(_) | Verdict::Broken { .. });
    let bad: Vec<_> = reports.iter().filter(is_bad).collect();
    let mut faults: Vec<_> = bad.iter().map(|report| format!("honest breaks {rule}:{}", describe(report))).collect();
    if bad.is_empty() && !reports.iter().any(|report| report.verdict == Verdict::Pass) {
        faults.push(format!("honest is not tried with {rule}:{}", reports.iter().map(describe).collect::<String>()));
    }
    faults
}

fn describe(report: &Report) -> String {
    let trial = &report.trial;
    let verdict = match &report.verdict {
        Verdict::Pass => "pass".to_owned(),
        Verdict::Fail(finding) => format!("fail: {finding}\n{}", finding.diff),
        Verdict::Skip { why } | Verdict::Exempt { why } => format!("skip: {why}"),
        Verdict::Broken { why } => format!("not tried: {why}"),
    };
    format!("\n  {} {} {:?} {}: {verdict}", trial.profile.name, trial.version, trial.case, report.milliseconds)
}
