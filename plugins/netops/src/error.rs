//! The one error of this crate: which operation, on which object, where, and what the kernel said.

use std::fmt;
use std::time::Duration;

pub use nix::errno::Errno;

use crate::feature::Feature;

/// Result of an operation on the node.
pub type Result<T> = std::result::Result<T, OpError>;

/// A failed operation on one kernel object or state file.
///
/// `Display` is one line, `cannot create veth veth12ab34cd on the host: the name is taken`;
/// [`OpError::details`] has the request, the errno by name and number, and the kernel's own words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot {op} {object}{}: {cause}", Where(place))]
pub struct OpError {
    /// What was tried: a verb, `create`, `delete`, `set`.
    pub op: &'static str,
    /// What it was tried on, with its name: `veth veth12ab34cd`, `address 10.1.0.5/24 on eth0`.
    pub object: String,
    /// Where: `the host`, a namespace's path; empty when the object says it (a file's path).
    pub place: String,
    /// Why it failed.
    pub cause: Cause,
    /// The request as the kernel knows it, `RTM_NEWLINK kind=veth`, for an operator who greps.
    pub request: String,
}

/// Why an operation failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// The kernel refused, perhaps with a sentence of its own (extended ack).
    Kernel {
        /// The errno of the answer.
        errno: Errno,
        /// The kernel's sentence, if it sent one.
        words: Option<String>,
    },
    /// Nothing answered or happened within the deadline.
    Timeout(Duration),
    /// The kernel was built without this, or its module is not there.
    Unsupported {
        /// What it lacks.
        feature: Feature,
        /// The errno of the answer.
        errno: Errno,
        /// The kernel's sentence, if it sent one.
        words: Option<String>,
    },
    /// A lock that another process holds, and still held at the deadline.
    Held(Box<Held>),
    /// A list changed, each time it was read, before the kernel had written all of it; tried for this long.
    Changing(Duration),
    /// The node is not as the operation needs it; the sentence says how.
    State(String),
}

/// A lock that was not let go of in time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Who holds it, as far as `/proc/locks` says: `process 4711 (host-local)`.
    pub holder: String,
    /// How long the caller waited.
    pub waited: Duration,
}

struct Where<'a>(&'a str);

impl fmt::Display for Where<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return Ok(());
        }
        write!(f, " on {}", self.0)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Kernel { errno, words } | Cause::Unsupported { errno, words, .. } => match words {
                Some(words) => write!(f, "{} ({words})", meaning(*errno)),
                None => f.write_str(&meaning(*errno)),
            },
            Cause::Held(held) => write!(f, "{} held it for {} ms", held.holder, held.waited.as_millis()),
            Cause::Timeout(after) => write!(f, "nothing happened within {} ms", after.as_millis()),
            Cause::Changing(after) => {
                write!(f, "the list kept changing while it was read, for {} ms; try again", after.as_millis())
            }
            Cause::State(sentence) => f.write_str(sentence),
        }
    }
}

/// What an errno says, as `strerror(3)` has it but for those that it words for sockets or tapes.
#[must_use]
pub fn meaning(errno: Errno) -> String {
    match errno {
        Errno::EOPNOTSUPP => "operation not supported".to_owned(),
        Errno::EXFULL => "there is no room for another".to_owned(),
        errno => errno.desc().to_lowercase(),
    }
}

impl OpError {
    /// An error with the kernel's errno and no words of its own.
    #[must_use]
    pub fn errno(op: &'static str, object: impl Into<String>, errno: Errno) -> Self {
        Self::new(op, object, Cause::Kernel { errno, words: None })
    }

    /// An error of a system call that std made.
    #[must_use]
    pub fn io(op: &'static str, object: impl Into<String>, error: &std::io::Error) -> Self {
        match error.raw_os_error() {
            Some(errno) => Self::errno(op, object, Errno::from_raw(errno)),
            None => Self::state(op, object, error.to_string()),
        }
    }

    /// An error that is not the kernel's: the node is not as it must be.
    #[must_use]
    pub fn state(op: &'static str, object: impl Into<String>, sentence: impl Into<String>) -> Self {
        Self::new(op, object, Cause::State(sentence.into()))
    }

    /// Any error, without place and request; see [`OpError::at`] and [`OpError::request`].
    #[must_use]
    pub fn new(op: &'static str, object: impl Into<String>, cause: Cause) -> Self {
        Self { op, object: object.into(), place: String::new(), cause, request: String::new() }
    }

    /// Says where: `the host` or a namespace's path.
    #[must_use]
    pub fn at(mut self, place: impl Into<String>) -> Self {
        self.place = place.into();
        self
    }

    /// Says which request it was, in the kernel's words.
    #[must_use]
    pub fn request(mut self, request: impl Into<String>) -> Self {
        self.request = request.into();
        self
    }

    /// The kernel's errno, if the kernel refused.
    #[must_use]
    pub fn os_errno(&self) -> Option<Errno> {
        match self.cause {
            Cause::Kernel { errno, .. } | Cause::Unsupported { errno, .. } => Some(errno),
            Cause::Timeout(_) | Cause::Held(_) | Cause::Changing(_) | Cause::State(_) => None,
        }
    }

    /// Whether the object (or its namespace) is simply not there, which DEL and GC count as done.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        matches!(self.os_errno(), Some(Errno::ENODEV | Errno::ENOENT | Errno::ESRCH | Errno::EADDRNOTAVAIL))
    }

    /// What an operator needs beyond the one line: request, errno by name and number, the kernel's words.
    #[must_use]
    pub fn details(&self) -> String {
        let mut text = self.request.clone();
        if let Cause::Kernel { errno, words } | Cause::Unsupported { errno, words, .. } = &self.cause {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&format!("{errno:?} ({})", *errno as i32));
            if let Some(words) = words {
                text.push_str(&format!(", kernel: {words}"));
            }
        }
        text
    }
}
