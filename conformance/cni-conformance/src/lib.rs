//! The CNI specification as a program that tests any plugin and any runtime.
//!
//! A [`Rule`] is one sentence of the specification with its level and the [`Case`]s that show whether a subject keeps
//! to it. A [`Subject`] is a folder of executables; a [`Profile`] says how one of them is to be used. One case with one
//! profile is a [`Trial`]: a child process in user, mount, network and process namespaces of its own, in which the case
//! works on a [`Testbed`]: a throwaway node, and calls of the plugin that are recorded so that a person can repeat them.
//!
//! The kit looks at executables from outside only: environment, stdin, stdout, exit status, and the kernel.
//!
//! Runtimes are tested the other way round: [`runtime`].
//!
//! Reading order: what is asked ([`rule`], [`rules`]), of whom ([`subject`], [`profile`]), how it is found out
//! ([`mod@testbed`], [`trial`], [`schedule`], [`run`]), and what is said about it ([`finding`], [`report`]).

// The rules.
pub(crate) mod addresses;
pub mod result_conversion;
pub mod result_validation;
pub mod rule;
pub mod rules;
pub mod sentences;
pub mod spec_version;

// The subjects.
pub mod profile;
pub mod subject;

// The trials.
pub mod isolated_task;
pub mod kit_ipam;
pub mod machine_features;
pub mod namespaces;
mod node_setup;
pub mod schedule;
pub mod stress;
pub mod testbed;
pub mod trial;
mod write_protection;

// Trials of runtimes.
pub mod runtime;

// The reports.
pub mod cli;
pub mod finding;
pub mod progress;
pub mod report;
pub mod run;

#[doc(hidden)]
pub mod fuzzing;

pub use cli::main;
pub use finding::{Finding, Stop};
pub use profile::{Profile, Role};
pub use rule::{Case, Level, Rule};
pub use run::Run;
pub use subject::Subject;
pub use testbed::{Answer, Testbed};
pub use trial::{Trial, Verdict};
