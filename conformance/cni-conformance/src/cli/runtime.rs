//! The command line of `runtime`: which one, how it is driven, which rules.

use super::trial_options::Trials;
use crate::finding::quoted;
use crate::machine_features::MachineFeatures;
use crate::profile::Role;
use crate::progress::Progress;
use crate::report::document::rfc_3339;
use crate::report::{self, Asked, Document, Origin, Use, Who};
use crate::run::{self, Outcome};
use crate::runtime::{Driver, Rule, Trial, rules};
use crate::schedule::{self, Planned, chosen};
use crate::trial::{Report, Verdict};
use clap::Args;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// The longest time that asking a command for its help may take.
const HELP_DEADLINE: Duration = Duration::from_secs(10);

/// Options of `runtime`.
#[derive(Debug, Args)]
pub struct Options {
    /// The runtime, and arguments that come before those of its driver
    #[arg(last = true, value_name = "COMMAND", required_unless_present = "list_rules")]
    command: Vec<String>,
    /// The driver, as JSON; else the command is cnitool
    #[arg(long, value_name = "FILE")]
    driver: Option<PathBuf>,
    /// What reports call it; by default the driver's name
    #[arg(long, value_name = "NAME")]
    label: Option<String>,
    /// After how many seconds the runtime should have ended a plugin that hangs; else that is not tried
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    patience: Option<u64>,
    #[command(flatten)]
    trials: Trials,
}

struct Order {
    command: Vec<String>,
    driver: Driver,
    label: String,
    rules: Vec<&'static Rule>,
    notes: Vec<String>,
    seed: u64,
}

impl Options {
    /// Does what the options say. `None` if nothing was to be tried.
    pub fn run(&self) -> Result<Option<Outcome>, String> {
        let rules = self.trials.rules(rules::all())?;
        let given = self.given_driver()?;
        if self.trials.list_rules {
            let mut stdout = io::stdout().lock();
            return crate::rules::table(&rules, &mut stdout).map(|()| None).map_err(|error| error.to_string());
        }
        report::can_be_delivered(&self.trials.report)?;
        let (start, began) = (Instant::now(), SystemTime::now());
        let mut order = self.order(rules, given)?;
        let machine = run::look()?;
        if !machine.own_processes {
            order.notes.push("this machine hides parts of its /proc: what a runtime leaves behind lives on".to_owned());
        }
        let (planned, deadline) = (self.planned(&order), self.trials.case_deadline());
        let (count, mut progress) = (planned.len(), Progress::on_stderr());
        let run = |trial: &Trial| trial.run(&machine, deadline);
        let mut tried = schedule::all(planned, self.trials.side_by_side(), run, |news| progress.report(count, &news));
        schedule::leave_to_basis(&mut tried, |Trial { rule, .. }| (rule, String::new()));
        progress.end();
        let took: Vec<_> = tried.iter().map(|tried| (tried.trial.to_string(), tried.milliseconds)).collect();
        let document = self.document(&order, &machine, tried, (began, start.elapsed()));
        report::deliver(&document, &self.trials.report)?;
        self.trials.tell_slowest(took.into_iter());
        Ok(Some(document.outcome(self.trials.fail_level)))
    }

    fn given_driver(&self) -> Result<Option<Driver>, String> {
        let Some(file) = &self.driver else { return Ok(None) };
        let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        Driver::parse(&text).map(Some).map_err(|error| format!("{}: {error}", file.display()))
    }

    fn order(&self, rules: Vec<&'static Rule>, given: Option<Driver>) -> Result<Order, String> {
        let mut command = self.command.clone();
        let program = command.first_mut().ok_or("name the runtime after --")?;
        *program = find(program)?.display().to_string();
        let program = program.clone();
        let mut notes = Vec::new();
        let driver = match given {
            Some(driver) => driver,
            None => {
                let none = || format!("there is no driver for {program}: describe it with --driver FILE");
                let driver = Driver::built_in(&program, true).ok_or_else(none)?;
                match driver.gives("keep") && !gc_keeps(&command) {
                    false => driver,
                    true => {
                        notes.push("its gc has no --keep: both containers are valid where GC was tried".to_owned());
                        Driver::built_in(&program, false).ok_or_else(none)?
                    }
                }
            }
        };
        for needed in &driver.programs {
            find(needed).map_err(|error| format!("{error}, which {} needs", driver.name))?;
        }
        let label = self.label.clone().unwrap_or_else(|| driver.name.clone());
        Ok(Order { command, driver, label, rules, notes, seed: self.trials.seed() })
    }

    fn planned(&self, order: &Order) -> Vec<Planned<Trial>> {
        let spoken = order.driver.versions();
        let Trials { case: cases, repeat, call_deadline, .. } = &self.trials;
        let is_wanted = |name: &str| cases.is_empty() || cases.iter().any(|case| case == name);
        let mut planned = Vec::new();
        for rule in &order.rules {
            let of_rule: Vec<String> = spoken.iter().filter(|version| rule.is_of(version)).cloned().collect();
            for case in rule.cases.iter().filter(|case| is_wanted(case.name)) {
                let versions = chosen(case.versions, &of_rule);
                let trial = |version: &String| Trial {
                    rule: rule.id.to_owned(),
                    case: case.name.to_owned(),
                    command: order.command.clone(),
                    driver: order.driver.clone(),
                    version: version.clone(),
                    seed: order.seed,
                    call_seconds: *call_deadline,
                    patience_seconds: self.patience,
                };
                if versions.is_empty() {
                    let skip = Some(Verdict::Skip { why: "it speaks no version that this is about".to_owned() });
                    planned.extend(spoken.last().map(|newest| Planned { trial: trial(newest), instead: skip }));
                }
                let exempt = order.driver.unbound(rule.id, case.name);
                for version in versions {
                    let instead = || exempt.map(|why| Verdict::Exempt { why: why.to_owned() });
                    let planned_one = || Planned { trial: trial(version), instead: instead() };
                    planned.extend((0..*repeat).map(|_| planned_one()));
                }
            }
        }
        planned
    }

    fn document(
        &self,
        order: &Order,
        machine: &MachineFeatures,
        tried: Vec<Report<Trial>>,
        (began, took): (SystemTime, Duration),
    ) -> Document {
        let Order { command, driver, label, rules, notes, seed } = order;
        let program = command.first().map(String::as_str).unwrap_or_default();
        let folder = Path::new(program).parent().unwrap_or(Path::new("/")).display().to_string();
        let origin = Origin {
            kit: env!("CARGO_PKG_VERSION").to_owned(),
            began: rfc_3339(began),
            milliseconds: took.as_millis().try_into().unwrap_or(u64::MAX),
            kernel: machine.kernel.clone(),
            command: std::env::args().skip(1).collect(),
            subjects: vec![label.clone()],
            notes: notes.clone(),
            seed: *seed,
        };
        Document {
            format: report::FORMAT.to_owned(),
            version: report::VERSION,
            runs: vec![origin],
            subjects: vec![Who { label: label.clone(), folder, also: Vec::new() }],
            profiles: vec![Use {
                subject: label.clone(),
                name: driver.name.clone(),
                role: Role::Runtime,
                executable: program.to_owned(),
                plugins: Vec::new(),
            }],
            rules: rules.iter().map(|rule| Asked::new(rule)).collect(),
            trials: tried.into_iter().map(|tried| self.described(order, tried)).collect(),
        }
    }

    fn described(&self, order: &Order, tried: Report<Trial>) -> report::Tried {
        let Report { trial, verdict, calls, milliseconds } = tried;
        report::Tried {
            again: if verdict.is_worth_another() { self.again(&trial) } else { String::new() },
            rule: trial.rule,
            case: trial.case,
            subject: order.label.clone(),
            profile: order.driver.name.clone(),
            cni_version: trial.version,
            seed: trial.seed,
            verdict,
            known: false,
            calls,
            milliseconds,
        }
    }

    fn again(&self, trial: &Trial) -> String {
        let mut arguments = vec![format!("{} runtime --rule {}", report::program(), trial.rule)];
        if !trial.case.is_empty() {
            arguments.push(format!("--case {}", quoted(&trial.case)));
        }
        arguments.extend(self.driver.iter().map(|file| format!("--driver {}", quoted(&report::absolute(file)))));
        arguments.push(format!("--seed {}", trial.seed));
        arguments.extend(self.patience.map(|seconds| format!("--patience {seconds}")));
        arguments.push("--".to_owned());
        arguments.extend(trial.command.iter().map(|word| quoted(word)));
        arguments.join(" ")
    }
}

/// The path of a command, looked up as a shell would.
fn find(command: &str) -> Result<PathBuf, String> {
    let runs =
        |path: &Path| path.metadata().is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0);
    let found = match command.contains('/') {
        true => Some(PathBuf::from(command)),
        false => std::env::split_paths(&search_path()).map(|dir| dir.join(command)).find(|path| runs(path)),
    };
    let found = found.filter(|path| runs(path)).ok_or_else(|| format!("there is no executable {command}"))?;
    std::path::absolute(&found).map_err(|error| format!("{}: {error}", found.display()))
}

#[expect(clippy::disallowed_methods, reason = "a command is looked up as a shell would")]
fn search_path() -> std::ffi::OsString {
    std::env::var_os("PATH").unwrap_or_default()
}

fn gc_keeps(command: &[String]) -> bool {
    let Some((program, arguments)) = command.split_first() else {
        return false;
    };
    let mut help = std::process::Command::new(program);
    help.args(arguments).args(["gc", "--help"]);
    testns::try_run(help, b"", HELP_DEADLINE).is_some_and(|output| output.stdout.contains("--keep"))
}
