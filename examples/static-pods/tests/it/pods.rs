//! Pods come up, reach each other, and go.

use crate::program::{address_in, pid_in};
use crate::scene::{Scene, Traces, host_port, pauses, pod};
use std::fs;

#[test]
fn pods_come_up_ping_each_other_and_leave_nothing() {
    let scene = Scene::new();
    scene.write_manifest("web.yaml", &format!("{}---\n{}", pod("web", ""), pod("agent", "hostNetwork: true")));
    let mut program = scene.start();
    program.wait_for_all(["pod default/web: Running", "pod default/agent: Running in the node's network pid="]);
    scene.write_pod("client", "hostname: custom");
    let client = program.wait_for("pod default/client: Running");
    let web = program.seen.iter().find(|line| line.starts_with("pod default/web: Running")).unwrap().clone();
    assert!(web.contains(" networks=pods:eth0 "), "{web}");
    let (client_ns, web_ns) = (scene.namespace(pid_in(&client)), scene.namespace(pid_in(&web)));
    client_ns.ping(address_in(&web));
    web_ns.ping(address_in(&client));
    // lo is up, by the pod's own address as well.
    web_ns.ping(address_in(&web));
    assert_eq!(hostname(pid_in(&client)), "custom");
    assert_eq!(hostname(pid_in(&web)), "web");
    assert!(program.terminate().success(), "{}", program.text());
    program_lines_end_with_gone(&program.seen, &["web", "agent", "client"]);
    scene.assert_nothing_is_left();
}

fn hostname(pid: u32) -> String {
    let mut command = std::process::Command::new("nsenter");
    command.args(["--target", &pid.to_string(), "--uts", "cat", "/proc/sys/kernel/hostname"]);
    String::from_utf8(command.output().unwrap().stdout).unwrap().trim().to_owned()
}

fn program_lines_end_with_gone(lines: &[String], pods: &[&str]) {
    for pod in pods {
        let last = lines.iter().rev().find(|line| line.starts_with(&format!("pod default/{pod}:")));
        assert_eq!(last, Some(&format!("pod default/{pod}: Gone")));
    }
}

#[test]
fn a_pod_goes_with_its_manifest_and_the_others_stay() {
    let scene = Scene::new();
    scene.write_pod("one", "");
    scene.write_pod("two", "");
    let mut program = scene.start();
    program.wait_for_all(["pod default/one: Running", "pod default/two: Running"]);
    assert_eq!(scene.traces(), Traces::of(2));
    scene.remove_manifest("one.yaml");
    program.wait_for("pod default/one: Gone");
    assert_eq!(scene.traces(), Traces::of(1));
    assert!(!program.text().contains("default/two: Stopping"), "{}", program.text());
}

#[test]
fn a_killed_pause_process_is_replaced() {
    let scene = Scene::new();
    scene.write_pod("one", "");
    scene.write_pod("two", "");
    let mut program = scene.start();
    program.wait_for_all(["pod default/one: Running", "pod default/two: Running"]);
    let one = program.seen.iter().find(|line| line.starts_with("pod default/one: Running")).unwrap().clone();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid_in(&one).cast_signed()), nix::sys::signal::SIGKILL).unwrap();
    let stopping = program.wait_for("pod default/one: Stopping");
    assert!(stopping.contains(&format!("pause process {} ended", pid_in(&one))), "{stopping}");
    let again = program.wait_for("pod default/one: Running");
    assert_ne!(pid_in(&again), pid_in(&one));
    assert_eq!(scene.traces(), Traces::of(2));
    assert!(program.terminate().success());
    scene.assert_nothing_is_left();
}

/// A pause process has a new session, so keys on our terminal are not for it, and it keeps none of our files open.
#[test]
fn a_pause_process_has_nothing_of_its_parent() {
    let scene = Scene::new();
    scene.write_pod("one", "");
    let mut program = scene.start();
    let pid = pid_in(&program.wait_for("pod default/one: Running"));
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let session = stat.rsplit(')').next().unwrap().split_whitespace().nth(3).unwrap().to_owned();
    assert_eq!(session, pid.to_string());
    let files = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let targets: Vec<String> =
        files.map(|file| fs::read_link(file.path()).unwrap().to_string_lossy().into_owned()).collect();
    assert_eq!(targets.len(), 3, "{targets:?}");
    assert!(targets.iter().all(|target| target == "/dev/null" || target.starts_with("pipe:")), "{targets:?}");
    for signal in [nix::sys::signal::SIGHUP, nix::sys::signal::SIGUSR1, nix::sys::signal::SIGPIPE] {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid.cast_signed()), signal).unwrap();
    }
    assert_eq!(pauses(), [pid]);
}

#[test]
fn of_two_pods_with_one_host_port_the_second_waits() {
    let scene = Scene::new();
    scene.write_pod("first", &host_port(8080));
    let mut program = scene.start();
    program.wait_for("pod default/first: Running");
    scene.write_pod("second", &host_port(8080));
    scene.write_pod("other", &host_port(8081));
    let waiting = program.wait_for("pod default/second: Waiting");
    assert_eq!(waiting, "pod default/second: Waiting: hostPort 8080/tcp is taken by pod default/first");
    program.wait_for("pod default/other: Running");
    scene.remove_manifest("first.yaml");
    program.wait_for("pod default/second: Running");
    assert_eq!(scene.traces(), Traces::of(2));
}

#[test]
fn of_two_new_pods_with_one_host_port_the_first_file_has_it() {
    let scene = Scene::new();
    // Overlapping: one address of the node, and all of them.
    scene.write_pod("b", &host_port(8080));
    scene.write_pod("a", "containers: [{ports: [{containerPort: 80, hostPort: 8080, hostIP: 127.0.0.1}]}]");
    let mut program = scene.start();
    program.wait_for_all([
        "pod default/b: Waiting: hostPort 8080/tcp is taken by pod default/a",
        "pod default/a: Running",
    ]);
    assert_eq!(scene.traces(), Traces::of(1));
}

#[test]
fn a_host_port_on_a_network_without_portmap_is_a_warning() {
    let scene = Scene::new();
    scene.write_pod("web", &host_port(8080));
    let mut program = scene.start();
    let line = program.wait_for("pod default/web: Running");
    let warning = ": warning: network pods has no plugin with capability portMappings: it has no effect";
    assert!(line.ends_with(warning), "{line}");
    scene.write_pod("web", "");
    let line = program.wait_for("pod default/web: Running");
    assert!(!line.contains("warning"), "{line}");
}

/// A plugin that asks for the capability argument gets it.
#[test]
fn a_host_port_leads_to_the_pod() {
    let Some(reference) = testns::Subject::reference_or_skip("a_host_port_leads_to_the_pod") else { return };
    let scene = Scene::new();
    scene.node.install_one(&reference, "portmap");
    scene.write_network(
        "10-pods.conflist",
        r#"{"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "bridge", "bridge": "cni0",
            "isDefaultGateway": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/24"}]]}},
            {"type": "portmap", "backend": "iptables", "capabilities": {"portMappings": true}}]}"#,
    );
    scene.write_pod("web", &host_port(8080));
    let mut program = scene.start();
    program.wait_for("pod default/web: Running");
    let rules = std::process::Command::new("iptables").args(["-t", "nat", "-S"]).output().unwrap();
    let rules = String::from_utf8_lossy(&rules.stdout).into_owned();
    assert!(rules.contains("--dport 8080") && rules.contains(":80"), "{rules}");
    assert!(program.terminate().success(), "{}", program.text());
    let rules = std::process::Command::new("iptables").args(["-t", "nat", "-S"]).output().unwrap();
    assert!(!String::from_utf8_lossy(&rules.stdout).contains("8080"));
    scene.assert_nothing_is_left();
}

#[test]
fn a_program_can_be_run_in_a_pod() {
    let scene = Scene::new();
    scene.write_pod("web", "");
    let mut program = scene.start();
    let pid = pid_in(&program.wait_for("pod default/web: Running"));
    let exec = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_static-pods"));
        command.args(["exec", "--state-dir", "/run/static-pods"]).args(arguments).output().unwrap()
    };
    let namespace = exec(&["web", "readlink", "/proc/self/ns/net"]);
    let of_pod = fs::read_link(format!("/proc/{pid}/ns/net")).unwrap();
    assert_eq!(String::from_utf8_lossy(&namespace.stdout).trim(), of_pod.to_string_lossy());
    assert_eq!(exec(&["default/web", "sh", "-c", "exit 7"]).status.code(), Some(7));
    let absent = exec(&["absent", "true"]);
    assert_eq!(String::from_utf8_lossy(&absent.stderr), "static-pods: there is no pod absent; there is default/web\n");
}

fn exec(arguments: &[&str]) -> String {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_static-pods"));
    let output = command.args(["exec", "--state-dir", "/run/static-pods"]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_program_in_a_pod_is_in_all_of_its_namespaces() {
    let scene = Scene::new();
    scene.write_pod("web", "hostname: custom");
    let mut program = scene.start();
    let pid = pid_in(&program.wait_for("pod default/web: Running"));
    let kinds = ["net", "uts", "ipc", "pid"];
    let of_pod = kinds.map(|kind| fs::read_link(format!("/proc/{pid}/ns/{kind}")).unwrap().display().to_string());
    let paths = kinds.map(|kind| format!("/proc/self/ns/{kind}"));
    let arguments: Vec<&str> = ["web", "readlink"].into_iter().chain(paths.iter().map(String::as_str)).collect();
    assert_eq!(exec(&arguments).lines().collect::<Vec<_>>(), of_pod);
    assert_eq!(exec(&["web", "cat", "/proc/sys/kernel/hostname"]), "custom\n");
}

/// The file is the pod's alone, and goes with it.
#[test]
fn a_pods_resolv_conf_is_its_networks() {
    let scene = Scene::without_networks();
    scene.write_network(
        "10-pods.conflist",
        r#"{"cniVersion": "1.1.0", "name": "pods", "plugins": [{"type": "bridge", "bridge": "cni0", "ipam":
            {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/24"}]]},
            "dns": {"nameservers": ["10.88.0.1"], "domain": "pods.example", "options": ["ndots:1"]}}]}"#,
    );
    scene.write_pod("web", "dnsConfig: {nameservers: [192.0.2.1]}");
    scene.write_pod("agent", "hostNetwork: true, dnsPolicy: None, dnsConfig: {nameservers: [192.0.2.2]}");
    let mut program = scene.start();
    program.wait_for_all(["pod default/web: Running", "pod default/agent: Running"]);
    let files = || fs::read_dir("/run/static-pods/resolv.conf").unwrap().count();
    assert_eq!(files(), 2);
    let before = fs::read("/etc/resolv.conf").unwrap();
    let of_web = "search pods.example\nnameserver 10.88.0.1\nnameserver 192.0.2.1\noptions ndots:1\n";
    assert_eq!(exec(&["web", "cat", "/etc/resolv.conf"]), of_web);
    assert_eq!(exec(&["agent", "cat", "/etc/resolv.conf"]), "nameserver 192.0.2.2\n");
    assert_eq!(fs::read("/etc/resolv.conf").unwrap(), before);
    scene.remove_manifest("agent.yaml");
    program.wait_for("pod default/agent: Gone");
    assert_eq!(files(), 1);
    assert!(program.terminate().success(), "{}", program.text());
    assert_eq!(files(), 0);
    scene.assert_nothing_is_left();
}
