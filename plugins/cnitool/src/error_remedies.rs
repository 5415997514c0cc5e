//! Errors with what an operator can do about them.

use libcni::cni_spec::{CniError, Code};
use libcni::{Error, NetworkConf, RuntimeConf};
use nix::errno::Errno;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether an ordinary user was told to be root.
static IS_TOLD: AtomicBool = AtomicBool::new(false);

pub(crate) fn tell_to_be_root() {
    if !nix::unistd::geteuid().is_root() {
        IS_TOLD.store(true, Ordering::Relaxed);
        tracing::warn!("run this as root: what an ordinary user cannot read is missing from what follows");
    }
}

/// Whether an ordinary user was told to be root: what cannot be read is explained by that.
pub(crate) fn is_told_to_be_root() -> bool {
    IS_TOLD.load(Ordering::Relaxed)
}

const BE_ROOT: &str = "You are an ordinary user: run this as root.";

/// The remedy for a file that cannot be read: by root as given, by an ordinary user to be root.
pub(crate) fn or_be_root(by_root: impl Into<String>) -> String {
    if nix::unistd::geteuid().is_root() { by_root.into() } else { BE_ROOT.to_owned() }
}

/// The error with what is to be done, where its cause alone says that.
pub(crate) fn with_remedy(mut object: CniError, error: &anyhow::Error) -> CniError {
    let system = error.chain().find_map(|cause| cause.downcast_ref::<io::Error>());
    if system.is_some() && object.code == Code::INTERNAL {
        object.code = Code::IO;
    }
    let is_denied = system.is_some_and(|error| error.kind() == ErrorKind::PermissionDenied)
        || object.code == Code::PERMISSION
        || [&object.msg, &object.details].iter().any(|text| text.to_lowercase().contains("permission denied"));
    if is_denied && !nix::unistd::geteuid().is_root() && !is_told_to_be_root() {
        return if object.details.contains(BE_ROOT) { object } else { object.detail(BE_ROOT) };
    }
    let of_kind = system.and_then(by_cause).filter(|_| object.details.is_empty());
    object.detail(of_kind.unwrap_or_default())
}

fn by_cause(error: &io::Error) -> Option<&'static str> {
    // ErrorKind does not distinguish these two from other errors.
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EPERM) => {
            return Some(
                "Even root is refused what an attribute forbids: lsattr shows i or a, and chattr -ia removes both.",
            );
        }
        Some(Errno::EMFILE) => return Some("The limit of open files is reached: raise it, as by ulimit -n 1024."),
        _ => {}
    }
    Some(match error.kind() {
        ErrorKind::ResourceBusy => {
            "Another file may be mounted there, as findmnt shows: unmount it, or choose another folder."
        }
        ErrorKind::FileTooLarge => "The limit of a file's size is reached: raise it, as by ulimit -f unlimited.",
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "The file system is full: make room there.",
        ErrorKind::ReadOnlyFilesystem => "The file system is read-only: mount it writable, or choose another folder.",
        ErrorKind::NotADirectory => "A part of the path is a file, and no folder: correct the path.",
        ErrorKind::InvalidFilename => {
            "A name has no room in a file system, which has 255 bytes for it: use a shorter one."
        }
        ErrorKind::AddrInUse => "Another process listens there: end that, or choose another port.",
        _ => return None,
    })
}

/// Adds what is to be done to an error.
pub(crate) trait Remedy<T> {
    fn remedy(self, text: impl FnOnce() -> String) -> anyhow::Result<T>;
    /// Adds a sentence where the cause is that a file or folder does not exist.
    fn if_absent(self, text: impl FnOnce() -> String) -> anyhow::Result<T>;
}

impl<T, E: Into<anyhow::Error>> Remedy<T> for Result<T, E> {
    fn remedy(self, text: impl FnOnce() -> String) -> anyhow::Result<T> {
        self.map_err(|error| crate::output::to_cni_error(&error.into()).detail(text()).into())
    }

    fn if_absent(self, text: impl FnOnce() -> String) -> anyhow::Result<T> {
        let error = match self {
            Ok(value) => return Ok(value),
            Err(error) => error.into(),
        };
        let is_absent = |cause: &(dyn std::error::Error + 'static)| {
            cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == ErrorKind::NotFound)
        };
        if error.chain().any(is_absent) { Err(error).remedy(text) } else { Err(error) }
    }
}

/// An error that is not the system's: what is wrong, and what is to be done.
pub(crate) fn refused(code: Code, msg: impl Into<String>, help: impl AsRef<str>) -> anyhow::Error {
    CniError::new(code, msg.into()).detail(help).into()
}

/// A plugin's error about a key, with the file that has the key, or the option: `given` are the arguments of the command line.
pub(crate) fn with_place_of_key(network: &NetworkConf, given: Option<&RuntimeConf>, error: Error) -> anyhow::Error {
    let object = error.to_cni_error();
    let Some((_, key)) = object.msg.split_once("cannot use network config: key ") else { return error.into() };
    let capability = key.strip_prefix("runtimeConfig.").and_then(|key| key.split(['.', '[', ' ', ':']).next());
    let is_given = |name: &&str| given.is_some_and(|given| given.capability_args.find(name).is_some());
    let place = match (capability, network.path()) {
        (Some(name), _) if is_given(&name) => format!("The value is of {name} in --cap-args (CAP_ARGS)."),
        // Those that the cache has of ADD.
        (Some(_), _) if network.plugins.iter().all(|plugin| plugin.find("runtimeConfig").is_none()) => {
            return error.into();
        }
        (_, Some(path)) => format!("cnitool validate shows the place in {}.", path.display()),
        (_, None) => return error.into(),
    };
    object.detail(place).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_immutable_file_is_explained() {
        let error = anyhow::Error::from(io::Error::from(Errno::EPERM)).context("cannot put in place vlan");
        let object = with_remedy(CniError::new(Code::IO, "m"), &error);
        let by_root =
            "Even root is refused what an attribute forbids: lsattr shows i or a, and chattr -ia removes both.";
        assert_eq!(object.details, or_be_root(by_root));
    }
}
