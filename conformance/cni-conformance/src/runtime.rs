//! Tests of runtimes: the kit offers itself as the plugins and judges how it is called.
//!
//! A [`Driver`] says, as data, how a runtime is told to do something; a [`Stand`] is a throwaway node with
//! [`judge`] plugins in its plugin folder. A case lays a network of judges, has the runtime do its work, and
//! looks at what the judges wrote down: arguments, environment, stdin, order. The [`rules`] are rows like those for
//! plugins, and the reports are the same.

pub mod cli;
mod daemon;
mod driver;
pub mod judge;
mod look;
mod ran;
pub mod rules;
mod stand;
mod stay;
mod trial;

pub use driver::Driver;
pub use ran::Ran;
pub use stand::{Request, Stand};
pub use trial::{Trial, Tried};

/// A rule for runtimes.
pub type Rule = crate::rule::Rule<Stand>;
/// A case of one.
pub type Case = crate::rule::Case<Stand>;
