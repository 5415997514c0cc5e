//! Faults of network configurations, each at its place in the file: what a runtime or an editor shows before a pod starts.
//!
//! [`validate`] reads files as a runtime does and says what ADD would refuse, and what an operator most likely did not mean.
//! The check changes nothing and calls no plugin. [`plugin_executables::look`] asks the plugins on this node for their versions.

pub mod finding;
pub mod key_places;
pub mod known_plugins;
pub mod plugin_executables;
pub mod render;

mod default_network;
mod ignored_keys;
pub(crate) mod networks_of_one_folder;
mod one_file;
pub(crate) mod output;
mod parser_warnings;
mod plugins_of_one_list;
mod refused_by_add;
mod unreachable_gateways;
mod unusable_values;

use std::ops::Range;
use std::path::Path;
use std::{iter, mem};

use libcni::conflist;

pub use crate::parsed_network::Network;
pub use finding::{Finding, Level};
pub use key_places::{Form, Source, Unreadable};
pub use known_plugins::{KnownPlugin, Role};

#[derive(Debug)]
pub struct Report {
    /// The files, in the order given; a network's own file is followed by those of its plugins, if these have files.
    pub sources: Vec<Source>,
    pub networks: Vec<Network>,
    pub findings: Vec<Finding>,
}

impl Report {
    pub fn count(&self, level: Level) -> usize {
        self.findings.iter().filter(|finding| finding.level == level).count()
    }

    pub fn of_file(&self, file: usize) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(move |finding| finding.file == file)
    }

    /// The places of a network's own file and of those of its plugins, by the place of any of these.
    pub fn files_of_network(&self, file: usize) -> Range<usize> {
        let is_own = |file: &usize| !self.sources[*file].is_plugin_file;
        let first = (0..=file).rev().find(is_own).unwrap_or(file);
        first..(first + 1..self.sources.len()).find(is_own).unwrap_or(self.sources.len())
    }

    /// Adds findings, and keeps the order.
    pub fn extend(&mut self, findings: Vec<Finding>) {
        self.findings.extend(findings);
        self.findings.sort_by_key(|finding| (finding.file, finding.span.start));
        // A plugin and its address plugin may read the same key.
        self.findings.dedup();
    }
}

/// Checks the files of a folder: as [`validate`], and which network is the default one. A file that cannot be read is a
/// finding.
pub fn validate_folder(dir: &Path, known: &[KnownPlugin]) -> Result<Report, libcni::Error> {
    let files = conflist::search_order(dir)?;
    let mut report = validate(files.iter().map(|path| Source::read_or_explain(path)).collect(), known);
    let order = default_network::check(&report);
    report.extend(order);
    Ok(report)
}

/// Checks files, each by itself and beside the others. `known` are the plugins whose keys can be checked; files of one folder
/// come in the order of [`libcni::conflist::search_order`].
pub fn validate(sources: Vec<Source>, known: &[KnownPlugin]) -> Report {
    let with_plugins = |mut source: Source| {
        let plugin_files = mem::take(&mut source.plugin_files);
        iter::once(source).chain(plugin_files)
    };
    let sources = sources.into_iter().flat_map(with_plugins).collect();
    let mut report = Report { sources, networks: Vec::new(), findings: Vec::new() };
    let mut findings = Vec::new();
    for file in (0..report.sources.len()).filter(|file| !report.sources[*file].is_plugin_file) {
        let files = report.files_of_network(file);
        let mut found = finding::Notes::new(file, &report.sources);
        report.networks.extend(one_file::read(file, &report.sources[files], known, &mut found));
        findings.extend(found.into_findings());
    }
    findings.extend(networks_of_one_folder::compare(&report));
    report.extend(findings);
    report
}

/// The example of `VALIDATE.md`.
#[cfg(doctest)]
#[doc = include_str!("../VALIDATE.md")]
struct Readme;
