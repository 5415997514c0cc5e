//! A node on a network with a DHCP server, and the daemon on it.

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use testns::{Background, Namespace, Node, Subject};

/// How long a test waits for a message.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The server's address; its clients get 10.8.0.50 and up.
pub(crate) const SERVER: &str = "10.8.0.1";

/// A node whose bridge `br0` and link `uplink` are on the server's network.
pub(crate) struct Lan {
    pub(crate) node: Node,
    pub(crate) server: Namespace,
}

impl Lan {
    pub(crate) fn new() -> Self {
        Self::with(&Subject::ours())
    }

    pub(crate) fn with(subject: &Subject) -> Self {
        let node = Node::with(subject);
        let server = node.remote("server");
        server.add_link("lan0", "bridge");
        server.add_address("lan0", &format!("{SERVER}/24"));
        for (link, port) in [("uplink", "port0"), ("cable", "port1")] {
            node.host().add_veth(link, &server, port);
            server.set_master(port, "lan0");
        }
        node.host().add_link("br0", "bridge");
        node.host().set_master("cable", "br0");
        Self { node, server }
    }

    /// Starts dnsmasq with leases of two minutes, its shortest. It logs each message.
    pub(crate) fn dnsmasq(&self, more: &[&str]) -> Background {
        let range = "10.8.0.50,10.8.0.99,255.255.255.0,2m";
        self.dnsmasq_for(range, more)
    }

    pub(crate) fn dnsmasq_for(&self, range: &str, more: &[&str]) -> Background {
        let mut command = Command::new("dnsmasq");
        command
            .args(["--no-daemon", "--conf-file=/dev/null", "--port=0", "--interface=lan0", "--bind-interfaces"])
            .args([
                "--log-dhcp",
                "--log-facility=-",
                "--dhcp-sequential-ip",
                "--no-ping",
                "--dhcp-authoritative",
                "--pid-file",
            ])
            .arg(format!("--dhcp-leasefile={}", self.node.work_dir().join("dnsmasq.leases").display()))
            .arg(format!("--dhcp-range={range}"))
            .args(more);
        let mut server = self.server.enter(|| Background::with_stderr(command));
        server.wait_for("DHCP, sockets bound");
        server
    }

    /// Starts busybox's server, which gives leases of some seconds.
    pub(crate) fn udhcpd(&self, lease_seconds: u32) -> Background {
        let file = |name: &str| self.node.work_dir().join(name);
        let config = format!(
            "start 10.8.0.50\nend 10.8.0.99\ninterface lan0\nmin_lease 1\nauto_time 0\npidfile {}\nlease_file {}\n\
             option subnet 255.255.255.0\noption router {SERVER}\noption lease {lease_seconds}\n",
            file("udhcpd.pid").display(),
            file("udhcpd.leases").display(),
        );
        std::fs::write(file("udhcpd.leases"), "").unwrap();
        std::fs::write(file("udhcpd.conf"), config).unwrap();
        let mut command = Command::new("busybox");
        command.args(["udhcpd", "-f", "-I", SERVER]).arg(file("udhcpd.conf"));
        let mut server = self.server.enter(|| Background::with_stderr(command));
        server.wait_for("started");
        server
    }

    pub(crate) fn socket(&self) -> PathBuf {
        "/run/cni/dhcp.sock".into()
    }

    pub(crate) fn leases(&self) -> Vec<Value> {
        let Ok(entries) = std::fs::read_dir("/run/cni/dhcp.sock.leases") else { return Vec::new() };
        let files = entries.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some());
        // A file that is removed meanwhile counts as none.
        let texts = files.filter_map(|path| std::fs::read(path).ok());
        texts.map(|text| serde_json::from_slice(&text).unwrap()).collect()
    }

    pub(crate) fn lease_file(&self, container: &str) -> PathBuf {
        let entries = std::fs::read_dir("/run/cni/dhcp.sock.leases").unwrap();
        let mut paths = entries.map(|entry| entry.unwrap().path());
        paths.find(|path| std::fs::read_to_string(path).is_ok_and(|text| text.contains(container))).unwrap()
    }

    /// Starts the daemon, and waits until it reports to be ready.
    pub(crate) fn daemon(&self, flags: &[&str]) -> Background {
        let notified = self.node.work_dir().join("notify");
        std::fs::remove_file(&notified).ok();
        let socket = UnixDatagram::bind(&notified).unwrap();
        let mut command = self.daemon_command(flags);
        command.env("NOTIFY_SOCKET", &notified);
        let daemon = Background::with_stderr(command);
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut buffer = [0; 100];
        let length = socket.recv(&mut buffer).unwrap();
        assert!(buffer[..length].starts_with(b"READY=1"));
        daemon
    }

    pub(crate) fn daemon_command(&self, flags: &[&str]) -> Command {
        let mut command = Command::new(self.node.bin_dir().join("dhcp"));
        command.arg("daemon").args(flags);
        command
    }

    pub(crate) fn status(&self) -> String {
        let command = Command::new(self.node.bin_dir().join("dhcp")).arg("status").output().unwrap();
        assert!(command.status.success(), "{}", String::from_utf8_lossy(&command.stderr));
        String::from_utf8(command.stdout).unwrap()
    }
}

/// Network `net` on bridge `br0`, with addresses of the server; `ipam` adds keys.
pub(crate) fn bridge(ipam: Value) -> Value {
    network("bridge", json!({"bridge": "br0"}), ipam)
}

/// The same on the node's link `uplink`.
pub(crate) fn macvlan(ipam: Value) -> Value {
    network("macvlan", json!({"master": "uplink"}), ipam)
}

fn network(plugin: &str, own: Value, ipam: Value) -> Value {
    let mut config = json!({"cniVersion": "1.0.0", "name": "net", "type": plugin, "ipam": {"type": "dhcp"}});
    for (target, more) in [("/ipam", ipam), ("", own)] {
        let Some(Value::Object(object)) = config.pointer_mut(target) else { panic!("no object {target}") };
        let Value::Object(more) = more else { panic!("no object: {more}") };
        object.extend(more);
    }
    config
}

pub(crate) fn has(program: &str) -> bool {
    let is_there = ["/usr/sbin", "/usr/bin", "/bin"].iter().any(|folder| Path::new(folder).join(program).exists());
    if !is_there {
        testns::skip("dhcp", &format!("{program} is not installed"));
    }
    is_there
}
