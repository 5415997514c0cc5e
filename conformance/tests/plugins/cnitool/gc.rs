//! `cnitool gc` beside other runtimes: it keeps what their containers have on the node, though its own cache lacks
//! them.

#[cfg(feature = "every-test")]
mod what_each_plugin_leaves;

use super::{Tour, make_old, netns};
use serde_json::Value;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use testns::{Container, Namespace, Remains};

/// Another runtime's cache.
const OTHER: [&str; 2] = ["--cache-dir", "/run/podman/cni"];

impl Tour {
    /// A pod that another runtime added some time ago.
    fn pod_of_another(&self) -> Container {
        let pod = self.node.container();
        let netns = netns(&pod);
        self.cnitool(&[&OTHER[..], &["add", "office", &netns]].concat());
        for reservation in reservations() {
            make_old(&reservation);
        }
        pod
    }

    /// A pod with the reservation of an address, made some time ago, and a link that is in the pod alone. `words` are those of
    /// `ip`; `POD` stands for the pod's ID.
    fn pod_with_link(&self, words: &[&str]) -> Container {
        let pod = self.node.container();
        std::fs::create_dir_all(folder()).unwrap();
        std::fs::write(folder().join(self.address(11)), format!("{}\r\neth0", pod.id())).unwrap();
        reservations().iter().for_each(|reservation| make_old(reservation));
        for line in [&["link add eth0 type bridge"], words].concat() {
            let line = line.replace("POD", pod.id());
            pod.namespace().enter(|| assert!(Command::new("ip").args(line.split(' ')).status().unwrap().success()));
        }
        pod
    }

    fn unlink(&self, pod: &Container) {
        pod.namespace().enter(|| assert!(Command::new("ip").args(["link", "del", "eth0"]).status().unwrap().success()));
    }

    fn gc(&self, more: &[&str]) -> Output {
        let output = self.call(&[&["gc", "office"], more].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output
    }

    /// The objects that GC removed, or would remove.
    fn verdicts(&self, more: &[&str]) -> String {
        String::from_utf8(self.gc(more).stdout).unwrap()
    }
}

/// A process in a pod; it ends with the test.
pub(super) struct Process(Child);

impl Process {
    pub(super) fn in_pod(pod: &Container) -> Self {
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

fn folder() -> &'static Path {
    Path::new("/var/lib/cni/networks/office")
}

fn reservations() -> Vec<PathBuf> {
    let paths = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("10.")).collect()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn living_pods_of_another_cache_are_kept_unless_forced() {
    let tour = Tour::with_plugins();
    let pods = [tour.pod_of_another(), tour.pod_of_another()];
    let addresses = || pods.each_ref().map(|pod| pod.namespace().global_addresses("eth0").len());
    let dry = tour.verdicts(&["--dry-run", "--json"]);
    assert_eq!(dry.matches("would be kept").count(), 2, "{dry}");
    let done = tour.gc(&[]);
    assert_eq!(addresses(), [1, 1]);
    let remedy =
        "if its container is gone, this removes it: cnitool del office /run/netns/gone --container-id cnitool-";
    assert_eq!((reservations().len(), stderr(&done).matches(remedy).count()), (2, 2), "{done:?}");
    assert!(!stderr(&done).contains("--force"), "it would take all of them: {done:?}");
    tour.gc(&["--all"]);
    assert_eq!(addresses(), [1, 1], "--all is about the cache");
    let dry = tour.verdicts(&["--dry-run", "--force"]);
    assert!(dry.matches("would be deleted").count() == 2 && dry.contains("link veth"), "{dry}");
    assert_eq!(addresses(), [1, 1]);
    tour.gc(&["--force"]);
    assert_eq!((addresses(), reservations().len()), ([0, 0], 0));
}

/// Links without alias, as the reference makes them, are recognised by the address, in any namespace.
#[test]
fn a_pod_without_alias_is_kept_by_its_address() {
    let tour = Tour::with_plugins();
    let pod = tour.pod_of_another();
    let links = tour.node.host().links();
    let veth = links.iter().find(|link| link.name.starts_with("veth")).unwrap();
    tour.node.host().set_alias(&veth.name, "");
    tour.gc(&[]);
    assert_eq!(reservations().len(), 1);
    // Without a reservation it is recognised by the masquerade rule.
    let entries = || -> Vec<_> { tour.node.host().nft().into_iter().filter(|line| line.contains("office")).collect() };
    let before = entries();
    assert!(!before.is_empty());
    std::fs::remove_file(&reservations()[0]).unwrap();
    let dry = tour.verdicts(&["--dry-run", "--json"]);
    assert!(dry.contains("would be kept") && dry.contains(&format!("masquerade of {}", tour.address(2))), "{dry}");
    tour.gc(&[]);
    assert_eq!(entries(), before);
    drop(pod);
}

/// A macvlan stands for any link without a peer on the node.
#[test]
fn a_pod_with_no_link_on_the_node_is_kept_by_its_address() {
    let tour = Tour::with_plugins();
    let pod = tour.node.container();
    std::fs::create_dir_all(folder()).unwrap();
    std::fs::write(folder().join(tour.address(11)), format!("{}\r\neth0", pod.id())).unwrap();
    make_old(&reservations()[0]);
    let process = Process::in_pod(&pod);
    for words in ["link add eth0 type bridge", &format!("address add {}/24 dev eth0", tour.address(11))] {
        pod.namespace().enter(|| assert!(Command::new("ip").args(words.split(' ')).status().unwrap().success()));
    }
    let output = tour.run_among_processes(&tour.bin_dir.join("cnitool"), &["gc", "office"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(reservations().len(), 1);
    pod.namespace().enter(|| assert!(Command::new("ip").args(["link", "del", "eth0"]).status().unwrap().success()));
    tour.gc(&[]);
    assert_eq!(reservations().len(), 0);
    drop(process);
}

/// A virtual machine in the pod has the address, and the link that leads to it has the mark.
#[test]
fn a_marked_link_in_a_pod_keeps_its_address_wherever_that_is() {
    let tour = Tour::with_plugins();
    let pod = tour.pod_with_link(&["link set eth0 alias cni:office/POD/eth0"]);
    let dry = tour.verdicts(&["--dry-run", "--json"]);
    assert!(dry.contains("would be kept"), "{dry}");
    tour.gc(&[]);
    let release = tour.call(&["ipam", "release", "office", &tour.address(11)]);
    assert!(stderr(&release).contains("whose state is: lives"), "{release:?}");
    // By the plugin's own look.
    let forced = tour.gc(&["--force"]);
    assert!(reservations().len() == 1 && stderr(&forced).contains("the plugins have kept"), "{forced:?}");
    tour.unlink(&pod);
    tour.gc(&[]);
    assert_eq!(reservations().len(), 0);
}

/// An object that cannot be read is unknown.
#[test]
fn without_the_right_to_enter_namespaces_no_address_counts_as_free() {
    let tour = Tour::with_plugins();
    let address = format!("address add {}/24 dev eth0", tour.address(11));
    let pod = tour.pod_with_link(&[&address]);
    let cnitool = tour.bin_dir.join("cnitool").display().to_string();
    let without = |words: &[&str]| {
        let setpriv = ["--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin", &cnitool];
        tour.run_among_processes(Path::new("setpriv"), &[&setpriv[..], words].concat())
    };
    let done = without(&["gc", "office"]);
    assert!(
        reservations().len() == 1 && stderr(&done).contains("it is unknown whether its container lives"),
        "{done:?}"
    );
    let release = without(&["ipam", "release", "office", &tour.address(11)]);
    assert!(reservations().len() == 1 && stderr(&release).contains("whose state is: unknown"), "{release:?}");
    tour.unlink(&pod);
    tour.gc(&[]);
    assert_eq!(reservations().len(), 0);
}

/// The entry is all that a runtime knows of a link that is in the container alone.
#[test]
fn an_attachment_whose_interface_is_there_is_not_forgotten() {
    let tour = Tour::with_plugins();
    let network = serde_json::json!({"cniVersion": "1.1.0", "name": "lo", "plugins": [{"type": "loopback"}]});
    std::fs::write("/etc/cni/net.d/20-lo.conflist", network.to_string()).unwrap();
    let pod = tour.node.container();
    let netns = netns(&pod);
    tour.cnitool(&["add", "lo", &netns, "--ifname", "lo"]);
    let forget = || tour.call(&["del", "--forget", "lo", &netns, "--ifname", "lo"]);
    let refused = forget();
    assert!(stderr(&refused).contains(&format!("interface lo in its namespace, {netns}")), "{refused:?}");
    tour.cnitool(&["check", "lo", &netns, "--ifname", "lo"]);
    pod.end();
    assert!(forget().status.success());
}

/// An ADD of another runtime may be under way: it has reserved an address and has not made a link yet.
#[test]
fn what_is_younger_than_a_minute_is_kept() {
    let tour = Tour::with_plugins();
    std::fs::create_dir_all(folder()).unwrap();
    std::fs::write(folder().join(tour.address(9)), "c9\r\neth0").unwrap();
    let done = tour.gc(&[]);
    assert!(stderr(&done).contains("younger than a minute") && reservations().len() == 1, "{done:?}");
    make_old(&reservations()[0]);
    let dry = tour.verdicts(&["--dry-run", "--json"]);
    assert!(dry.contains("would be deleted") && dry.contains(&format!("address {}", tour.address(9))), "{dry}");
    assert_eq!(reservations().len(), 1);
    tour.gc(&[]);
    assert_eq!(reservations().len(), 0);
}

/// A pod of another cache whose namespace has ended is stale.
#[test]
fn a_dead_pod_of_another_cache_is_removed() {
    let tour = Tour::with_plugins();
    let pod = tour.pod_of_another();
    pod.end();
    tour.gc(&[]);
    assert_eq!(reservations().len(), 0);
}

/// Plugins below version 1.1.0 have no GC: DEL removes what no cache has, and what may live is kept with a warning.
#[test]
fn a_network_without_gc_is_collected_by_del() {
    let tour = Tour::with_plugins();
    let path = "/etc/cni/net.d/10-office.conflist";
    let network = std::fs::read_to_string(path).unwrap();
    std::fs::write(path, network.replace("1.1.0", "0.4.0")).unwrap();
    let (living, dead) = (tour.pod_of_another(), tour.pod_of_another());
    let own = tour.node.container();
    tour.cnitool(&["add", "office", &netns(&own)]);
    tour.lose(&dead);
    let rules = || tour.node.host().nft().into_iter().filter(|line| line.contains("office")).count();
    let before = rules();
    let dry = tour.verdicts(&["--dry-run", "--json"]);
    assert!(dry.matches("would be kept").count() == 2 && dry.matches("would be deleted").count() == 1, "{dry}");
    let done = tour.gc(&[]);
    assert!(stderr(&done).contains("a network namespace uses it"), "{done:?}");
    assert!(before > 0 && rules() * 3 == before * 2, "{before} {}", rules());
    assert_eq!(reservations().len(), 2);
    for pod in [&living, &own] {
        assert_eq!(pod.namespace().global_addresses("eth0").len(), 1);
    }
    tour.gc(&["--all"]);
    assert_eq!((reservations().len(), own.namespace().global_addresses("eth0").len()), (1, 0));
}

/// A cache that a runtime wrote long ago has results alone. They name no attachment, and keep none that is gone.
#[test]
fn an_entry_of_the_oldest_format_is_reported_and_its_dead_pod_is_removed() {
    let tour = Tour::with_plugins();
    let network = std::fs::read_to_string("/etc/cni/net.d/10-office.conflist").unwrap();
    for version in ["1.0.0", "1.1.0"] {
        std::fs::write("/etc/cni/net.d/10-office.conflist", network.replace("1.1.0", version)).unwrap();
        let pod = tour.node.container();
        tour.cnitool(&["add", "office", &netns(&pod), "--container-id", "web"]);
        let entry = Path::new("/var/lib/cni/results/office-web-eth0");
        let cached: Value = serde_json::from_str(&std::fs::read_to_string(entry).unwrap()).unwrap();
        std::fs::write(entry, cached["result"].to_string()).unwrap();
        for words in [&["list"][..], &["repair", "office"], &["list", "--container-id", "web"]] {
            let said = stderr(&tour.call(words));
            assert!(said.contains("office-web-eth0 left out: it has the oldest format"), "{words:?}: {said}");
        }
        tour.lose(&pod);
        [entry, &*reservations()[0]].iter().for_each(|path| make_old(path));
        let verdicts = tour.verdicts(&["--dry-run", "--json"]);
        assert!(verdicts.contains("would be deleted"), "{verdicts}");
        let done = tour.gc(&[]);
        assert!(!stderr(&done).contains("kept") && reservations().is_empty() && !entry.exists(), "{version}: {done:?}");
    }
}

/// The path is gone, but a process is still in the namespace.
#[test]
fn a_cached_pod_whose_namespace_lives_without_its_path_is_kept() {
    let tour = Tour::with_plugins();
    let pod = tour.node.container();
    let netns = netns(&pod);
    tour.cnitool(&["add", "office", &netns]);
    make_old(&reservations()[0]);
    let process = Process::in_pod(&pod);
    drop(pod.leave(Remains::Gone));
    let done = tour.gc(&[]);
    assert!(stderr(&done).contains("a network namespace uses it") && reservations().len() == 1, "{done:?}");
    drop(process);
    tour.gc(&["--all"]);
    assert_eq!(reservations().len(), 0);
}

/// A cleaner in a pod with a PID namespace of its own sees no process of the runtime's containers.
#[test]
fn what_may_be_of_a_container_that_is_hidden_from_the_cleaner_is_kept() {
    let mut tour = Tour::with_plugins();
    let Some(runtime) = &tour.processes else { return testns::skip("gc from another PID namespace", "no unshare") };
    let pod = tour.node.container();
    // ADD records where it was called.
    tour.cnitool(&["add", "office", &netns(&pod)]);
    let pod = tour.pod_with_link(&[&format!("addr add {}/24 dev eth0", tour.address(11))]);
    let mut holder = runtime.command();
    holder.args(["nsenter", &format!("--net={}", netns(&pod)), "cat"]).stdin(Stdio::piped());
    let mut holder = holder.stdout(Stdio::piped()).spawn().unwrap();
    // It answers, so it is in the pod.
    holder.stdin.as_mut().unwrap().write_all(b"here").unwrap();
    holder.stdout.as_mut().unwrap().read_exact(&mut [0; 4]).unwrap();
    drop(pod.leave(Remains::Gone));
    let runtime = std::mem::replace(&mut tour.processes, testns::PidNamespace::new());
    let of_both = reservations().len();
    let done = tour.gc(&["--all"]);
    assert!(stderr(&done).contains("not all containers can be seen"), "{done:?}");
    assert!(folder().join(tour.address(11)).exists() && of_both == 2, "{done:?}");
    tour.processes = runtime;
    tour.gc(&[]);
    assert!(folder().join(tour.address(11)).exists(), "a process is in the pod");
    drop(holder.stdin.take());
    holder.wait().unwrap();
    tour.gc(&[]);
    assert!(!folder().join(tour.address(11)).exists(), "all containers were attached from where the cleaner is");
}

/// GC may be called at any time: `cnitool` keeps it apart from ADD and DEL, so none fails, no pod that is attached loses
/// anything, and nothing is left of the others.
#[test]
fn gc_beside_adds_and_dels_harms_none_of_them() {
    const WORKERS: usize = 4;
    let tour = Tour::with_plugins();
    let end = Instant::now() + Duration::from_secs(6);
    let (ends, collections) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let pods: Vec<_> = (0..WORKERS).map(|_| tour.node.container()).collect();
    std::thread::scope(|scope| {
        for pod in &pods {
            let (tour, ends) = (&tour, &ends);
            scope.spawn(move || {
                let netns = netns(pod);
                while Instant::now() < end {
                    let result: Value = serde_json::from_str(&tour.cnitool(&["add", "office", &netns])).unwrap();
                    let address = result["ips"][0]["address"].as_str().unwrap();
                    // GC may have run since, also one that had begun before.
                    tour.cnitool(&["check", "office", &netns]);
                    assert_eq!(pod.namespace().global_addresses("eth0"), [address]);
                    assert!(folder().join(address.trim_end_matches("/24")).exists(), "{address} is not reserved");
                    tour.cnitool(&["del", "office", &netns]);
                    ends.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        scope.spawn(|| {
            while Instant::now() < end {
                tour.gc(&[]);
                collections.fetch_add(1, Ordering::Relaxed);
            }
        });
    });
    testns::note(&format!("{ends:?} pods beside {collections:?} collections"));
    assert!(ends.into_inner() >= WORKERS && collections.into_inner() >= 3);
    assert_eq!((reservations().len(), tour.cnitool(&["list", "--json"]).trim()), (0, "[]"));
    let has_veth = |host: &Namespace| host.links().iter().any(|link| link.name.starts_with("veth"));
    tour.node.host().wait_for("no veth to be left", |host| !has_veth(host));
    let unfinished = std::fs::read_dir("/var/lib/cni/results").unwrap().count();
    assert_eq!(unfinished, 0);
}

#[test]
fn keep_of_an_unknown_container_warns() {
    let tour = Tour::with_plugins();
    let output = tour.gc(&["--keep", "c404"]);
    assert!(stderr(&output).contains("--keep c404/eth0: neither the cache nor the node has it"), "{output:?}");
}

/// `--keep CONTAINER` names a container, not its default interface.
#[test]
fn a_kept_container_keeps_all_its_interfaces() {
    let tour = Tour::with_plugins();
    let pod = tour.node.container();
    let netns = netns(&pod);
    tour.cnitool(&["add", "office", &netns, "--container-id", "both", "--ifname", "net1"]);
    tour.gc(&["--keep", "both"]);
    assert_eq!(pod.namespace().global_addresses("net1"), [tour.address(2) + "/24"]);
    tour.cnitool(&["check", "office", &netns, "--container-id", "both", "--ifname", "net1"]);
}

/// A mistake in a name must not end the traffic of a container that lives.
#[test]
fn a_misspelt_name_of_keep_removes_no_living_container() {
    let tour = Tour::with_plugins();
    let pod = tour.node.container();
    let netns = netns(&pod);
    tour.cnitool(&["add", "office", &netns, "--container-id", "web"]);
    tour.node.remember();
    let refused = tour.call(&["gc", "office", "--keep", "wbe"]);
    let said = stderr(&refused);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("--keep wbe/eth0 names no attachment of it") && said.contains("web/eth0"), "{said}");
    tour.node.assert_as_before_except(|line| line.contains("/var/lib/cni/locks"));
    tour.cnitool(&["check", "office", &netns, "--container-id", "web"]);
    // Names of containers on other networks do no harm where all of this one are named.
    tour.gc(&["--keep", "web", "--keep", "elsewhere"]);
    tour.cnitool(&["check", "office", &netns, "--container-id", "web"]);
    tour.gc(&["--keep", "wbe", "--force"]);
    assert!(pod.namespace().find_link("eth0").is_none());
}

/// GC removes the attachments whose namespace is gone; `--dry-run` lists them first.
#[test]
fn gc_removes_what_has_no_namespace_any_more() {
    let tour = Tour::with_plugins();
    let (gone, stays) = (tour.node.container(), tour.node.container());
    for pod in [&gone, &stays] {
        tour.cnitool(&["add", "office", &netns(pod)]);
    }
    tour.lose(&gone);
    let reservation = |last: u8| Path::new("/var/lib/cni/networks/office").join(tour.address(last)).exists();
    assert!(tour.cnitool(&["gc", "office", "--dry-run"]).contains("would be deleted"));
    assert!(reservation(2) && reservation(3));
    tour.cnitool(&["gc", "office"]);
    assert!(!reservation(2) && reservation(3));
    tour.cnitool(&["check", "office", &netns(&stays)]);
}
