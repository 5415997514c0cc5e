//! The daemon's socket: who reaches it, what it survives there, and other ways to get one.

use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use serde_json::json;
use testns::{Background, Call, Verb};

use crate::lan::{Lan, bridge, has};

const LEASES: &str = "/run/cni/dhcp.sock.leases";

fn mode(path: impl AsRef<Path>) -> u32 {
    std::fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn only_root_reaches_socket_and_leases() {
    testns::needs!(has("dnsmasq"));
    let lan = Lan::new();
    // As another component may have made it, and with the mask of a careless service.
    std::fs::create_dir_all("/run/cni").unwrap();
    std::fs::set_permissions("/run/cni", PermissionsExt::from_mode(0o755)).unwrap();
    let mut server = lan.dnsmasq(&[]);
    let mut shell = Command::new("sh");
    shell.args(["-c", "umask 0; exec \"$@\"", "sh"]).arg(lan.node.bin_dir().join("dhcp")).arg("daemon");
    let mut daemon = Background::with_stderr(shell);
    daemon.wait_for("is ready");
    lan.node.call(Verb::Add, bridge(json!({})), &lan.node.container()).ok();
    server.wait_for("DHCPACK");
    assert_eq!((mode(lan.socket()) & 0o077, mode(LEASES)), (0, 0o700));
    for entry in std::fs::read_dir(LEASES).unwrap() {
        assert_eq!(mode(entry.unwrap().path()), 0o600);
    }
}

/// A socket in a folder that others can write: they may have made what lies beside it.
#[test]
fn folder_of_leases_that_others_can_change_is_refused() {
    let lan = Lan::new();
    let folder = lan.node.work_dir().join("theirs");
    std::fs::create_dir(&folder).unwrap();
    std::fs::create_dir_all("/run/cni").unwrap();
    let attempts: [fn(&Path); 2] = [
        |folder| symlink(folder, LEASES).unwrap(),
        |_| {
            std::fs::create_dir(LEASES).unwrap();
            std::fs::set_permissions(LEASES, PermissionsExt::from_mode(0o777)).unwrap();
        },
    ];
    for attempt in attempts {
        attempt(&folder);
        let mut daemon = Background::with_stderr(lan.daemon_command(&[]));
        assert_eq!(daemon.exit_code(), Some(1));
        assert!(daemon.rest().contains("other users may change it; remove it"));
        assert!(std::fs::remove_file(LEASES).or_else(|_| std::fs::remove_dir_all(LEASES)).is_ok());
    }
}

/// The kernel's queue takes the connection of a stopped daemon; so does another program's that never answers.
#[test]
fn daemon_that_does_not_answer_keeps_no_container_from_going() {
    testns::needs!(has("dnsmasq"));
    let lan = Lan::new();
    let mut server = lan.dnsmasq(&[]);
    let mut daemon = lan.daemon(&[]);
    let (pod, config) = (lan.node.container(), bridge(json!({})));
    lan.node.call(Verb::Add, &config, &pod).ok();
    server.wait_for("DHCPACK");
    daemon.signal(Signal::SIGSTOP);
    let start = Instant::now();
    let mut newest: serde_json::Value = config.clone();
    newest["cniVersion"] = json!("1.1.0");
    let failure = lan.node.call(Verb::Status, &newest, &pod).fails_with(50);
    assert!(failure.msg.contains("it has not answered within 5s"), "{}", failure.msg);
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    // Without the bridge plugin, which would remove the link, too.
    Call::new(Verb::Del, &config, &pod).plugin("dhcp").run(&lan.node).ok();
    // The daemon releases the lease when it goes on.
    daemon.signal(Signal::SIGCONT);
    server.wait_for("DHCPRELEASE");
    assert!(daemon.wait_for("the lease is released").contains("server="));
}

/// No daemon was ever started on such a socket, so nothing keeps the container from going.
#[test]
fn del_with_a_socket_that_cannot_be_succeeds() {
    let lan = Lan::new();
    std::fs::write("/run/file", "").unwrap();
    for socket in [format!("/run/{}", "a".repeat(150)), "/run/file/socket".to_owned()] {
        let config = bridge(json!({"daemonSocketPath": socket}));
        lan.node.call(Verb::Del, &config, &lan.node.container()).ok();
    }
}

#[test]
fn daemon_says_why_it_cannot_start() {
    let lan = Lan::new();
    let mut daemon = Background::with_stderr(lan.daemon_command(&["-help"]));
    assert_eq!(daemon.exit_code(), Some(0));
    let long = format!("/run/cni/{}", "a".repeat(150));
    let mut daemon = Background::with_stderr(lan.daemon_command(&["-socketpath", &long]));
    assert_eq!(daemon.exit_code(), Some(1));
    assert!(daemon.rest().contains("its path is longer than the kernel takes for sockets"));
    assert!(!Path::new(&format!("{long}.leases")).exists());
    // tokio would panic, which is 101.
    for files in 5..=8 {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &format!("ulimit -n {files}; exec \"$@\""), "sh"])
            .arg(lan.node.bin_dir().join("dhcp"))
            .arg("daemon");
        assert_eq!(Background::with_stderr(shell).exit_code(), Some(1), "with {files} files");
    }
}

/// Each idle connection holds a file open; the limit that a shell or a container engine sets is far lower.
#[test]
fn idle_connections_and_half_lines_keep_no_caller_waiting() {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
    let lan = Lan::new();
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -Sn 256; exec \"$@\"", "sh"]).arg(lan.node.bin_dir().join("dhcp")).arg("daemon");
    let mut daemon = Background::with_stderr(shell);
    daemon.wait_for("is ready");
    let idle: Vec<UnixStream> = (0..1000)
        .map(|number| {
            let mut stream = UnixStream::connect(lan.socket()).unwrap();
            if number % 2 == 0 {
                stream.write_all(b"{\"cniDhcp\":1,").unwrap();
            }
            stream
        })
        .collect();
    let start = Instant::now();
    assert!(lan.status().starts_with("NETWORK"));
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.id())).unwrap();
    let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap().trim();
    let kib: u64 = rss.trim_end_matches(" kB").parse().unwrap();
    assert!(kib < 64 << 10, "1000 idle connections take {rss}");
    drop(idle);
}

/// systemd's way: the socket is another process's, and outlives the daemon.
#[test]
fn socket_that_systemd_passes_is_used_and_left() {
    testns::needs!(has("dnsmasq"));
    let lan = Lan::new();
    let mut server = lan.dnsmasq(&["--dhcp-option=option:T1,2s", "--dhcp-option=option:T2,4s"]);
    std::fs::create_dir_all("/run/cni").unwrap();
    let listener = UnixListener::bind(lan.socket()).unwrap();
    let activate = |flags: &[&str]| {
        let mut shell = Command::new("sh");
        let script = "exec 3<&0 0</dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$@\"";
        shell.args(["-c", script, "sh"]).arg(lan.node.bin_dir().join("dhcp")).arg("daemon").args(flags);
        shell.stdin(Stdio::from(std::os::fd::OwnedFd::from(listener.try_clone().unwrap())));
        Background::with_stderr(shell)
    };
    let mut daemon = activate(&[]);
    assert!(daemon.wait_for("is ready").contains("leases=0"));
    let (pod, config) = (lan.node.container(), bridge(json!({})));
    let result = lan.node.call(Verb::Add, &config, &pod).ok();
    server.wait_for("DHCPACK");
    let mut second = activate(&[]);
    assert_eq!(second.exit_code(), Some(1), "the lock holds for a socket of systemd, too");
    daemon.end(Signal::SIGTERM);
    assert!(lan.socket().exists());
    // A call meanwhile waits in the queue of the socket.
    std::thread::scope(|scope| {
        let check = scope.spawn(|| Call::new(Verb::Check, &config, &pod).prev_result(&result).run(&lan.node).ok());
        let mut daemon = activate(&[]);
        assert!(daemon.wait_for("is ready").contains("leases=1"));
        check.join().unwrap();
        server.wait_for("DHCPACK");
        lan.node.call(Verb::Del, &config, &pod).ok();
    });
    server.wait_for("DHCPRELEASE");
}

/// The daemon runs as from an image: the node's files are elsewhere, and the daemon's own `/run` has none of them.
#[test]
fn daemon_in_a_mount_namespace_of_its_own_finds_the_nodes_files() {
    testns::needs!(has("dnsmasq"));
    let lan = Lan::new();
    let mut server = lan.dnsmasq(&["--dhcp-option=option:T1,2s", "--dhcp-option=option:T2,4s"]);
    let pod = lan.node.container(); // its namespace's mount is there before the daemon's copy
    std::fs::create_dir_all("/run/cni").unwrap();
    let host = Path::new("/mnt");
    let mut unshare = Command::new("unshare");
    let script = "mount --rbind / \"$0\" && mount -t tmpfs none /run && exec \"$@\" -hostprefix \"$0\"";
    unshare.args(["--mount", "--propagation", "private", "sh", "-c", script]).arg(host);
    let executable = lan.node.bin_dir().join("dhcp");
    unshare.arg(host.join(executable.strip_prefix("/").unwrap())).arg("daemon");
    let mut daemon = Background::with_stderr(unshare);
    daemon.wait_for("is ready");
    lan.node.call(Verb::Add, bridge(json!({})), &pod).ok();
    server.wait_for("DHCPACK");
    assert_eq!(lan.leases().len(), 1, "its leases are beside the node's socket");
    server.wait_for("DHCPREQUEST"); // renewed
    server.wait_for("DHCPACK");
    daemon.end(Signal::SIGTERM);
    // DEL notes the release where the next daemon looks.
    lan.node.call(Verb::Del, bridge(json!({})), &pod).ok();
    assert_eq!(lan.leases()[0]["isReleased"], true);
}

#[test]
fn units_are_systemds() {
    testns::needs!(has("systemd-analyze"));
    let lan = Lan::new();
    let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd");
    let installed = lan.node.bin_dir().join("dhcp");
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no"]);
    for unit in ["cni-dhcp.service", "cni-dhcp.socket"] {
        let text = std::fs::read_to_string(units.join(unit)).unwrap();
        let text = text.replace("/opt/cni/bin/dhcp", installed.to_str().unwrap());
        std::fs::write(lan.node.work_dir().join(unit), text).unwrap();
        verify.arg(lan.node.work_dir().join(unit));
    }
    let output = verify.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && said.is_empty(), "{said}");
}
