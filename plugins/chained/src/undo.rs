//! How a failed ADD takes its changes back, newest first. What other plugins of the list made is not touched.

use std::fmt;

pub use interface::undo::Left;
use netops::txn::{DeleteLink, Undoer};

use crate::lazy_sides::LazySides;

/// The undos of one ADD.
pub type Txn = netops::txn::Txn<Box<dyn Undo>>;

/// The undo of one change. Its text appears in the error's `details` among what was undone: `ifb bwp12 deleted`.
pub trait Undo: fmt::Display + fmt::Debug {
    /// Undoes the change. A change that never happened, or that is already gone, counts as undone.
    ///
    /// # Errors
    /// What is left, and why.
    fn run(&self, sides: &LazySides<'_>) -> Result<(), Left>;
}

impl Undo for DeleteLink {
    fn run(&self, sides: &LazySides<'_>) -> Result<(), Left> {
        Ok(DeleteLink::run(self, &sides.open()?.host)?)
    }
}

impl Undoer for LazySides<'_> {
    type Undo = Box<dyn Undo>;
    type Left = Left;

    async fn undo(&self, undo: &Box<dyn Undo>) -> Result<(), Left> {
        undo.run(self)
    }
}
