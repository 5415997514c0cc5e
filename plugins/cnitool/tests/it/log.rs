//! `cnitool log`, and the record that each operation leaves.

use crate::fixture::{GOOD, NETNS, Tool};
use expect_test::expect;
use serde_json::{Value, json};

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn line(record: &Value) -> String {
    format!("{record}\n")
}

/// A log of an ADD and a DEL by a plugin, and of a failed ADD by a runtime, with lines between them that are none.
fn tool() -> Tool {
    let tool = Tool::new();
    let call = |container: &str, verb: &str, more: Value| {
        let mut record = json!({"CNI_BY": "plugin", "CNI_BEGIN_US": "1700000000123456", "CNI_VERB": verb,
            "CNI_NETWORK": "pods", "CNI_CONTAINERID": container, "CNI_IFNAME": "eth0", "CNI_DURATION_US": "4200"});
        record.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        line(&record)
    };
    let add = json!({"CNI_PLUGIN": "bridge", "CNI_ADDRESSES": "10.1.0.5/24 fd00::5/64", "TRACEPARENT": TRACE,
        "CNI_STEPS": "100 read and check\n3900 create veth\n200 add route"});
    let del = json!({"CNI_PLUGIN": "bridge", "CNI_STEPS": "50 read and check"});
    let failed = json!({"CNI_BY": "runtime", "CNI_ERROR_CODE": "105", "CNI_ERROR": "none free\u{1b}[2J\nat all",
        "CNI_STEPS": "5000 ADD of bridge"});
    let text = [
        call("c1", "ADD", add),
        "no record\n{\"CNI_BY\":\"plugin\"}\n\u{0}\n".to_owned(),
        format!("{}\n", "x".repeat(200_000)),
        call("c2", "ADD", failed),
        call("c1", "DEL", del),
        "{\"CNI_BY\":\"plugin\",\"CNI_VERB\":\"cut off".to_owned(),
    ];
    tool.write("calls.log", &text.concat());
    tool
}

fn shown(tool: &Tool, words: &[&str]) -> String {
    let path = tool.path("calls.log");
    tool.run(&[&["log", "--from", path.to_str().unwrap()], words].concat()).shown()
}

#[test]
fn the_last_calls_are_shown_with_their_results() {
    let tool = tool();
    expect![[r#"
        0
        stdout: TIME                      VERB  PLUGIN     NETWORK  CONTAINER  IFNAME  MS   RESULT
        2023-11-14T22:13:20.123Z  ADD   bridge     pods     c1         eth0    4.2  10.1.0.5/24 fd00::5/64
        2023-11-14T22:13:20.123Z  ADD   (runtime)  pods     c2         eth0    4.2  error 105: none free\u{1b}[2J at all
        2023-11-14T22:13:20.123Z  DEL   bridge     pods     c1         eth0    4.2  ok

        stderr: "#]]
    .assert_eq(&shown(&tool, &[]));
    expect![[r#"
        0
        stdout: TIME                      VERB  PLUGIN  NETWORK  CONTAINER  IFNAME  MS   RESULT
        2023-11-14T22:13:20.123Z  DEL   bridge  pods     c1         eth0    4.2  ok

        stderr: "#]]
    .assert_eq(&shown(&tool, &["c1", "-n", "1"]));
    expect![[r#"
        0
        stdout: TIME                      VERB  PLUGIN     NETWORK  CONTAINER  IFNAME  MS   RESULT
        2023-11-14T22:13:20.123Z  ADD   (runtime)  pods     c2         eth0    4.2  error 105: none free\u{1b}[2J at all

        stderr: "#]]
    .assert_eq(&shown(&tool, &["--errors"]));
    expect![[r#"
        0
        stdout: MS   STEP           TIME                      VERB  PLUGIN     NETWORK  CONTAINER
        5.0  ADD of bridge  2023-11-14T22:13:20.123Z  ADD   (runtime)  pods     c2
        3.9  create veth    2023-11-14T22:13:20.123Z  ADD   bridge     pods     c1
        0.2  add route      2023-11-14T22:13:20.123Z  ADD   bridge     pods     c1

        stderr: "#]]
    .assert_eq(&shown(&tool, &["--slowest", "-n", "3"]));
    expect![[r#"
        0
        stdout: [
            {
                "time": "2023-11-14T22:13:20.123Z",
                "by": "plugin",
                "verb": "ADD",
                "plugin": "bridge",
                "network": "pods",
                "container": "c1",
                "pod": null,
                "namespace": null,
                "ifname": "eth0",
                "beginUs": 1700000000123456,
                "withinUs": null,
                "durationUs": 4200,
                "steps": [
                    {
                        "step": "read and check",
                        "us": 100
                    },
                    {
                        "step": "create veth",
                        "us": 3900
                    },
                    {
                        "step": "add route",
                        "us": 200
                    }
                ],
                "addresses": [
                    "10.1.0.5/24",
                    "fd00::5/64"
                ],
                "error": null,
                "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
            },
            {
                "time": "2023-11-14T22:13:20.123Z",
                "by": "plugin",
                "verb": "DEL",
                "plugin": "bridge",
                "network": "pods",
                "container": "c1",
                "pod": null,
                "namespace": null,
                "ifname": "eth0",
                "beginUs": 1700000000123456,
                "withinUs": null,
                "durationUs": 4200,
                "steps": [
                    {
                        "step": "read and check",
                        "us": 50
                    }
                ],
                "addresses": [],
                "error": null,
                "traceparent": null
            }
        ]

        stderr: "#]]
    .assert_eq(&shown(&tool, &["--json", "c1", "-n", "2"]));
}

/// Only messages of root's processes are read from the journal, by the journal's own program.
#[test]
fn the_journal_is_read_by_its_own_program() {
    let tool = tool();
    tool.plugin("journalctl", "echo \"$@\" >&2; (cat \"$dir/../calls.log\"; echo) | tac");
    let log = |tool: &Tool| {
        let mut command = tool.command();
        tool.ended(
            command
                .args(["log", "--from", "journal", "-n", "1"])
                .env("PATH", tool.path("bin").display().to_string() + ":/bin:/usr/bin"),
        )
    };
    expect![[r#"
        0
        stdout: TIME                      VERB  PLUGIN  NETWORK  CONTAINER  IFNAME  MS   RESULT
        2023-11-14T22:13:20.123Z  DEL   bridge  pods     c1         eth0    4.2  ok

        stderr: --output=json --all --no-pager --quiet --boot SYSLOG_IDENTIFIER=cni _UID=0 --reverse
    "#]]
    .assert_eq(&log(&tool).shown());
    tool.plugin("journalctl", "exit 3");
    expect![[r#"
        1
        stdout: 
        stderr: error: cannot read the journal: journalctl failed: exit status: 3
    "#]]
    .assert_eq(&log(&tool).shown());
}

#[test]
fn without_a_log_it_says_how_to_have_one() {
    let tool = tool();
    let says = |value: &str| {
        let mut command = tool.command();
        tool.ended(command.arg("log").env("CNI_LOG", value)).shown()
    };
    expect![[r#"
        1
        stdout: 
        stderr: error: calls of this node are not logged to the journal or a file
          Write the word journal into /etc/cni/log to have later calls logged, or name a log by --from.
    "#]]
    .assert_eq(&says("off"));
    expect![[r#"
        1
        stdout: 
        stderr: error: cannot read log nowhere: it is named by journal, file, or an absolute path
    "#]]
    .assert_eq(&tool.run(&["log", "--from", "nowhere"]).shown());
    let set = says(tool.path("calls.log").to_str().unwrap());
    assert!(set.contains("10.1.0.5/24"), "{set}");
}

/// README of call-log: an operation is one record, with the calls of plugins as its steps.
#[test]
fn an_operation_leaves_one_record_with_the_calls_of_plugins_as_steps() {
    let tool = Tool::new();
    let path = tool.path("calls");
    let run = |verb: &str| {
        let mut command = tool.command();
        command.args([verb, "net", NETNS, "--container-id", "c1"]).env("CNI_LOG", &path).env("TRACEPARENT", TRACE);
        tool.ended(&mut command)
    };
    run("add").ok();
    tool.plugin("good", "echo '{\"code\": 11, \"msg\": \"later\"}'; exit 1");
    assert_eq!(run("del").code, 1);
    let records: Vec<Value> = tool.read("calls").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |key: &str| records.iter().map(|record| record[key].as_str().unwrap_or("-")).collect::<Vec<_>>();
    assert_eq!(of("CNI_BY"), ["runtime", "runtime"]);
    assert_eq!(of("CNI_VERB"), ["ADD", "DEL"]);
    assert_eq!(of("CNI_NETWORK"), ["net", "net"]);
    assert_eq!(of("CNI_CONTAINERID"), ["c1", "c1"]);
    assert_eq!(of("CNI_ADDRESSES"), ["10.7.0.5/24", "-"]);
    assert_eq!(of("CNI_ERROR_CODE"), ["-", "11"]);
    assert_eq!(of("TRACEPARENT"), [TRACE, TRACE]);
    assert!(of("CNI_STEPS")[0].ends_with(" ADD of good") && of("CNI_STEPS")[1].ends_with(" DEL of good"));
}

/// The list's own key counts for the operation; it names no path.
#[test]
fn the_lists_key_asks_for_a_record() {
    let tool = Tool::new();
    let list = |log: &str| {
        let list = json!({"cniVersion": "1.1.0", "name": "net", "log": log, "plugins": [{"type": "good"}]});
        tool.write("net.d/net.conflist", &list.to_string());
        tool.run(&["status", "net"]).stderr
    };
    let record: Value = serde_json::from_str(&list("stderr")).unwrap();
    assert_eq!(
        (&record["CNI_VERB"], &record["CNI_STEPS"].as_str().unwrap().ends_with("STATUS of good")),
        (&json!("STATUS"), &true)
    );
    assert_eq!(list("off"), "");
    let path = tool.path("elsewhere");
    assert!(list(path.to_str().unwrap()).contains("key log: it is ignored"));
    assert!(!path.exists());
}

/// The README of call-log: what doctor asks leaves no record, of the operation or of its plugins, unless `CNI_LOG` names the log.
#[test]
fn what_doctor_asks_leaves_no_record_but_where_the_variable_names() {
    let tool = Tool::new();
    let list = json!({"cniVersion": "1.1.0", "name": "net", "log": "stderr", "plugins": [{"type": "good"}]});
    tool.write("net.d/net.conflist", &list.to_string());
    tool.plugin("good", &format!("echo \"$CNI_COMMAND $CNI_LOG\" >> $dir/said\n{GOOD}"));
    let path = tool.path("calls");
    let path = path.to_str().unwrap();
    for (variable, plugins_have, records) in [("debug", "debug,off", ""), (path, path, "STATUS")] {
        let doctor = tool.ended(tool.command().args(["doctor", "--no-probe"]).env("CNI_LOG", variable));
        assert!(!doctor.stderr.contains("CNI_VERB"), "{}", doctor.stderr);
        assert!(tool.read("calls").contains(records), "{variable}");
        assert!(tool.read("bin/said").contains(&format!("STATUS {plugins_have}\n")), "{}", tool.read("bin/said"));
    }
}

/// README of call-log: a plugin's call that is part of an operation comes below it, and does not count as a call.
#[test]
fn calls_of_an_operation_stand_below_it() {
    let tool = Tool::new();
    let record = |by: &str, plugin: &str, begin: u32, within: Option<u32>, container: &str| {
        let mut record = json!({"CNI_BY": by, "CNI_BEGIN_US": begin.to_string(), "CNI_VERB": "ADD", "CNI_NETWORK": "pods",
            "CNI_CONTAINERID": container, "CNI_IFNAME": "eth0", "CNI_PLUGIN": plugin, "CNI_DURATION_US": "100"});
        if let Some(within) = within {
            record["CNI_WITHIN_US"] = json!(within.to_string());
        }
        line(&record)
    };
    let text = [
        record("plugin", "alone", 1000, None, "c1"),
        record("plugin", "host-local", 3000, Some(2500), "c2"),
        record("plugin", "orphan", 2600, Some(2550), "c2"),
        record("plugin", "bridge", 2500, Some(2000), "c2"),
        record("plugin", "other", 2550, Some(2000), "c3"),
        record("plugin", "portmap", 2700, Some(2000), "c2"),
        record("runtime", "", 2000, None, "c2"),
    ];
    tool.write("calls.log", &text.concat());
    let rows = |words: &[&str]| {
        let text = shown(&tool, words);
        let rows = text.lines().filter(|line| line.contains("ADD"));
        rows.map(|line| line[line.find("ADD").unwrap() + 6..].split("  pods").next().unwrap().trim_end().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        rows(&["-n", "4"]),
        ["alone", "(runtime)", "  bridge", "    host-local", "  portmap", "other", "orphan"]
    );
    assert_eq!(rows(&["c2", "-n", "2"]), ["(runtime)", "  bridge", "    host-local", "  portmap", "orphan"]);
}

/// A log may have gigabytes: this one has 64, which cost nothing to store and would take minutes to read.
#[test]
fn the_last_calls_are_found_from_the_end_of_the_log() {
    use std::os::unix::fs::FileExt;
    let tool = tool();
    let text = tool.read("calls.log");
    let file = std::fs::File::options().write(true).truncate(true).open(tool.path("calls.log")).unwrap();
    let add = text.split_inclusive('\n').next().unwrap().replace("1700000000123456", "1600000000123456");
    file.write_all_at(format!("\n{}{text}", add.repeat(2000)).as_bytes(), 1 << 36).unwrap();
    let rows = |words: &[&str]| shown(&tool, words).lines().filter(|line| line.contains("eth0")).count();
    assert_eq!((rows(&["-n", "2"]), rows(&["c1", "-n", "10"]), rows(&["--errors", "-n", "1"])), (2, 10, 1));
}

/// Records longer than a block of the file, at each place of a block's edge, and lines too long to be one.
#[test]
fn lines_are_found_wherever_a_block_of_the_file_begins() {
    let tool = Tool::new();
    let record = |number: usize| {
        line(&json!({"CNI_BY": "plugin", "CNI_BEGIN_US": (1_000_000 + number).to_string(), "CNI_VERB": "ADD",
            "CNI_PLUGIN": format!("p{number}-"), "CNI_DURATION_US": "1"}))
    };
    // The second long line begins where a block does, or near that.
    let lengths = [1, 2, 3].map(|blocks| (blocks << 16) - record(4).len() - 1);
    for length in lengths.into_iter().flat_map(|length| length - 2..=length + 2) {
        let junk = "x".repeat(length);
        let text = [record(1), record(2), format!("{junk}\n"), record(3), junk, "\n".to_owned(), record(4)].concat();
        tool.write("calls.log", &text);
        let shown = shown(&tool, &[]);
        assert!((1..5).all(|number| shown.contains(&format!("p{number}-"))), "{length}: {shown}");
    }
}

#[test]
fn a_log_without_what_is_asked_for_says_what_it_has() {
    let tool = tool();
    tool.run(&["add", "net", NETNS, "--container-id", "web"]).ok();
    let notes = |words: &[&str]| shown(&tool, words);
    expect![[r#"
        0
        stdout: 
        stderr: note: log $DIR/calls.log has no failed call of container web.
    "#]]
    .assert_eq(&notes(&["--errors", "web"]));
    expect![[r#"
        0
        stdout: 
        stderr: note: log $DIR/calls.log has no failed call of container wbe. Did you mean web?
    "#]]
    .assert_eq(&notes(&["--errors", "wbe"]));
    tool.write("calls.log", "root:x:0:0\nbin:x:1:1\n");
    expect![[r#"
        0
        stdout: 
        stderr: note: log $DIR/calls.log has no record of a call: its 2 lines are none
    "#]]
    .assert_eq(&notes(&[]));
}

#[test]
fn calls_are_chosen_by_network_verb_and_time() {
    let tool = tool();
    let verbs = |words: &[&str]| {
        let json: Value = serde_json::from_str(
            &tool.run(&[&["log", "--json", "--from", tool.path("calls.log").to_str().unwrap()], words].concat()).ok(),
        )
        .unwrap();
        json.as_array().unwrap().iter().map(|call| call["verb"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(verbs(&["--verb", "add"]), ["ADD", "ADD"]);
    assert_eq!(verbs(&["--network", "pods", "--verb", "DEL"]), ["DEL"]);
    assert!(verbs(&["--network", "other"]).is_empty());
    assert!(verbs(&["--since", "10m"]).is_empty());
    assert_eq!(verbs(&["--since", "2023-11-14"]).len(), 3);
    assert_eq!(verbs(&["--since", "2023-11-14T22:13:20Z", "-n", "1"]), ["DEL"]);
    assert!(verbs(&["--since", "2023-11-14T22:13:21Z"]).is_empty());
    assert_eq!(tool.run(&["log", "--since", "yesterday"]).code, 2);
}

/// Each call is printed once as it comes, also after a rotation, and before there is a log.
#[test]
fn the_log_is_followed() {
    use std::io::{BufRead, BufReader, Write};
    let tool = tool();
    let path = tool.path("calls.log");
    let mut follow = tool.command();
    follow.args(["log", "-f", "-n", "1", "--verb", "DEL", "--from"]).arg(&path).stdout(std::process::Stdio::piped());
    let mut child = follow.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    assert!(next().contains("DEL  bridge  pods  c1"));
    let text = tool.read("calls.log");
    let line =
        |container: &str| text.lines().find(|line| line.contains("DEL")).unwrap().replace("c1", container) + "\n";
    let mut file = std::fs::File::options().append(true).open(&path).unwrap();
    file.write_all(format!("\n{}{}", line("c2").replace("DEL", "ADD"), line("c3")).as_bytes()).unwrap();
    assert!(next().contains("DEL  bridge  pods  c3"));
    std::fs::rename(&path, tool.path("calls.log.1")).unwrap();
    std::fs::write(&path, line("c4")).unwrap();
    assert!(next().contains("DEL  bridge  pods  c4"));
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.id().try_into().unwrap()), nix::sys::signal::SIGINT)
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
}
