//! GC and STATUS.

use crate::folder::{Folder, GOOD, eth0, failing, network, wait};
use expect_test::expect;
use libcni::cni_spec::Code;
use libcni::{Attachment, Error};

/// A folder where c1, c2 and c3 are attached to `net`, and c1 to `other`.
fn attached(script: &str) -> Folder {
    let folder = Folder::with(&[("a", GOOD), ("b", script)]);
    let (runtime, net) = (folder.runtime(), network("1.1.0", &["a"]));
    let mut other = net.clone();
    other.name = "other".into();
    for container in ["c1", "c2", "c3"] {
        let attachment = Attachment::new(container, "eth0").unwrap().netns("/gone").arg("K", container).unwrap();
        wait(runtime.add(&net, &attachment)).unwrap();
    }
    wait(runtime.add(&other, &eth0())).unwrap();
    folder.clear_log();
    folder
}

#[test]
fn gc_deletes_invalid_attachments_and_gives_plugins_the_valid_ones() {
    let folder = attached(GOOD);
    folder.plugin("a", &format!("{GOOD}\necho \"$CNI_CONTAINERID [$CNI_NETNS] $CNI_ARGS\" >> \"$dir/log\""));
    let valid = [Attachment::new("c2", "eth0").unwrap().id];
    wait(folder.runtime().gc(&network("1.1.0", &["a", "b"]), &valid)).unwrap();
    expect!["DEL b, DEL a, c1 [] K=c1, DEL b, DEL a, c3 [] K=c3, GC a,  [] , GC b"].assert_eq(&folder.log());
    assert_eq!(folder.cache_files(), ["net-c2-eth0", "other-c1-eth0"]);
    expect![[r#"{"cniVersion":"1.1.0","name":"net","type":"b","cni.dev/valid-attachments":[{"containerID":"c2","ifname":"eth0"}],"cni.dev/attachments":[{"containerID":"c2","ifname":"eth0"}]}"#]]
    .assert_eq(&folder.read("stdin.b.GC"));
}

#[test]
fn gc_below_1_1_0_only_deletes() {
    let folder = attached(GOOD);
    wait(folder.runtime().gc(&network("1.0.0", &["b"]), &[])).unwrap();
    expect!["DEL b, DEL b, DEL b"].assert_eq(&folder.log());
}

#[test]
fn gc_can_be_disabled() {
    let folder = attached(GOOD);
    let mut net = network("1.1.0", &["b"]);
    net.disable_gc = true;
    wait(folder.runtime().gc(&net, &[])).unwrap();
    expect![""].assert_eq(&folder.log());
}

#[test]
fn gc_carries_on_past_errors() {
    let folder = attached(&failing("DEL GC"));
    let error = wait(folder.runtime().gc(&network("1.1.0", &["b", "a"]), &[])).unwrap_err();
    expect![[r#"
        plugin type="b" failed (delete): b cannot; more words
        plugin type="b" failed (delete): b cannot; more words
        plugin type="b" failed (delete): b cannot; more words
        plugin type="b" failed (gc): b cannot; more words"#]]
    .assert_eq(&error.to_string());
    expect!["DEL a, DEL b, DEL a, DEL b, DEL a, DEL b, GC b, GC a"].assert_eq(&folder.log());
    assert_eq!(error.code(), Some(Code::TRY_AGAIN));
}

#[test]
fn a_cache_folder_that_cannot_be_read_is_an_error_and_gc_goes_on() {
    let folder = Folder::with(&[("a", GOOD)]);
    folder.write("cache/results", "a file where the folder should be");
    let error = wait(folder.runtime().gc(&network("1.1.0", &["a"]), &[])).unwrap_err();
    assert!(matches!(error, Error::Cache { verb: "list", .. }), "{error:?}");
    expect!["GC a"].assert_eq(&folder.log());
}

#[test]
fn status_keeps_the_code_of_the_first_error() {
    let folder = Folder::with(&[("a", GOOD), ("b", &format!("code=51\n{}", failing("STATUS"))), ("c", GOOD)]);
    let error = wait(folder.runtime().status(&network("1.1.0", &["a", "b", "c"]))).unwrap_err();
    assert_eq!(error.code(), Some(Code::LIMITED_CONNECTIVITY));
    expect![[r#"plugin type="b" failed (status): b cannot; more words"#]].assert_eq(&error.to_string());
    expect!["STATUS a, STATUS b"].assert_eq(&folder.log());
}

#[test]
fn status_below_1_1_0_runs_nothing() {
    let folder = Folder::with(&[("a", &failing("STATUS"))]);
    wait(folder.runtime().status(&network("1.0.0", &["a"]))).unwrap();
    expect![""].assert_eq(&folder.log());
}
