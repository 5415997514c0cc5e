//! Sets up what a profile says that the node must have (key `stage`).

mod dhcp;

use crate::finding::quoted;
use crate::profile::{Stage, fill_text};
use crate::write_protection;
use serde_json::{Value, json};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use testns::{Container, Namespace, Node};

/// The bridge of [`Stage::Attached`].
const BRIDGE: &str = "kit0";

/// Lays what the node has once.
///
/// Returns the processes that it started.
pub(crate) fn on_node(node: &Node, stage: &[Stage]) -> Vec<Child> {
    // Duplicate address detection of links of the node takes a second or two, and says nothing of a plugin.
    if Path::new("/proc/sys/net/ipv6").exists() {
        node.host().set_sysctl("net/ipv6/conf/default/accept_dad", "0");
    }
    let mut children = Vec::new();
    for (number, part) in stage.iter().enumerate() {
        match part {
            Stage::Cable { name } => cable(node, name, number),
            Stage::Attached => {
                node.host().add_link(BRIDGE, "bridge");
                // A fixed MAC address: else it would be that of a port, and change when that container goes.
                node.host().set_mac(BRIDGE, "0a:00:00:63:00:01");
                node.host().add_address(BRIDGE, "10.99.0.1/16");
            }
            Stage::DhcpServer { .. } => {
                testns::step("# here the kit starts a DHCP server, which only it has");
                dhcp::serve(node);
            }
            Stage::Folder { path } => {
                write_protection::own_folder(path)
                    .unwrap_or_else(|error| panic!("cannot lay an empty folder at {}: {error}", path.display()));
            }
            Stage::Daemon { executable, arguments, socket } => {
                children.push(daemon(&node.bin_dir().join(executable), arguments, Path::new(socket)));
            }
            Stage::File { path, text } => {
                let folder = std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/")));
                let laid = folder.and_then(|()| std::fs::write(path, text));
                let name = quoted(&path.display().to_string());
                testns::step(format!("mkdir -p $(dirname {name}); printf %s {} >{name}", quoted(text)));
                laid.unwrap_or_else(|error| {
                    panic!(
                        "cannot write {} of the profile's files: {error}: name its folder in `writes`",
                        path.display()
                    )
                });
            }
            Stage::Device { .. } => {}
        }
    }
    children
}

/// A link with a neighbour; the first one leads to the rest of the world.
fn cable(node: &Node, name: &str, number: usize) {
    let remote = node.remote(&format!("neighbour-of-{name}"));
    node.host().add_veth(name, &remote, "near");
    node.host().add_address(name, &format!("192.0.2.{}/28", 16 * number + 1));
    remote.add_address("near", &format!("192.0.2.{}/28", 16 * number + 2));
    if number == 0 {
        node.host().add_route("0.0.0.0/0", "192.0.2.2", name);
    }
}

/// Starts the daemons again whose sockets were left.
pub(crate) fn restart_daemons(node: &Node, stage: &[Stage]) -> Vec<Child> {
    let start = |part: &Stage| {
        let Stage::Daemon { executable, arguments, .. } = part else { return None };
        Some(spawn(&node.bin_dir().join(executable), arguments))
    };
    stage.iter().filter_map(start).collect()
}

/// The exit status of a daemon that ends within two seconds.
pub(crate) fn ends(daemon: &mut Child) -> Option<i32> {
    let pid = i32::try_from(daemon.id()).ok().and_then(rustix::process::Pid::from_raw)?;
    let fd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok()?;
    let mut fds = [nix::poll::PollFd::new(std::os::fd::AsFd::as_fd(&fd), nix::poll::PollFlags::POLLIN)];
    match nix::poll::poll(&mut fds, 2_000_u16) {
        Ok(1..) => daemon.wait().ok()?.code(),
        _ => None,
    }
}

fn spawn(executable: &Path, arguments: &[String]) -> Child {
    let real = std::fs::read_link(executable).unwrap_or_else(|_no_link| executable.to_owned());
    let words = std::iter::once(real.display().to_string()).chain(arguments.iter().cloned());
    testns::step(format!("{} &", words.map(|word| quoted(&word)).collect::<Vec<_>>().join(" ")));
    let mut command = Command::new(executable);
    command.args(arguments).env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.process_group(0).spawn();
    child.unwrap_or_else(|error| panic!("cannot start {}: {error}", executable.display()))
}

fn daemon(executable: &Path, arguments: &[String], socket: &Path) -> Child {
    use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
    let folder = socket.parent().unwrap_or(Path::new("/run"));
    std::fs::create_dir_all(folder).unwrap_or_else(|error| panic!("cannot create {}: {error}", folder.display()));
    let watch = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)
        .unwrap_or_else(|error| panic!("inotify: {error}"));
    watch.add_watch(folder, AddWatchFlags::IN_CREATE).unwrap_or_else(|error| panic!("cannot watch a folder: {error}"));
    let child = spawn(executable, arguments);
    let mut fds = [nix::poll::PollFd::new(std::os::fd::AsFd::as_fd(&watch), nix::poll::PollFlags::POLLIN)];
    while !socket.exists() {
        let came = nix::poll::poll(&mut fds, 10_000_u16).unwrap_or(0);
        assert!(came > 0, "{} made no socket {} within 10 s", executable.display(), socket.display());
        watch.read_events().ok();
    }
    child
}

/// Lays what each pod has. Returns the prevResult of a chained plugin, in the newest form.
pub(crate) fn for_pod(node: &Node, stage: &[Stage], pod: &Container, ifname: &str, number: usize) -> Option<Value> {
    let mut prev_result = None;
    for part in stage {
        match part {
            Stage::Device { name } => device(node, &fill_text(name, number)),
            Stage::Attached => prev_result = Some(attached(node, pod, ifname, number)),
            Stage::DhcpServer { links } => dhcp::connect(pod, number, links),
            Stage::Cable { .. } | Stage::Folder { .. } | Stage::File { .. } | Stage::Daemon { .. } => {}
        }
    }
    prev_result
}

/// A link of its own: one end of a veth, down and without addresses, as unused hardware.
fn device(node: &Node, name: &str) {
    if node.host().find_link(name).is_some() {
        return; // a name without {n} is one device for all pods
    }
    let remote = node.remote(&format!("neighbour-of-{name}"));
    node.host().add_veth(name, &remote, "near");
    node.host().set_down(name);
}

/// The end on the node of the veth that is laid for a container.
pub(crate) fn host_veth(number: usize) -> String {
    format!("kit{number}")
}

fn attached(node: &Node, pod: &Container, ifname: &str, number: usize) -> Value {
    let host_veth = host_veth(number);
    let inside: &Namespace = pod.namespace();
    node.host().add_veth(&host_veth, inside, ifname);
    node.host().set_master(&host_veth, BRIDGE);
    let [_, _, high, low] = u32::try_from(number + 1).unwrap_or(2).to_be_bytes();
    let address = format!("10.99.{high}.{low}/16");
    inside.add_address(ifname, &address);
    let routes = match inside.routes().iter().any(|route| route.to == "0.0.0.0/0") {
        true => json!([]),
        false => {
            inside.add_route("0.0.0.0/0", "10.99.0.1", ifname);
            json!([{ "dst": "0.0.0.0/0", "gw": "10.99.0.1" }])
        }
    };
    let entry = |namespace: &Namespace, name: &str| {
        let link = namespace.link(name);
        json!({ "name": name, "mac": link.mac, "mtu": link.mtu_bytes })
    };
    let mut own = entry(inside, ifname);
    own["sandbox"] = json!(inside.path());
    json!({
        "cniVersion": "1.1.0",
        "interfaces": [entry(node.host(), BRIDGE), entry(node.host(), &host_veth), own],
        "ips": [{ "address": address, "gateway": "10.99.0.1", "interface": 2 }],
        "routes": routes,
    })
}
