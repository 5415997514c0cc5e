//! A pod whose address is the network's own: our daemon keeps its lease while it runs, and gives it back.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use clients::containerd::Daemon;
use clients::containerd::runtime_v1::PodSandboxConfig;
use clients::{RuntimeNode, until};
use serde_json::{Value, json};
use testns::{Feature, skip};

use crate::cri::with_list;
use crate::networks::NAME;

const SERVER: &str = "10.88.0.1";

/// A process beside the runtime, and the file that it logs to. It ends with this value.
struct Beside {
    process: Child,
    log: PathBuf,
}

impl Beside {
    fn spawn(node: &RuntimeNode, name: &str, mut command: Command) -> Self {
        let log = node.work_dir().join(name);
        let file = File::create(&log).unwrap();
        let process = command.stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
        Self { process, log }
    }

    /// Waits until that many lines have all these words.
    #[track_caller]
    fn wait_for(&self, count: usize, words: &[&str]) {
        let has_all = |line: &&str| words.iter().all(|word| line.contains(word));
        let read = || fs::read_to_string(&self.log).unwrap();
        until(&format!("{words:?}"), || (read().lines().filter(has_all).count() >= count).then_some(()));
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.process.kill().ok(); // the process may have ended
        self.process.wait().ok();
        if std::thread::panicking() {
            testns::note(&fs::read_to_string(&self.log).unwrap_or_default());
        }
    }
}

/// A pod on an interface plugin's link into the server's network: it has the address that the server gave, which is renewed
/// while it runs, and released once it is stopped.
fn a_pod_has_a_lease(plugin: &str, own: Value) {
    let Some(daemon) = Daemon::start() else { return };
    if !Path::new("/usr/sbin/dnsmasq").exists() {
        return skip("dhcp", "dnsmasq is not installed");
    }
    let outside = daemon.remote("outside");
    outside.add_link("lan0", "bridge");
    outside.add_address("lan0", &format!("{SERVER}/24"));
    daemon.host().add_link("br0", "bridge");
    for (link, near) in [("uplink", "near1"), ("cable", "near2")] {
        daemon.host().add_veth(link, &outside, near);
        outside.set_master(near, "lan0");
    }
    daemon.host().set_master("cable", "br0");
    let mut command = Command::new("dnsmasq");
    command.args(["--no-daemon", "--conf-file=/dev/null", "--port=0", "--interface=lan0", "--bind-interfaces"]);
    command.args(["--log-dhcp", "--log-facility=-", "--no-ping", "--dhcp-authoritative", "--pid-file"]);
    command.args([
        "--dhcp-range=10.88.0.50,10.88.0.99,255.255.255.0,2m",
        "--dhcp-option=option:T1,2s",
        "--dhcp-option=option:T2,4s",
    ]);
    command.arg(format!("--dhcp-leasefile={}", daemon.work_dir().join("dnsmasq.leases").display()));
    let server = outside.enter(|| Beside::spawn(&daemon, "dnsmasq.log", command));
    server.wait_for(1, &["DHCP, sockets bound"]);
    let mut command = Command::new(daemon.plugin_dir().join("dhcp"));
    command.arg("daemon");
    let keeper = Beside::spawn(&daemon, "dhcp.log", command);
    keeper.wait_for(1, &["is ready"]);

    let mut plugin = json!({"type": plugin, "ipam": {"type": "dhcp"}});
    plugin.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
    let cri = with_list(&daemon, &json!({"cniVersion": "1.0.0", "name": NAME, "plugins": [plugin]}));
    let links = || {
        let mut names: Vec<_> = daemon.host().links().into_iter().map(|link| link.name).collect();
        names.sort();
        names
    };
    let before = links();
    let pod = cri.run_pod(PodSandboxConfig::named(&daemon, "pod"));
    let addresses = cri.addresses(&pod);
    let [address] = &addresses[..] else { panic!("{addresses:?}") };
    server.wait_for(1, &["DHCPACK", address]);
    assert_eq!(cri.namespace(&pod).global_addresses("eth0"), [format!("{address}/24")]);
    let container = cri.start_container(&pod, &["sleep", "1000000"]);
    cri.exec(&container, &["ping", "-c", "1", "-W", "10", SERVER]);
    server.wait_for(2, &["DHCPACK", address]);
    cri.stop(&pod);
    server.wait_for(1, &["DHCPRELEASE", address]);
    cri.remove(&pod);
    let leases = fs::read_dir("/run/cni/dhcp.sock.leases").unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(leases.filter(|name| name.to_string_lossy().ends_with(".json")).count(), 0);
    assert_eq!((daemon.cached(&pod.id), links()), (vec![], before));
}

#[test]
fn a_pod_of_type_bridge_has_a_lease_of_the_networks_server() {
    a_pod_has_a_lease("bridge", json!({"bridge": "br0"}));
}

#[test]
fn a_pod_of_type_macvlan_has_a_lease_of_the_networks_server() {
    if Feature::Macvlan.or_skip() {
        a_pod_has_a_lease("macvlan", json!({"master": "uplink"}));
    }
}
