//! The command line.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Parser;

use crate::callers::{self, Init};
use crate::growth::Dimension;
use crate::latency::{self, Amount};
use crate::report::{self, Conditions, Described, Report};
use crate::scene::{Kind, Scene};
use crate::subject::{Built, Staging, Subject};
use crate::{burst, growth, progress, scene};

/// The costs of a call of a plugin: ours, the reference, and the least netlink, side by side
#[derive(Debug, Parser)]
#[command(name = "cargo bench --package bench --")]
pub(crate) struct Options {
    /// Only these: a scene (version, loopback, host-local, bridge, bridge-masq, bridge-dual, ptp, macvlan, chain, full-chain,
    /// full-chain-ports), calls back to back (burst, burst-masq, burst-chain), or what grows
    /// (reservations, pods, rules, links, attachments, mappings); may be repeated
    #[arg(long, value_name = "ROW")]
    only: Vec<String>,
    /// Pods that each row is measured on
    #[arg(long, value_name = "N", default_value_t = 100)]
    pods: usize,
    /// So many callers at a time in the rows back to back, 1, 8 and 64 otherwise; may be repeated
    #[arg(long, value_name = "N")]
    at_once: Vec<NonZeroUsize>,
    /// Few pods and small sizes: shows that everything works, and little else
    #[arg(long)]
    quick: bool,
    /// Another subject: a folder with `cni-plugins` and `cnitool`, or with an executable for each plugin; may be repeated
    #[arg(long, value_name = "NAME=DIR", value_parser = named)]
    subject: Vec<(String, PathBuf)>,
    /// The reference's folder, target/reference otherwise; left out if there is none
    #[arg(long, value_name = "DIR", default_value_os_t = reference(), hide_default_value = true)]
    reference: PathBuf,
    /// Leaves a subject out: ours, reference, floor, ...; may be repeated
    #[arg(long, value_name = "NAME")]
    without: Vec<String>,
    /// Writes everything that was measured
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Measures nothing, but shows what `--json` has written
    #[arg(long, value_name = "FILE", conflicts_with_all = ["only", "subject", "without", "json", "quick", "at_once"])]
    from: Option<PathBuf>,
    /// Makes the calls that come on stdin
    #[arg(long, hide = true)]
    callers: bool,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

fn reference() -> PathBuf {
    testns::find_reference().map_or_else(|| "target/reference".into(), PathBuf::from)
}

fn named(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, folder)) if !name.is_empty() && !name.contains('/') => Ok((name.to_owned(), folder.into())),
        Some(_) | None => Err("NAME=DIR is wanted, and no / in NAME".to_owned()),
    }
}

impl Options {
    pub(crate) fn try_read() -> Result<Self, clap::Error> {
        Self::try_parse()
    }

    /// Does what the options say; false when a call failed.
    pub(crate) fn run(&self) -> Result<bool, String> {
        if self.callers {
            return callers::serve().map(|()| true);
        }
        let report = match &self.from {
            Some(file) => report::read(file)?,
            None => self.measure()?,
        };
        report::tables(&report, &mut std::io::stdout().lock()).map_err(|error| format!("cannot print: {error}"))?;
        if let Some(file) = &self.json {
            report::write(&report, file)?;
        }
        Ok(report.failures().count() == 0)
    }

    fn measure(&self) -> Result<Report, String> {
        self.check_rows()?;
        testns::orphans::adopt()?;
        let mut report = Report {
            made: Conditions::now(),
            subjects: Vec::new(),
            rows: Vec::new(),
            bursts: Vec::new(),
            growth: Vec::new(),
            notes: Vec::new(),
        };
        let staging = Staging::new()?;
        let subjects = self.subjects(&staging, &mut report.notes)?;
        let described = |subject: &Arc<Subject>| Described {
            name: subject.name.clone(),
            bytes: subject.bytes,
            plugins: subject.plugins,
        };
        report.subjects = subjects.iter().map(described).collect();
        let scenes: Vec<_> = scene::all().into_iter().filter(|scene| self.is_wanted(scene.name)).collect();
        report.rows = latency::measure(&scenes, &subjects, self.amount())?;
        for (_, scene) in burst::scenes().iter().filter(|(row, _)| self.is_wanted(row)) {
            for (at_once, init) in self.at_once().flat_map(|at_once| Init::ALL.map(|init| (at_once, init))) {
                progress(&format!("{}, {at_once} at a time, PID 1 {} ...", scene.name, init.name()));
                report.bursts.extend(burst::measure(scene, &subjects, at_once, init, self.burst(scene, at_once))?);
            }
        }
        for dimension in Dimension::ALL.into_iter().filter(|dimension| self.is_wanted(dimension.name())) {
            let pods = self.amount().pods.div_ceil(4);
            report.growth.extend(growth::measure(dimension, &subjects, pods, self.quick)?);
        }
        Ok(report)
    }

    fn at_once(&self) -> impl Iterator<Item = usize> {
        let asked = self.at_once.iter().map(|count| count.get());
        asked.chain([1, 8, 64].into_iter().filter(|_| self.at_once.is_empty()))
    }

    /// With 100 pods, two hundred calls in a row; fewer of a chain and of many at a time, which take longer.
    fn burst(&self, scene: &Scene, at_once: usize) -> burst::Amount {
        match self.quick {
            true => burst::Amount { rounds: 1, pods: at_once.min(8) },
            false => {
                let rounds = if scene.kind == Kind::Chain || at_once > 8 { 1 } else { 4 };
                burst::Amount { rounds, pods: (self.pods / 2).max(2 * at_once) }
            }
        }
    }

    fn subjects(&self, staging: &Staging, notes: &mut Vec<String>) -> Result<Vec<Arc<Subject>>, String> {
        let mut subjects = staging.built(&Built::find()?)?;
        for (name, folder) in &self.subject {
            subjects.push(staging.folder(name, folder)?);
        }
        match staging.folder("reference", &self.reference) {
            Ok(reference) => subjects.push(reference),
            Err(why) => notes.push(format!("The reference is left out: {why}.")),
        }
        let names: Vec<_> = subjects.iter().map(|subject| subject.name.clone()).collect();
        if let Some(name) = self.without.iter().find(|name| !names.contains(name)) {
            return Err(format!("there is no subject {name:?} to leave out: there are {}", names.join("; ")));
        }
        subjects.retain(|subject| !self.without.contains(&subject.name));
        Ok(subjects.into_iter().map(Arc::new).collect())
    }

    fn check_rows(&self) -> Result<(), String> {
        let growth = Dimension::ALL.map(Dimension::name);
        let all: Vec<_> = scene::all()
            .iter()
            .map(|scene| scene.name)
            .chain(burst::scenes().map(|(row, _)| row))
            .chain(growth)
            .collect();
        match self.only.iter().find(|only| !all.contains(&only.as_str())) {
            Some(row) => Err(format!("there is no row {row:?}: there are {}", all.join(", "))),
            None => Ok(()),
        }
    }

    fn is_wanted(&self, row: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == row)
    }

    fn amount(&self) -> Amount {
        if self.quick { Amount { pods: self.pods.min(5), traced: 1 } } else { Amount { pods: self.pods, traced: 5 } }
    }
}
