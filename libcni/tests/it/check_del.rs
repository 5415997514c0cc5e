//! CHECK and DEL.

use crate::test_folder::{Folder, GOOD, eth0, failing, network, wait};
use expect_test::expect;
use libcni::{AbsenceErrors, DelErrors, Error, NetworkConf, RuntimeConf};
use std::path::Path;

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
