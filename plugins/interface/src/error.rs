//! From the kernel's refusal to CNI's error object.

use cni_spec::{CniError, Code};
use netops::error::{Cause, Errno};
use netops::netns::NetnsError;
use netops::{Netns, OpError};
use skel::NetnsPath;

/// The error object for a failed operation: its code, its line, its details and, where there is one, the remedy.
#[must_use]
pub fn failed(error: OpError) -> CniError {
    let (code, remedy) = match &error.cause {
        Cause::Kernel { errno, .. } => kernel(*errno),
        Cause::Timeout(_) => (Code::TIMEOUT, ""),
        Cause::State(_) => (Code::KERNEL, ""),
    };
    let mut details = error.details();
    if !details.is_empty() {
        details.push('.');
    }
    CniError::new(code, error.to_string()).detail(details).detail(remedy)
}

fn kernel(errno: Errno) -> (Code, &'static str) {
    match errno {
        Errno::EPERM | Errno::EACCES => {
            (Code::PERMISSION, "The plugin needs CAP_NET_ADMIN and CAP_SYS_ADMIN on the node and over the namespace.")
        }
        Errno::EEXIST => (Code::EXISTS, ""),
        Errno::EOPNOTSUPP | Errno::EPROTONOSUPPORT | Errno::EAFNOSUPPORT => {
            (Code::KERNEL_FEATURE, "The kernel was built without it, or its module is not loaded.")
        }
        _ => (Code::KERNEL, ""),
    }
}

/// Opens the container's namespace.
///
/// # Errors
/// Code 8 with the path; the words `no such file or directory` are what runtimes look for.
pub fn open_netns(path: &NetnsPath) -> Result<Netns, CniError> {
    Netns::open(path.as_path()).map_err(invalid_netns)
}

/// The namespace to clean up in; `None` if there is none any more, which DEL counts as done.
///
/// # Errors
/// As [`open_netns`], if it is there and cannot be opened.
pub fn find_netns(path: Option<&NetnsPath>) -> Result<Option<Netns>, CniError> {
    match path.map(|path| Netns::open(path.as_path())) {
        None => Ok(None),
        Some(Ok(netns)) => Ok(Some(netns)),
        Some(Err(error)) if error.is_gone() => Ok(None),
        Some(Err(error)) => Err(invalid_netns(error)),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn invalid_netns(error: NetnsError) -> CniError {
    CniError::new(Code::INVALID_NETNS, error.to_string())
}
