//! CHECK and DEL.

use crate::test_folder::{Folder, GOOD, eth0, failing, network, wait};
use expect_test::expect;
use libcni::{DelErrors, Error};

const RESULT: &str = r#"{"kind":"cniCacheV1","containerId":"c1","config":"","ifName":"eth0","networkName":"net","result":{"cniVersion":"1.0.0","ips":[{"address":"10.7.0.9/24"}]}}"#;
const FILE: &str = "cache/results/net-c1-eth0";

#[test]
fn check_runs_forward_with_the_cached_result_until_the_first_error() {
    let folder = Folder::with(&[("a", GOOD), ("b", &failing("CHECK")), ("c", GOOD)]);
    folder.write(FILE, RESULT);
    let error = wait(folder.runtime().check(&network("0.4.0", &["a", "b", "c"]), &eth0())).unwrap_err();
    expect![[r#"plugin type="b" failed (check): b cannot; more words"#]].assert_eq(&error.to_string());
    expect!["CHECK a, CHECK b"].assert_eq(&folder.log());
    expect![[r#"{"cniVersion":"0.4.0","name":"net","type":"a","prevResult":{"cniVersion":"0.4.0","ips":[{"version":"4","address":"10.7.0.9/24"}],"dns":{}}}"#]]
    .assert_eq(&folder.read("stdin.a.CHECK"));
}

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
fn check_can_be_disabled_and_a_result_that_does_not_fit_is_an_error() {
    let folder = Folder::with(&[("a", GOOD)]);
    let mut net = network("1.0.0", &["a"]);
    net.disable_check = true;
    wait(folder.runtime().check(&net, &eth0())).unwrap();
    expect![""].assert_eq(&folder.log());
    folder.write(FILE, RESULT.replace("1.0.0", "7.0.0"));
    let error = wait(folder.runtime().check(&network("1.0.0", &["a"]), &eth0())).unwrap_err();
    assert!(matches!(error, Error::CachedResult { .. }), "{error:?}");
}

#[test]
fn del_stops_at_an_error_and_keeps_the_result() {
    let folder = Folder::with(&[("a", GOOD), ("b", &failing("DEL")), ("c", GOOD)]);
    folder.write(FILE, RESULT);
    let error = wait(folder.runtime().del(&network("1.0.0", &["a", "b", "c"]), &eth0())).unwrap_err();
    expect![[r#"plugin type="b" failed (delete): b cannot; more words"#]].assert_eq(&error.to_string());
    expect!["DEL c, DEL b"].assert_eq(&folder.log());
    assert_eq!(folder.cache_files(), ["net-c1-eth0"]);
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

#[test]
fn del_has_no_result_before_0_4_0() {
    let folder = Folder::with(&[("a", GOOD)]);
    folder.write(FILE, RESULT);
    wait(folder.runtime().del(&network("0.3.1", &["a"]), &eth0())).unwrap();
    expect![[r#"{"cniVersion":"0.3.1","name":"net","type":"a"}"#]].assert_eq(&folder.read("stdin.a.DEL"));
    assert_eq!(folder.cache_files(), [""; 0]);
}
