//! Deliberately wrong plugins. For tests only: they show that cni-conformance can fail.
//!
//! A [`Mutant`] is an honest plugin of the suite that breaks one rule: it gets another call than the one that was made,
//! or another reply is printed than the one that was given, or something is done to the node besides. All of them are
//! one executable, which acts as the plugin by whose name it is called and as the mutant by whose name its folder is
//! called; in a folder of any other name it is honest. So all verbs can be wrong, also those that have no config.
//!
//! [`excused`] has the rules that no mutant can break.

use cni_plugins::ENTRIES;
use std::path::Path;
use std::process::ExitCode;

mod delegate;
pub mod excused;
mod memory;
mod mutant_call;
mod side_effect;
pub mod wrong;

pub use mutant_call::MutantCall;
use skel::Reply;

/// A plugin that breaks a rule.
#[derive(Debug, Clone, Copy)]
pub struct Mutant {
    /// The mutant's fault, and the name of its folder.
    pub name: &'static str,
    /// The built-in profile of the kit with which it is tried. Its executable is the one that is wrong.
    pub profile: &'static str,
    /// The rule that it breaks.
    pub rule: &'static str,
    /// Other rules that a plugin which breaks this one breaks as well.
    pub also: &'static [&'static str],
    /// Whether the IPAM plugin is an executable of its own: our bridge runs one that is itself without a new process.
    pub ipam_as_process: bool,
    /// The cases with which it is tried; all of the rule if there are none.
    pub cases: &'static [&'static str],
    /// How the honest plugin is tried with the mutant's rule.
    pub honest: Honest,
    /// The versions with which the mutant is tried.
    pub versions: &'static [&'static str],
    /// Folders that its profile names, as it writes to them.
    pub writes: &'static [&'static str],
    /// The mutant's fault.
    pub act: fn(&MutantCall) -> Reply,
    /// Whether the mutant's daemon starts, by the words of its command line.
    pub starts: fn(&[String]) -> bool,
}

/// The way in which the honest plugin is tried with the rule of a mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Honest {
    /// Together with the mutant.
    Too,
    /// A test of its own tries the honest plugin: the rule takes long with a plugin that keeps to it.
    Slowly,
    /// The rule says nothing of it: it is about what the plugin may do and does not.
    Unasked,
}

impl Mutant {
    pub(crate) const fn new(
        profile: &'static str,
        rule: &'static str,
        name: &'static str,
        act: fn(&MutantCall) -> Reply,
    ) -> Self {
        Self {
            name,
            profile,
            rule,
            also: &[],
            ipam_as_process: false,
            cases: &[],
            honest: Honest::Too,
            versions: &["1.1.0"],
            writes: &[],
            act,
            starts: |_| true,
        }
    }

    pub(crate) const fn also(self, also: &'static [&'static str]) -> Self {
        Self { also, ..self }
    }

    pub(crate) const fn with_ipam_as_process(self) -> Self {
        Self { ipam_as_process: true, ..self }
    }

    pub(crate) const fn with(self, cases: &'static [&'static str]) -> Self {
        Self { cases, ..self }
    }

    pub(crate) const fn slow(self) -> Self {
        Self { honest: Honest::Slowly, ..self }
    }

    pub(crate) const fn unasked(self) -> Self {
        Self { honest: Honest::Unasked, ..self }
    }

    pub(crate) const fn writing(self, writes: &'static [&'static str]) -> Self {
        Self { writes, ..self }
    }

    pub(crate) const fn starting(self, starts: fn(&[String]) -> bool) -> Self {
        Self { starts, ..self }
    }

    pub(crate) const fn speaking(self, versions: &'static [&'static str]) -> Self {
        Self { versions, ..self }
    }
}

/// The executable's whole `main`.
#[must_use]
pub fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let (called_as, mutant) = (words.first().cloned().unwrap_or_default(), this());
    if mutant.is_some_and(|mutant| !(mutant.starts)(&words)) {
        return ExitCode::FAILURE;
    }
    if let Some(ended) = dhcp::run_if_asked(words.iter().cloned()) {
        return ended.into();
    }
    let entry = ENTRIES.iter().find(|entry| Path::new(&called_as).file_name().is_some_and(|name| name == entry.name));
    match entry.zip(mutant) {
        Some((entry, mutant)) if mutant.profile.starts_with(entry.name) => {
            (mutant.act)(&MutantCall::of_process(entry, ENTRIES)).send().into()
        }
        _ => skel::run(words.into_iter(), ENTRIES, env!("CARGO_PKG_VERSION")).into(),
    }
}

/// The mutant by whose name this executable's folder is called. The link of the testbed to it does not count.
fn this() -> Option<&'static Mutant> {
    let executable = std::env::current_exe().ok()?;
    let folder = executable.parent()?.file_name()?;
    wrong::all().find(|mutant| folder == mutant.name)
}
