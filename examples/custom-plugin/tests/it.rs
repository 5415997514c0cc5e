//! `egress-mtu` on a node: chained after bridge as its conflist says, and called alone with what it has to refuse.

#![allow(clippy::unwrap_used, reason = "a test that cannot set up its objects fails")]

use expect_test::expect;
use libcni::cni_spec::AddResult;
use libcni::{Error, NetworkConf, Runtime, RuntimeConf};
use serde_json::{Value, json};
use std::os::unix::fs::symlink;
use testns::{Container, Node, Subject, Verb};

const CONFLIST: &str = include_str!("../10-pods.conflist");
const DEFAULTS: [&str; 2] = ["0.0.0.0/0", "::/0"];

/// A node with the suite's plugins and this one, and a runtime on it.
fn node() -> (Node, Runtime) {
    let node = Node::with(&Subject::Multicall(env!("CARGO_BIN_EXE_plugins-before").into()));
    symlink(env!("CARGO_BIN_EXE_egress-mtu"), node.bin_dir().join("egress-mtu")).unwrap();
    let runtime = Runtime::builder().plugin_dirs([node.bin_dir()]).build();
    (node, runtime)
}

fn network() -> NetworkConf {
    NetworkConf::parse(CONFLIST.as_bytes()).unwrap()
}

fn attachment(pod: &Container) -> RuntimeConf {
    RuntimeConf::new(pod.id(), "eth0").unwrap().netns(pod.namespace().path().to_str().unwrap())
}

fn wait<T>(verb: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(verb)
}

fn add(runtime: &Runtime, pod: &Container) -> AddResult {
    wait(runtime.add(&network(), &attachment(pod))).unwrap()
}

fn check(runtime: &Runtime, pod: &Container) -> Result<(), Error> {
    wait(runtime.check(&network(), &attachment(pod)))
}

/// The path MTU of each route of the main table, by its destination.
fn mtu_of(pod: &Container, destination: &str) -> u32 {
    let routes = pod.namespace().routes();
    let mut found = routes.iter().filter(|route| route.table == 254 && route.to == destination);
    let route = found.next().unwrap_or_else(|| panic!("no route to {destination}: {routes:#?}"));
    assert!(found.next().is_none(), "two routes to {destination}");
    route.mtu_bytes
}

#[test]
fn default_routes_get_the_mtu_and_the_subnet_keeps_the_links() {
    let (node, runtime) = node();
    let (pod, neighbour) = (node.container(), node.container());
    let result = add(&runtime, &pod);
    add(&runtime, &neighbour);

    assert_eq!(DEFAULTS.map(|to| mtu_of(&pod, to)), [1420, 1420]);
    assert_eq!(["10.88.0.0/16", "fd00:88::/64"].map(|to| mtu_of(&pod, to)), [0, 0], "the link's");
    assert_eq!(pod.namespace().link("eth0").mtu_bytes, 9000);
    assert_eq!(result.routes.iter().map(|route| route.mtu).collect::<Vec<_>>(), [1420, 1420]);
    assert_eq!(result.ips.len(), 2, "the rest of the result is bridge's: {result:?}");
    pod.namespace().ping([10, 88, 0, 1]);
    pod.namespace().ping([10, 88, 0, 3]);
    check(&runtime, &pod).unwrap();

    for pod in [&pod, &neighbour] {
        wait(runtime.del(&network(), &attachment(pod))).unwrap();
        wait(runtime.del(&network(), &attachment(pod))).unwrap();
        assert!(pod.namespace().find_link("eth0").is_none());
        assert!(!pod.namespace().routes().iter().any(|route| DEFAULTS.contains(&route.to.as_str())));
    }
}

#[test]
fn check_notices_a_changed_route() {
    let (node, runtime) = node();
    let pod = node.container();
    add(&runtime, &pod);
    let config = json!({"cniVersion": "1.1.0", "name": "pods", "type": "egress-mtu", "mtu": 1500});
    let larger = testns::Call::new(Verb::Add, config, &pod).prev_result(&json!({"cniVersion": "1.1.0"}));
    larger.run(&node).ok(); // a second hand on the routes
    assert_eq!(DEFAULTS.map(|to| mtu_of(&pod, to)), [1500, 1500]);
    let error = check(&runtime, &pod).unwrap_err().to_string();
    expect![[r#"plugin type="egress-mtu" failed (check): route default via 10.88.0.1 table 254 scope 0 mtu 1500 is not as ADD left it: its MTU is not 1420"#]]
        .assert_eq(&error);
}

/// DEL without the container succeeds; GC deletes an attachment that is not in its list.
#[test]
fn del_and_gc_after_the_namespace_is_gone() {
    let (node, runtime) = node();
    let pod = node.container();
    add(&runtime, &pod);
    drop(pod.leave(testns::Remains::Gone));
    wait(runtime.gc(&network(), &[]).without_inventory()).unwrap();
    wait(runtime.del(&network(), &attachment(&pod))).unwrap();
    assert!(runtime.cache().list(None).unwrap().cached.is_empty());
}

/// What the README shows is what is compiled and tested here.
#[test]
fn the_readme_shows_the_plugin_and_the_conflist() {
    let readme = include_str!("../README.md");
    let blocks = |language: &str| {
        let opening = format!("```{language}\n");
        let blocks = readme.split(&opening).skip(1).map(|rest| rest.split("```").next().unwrap());
        blocks.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(blocks("json"), [CONFLIST]);
    let shown = blocks("rust");
    assert_eq!(shown.len(), 1);
    for block in shown {
        assert!(include_str!("../src/main.rs").contains(&block), "the plugin is another one:\n{block}");
    }
}

/// The output of cnitool for a network of bridge and this plugin with keys `own`.
fn cnitool(node: &Node, own: &Value, words: &[&str]) -> String {
    let mut network: Value = serde_json::from_str(CONFLIST).unwrap();
    network["plugins"][1] = own.clone();
    let file = node.work_dir().join("10-pods.conflist");
    std::fs::write(&file, serde_json::to_string_pretty(&network).unwrap()).unwrap();
    let mut command = std::process::Command::new(testns::cnitool());
    command.env("CNI_PATH", node.bin_dir()).env("NETCONFPATH", node.work_dir()).args(words);
    let output = command.output().unwrap();
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

#[test]
fn validate_shows_faults_of_the_plugins_keys_at_their_place() {
    let (node, _) = node();
    let validate = |own: Value| cnitool(&node, &own, &["validate", "pods"]);
    let wrong = validate(json!({"type": "egress-mtu", "mtu": 70000}));
    assert!(wrong.contains("key mtu = 70000: expected a whole number from 1280 to 65535"), "{wrong}");
    assert!(wrong.contains("\"mtu\": 70000"), "the line: {wrong}");
    let misspelt = validate(json!({"type": "egress-mtu", "mtuu": 1420}));
    assert!(misspelt.contains("Did you mean mtu?"), "{misspelt}");
    let right = validate(json!({"type": "egress-mtu", "mtu": 1420}));
    assert!(right.contains("pods: no errors") && !right.contains("not checked"), "{right}");
    // A plugin that does not know the question is asked for its versions only.
    let script = "#!/bin/sh\necho '{\"cniVersion\": \"1.1.0\", \"supportedVersions\": [\"1.1.0\"]}'\n";
    std::fs::remove_file(node.bin_dir().join("egress-mtu")).unwrap();
    testns::write_executable(node.bin_dir().join("egress-mtu"), script).unwrap();
    let silent = validate(json!({"type": "egress-mtu", "mtu": 70000}));
    assert!(silent.contains("its keys are not checked") && silent.contains("pods: no errors"), "{silent}");
}

#[test]
fn plan_shows_the_plugins_steps_and_changes_nothing() {
    let (node, _) = node();
    let pod = node.container();
    let netns = pod.namespace().path().to_str().unwrap();
    let own = json!({"type": "egress-mtu", "mtu": 1420});
    let plan = cnitool(&node, &own, &["plan", "pods", netns]);
    assert!(plan.contains("+ ip route change 0.0.0.0/0 mtu 1420"), "{plan}");
    assert!(plan.contains("route to 0.0.0.0/0 by 10.88.0.1"), "the result: {plan}");
    let plan = cnitool(&node, &json!({"type": "egress-mtu", "mtu": 1}), &["plan", "pods", netns]);
    assert!(plan.contains("ADD would fail at plugin egress-mtu"), "{plan}");
    node.assert_as_before();
    assert!(pod.namespace().find_link("eth0").is_none());
}

/// The variable of questions belongs to VERSION alone: a runtime whose environment has it calls the same verbs.
#[test]
fn a_question_is_part_of_no_other_verb() {
    let (node, _) = node();
    let pod = node.container();
    let own = json!({"cniVersion": "1.1.0", "name": "pods", "type": "egress-mtu", "mtu": 1420});
    let prev = json!({"cniVersion": "1.1.0", "interfaces": [{"name": "lo"}]});
    let call = testns::Call::new(Verb::Add, own, pod.attachment_as("lo")).prev_result(&prev);
    let result = call.variable("CNI_ASK", "plan").run(&node).ok();
    assert!(result.get("answer").is_none(), "{result}");
}
