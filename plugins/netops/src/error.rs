//! The error type of this crate: the operation, the object, the place and the kernel's error.

use std::time::Duration;

pub use nix::errno::Errno;

use crate::feature::Feature;

/// Result of an operation on the node.
pub type Result<T> = std::result::Result<T, OpError>;

/// A failed operation on one kernel object or state file.
///
/// `Display` is one line, `cannot create veth veth12ab34cd on the host: the name is taken`;
/// [`OpError::details`] has the request, the errno by name and number, and the kernel's extended ack.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot {op} {object}{}{place}: {cause}", if place.is_empty() { "" } else { " on " })]
pub struct OpError {
    /// The operation, a verb: `create`, `delete`, `set`.
    pub op: &'static str,
    /// The object with its name: `veth veth12ab34cd`, `address 10.1.0.5/24 on eth0`.
    pub object: String,
    /// The place: `the host` or a namespace's path. Empty if the object says it (a file's path).
    pub place: String,
    /// The reason why the operation failed.
    pub cause: Cause,
    /// The kernel's name of the request, `RTM_NEWLINK kind=veth`, for operators who search logs.
    pub request: String,
}

/// Why an operation failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// The kernel refused, perhaps with a message in the extended ack.
    #[error("{}", refused(*errno, extended_ack.as_deref()))]
    Kernel {
        /// The errno of the answer.
        errno: Errno,
        /// The message in the extended ack, if the kernel sent one.
        extended_ack: Option<String>,
    },
    /// The deadline passed before an answer or event came.
    #[error("nothing happened within {} ms", .0.as_millis())]
    Timeout(Duration),
    /// The kernel was built without this feature, or its module is not available.
    #[error("{}", refused(*errno, extended_ack.as_deref()))]
    Unsupported {
        /// The missing feature.
        feature: Feature,
        /// The errno of the answer.
        errno: Errno,
        /// The message in the extended ack, if the kernel sent one.
        extended_ack: Option<String>,
    },
    /// Another process still held the lock at the deadline.
    #[error("{} held it for {} ms", .0.holder, .0.waited.as_millis())]
    Held(Box<LockTimeout>),
    /// The list changed during every read, until this time was over.
    #[error("the list kept changing while it was read, for {} ms; try again", .0.as_millis())]
    Changing(Duration),
    /// The node is not in the state that the operation needs; the sentence says how.
    #[error("{0}")]
    State(String),
}

/// A lock that was not released in time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockTimeout {
    /// The holder, as far as `/proc/locks` names it: `process 4711 (host-local)`.
    pub holder: String,
    /// How long the caller waited.
    pub waited: Duration,
}

fn refused(errno: Errno, extended_ack: Option<&str>) -> String {
    match extended_ack {
        Some(extended_ack) => format!("{} ({extended_ack})", meaning(errno)),
        None => meaning(errno),
    }
}

/// The text of an errno: that of `strerror(3)`, except where it speaks of sockets or tapes.
#[must_use]
pub fn meaning(errno: Errno) -> String {
    match errno {
        Errno::EOPNOTSUPP => "operation not supported".to_owned(),
        Errno::EXFULL => "there is no room for another".to_owned(),
        errno => errno.desc().to_lowercase(),
    }
}

/// The errno of an error of the standard library; `EIO` for one that has none.
#[must_use]
#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
pub fn errno_of(error: std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(nix::libc::EIO))
}

impl OpError {
    /// An error with the kernel's errno and without an extended ack.
    #[must_use]
    pub fn errno(op: &'static str, object: impl Into<String>, errno: Errno) -> Self {
        Self::new(op, object, Cause::Kernel { errno, extended_ack: None })
    }

    /// An error of a system call made by the standard library.
    #[must_use]
    pub fn io(op: &'static str, object: impl Into<String>, error: &std::io::Error) -> Self {
        match error.raw_os_error() {
            Some(errno) => Self::errno(op, object, Errno::from_raw(errno)),
            None => Self::state(op, object, error.to_string()),
        }
    }

    /// An error that is not the kernel's: the node is not in the state that the operation needs.
    #[must_use]
    pub fn state(op: &'static str, object: impl Into<String>, sentence: impl Into<String>) -> Self {
        Self::new(op, object, Cause::State(sentence.into()))
    }

    /// Any error, still without place and request; see [`OpError::at`] and [`OpError::request`].
    #[must_use]
    pub fn new(op: &'static str, object: impl Into<String>, cause: Cause) -> Self {
        Self { op, object: object.into(), place: String::new(), cause, request: String::new() }
    }

    /// Adds the place: `the host` or a namespace's path.
    #[must_use]
    pub fn at(mut self, place: impl Into<String>) -> Self {
        self.place = place.into();
        self
    }

    /// Adds the kernel's name of the request.
    #[must_use]
    pub fn request(mut self, request: impl Into<String>) -> Self {
        self.request = request.into();
        self
    }

    /// The kernel's errno, if the kernel refused the operation.
    #[must_use]
    pub fn os_errno(&self) -> Option<Errno> {
        match self.cause {
            Cause::Kernel { errno, .. } | Cause::Unsupported { errno, .. } => Some(errno),
            Cause::Timeout(_) | Cause::Held(_) | Cause::Changing(_) | Cause::State(_) => None,
        }
    }

    /// Whether a list could not be read whole because its objects kept changing.
    pub(crate) fn is_of_changing_list(&self) -> bool {
        matches!(self.cause, Cause::Changing(_))
    }

    /// Whether the object (or its namespace) does not exist, which DEL and GC count as success.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        matches!(self.os_errno(), Some(Errno::ENODEV | Errno::ENOENT | Errno::ESRCH | Errno::EADDRNOTAVAIL))
    }

    /// Whether nothing can be written at the path at all, as on a node with a read-only root.
    #[must_use]
    pub fn is_unwritable(&self) -> bool {
        matches!(self.os_errno(), Some(Errno::EROFS | Errno::EACCES | Errno::EPERM))
    }

    /// What an operator needs besides the message: request, errno by name and number, extended ack.
    #[must_use]
    pub fn details(&self) -> String {
        let mut text = self.request.clone();
        if let Cause::Kernel { errno, extended_ack } | Cause::Unsupported { errno, extended_ack, .. } = &self.cause {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&format!("{errno:?} ({})", *errno as i32));
            if let Some(extended_ack) = extended_ack {
                text.push_str(&format!(", kernel: {extended_ack}"));
            }
        }
        text
    }
}
