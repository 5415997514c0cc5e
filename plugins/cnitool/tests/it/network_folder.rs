//! The folder of networks: none in it, files that cannot be read, the default network.

use crate::fixture::{NETNS, Tool};
use expect_test::expect;
use nix::sys::stat::Mode;
use serde_json::Value;
use std::os::unix::fs::symlink;

const NETWORK: &str = r#"{"cniVersion":"1.1.0","name":"net","plugins":[{"type":"good"}]}"#;

/// The findings of `doctor` of a kind, each as level, text, evidence and remedy.
fn findings(tool: &Tool, kind: &str) -> Vec<String> {
    let run = tool.run(&["--json", "doctor"]);
    let findings: Vec<Value> = serde_json::from_str(&run.stdout).unwrap();
    let evidence = |finding: &Value| {
        finding["evidence"].as_array().unwrap().iter().map(|line| format!("| {line}\n")).collect::<String>()
    };
    let of_kind = findings.iter().filter(|finding| finding["kind"] == kind);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    of_kind
        .map(|one| {
            format!("{}: {}\n{}help: {}", text(&one["level"]), text(&one["what"]), evidence(one), text(&one["remedy"]))
        })
        .collect()
}

#[test]
fn a_folder_without_a_network_is_an_error_of_doctor() {
    let tool = Tool::new();
    assert_eq!(findings(&tool, "no-network"), [""; 0]);
    std::fs::remove_file(tool.path("net.d/net.conflist")).unwrap();
    let none = || findings(&tool, "no-network").join("\n");
    expect![[r#"
        error: no network: folder $DIR/net.d is empty
        help: The network add-on writes its file there when its pod on this node has started: see that pod's log. By hand, put a file there whose name ends in .conflist."#]]
    .assert_eq(&none());
    assert_eq!(tool.run(&["doctor"]).code, 4);
    tool.write("net.d/10-net.conflist.template", NETWORK);
    tool.write("net.d/20-net.conflist.bak", NETWORK);
    std::fs::create_dir(tool.path("net.d/40-net.conflist")).unwrap();
    expect![[r#"
        error: no network: folder $DIR/net.d has no file *.conflist, *.conf or *.json
        | "10-net.conflist.template is not read: its name does not end in .conflist, .conf or .json"
        | "20-net.conflist.bak is not read: its name does not end in .conflist, .conf or .json"
        | "40-net.conflist is not read: it is a folder"
        help: The network add-on writes its file there when its pod on this node has started: see that pod's log. By hand, put a file there whose name ends in .conflist."#]]
    .assert_eq(&none());
    tool.write("net.d/30-net.conflist", "{");
    expect![[r#"
        error: no network: no file in $DIR/net.d can be used
        | "$DIR/net.d/30-net.conflist"
        help: cnitool --cache-dir $DIR/cache validate --conf-dir $DIR/net.d"#]]
    .assert_eq(&none());
    tool.write("net.d/30-net.conflist", NETWORK);
    expect![[r#""#]].assert_eq(&none());
    std::fs::remove_dir_all(tool.path("net.d")).unwrap();
    expect![[r#"
        error: no network: there is no folder $DIR/net.d
        help: Install a network add-on, which makes the folder. If your runtime reads another, name that by --conf-dir."#]]
    .assert_eq(&none());
}

/// A link that leads nowhere, a pipe that would be waited for, an empty file, a link to a folder.
#[test]
fn files_that_cannot_be_read_are_named_and_hide_no_other() {
    let tool = Tool::new();
    symlink("/absent/net", tool.path("net.d/a-link.conflist")).unwrap();
    nix::unistd::mkfifo(&tool.path("net.d/b-pipe.conflist"), Mode::S_IRUSR).unwrap();
    tool.write("net.d/c-empty.conflist", "");
    symlink("/proc", tool.path("net.d/d-folder.conf")).unwrap();
    expect![[r#"
        1
        stdout: error: the link leads to /absent/net, which does not exist
        --> $DIR/net.d/a-link.conflist
         |
        help: Remove the link, or create the file that it leads to.

        error: containerd has no network: of a folder it reads the first file by name alone, and this one cannot be used
        --> $DIR/net.d/a-link.conflist
         |
        help: Mend or remove it. CRI-O and kubelets ignore it, and take network net of $DIR/net.d/net.conflist.

        error: it is a named pipe, and no file
        --> $DIR/net.d/b-pipe.conflist
         |
        help: Remove it: a runtime that opens it waits until a process writes to it.

        error: the file is empty
        --> $DIR/net.d/c-empty.conflist
         |
        help: Remove it, or write a network into it.

        error: the link leads to /proc, which is a folder
        --> $DIR/net.d/d-folder.conf
         |
        help: Remove the link: only files have networks.

        note: plugin good is not part of this suite: its keys are not checked
         --> $DIR/net.d/net.conflist:1:55
          |
        1 | {"cniVersion":"1.1.0","name":"net","plugins":[{"type":"good","capabilitie...
          |                                                       ^^^^^^

        net: no errors ($DIR/net.d/net.conflist: good; capabilities mac)

        stderr: error: 5 errors and 0 warnings in 5 files
    "#]]
    .assert_eq(&tool.run(&["validate", "--offline"]).shown());
    expect![[r#"
        error: $DIR/net.d/a-link.conflist has faults
        | "the link leads to /absent/net, which does not exist"
        | "containerd has no network: of a folder it reads the first file by name alone, and this one cannot be used"
        help: cnitool --cache-dir $DIR/cache validate $DIR/net.d/a-link.conflist
        error: $DIR/net.d/b-pipe.conflist has faults
        | "it is a named pipe, and no file"
        help: cnitool --cache-dir $DIR/cache validate $DIR/net.d/b-pipe.conflist
        error: $DIR/net.d/c-empty.conflist has faults
        | "the file is empty"
        help: cnitool --cache-dir $DIR/cache validate $DIR/net.d/c-empty.conflist
        error: $DIR/net.d/d-folder.conf has faults
        | "the link leads to /proc, which is a folder"
        help: cnitool --cache-dir $DIR/cache validate $DIR/net.d/d-folder.conf"#]]
    .assert_eq(&findings(&tool, "config").join("\n"));
    expect![[r#"
        0
        stdout: note: plugin good is not part of this suite: its keys are not checked
         --> $DIR/net.d/net.conflist:1:55
          |
        1 | {"cniVersion":"1.1.0","name":"net","plugins":[{"type":"good","capabilitie...
          |                                                       ^^^^^^

        net: no errors ($DIR/net.d/net.conflist: good; capabilities mac)

        stderr: "#]]
    .assert_eq(&tool.run(&["validate", "--offline", "net"]).shown());
}

#[test]
fn the_default_network_is_marked() {
    let tool = Tool::new();
    let marks = || {
        let lines = |words: &[&str]| {
            let run = tool.run(words);
            let lines = run
                .stdout
                .lines()
                .filter(|line| ["default", "compared"].iter().any(|word| line.contains(word)))
                .map(|line| format!("{line}\n"));
            lines.collect::<String>()
        };
        let shown: Value = serde_json::from_str(&tool.run(&["--json", "show"]).stdout).unwrap();
        let networks = shown["networks"].as_array().unwrap().iter();
        let marked: Vec<&Value> = networks.filter(|one| one["default"] == true).map(|one| &one["name"]).collect();
        format!("{}{}{}{marked:?}", lines(&["validate", "--offline"]), lines(&["doctor"]), lines(&["show"]))
    };
    expect!["[]"].assert_eq(&marks());
    tool.write("net.d/100-more.conf", r#"{"cniVersion":"1.1.0","name":"more","type":"good"}"#);
    tool.write("net.d/20-last.conflist", &NETWORK.replace("net", "last"));
    expect![[r#"
        note: network more is the default of containerd, CRI-O and kubelets: its file is the first by name
        help: Names are compared character by character, so 100-more.conf comes before 20-last.conflist.
        network more ($DIR/net.d/100-more.conf) is the default of containerd, CRI-O and kubelets: the first file by name
        more  good  $DIR/net.d/100-more.conf (default network: first by name)
        [String("more")]"#]]
    .assert_eq(&marks());
    tool.write("net.d/00-broken.conf", "{");
    expect![[r#"
        network more ($DIR/net.d/100-more.conf) is the default of CRI-O and kubelets; containerd has none, for $DIR/net.d/00-broken.conf comes before it
        more  good  $DIR/net.d/100-more.conf (default network of CRI-O and
        [String("more")]"#]].assert_eq(&marks());
    expect![[r#"
        error: $DIR/net.d/00-broken.conf has faults
        | "line 1, column 2: EOF while parsing an object"
        | "line 1, column 2: containerd has no network: of a folder it reads the first file by name alone, and this one cannot be used"
        help: cnitool --cache-dir $DIR/cache validate $DIR/net.d/00-broken.conf"#]].assert_eq(&findings(&tool, "config").join("\n"));
}

/// CRI-O named such a file by itself; as the first one it leaves containers without an address.
#[test]
fn a_file_with_loopback_alone_is_a_fault_only_where_it_is_the_first() {
    let tool = Tool::new();
    tool.write("net.d/zz-loopback.conf", r#"{"cniVersion":"1.0.0","type":"loopback"}"#);
    tool.plugin("loopback", crate::fixture::GOOD);
    let shown = || findings(&tool, "config").join("\n") + &findings(&tool, "not-ready").join("\n");
    expect![""].assert_eq(&shown());
    std::fs::rename(tool.path("net.d/zz-loopback.conf"), tool.path("net.d/00-loopback.conf")).unwrap();
    expect![[r#"
        error: $DIR/net.d/00-loopback.conf has faults
        | "line 1, column 1: the first file by name has loopback alone: containers get no other interface, and no address"
        help: cnitool --cache-dir $DIR/cache validate $DIR/net.d/00-loopback.conf"#]].assert_eq(&shown());
}

#[test]
fn capability_arguments_that_no_plugin_takes_are_named() {
    let tool = Tool::new();
    let add = |arguments: &str| {
        let run = tool.run(&["--cap-args", arguments, "add", "net", NETNS]);
        tool.run(&["del", "net", NETNS]).ok();
        run.stderr
    };
    assert_eq!(add(r#"{"mac":"0a:00:00:00:00:05"}"#), "");
    expect![[r#"
        warning: CAP_ARGS has macs, which is not used: no plugin of network net has capability macs: did you mean mac?
        warning: CAP_ARGS has ips, which is not used: no plugin of network net has capability ips
    "#]]
    .assert_eq(&add(r#"{"macs":"0a:00:00:00:00:05","ips":["10.1.0.5/24"]}"#));
    expect![[r#"
        error: cannot use CAP_ARGS (--cap-args): expected value at line 1 column 1
          They are a JSON object, such as {"mac":"0a:00:00:00:00:05"}.
    "#]]
    .assert_eq(&add("mac"));
}

/// ADD refuses the file that has no plugin, and calls those of the folder that has the network's name.
#[test]
fn a_list_without_plugins_is_an_error_where_add_refuses_it() {
    let tool = Tool::new();
    let file =
        tool.write("net.d/10-lab.conflist", r#"{"cniVersion":"1.1.0","name":"lab","plguins":[{"type":"bridge"}]}"#);
    let validate = || tool.run(&["validate", "--offline", file.to_str().unwrap()]).shown();
    let without = validate();
    assert!(
        without.starts_with("1\n") && without.contains("error: key plugins is missing, and no folder"),
        "{without}"
    );
    assert!(without.contains("Did you mean plugins?"), "{without}");
    tool.write("net.d/lab/10-lo.conf", r#"{"type":"loopback"}"#);
    let with = validate();
    assert!(
        with.starts_with("0\n") && with.contains("warning: key plugins is missing: only plugins of a folder"),
        "{with}"
    );
}

/// Files of the folder that has a list's name are plugins of the list, and faults in them are faults of the network.
#[test]
fn plugins_in_files_of_their_own_are_validated_with_their_list() {
    let tool = Tool::new();
    tool.write("net.d/10-lab.conflist", r#"{"cniVersion":"1.1.0","name":"lab","plugins":[{"type":"bridge"}]}"#);
    let validate = |file: &str| {
        tool.write("net.d/lab/20-ports.conf", file);
        tool.stable(&tool.run(&["validate", "--offline", "lab"]).shown())
    };
    expect![[r#"
        0
        stdout: lab: no errors ($DIR/net.d/10-lab.conflist: bridge, portmap; capabilities portMappings)

        stderr: 
        1
        stdout: error: key snat = "yes": expected true or false
         --> $DIR/net.d/lab/20-ports.conf:1:63
          |
        1 | {"type":"portmap","capabilities":{"portMappings":true},"snat":"yes"}
          |                                                               ^^^^^


        stderr: error: 1 error and 0 warnings in 2 files

        1
        stdout: error: key type is missing: the file name of an executable in CNI_PATH
         --> $DIR/net.d/lab/20-ports.conf:1:1
          |
        1 | {"no":"type"}
          | ^


        stderr: error: 1 error and 0 warnings in 2 files

        1
        stdout: error: EOF while parsing a value
         --> $DIR/net.d/lab/20-ports.conf:1:9
          |
        1 | {"type":
          |         ^
          |
        help: The end is missing: a bracket is not closed, or the file was cut off while it was written.


        stderr: error: 1 error and 0 warnings in 2 files

        1
        stdout: error: the file is empty
        --> $DIR/net.d/lab/20-ports.conf
         |
        help: Remove it, or write a plugin into it.


        stderr: error: 1 error and 0 warnings in 2 files
    "#]]
    .assert_eq(
        &[
            r#"{"type":"portmap","capabilities":{"portMappings":true}}"#,
            r#"{"type":"portmap","capabilities":{"portMappings":true},"snat":"yes"}"#,
            r#"{"no":"type"}"#,
            r#"{"type":"#,
            "",
        ]
        .map(validate)
        .join("\n"),
    );
}
