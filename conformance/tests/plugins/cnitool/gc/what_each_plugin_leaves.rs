//! What each plugin leaves on the node: `cnitool gc` of another cache keeps it as long as the container lives, and removes it
//! when that is gone, though nothing else of the attachment is there; `doctor` names it.

use super::{OTHER, reservations};
use crate::cnitool::{PORT, Tour, make_old, netns};
use crate::prelude::*;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use testns::Subject;

/// A process in a pod; it ends with the test.
struct Process(Child);

impl Process {
    fn in_pod(pod: &Container) -> Self {
        let mut command = Command::new("sleep");
        command.arg("1000").stdout(Stdio::null()).stderr(Stdio::null());
        Self(pod.namespace().enter(|| command.spawn().unwrap()))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

const LEASES: &str = "/run/cni/dhcp.sock.leases";
/// `printf office/c1/eth0 | sha256sum`, 32 digits of it.
const LEASE: &str = "db23eab5f556071f1857d1beafb0eb9f.json";

/// A kind of thing that a plugin leaves.
#[derive(Clone, Copy)]
struct InterfacePlugin {
    plugins: fn(&Tour) -> Value,
    needs: Option<Feature>,
    /// The text by which `cnitool` lists it.
    object: &'static str,
    count: fn(&Tour) -> usize,
}

fn with_fixed_address(tour: &Tour, plugin: &Value) -> Value {
    let ipam = json!({"type": "static", "addresses": [{"address": tour.address(5) + "/24"}]});
    json!([{"type": "bridge", "ipam": ipam}, plugin])
}

fn files(folder: &str) -> usize {
    fs::read_dir(folder).into_iter().flatten().count()
}

/// The rules whose comment or note names an attachment of the network.
fn rules(tour: &Tour) -> usize {
    tour.node.host().nft().iter().filter(|line| line.contains("net: office")).count()
}

const TUNING: InterfacePlugin = InterfacePlugin {
    plugins: |tour| with_fixed_address(tour, &json!({"type": "tuning", "mtu": 1400})),
    needs: None,
    object: "tuning record /run/cni/tuning/",
    count: |_| files("/run/cni/tuning"),
};

const HOST_DEVICE: InterfacePlugin = InterfacePlugin {
    plugins: |_| json!([{"type": "host-device", "device": "dev1"}]),
    needs: None,
    object: "device dev1",
    count: |_| files("/run/cni/host-device"),
};

const BANDWIDTH: InterfacePlugin = InterfacePlugin {
    plugins: |tour| with_fixed_address(tour, &json!({"type": "bandwidth", "egressRate": 8000, "egressBurst": 80000})),
    needs: Some(Feature::Ifb),
    object: "link bwp",
    count: |tour| tour.node.host().links().iter().filter(|link| link.name.starts_with("bwp")).count(),
};

const fn packet_filter(plugins: fn(&Tour) -> Value, object: &'static str) -> InterfacePlugin {
    InterfacePlugin { plugins, needs: None, object, count: rules }
}

const FIREWALL: [InterfacePlugin; 2] = [
    packet_filter(|tour| with_fixed_address(tour, &firewall("iptables")), "firewall rules of 10."),
    packet_filter(|tour| with_fixed_address(tour, &firewall("nftables")), "firewall rules of 10."),
];

const PORTMAP: [InterfacePlugin; 2] = [
    packet_filter(|tour| with_fixed_address(tour, &portmap("iptables")), "forwarding of port 8080/tcp to 10."),
    packet_filter(|tour| with_fixed_address(tour, &portmap("nftables")), "forwarding of port 8080/tcp to 10."),
];

fn firewall(backend: &str) -> Value {
    json!({"type": "firewall", "backend": backend})
}

fn portmap(backend: &str) -> Value {
    json!({"type": "portmap", "backend": backend, "capabilities": {"portMappings": true}, "acceptForwarded": true})
}

/// A node with the plugins of a kind, and a pod that another runtime has added.
struct Scene {
    tour: Tour,
    pod: Container,
    kind: InterfacePlugin,
}

impl Scene {
    fn new(kind: InterfacePlugin) -> Self {
        let tour = Tour::with_plugins();
        let network = json!({"cniVersion": "1.1.0", "name": "office", "plugins": (kind.plugins)(&tour)});
        fs::write("/etc/cni/net.d/10-office.conflist", network.to_string()).unwrap();
        let beyond = tour.node.remote("beyond");
        tour.node.host().add_veth("dev1", &beyond, "near");
        let pod = tour.node.container();
        tour.cnitool(&[&OTHER[..], &["add", "office", &netns(&pod), "--cap-args", PORT]].concat());
        // As with the reference's veth, the mark of the link says nothing.
        for link in tour.node.host().links().iter().filter(|link| link.name.starts_with("veth")) {
            tour.node.host().set_alias(&link.name, "");
        }
        Self { tour, pod, kind }
    }

    #[track_caller]
    fn assert_kept(&self) {
        let (tour, object, count) = (&self.tour, self.kind.object, (self.kind.count)(&self.tour));
        assert!(count > 0, "{object}: nothing is on the node");
        let dry = tour.cnitool(&["gc", "office", "--dry-run", "--json"]);
        assert!(dry.contains("would be kept") && !dry.contains("would be deleted") && dry.contains(object), "{dry}");
        assert_eq!(self.doctor(), (0, String::new()), "{object}");
        tour.cnitool(&["gc", "office"]);
        assert_eq!((self.kind.count)(tour), count, "{object}");
        tour.cnitool(&[&OTHER[..], &["check", "office", &netns(&self.pod)]].concat());
    }

    #[track_caller]
    fn assert_removed(&self) {
        let (tour, object, count) = (&self.tour, self.kind.object, (self.kind.count)(&self.tour));
        assert!(count > 0, "{object}: nothing is left on the node");
        let dry = tour.cnitool(&["gc", "office", "--dry-run", "--json"]);
        assert!(dry.contains("would be deleted") && !dry.contains("would be kept") && dry.contains(object), "{dry}");
        let (code, evidence) = self.doctor();
        // A device that ended with the container is an error besides.
        assert!(code >= 3 && evidence.contains(object), "{code}: {evidence}");
        assert!(tour.cnitool(&["show"]).contains(object), "{object}");
        assert_eq!((self.kind.count)(tour), count, "{object}: only gc changes anything");
        let done = tour.cnitool(&["gc", "office"]);
        assert!(done.contains("deleted") && !done.contains("kept"), "{done}");
        assert_eq!(
            ((self.kind.count)(tour), tour.cnitool(&["gc", "office", "--dry-run"]).as_str()),
            (0, ""),
            "{object}"
        );
    }

    fn doctor(&self) -> (i32, String) {
        let (code, findings) = self.tour.doctor(&[]);
        let left: Vec<String> =
            findings.iter().filter(|one| one["kind"] == "leftover").map(|one| one["evidence"].to_string()).collect();
        (code, left.join("\n"))
    }
}

#[test]
fn what_a_plugin_leaves_goes_with_the_container() {
    for kind in [TUNING, HOST_DEVICE, BANDWIDTH].into_iter().chain(FIREWALL).chain(PORTMAP) {
        if kind.needs.is_none_or(|feature| feature.or_skip()) {
            let scene = Scene::new(kind);
            scene.assert_kept();
            scene.tour.lose(&scene.pod);
            scene.assert_removed();
        }
    }
}

/// The path is gone, but a process is still in the namespace that the records name.
#[test]
fn a_record_of_a_namespace_that_lives_without_its_path_is_kept() {
    for kind in [TUNING, HOST_DEVICE] {
        let scene = Scene::new(kind);
        let process = Process::in_pod(&scene.pod);
        drop(scene.pod.leave(Remains::Gone));
        let cnitool = scene.tour.bin_dir.join("cnitool");
        let done = scene.tour.run_among_processes(&cnitool, &["gc", "office"]);
        let text = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(done.status.success() && text.contains("kept") && text.contains(kind.object), "{done:?}");
        assert_eq!((kind.count)(&scene.tour), 1, "{}", kind.object);
        drop(process);
        scene.tour.node.settle(Duration::from_secs(60));
        scene.assert_removed();
    }
}

/// Records of earlier versions do not say where the container is.
#[test]
fn a_record_that_does_not_name_its_namespace_is_kept() {
    let scene = Scene::new(TUNING);
    let path = fs::read_dir("/run/cni/tuning").unwrap().next().unwrap().unwrap().path();
    let mut record: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    record.as_object_mut().unwrap().retain(|key, _| !key.starts_with("netns"));
    fs::write(&path, record.to_string()).unwrap();
    scene.tour.lose(&scene.pod);
    let dry = scene.tour.cnitool(&["gc", "office", "--dry-run", "--json"]);
    assert!(dry.contains("would be kept") && dry.contains(TUNING.object), "{dry}");
    scene.tour.cnitool(&["gc", "office"]);
    assert_eq!(files("/run/cni/tuning"), 1);
    scene.tour.cnitool(&["gc", "office", "--force"]);
    assert_eq!(files("/run/cni/tuning"), 0);
}

/// What the daemon has recorded of a lease, as if it had ended since.
fn write_lease(tour: &Tour, path: &str, identity: [u64; 2]) {
    let names = json!({"network": "office", "containerId": "c1", "ifname": "eth0"});
    let subject = json!({"names": names, "sandbox": {"path": path, "identity": identity}, "index": 2,
        "mac": [2, 0, 0, 0, 0, 1], "clientId": [0], "provide": [], "request": [], "priority": 0});
    let lease = json!({"address": tour.address(9) + "/24", "server": tour.address(1), "routers": [],
        "classlessRoutes": null, "staticRoutes": [], "nameServers": [], "domain": "", "search": [], "mtuBytes": null,
        "seconds": 3600, "renewSeconds": 1800, "rebindSeconds": 3150});
    let record = json!({"subject": subject, "lease": lease, "sinceSeconds": 1, "boot": "b", "isLost": false,
        "lastError": "", "isReleased": false});
    fs::create_dir_all(LEASES).unwrap();
    fs::write(Path::new(LEASES).join(LEASE), record.to_string()).unwrap();
}

/// The namespace in the record counts, not the one to which its path now leads.
#[test]
fn a_lease_is_kept_while_the_namespace_of_its_record_exists() {
    let tour = Tour::with_plugins();
    let network =
        json!({"cniVersion": "1.1.0", "name": "office", "plugins": [{"type": "bridge", "ipam": {"type": "dhcp"}}]});
    fs::write("/etc/cni/net.d/10-office.conflist", network.to_string()).unwrap();
    let pod = tour.node.container();
    let meta = fs::metadata(pod.namespace().path()).unwrap();
    let is_released = || fs::read_to_string(Path::new(LEASES).join(LEASE)).unwrap().contains("\"isReleased\":true");
    let object = format!("DHCP lease of {}", tour.address(9));

    write_lease(&tour, "/run/netns/elsewhere", [meta.dev(), meta.ino()]);
    let dry = tour.cnitool(&["gc", "office", "--dry-run", "--json"]);
    assert!(dry.contains("would be kept") && dry.contains(&object), "{dry}");
    tour.cnitool(&["gc", "office"]);
    assert!(!is_released());

    write_lease(&tour, &netns(&pod), [meta.dev(), 1]);
    let dry = tour.cnitool(&["gc", "office", "--dry-run", "--json"]);
    assert!(dry.contains("would be deleted") && dry.contains(&object) && !is_released(), "{dry}");
    tour.cnitool(&["gc", "office"]);
    assert!(is_released());
    assert_eq!(tour.cnitool(&["gc", "office", "--dry-run"]), "");
}

/// The network's file was removed, no cache has it, and its plugins leave neither links nor rules.
#[test]
fn a_network_is_known_by_the_records_of_its_plugins() {
    for kind in [TUNING, HOST_DEVICE] {
        let scene = Scene::new(kind);
        let tour = &scene.tour;
        fs::remove_file("/etc/cni/net.d/10-office.conflist").unwrap();
        let kept = tour.cnitool(&["gc", "office"]);
        assert!(kept.contains("kept") && (kind.count)(tour) > 0, "{}: {kept}", kind.object);
        scene.tour.lose(&scene.pod);
        assert!(tour.cnitool(&["show"]).contains(kind.object), "{}", kind.object);
        let (_, evidence) = scene.doctor();
        assert!(evidence.contains(kind.object), "{evidence}");
        // Without a configuration any plugin may have left something.
        let others = tour.cnitool(&[&OTHER[..], &["list", "--json"]].concat());
        let others: Value = serde_json::from_str(&others).unwrap();
        let id = others[0]["container"].as_str().unwrap();
        let refused = tour.call(&["forget", "office", "/run/netns/gone", "--container-id", id]);
        assert!(!refused.status.success() && super::stderr(&refused).contains(kind.object), "{refused:?}");
        tour.cnitool(&["gc", "office"]);
        assert_eq!(((kind.count)(tour), scene.doctor().1), (0, String::new()), "{}", kind.object);
    }
    let tour = Tour::with_plugins();
    fs::remove_file("/etc/cni/net.d/10-office.conflist").unwrap();
    write_lease(&tour, "/run/netns/gone", [1, 1]);
    let dry = tour.cnitool(&["gc", "office", "--dry-run", "--json"]);
    assert!(dry.contains("would be deleted") && dry.contains("DHCP lease of"), "{dry}");
    tour.cnitool(&["gc", "office"]);
    let record = fs::read_to_string(Path::new(LEASES).join(LEASE)).unwrap();
    assert!(record.contains("\"isReleased\":true"), "{record}");
}

/// The reference's DEL finds the masquerade by the addresses in the namespace, and it has no GC: what is named removes it.
#[test]
fn the_masquerade_that_the_reference_leaves_is_removed_by_the_commands_that_are_named() {
    let Some(Subject::Folder(reference)) = reference_or_skip() else { return };
    for version in ["1.1.0", "0.4.0"] {
        let tour = Tour::with_plugins();
        let conf = "/etc/cni/net.d/10-office.conflist";
        let network = fs::read_to_string(conf).unwrap().replace("1.1.0", version);
        fs::write(conf, network).unwrap();
        let theirs = reference.display();
        let calls = |words: &[&str]| tour.shell(&format!("cnitool --cni-path {theirs} {}", words.join(" ")));
        let pods = [tour.node.container(), tour.node.container()];
        for pod in &pods {
            let output = calls(&["add", "office", &netns(pod), "--container-id", pod.id()]);
            assert!(output.status.success(), "{output:?}");
        }
        pods[0].end();
        tour.node.settle(Duration::from_secs(60));
        reservations().iter().for_each(|file| make_old(file));
        let gone = tour.address(2);
        let collected = calls(&["gc", "office"]);
        let [rows, said] = [collected.stdout, collected.stderr].map(|out| String::from_utf8(out).unwrap());
        assert!(!rows.contains(&format!("address {gone}")), "{rows}");
        let doctor = |more: &[&str]| calls(&[&["doctor"], more].concat());
        let report = String::from_utf8(doctor(&[]).stdout).unwrap();
        let remedy = said.split_once("; to remove it: ").expect(&said).1.lines().next().unwrap().to_owned();
        assert!(report.contains(&format!("help: {remedy}")), "{report}");
        let done = tour.shell(&remedy);
        assert!(done.status.success(), "{remedy}: {done:?}");
        let after = doctor(&[]);
        assert!(after.status.success(), "{after:?}");
        let saved = Command::new("iptables-save").args(["-t", "nat"]).output().unwrap();
        let saved = String::from_utf8(saved.stdout).unwrap();
        assert!(!saved.contains(&gone) && saved.contains(&tour.address(3)), "{saved}");
    }
}
