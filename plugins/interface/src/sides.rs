//! The two sides of an attachment: the node and one container's namespace, opened once.

use cni_spec::{CniError, Code, IfName};
use netops::error::{Errno, errno_of};
use netops::link::{self, Kind};
use netops::netns::NetnsError;
use netops::{Kernel, Netns};
use skel::NetnsPath;

use crate::failed;

/// The node's side of an attachment and the container's.
#[derive(Debug)]
pub struct Sides {
    pub host: Kernel,
    pub netns: Netns,
    pub container: Kernel,
}

impl Sides {
    /// Opens both.
    /// Errors: as [`open_netns`]; also the kernel's error if the caller may not enter the namespace.
    pub fn open(netns: &NetnsPath) -> Result<Self, CniError> {
        let netns = open_netns(netns)?;
        let container = Kernel::in_netns(&netns).map_err(failed)?;
        Ok(Self { host: Kernel::host().map_err(failed)?, netns, container })
    }

    /// Refuses an interface name that the container already has. ADD calls this before it changes anything or calls
    /// IPAM.
    /// Errors: code 103 naming the link's kind.
    pub fn refuse_taken(&self, ifname: &IfName) -> Result<(), CniError> {
        match link::find(&self.container, ifname.as_str()).map_err(failed)? {
            None => Ok(()),
            Some(link) => {
                let kind = if link.kind == Kind::None { "link" } else { link.kind.name() };
                let place = self.container.place();
                Err(CniError::new(
                    Code::EXISTS,
                    format!("cannot create interface {ifname} in {place}: a {kind} of that name already exists"),
                )
                .detail("Call DEL for the attachment that has it, or use another CNI_IFNAME."))
            }
        }
    }
}

/// The container's namespace.
/// Errors: code 8 with the path. Runtimes search the message for `no such file or directory`.
pub fn open_netns(path: &NetnsPath) -> Result<Netns, CniError> {
    opened(path).map_err(invalid_netns)
}

/// Uses the descriptor that the call opened first and compared with the plugin's own namespace.
fn opened(path: &NetnsPath) -> Result<Netns, NetnsError> {
    let unusable = |errno| NetnsError::new(path.as_str(), errno);
    let file = path.opened().and_then(|opened| opened.try_clone_to_owned().map_err(errno_of));
    Netns::from_file(file.map_err(unusable)?.into(), path.as_str())
}

/// A connection that acts on the container's namespace.
/// Errors: as [`open_netns`]; also the kernel's error if the caller may not enter the namespace.
pub fn open_kernel(path: &NetnsPath) -> Result<Kernel, CniError> {
    Kernel::in_netns(&open_netns(path)?).map_err(failed)
}

/// The namespace to clean up in. `None`: it no longer exists, which DEL counts as success.
/// Errors: as [`open_netns`], if the namespace exists but cannot be opened.
pub fn find_netns(path: Option<&NetnsPath>) -> Result<Option<Netns>, CniError> {
    match path.map(opened) {
        None => Ok(None),
        Some(Ok(netns)) => Ok(Some(netns)),
        Some(Err(error)) if error.is_gone() => Ok(None),
        Some(Err(error)) => Err(invalid_netns(error)),
    }
}

/// Whether the process or the node lacks something that it may have at the next call.
fn is_shortage(error: &NetnsError) -> bool {
    matches!(error, NetnsError::Unusable { errno: Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM, .. })
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn invalid_netns(error: NetnsError) -> CniError {
    let remedy = match &error {
        NetnsError::Absent { .. } | NetnsError::NotANamespace { .. } => {
            "The container has ended, or CNI_NETNS is wrong: it is the path of a network namespace, such as /run/netns/NAME."
        }
        NetnsError::NotMounted { .. } => {
            "If the container runs, mounts of the runtime do not reach this process: share the folder of namespaces with it, \
             such as by a mount of /run/netns with propagation rslave (Kubernetes: HostToContainer), or call the plugin in the \
             runtime's mount namespace."
        }
        NetnsError::Unusable { errno: Errno::EACCES | Errno::EPERM, .. } => "The plugin must be root.",
        NetnsError::Unusable { errno: Errno::EMFILE | Errno::ENFILE, .. } => {
            "Too many files are open: raise the limit."
        }
        NetnsError::Unusable { .. } => "",
    };
    CniError::new(if is_shortage(&error) { Code::TRY_AGAIN } else { Code::INVALID_NETNS }, error.to_string())
        .detail(remedy)
}
