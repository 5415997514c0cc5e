//! GC and the list of attachments.

use crate::fixture::{NETNS, Tool};
use expect_test::expect;

/// c1 in a namespace that exists, c2 in one that is gone, c3 at a file that is none.
fn attached() -> Tool {
    let tool = Tool::new();
    let file = tool.write("file", "no namespace");
    for (container, netns) in [("c1", NETNS), ("c2", "/run/netns/gone"), ("c3", file.to_str().unwrap())] {
        tool.run(&["add", "net", netns, "--container-id", container]).ok();
    }
    tool.log();
    tool
}

#[test]
fn attachments_are_listed() {
    let tool = attached();
    tool.write("cache/results/broken", "{");
    expect![[r#"
        0
        stdout: NETWORK  CONTAINER  IFNAME  NETNS                 STATE    ADD       ADDRESSES
        net      c1         eth0    /proc/self/ns/net     present  complete  10.7.0.5/24
        net      c2         eth0    /run/netns/gone       gone     complete  10.7.0.5/24
        net      c3         eth0    $DIR/file  gone     complete  10.7.0.5/24

        stderr: warning: $DIR/cache/results/broken ignored: EOF while parsing an object at line 1 column 1
    "#]]
    .assert_eq(&tool.run(&["list"]).shown());
    expect![[r#"
        [
            {
                "network": "net",
                "container": "c1",
                "pod": null,
                "namespace": null,
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
    .assert_eq(&tool.run(&["--json", "list", "net", "--container-id", "c1"]).ok());
    assert_eq!(tool.run(&["list", "other"]).code, 1);
}

/// A file that cannot be read is reported once, though it is read more often.
#[test]
fn a_broken_file_of_the_cache_is_reported_once() {
    let tool = attached();
    for words in [&["gc", "net"][..], &["check", "net", NETNS], &["del", "net", NETNS]] {
        tool.write("cache/results/net-c1-eth0", "{");
        let said = tool.run(&[words, &["--container-id", "c1"]].concat()).stderr;
        assert_eq!(said.matches("is broken and counts as missing").count(), 1, "{words:?}: {said}");
    }
}

#[test]
fn an_add_that_was_not_finished_is_listed_and_del_finishes_it() {
    let tool = Tool::new();
    tool.plugin("good", "exit 1");
    let target = ["net", NETNS, "--container-id", "half"];
    tool.run(&[&["add"], &target[..]].concat());
    let listed = tool.run(&["list"]).ok();
    expect![[r#"
        NETWORK  CONTAINER  IFNAME  NETNS              STATE    ADD         ADDRESSES
        net      half       eth0    /proc/self/ns/net  present  incomplete  -
    "#]]
    .assert_eq(&listed);
    expect![[r#"
        error: cannot check half/eth0 in network net: its ADD was not finished
          run DEL, then ADD again.
    "#]]
    .assert_eq(&tool.run(&[&["check"], &target[..]].concat()).stderr);
    tool.plugin("good", crate::fixture::GOOD);
    tool.run(&[&["del"], &target[..]].concat()).ok();
    assert_eq!(tool.run(&["list"]).ok(), "");
}

#[test]
fn gc_keeps_what_has_a_namespace() {
    let tool = attached();
    expect![[r#"
        NETWORK  CONTAINER  IFNAME  NETNS                 VERDICT           OBJECTS
        net      c2         eth0    /run/netns/gone       would be deleted  -
        net      c3         eth0    $DIR/file  would be deleted  -
    "#]]
    .assert_eq(&tool.run(&["gc", "net", "--dry-run"]).ok());
    assert_eq!((tool.log().as_str(), tool.files("cache/results").len()), ("", 3), "a dry run changes nothing");
    expect![[r#"
        NETWORK  CONTAINER  IFNAME  NETNS                 VERDICT  OBJECTS
        net      c1         eth0    /proc/self/ns/net     kept     -
        net      c2         eth0    /run/netns/gone       deleted  -
        net      c3         eth0    $DIR/file  deleted  -
    "#]]
    .assert_eq(&tool.run(&["gc", "net", NETNS]).ok());
    expect![[r#"
        DEL c2 eth0  []
        DEL c3 eth0  []
        GC    []
    "#]]
    .assert_eq(&tool.log());
    expect![[r#"{"cniVersion":"1.1.0","name":"net","type":"good","cni.dev/valid-attachments":[{"containerID":"c1","ifname":"eth0"}],"cni.dev/attachments":[{"containerID":"c1","ifname":"eth0"}],"cni-plugins/seen":[{"containerID":"c1","ifname":"eth0"},{"containerID":"c2","ifname":"eth0"},{"containerID":"c3","ifname":"eth0"}]}"#]].assert_eq(&tool.read("bin/stdin"));
    assert_eq!(tool.files("cache/results"), ["net-c1-eth0"]);
}

/// Networks of files, of the cache alone, and one whose plugin fails, which hides no other.
#[test]
fn gc_without_a_network_is_of_all_and_a_dry_run_counts_what_stays() {
    let tool = attached();
    for name in ["a", "far"] {
        let file = tool.write(
            &format!("net.d/{name}.conflist"),
            &tool.read("net.d/net.conflist").replace("\"net\"", &format!("\"{name}\"")),
        );
        tool.run(&["add", name, "/run/netns/gone", "--container-id", "c9"]).ok();
        if name == "far" {
            std::fs::remove_file(file).unwrap();
        }
    }
    expect![[r#"
        0
        stdout: NETWORK  CONTAINER  IFNAME  NETNS                 VERDICT           OBJECTS
        a        c9         eth0    /run/netns/gone       would be deleted  -
        net      c2         eth0    /run/netns/gone       would be deleted  -
        net      c3         eth0    $DIR/file  would be deleted  -
        far      c9         eth0    /run/netns/gone       would be deleted  -

        stderr: warning: no net configuration with name "far" in $DIR/net.d; the folder has a, net; using the configuration that ADD left in the cache
        note: 1 attachment would be kept
    "#]].assert_eq(&tool.run(&["gc", "--dry-run"]).shown());
    let json = tool.run(&["gc", "--dry-run", "--json"]).ok();
    assert_eq!((json.matches("would be kept").count(), json.matches("would be deleted").count()), (1, 4));
    for unsafe_for_all in ["--all", "--force", "--keep=c1"] {
        assert_eq!(tool.run(&["gc", unsafe_for_all]).code, 2, "{unsafe_for_all}");
    }
    tool.write("net.d/a.conflist", r#"{"cniVersion":"1.1.0","name":"a","plugins":[{"type":"bad"}]}"#);
    tool.plugin("bad", r#"echo '{"code":7,"msg":"cannot"}'; exit 1"#);
    assert_eq!(tool.run(&["gc"]).code, 1);
    assert_eq!(tool.files("cache/results"), ["a-c9-eth0", "net-c1-eth0"]);
}

/// An empty file is what is seen of a namespace that is mounted in another mount namespace.
#[test]
fn gc_keeps_what_may_be_mounted_in_another_mount_namespace_until_del_is_called() {
    let tool = Tool::new();
    let file = tool.write("netns", "");
    tool.run(&["add", "net", file.to_str().unwrap(), "--container-id", "c4"]).ok();
    assert!(tool.run(&["list"]).ok().contains("unknown"));
    tool.log();
    let done = tool.run(&["gc", "net"]);
    expect![[r#"
        0
        stdout: NETWORK  CONTAINER  IFNAME  NETNS                  VERDICT  OBJECTS
        net      c4         eth0    $DIR/netns  kept     -

        stderr: warning: kept c4/eth0 in network net: $DIR/netns is an empty file, so its namespace is gone, or is mounted in another mount namespace; if its container is gone, this removes it: cnitool --cache-dir $DIR/cache del net $DIR/netns --container-id c4 --ifname eth0
    "#]]
    .assert_eq(&done.shown());
    assert_eq!(tool.log(), "GC    []\n");
    assert!(tool.run(&["doctor"]).stdout.contains("[undecided]: network net: 1 of which"));
    let (_, words) = done.stderr.trim().split_once("this removes it: cnitool --cache-dir $DIR/cache ").unwrap();
    let words = words.replace("$DIR", tool.path("").to_str().unwrap().trim_end_matches('/'));
    tool.log();
    tool.run(&words.split(' ').collect::<Vec<_>>()).ok();
    assert_eq!((tool.log().as_str(), tool.files("cache/results").len()), ("DEL c4 eth0  []\n", 0));
}

#[test]
fn gc_keeps_what_the_caller_asks_to_keep() {
    let tool = attached();
    tool.run(&["gc", "net", "--keep", "c2", "--keep", "c3/eth0"]).ok();
    assert_eq!(tool.files("cache/results"), ["net-c2-eth0", "net-c3-eth0"]);
    tool.run(&["gc", "net", "--all"]).ok();
    assert_eq!(tool.files("cache/results"), [""; 0]);
    // A dry run ends as the call itself would.
    let tool = attached();
    for wrong in ["../c", "unknown", "c2/net1"] {
        let ends = [&[][..], &["--dry-run"]].map(|more| tool.run(&[&["gc", "net", "--keep", wrong], more].concat()));
        assert!(ends[0].code == 1 && ends[0].stderr == ends[1].stderr, "{}\n{}", ends[0].shown(), ends[1].shown());
        assert_eq!(ends[0].code, ends[1].code);
        assert_eq!(tool.files("cache/results").len(), 3);
    }
}

#[test]
fn gc_that_fails_says_so() {
    let tool = attached();
    tool.plugin("good", r#"echo '{"code":7,"msg":"cannot"}'; exit 1"#);
    expect![[r#"
        1
        stdout: 
        stderr: error: plugin type="good" failed (delete): cannot
          Also: plugin type="good" failed (delete): cannot. Also: plugin type="good" failed (gc): cannot.
    "#]]
    .assert_eq(&tool.run(&["gc", "net"]).shown());
}

#[test]
fn a_network_that_disables_gc_is_left_alone() {
    let tool = attached();
    tool.write(
        "net.d/net.conflist",
        r#"{"cniVersion":"1.1.0","name":"net","disableGC":true,"plugins":[{"type":"good"}]}"#,
    );
    expect![[r#"
        0
        stdout: 
        stderr: warning: network net says disableGC: nothing is deleted
    "#]]
    .assert_eq(&tool.run(&["gc", "net", "--all"]).shown());
    assert_eq!((tool.log().as_str(), tool.files("cache/results").len()), ("", 3));
}

/// containerd attaches `lo` by a network of its own, which has no file. These entries name no namespace, as containerd 1.6
/// writes them, and are of an earlier boot.
#[test]
fn gc_and_doctor_know_a_network_that_has_only_entries_in_the_cache() {
    let tool = Tool::new();
    // {"cniVersion":"0.3.1","name":"cni-loopback","plugins":[{"type":"good"}]}
    let config = "eyJjbmlWZXJzaW9uIjoiMC4zLjEiLCJuYW1lIjoiY25pLWxvb3BiYWNrIiwicGx1Z2lucyI6W3sidHlwZSI6Imdvb2QifV19";
    let entry = format!(
        r#"{{"kind":"cniCacheV1","containerId":"old","config":"{config}","ifName":"lo","networkName":"cni-loopback","result":{{"cniVersion":"0.3.1"}}}}"#
    );
    let path = tool.write("cache/results/cni-loopback-old-lo", &entry);
    std::fs::File::options().write(true).open(path).unwrap().set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    let found = tool.run(&["doctor"]).stdout;
    tool.log();
    assert!(
        found.contains("old/lo: only in the cache")
            && found.contains("help: cnitool --cache-dir $DIR/cache gc cni-loopback"),
        "{found}"
    );
    tool.run(&["gc", "cni-loopback"]).ok();
    assert_eq!(tool.log(), "DEL old lo  []\n");
    assert_eq!(tool.files("cache/results").len(), 0);
    assert!(tool.run(&["gc", "cni-loopback"]).stderr.contains("no net configuration with name"));
}

/// Plugins keep what they find in use, and those of others do nothing on GC.
#[test]
fn gc_reports_as_deleted_only_what_is_gone() {
    let tool = Tool::new();
    let store = tool.path("store");
    let ipam = format!(r#"{{"type":"host-local","subnet":"10.199.7.0/24","dataDir":"{}"}}"#, store.display());
    tool.write(
        "net.d/net.conflist",
        &format!(r#"{{"cniVersion":"1.1.0","name":"net","plugins":[{{"type":"good","ipam":{ipam}}}]}}"#),
    );
    tool.write("store/net/10.199.7.3", "c7\r\neth0");
    tool.write("store/net/10.199.7.4", "c8\r\neth0");
    tool.plugin("good", r#"cat > "$dir/stdin"; rm -f "$dir/../store/net/10.199.7.4""#);
    let done = tool.run(&["gc", "net", "--all", "--force"]);
    expect![[r#"
        0
        stdout: NETWORK  CONTAINER  IFNAME  NETNS  VERDICT  OBJECTS
        net      c7         eth0    -      kept     address 10.199.7.3
        net      c8         eth0    -      deleted  address 10.199.7.4

        stderr: warning: the plugins have kept c7/eth0 in network net (address 10.199.7.3); to remove it: cnitool --cache-dir $DIR/cache del net /run/netns/gone --container-id c7 --ifname eth0
    "#]]
    .assert_eq(&done.shown());
}
