//! The default network of a folder: which file runtimes take, and what hides it.

use crate::validate::finding::{Finding, Level, Notes};
use crate::validate::one_file::is_loopback;
use crate::validate::{Network, Report};

/// Checks the files of a whole folder, which are in the order of [`libcni::conflist::search_order`].
pub(crate) fn check(report: &Report) -> Vec<Finding> {
    let Some(first) = report.networks.first() else { return Vec::new() };
    if first.file > 0 {
        return broken(report, first);
    }
    let mut notes = Notes::new(0, &report.sources);
    let name = &first.conf.name;
    if is_loopback(&first.conf) {
        let text = "the first file by name has loopback alone: containers get no other interface, and no address";
        notes.value(Level::Error, "name", text).help = "Remove the file: runtimes set lo up without it.".to_owned();
    } else if report.files_of_network(0).end < report.sources.len() {
        let text =
            format!("network {name} is the default of containerd, CRI-O and kubelets: its file is the first by name");
        notes.value(Level::Note, "name", text).help = by_number(report).unwrap_or_default();
    }
    notes.into_findings()
}

/// The first file cannot be used.
fn broken(report: &Report, first: &Network) -> Vec<Finding> {
    let (name, file) = (&first.conf.name, &report.sources[first.file].name);
    let mut notes = Notes::new(0, &report.sources);
    let error = report.of_file(0).find(|finding| finding.level == Level::Error);
    let span = error.map_or(0..0, |error| error.span.clone());
    let text =
        "containerd has no network: of a folder it reads the first file by name alone, and this one cannot be used";
    notes.at(Level::Error, span, "", text).help =
        format!("Mend or remove it. CRI-O and kubelets ignore it, and take network {name} of {file}.");
    notes.into_findings()
}

/// A file whose number is lower than that of the first one, though its name is not.
fn by_number(report: &Report) -> Option<String> {
    let number = |name: &str| -> Option<u64> {
        let name = name.rsplit('/').next()?;
        name.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    };
    let name = |file: usize| report.sources[file].name.as_str();
    let own = number(name(0))?;
    let networks = (1..report.sources.len()).filter(|file| !report.sources[*file].is_plugin_file);
    let lower = networks.filter_map(|file| Some((number(name(file))?, name(file))));
    let (_, lower) = lower.filter(|(number, _)| *number < own).min()?;
    let (own, lower) = (name(0).rsplit('/').next()?, lower.rsplit('/').next()?);
    Some(format!("Names are compared character by character, so {own} comes before {lower}."))
}
