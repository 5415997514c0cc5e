//! The node and the container's namespace, opened once, when a plugin first asks: some change the node alone.

use std::cell::OnceCell;

use cni_spec::CniError;
use interface::sides::Sides;
use skel::NetnsPath;

/// The node and the container's namespace of a call.
#[derive(Debug)]
pub struct LazySides<'a> {
    netns: &'a NetnsPath,
    sides: OnceCell<Sides>,
}

impl<'a> LazySides<'a> {
    pub(crate) fn new(netns: &'a NetnsPath) -> Self {
        Self { netns, sides: OnceCell::new() }
    }

    pub(crate) fn netns(&self) -> &'a NetnsPath {
        self.netns
    }

    /// The node and the container, with a connection to each.
    pub fn open(&self) -> Result<&Sides, CniError> {
        match self.sides.get() {
            Some(sides) => Ok(sides),
            None => {
                let sides = Sides::open(self.netns)?;
                Ok(self.sides.get_or_init(|| sides))
            }
        }
    }
}
