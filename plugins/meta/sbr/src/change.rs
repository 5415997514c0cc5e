//! The changes of ADD in the container, and how each is taken back.

use std::fmt;

use chained::{LazySides, Left, Undo};
use netops::route::whole::{self, Whole};
use netops::rule::{self, Rule};
use netops::{Errno, OpError};

#[derive(Debug)]
pub enum Change {
    AddedRule(Rule),
    Added(Whole),
    /// Copies of routes in this table.
    Copied(u32, Vec<Whole>),
    /// A route that was deleted from the main table.
    Deleted(Whole),
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddedRule(rule) => write!(f, "rule {rule} deleted"),
            Self::Added(route) => write!(f, "route {route} deleted"),
            Self::Copied(table, _) => write!(f, "copies of routes in table {table} deleted"),
            Self::Deleted(route) => write!(f, "route {route} restored"),
        }
    }
}

impl Undo for Change {
    fn run(&self, sides: &LazySides<'_>) -> Result<(), Left> {
        let sides = sides.open()?;
        let is_undone = |error: &OpError| error.is_absent() || error.os_errno() == Some(Errno::EEXIST);
        let done = match self {
            Self::AddedRule(rule) => sides.container.run(rule::delete(rule)),
            Self::Added(route) => sides.container.run(whole::delete(route)),
            Self::Copied(_, routes) => whole::remove(&sides.container, routes),
            // Beside other interfaces' routes to the same place.
            Self::Deleted(route) => whole::restore(&sides.container, [route.clone()]),
        };
        match done {
            Err(error) if !is_undone(&error) => Err(error.into()),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}
