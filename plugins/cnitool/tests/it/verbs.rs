//! The verbs of the protocol, words and variables.

use crate::tool::{GOOD, NETNS, Tool};
use expect_test::expect;
use std::path::Path;

/// sha512 of `/proc/self/ns/net`.
const ID: &str = "cnitool-cd2667f4483f699b01b0";

#[test]
fn add_prints_the_result_as_the_reference_does() {
    let tool = Tool::new();
    let ended = tool.run(&["add", "net", NETNS]);
    expect![[r#"
        0
        stdout: {
            "cniVersion": "1.1.0",
            "ips": [
                {
                    "address": "10.7.0.5/24"
                }
            ]
        }

        stderr: "#]]
    .assert_eq(&ended.shown());
    expect![[r#"
        ADD cnitool-cd2667f4483f699b01b0 eth0 /proc/self/ns/net []
    "#]]
    .assert_eq(&tool.log());
}

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
fn a_container_id_can_be_given_and_a_relative_path_is_made_whole() {
    let tool = Tool::new();
    tool.ended(tool.command().current_dir("/proc/self").args(["add", "net", "./ns/../ns/net", "--container-id", "c1"]))
        .ok();
    // The shell's /proc/self is its own.
    assert!(tool.log().starts_with("ADD c1 eth0 /proc/"), "{}", tool.log());
}

/// Before 2020 the reference's library kept the result alone, without its attachment.
#[test]
fn check_takes_a_cached_result_of_the_oldest_format() {
    let tool = Tool::new();
    let result = tool.run(&["add", "net", NETNS]).ok();
    let [name] = &tool.files("cache/results")[..] else { panic!("one file") };
    tool.write(&format!("cache/results/{name}"), &result);
    tool.run(&["check", "net", NETNS]).ok();
    assert!(tool.read("bin/stdin").contains(r#""prevResult":{"cniVersion""#));
    tool.run(&["del", "net", NETNS]).ok();
}

/// SPEC 2, CHECK: not for what was not added, or was deleted.
#[test]
fn check_is_for_what_was_added() {
    let tool = Tool::new();
    let refused = format!(
        "error: cannot check {ID}/eth0 in network net: it was not added, or was deleted\n  \
         cnitool attachments shows what the cache has.\n"
    );
    assert_eq!(tool.run(&["check", "net", NETNS]).stderr, refused);
    tool.run(&["add", "net", NETNS]).ok();
    tool.run(&["check", "net", NETNS]).ok();
    tool.run(&["del", "net", NETNS]).ok();
    assert_eq!(tool.run(&["check", "net", NETNS]).stderr, refused);
}

#[test]
fn check_and_del_recall_the_arguments_of_add() {
    let tool = Tool::new();
    tool.run(&["add", "net", NETNS, "--args", "K=V", "--cap-args", r#"{"mac":"x"}"#]).ok();
    tool.run(&["check", "net", NETNS]).ok();
    assert_eq!(tool.run(&["del", "net", NETNS]).ok(), "");
    expect![[r#"
        ADD cnitool-cd2667f4483f699b01b0 eth0 /proc/self/ns/net [K=V]
        CHECK cnitool-cd2667f4483f699b01b0 eth0 /proc/self/ns/net [K=V]
        DEL cnitool-cd2667f4483f699b01b0 eth0 /proc/self/ns/net [K=V]
    "#]]
    .assert_eq(&tool.log());
    expect![[r#"{"cniVersion":"1.1.0","name":"net","type":"good","runtimeConfig":{"mac":"x"},"prevResult":{"cniVersion":"1.1.0","ips":[{"address":"10.7.0.5/24"}]}}"#]].assert_eq(&tool.read("bin/stdin"));
    assert_eq!(tool.files("cache/results"), [""; 0]);
}

/// DEL goes, as in Go's library, by the path that it is given, so a misspelt one leaves what is in the container.
#[test]
fn del_with_a_path_that_leads_elsewhere_than_adds_is_warned_of() {
    let tool = Tool::new();
    let run = |verb: &str, netns: &str| tool.run(&[verb, "net", netns, "--container-id", "w"]);
    run("add", NETNS).ok();
    expect![[r#"
        0
        stdout: 
        stderr: warning: del of w/eth0 in network net looks in namespace /run/netns/typo, and add was for /proc/self/ns/net, which exists: what is in there may stay, without its addresses
    "#]]
    .assert_eq(&run("del", "/run/netns/typo").shown());
    run("add", NETNS).ok();
    assert_eq!(run("del", "/proc/thread-self/ns/net").shown(), "0\nstdout: \nstderr: ", "the same namespace");
    run("add", "/run/netns/gone").ok();
    assert_eq!(run("del", NETNS).shown(), "0\nstdout: \nstderr: ", "nothing is in a namespace that is gone");
}

#[test]
fn del_works_when_the_configuration_is_gone() {
    let tool = Tool::new();
    tool.run(&["add", "net", NETNS]).ok();
    std::fs::remove_file(tool.path("net.d/net.conflist")).unwrap();
    let ended = tool.run(&["del", "net", NETNS]);
    expect![[r#"
        0
        stdout: 
        stderr: warning: no net configurations found in $DIR/net.d; using the configuration that ADD left in the cache
    "#]]
    .assert_eq(&ended.shown());
    assert_eq!(tool.files("cache/results"), [""; 0]);
    expect![[r#"
        1
        stdout: 
        stderr: error: no net configurations found in $DIR/net.d
          The folder has no *.conflist, *.conf or *.json: put a network's file there, or use another folder.
    "#]]
    .assert_eq(&tool.run(&["del", "net", NETNS]).shown());
}

#[test]
fn a_network_may_be_a_path() {
    let tool = Tool::new();
    let single = tool.write("x/one.conf", r#"{"cniVersion":"1.0.0","name":"one","type":"good"}"#);
    tool.run(&["add", single.to_str().unwrap(), NETNS]).ok();
    assert_eq!(tool.files("cache/results"), [format!("one-{ID}-eth0")]);
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
fn a_namespace_is_named_as_ip_netns_names_it() {
    let tool = Tool::new();
    // /run of this test alone. Once the namespace is gone, the cache knows the name.
    let script = "mount -t tmpfs tmpfs /run && mkdir /run/netns && touch /run/netns/e1
        $1 --cache-dir $2 add net e1 --container-id c1 && rm /run/netns/e1 && $1 --cache-dir $2 del net e1 --container-id c1";
    let cache = tool.path("cache");
    let mut command = tool.on_path(Path::new("unshare"));
    command.args(["--mount", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_cnitool")]).arg(cache);
    tool.ended(&mut command).ok();
    let log = tool.log();
    assert!(log.contains("ADD c1 eth0 /run/netns/e1") && log.contains("DEL c1 eth0"), "{log}");
    assert_eq!(tool.files("cache/results"), [""; 0]);
}

/// DEL of an attachment whose namespace was a file of this folder is not that of a namespace of the same name.
#[test]
fn a_file_that_is_gone_is_not_taken_for_a_namespace_of_ip_netns() {
    let tool = Tool::new();
    let script = "mount -t tmpfs tmpfs /run && mkdir /run/netns && touch /run/netns/e1 e1
        $1 --cache-dir $2 add net e1 && $1 --cache-dir $2 add net /run/netns/e1 && rm e1 && $1 --cache-dir $2 del net e1";
    let mut command = tool.on_path(Path::new("unshare"));
    command.current_dir(tool.path("")).args(["--mount", "sh", "-ec", script, "sh", env!("CARGO_BIN_EXE_cnitool")]);
    tool.ended(command.arg(tool.path("cache"))).ok();
    let left = tool.run(&["attachments", "--json"]).ok();
    assert!(left.contains("\"/run/netns/e1\"") && left.matches("\"netns\"").count() == 1, "{left}");
}

#[test]
fn del_of_what_never_was_says_so() {
    let tool = Tool::new();
    let ended = tool.run(&["del", "net", "/run/netns/never", "--container-id", "c9"]);
    assert_eq!(ended.code, 0);
    assert!(
        ended.stderr.contains("the cache has no attachment c9/eth0 in network net, and there is no namespace"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_missing_address_plugin_is_found_before_any_plugin_runs() {
    let tool = Tool::new();
    tool.plugin("bridge", "echo bridge >> \"$dir/../log\"");
    tool.write(
        "net.d/b.conflist",
        r#"{"cniVersion":"1.1.0","name":"b","plugins":[{"type":"bridge","ipam":{"type":"absent"}}]}"#,
    );
    let ended = tool.run(&["add", "b", NETNS]);
    assert!(
        ended.code == 1 && ended.stderr.contains("nothing was called, as an address plugin is missing"),
        "{}",
        ended.stderr
    );
    assert_eq!(tool.log(), "");
}

#[test]
fn a_folder_is_validated_as_the_usual_one() {
    let tool = Tool::new();
    let folder = tool.path("net.d").display().to_string();
    assert_eq!(tool.run(&["validate", &folder]).stdout, tool.run(&["validate"]).stdout);
}

#[test]
fn a_broken_file_before_the_network_is_reported() {
    let tool = Tool::new();
    tool.write("net.d/a.conflist", "{");
    let ended = tool.run(&["status", "net"]);
    expect![[r#"
        0
        stdout: 
        stderr: warning: $DIR/net.d/a.conflist ignored: cannot parse network config: EOF while parsing an object at line 1 column 1
    "#]].assert_eq(&ended.shown());
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
fn completions_are_scripts() {
    let tool = Tool::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = tool.run(&["completions", shell]).ok();
        assert!(script.contains("CNITOOL_COMPLETE") && script.contains("cnitool"), "{shell}");
    }
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
        stderr: error: the cache has no attachment of this network: no net configuration with name "goood" in $DIR/net.d
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

/// A refused configuration may leave an entry that no DEL ever removes.
#[test]
fn an_entry_without_anything_on_the_node_can_be_forgotten() {
    let tool = Tool::new();
    tool.plugin("good", r#"echo '{"code":999,"msg":"no"}'; exit 1"#);
    let target = ["net", NETNS, "--container-id", "half"];
    let run = |verb: &str| tool.run(&[&[verb], &target[..]].concat());
    assert_eq!((run("add").code, run("del").code, tool.files("cache/results").len()), (1, 1, 1));
    run("forget").ok();
    assert_eq!(tool.files("cache/results").len(), 0);
    expect![[r#"
        1
        stdout: 
        stderr: error: cannot forget half/eth0 in network net: the cache does not have it
          cnitool attachments shows what the cache has.
    "#]]
    .assert_eq(&run("forget").shown());
}

/// RLIMIT_FSIZE, as service managers set it: an error with a remedy, and nothing is left of the ADD.
#[test]
fn a_limit_of_file_sizes_is_an_error() {
    let tool = Tool::new();
    let limited = r#"ulimit -f 0 && exec "$0" "$@""#;
    let mut command = tool.on_path("/bin/sh".as_ref());
    command.args(["-c", limited, env!("CARGO_BIN_EXE_cnitool"), "--cache-dir"]).arg(tool.path("cache"));
    expect![[r#"
        1
        stdout: 
        stderr: error: cannot write cache $DIR/cache/results/net-cnitool-cd2667f4483f699b01b0-eth0: File too large
          The limit of a file's size is reached: raise RLIMIT_FSIZE (ulimit -f).
    "#]]
    .assert_eq(&tool.ended(command.args(["add", "net", NETNS])).shown());
    assert_eq!(tool.files("cache/results"), [""; 0]);
}

#[test]
fn show_draws_each_format() {
    let tool = Tool::new();
    for (format, begin) in [("svg", "<svg "), ("html", "<!doctype html>"), ("dot", "graph cni {")] {
        let text = tool.run(&["show", "--format", format]).ok();
        assert!(text.starts_with(begin) && text.contains("net"), "{text}");
    }
    assert_eq!(tool.run(&["show", "--format", "dot", "--json"]).code, 2);
}

/// A plugin may print what a container or a file made it print.
#[test]
fn what_a_plugin_says_does_not_act_on_a_terminal() {
    let tool = Tool::new();
    tool.plugin("good", r#"printf 'WARN \033[2J\302\2331m\342\200\256\tx\n' >&2; exec cat > /dev/null"#);
    let said = tool.run(&["status", "net"]).stderr;
    assert_eq!(said, "WARN \\u{1b}[2J\\u{9b}1m\\u{202e}\tx\n");
}
