//! How a failed ADD takes its changes back, newest first. What other plugins of the list made is not touched.

use std::fmt;

use netops::txn::{DeleteLink, Undoer};

use crate::site::Site;

/// The undos of one ADD.
pub type Txn = netops::txn::Txn<Box<dyn Undo>>;

/// The undo of one change. Its text appears in the error's `details` among what was undone: `ifb bwp12 deleted`.
pub trait Undo: fmt::Display + fmt::Debug {
    /// Undoes the change. A change that never happened, or that is already gone, counts as undone.
    ///
    /// # Errors
    /// Says what is left, and why.
    fn run(&self, site: &Site<'_>) -> Result<(), String>;
}

impl Undo for DeleteLink {
    fn run(&self, site: &Site<'_>) -> Result<(), String> {
        let sides = site.sides().map_err(|error| error.to_string())?;
        DeleteLink::run(self, &sides.host).map_err(|error| error.to_string())
    }
}

impl Undoer for Site<'_> {
    type Undo = Box<dyn Undo>;

    async fn undo(&self, undo: &Box<dyn Undo>) -> Result<(), String> {
        undo.run(self)
    }
}
