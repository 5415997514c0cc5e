//! The changes of ADD in the container, and how each is taken back.

use std::fmt;

use chained::{Site, Undo};
use netops::Errno;
use netops::route::whole::{self, Whole};
use netops::route::{self, Route};
use netops::rule::{self, Rule};

/// A change of ADD.
#[derive(Debug)]
pub enum Change {
    /// A rule that was not there.
    AddedRule(Rule),
    /// A default route that was not there.
    AddedDefault(Route),
    /// A route that was copied from the main table to another.
    Copied(Whole),
    /// A route that was deleted from the main table, or got another source.
    Deleted(Whole),
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddedRule(rule) => write!(f, "rule {rule} deleted"),
            Self::AddedDefault(route) => write!(f, "route {route} deleted"),
            Self::Copied(route) => write!(f, "route {route} deleted"),
            Self::Deleted(route) => write!(f, "route {route} restored"),
        }
    }
}

impl Undo for Change {
    fn run(&self, site: &Site<'_>) -> Result<(), String> {
        let pod = site.pod().map_err(|error| error.to_string())?;
        let done = match self {
            Self::AddedRule(rule) => pod.container.run(rule::delete(rule)),
            Self::AddedDefault(route) => pod.container.run(route::delete(route)),
            Self::Copied(route) => pod.container.run(whole::delete(route)),
            Self::Deleted(route) => pod.container.run(whole::put(route)),
        };
        match done {
            Err(error) if !error.is_absent() && error.os_errno() != Some(Errno::EEXIST) => Err(error.to_string()),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}
