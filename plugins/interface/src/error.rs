//! From the kernel's refusal to CNI's error object.

use cni_spec::{CniError, Code};
use netops::error::{Cause, Errno};
use netops::netns::NetnsError;
use netops::{Kernel, Netns, OpError};
use skel::NetnsPath;

/// The error object for a failed operation: its code, its line, its details and, where there is one, the remedy.
#[must_use]
pub fn failed(error: OpError) -> CniError {
    let code = match &error.cause {
        Cause::Kernel { errno, .. } => kernel(*errno),
        Cause::Timeout(_) => Code::TIMEOUT,
        Cause::Changing(_) => Code::TRY_AGAIN,
        // A lock: whoever holds it will let go.
        Cause::State(_) if error.op == "take" => Code::TRY_AGAIN,
        Cause::State(_) => Code::KERNEL,
    };
    let mut details = error.details();
    if !details.is_empty() {
        details.push('.');
    }
    CniError::new(code, error.to_string()).detail(details).detail(remedy(&error).unwrap_or_default())
}

fn kernel(errno: Errno) -> Code {
    match errno {
        Errno::EPERM | Errno::EACCES => Code::PERMISSION,
        Errno::EEXIST => Code::EXISTS,
        Errno::EOPNOTSUPP | Errno::EPROTONOSUPPORT | Errno::EAFNOSUPPORT => Code::KERNEL_FEATURE,
        _ => Code::KERNEL,
    }
}

/// What an operator can do about it: the one place for remedies of what the kernel refuses.
#[must_use]
pub fn remedy(error: &OpError) -> Option<String> {
    let Some(errno) = error.os_errno() else {
        return (error.op == "take").then(|| "Try again; if the holder hangs, end it.".to_owned());
    };
    match errno {
        Errno::EPERM | Errno::EACCES => {
            Some("The plugin needs CAP_NET_ADMIN and CAP_SYS_ADMIN on the node and over the namespace.".to_owned())
        }
        Errno::ENOBUFS | Errno::ENOMEM => Some("The node is short of memory: try again later.".to_owned()),
        Errno::EMFILE | Errno::ENFILE => Some("Too many files are open: raise the limit.".to_owned()),
        Errno::EROFS => Some("Mount the file system writable for the plugin.".to_owned()),
        Errno::EOPNOTSUPP | Errno::EPROTONOSUPPORT | Errno::EAFNOSUPPORT => Some(feature(&error.request)),
        _ => None,
    }
}

/// What the kernel lacks, by the request that it did not understand.
fn feature(request: &str) -> String {
    if request.contains("NFT_MSG") || request.contains("NETLINK_NETFILTER") {
        return "The kernel needs nf_tables: load modules nf_tables and nft_chain_nat.".to_owned();
    }
    let told = |name: &str| request.split_whitespace().find_map(|word| word.strip_prefix(name));
    if told("vlan_filtering=").is_some() {
        return "The kernel was built without CONFIG_BRIDGE_VLAN_FILTERING, which keys vlan and vlanTrunk need."
            .to_owned();
    }
    let option = match told("kind=") {
        None => return "The kernel was built without it, or its module is not loaded.".to_owned(),
        Some("vlan") => "module 8021q (CONFIG_VLAN_8021Q)".to_owned(),
        Some("tun" | "tap") => "module tun (CONFIG_TUN)".to_owned(),
        Some("vrf") => "module vrf (CONFIG_NET_VRF)".to_owned(),
        Some(kind) => format!("module {kind} (CONFIG_{})", kind.to_uppercase()),
    };
    format!("Load {option}, or use a kernel that has it.")
}

/// The container's namespace.
///
/// # Errors
/// Code 8 with the path; the words `no such file or directory` are what runtimes look for.
pub fn open_netns(path: &NetnsPath) -> Result<Netns, CniError> {
    opened(path).map_err(invalid_netns)
}

/// By the descriptor that the call began with, which was compared with the plugin's own namespace.
fn opened(path: &NetnsPath) -> Result<Netns, NetnsError> {
    let unusable = |errno| NetnsError::new(path.as_str(), errno);
    let file = path.opened().and_then(|opened| opened.try_clone_to_owned().map_err(errno_of));
    Netns::from_file(file.map_err(unusable)?.into(), path.as_str())
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn errno_of(error: std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or_default())
}

/// A connection that acts on the container's namespace.
///
/// # Errors
/// As [`open_netns`], and what the kernel says to who may not enter.
pub fn open_kernel(path: &NetnsPath) -> Result<Kernel, CniError> {
    Kernel::in_netns(&open_netns(path)?).map_err(failed)
}

/// The namespace to clean up in; `None` if there is none any more, which DEL counts as done.
///
/// # Errors
/// As [`open_netns`], if it is there and cannot be opened.
pub fn find_netns(path: Option<&NetnsPath>) -> Result<Option<Netns>, CniError> {
    match path.map(opened) {
        None => Ok(None),
        Some(Ok(netns)) => Ok(Some(netns)),
        Some(Err(error)) if error.is_gone() => Ok(None),
        Some(Err(error)) => Err(invalid_netns(error)),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn invalid_netns(error: NetnsError) -> CniError {
    let remedy = match &error {
        NetnsError::Absent { .. } | NetnsError::NotANamespace { .. } => {
            "The container has ended, or CNI_NETNS is wrong: it is the path of a network namespace, such as /run/netns/NAME."
        }
        NetnsError::Unusable { errno: Errno::EACCES | Errno::EPERM, .. } => "The plugin must be root.",
        NetnsError::Unusable { .. } => "",
    };
    CniError::new(Code::INVALID_NETNS, error.to_string()).detail(remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn what_the_kernel_lacks_is_named() {
        let texts: Vec<String> = [
            "RTM_NEWLINK kind=bridge name=br0 vlan_filtering=1",
            "RTM_NEWLINK kind=bridge name=br0",
            "RTM_NEWLINK kind=vlan id=5",
            "RTM_NEWLINK kind=vrf",
            "NFT_MSG_NEWTABLE",
        ]
        .map(feature)
        .into();
        expect![[r#"
            The kernel was built without CONFIG_BRIDGE_VLAN_FILTERING, which keys vlan and vlanTrunk need.
            Load module bridge (CONFIG_BRIDGE), or use a kernel that has it.
            Load module 8021q (CONFIG_VLAN_8021Q), or use a kernel that has it.
            Load module vrf (CONFIG_NET_VRF), or use a kernel that has it.
            The kernel needs nf_tables: load modules nf_tables and nft_chain_nat."#]]
        .assert_eq(&texts.join("\n"));
    }

    #[test]
    fn every_failure_has_its_code() {
        let code = |error: OpError| failed(error).code;
        let errno = |errno| OpError::errno("create", "veth a", errno);
        assert_eq!(code(errno(Errno::EPERM)), Code::PERMISSION);
        assert_eq!(code(errno(Errno::EEXIST)), Code::EXISTS);
        assert_eq!(code(errno(Errno::EAFNOSUPPORT)), Code::KERNEL_FEATURE);
        assert_eq!(code(errno(Errno::EINVAL)), Code::KERNEL);
        let timeout = Cause::Timeout(std::time::Duration::from_secs(1));
        assert_eq!(code(OpError::new("wait", "for a", timeout)), Code::TIMEOUT);
    }
}
