//! Networks that come late, or not.

use crate::program::DEADLINE;
use crate::scene::{Scene, Traces};

const PODS: &str = r#"{"cniVersion": "1.1.0", "name": "pods", "plugins": [{"type": "bridge", "bridge": "cni0",
    "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/24"}], [{"subnet": "fd00:88::/64"}]]}}]}"#;

#[test]
fn pods_wait_for_a_folder_of_networks_and_host_network_pods_do_not() {
    let scene = Scene::without_networks();
    scene.write_pod("one", "");
    scene.write_pod("agent", "hostNetwork: true");
    let mut program = scene.start();
    program.wait_for_all([
        "network not ready: ",
        "pod default/agent: Running",
        "pod default/one: Waiting: network not",
    ]);
    let text = program.text();
    assert!(text.contains("/etc/cni/net.d"), "{text}");
    scene.write_network("10-pods.conflist", PODS);
    program.wait_for("network ready: pods");
    let line = program.wait_for("pod default/one: Running");
    // IPv4 first.
    assert!(line.contains("addresses=10.88.0.2,fd00:88::2 "), "{line}");
}

#[test]
fn the_status_of_a_single_run_shows_that_a_pod_waits() {
    let scene = Scene::without_networks();
    scene.write_pod("one", "");
    let output = testns::run(scene.command(&["--once", "--output", "table"]), b"", DEADLINE);
    assert_eq!(output.code(), 1);
    assert!(output.stdout.contains("default/one  Waiting"), "{}", output.stdout);
    scene.assert_nothing_is_left();
}

#[test]
fn loopback_by_the_plugin_is_a_network_like_another() {
    let scene = Scene::new();
    scene.write_pod("one", "");
    let mut program = crate::program::Program::start(scene.command(&["--loopback", "plugin"]));
    program.wait_for("pod default/one: Running");
    assert_ne!(scene.traces(), Traces::of(1), "lo is cached too");
    assert!(program.terminate().success());
    scene.assert_nothing_is_left();
}

/// By a plugin that refuses to delete by it as well.
#[test]
fn a_pod_on_a_network_that_was_refused_comes_up_once_the_file_is_mended() {
    for code in [7, 999] {
        let scene = Scene::new();
        let refusal =
            format!(r#"case $(cat) in *bad*) echo '{{"code":{code},"msg":"cannot use key bad"}}'; exit 1;; esac"#);
        let add = format!(r#"{refusal}; echo '{{"cniVersion":"1.1.0","interfaces":[],"ips":[]}}'"#);
        scene.write_plugin("picky", &add, &refusal);
        let list = r#"{"cniVersion":"1.1.0","name":"picky","plugins":[{"type":"picky","bad":1}]}"#;
        scene.write_network("50-picky.conflist", list);
        scene.write_pod_on("one", "picky");
        let mut program = scene.start();
        program.wait_for("pod default/one: Stopping: network picky, interface eth1");
        scene.write_network("50-picky.conflist", &list.replace("bad", "good"));
        program.wait_for("pod default/one: Running");
        scene.remove_manifest("one.yaml");
        program.wait_for("pod default/one: Gone");
        scene.assert_nothing_is_left();
    }
}

/// While the file is as bad as it was: nothing was made by it.
#[test]
fn a_pod_on_a_refused_network_is_removed_on_request() {
    let scene = Scene::new();
    let refusal = r#"echo '{"code":7,"msg":"cannot use key bad"}'; exit 1"#;
    scene.write_plugin("picky", refusal, refusal);
    scene.write_pod_on("one", "picky");
    let mut program = scene.start();
    program.wait_for("pod default/one: Stopping: network picky, interface eth1");
    scene.remove_manifest("one.yaml");
    program.wait_for("pod default/one: Gone");
    scene.assert_nothing_is_left();
}

/// Without any file's changing: STATUS is asked again and again.
#[test]
fn readiness_comes_and_goes_with_status() {
    let scene = Scene::without_networks();
    let word = scene.node.work_dir().join("word");
    std::fs::write(&word, "").unwrap();
    scene.write_plugin("moody", "exit 0", "exit 0");
    let plugin = scene.node.bin_dir().join("moody");
    let script = std::fs::read_to_string(&plugin).unwrap();
    let status = format!("STATUS) cat {}; test ! -s {0} ;;\nDEL)", word.display());
    std::fs::write(&plugin, script.replacen("DEL)", &status, 1)).unwrap();
    let mut program = scene.start();
    program.wait_for("network ready: moody");
    std::fs::write(&word, r#"{"code":50,"msg":"no address is free"}"#).unwrap();
    let line = program.wait_for("network not ready: ");
    assert!(line.contains("no address is free"), "{line}");
    std::fs::write(&word, "").unwrap();
    program.wait_for("network ready: moody");
}
