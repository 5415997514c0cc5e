//! `cnitool gc` beside other runtimes: it keeps what their containers have on the node, though its own cache lacks
//! them.

#[cfg(feature = "every-test")]
mod what_each_plugin_leaves;

use super::{Tour, make_old, netns};
use crate::prelude::*;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const OTHER: [&str; 2] = ["--cache-dir", "/run/podman/cni"];

impl Tour {
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

    fn verdicts(&self, more: &[&str]) -> String {
        String::from_utf8(self.gc(more).stdout).unwrap()
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
    // With it, the pod is known by its address, as one with a macvlan is.
    let kept = tour.gc(&[]);
    assert!(reservations().len() == 1 && stderr(&kept).contains("a network namespace uses it"), "{kept:?}");
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
