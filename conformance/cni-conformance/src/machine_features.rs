//! The abilities of the machine under the kit, found out once by trying.

use serde::{Deserialize, Serialize};

/// The abilities of the machine under the kit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineFeatures {
    pub kernel: String,
    /// Kernel features that are there, by the names that profiles use.
    pub features: Vec<String>,
    /// Whether trials have a process namespace of their own, with a `/proc` that goes with it.
    pub own_processes: bool,
}

impl MachineFeatures {
    /// Looks, in namespaces of one's own.
    pub(crate) fn look(own_processes: bool) -> Self {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let features = testns::Feature::ALL.into_iter().filter(|feature| feature.is_here());
        Self {
            kernel: kernel.trim().to_owned(),
            features: features.map(|feature| feature.to_string()).collect(),
            own_processes,
        }
    }

    /// The first of some features that is not there.
    pub fn lacks<'a>(&self, needs: &'a [String]) -> Option<&'a str> {
        needs.iter().find(|need| !self.features.contains(need)).map(String::as_str)
    }
}
