//! The changes of ADD in the container, and how each is taken back.

use std::fmt;

use chained::{Site, Undo};
use netops::Errno;
use netops::route::whole::{self, Whole};
use netops::rule::{self, Rule};

/// A change of ADD.
#[derive(Debug)]
pub enum Change {
    /// A rule that was not there.
    AddedRule(Rule),
    /// A route that was not there, such as a copy in another table.
    Added(Whole),
    /// A route that was deleted from the main table.
    Deleted(Whole),
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddedRule(rule) => write!(f, "rule {rule} deleted"),
            Self::Added(route) => write!(f, "route {route} deleted"),
            Self::Deleted(route) => write!(f, "route {route} restored"),
        }
    }
}

impl Undo for Change {
    fn run(&self, site: &Site<'_>) -> Result<(), String> {
        let pod = site.pod().map_err(|error| error.to_string())?;
        let done = match self {
            Self::AddedRule(rule) => pod.container.run(rule::delete(rule)),
            Self::Added(route) => pod.container.run(whole::delete(route)),
            // Beside other interfaces' routes to the same place.
            Self::Deleted(route) => pod.container.run(whole::add(route)),
        };
        match done {
            Err(error) if !error.is_absent() && error.os_errno() != Some(Errno::EEXIST) => Err(error.to_string()),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}
