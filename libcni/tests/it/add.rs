//! ADD: all plugins or none.

use crate::test_folder::{Folder, GOOD, eth0, failing, network, wait};
use expect_test::expect;
use libcni::cni_spec::Code;
use libcni::{Attachment, Cancellation, Error, NetworkConf, TraceContext};

/// The error of an ADD of `plugins`.
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
fn a_plugin_gets_everything_about_the_attachment() {
    let folder = Folder::with(&[("a", r#"env | grep -E '^(CNI_|TRACE|BAGGAGE)' | sort > "$dir/env"; echo {}"#)]);
    let attachment = eth0().arg("K8S_POD_NAME", "web").unwrap().arg("IgnoreUnknown", "1").unwrap();
    let trace = TraceContext { traceparent: "00-1-2-01".into(), tracestate: "a=b".into(), baggage: String::new() };
    wait(folder.runtime().traced(trace).add(&network("1.0.0", &["a"]), &attachment)).unwrap();
    expect![[r#"
        CNI_ARGS=K8S_POD_NAME=web;IgnoreUnknown=1
        CNI_COMMAND=ADD
        CNI_CONTAINERID=c1
        CNI_IFNAME=eth0
        CNI_NETNS=/proc/self/ns/net
        CNI_PATH=$DIR
        TRACEPARENT=00-1-2-01
        TRACESTATE=a=b
    "#]]
    .assert_eq(&folder.stable(&folder.read("env")));
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
fn nothing_runs_when_an_executable_is_missing_or_none() {
    let folder = Folder::with(&[("a", GOOD)]);
    let error = fail(&folder, "1.0.0", &["a", "absent"]);
    expect![[r#"plugin type="absent" failed (add): failed to find plugin "absent" in path [$DIR]. Install absent into one of these folders, or correct the type."#]]
    .assert_eq(&folder.stable(&error.to_string()));
    folder.write("data", "no program");
    let error = fail(&folder, "1.0.0", &["a", "data"]);
    expect![[r#"plugin type="data" failed (add): cannot run plugin data: $DIR/data: EACCES: Permission denied. Make it executable, by chmod 755. Nothing was run."#]]
    .assert_eq(&folder.stable(&error.to_string()));
    expect![""].assert_eq(&folder.log());
}

#[test]
fn nothing_runs_with_a_name_or_version_that_is_none() {
    let folder = Folder::with(&[("a", GOOD)]);
    let unknown = fail(&folder, "9.0.0", &["a"]);
    assert_eq!(unknown.code(), Some(Code::INCOMPATIBLE_VERSION));
    let list = NetworkConf::parse(br#"{"name":"../net","plugins":[{"type":"a"}]}"#).unwrap();
    let name = wait(folder.runtime().add(&list, &eth0())).unwrap_err();
    expect!["invalid characters found in network name; ../net"].assert_eq(&name.to_string());
    assert!(Attachment::new("../c", "eth0").is_err() && Attachment::new("c", "a/b").is_err());
    expect![""].assert_eq(&folder.log());
}

#[test]
fn a_plugin_without_a_usable_result_is_rolled_back() {
    let silent = r#"echo "$CNI_COMMAND $name" >> "$dir/log""#;
    let odd = r#"echo "$CNI_COMMAND $name" >> "$dir/log"; echo '{"cniVersion":"1.0.0","ips":[{"address":5}]}'"#;
    let liar = r#"echo "$CNI_COMMAND $name" >> "$dir/log"; [ $CNI_COMMAND = DEL ] || echo '{"code":7,"msg":"no"}'"#;
    let folder = Folder::with(&[("a", GOOD), ("silent", silent), ("odd", odd), ("liar", liar)]);
    let texts = ["silent", "odd", "liar"].map(|plugin| fail(&folder, "1.0.0", &["a", plugin]).to_string());
    expect![[r#"
        plugin type="silent" failed (add): cannot use result: the plugin ended well but printed none. Rolled back: silent, a.
        plugin type="odd" failed (add): cannot read result: key ips[0].address = 5: expected a string. The result was read as one of version 1.0.0. Rolled back: odd, a.
        plugin type="liar" failed (add): no. Rolled back: a."#]]
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
fn stderr_is_streamed_with_its_origin() {
    let folder = Folder::with(&[("a", r#"echo "$name says hello" >&2; echo {}"#)]);
    let (send, receive) = std::sync::mpsc::channel();
    let runtime = folder
        .builder()
        .stderr(move |origin, bytes| {
            send.send((origin.plugin.clone(), origin.ifname.clone(), bytes.to_vec())).unwrap();
        })
        .build();
    wait(runtime.add(&network("1.0.0", &["a"]), &eth0())).unwrap();
    let (plugin, ifname, bytes) = receive.recv().unwrap();
    assert_eq!((plugin.as_str(), ifname.as_str(), &bytes[..]), ("a", "eth0", &b"a says hello\n"[..]));
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
