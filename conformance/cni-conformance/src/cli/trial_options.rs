//! Options of `plugin` and of `runtime`: which rules, how often, how long, and where that is reported.

use super::unknown;
use crate::report::Target;
use crate::rule::{Level, Rule};
use clap::Args;
use std::io::{self, Write};
use std::thread;
use std::time::{Duration, SystemTime};

/// The default number of trials for each processor: with fewer it idles while they wait for links to come up and
/// namespaces to end, and more only take each other's time.
const JOBS_PER_PROCESSOR: usize = 3;

/// Options that select the trials of a subject of any kind.
#[derive(Debug, Args)]
pub(crate) struct Trials {
    /// Rule or start of the name of some; may be repeated
    #[arg(long, value_name = "ID")]
    rule: Vec<String>,
    /// Case of the rules; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) case: Vec<String>,
    /// Rules of this level and of those that bind more, of several the one that binds least; by default those that --rule
    /// names, else MUST, SHOULD and what takes from others
    #[arg(long, ignore_case = true)]
    level: Vec<Level>,
    /// Status 1 for a finding of this level or of those that bind more; by default MUST, and at any level that a plugin's
    /// DEL or GC, or a runtime's GC, takes what others hold
    #[arg(long, value_name = "LEVEL", ignore_case = true)]
    pub(crate) fail_level: Option<Level>,
    /// Of the random parts, and of a runtime's container IDs; by default another one each time
    #[arg(long)]
    seed: Option<u64>,
    /// Trials of each case
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) repeat: u64,
    /// How many trials run at a time; by default three for each processor, as they mostly wait for the kernel
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// How many seconds a call of a plugin, or a run of the runtime, may take
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) call_deadline: u64,
    /// How many seconds a case may take
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..))]
    case_deadline: u64,
    /// Tell at the end, on stderr, which trials took longest
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    slowest: usize,
    /// Print the rules that would be tried, and try nothing
    #[arg(long)]
    pub(crate) list_rules: bool,
    /// summary, terminal, junit, json or findings, and into which file if not stdout; may be repeated
    #[arg(long, value_name = "FORMAT[=FILE]")]
    pub(crate) report: Vec<Target>,
}

impl Trials {
    pub(crate) fn rules<B>(
        &self,
        all: impl Iterator<Item = &'static Rule<B>>,
    ) -> Result<Vec<&'static Rule<B>>, String> {
        let all: Vec<_> = all.collect();
        let ids: Vec<_> = all.iter().map(|rule| rule.id).collect();
        if let Some(name) = self.rule.iter().find(|name| !ids.iter().any(|id| id.starts_with(name.as_str()))) {
            return Err(unknown("rule", name, &ids));
        }
        let is_named = |rule: &&'static Rule<B>| {
            self.rule.is_empty() || self.rule.iter().any(|name| rule.id.starts_with(name.as_str()))
        };
        let is_default = |rule: &Rule<B>| {
            !self.rule.is_empty()
                || rule.harms_others
                || rule.own
                || matches!(rule.level(), Level::Must | Level::Should | Level::Robustness)
        };
        let is_wanted = |rule: &&Rule<B>| match self.level.is_empty() {
            true => is_default(rule),
            false => self.level.iter().any(|level| rule.level() <= *level),
        };
        let rules: Vec<_> = all.into_iter().filter(|rule| is_wanted(rule)).filter(is_named).collect();
        let cases: Vec<_> = rules.iter().flat_map(|rule| rule.cases).map(|case| case.name).collect();
        match self.case.iter().find(|name| !cases.contains(&name.as_str())) {
            Some(name) => Err(unknown("case", name, &cases)),
            None => Ok(rules),
        }
    }

    /// The seed of a run.
    pub(crate) fn seed(&self) -> u64 {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.seed.unwrap_or_else(|| u64::from(now.subsec_nanos()) ^ now.as_secs())
    }

    pub(crate) fn side_by_side(&self) -> usize {
        let processors = thread::available_parallelism().map_or(1, std::num::NonZero::get);
        self.jobs.map_or(processors * JOBS_PER_PROCESSOR, usize::from)
    }

    /// Reports which trials took longest, out of names and milliseconds, if that was asked for.
    pub(crate) fn tell_slowest(&self, trials: impl Iterator<Item = (String, u64)>) {
        let mut trials: Vec<_> = trials.collect();
        trials.sort_by_key(|(_, milliseconds)| std::cmp::Reverse(*milliseconds));
        for (name, milliseconds) in trials.into_iter().take(self.slowest) {
            writeln!(io::stderr(), "{:8.1} s  {name}", Duration::from_millis(milliseconds).as_secs_f64()).ok();
        }
    }

    pub(crate) fn case_deadline(&self) -> Duration {
        Duration::from_secs(self.case_deadline)
    }
}
