//! What can go wrong with a pod's network.

use crate::lock::Busy;
use crate::pod::PodId;
use crate::quantity::QuantityError;
use cni_spec::{CniError, Code, IfName, NetworkName};
use std::fmt;
use std::path::PathBuf;

/// An operation that failed. The text is whole, causes included, on one line unless a plugin's own words have more.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The pod cannot be given what it asks for; nothing has run.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// Another operation did not end in time; nothing has run.
    #[error(transparent)]
    Busy(Box<Busy>),
    /// A network failed.
    #[error("network {network}, interface {ifname}: {}", error.with_causes())]
    Network {
        /// The network.
        network: NetworkName,
        /// The interface in the pod.
        ifname: IfName,
        /// What went wrong; a plugin's error keeps its code.
        error: Box<libcni::Error>,
    },
    /// A network's GC failed.
    #[error("network {network}: {}", error.with_causes())]
    Collect {
        /// The network.
        network: String,
        /// What went wrong.
        error: libcni::Error,
    },
    /// `lo` of the pod could not be set, or is not as it was set.
    #[error("cannot {verb} lo: {reason}")]
    Loopback {
        /// "set up", "set down" or "use".
        verb: &'static str,
        /// Why, with the namespace.
        reason: String,
    },
    /// The sandbox has a network already, and not the one that is asked for; nothing was changed.
    #[error("it is up, but {difference}; tear it down first")]
    AlreadyUp {
        /// What is not as asked for.
        difference: String,
    },
    /// The cache knows no network of this sandbox.
    #[error("pod {pod} has no network: not found in the cache {}", cache.display())]
    NotUp {
        /// The pod.
        pod: PodId,
        /// The folder.
        cache: PathBuf,
    },
    /// A set-up of the sandbox did not finish, so that its state is unknown: tear it down.
    #[error("network {network}, interface {ifname}: its set-up did not finish; tear the pod down")]
    Unfinished {
        /// The network.
        network: NetworkName,
        /// The interface in the pod.
        ifname: IfName,
    },
    /// The folder of networks cannot be watched.
    #[error("cannot watch the folder of networks: {0}")]
    Folder(String),
    /// The cache could not be read.
    #[error("{}", .0.with_causes())]
    Cache(libcni::Error),
    /// A setting of the builder cannot be used.
    #[error("cannot use setting {setting} = {value:?}: {reason}")]
    Setting {
        /// Which.
        setting: &'static str,
        /// Its value.
        value: String,
        /// Why.
        reason: String,
    },
    /// Several of one operation that carries on past errors.
    #[error("{}", joined(errors))]
    Several {
        /// At least two, in the order of the request or, of the same kind, as they happened.
        errors: Vec<Error>,
    },
}

/// What a pod asks for and cannot have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// There is no default network.
    #[error("there is no default network{}: {known}", .name.as_ref().map(|name| format!(" {name}")).unwrap_or_default())]
    NoDefault {
        /// Its name, if it is fixed.
        name: Option<NetworkName>,
        /// What there is instead.
        known: Known,
    },
    /// A network that there is none of.
    #[error("network {name} not found: {known}")]
    UnknownNetwork {
        /// The name that was asked for.
        name: NetworkName,
        /// What there is instead.
        known: Known,
    },
    /// Two interfaces of one name.
    #[error("interface name {0} is asked for twice")]
    DoubleIfName(IfName),
    /// An annotation whose value cannot be used.
    #[error("annotation {annotation} = {value:?}: {reason}")]
    Annotation {
        /// Its key.
        annotation: &'static str,
        /// Its value.
        value: String,
        /// What is wrong with it.
        reason: BandwidthError,
    },
    /// A hardware address that is none.
    #[error("hardware address {0:?}: want six octets in hex, such as 0a:00:00:00:00:05")]
    Mac(String),
    /// An argument that cannot be passed on.
    #[error("{0}")]
    Argument(CniError),
}

/// A bandwidth that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BandwidthError {
    /// It is no quantity.
    #[error(transparent)]
    Quantity(#[from] QuantityError),
    /// It is out of range.
    #[error("a bandwidth is at least 1k and at most 1P bits a second")]
    Range,
}

/// The networks there are, and what was passed over: told where something is missing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Known {
    /// Their names, in order.
    pub networks: Vec<String>,
    /// What was passed over and why, a line each.
    pub passed_over: Vec<String>,
}

impl fmt::Display for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.networks[..] {
            [] => f.write_str("there is no usable network")?,
            names => write!(f, "there is {}", names.join(", "))?,
        }
        self.passed_over.iter().try_for_each(|line| write!(f, "; {line}"))
    }
}

/// A set-up that failed and was undone as far as it could be.
#[derive(Debug)]
pub struct SetUpError {
    /// The pod.
    pub pod: PodId,
    /// Why: of several networks, each one's error in the order of the request.
    pub errors: Vec<Error>,
    /// What undoing could not take down; [`crate::Pods::tear_down`] tries again.
    pub left: Vec<Error>,
}

impl fmt::Display for SetUpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot set up the network of pod {}: {}", self.pod, joined(&self.errors))?;
        if !self.left.is_empty() {
            write!(f, "; left behind: {}", joined(&self.left))?;
        }
        Ok(())
    }
}

impl std::error::Error for SetUpError {}

impl From<Busy> for Error {
    fn from(busy: Busy) -> Self {
        Error::Busy(Box::new(busy))
    }
}

impl Error {
    /// The code of the plugin's error, or of the reason why nothing ran; of several, the first one's.
    #[must_use]
    pub fn code(&self) -> Option<Code> {
        match self {
            Error::Network { error, .. } => error.code(),
            Error::Collect { error, .. } | Error::Cache(error) => error.code(),
            Error::Request(RequestError::Argument(error)) => Some(error.code),
            Error::Several { errors } => errors.iter().find_map(Error::code),
            Error::Request(_)
            | Error::Busy(_)
            | Error::Loopback { .. }
            | Error::AlreadyUp { .. }
            | Error::NotUp { .. }
            | Error::Unfinished { .. }
            | Error::Folder(_)
            | Error::Setting { .. } => None,
        }
    }

    /// The errors of which this is made: itself, unless it is several.
    pub fn each(&self) -> impl Iterator<Item = &Error> {
        match self {
            Error::Several { errors } => errors.iter(),
            one => std::slice::from_ref(one).iter(),
        }
    }

    /// Ok when there is no error, else all as one.
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

fn joined(errors: &[Error]) -> String {
    errors.iter().map(Error::to_string).collect::<Vec<_>>().join("; ")
}
