//! Kernels without what newer ones have, shown by system calls that fail as there: every plugin works where the reference does.

use crate::chained::{behind, bridged, scenes};
use crate::configs::{bridge, dual};
use crate::kinds;
use crate::subjects::node;
use nix::errno::Errno;
use nix::libc;
use serde_json::{Value, json};
use testns::trace::Syscall;
use testns::{Attachment, Call, Node, Verb};

/// What a kernel does not have.
#[derive(Clone, Copy)]
struct Lack {
    what: &'static str,
    /// The error of a system call that it does not know.
    errno: fn(&Syscall) -> Option<Errno>,
}

const LACKS: [Lack; 5] = [
    Lack { what: "capped acks (before 4.4)", errno: |call| unknown_option(call, &[libc::NETLINK_CAP_ACK]) },
    Lack { what: "extended acks (before 4.12)", errno: |call| unknown_option(call, &[libc::NETLINK_EXT_ACK]) },
    Lack { what: "strict checking (before 4.20)", errno: |call| unknown_option(call, &[GET_STRICT_CHK]) },
    Lack {
        what: "any of these options",
        errno: |call| unknown_option(call, &[libc::NETLINK_CAP_ACK, libc::NETLINK_EXT_ACK, GET_STRICT_CHK]),
    },
    Lack { what: "system calls newer than 4.10", errno: unknown_call },
];

/// `NETLINK_GET_STRICT_CHK` (include/uapi/linux/netlink.h).
const GET_STRICT_CHK: libc::c_int = 12;

fn unknown_option(call: &Syscall, options: &[libc::c_int]) -> Option<Errno> {
    let [_, level, option, ..] = call.arguments.map(|argument| i32::try_from(argument).unwrap_or(-1));
    let is_unknown = call.number == libc::SYS_setsockopt && level == libc::SOL_NETLINK && options.contains(&option);
    is_unknown.then_some(Errno::ENOPROTOOPT)
}

fn unknown_call(call: &Syscall) -> Option<Errno> {
    let newer = [
        libc::SYS_statx,
        libc::SYS_clone3,
        libc::SYS_close_range,
        libc::SYS_openat2,
        libc::SYS_pidfd_open,
        libc::SYS_pidfd_send_signal,
        libc::SYS_faccessat2,
        libc::SYS_epoll_pwait2,
        libc::SYS_mount_setattr,
        libc::SYS_fchmodat2,
        libc::SYS_rseq,
    ];
    newer.contains(&call.number).then_some(Errno::ENOSYS)
}

/// ADD, CHECK and DEL of one attachment.
#[track_caller]
fn serves(node: &Node, config: &Value, pod: impl Into<Attachment>, plugin: &str, lack: Lack) {
    let pod = pod.into();
    let call = |verb| Call::new(verb, config, &pod);
    let answered = |call: Call, verb: &str| {
        let reply = call.fail_each(node, lack.errno).reply;
        assert_eq!(reply.output.code(), 0, "{verb} of {plugin} without {}: {reply}", lack.what);
        reply.ok()
    };
    let result = answered(call(Verb::Add), "ADD");
    answered(call(Verb::Check).prev_result(&result), "CHECK");
    answered(call(Verb::Del).prev_result(&result), "DEL");
}

#[test]
fn interface_plugins_need_no_feature_newer_than_the_reference_needs() {
    use kinds::{DUMMY, HOST_DEVICE, IPVLAN, MACVLAN, PTP, TAP, VLAN};
    for lack in LACKS {
        let own = json!({"cniVersion": "1.1.0", "ipam": dual(), "isGateway": true, "ipMasq": true});
        {
            let node = node();
            serves(&node, &bridge(own), &node.container(), "bridge", lack);
        }
        for kind in [PTP, MACVLAN, IPVLAN, VLAN, HOST_DEVICE, TAP, DUMMY] {
            if !kind.is_known() {
                continue;
            }
            let (node, _outside) = kind.node(1);
            let pod = node.container();
            serves(&node, &kind.config(0, json!({})), &pod, kind.name, lack);
            node.assert_as_before_except(|line| kind.stays(line) || line.contains("/run/cni") || is_store(line));
        }
    }
}

#[test]
fn chained_plugins_need_no_feature_newer_than_the_reference_needs() {
    for lack in LACKS {
        for scene in scenes() {
            let node = node();
            let pod = node.container();
            let before = bridged(&node, &pod);
            serves(&node, &behind(&before, (scene.config)()), &pod, scene.plugin, lack);
        }
    }
}

fn is_store(line: &str) -> bool {
    line.contains("/var/lib/cni")
}
