//! Errors of operations on a pod's network.

use crate::lock::Busy;
use crate::pod::PodId;
use cni_spec::{CniError, Code, IfName, NetworkName};
use std::fmt;
use std::path::PathBuf;

/// An operation that failed. The text is complete, causes included, on one line unless a plugin's own text has more.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The pod's request is invalid; no plugin has run.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// Another operation did not end in time; no plugin has run.
    #[error(transparent)]
    Busy(Box<Busy>),
    #[error("network {network}, interface {ifname}: {}", error.with_causes())]
    Network {
        network: NetworkName,
        ifname: IfName,
        /// The cause; a plugin's error keeps its code.
        error: Box<libcni::Error>,
    },
    #[error("network {network}: {}", error.with_causes())]
    Collect { network: String, error: Box<libcni::Error> },
    /// The plugin `loopback` failed.
    #[error("cannot {verb} lo: {reason}")]
    Loopback {
        /// "set up" or "set down".
        verb: &'static str,
        reason: String,
    },
    /// The sandbox already has a network that differs from the requested one; nothing was changed.
    #[error("it is up, but {difference}; tear it down first")]
    AlreadyUp { difference: String },
    #[error("pod {pod} has no network: not found in the cache {}", cache.display())]
    NotUp { pod: PodId, cache: PathBuf },
    /// A set-up of the sandbox did not finish, so its state is unknown: tear it down.
    #[error("network {network}, interface {ifname}: its set-up did not finish; tear the pod down")]
    Unfinished { network: NetworkName, ifname: IfName },
    /// The cache could not be read.
    #[error("{}", .0.with_causes())]
    Cache(libcni::Error),
    #[error("cannot use setting {setting} = {value:?}: {reason}")]
    Setting { setting: &'static str, value: String, reason: String },
    /// Several errors of one operation that continues after errors.
    #[error("{}", joined(errors))]
    Several {
        /// At least two, in the order of the request or, of the same kind, in the order of time.
        errors: Vec<Error>,
    },
}

/// A request of a pod that cannot be met.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    #[error("there is no default network{}: {known}", .name.as_ref().map(|name| format!(" {name}")).unwrap_or_default())]
    NoDefault {
        /// The default network's name, if it is fixed.
        name: Option<NetworkName>,
        known: KnownNetworks,
    },
    #[error("network {name} not found: {known}")]
    UnknownNetwork { name: NetworkName, known: KnownNetworks },
    #[error("interface name {0} is asked for twice")]
    DoubleIfName(IfName),
    #[error("annotation {annotation} = {value:?}: want 1k to 1P bits a second, as a quantity such as 10M or 1.5Gi")]
    Annotation { annotation: &'static str, value: String },
    #[error("hardware address {0:?}: want six octets in hex, such as 0a:00:00:00:00:05")]
    Mac(String),
    /// An argument that cannot be passed on.
    #[error("{0}")]
    Argument(CniError),
}

/// The existing networks and the skipped files: details of an error about a missing network.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KnownNetworks {
    pub networks: Vec<String>,
    /// The skipped files with the reasons, a line each.
    pub passed_over: Vec<String>,
}

impl fmt::Display for KnownNetworks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.networks[..] {
            [] => f.write_str("there is no usable network")?,
            names => write!(f, "there is {}", names.join(", "))?,
        }
        self.passed_over.iter().try_for_each(|line| write!(f, "; {line}"))
    }
}

/// A set-up that failed and was undone as far as possible.
#[derive(Debug, thiserror::Error)]
#[error("cannot set up the network of pod {pod}: {}", with_left(errors, left))]
pub struct SetUpError {
    pub pod: PodId,
    /// The reason: of several networks, each one's error in the order of the request.
    pub errors: Vec<Error>,
    /// The errors of the rollback; [`crate::Pods::tear_down`] tries again.
    pub left: Vec<Error>,
}

fn with_left(errors: &[Error], left: &[Error]) -> String {
    match (joined(errors), left) {
        (errors, []) => errors,
        (errors, left) => format!("{}; left behind: {}", errors.trim_end_matches('.'), joined(left)),
    }
}

impl From<Busy> for Error {
    fn from(busy: Busy) -> Self {
        Error::Busy(Box::new(busy))
    }
}

impl Error {
    /// The code of the plugin's error, or of the reason why no plugin ran; of several, the first one's.
    pub fn code(&self) -> Option<Code> {
        match self {
            Error::Network { error, .. } => error.code(),
            Error::Collect { error, .. } => error.code(),
            Error::Cache(error) => error.code(),
            Error::Request(RequestError::Argument(error)) => Some(error.code),
            Error::Several { errors } => errors.iter().find_map(Error::code),
            Error::Request(_)
            | Error::Busy(_)
            | Error::Loopback { .. }
            | Error::AlreadyUp { .. }
            | Error::NotUp { .. }
            | Error::Unfinished { .. }
            | Error::Setting { .. } => None,
        }
    }

    /// The single errors of which this consists: itself, unless it is [`Error::Several`].
    pub fn each(&self) -> impl Iterator<Item = &Error> {
        match self {
            Error::Several { errors } => errors.iter(),
            one => std::slice::from_ref(one).iter(),
        }
    }

    /// Ok when there is no error, otherwise all as one.
    pub(crate) fn all(mut errors: Vec<Error>) -> Result<(), Error> {
        match (errors.pop(), errors.is_empty()) {
            (None, _) => Ok(()),
            (Some(one), true) => Err(one),
            (Some(last), false) => {
                errors.push(last);
                Err(Error::Several { errors })
            }
        }
    }
}

/// The errors on one line. Of sentences that another error follows the full stop is left out.
fn joined(errors: &[Error]) -> String {
    errors.iter().map(Error::to_string).collect::<Vec<_>>().join("; ").replace(".; ", "; ")
}
