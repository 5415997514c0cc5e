//! Errors as objects: a code by the table, the message, and the details apart.

use crate::test_folder::{Folder, GOOD, eth0, failing, network, wait};
use expect_test::{Expect, expect};
use libcni::cni_spec::SpecVersion;
use libcni::{Error, conflist};

/// Checks the object: code, message and details.
#[track_caller]
fn check(folder: &Folder, error: &Error, expected: &Expect) {
    let object = error.to_cni_error();
    assert_eq!(error.code(), Some(object.code));
    let text = format!("{}: {}\n{}", object.code.0, object.msg, object.details);
    expected.assert_eq(folder.stable(&text).trim_end());
}

#[test]
fn a_missing_network_is_an_invalid_configuration() {
    let folder = Folder::new();
    check(
        &folder,
        &conflist::find(folder.path(), "net").unwrap_err(),
        &expect![[r#"
            7: no net configurations found in $DIR
            The folder has no *.conflist, *.conf or *.json: put a network's file there, or use another folder."#]],
    );
}

#[test]
fn what_cannot_be_read_or_written_is_io() {
    let folder = Folder::with(&[("a", GOOD)]);
    let file = folder.write("file", "");
    let error = conflist::find(&file, "net").unwrap_err();
    check(&folder, &error, &expect!["5: cannot read $DIR/file: Not a directory (os error 20)"]);
    // As text an object has no details where there are none.
    expect![[r#"
        {
            "cniVersion": "1.1.0",
            "code": 5,
            "msg": "cannot read $DIR/file: Not a directory (os error 20)"
        }"#]]
    .assert_eq(&folder.stable(&error.to_cni_error().to_json(SpecVersion::LATEST)));
    folder.write("cache", "a file where the folder should be");
    let error = wait(folder.runtime().add(&network("1.0.0", &["a"]), &eth0())).unwrap_err();
    check(
        &folder,
        &error,
        &expect![[r#"
            5: cannot write cache $DIR/cache/results: Not a directory (os error 20)
            A file, or a link that leads nowhere, has the place of a folder of the cache: remove it, or use another folder."#]],
    );
}

#[test]
fn a_plugins_details_stay_details() {
    let folder = Folder::with(&[("a", GOOD), ("b", &failing("ADD"))]);
    let error = wait(folder.runtime().add(&network("1.0.0", &["a", "b"]), &eth0())).unwrap_err();
    check(
        &folder,
        &error,
        &expect![[r#"
            11: plugin type="b" failed (add): b cannot
            more words. Rolled back: b, a."#]],
    );
}

#[test]
fn several_errors_are_one_object() {
    let folder = Folder::with(&[("a", &failing("GC")), ("b", &failing("GC"))]);
    let error = wait(folder.runtime().gc(&network("1.1.0", &["a", "b"]), &[]).without_inventory()).unwrap_err();
    check(
        &folder,
        &error,
        &expect![[r#"
            11: plugin type="a" failed (gc): a cannot
            more words Also: plugin type="b" failed (gc): b cannot; more words."#]],
    );
}
