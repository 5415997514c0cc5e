//! Kernels without what newer ones have, shown by system calls that fail as there: every plugin works where the reference does.

use crate::chained_plugins::{behind, bridged, chained_plugins};
use crate::configs::{bridge, dual};
use crate::interface_plugins;
use crate::subjects::{node, node_with_pod};
use nix::errno::Errno;
use nix::libc;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::{Value, json};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::Duration;
use testns::trace::{Program, Syscall};
use testns::{Attachment, Call, Node, Verb};

/// System calls and options that an old kernel lacks.
#[derive(Clone, Copy)]
struct Lack {
    what: &'static str,
    errno: fn(&Syscall) -> Option<Errno>,
}

const LACKS: [Lack; 6] = [
    Lack { what: "capped acks (before 4.4)", errno: |call| unknown_option(call, &[libc::NETLINK_CAP_ACK]) },
    Lack { what: "extended acks (before 4.12)", errno: |call| unknown_option(call, &[libc::NETLINK_EXT_ACK]) },
    Lack { what: "strict checking (before 4.20)", errno: |call| unknown_option(call, &[GET_STRICT_CHK]) },
    Lack {
        what: "any of these options",
        errno: |call| unknown_option(call, &[libc::NETLINK_CAP_ACK, libc::NETLINK_EXT_ACK, GET_STRICT_CHK]),
    },
    Lack { what: "system calls newer than 4.10", errno: unknown_call },
    Lack { what: "openat2, as a container runtime's filter has it", errno: filtered_open },
];

/// `NETLINK_GET_STRICT_CHK` (include/uapi/linux/netlink.h).
const GET_STRICT_CHK: libc::c_int = 12;

fn unknown_option(call: &Syscall, options: &[libc::c_int]) -> Option<Errno> {
    let [_, level, option, ..] = call.arguments.map(|argument| i32::try_from(argument).unwrap_or(-1));
    let is_unknown = call.number == libc::SYS_setsockopt && level == libc::SOL_NETLINK && options.contains(&option);
    is_unknown.then_some(Errno::ENOPROTOOPT)
}

fn filtered_open(call: &Syscall) -> Option<Errno> {
    (call.number == libc::SYS_openat2).then_some(Errno::EPERM)
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
    use interface_plugins::{DUMMY, HOST_DEVICE, IPVLAN, MACVLAN, PTP, TAP, VLAN};
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
        for chained in chained_plugins() {
            let (node, pod) = node_with_pod();
            let before = bridged(&node, &pod);
            serves(&node, &behind(&before, (chained.config)()), &pod, chained.name, lack);
        }
    }
}

fn is_store(line: &str) -> bool {
    line.contains("/var/lib/cni")
}

/// A record's folder is opened part by part, and a symbolic link in its path is refused as well.
#[test]
fn records_are_written_where_the_kernel_opens_no_path_without_links() {
    let node = node();
    let folder = node.work_dir().join("logs");
    std::fs::create_dir(&folder).unwrap();
    symlink(&folder, node.work_dir().join("link")).unwrap();
    let call = |file: &str, errno| {
        std::fs::write("/etc/cni/log", format!("{}\n", node.work_dir().join(file).display())).unwrap();
        let pod = node.container();
        let add = Call::new(Verb::Add, bridge(json!({})), &pod).fail_each(&node, errno).reply;
        add.ok();
        add.output.stderr
    };
    for (errno, lines) in [(unknown_call as fn(&Syscall) -> Option<Errno>, 1), (filtered_open, 2)] {
        let said = call("logs/calls", errno);
        assert_eq!(std::fs::read_to_string(folder.join("calls")).unwrap().lines().count(), lines, "{said}");
        let said = call("link/other", errno);
        assert!(said.contains("a part of its path is a symbolic link"), "{said}");
        assert!(!folder.join("other").exists());
    }
}

/// Ends with SIGTERM alone, and its DEL does nothing.
const SLEEPS: &str = "#!/bin/sh
cat > /dev/null
[ $CNI_COMMAND = ADD ] || exit 0
echo $$ > \"$FIFO\"
exec sleep 1000
";

/// A runtime is killed; the plugin that it has left is ended by the next DEL.
#[test]
fn the_plugin_of_a_dead_runtime_is_ended_where_the_kernel_has_no_descriptors_of_processes() {
    let (node, pod) = node_with_pod();
    let (bin, fifo) = (node.work_dir().join("own"), node.work_dir().join("fifo"));
    std::fs::create_dir(&bin).unwrap();
    std::fs::write(bin.join("sleeps"), SLEEPS).unwrap();
    std::fs::set_permissions(bin.join("sleeps"), PermissionsExt::from_mode(0o755)).unwrap();
    mkfifo(&fifo, Mode::S_IRWXU).unwrap();
    std::fs::create_dir_all("/etc/cni/net.d").unwrap();
    let network = json!({"cniVersion": "1.1.0", "name": "net", "plugins": [{"type": "sleeps"}]});
    std::fs::write("/etc/cni/net.d/10-net.conflist", network.to_string()).unwrap();
    let attachment = pod.attachment();
    let words =
        |verb: &str| [verb, "net", &attachment.netns, "--container-id", &attachment.container_id].map(str::to_owned);
    let environment =
        [("CNI_PATH", bin.display()), ("FIFO", fifo.display())].map(|(key, path)| (key.to_owned(), path.to_string()));
    let path = [("PATH".to_owned(), "/usr/bin:/bin".to_owned())];
    let environment = [&environment[..], &path[..]].concat();
    let mut command = std::process::Command::new(testns::cnitool());
    let mut runtime = command.args(words("add")).env_clear().envs(environment.clone()).spawn().unwrap();
    let plugin = std::fs::read_to_string(&fifo).unwrap();
    runtime.kill().unwrap();
    runtime.wait().unwrap();
    let arguments = words("del");
    let deadline = Duration::from_secs(60);
    let executable = testns::cnitool();
    let program = Program { executable, arguments: &arguments, environment: &environment, stdin: "", deadline };
    let seen = program.fail_each(&node, unknown_call).expect("it ends");
    assert!(seen.output.status.success(), "{}", seen.output.stderr);
    assert!(seen.calls.iter().any(|call| call.name() == "pidfd_open"));
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", plugin.trim())).unwrap_or_default();
    assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
}
