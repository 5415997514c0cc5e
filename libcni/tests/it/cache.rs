//! The cache, in the reference's place and format.

use crate::test_folder::{Folder, GOOD, eth0, failing, network, wait};
use expect_test::expect;
use libcni::cni_spec::{Code, ContainerId, NetworkName, SpecVersion};
use libcni::{NetworkConf, RuntimeConf, conflist};
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::time::SystemTime;

/// A cache entry as the reference writes it.
const THEIRS: &str = r#"{"kind":"cniCacheV1","containerId":"c1","config":"eyJjbmlWZXJzaW9uIjoiMS4wLjAiLCJuYW1lIjoib2ZmaWNlIiwicGx1Z2lucyI6W3sidHlwZSI6ImEifV19","ifName":"eth0","networkName":"office","netns":"/run/netns/a","cniArgs":[["K","V"]],"capabilityArgs":{"mac":"0a:00:00:00:00:05","big":12345678901234567890123},"result":{"cniVersion":"1.0.0","ips":[{"address":"10.7.0.5/24"}]}}"#;

#[test]
fn the_file_is_byte_for_byte_the_references() {
    let folder = Folder::with(&[("a", GOOD)]);
    let office = NetworkConf::parse(br#"{"cniVersion":"1.0.0","name":"office","plugins":[{"type":"a"}]}"#).unwrap();
    let mut attachment = eth0().netns("/run/netns/a").arg("K", "V").unwrap();
    attachment.capability_args =
        libcni::CapabilityArgs::parse(r#"{"mac":"0a:00:00:00:00:05","big":12345678901234567890123}"#).unwrap();
    wait(folder.runtime().add(&office, &attachment)).unwrap();
    assert_eq!(folder.read("cache/results/office-c1-eth0"), THEIRS);
    let mode = |path| folder.path().join(path).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("cache/results"), mode("cache/results/office-c1-eth0")), (0o700, 0o600));
    assert_eq!(folder.cache_files(), ["office-c1-eth0"]);
}

#[test]
fn a_file_of_the_references_is_read_whole() {
    let folder = Folder::with(&[("a", GOOD)]);
    folder.write("cache/results/office-c1-eth0", THEIRS);
    let runtime = folder.runtime();
    let listing = runtime.cache().list(Some(&ContainerId::parse("c1").unwrap())).unwrap();
    let [cached] = &listing.cached[..] else { panic!("{listing:?}") };
    assert_eq!(cached.network.as_str(), "office");
    assert_eq!(cached.attachment.netns, "/run/netns/a");
    assert_eq!(cached.attachment.args.to_string(), "K=V");
    assert_eq!(cached.attachment.capability_args.find("big"), Some("12345678901234567890123"));
    assert_eq!(cached.result(SpecVersion::V1_0_0).unwrap().unwrap().ips.len(), 1);
    // The cache alone is enough for DEL.
    let office = cached.network_conf().unwrap();
    wait(runtime.del(&office, &cached.attachment)).unwrap();
    assert_eq!((folder.log().as_str(), folder.cache_files().len()), ("DEL a", 0));
}

#[test]
fn plugins_from_the_folder_are_cached_with_the_list() {
    let folder = Folder::with(&[("a", GOOD), ("b", GOOD)]);
    folder.write("net.d/n/1.conf", r#"{"type":"b", "big":1.50}"#);
    folder.write("net.d/n.conflist", r#"{"cniVersion":"1.0.0","name":"n","plugins":[ {"type":"a"} ]}"#);
    let found = conflist::find(&folder.path().join("net.d"), "n").unwrap();
    wait(folder.runtime().add(&found.network, &eth0())).unwrap();
    let listing = folder.runtime().cache().list(None).unwrap();
    expect![[r#"{"cniVersion":"1.0.0","name":"n","loadOnlyInlinedPlugins":true,"plugins":[{"type":"a"},{"type":"b", "big":1.50}]}"#]]
    .assert_eq(&String::from_utf8_lossy(&listing.cached[0].config));
    assert_eq!(listing.cached[0].network_conf().unwrap().plugins.len(), 2);
}

#[test]
fn a_single_plugins_config_is_cached_as_a_list() {
    let folder = Folder::with(&[("a", GOOD)]);
    let single = NetworkConf::parse_single(b"{\"cniVersion\":\"1.0.0\",\"name\":\"n\",\"type\":\"a\"}\n").unwrap();
    wait(folder.runtime().add(&single, &eth0())).unwrap();
    let listing = folder.runtime().cache().list(None).unwrap();
    expect![[r#"{"name":"n","cniVersion":"1.0.0","plugins":[{"cniVersion":"1.0.0","name":"n","type":"a"}]}"#]]
        .assert_eq(&String::from_utf8_lossy(&listing.cached[0].config));
}

/// A bare result has no room for the process of the plugin that runs.
#[test]
fn the_oldest_format_is_a_bare_result_and_stays_as_it_was_when_del_fails() {
    let folder = Folder::with(&[("a", &failing("DEL"))]);
    let oldest = r#"{"cniVersion":"0.4.0","ips":[{"version":"4","address":"10.7.0.9/24"}],"dns":{}}"#;
    folder.write("cache/results/net-c1-eth0", oldest);
    wait(folder.runtime().del(&network("1.0.0", &["a"]), &eth0())).unwrap_err();
    assert_eq!(folder.read("cache/results/net-c1-eth0"), oldest);
    expect![[r#"{"cniVersion":"1.0.0","name":"net","type":"a","prevResult":{"cniVersion":"1.0.0","ips":[{"address":"10.7.0.9/24"}]}}"#]]
    .assert_eq(&folder.read("stdin.a.DEL"));
}

#[test]
fn foreign_and_broken_files_are_passed_over() {
    let folder = Folder::new();
    let good = THEIRS.replace("office", "n");
    for (name, text) in [
        ("n-c1-eth0", good.as_str()),
        ("n-c1-eth0.bak", good.as_str()),
        ("empty", ""),
        ("cut", &good[..good.len() / 2]),
        ("list", "[1]"),
        ("traversal", &good.replace("\"c1\"", "\"../c1\"")),
        ("base64", &good.replace("eyJ", "***")),
        ("other-kind", r#"{"kind":"cniCacheV9"}"#),
        ("bare-c1-result", r#"{"cniVersion":"0.4.0"}"#),
        (".unfinished-1-0", good.as_str()),
    ] {
        folder.write(&format!("cache/results/{name}"), text);
    }
    std::fs::create_dir(folder.path().join("cache/results/folder")).unwrap();
    let listing = folder.runtime().cache().list(None).unwrap();
    assert_eq!(listing.cached.len(), 1);
    let files: Vec<_> = listing.passed_over.iter().map(|file| folder.stable(&file.to_string())).collect();
    expect![[r#"
        $DIR/cache/results/base64 ignored: cannot read key config: Invalid symbol 42, offset 0.
        $DIR/cache/results/cut ignored: EOF while parsing a value at line 1 column 178
        $DIR/cache/results/empty ignored: EOF while parsing a value at line 1 column 0
        $DIR/cache/results/folder ignored: it is no regular file
        $DIR/cache/results/list ignored: invalid type: integer `1`, expected a string at line 1 column 2
        $DIR/cache/results/n-c1-eth0.bak ignored: it is a copy of another file of the cache
        $DIR/cache/results/traversal ignored: invalid characters in containerID; ../c1"#]]
    .assert_eq(&files.join("\n"));
    // Each counts as missing when it is looked up by name, too.
    let name = NetworkName::parse("n").unwrap();
    for text in ["", "[1]", "{", &good[..100], r#"{"cniVersion":"1.0.0","ips":5}"#, &good.replace("\"c1\"", "5")] {
        folder.write("cache/results/n-c1-eth0", text);
        assert!(folder.runtime().cache().find(&name, &eth0().id).unwrap().is_none(), "{text}");
    }
}

#[test]
fn names_with_dashes_are_distinguished() {
    let folder = Folder::with(&[("a", GOOD)]);
    let runtime = folder.runtime();
    for container in ["x", "a-x-b", "x-b"] {
        wait(runtime.add(&network("1.0.0", &["a"]), &RuntimeConf::new(container, "eth0").unwrap())).unwrap();
    }
    let listing = runtime.cache().list(Some(&ContainerId::parse("x").unwrap())).unwrap();
    assert_eq!(listing.cached.len(), 1);
}

/// `one-two` and `x`, `one` and `two-x`: one file name.
#[test]
fn an_entry_of_another_attachment_counts_as_missing() {
    let folder = Folder::with(&[("a", GOOD)]);
    let runtime = folder.runtime();
    let (outer, inner) = (RuntimeConf::new("two-x", "eth0").unwrap(), RuntimeConf::new("x", "eth0").unwrap());
    let named = |name: &str| NetworkName::parse(name).unwrap();
    let mut network = network("1.0.0", &["a"]);
    "one".clone_into(&mut network.name);
    wait(runtime.add(&network, &outer)).unwrap();
    let cache = runtime.cache();
    assert_eq!(cache.path(&named("one"), &outer.id), cache.path(&named("one-two"), &inner.id));
    assert!(cache.find(&named("one"), &outer.id).unwrap().is_some());
    assert!(cache.find(&named("one-two"), &inner.id).unwrap().is_none());
    "one-two".clone_into(&mut network.name);
    wait(runtime.del(&network, &inner)).unwrap();
    assert!(cache.find(&named("one"), &outer.id).unwrap().is_some(), "DEL took another attachment's entry");
}

#[test]
fn an_add_whose_file_is_another_attachments_is_refused_before_anything_runs() {
    let folder = Folder::with(&[("a", GOOD)]);
    let runtime = folder.runtime();
    let mut net = network("1.0.0", &["a"]);
    "one".clone_into(&mut net.name);
    // As the reference writes it.
    let theirs = THEIRS.replace("office", "one").replace("\"c1\"", "\"two-x\"");
    folder.write("cache/results/one-two-x-eth0", &theirs);
    "one-two".clone_into(&mut net.name);
    let inner = RuntimeConf::new("x", "eth0").unwrap();
    let error = wait(runtime.add(&net, &inner)).unwrap_err();
    expect!["cannot add x/eth0 to network one-two: its cache file $DIR/cache/results/one-two-x-eth0 is that of two-x/eth0 in network one; DEL that attachment first, or choose another container ID"]
        .assert_eq(&folder.stable(&error.to_string()));
    assert_eq!(error.code(), Some(Code::EXISTS));
    assert_eq!((folder.log().as_str(), folder.read("cache/results/one-two-x-eth0")), ("", theirs));
    assert!(!wait(runtime.forget(&net, &inner.id).without_inventory()).unwrap());
}

#[test]
fn a_reader_never_sees_half_a_file() {
    let folder = Folder::with(&[("a", "echo {}")]);
    let (runtime, net, gone) = (folder.runtime(), network("1.0.0", &["a"]), eth0().netns("/gone"));
    wait(runtime.add(&net, &gone)).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| (0..50).for_each(|_| drop(wait(runtime.add(&net, &gone)).unwrap())));
        while !writer.is_finished() {
            let listing = runtime.cache().list(None).unwrap();
            // There is no file between the DEL of the earlier ADD and the next.
            assert!(listing.cached.len() < 2 && listing.passed_over.is_empty(), "{listing:?}");
        }
    });
}

/// Cache entries as containerd 1.6 and podman 4 write them: the namespace is in the result alone, or, of networks whose plugins print no
/// sandbox, nowhere.
#[test]
fn an_entry_without_a_namespace_has_the_results() {
    let folder = Folder::new();
    let entry = |name: &str, result: &str| {
        let text = format!(
            r#"{{"kind":"cniCacheV1","containerId":"{name}","config":"","ifName":"eth0","networkName":"net","result":{result}}}"#
        );
        folder.write(&format!("cache/results/net-{name}-eth0"), text)
    };
    let with = |sandbox: &str| {
        format!(r#"{{"cniVersion":"1.0.0","interfaces":[{{"name":"br"}},{{"name":"eth0","sandbox":"{sandbox}"}}]}}"#)
    };
    entry("gone", &with("/run/netns/cni-1"));
    entry("lives", &with("/proc/self/ns/net"));
    entry("unknown", r#"{"cniVersion":"1.0.0"}"#);
    let earlier = [
        entry("earlier", r#"{"cniVersion":"1.0.0"}"#),
        // The process that has that number now is another one.
        entry("reused", &with("/proc/self/ns/net")),
    ];
    for path in earlier {
        File::options().write(true).open(path).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    }
    let listing = folder.runtime().cache().list(None).unwrap();
    let shown: Vec<_> = listing
        .cached
        .iter()
        .map(|cached| {
            let RuntimeConf { id, netns, .. } = &cached.attachment;
            format!("{} [{netns}] {}", id.container_id, cached.namespace().as_str())
        })
        .collect();
    expect![[r#"
        earlier [] gone
        gone [/run/netns/cni-1] gone
        lives [/proc/self/ns/net] present
        reused [/proc/self/ns/net] gone
        unknown [] unknown"#]]
    .assert_eq(&shown.join("\n"));
}
