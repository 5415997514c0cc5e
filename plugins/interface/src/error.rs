//! Turns a refusal of the kernel into a CNI error object.

use cni_spec::{CniError, Code};
use netops::OpError;
use netops::error::{Cause, Errno};
use netops::feature::Feature;
use netops::sysctl::{self, NoIpv6};
use std::path::Path;

/// The kind of object that an operation failed on. It decides the error code where the cause alone does not, and says
/// who can fix it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// The node: links, addresses, routes, rules, sysctls.
    Node,
    /// Files of the plugin's own, in the folder that this key of the config names: `dataDir`.
    Files(&'static str),
}

/// The error object for a failed operation on the node: its code, its line, its details and, where there is one, the
/// remedy.
#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
pub fn failed(error: OpError) -> CniError {
    failed_on(On::Node, &error)
}

/// The error of an ADD that would give the node's link an IPv6 address, where it can have none. `link` as
/// [`crate::InterfacePlugin::gateway_link`] has it; `None`: the address is the container's alone, so only the kernel counts.
/// Errors: code 101 or 102; a sysctl cannot be read.
pub(crate) fn refuse_without_ipv6(link: Option<&str>) -> Result<(), CniError> {
    let refusal = sysctl::find_ipv6_refusal(link.unwrap_or("lo")).map_err(failed)?;
    match (refusal, link) {
        (Some(NoIpv6::Kernel), _) => {
            let msg = "cannot add IPv6 addresses: the kernel runs without IPv6";
            let remedy = "Boot the node without ipv6.disable=1, or use IPv4 addresses only.";
            Err(CniError::new(Code::KERNEL_FEATURE, msg).detail(remedy))
        }
        (Some(NoIpv6::Disabled(key)), Some(_)) => {
            let msg = format!("cannot add IPv6 addresses of gateways to the node: {key} is 1");
            let remedy = format!("Set {key} to 0, or use IPv4 addresses only.");
            Err(CniError::new(Code::PERMISSION, msg).detail(remedy))
        }
        (Some(NoIpv6::Disabled(_)) | None, _) => Ok(()),
    }
}

/// The error object for a failed operation; see [`On`].
pub fn failed_on(on: On, error: &OpError) -> CniError {
    let mut details = error.details();
    if !details.is_empty() {
        details.push('.');
    }
    CniError::new(code(on, &error.cause), error.to_string())
        .detail(details)
        .detail(remedy_on(on, &error.cause, &error.request).unwrap_or_default())
}

/// The one table from what went wrong to the code.
fn code(on: On, cause: &Cause) -> Code {
    match cause {
        Cause::Timeout(_) => Code::TIMEOUT,
        // Temporary: the other process will release the lock.
        Cause::Held(_) | Cause::Changing(_) => Code::TRY_AGAIN,
        Cause::Kernel { errno: Errno::EPERM | Errno::EACCES, .. } => Code::PERMISSION,
        cause => match (on, cause) {
            (On::Files(_), _) => Code::STATE,
            (On::Node, Cause::Unsupported { .. }) => Code::KERNEL_FEATURE,
            (On::Node, Cause::Kernel { errno, .. }) => refused(*errno),
            (On::Node, _) => Code::KERNEL,
        },
    }
}

fn refused(errno: Errno) -> Code {
    match errno {
        Errno::EEXIST => Code::EXISTS,
        Errno::EOPNOTSUPP | Errno::EPROTONOSUPPORT | Errno::EAFNOSUPPORT => Code::KERNEL_FEATURE,
        _ => Code::KERNEL,
    }
}

/// What an operator can do about a failed operation on the node.
pub fn remedy(error: &OpError) -> Option<String> {
    remedy_on(On::Node, &error.cause, &error.request)
}

/// The only place where remedies are written.
fn remedy_on(on: On, cause: &Cause, request: &str) -> Option<String> {
    let errno = match cause {
        Cause::Held(_) => {
            let unchanged = if on == On::Node { "" } else { "Nothing was changed. " };
            return Some(format!("{unchanged}Try again; if the holder hangs, end it."));
        }
        Cause::Unsupported { feature, .. } => return Some(lacking(*feature)),
        Cause::Timeout(_) | Cause::Changing(_) | Cause::State(_) => return None,
        Cause::Kernel { errno, .. } => *errno,
    };
    let text = match (errno, on) {
        // The kernel's answer where a link may have no IPv6 addresses.
        (Errno::EACCES, On::Node) if request.starts_with("RTM_NEWADDR") => {
            let link = request.split("dev=").nth(1).and_then(|rest| rest.split(' ').next()).unwrap_or_default();
            format!(
                "IPv6 is turned off on {link}: set sysctl net/ipv6/conf/{link}/disable_ipv6 to 0, for new links \
                 net/ipv6/conf/default/disable_ipv6, or use IPv4 addresses only."
            )
        }
        (Errno::EPERM | Errno::EACCES, On::Node) => {
            "The plugin needs CAP_NET_ADMIN and CAP_SYS_ADMIN on the node and over the namespace.".to_owned()
        }
        (Errno::EPERM | Errno::EACCES, On::Files(_)) => "The plugin needs to own the folder, or be root.".to_owned(),
        (Errno::ENOSPC | Errno::EDQUOT, On::Files(key)) => {
            format!("The file system of {key} is full: make room, or move {key}.")
        }
        (Errno::EROFS, On::Files(key)) => {
            format!("The file system of {key} cannot be written to: mount it writable, or move {key}.")
        }
        (Errno::EROFS, On::Node) => "Mount the file system writable for the plugin.".to_owned(),
        (Errno::EFBIG, _) => {
            "The limit of a file's size is reached: raise RLIMIT_FSIZE of the runtime (ulimit -f).".to_owned()
        }
        (Errno::ENOENT, _) if !Path::new("/proc/self").exists() => {
            "/proc is not mounted where the plugin runs: mount it (mount -t proc proc /proc).".to_owned()
        }
        (Errno::ENOMEM, _) => "The node is short of memory: try again later.".to_owned(),
        (Errno::ENOBUFS, _) => {
            "The kernel's answers did not fit into the socket's queue: raise sysctl net.core.rmem_default.".to_owned()
        }
        (Errno::EMFILE | Errno::ENFILE, _) => "Too many files are open: raise the limit.".to_owned(),
        (Errno::EOPNOTSUPP | Errno::EPROTONOSUPPORT | Errno::EAFNOSUPPORT, On::Node) => {
            not_understood(request).to_owned()
        }
        _ => return None,
    };
    Some(text)
}

/// The feature that the kernel lacks, where the request itself names none.
fn not_understood(request: &str) -> &'static str {
    match request.contains("NFT_MSG") || request.contains("NETLINK_NETFILTER") {
        true => "The kernel needs nf_tables: load modules nf_tables and nft_chain_nat.",
        false => "The kernel was built without it, or its module is not loaded.",
    }
}

fn lacking(feature: Feature) -> String {
    let option = feature.option();
    match (feature, feature.module()) {
        (Feature::BridgeVlanFiltering, _) => {
            format!("The kernel was built without {option}, which keys vlan and vlanTrunk need.")
        }
        (_, Some(module)) => format!("Load module {module} ({option}), or use a kernel that has it."),
        (_, None) => format!("The kernel was built without {option}."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use netops::error::LockTimeout;

    #[test]
    fn what_the_kernel_lacks_is_named() {
        let texts = [
            lacking(Feature::BridgeVlanFiltering),
            lacking(Feature::Bridge),
            lacking(Feature::Vlan),
            lacking(Feature::Vrf),
            not_understood("NFT_MSG_NEWTABLE").to_owned(),
        ];
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
        let held = LockTimeout { holder: "process 7".into(), waited: std::time::Duration::from_secs(1) };
        assert_eq!(code(OpError::new("take", "lock a", Cause::Held(Box::new(held)))), Code::TRY_AGAIN);
        let feature = Cause::Unsupported { feature: Feature::Vlan, errno: Errno::EOPNOTSUPP, extended_ack: None };
        assert_eq!(code(OpError::new("create", "vlan a", feature)), Code::KERNEL_FEATURE);
        // The cause decides the code, not the verb.
        assert_eq!(code(OpError::state("take", "lock a", "it is no regular file")), Code::KERNEL);
    }

    #[test]
    fn what_fails_on_files_is_the_stores_state() {
        let failed = |errno| failed_on(On::Files("dataDir"), &OpError::errno("write", "a", errno));
        assert_eq!(failed(Errno::EPERM).code, Code::PERMISSION);
        let large = failed(Errno::EFBIG);
        assert!(large.details.ends_with("raise RLIMIT_FSIZE of the runtime (ulimit -f)."), "{}", large.details);
        let full = failed(Errno::ENOSPC);
        assert_eq!(full.code, Code::STATE);
        assert_eq!(full.details, "ENOSPC (28). The file system of dataDir is full: make room, or move dataDir.");
        assert_eq!(failed(Errno::EEXIST).code, Code::STATE);
    }
}
