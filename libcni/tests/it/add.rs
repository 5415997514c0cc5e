//! ADD: all plugins or none. CHECK and DEL.

use crate::test_folder::{Folder, GOOD, eth0, failing, network, wait};
use expect_test::expect;
use libcni::cni_spec::Code;
use libcni::{AbsenceErrors, Cancellation, DelErrors, Error, NetworkConf, RuntimeConf};
use std::path::Path;

fn fail(folder: &Folder, version: &str, plugins: &[&str]) -> Error {
    wait(folder.runtime().add(&network(version, plugins), &eth0())).unwrap_err()
}

#[test]
fn a_result_is_converted_to_the_networks_version() {
    let folder = Folder::with(&[("a", GOOD), ("b", GOOD)]);
    wait(folder.runtime().add(&network("0.2.0", &["a", "b"]), &eth0())).unwrap();
    expect![[r#"{"cniVersion":"0.2.0","name":"net","type":"b","prevResult":{"cniVersion":"0.2.0","ip4":{"ip":"10.7.0.5/24"},"dns":{}}}"#]]
    .assert_eq(&folder.read("stdin.b.ADD"));
}

#[test]
fn a_failed_add_is_rolled_back_over_what_ran_newest_first() {
    let folder = Folder::with(&[("a", GOOD), ("b", GOOD), ("c", &failing("ADD")), ("d", GOOD)]);
    let error = fail(&folder, "1.0.0", &["a", "b", "c", "d"]);
    expect!["ADD a, ADD b, ADD c, DEL c, DEL b, DEL a"].assert_eq(&folder.log());
    expect![[r#"plugin type="c" failed (add): c cannot; more words. Rolled back: c, b, a."#]]
        .assert_eq(&error.to_string());
    assert_eq!(error.code(), Some(Code::TRY_AGAIN));
    assert_eq!(folder.cache_files(), [""; 0]);
    expect![[r#"{"cniVersion":"1.0.0","name":"net","type":"a","prevResult":{"cniVersion":"1.0.0","ips":[{"address":"10.7.0.5/24"}]}}"#]]
    .assert_eq(&folder.read("stdin.a.DEL"));
}

#[test]
fn what_cannot_be_rolled_back_is_reported() {
    let folder = Folder::with(&[("a", &failing("DEL")), ("b", GOOD), ("c", &failing("ADD DEL"))]);
    let error = fail(&folder, "0.3.1", &["a", "b", "c"]);
    expect!["ADD a, ADD b, ADD c, DEL c, DEL b, DEL a"].assert_eq(&folder.log());
    expect![[r#"plugin type="c" failed (add): c cannot; more words. Rolled back: b. Left behind: DEL of plugin c failed with the same error. Left behind: plugin type="a" failed (delete): a cannot; more words. The cache keeps the attachment as incomplete: call DEL once the cause is gone."#]]
    .assert_eq(&error.to_string());
    // DEL has no prevResult before 0.4.0.
    expect![[r#"{"cniVersion":"0.3.1","name":"net","type":"b"}"#]].assert_eq(&folder.read("stdin.b.DEL"));
}

#[test]
fn a_plugin_that_cannot_be_started_is_not_rolled_back() {
    let folder = Folder::with(&[("a", GOOD)]);
    let broken = folder.plugin("b", "");
    std::fs::write(&broken, "#!/no/such/interpreter\n").unwrap();
    let error = fail(&folder, "1.0.0", &["a", "b"]);
    expect!["ADD a, DEL a"].assert_eq(&folder.log());
    expect![[r#"plugin type="b" failed (add): cannot start plugin $DIR/b: its interpreter /no/such/interpreter does not exist. Install it, or correct line 1 of the file. Rolled back: a."#]]
    .assert_eq(&folder.stable(&error.to_string()));
}

#[test]
fn a_plugin_without_a_usable_result_is_rolled_back() {
    let silent = r#"echo "$CNI_COMMAND $name" >> "$dir/log""#;
    let odd = r#"echo "$CNI_COMMAND $name" >> "$dir/log"; echo '{"cniVersion":"1.0.0","ips":[{"address":5}]}'"#;
    let liar = r#"echo "$CNI_COMMAND $name" >> "$dir/log"; [ $CNI_COMMAND = DEL ] || echo '{"code":7,"msg":"no"}'"#;
    let cut = r#"[ $CNI_COMMAND = DEL ] || printf '{"cniVersion":"1.0.0","ips":[{"addr'"#;
    let dead = r#"[ $CNI_COMMAND = DEL ] || { echo '{"cniVersion":"1.0.0"}'; kill -KILL $$; }"#;
    let scripts = [("silent", silent), ("odd", odd), ("liar", liar), ("cut", cut), ("dead", dead), ("a", GOOD)];
    let folder = Folder::with(&scripts);
    let texts =
        ["silent", "odd", "liar", "cut", "dead"].map(|plugin| fail(&folder, "1.0.0", &["a", plugin]).to_string());
    expect![[r#"
        plugin type="silent" failed (add): cannot use result: the plugin ended well but printed none. Rolled back: silent, a.
        plugin type="odd" failed (add): cannot read result: key ips[0].address = 5: expected a string. The result was read as one of version 1.0.0. Rolled back: odd, a.
        plugin type="liar" failed (add): no. Rolled back: a.
        plugin type="cut" failed (add): cannot use result: cannot parse JSON: EOF while parsing a string at line 1 column 35. It printed "{\"cniVersion\":\"1.0.0\",\"ips\":[{\"addr". Rolled back: cut, a.
        plugin type="dead" failed (add): netplugin failed but its stdout is no error object: stdout "{\"cniVersion\":\"1.0.0\"}", stderr "". How it ended: killed by SIGKILL. Rolled back: dead, a."#]]
    .assert_eq(&texts.join("\n"));
}

#[test]
fn the_error_has_the_plugins_own_name() {
    let folder = Folder::with(&[("a", &failing("ADD"))]);
    let list = NetworkConf::parse(br#"{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"a","name":"first"}]}"#);
    let error = wait(folder.runtime().add(&list.unwrap(), &eth0())).unwrap_err();
    expect![[r#"plugin type="a" name="first" failed (add): a cannot; more words. Rolled back: a."#]]
        .assert_eq(&error.to_string());
}

#[test]
fn a_cache_that_cannot_be_written_fails_the_add_before_or_after() {
    let folder = Folder::with(&[("a", GOOD)]);
    folder.write("cache", "a file where the folder should be");
    let error = fail(&folder, "1.0.0", &["a"]);
    assert!(matches!(error, Error::Cache { verb: "write", .. }), "{error:?}");
    expect![""].assert_eq(&folder.log());

    // The folder is there, but the file's place is taken.
    let folder = Folder::with(&[(
        "a",
        r#"[ $CNI_COMMAND = DEL ] || { rm "$dir/cache/results/net-c1-eth0"; mkdir -p "$dir/cache/results/net-c1-eth0/x"; }; echo "$CNI_COMMAND a" >> "$dir/log"; echo {}"#,
    )]);
    let error = fail(&folder, "1.0.0", &["a"]);
    expect!["ADD a, DEL a"].assert_eq(&folder.log());
    expect!["cannot write cache $DIR/cache/results/net-c1-eth0: Is a directory. Rolled back: a. Left behind: cannot remove cache $DIR/cache/results/net-c1-eth0: Is a directory."]
        .assert_eq(&folder.stable(&error.with_causes()));
    assert_eq!(folder.cache_files(), ["net-c1-eth0"], "no unfinished file is left");
}

#[test]
fn a_network_without_plugins_is_an_error() {
    let list = NetworkConf::parse(br#"{"cniVersion":"1.0.0","name":"n"}"#).unwrap();
    let error = wait(Folder::new().runtime().add(&list, &eth0())).unwrap_err();
    expect!["cannot add to network n: it has no plugins"].assert_eq(&error.to_string());
}

#[test]
fn a_cancelled_add_is_rolled_back() {
    let stuck = r#"echo "$CNI_COMMAND $name" >> "$dir/log"; [ $CNI_COMMAND = DEL ] || { echo >&2; exec sleep 1000; }"#;
    let folder = Folder::with(&[("a", GOOD), ("b", stuck), ("c", GOOD)]);
    let cancellation = Cancellation::default();
    let seen = cancellation.clone();
    // The stuck plugin says on stderr that it has begun.
    let runtime = folder.builder().stderr(move |_, _| seen.cancel()).build().cancelled_by(cancellation);
    let net = network("1.0.0", &["a", "b", "c"]);
    let error = wait(runtime.add(&net, &eth0())).unwrap_err();
    assert_eq!(error.code(), Some(Code::INTERRUPTED), "{error}");
    expect!["ADD a, ADD b, DEL b, DEL a"].assert_eq(&folder.log());
    // Whatever comes later does not begin.
    folder.clear_log();
    assert_eq!(wait(runtime.del(&net, &eth0())).unwrap_err().code(), Some(Code::INTERRUPTED));
    expect![""].assert_eq(&folder.log());
}

const RESULT: &str = r#"{"kind":"cniCacheV1","containerId":"c1","config":"","ifName":"eth0","networkName":"net","result":{"cniVersion":"1.0.0","ips":[{"address":"10.7.0.9/24"}]}}"#;
const FILE: &str = "cache/results/net-c1-eth0";

#[test]
fn check_runs_without_a_result_when_none_is_cached_or_the_file_is_broken() {
    let folder = Folder::with(&[("a", GOOD)]);
    wait(folder.runtime().check(&network("1.0.0", &["a"]), &eth0())).unwrap();
    folder.write(FILE, r#"{"kind":"cniCacheV1","#);
    wait(folder.runtime().check(&network("1.0.0", &["a"]), &eth0())).unwrap();
    expect!["CHECK a, CHECK a"].assert_eq(&folder.log());
    expect![[r#"{"cniVersion":"1.0.0","name":"net","type":"a"}"#]].assert_eq(&folder.read("stdin.a.CHECK"));
}

#[test]
fn check_with_a_result_that_does_not_fit_is_an_error() {
    let folder = Folder::with(&[("a", GOOD)]);
    folder.write(FILE, RESULT.replace("1.0.0", "7.0.0"));
    let error = wait(folder.runtime().check(&network("1.0.0", &["a"]), &eth0())).unwrap_err();
    assert!(matches!(error, Error::CachedResult { .. }), "{error:?}");
}

#[test]
fn del_that_carries_on_reports_all_errors() {
    let folder = Folder::with(&[("a", &failing("DEL")), ("c", GOOD)]);
    folder.write(FILE, RESULT);
    let runtime = folder.builder().del_errors(DelErrors::CarryOn).build();
    let error = wait(runtime.del(&network("1.0.0", &["a", "absent", "c"]), &eth0())).unwrap_err();
    expect![[r#"
        plugin type="absent" failed (delete): failed to find plugin "absent" in path [$DIR]. Install absent into one of these folders, or correct the type.
        plugin type="a" failed (delete): a cannot; more words"#]]
    .assert_eq(&folder.stable(&error.to_string()));
    expect!["DEL c, DEL a"].assert_eq(&folder.log());
    assert_eq!(folder.cache_files(), ["net-c1-eth0"], "so that DEL can be tried again");
}

#[test]
fn del_goes_on_without_a_result_that_does_not_fit() {
    let folder = Folder::with(&[("a", GOOD), ("f", &failing("DEL"))]);
    folder.write(FILE, RESULT.replace("1.0.0", "7.0.0"));
    wait(folder.runtime().del(&network("1.0.0", &["a", "f"]), &eth0())).unwrap_err();
    assert_eq!(folder.cache_files(), ["net-c1-eth0"], "it names what DEL has not removed");
    wait(folder.runtime().del(&network("1.0.0", &["a"]), &eth0())).unwrap();
    assert_eq!(folder.cache_files(), [""; 0]);
    expect![[r#"{"cniVersion":"1.0.0","name":"net","type":"a"}"#]].assert_eq(&folder.read("stdin.a.DEL"));
}

/// Prints `$dir/<name>.says` as its error.
const SAYING: &str = r#"
echo "$CNI_COMMAND $name [$CNI_NETNS]" >> "$dir/log"
cat "$dir/$name.says"; exit 1
"#;

fn gone() -> RuntimeConf {
    RuntimeConf::new("c1", "eth0").unwrap().netns("/run/netns/no-such-namespace")
}

/// The output of plugins whose namespace is gone, and whether that counts as done where the caller wants it to.
#[test]
fn a_printed_error_about_an_absent_thing_may_count_as_done() {
    let folder = Folder::with(&[("a", SAYING)]);
    let forgiving = folder.builder().absence_errors(AbsenceErrors::CountAsDone).build();
    let net = network("1.0.0", &["a"]);
    let is_done = |runtime: &libcni::Runtime, netns: &str, says: &str| {
        folder.write("a.says", says);
        wait(runtime.del(&net, &gone().netns(netns))).is_ok()
    };
    let absent = r#"{"code":999,"msg":"failed to open netns: no such file or directory"}"#;
    assert!(is_done(&forgiving, "/run/netns/no-such-namespace", absent));
    assert!(is_done(&forgiving, "", r#"{"code":999,"msg":"cannot","details":"no such file or directory"}"#));
    assert!(!is_done(&folder.runtime(), "/run/netns/no-such-namespace", absent), "the option is off");
    assert!(!is_done(&forgiving, "/proc/self/ns/net", absent), "the namespace is there");
    for other in [
        r#"{"code":999,"msg":"device is busy"}"#,
        r#"{"code":999,"msg":"failed: fork/exec /sbin/iptables: no such file or directory"}"#,
        r#"{"code":999,"msg":"exec: \"ip\": executable file not found: no such file or directory"}"#,
        r#"{"code":108,"msg":"cannot start plugin x: no such file or directory"}"#,
        "sh: no such file or directory",
    ] {
        assert!(!is_done(&forgiving, "/run/netns/no-such-namespace", other), "{other}");
    }
}

#[test]
fn a_missing_executable_never_counts_as_done() {
    let folder = Folder::new();
    let runtime = folder.builder().absence_errors(AbsenceErrors::CountAsDone).build();
    assert!(wait(runtime.del(&network("1.0.0", &["absent"]), &gone())).is_err());
    std::fs::write(folder.plugin("b", ""), "#!/no/such/interpreter\n").unwrap();
    let error = wait(runtime.del(&network("1.0.0", &["b"]), &gone())).unwrap_err();
    assert!(error.to_string().contains("its interpreter /no/such/interpreter does not exist"), "{error}");
}

/// All of the reference's plugins that can be called without their devices. sbr wants to lock the namespace.
#[test]
fn the_references_plugins_succeed() {
    let Some(theirs) = testns::reference_or_skip("the_references_plugins_succeed") else { return };
    let folder = Folder::new();
    let data = folder.path().join("data").to_str().unwrap().to_owned();
    let ipam = format!(r#""ipam":{{"type":"host-local","subnet":"10.9.0.0/24","dataDir":"{data}"}}"#);
    let plugins = [
        format!(r#"{{"type":"bridge","ipMasq":true,{ipam}}}"#),
        format!(r#"{{"type":"ptp",{ipam}}}"#),
        format!(r#"{{"type":"ipvlan","master":"eth9",{ipam}}}"#),
        r#"{"type":"host-device","device":"eth9"}"#.to_owned(),
        r#"{"type":"loopback"}"#.to_owned(),
        r#"{"type":"portmap","snat":true}"#.to_owned(),
        r#"{"type":"bandwidth","ingressRate":1000,"ingressBurst":1000}"#.to_owned(),
        r#"{"type":"firewall","backend":"iptables"}"#.to_owned(),
        r#"{"type":"tuning","mtu":1400}"#.to_owned(),
        r#"{"type":"vrf","vrfname":"v"}"#.to_owned(),
        r#"{"type":"sbr"}"#.to_owned(),
    ];
    let list = format!(r#"{{"cniVersion":"1.0.0","name":"net","plugins":[{}]}}"#, plugins.join(","));
    let net = NetworkConf::parse(list.as_bytes()).unwrap();
    let builder = || folder.builder().plugin_dirs([theirs]).del_errors(DelErrors::CarryOn);
    let error = wait(builder().build().del(&net, &gone())).unwrap_err();
    expect![[r#"plugin type="sbr" failed (delete): no such file or directory"#]].assert_eq(&error.to_string());
    wait(builder().absence_errors(AbsenceErrors::CountAsDone).build().del(&net, &gone())).unwrap();
    assert!(!Path::new("/run/netns/no-such-namespace").exists());
}
