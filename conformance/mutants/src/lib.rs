//! Deliberately wrong plugins. For tests only: they show that cni-conformance can fail.
//!
//! A [`Mutant`] is an honest plugin of the suite that breaks one rule: it gets another call than the one that was made,
//! or another reply is printed than the one that was given, or something is done to the node besides. All of them are
//! one executable, which acts as the plugin by whose name it is called and as the mutant by whose name its folder is
//! called; in a folder of any other name it is honest. So all verbs can be wrong, also those that have no config.

use cni_plugins::ENTRIES;
use serde::Deserialize;
use std::ops::Deref;
use std::path::Path;
use std::process::ExitCode;

mod delegate;
mod memory;
mod mutant_call;
mod side_effect;
pub mod wrong;

pub use mutant_call::MutantCall;
use skel::Reply;

#[derive(Debug)]
pub struct Mutant {
    pub row: Row,
    pub act: fn(&MutantCall) -> Reply,
}

pub(crate) type Act = (&'static str, fn(&MutantCall) -> Reply);

/// A mutant as `wrong.json` has it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    pub name: &'static str,
    /// The mutant whose fault it has, if that is not its own.
    acts_as: Option<&'static str>,
    /// The built-in profile of the kit with which it is tried. Its executable is the one that is wrong.
    pub profile: &'static str,
    pub rule: &'static str,
    /// Other rules that a plugin which breaks this one breaks as well.
    #[serde(default)]
    pub also: Vec<&'static str>,
    /// Whether the IPAM plugin is an executable of its own: our bridge runs one that is itself without a new process.
    #[serde(default)]
    pub ipam_as_process: bool,
    /// The cases with which it is tried; all of the rule if there are none.
    #[serde(default)]
    pub cases: Vec<&'static str>,
    /// How the honest plugin is tried with the mutant's rule.
    #[serde(default)]
    pub honest: Honest,
    #[serde(default = "newest")]
    pub versions: Vec<&'static str>,
    /// Folders that its profile names, as it writes to them.
    #[serde(default)]
    pub writes: Vec<&'static str>,
}

fn newest() -> Vec<&'static str> {
    vec!["1.1.0"]
}

/// The way in which the honest plugin is tried with the rule of a mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Honest {
    /// Together with the mutant.
    #[default]
    Too,
    /// A test of its own tries the honest plugin: the rule takes long with a plugin that keeps to it.
    Slowly,
    /// The rule says nothing of it: it is about what the plugin may do and does not.
    Unasked,
}

impl Deref for Mutant {
    type Target = Row;

    fn deref(&self) -> &Row {
        &self.row
    }
}

pub fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let (called_as, mutant) = (words.first().cloned().unwrap_or_default(), this());
    if mutant.is_some_and(|mutant| !wrong::del::starts(mutant.name, &words)) {
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
