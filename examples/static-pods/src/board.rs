//! The state of all pods, for display.

use crate::manifest::Key;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

/// The phase of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum Phase {
    /// The pod waits for an event outside it.
    Waiting,
    /// The pod's network is being set up.
    Starting,
    /// The pod has everything that it requested.
    Running,
    /// The pod is tried again later.
    Failed,
    /// The pod is being taken down.
    Stopping,
    /// The pod is gone, and nothing of it is left.
    Gone,
    /// This program ends, and what is left of the pod is taken down at the next start.
    Left,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Padding is the table's.
        f.pad(match self {
            Phase::Waiting => "Waiting",
            Phase::Starting => "Starting",
            Phase::Running => "Running",
            Phase::Failed => "Failed",
            Phase::Stopping => "Stopping",
            Phase::Gone => "Gone",
            Phase::Left => "Left",
        })
    }
}

/// The state of one pod.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct PodStatus {
    pub(crate) phase: Phase,
    pub(crate) addresses: Vec<IpAddr>,
    /// As `network:interface`.
    pub(crate) networks: Vec<String>,
    /// Requests without effect.
    pub(crate) warnings: Vec<String>,
    /// Whether the pod is in the node's network.
    pub(crate) host_network: bool,
    /// The pod's pause process.
    pub(crate) pid: Option<u32>,
    /// When its sandbox was made, in seconds since 1970.
    pub(crate) created: Option<u64>,
    /// The last error, or the event that it waits for.
    pub(crate) error: Option<String>,
}

/// Whether pods can have a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// Objects of earlier runs are being removed.
    Collecting,
    /// The reasons why pods cannot have a network.
    NotReady(String),
    /// Pods can have a network.
    Ready {
        /// The networks; the first is the default one.
        names: Vec<String>,
        /// Unusable files, with the reasons.
        passed_over: Vec<String>,
    },
}

impl fmt::Display for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Readiness::Collecting => f.write_str("collecting what earlier runs left"),
            Readiness::NotReady(why) => write!(f, "not ready: {why}"),
            Readiness::Ready { names, passed_over } => {
                write!(f, "ready: {}", names.join(", "))?;
                passed_over.iter().try_for_each(|file| write!(f, "; {file}"))
            }
        }
    }
}

/// Everything at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Board {
    pub(crate) network: Readiness,
    pub(crate) pods: BTreeMap<Key, PodStatus>,
    /// Errors of manifests, by file.
    pub(crate) problems: BTreeMap<String, Vec<String>>,
}

impl Board {
    pub(crate) fn new() -> Self {
        Self { network: Readiness::Collecting, pods: BTreeMap::new(), problems: BTreeMap::new() }
    }

    /// Whether nothing changes any more without an event from outside.
    pub(crate) fn is_settled(&self) -> bool {
        let settled = |pod: &PodStatus| matches!(pod.phase, Phase::Waiting | Phase::Running | Phase::Failed);
        self.network != Readiness::Collecting && self.pods.values().all(settled)
    }

    /// Whether all wanted pods run.
    pub(crate) fn is_well(&self) -> bool {
        self.problems.is_empty() && self.pods.values().all(|pod| pod.phase == Phase::Running)
    }
}
