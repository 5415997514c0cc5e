//! SPEC 2 (execution protocol), 4 (delegation) and 5 (result types), as `skel` implements them for every plugin.

mod delegation;
mod rollback;

use crate::prelude::*;
use expect_test::expect;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

fn probe(node: &Node, verb: Verb, config: &str, container: &Container) -> testns::Reply {
    Call::new(verb, config, container).plugin("probe").run(node)
}

/// SPEC 5, Error: codes 6 and 7, with the key and the value.
#[test]
fn a_bad_config_is_named() {
    let node = probe_node();
    let pod = node.container();
    let fails = |config: &str| {
        let failure = probe(&node, Verb::Add, config, &pod).fails();
        format!("{} {} | {}\n", failure.code, failure.msg, failure.details)
    };
    let texts: String = [
        "",
        "{",
        "[]",
        "{} {}",
        "{}",
        r#"{"name": "../n"}"#,
        r#"{"name": 5}"#,
        r#"{"name": "n", "do": 5}"#,
        r#"{"name": "n", "ipam": {"type": "../sh"}}"#,
        r#"{"name": "n", "prevResult": {"cniVersion": "1.0.0"}}"#,
        r#"{"name": "n", "prevResult": {"ip4": {"ip": "10.1.0.5"}}}"#,
    ]
    .into_iter()
    .map(fails)
    .collect();
    expect![[r#"
        6 cannot parse network config on stdin: EOF while parsing a value at line 1 column 0 | 
        6 cannot parse network config on stdin: EOF while parsing an object at line 1 column 1 | 
        6 cannot parse network config on stdin: it is no JSON object | 
        6 cannot parse network config on stdin: trailing characters at line 1 column 4 | 
        7 missing network name | 
        7 invalid characters found in network name | ../n
        6 cannot use network config: key name = 5: expected a string | 
        7 cannot use network config: key do = 5: expected a string | 
        7 cannot use network config: key ipam.type = "../sh": invalid plugin type: a file name, not a path, is looked up in CNI_PATH | ../sh
        1 cannot use prevResult: its cniVersion 1.0.0 has another result form than the config's 0.1.0 | 
        6 cannot read prevResult: key ip4.ip = "10.1.0.5": "10.1.0.5" is no address with prefix, such as 10.1.0.5/24 or fd00::5/64 | The result was read as one of version 0.1.0.
    "#]]
    .assert_eq(&texts);
}

/// nomad and nerdctl take the first word of the about text that is a version as the plugin's, and compare it with the
/// reference's release from which a feature is there. Ours is that of the reference whose behaviour the plugins have.
#[test]
fn every_plugin_names_the_references_release_and_ours_as_build_metadata() {
    for entry in cni_plugins::ENTRIES {
        let output = Command::new(testns::plugins()).arg0(entry.name).env_clear().output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        let words: Vec<&str> = text.lines().next().unwrap().split(' ').collect();
        assert_eq!(words[..3], ["CNI", entry.name, "plugin"], "{text}");
        let (release, metadata) = words[3].strip_prefix('v').unwrap().split_once('+').unwrap();
        assert_eq!(release, "1.9.1");
        let is_identifier =
            |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        assert!(metadata.split('.').all(is_identifier), "{metadata}");
        assert!(metadata.starts_with(concat!("rust.", env!("CARGO_PKG_VERSION"))), "{metadata}");
    }
}

/// SPEC 2, VERSION: a plugin lists the versions under which it can work.
#[test]
fn the_versions_of_each_plugin_are_the_references() {
    let Some(reference) = reference_or_skip() else { return };
    for (name, executable) in reference.executables() {
        let versions = |mut command: Command| {
            let output = command.env_clear().env("CNI_COMMAND", "VERSION").stdin(Stdio::null()).output().unwrap();
            serde_json::from_slice::<Value>(&output.stdout).unwrap()["supportedVersions"].clone()
        };
        let mut ours = Command::new(testns::plugins());
        ours.arg0(&name);
        assert_eq!(versions(ours), versions(Command::new(executable)), "{name}");
    }
}

/// The reference's plugins are a file each and do not read their own name.
#[test]
fn a_caller_that_gives_no_name_gets_the_plugin_of_the_file() {
    // A name of the file that is there: a new one could be busy.
    let folder = tempfile::tempdir_in(testns::plugins().parent().unwrap()).unwrap();
    let file = folder.path().join("loopback");
    std::fs::hard_link(testns::plugins(), &file).unwrap();
    let output = Command::new(&file).arg0("").env_clear().output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.starts_with("CNI loopback plugin "), "{text}");
}

#[test]
fn a_panic_is_an_error_object() {
    let node = probe_node();
    let pod = node.container();
    let reply = probe(&node, Verb::Add, r#"{"cniVersion": "1.1.0", "name": "n", "do": "panic"}"#, &pod);
    assert_eq!(reply.fails_with(999).msg, "fault in plugin probe: the config asked for a panic");
}

#[test]
fn a_result_that_the_version_cannot_express_is_undone() {
    let node = probe_node();
    let pod = node.container();
    let file = node.work_dir().join("probe.log");
    let config = json!({"cniVersion": "0.2.0", "name": "n", "type": "probe", "do": "layer2", "file": file});
    let failure = node.call(Verb::Add, &config, &pod).fails_with(110);
    assert!(failure.msg.contains("need an IP address"), "{failure:?}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "DEL\n");
}

/// A verb may use all of tokio from its first line on.
#[test]
fn a_verb_has_an_event_loop() {
    let node = probe_node();
    probe(&node, Verb::Add, r#"{"cniVersion": "1.1.0", "name": "n", "do": "tokio"}"#, &node.container()).ok();
}

fn start(node: &Node, config: &Value, attachment: &Attachment, change: impl FnOnce(&mut Command)) -> Child {
    let plugin = config["type"].as_str().unwrap();
    start_with(node, plugin, config.to_string().as_bytes(), attachment, change)
}

/// Starts a plugin, with any bytes on stdin.
fn start_with(
    node: &Node,
    plugin: &str,
    stdin: &[u8],
    attachment: &Attachment,
    change: impl FnOnce(&mut Command),
) -> Child {
    let mut command = Command::new(node.bin_dir().join(plugin));
    command.env_clear().env("CNI_COMMAND", "ADD").env("CNI_PATH", node.bin_dir()).env("CNI_LOG", "info");
    command.env("CNI_CONTAINERID", &attachment.container_id).env("CNI_NETNS", &attachment.netns);
    command.env("CNI_IFNAME", &attachment.ifname);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    change(&mut command);
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(stdin).unwrap();
    child
}

/// Puts a changed copy of the probe into the folder of plugins.
fn install_copy(node: &Node, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(env!("CARGO_BIN_EXE_probe")).unwrap();
    change(&mut bytes);
    testns::write_executable(node.bin_dir().join(name), bytes).unwrap();
}

/// Reads stderr up to a line that contains `words`.
fn wait_for(child: &mut Child, words: &str) {
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains(words) {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "it ended before it said {words:?}");
    }
    child.stderr = Some(lines.into_inner());
}

#[test]
fn values_of_unknown_keys_are_not_checked() {
    let node = probe_node();
    let pod = node.container();
    let deep = format!("{}{}", "[".repeat(5_000), "]".repeat(5_000));
    for odd in [&br#""\ud800""#[..], b"\"\xff\"", b"1e999", b"-0", deep.as_bytes()] {
        let start = &br#"{"cniVersion": "1.1.0", "name": "n", "type": "probe", "unknown": "#[..];
        let config = [start, odd, b"}"].concat();
        for verb in ["ADD", "DEL"] {
            let mut child = start_with(&node, "probe", &config, &pod.attachment(), |command| {
                command.env("CNI_COMMAND", verb);
            });
            assert!(child.wait().unwrap().success(), "{verb} {}", String::from_utf8_lossy(odd));
        }
    }
}

/// The executable contains many plugins: it lists them, and an unknown name is an error.
#[test]
fn the_executable_lists_what_it_contains() {
    let node = probe_node();
    let run = |name: &str, command: &str| {
        let path = node.bin_dir().join(name);
        if !path.exists() {
            std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_probe"), &path).unwrap();
        }
        Command::new(path).env_clear().env("CNI_COMMAND", command).stdin(Stdio::null()).output().unwrap()
    };
    assert_eq!(run("any", "").stdout, b"probe\nprobe-ipam\n");
    let output = run("any", "ADD");
    assert!(!output.status.success());
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(object["msg"], r#"cannot run plugin "any": this executable contains no plugin of that name"#);
    let details = object["details"].as_str().unwrap();
    assert!(details.starts_with("The file name selects the plugin. It contains probe, probe-ipam."), "{details}");
}

/// A file whose name ends in `-NAME` or begins with `NAME-` is plugin `NAME`, for the runtime and as a delegate.
#[test]
fn a_renamed_plugin_is_the_one_in_its_name() {
    let node = probe_node();
    for name in ["cnv-probe", "probe-2", "cnv-probe-ipam"] {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_probe"), node.bin_dir().join(name)).unwrap();
    }
    let log = node.work_dir().join("ipam.log");
    for name in ["cnv-probe", "probe-2"] {
        let config = json!({"cniVersion": "1.1.0", "name": "n", "type": name,
            "ipam": {"type": "cnv-probe-ipam", "address": "10.1.0.5/24", "log": log}});
        let mut child = start(&node, &config, &node.container().attachment(), |command| {
            command.env("CNI_LOG", "debug");
        });
        wait_for(&mut child, "the file has another name than the plugin");
        let own = child.id();
        let output = child.wait_with_output().unwrap();
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(result["ips"][0]["address"], "10.1.0.5/24", "{result}");
        assert_eq!(std::fs::read_to_string(&log).unwrap(), format!("ADD {own}\n"), "not in process");
        std::fs::remove_file(&log).unwrap();
    }
    let config = json!({"cniVersion": "1.1.0", "name": "n", "type": "probe", "ipam": {"type": "cnv-probe"}});
    node.call(Verb::Add, config, &node.container()).fails_with(7);
}

/// The delegate may be another build under a name that only resembles a plugin's: its own delegation is refused.
#[test]
fn a_renamed_plugin_of_another_build_does_not_call_itself_without_end() {
    let node = probe_node();
    install_copy(&node, "cnv-probe", |bytes| bytes.truncate(bytes.len() - 1));
    let config = json!({"cniVersion": "1.1.0", "name": "n", "type": "probe", "ipam": {"type": "cnv-probe"}});
    let failure = node.call(Verb::Add, config, &node.container()).fails_with(7);
    assert!(failure.details.contains("Reported by plugin cnv-probe."), "{failure:?}");
}
