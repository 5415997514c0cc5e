//! `cnitool add`, `check` and `del`.

use crate::fixture::{ID, NETNS, Tool};
use expect_test::expect;
use std::path::Path;

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
         cnitool list shows what the cache has.\n"
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

/// What verbs show of a pod is no ID: a DEL of it would do nothing, and succeed.
#[test]
fn the_name_of_a_pod_and_a_part_of_an_id_are_refused_for_the_id() {
    let tool = Tool::new();
    let id = "0123456789ab".repeat(6)[..64].to_owned();
    let args = "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0";
    tool.run(&["add", "net", NETNS, "--container-id", &id, "--args", args]).ok();
    for word in ["shop/web-0", "web-0", &id[..12]] {
        for verb in ["check", "del"] {
            let refused = tool.run(&[verb, "net", NETNS, "--container-id", word]).shown();
            assert!(refused.contains(&format!("Did you mean {id}?")), "{verb} {word}: {refused}");
        }
    }
    // Another container may have such an ID.
    tool.run(&["del", "net", NETNS, "--container-id", "0123"]).ok();
    tool.run(&["del", "net", NETNS, "--container-id", &id]).ok();
    tool.run(&["del", "net", NETNS, "--container-id", &id[..12]]).ok();
}

/// A refused configuration may leave an entry that no DEL ever removes.
#[test]
fn an_entry_without_anything_on_the_node_can_be_forgotten() {
    let tool = Tool::new();
    tool.plugin("good", r#"echo '{"code":999,"msg":"no"}'; exit 1"#);
    let target = ["net", NETNS, "--container-id", "half"];
    let run = |verb: &[&str]| tool.run(&[verb, &target[..]].concat());
    assert_eq!((run(&["add"]).code, run(&["del"]).code, tool.files("cache/results").len()), (1, 1, 1));
    run(&["del", "--forget"]).ok();
    assert_eq!(tool.files("cache/results").len(), 0);
    expect![[r#"
        1
        stdout: 
        stderr: error: cannot forget half/eth0 in network net: the cache does not have it
          cnitool list shows what the cache has.
    "#]]
    .assert_eq(&run(&["forget"]).shown());
}

/// Attachments of two pods of one name, of a third that has two interfaces, and of a container without a pod.
pub(crate) fn with_pods() -> Tool {
    let tool = Tool::new();
    for (digit, pod) in
        [("a1", "shop;K8S_POD_NAME=web-1"), ("a2", "test;K8S_POD_NAME=web-1"), ("b1", "shop;K8S_POD_NAME=db-0")]
    {
        let (id, args) = (digit.repeat(32), format!("IgnoreUnknown=1;K8S_POD_NAMESPACE={pod}"));
        tool.run(&["add", "net", NETNS, "--container-id", &id, "--args", &args]).ok();
        if digit == "b1" {
            tool.run(&["add", "net", NETNS, "--container-id", &id, "--args", &args, "-i", "net1"]).ok();
        }
    }
    tool.run(&["add", "net", NETNS, "--container-id", "plain"]).ok();
    tool.log();
    tool
}

#[test]
fn each_verb_takes_the_names_of_a_container() {
    let tool = with_pods();
    let called = |words: &[&str]| {
        tool.run(words).ok();
        let log = tool.log();
        log.lines()
            .map(|line| line.split(' ').take(3).map(|word| &word[..word.len().min(5)]).collect::<Vec<_>>().join(" "))
            .collect::<Vec<_>>()
    };
    for names in [&["shop/web-1"][..], &["a1"], &["net", "shop/web-1"], &[&"a1".repeat(32)]] {
        assert_eq!(called(&[&["check"], names].concat()), ["CHECK a1a1a eth0"], "{names:?}");
    }
    assert_eq!(called(&["check", "db-0"]), ["CHECK b1b1b eth0", "CHECK b1b1b net1"]);
    assert_eq!(called(&["check", "db-0", "-i", "net1"]), ["CHECK b1b1b net1"]);
    // As with the reference: of a namespace that is gone.
    assert!(
        !called(&["del", "net", "b1"]).concat().contains("b1b1b")
            && !called(&["del", "net", "db-0"]).concat().contains("b1b1b")
    );
    assert_eq!(called(&["del", "plain"]), ["DEL plain eth0"]);
    for words in [
        &["check"][..],
        &["del"],
        &["del", "--forget"],
        &["repair"],
        &["list"],
        &["explain"],
        &["log", "--from", "/x"],
        &["gc", "net", "--keep"],
    ] {
        let ended = tool.run(&[words, &["web-1"]].concat());
        let each =
            ["shop/web-1", "test/web-1"].iter().all(|name| ended.stderr.contains(&format!("{name}, container a")));
        assert!(ended.code == 1 && ended.stderr.contains("web-1 names 2 containers") && each, "{}", ended.shown());
    }
    expect![[r#"
        1
        stdout: 
        stderr: error: cannot del web-9: the cache has no attachment of a pod, container or namespace of this name
          Did you mean web-1? cnitool list shows what it has. Of others: cnitool del NETWORK NETNS.
    "#]]
    .assert_eq(&tool.run(&["del", "web-9"]).shown());
    let explained = tool.run(&["explain", "db-0"]).ok();
    let first = format!("├─ container {}\n├─ namespace {NETNS}\n", "b1".repeat(32));
    assert_eq!(explained.split_once('\n').map(|(_, below)| below.starts_with(&first)), Some(true), "{explained}");
    expect![[r#"
        [
            {
                "network": "net",
                "container": "a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2",
                "pod": "web-1",
                "namespace": "test",
                "ifname": "eth0",
                "netns": "/proc/self/ns/net",
                "state": "present",
                "add": "complete",
                "addresses": [
                    "10.7.0.5/24"
                ]
            }
        ]
    "#]]
    .assert_eq(&tool.run(&["list", "test/web-1", "--json"]).ok());
    assert_eq!(tool.run(&["repair", "shop/db-0", "--json"]).ok().matches(r#""pod": "db-0""#).count(), 2);
    tool.log();
    assert_eq!(called(&["gc", "net", "--keep", "shop/web-1", "--keep", "db-0/net1"]).len(), 3, "two DEL and GC");
    assert_eq!(called(&["del", "web-1"]), ["DEL a1a1a eth0"]);
    assert_eq!(called(&["del", "shop/db-0"]), ["DEL b1b1b net1"]);
    assert_eq!(tool.files("cache/results").len(), 0);
}
