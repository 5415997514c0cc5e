//! The node and the container's namespace, opened once, when a plugin first asks: some change the node alone.

use std::cell::OnceCell;

use cni_spec::CniError;
use interface::pod::Pod;
use skel::NetnsPath;

/// Where a plugin works.
#[derive(Debug)]
pub struct Site<'a> {
    netns: &'a NetnsPath,
    pod: OnceCell<Pod>,
}

impl<'a> Site<'a> {
    pub(crate) fn new(netns: &'a NetnsPath) -> Self {
        Self { netns, pod: OnceCell::new() }
    }

    /// The container's namespace.
    pub(crate) fn netns(&self) -> &'a NetnsPath {
        self.netns
    }

    /// The node and the container, with a connection to each.
    ///
    /// # Errors
    /// As [`Pod::open`].
    pub fn pod(&self) -> Result<&Pod, CniError> {
        match self.pod.get() {
            Some(pod) => Ok(pod),
            None => {
                let pod = Pod::open(self.netns)?;
                Ok(self.pod.get_or_init(|| pod))
            }
        }
    }
}
