//! The cache's entry of an ADD that is not finished.

use crate::test_folder::{Folder, GOOD, eth0, failing, network, own, wait};
use expect_test::expect;
use libcni::cni_spec::{Code, NetworkName};
use libcni::{Cached, Error, NetworkConf};
use std::os::unix::fs::MetadataExt;

const FILE: &str = "cache/results/net-c1-eth0";

/// A plugin that keeps a copy of the cache's entry as it is while the plugin runs: once it has all of its config.
const COPYING: &str = r#"
cat > /dev/null
[ "$CNI_COMMAND" != ADD ] || cp "$dir/cache/results/net-c1-eth0" "$dir/seen"
echo "$CNI_COMMAND $name [$CNI_NETNS] [$CNI_ARGS]" >> "$dir/log"; echo '{"cniVersion":"1.0.0"}'
"#;

fn cached(folder: &Folder) -> Option<Cached> {
    folder.runtime().cache().find(&NetworkName::parse("net").unwrap(), &eth0().id).unwrap()
}

/// An entry without the process that is recorded in it while an ADD is in progress.
fn without_running(entry: &str) -> String {
    let (rest, running) = entry.rsplit_once(r#","running":""#).expect("a plugin is noted");
    let words: Vec<_> = running.trim_end_matches(r#""}"#).split_whitespace().collect();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    assert!(words.len() == 7 && words[2] == boot.trim() && words[5] == boot.trim(), "{running}");
    assert_eq!(words[3], std::process::id().to_string(), "the runtime");
    let (rest, runtime) = rest.rsplit_once(r#","runtime":""#).expect("the runtime is noted");
    assert_eq!(runtime.split_whitespace().next(), Some(words[3]));
    format!("{rest}}}")
}

fn log(folder: &Folder) -> String {
    folder.log().replace(&own().netns, "$NETNS")
}

/// A folder where DEL of `b` has failed in the rollback of a failed ADD.
fn half_rolled_back() -> Folder {
    let folder = Folder::with(&[("a", COPYING), ("b", &failing("ADD DEL"))]);
    let attachment = own().arg("K", "V").unwrap();
    let error = wait(folder.runtime().add(&network("1.0.0", &["a", "b"]), &attachment)).unwrap_err();
    assert!(
        error.to_string().ends_with("The cache keeps the attachment as incomplete: call DEL once the cause is gone."),
        "{error}"
    );
    folder.plugin("b", GOOD);
    folder.clear_log();
    folder
}

#[test]
fn the_first_plugin_finds_the_intent_and_the_result_comes_last() {
    let folder = Folder::with(&[("a", COPYING)]);
    wait(folder.runtime().add(&network("1.0.0", &["a"]), &eth0().arg("K", "V").unwrap())).unwrap();
    let entry = without_running(&folder.read("seen"));
    let (entry, mark) = entry.rsplit_once(r#","namespace":""#).expect("the namespace is identified");
    assert!(mark.contains(&format!(":{}", std::fs::metadata("/proc/self/ns/net").unwrap().ino())), "{mark}");
    expect![[r#"{"kind":"cniCacheV1","containerId":"c1","config":"eyJjbmlWZXJzaW9uIjoiMS4wLjAiLCJuYW1lIjoibmV0IiwicGx1Z2lucyI6W3sidHlwZSI6ImEifV19","ifName":"eth0","networkName":"net","netns":"/proc/self/ns/net","cniArgs":[["K","V"]]"#]].assert_eq(entry);
    assert!(cached(&folder).unwrap().is_complete());
    assert_eq!(folder.cache_files(), ["net-c1-eth0"]);
}

#[test]
fn what_a_rollback_left_is_deleted_from_the_cache_alone() {
    let folder = half_rolled_back();
    let intent = cached(&folder).unwrap();
    assert!(!intent.is_complete() && intent.result_json().is_none());
    wait(folder.runtime().del_cached(&intent)).unwrap();
    expect!["DEL b, DEL a [$NETNS] [K=V]"].assert_eq(&log(&folder));
    expect![[r#"{"cniVersion":"1.0.0","name":"net","type":"b"}"#]].assert_eq(&folder.read("stdin.b.DEL"));
    assert_eq!(folder.cache_files(), [""; 0]);
}

#[test]
fn an_intent_is_listed_and_gc_deletes_it() {
    let folder = half_rolled_back();
    let (runtime, net) = (folder.runtime(), network("1.1.0", &["a", "b"]));
    let stale = runtime.stale(&net, &[]).unwrap();
    assert!(matches!(&stale[..], [intent] if !intent.is_complete()), "{stale:?}");
    wait(runtime.gc(&net, &[eth0().id]).without_inventory()).unwrap();
    assert!(cached(&folder).is_some(), "it is valid");
    folder.clear_log();
    wait(runtime.gc(&net, &[]).without_inventory()).unwrap();
    expect!["DEL b, DEL a [$NETNS] [K=V], GC a [] [], GC b"].assert_eq(&log(&folder));
    assert_eq!(folder.cache_files(), [""; 0]);
}

#[test]
fn an_entry_without_a_usable_config_cannot_be_deleted_from_the_cache_alone() {
    let folder = Folder::with(&[("a", GOOD)]);
    let oldest = r#"{"cniVersion":"1.0.0","ips":[{"address":"10.7.0.5/24"}]}"#;
    let named = r#"{"kind":"cniCacheV1","containerId":"c1","config":"CONF","ifName":"eth0","networkName":"net"}"#;
    let foreign = named.replace("CONF", "eyJuYW1lIjoib3RoZXIiLCJwbHVnaW5zIjpbeyJ0eXBlIjoiYSJ9XX0=");
    let texts = [oldest, &named.replace("CONF", "e30="), &foreign].map(|text| {
        folder.write(FILE, text);
        let error = wait(folder.runtime().del_cached(&cached(&folder).unwrap())).unwrap_err();
        assert!(matches!(error, Error::CachedConf { .. }) && error.code() == Some(Code::INVALID_CONFIG));
        folder.stable(&error.to_string())
    });
    expect![[r#"
        cannot use cached network config $DIR/cache/results/net-c1-eth0: the file is of the oldest format, which has none
        cannot use cached network config $DIR/cache/results/net-c1-eth0: cannot use network config: missing network name
        cannot use cached network config $DIR/cache/results/net-c1-eth0: it is that of network "other""#]].assert_eq(&texts.join("\n"));
    assert_eq!((folder.log().as_str(), folder.cache_files().len()), ("", 1));
}

/// A plugin that refuses configurations with `bad` in them at every verb, with this code.
fn refusing(code: u32) -> String {
    format!(
        r#"
config=$(cat); echo "$CNI_COMMAND $name" >> "$dir/log"
case $config in *bad*) echo '{{"code":{code},"msg":"'$name' cannot use key bad"}}'; exit 1;; esac
[ "$CNI_COMMAND" != ADD ] || echo '{{"cniVersion":"1.0.0"}}'
"#
    )
}

/// Network `net` of plugin `a` and one that is given this key.
fn with_key(last: &str, key: &str) -> NetworkConf {
    let text =
        format!(r#"{{"cniVersion":"1.1.0","name":"net","plugins":[{{"type":"a"}},{{"type":"{last}","{key}":1}}]}}"#);
    NetworkConf::parse(text.as_bytes()).unwrap()
}

#[test]
fn a_plugin_that_refuses_add_is_not_called_to_delete() {
    for code in [1, 2, 4, 6, 7, 8] {
        let folder = Folder::with(&[("a", GOOD), ("b", &refusing(code))]);
        let error = wait(folder.runtime().add(&with_key("b", "bad"), &own())).unwrap_err();
        expect![[r#"plugin type="b" failed (add): b cannot use key bad. Rolled back: a."#]]
            .assert_eq(&error.to_string());
        expect!["ADD a, ADD b, DEL a"].assert_eq(&folder.log());
        assert_eq!(folder.cache_files(), [""; 0]);
    }
}

/// A folder with an intent whose configuration plugin `b` refuses with the reference's code.
fn refused() -> Folder {
    let folder = Folder::with(&[("a", GOOD), ("b", &refusing(999))]);
    wait(folder.runtime().add(&with_key("b", "bad"), &own())).unwrap_err();
    folder.clear_log();
    folder
}

#[test]
fn an_intent_whose_configuration_is_refused_is_deleted_with_the_present_one() {
    for verb in ["del_cached_or", "del", "gc", "add"] {
        let (folder, mended) = (refused(), with_key("b", "good"));
        let (runtime, intent) = (folder.runtime(), cached(&folder).unwrap());
        assert!(wait(runtime.del_cached(&intent)).is_err());
        match verb {
            "del_cached_or" => wait(runtime.del_cached_or(&intent, Some(&mended))).unwrap(),
            "del" => wait(runtime.del(&mended, &own())).unwrap(),
            "gc" => wait(runtime.gc(&mended, &[]).without_inventory()).unwrap(),
            _ => {
                wait(runtime.add(&mended, &own())).unwrap();
                wait(runtime.del(&mended, &own())).unwrap();
            }
        }
        assert_eq!(folder.cache_files(), [""; 0], "{verb}");
    }
}

#[test]
fn del_with_a_refused_configuration_falls_back_to_the_intents() {
    let folder = half_rolled_back();
    folder.plugin("b", &refusing(7));
    wait(folder.runtime().del(&with_key("b", "bad"), &own())).unwrap();
    expect!["DEL b, DEL b, DEL a [$NETNS] []"].assert_eq(&log(&folder));
    assert_eq!(folder.cache_files(), [""; 0]);
}

#[test]
fn where_both_configurations_are_refused_the_error_has_each_once() {
    let folder = refused();
    let error = wait(folder.runtime().del(&with_key("b", "also bad"), &own())).unwrap_err();
    expect![[r#"plugin type="b" failed (delete): b cannot use key bad"#]].assert_eq(&error.to_string());
    expect!["DEL b, DEL b"].assert_eq(&folder.log());
    assert!(cached(&folder).is_some());
}

#[test]
fn a_complete_attachment_is_not_deleted_with_another_configuration() {
    let folder = Folder::with(&[("a", GOOD), ("b", GOOD)]);
    wait(folder.runtime().add(&with_key("b", "bad"), &own())).unwrap();
    folder.plugin("b", &refusing(7));
    folder.clear_log();
    let complete = cached(&folder).unwrap();
    wait(folder.runtime().del_cached_or(&complete, Some(&with_key("b", "good")))).unwrap_err();
    expect!["DEL b"].assert_eq(&folder.log());
    assert!(cached(&folder).is_some());
}

#[test]
fn an_attachment_is_forgotten_without_a_plugin() {
    let folder = refused();
    let (runtime, net, id) = (folder.runtime(), with_key("b", "good"), own().id);
    assert!(wait(runtime.forget(&net, &id).without_inventory()).unwrap());
    assert!(!wait(runtime.forget(&net, &id).without_inventory()).unwrap());
    folder.write(FILE, "{");
    assert!(wait(runtime.forget(&net, &id).without_inventory()).unwrap(), "a broken entry, too");
    assert_eq!((folder.log().as_str(), folder.cache_files().len()), ("", 0));
}

/// The reference's bridge refuses ADD and DEL by a configuration that does not decode, with 999.
#[test]
fn a_refused_attachment_of_the_references_bridge_ends_once_the_configuration_is_mended() {
    let folder = Folder::new();
    let name = "a_refused_attachment_of_the_references_bridge_ends_once_the_configuration_is_mended";
    let Some(plugins) = testns::reference_or_skip(name) else { return };
    let runtime = folder.builder().plugin_dirs([plugins]).build();
    let list = |mtu: &str| {
        let ipam = format!(r#"{{"type":"host-local","subnet":"10.9.0.0/24","dataDir":"{}"}}"#, folder.path().display());
        let text = format!(
            r#"{{"cniVersion":"1.0.0","name":"net","plugins":[{{"type":"bridge","mtu":{mtu},"ipam":{ipam}}}]}}"#
        );
        NetworkConf::parse(text.as_bytes()).unwrap()
    };
    let attachment = eth0().netns("/run/netns/none");
    let error = wait(runtime.add(&list(r#""x""#), &attachment)).unwrap_err();
    assert_eq!(error.code(), Some(Code::INTERNAL), "{error}");
    let cached = runtime.cache().list(None).unwrap().cached;
    let [intent] = &cached[..] else { panic!("one attachment") };
    wait(runtime.del_cached(intent)).unwrap_err();
    wait(runtime.gc(&list(r#""x""#), &[]).without_inventory()).unwrap_err();
    wait(runtime.del_cached_or(intent, Some(&list("1400")))).unwrap();
    assert_eq!(folder.cache_files(), [""; 0]);
}
