//! ADD: all plugins or none.

use crate::test_folder::{Folder, GOOD, eth0, failing, network, wait};
use expect_test::expect;
use libcni::cni_spec::Code;
use libcni::{Cancellation, Error, NetworkConf};

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
