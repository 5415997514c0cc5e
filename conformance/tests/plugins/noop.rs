//! The noop plugin, whose control file other projects' test suites write and read.

use crate::prelude::*;
use std::fs;
use std::path::PathBuf;
use testns::Reply;

const DEFAULT_VERSIONS: [&str; 8] = ["0.-42.0", "0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];

/// A node, its control file, and the outcomes of noop calls.
struct Bench {
    node: Node,
    control: PathBuf,
    version: &'static str,
    attachment: Attachment,
}

impl Bench {
    fn new(control: &Value) -> Self {
        let node = node();
        let path = node.work_dir().join("noop.json");
        fs::write(&path, control.to_string()).expect("write the control file");
        // The reference's users call it with a namespace that does not exist.
        let attachment = Attachment {
            container_id: "some-container-id".into(),
            netns: "/some/netns/path".into(),
            ifname: "some-eth0".into(),
        };
        Self { node, control: path, version: "1.1.0", attachment }
    }

    fn args(&self) -> String {
        format!("FOO=BAR;DEBUG={}", self.control.display())
    }

    fn config(&self) -> Value {
        json!({"cniVersion": self.version, "name": "noop-test", "type": "noop"})
    }

    fn call(&self, verb: Verb, config: &Value) -> Reply {
        Call::new(verb, config, &self.attachment).args(&self.args()).run(&self.node)
    }

    fn control(&self) -> Value {
        let text = fs::read_to_string(&self.control).expect("read the control file");
        serde_json::from_str(&text).expect("JSON in the control file")
    }
}

#[test]
fn without_a_control_file_it_prints_an_empty_object() {
    let node = node();
    let reply = node.call(Verb::Add, r#"{"cniVersion":"1.0.0","name":"n","type":"noop"}"#, &node.container());
    assert_eq!(reply.output.stdout, "{}");
    assert_eq!(reply.output.stderr, "CNI_ARGS or config empty, no debug behavior\n");
    reply.ok();
}

#[test]
fn the_report_is_printed_as_it_is_for_all_verbs() {
    let text = "{ \"result\": \"some-result\" }  \n";
    for verb in [Verb::Add, Verb::Del, Verb::Check, Verb::Gc, Verb::Status] {
        let bench = Bench::new(&json!({"ReportResult": text, "ReportStderr": "said\nso"}));
        let reply = bench.call(verb, &bench.config());
        assert_eq!((reply.output.code(), reply.output.stdout.as_str()), (0, text), "{verb}");
        assert_eq!(reply.output.stderr, "said\nso");
        assert_eq!(bench.control()["Command"], verb.to_string());
    }
    let bench = Bench::new(&json!({}));
    let reply = bench.call(Verb::Add, &bench.config());
    assert_eq!((reply.output.code(), reply.output.stdout.as_str()), (0, ""));
}

#[test]
fn the_call_is_recorded() {
    use base64::Engine;
    let bench = Bench::new(&json!({"reportresult": "{}", "ExitWithCode": 0, "Unknown": 1}));
    bench.call(Verb::Add, &bench.config()).ok();
    let stdin = base64::engine::general_purpose::STANDARD.encode(bench.config().to_string());
    let expected = json!({
        "ReportResult": "{}", "ReportError": "", "ReportErrorCode": 0, "ReportStderr": "", "ReportVersionSupport": null,
        "ExitWithCode": 0, "Command": "ADD",
        "CmdArgs": {
            "ContainerID": "some-container-id", "Netns": "/some/netns/path", "IfName": "some-eth0", "Args": bench.args(),
            "Path": "/run/testns/bin", "NetnsOverride": "", "StdinData": stdin,
        },
    });
    assert_eq!(bench.control(), expected);
}

#[test]
fn an_error_is_an_error_object_and_comes_before_the_result() {
    for (code, printed) in [(0, 999), (50, 50), (123, 123)] {
        let bench = Bench::new(&json!({
            "ReportError": "banana", "ReportErrorCode": code, "ReportResult": "{}", "ExitWithCode": 7,
        }));
        let reply = bench.call(Verb::Add, &bench.config());
        assert_eq!(reply.fails_with(printed).msg, "banana");
        assert_eq!(reply.output.code(), 1);
        assert_eq!(bench.control()["Command"], "ADD");
    }
}

#[test]
fn the_exit_status_comes_after_the_result() {
    let bench = Bench::new(&json!({"ReportResult": "{\"a\":1}", "ExitWithCode": 42}));
    let reply = bench.call(Verb::Status, &bench.config());
    assert_eq!((reply.output.code(), reply.output.stdout.as_str()), (42, "{\"a\":1}"));
}

#[test]
fn prev_result_is_passed_through_in_the_configs_version() {
    let prev = json!({"cniVersion": "1.0.0", "ips": [{"address": "10.1.2.3/24"}], "dns": {"domain": "a.b"}});
    for (report, nameservers) in [("PASSTHROUGH", None), ("INJECT-DNS", Some(json!(["1.2.3.4"])))] {
        let bench = Bench::new(&json!({"ReportResult": report}));
        let call = Call::new(Verb::Add, bench.config(), &bench.attachment).args(&bench.args());
        let result = call.prev_result(&prev).run(&bench.node).ok();
        assert_eq!(result["cniVersion"], "1.1.0");
        assert_eq!(result["ips"], prev["ips"]);
        assert_eq!(result["dns"]["domain"], "a.b");
        assert_eq!(result["dns"].get("nameservers").cloned(), nameservers);
        bench.call(Verb::Add, &bench.config()).fails_with(7);
    }
}

#[test]
fn the_config_may_name_the_control_file_and_a_log() {
    let bench = Bench::new(&json!({"ReportResult": "{}"}));
    let log = bench.node.work_dir().join("log.json");
    let mut config = bench.config();
    config["debugFile"] = json!(bench.control);
    config["commandLog"] = json!(log);
    let call = |verb| Call::new(verb, &config, &bench.attachment).run(&bench.node);
    call(Verb::Add).fails_with(5); // the log file has to exist
    fs::write(&log, "").expect("make an empty log");
    for verb in [Verb::Add, Verb::Check, Verb::Del] {
        call(verb).ok();
    }
    let entries: Vec<Value> = serde_json::from_slice(&fs::read(&log).expect("read the log")).expect("an array");
    let verbs: Vec<_> = entries.iter().map(|entry| entry["Command"].as_str().unwrap_or_default()).collect();
    assert_eq!(verbs, ["ADD", "CHECK", "DEL"]);
    assert_eq!(entries[1]["CmdArgs"], entries[2]["CmdArgs"]);
    assert_eq!(entries[0]["CmdArgs"]["ContainerID"], "some-container-id");
}

#[test]
fn cni_args_go_before_the_config() {
    let bench = Bench::new(&json!({"ReportResult": "{\"from\":\"args\"}"}));
    let mut config = bench.config();
    config["debugFile"] = json!("/no/such/file");
    assert_eq!(bench.call(Verb::Add, &config).ok()["from"], "args");
    let reply = Call::new(Verb::Add, &config, &bench.attachment).run(&bench.node);
    reply.fails_with(5);
}

/// Where `CNI_ARGS` is set, it must name a control file: with a misspelt key, tests would pass without testing
/// anything.
#[test]
fn cni_args_without_a_control_file_are_an_error() {
    let bench = Bench::new(&json!({"ReportResult": "{}"}));
    let mut config = bench.config();
    for verb in [Verb::Add, Verb::Del, Verb::Check, Verb::Gc, Verb::Status, Verb::Version] {
        let call = |config: &Value| {
            let misspelt = format!("DEBUGG={}", bench.control.display());
            Call::new(verb, config, &bench.attachment).plugin("noop").variable("CNI_ARGS", &misspelt).run(&bench.node)
        };
        assert!(call(&config).fails_with(4).msg.contains("without DEBUG"), "{verb}");
        config["debugFile"] = json!(bench.control);
        call(&config).ok();
        config.as_object_mut().expect("an object").remove("debugFile");
    }
}

fn versions(call: Call, node: &Node) -> Vec<String> {
    let reply = call.run(node).ok();
    assert_eq!(reply["cniVersion"], "1.1.0");
    serde_json::from_value(reply["supportedVersions"].clone()).expect("a list of versions")
}

#[test]
fn version_lists_a_nonexistent_version_and_all_others() {
    let bench = Bench::new(&json!({}));
    let ask = || Call::new(Verb::Version, "", Attachment::none()).plugin("noop");
    assert_eq!(versions(ask(), &bench.node), DEFAULT_VERSIONS);
    assert_eq!(versions(ask().args(&bench.args()), &bench.node), DEFAULT_VERSIONS);
    fs::write(&bench.control, r#"{"ReportVersionSupport": ["0.-42.0", "9.9.9"]}"#).expect("write the control file");
    assert_eq!(versions(ask().args(&bench.args()), &bench.node), ["0.-42.0", "9.9.9"]);
    // Where CNI_ARGS is set, the control file has to be readable, even for VERSION.
    ask().args("DEBUG=/no/such/file").run(&bench.node).fails_with(5);
    ask().args("DEBUG").run(&bench.node).fails_with(4);
}

#[test]
fn the_version_gate_follows_the_control_file() {
    let mut bench = Bench::new(&json!({"ReportVersionSupport": ["0.3.1", "9.9.9"], "ReportResult": "{}"}));
    let msg = |bench: &Bench, verb| bench.call(verb, &bench.config()).fails_with(1).msg;
    assert_eq!(msg(&bench, Verb::Add), "incompatible CNI versions");
    assert_eq!(msg(&bench, Verb::Check), "incompatible CNI versions");
    bench.version = "0.3.1";
    bench.call(Verb::Add, &bench.config()).ok();
    assert_eq!(msg(&bench, Verb::Check), "config version does not allow CHECK");
    bench.version = "9.9.9";
    bench.call(Verb::Gc, &bench.config()).ok();
    bench.version = "10.0.0";
    assert_eq!(msg(&bench, Verb::Status), "plugin version does not allow STATUS");
    drop(bench);

    let bench = Bench { version: "0.-42.0", ..Bench::new(&json!({"ReportResult": "{}"})) };
    bench.call(Verb::Del, &bench.config()).ok();
}
