//! A host port of a pod behind the default chain: bridge, portmap, firewall, tuning and bandwidth.

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use clients::containerd::Daemon;
use clients::containerd::runtime_v1::{PodSandboxConfig, PortMapping};
use clients::{DEADLINE, until};
use testns::{Namespace, run};

use crate::cri::with_network;
use crate::pod_arguments::bandwidth_limits;

/// The port at each address of the node that a client may know.
const AT_NODE: [&str; 2] = ["192.0.2.1:8080", "[2001:db8::1]:8080"];

/// A machine behind the node's uplink, in both families.
pub(crate) fn outside(daemon: &Daemon) -> Namespace {
    let outside = daemon.remote("outside");
    daemon.host().add_veth("uplink", &outside, "eth0");
    for (namespace, link, addresses) in [
        (daemon.host(), "uplink", ["192.0.2.1/24", "2001:db8::1/64"]),
        (&outside, "eth0", ["192.0.2.2/24", "2001:db8::2/64"]),
    ] {
        addresses.into_iter().for_each(|address| namespace.add_address(link, address));
        namespace.set_up(link);
    }
    outside.wait_for_addresses();
    daemon.host().wait_for_addresses();
    outside
}

/// The first bytes of a server at `address`, asked from a namespace. It may still be about to listen.
pub(crate) fn heard_from(namespace: &Namespace, address: &str) -> String {
    let address: SocketAddr = address.parse().unwrap();
    until(&format!("an answer from {address}"), || {
        namespace.enter(|| {
            let mut stream = TcpStream::connect_timeout(&address, DEADLINE).ok()?;
            stream.set_read_timeout(Some(DEADLINE)).unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).ok()?;
            Some(text)
        })
    })
}

/// Drops what no rule lets through, as docker does on its node.
fn drop_forwarded(daemon: &Daemon) {
    for program in ["iptables", "ip6tables"] {
        let mut command = Command::new(program);
        command.args(["--wait", "--policy", "FORWARD", "DROP"]);
        let output = daemon.host().enter(|| run(command, b"", DEADLINE));
        assert_eq!(output.code(), 0, "{program}: {}", output.stderr);
    }
}

/// A mapped port is reached from outside, from the node, from another pod and from the pod itself, in both families. Pods reach the
/// world, too, on a node that forwards nothing of itself.
#[test]
fn a_host_port_is_answered_from_everywhere() {
    let Some(daemon) = Daemon::start() else { return };
    let outside = outside(&daemon);
    let cri = with_network(&daemon);
    let server = cri.run_pod(PodSandboxConfig {
        port_mappings: vec![PortMapping { container_port: 80, host_port: 8080 }],
        annotations: bandwidth_limits(),
        ..PodSandboxConfig::named(&daemon, "server")
    });
    let other = cri.run_pod(PodSandboxConfig::named(&daemon, "other"));
    let serves = cri.start_container(&server, &["nc", "-ll", "-p", "80", "-e", "/bin/hostname"]);
    let asks = cri.start_container(&other, &["sleep", "1000000"]);
    for from in [&outside, daemon.host()] {
        for address in AT_NODE {
            assert_eq!(heard_from(from, address), "server\n", "{address}");
        }
    }
    assert_eq!(heard_from(daemon.host(), "127.0.0.1:8080"), "server\n");
    for container in [&asks, &serves] {
        for address in ["192.0.2.1", "2001:db8::1"] {
            assert_eq!(cri.exec(container, &["nc", "-w", "10", address, "8080"]), "server\n", "{address}");
        }
    }
    assert_eq!(cri.exec(&serves, &["cat", "/proc/sys/net/core/somaxconn"]), "512\n", "tuning");
    drop_forwarded(&daemon);
    for address in ["192.0.2.2", "2001:db8::2"] {
        cri.exec(&asks, &["ping", "-c", "1", "-W", "10", address]);
    }
    for pod in [server, other] {
        cri.stop(&pod);
        cri.remove(&pod);
    }
    let refused = outside.enter(|| TcpStream::connect_timeout(&AT_NODE[0].parse().unwrap(), DEADLINE));
    assert!(refused.is_err(), "the port of a pod that is gone");
}
