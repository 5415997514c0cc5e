//! Options, variables, errors and what goes to stderr, of all verbs.

use crate::fixture::{GOOD, ID, NETNS, Tool};
use expect_test::expect;

#[test]
fn variables_and_options_say_the_same() {
    let tool = Tool::new();
    let mut by_variables = tool.command();
    by_variables
        .env("CNI_IFNAME", "net1")
        .env("CNI_ARGS", "K=V;L=W")
        .env("CAP_ARGS", r#"{"mac":"0a:00:00:00:00:05","dns":{}}"#);
    tool.ended(by_variables.args(["add", "net", NETNS])).ok();
    let said = (tool.log(), tool.read("bin/stdin"));
    expect![[r#"
        ADD cnitool-cd2667f4483f699b01b0 net1 /proc/self/ns/net [K=V;L=W]
        {"cniVersion":"1.1.0","name":"net","type":"good","runtimeConfig":{"mac":"0a:00:00:00:00:05"}}"#]]
    .assert_eq(&format!("{}{}", said.0, said.1));
    std::fs::remove_dir_all(tool.path("cache")).unwrap();
    let words = ["-i", "net1", "--args", "K=V;L=W", "--cap-args", r#"{"mac":"0a:00:00:00:00:05","dns":{}}"#];
    let mut by_options = tool.command();
    // Options win.
    by_options.env("CNI_IFNAME", "other").env("NETCONFPATH", "/nowhere").arg("--conf-dir").arg(tool.path("net.d"));
    tool.ended(by_options.args(["add", "net", NETNS]).args(words)).ok();
    assert_eq!((tool.log(), tool.read("bin/stdin")), said);
}

#[test]
fn errors_go_to_stderr_with_1() {
    let tool = Tool::new();
    tool.plugin("bad", r#"echo '{"code":11,"msg":"not now","details":"why"}'; exit 1"#);
    tool.write("net.d/bad.conflist", r#"{"cniVersion":"1.1.0","name":"bad","plugins":[{"type":"bad"}]}"#);
    let runs: [&[&str]; 7] = [
        // The second ADD first deletes what the unfinished one has left.
        &["add", "bad", NETNS, "--container-id", "bad"],
        &["--json", "add", "bad", NETNS, "--container-id", "bad"],
        &["status", "bad"],
        &["add", "absent", NETNS],
        &["add", "net", NETNS, "--args", "a=b;"],
        &["add", "net", NETNS, "--cap-args", "[]"],
        &["--json", "add", "net", NETNS, "-i", "a/b"],
    ];
    let texts = runs.map(|words| tool.run(words).shown());
    expect![[r#"
        1
        stdout: 
        stderr: error: plugin type="bad" failed (add): not now
          why. Left behind: DEL of plugin bad failed with the same error. The cache keeps the attachment as incomplete: call DEL once the cause is gone.

        1
        stdout: 
        stderr: {"cniVersion":"1.1.0","code":11,"msg":"plugin type=\"bad\" failed (delete): not now","details":"why. ADD did not begin: it first deletes what an earlier ADD has left."}

        1
        stdout: 
        stderr: error: plugin type="bad" failed (status): not now
          why

        1
        stdout: 
        stderr: error: no net configuration with name "absent" in $DIR/net.d
          The folder has bad, net.

        1
        stdout: 
        stderr: error: cannot use CNI_ARGS (--args): "" is no KEY=VALUE
          Pairs are separated by ; and have one = each.

        1
        stdout: 
        stderr: error: cannot use CAP_ARGS (--cap-args): invalid type: sequence, expected a JSON object at line 1 column 0
          They are a JSON object, such as {"mac":"0a:00:00:00:00:05"}.

        1
        stdout: 
        stderr: {"cniVersion":"1.1.0","code":4,"msg":"cannot use --ifname a/b: interface name contains / or :","details":"An interface's name has 1 to 15 bytes, and no / : or white space."}
    "#]].assert_eq(&texts.join("\n"));
}

#[test]
fn a_wrong_command_line_is_2_and_help_is_0() {
    let tool = Tool::new();
    let runs: [&[&str]; 4] = [&[], &["add", "net"], &["gc", "net", "--all", "--keep", "x"], &["nonsense"]];
    assert_eq!(runs.map(|words| tool.run(words).code), [2; 4]);
    let help = tool.run(&["--help"]).ok();
    assert!(help.contains("A container's network:") && help.contains("attachments"), "{help}");
    let help = tool.run(&["add", "--help"]).ok();
    assert!(help.contains("Exit codes:") && help.contains("--cap-args"), "{help}");
    // Only the options that a verb uses.
    assert!(!tool.run(&["show", "--help"]).ok().contains("--cap-args"));
    assert!(tool.run(&["shwo"]).stderr.contains("Did you mean show?"));
}

#[test]
fn verbose_reports_each_call() {
    let tool = Tool::new();
    let ended = tool.run(&["-v", "add", "net", NETNS]);
    let line = ended.stderr.lines().find(|line| line.starts_with("plugin good ADD of "));
    let line = line.unwrap_or_else(|| panic!("{}", ended.stderr));
    let (what, took) = line.split_once(": ok, ").unwrap_or_else(|| panic!("{line}"));
    assert_eq!(what, format!("plugin good ADD of {ID}/eth0 in network net"));
    assert!(took.strip_suffix(" ms").is_some_and(|ms| ms.parse::<f64>().is_ok()), "{line}");
    // For programs as fields.
    let ended = tool.run(&["-v", "--json", "check", "net", NETNS]);
    let line = ended.stderr.lines().find(|line| line.contains("plugin ended"));
    let line: serde_json::Value = serde_json::from_str(line.unwrap_or_else(|| panic!("{}", ended.stderr))).unwrap();
    for (field, value) in
        [("outcome", "ok"), ("plugin", "good"), ("command", "CHECK"), ("network", "net"), ("ifname", "eth0")]
    {
        assert_eq!(line[field], value, "{line}");
    }
    assert!(line["duration_us"].is_u64(), "{line}");
}

#[test]
fn plugins_stderr_is_passed_on() {
    let tool = Tool::new();
    tool.plugin("good", &format!("echo hello >&2\n{GOOD}"));
    assert_eq!(tool.run(&["add", "net", NETNS]).stderr, "hello\n");
}

#[test]
fn misspelt_names_are_errors() {
    let tool = Tool::new();
    assert_eq!(tool.run(&["attachments", "net"]).ok(), "", "a network without attachments");
    let runs: [&[&str]; 3] =
        [&["attachments", "goood"], &["--cni-path", "/nope", "version"], &["--json", "status", "goood"]];
    expect![[r#"
        1
        stdout: 
        stderr: error: the cache has no attachment of this name: no net configuration with name "goood" in $DIR/net.d
          The folder has net.

        1
        stdout: 
        stderr: error: cannot list plugins in /nope: No such file or directory
          Name the folder of the plugins by --cni-path (CNI_PATH).

        1
        stdout: 
        stderr: {"cniVersion":"1.1.0","code":7,"msg":"no net configuration with name \"goood\" in $DIR/net.d","details":"The folder has net."}
    "#]]
    .assert_eq(&runs.map(|words| tool.run(words).shown()).join("\n"));
    let both = format!("/nope:{}", tool.path("bin").display());
    expect![[r#"
        0
        stdout: PLUGIN  PATH                      RELEASE  VERSIONS
        good    $DIR/bin/good  -        1.0.0 1.1.0

        stderr: warning: cannot list plugins in /nope: No such file or directory
    "#]]
    .assert_eq(&tool.run(&["--cni-path", &both, "version"]).shown());
}

/// With `--json`, every line of stderr is an object: warnings, plugins' output and the error.
#[test]
fn with_json_stderr_is_objects_a_line() {
    let tool = Tool::new();
    tool.write("net.d/a.conflist", "{");
    tool.plugin("good", r#"echo hello >&2; echo '{"code":11,"msg":"not now","details":"why"}'; exit 1"#);
    let ended = tool.run(&["--json", "status", "net"]);
    expect![[r#"
        1
        stdout: 
        stderr: {"level":"warn","msg":"$DIR/net.d/a.conflist ignored: cannot parse network config: EOF while parsing an object at line 1 column 1"}
        {"plugin":"good","command":"STATUS","msg":"hello"}
        {"cniVersion":"1.1.0","code":11,"msg":"plugin type=\"good\" failed (status): not now","details":"why"}
    "#]].assert_eq(&ended.shown());
    for line in ended.stderr.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
}

/// A plugin may print what a container or a file made it print.
#[test]
fn what_a_plugin_says_does_not_act_on_a_terminal() {
    let tool = Tool::new();
    tool.plugin("good", r#"printf 'WARN \033[2J\302\2331m\342\200\256\tx\n' >&2; exec cat > /dev/null"#);
    let said = tool.run(&["status", "net"]).stderr;
    assert_eq!(said, "WARN \\u{1b}[2J\\u{9b}1m\\u{202e}\tx\n");
}
