//! The node's limits of watches are reached: the error names the sysctl, and the networks are right all the same.

use super::node::{ALL_VERSIONS, Node, names, network, wait};
use expect_test::expect;
use pods::networks::Folder;
use std::fs;
use std::process::Command;

/// The limits of one user namespace (kernel, Documentation/admin-guide/sysctl/user.rst).
const INSTANCES: &str = "/proc/sys/user/max_inotify_instances";
const WATCHES: &str = "/proc/sys/user/max_inotify_watches";
/// No namespace has this from the start.
const MARK: &str = "7";

/// Runs this test again in a user namespace of its own, as all tests of the process share one.
fn in_a_namespace_of_its_own(name: &str, test: fn()) {
    if fs::read_to_string(INSTANCES).unwrap().trim() == MARK {
        return test();
    }
    let script = format!("echo {MARK} > {INSTANCES} && exec \"$@\"");
    let outcome = Command::new("unshare")
        .args(["--user", "--map-root-user", "sh", "-c", &script, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", &format!("networks::limits::{name}"), "--nocapture"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&outcome.stdout);
    assert!(
        outcome.status.success() && text.contains("1 passed"),
        "{text}{}",
        String::from_utf8_lossy(&outcome.stderr)
    );
}

#[test]
fn no_instance_is_left() {
    in_a_namespace_of_its_own("no_instance_is_left", || {
        wait(async {
            let node = Node::new();
            let mut folders = Vec::new();
            let error = loop {
                match Folder::open(node.path("net.d"), node.runtime()) {
                    Ok(folder) => folders.push(folder),
                    Err(error) => break error,
                }
            };
            assert_eq!(folders.len().to_string(), MARK);
            let text = error.to_string().replace(node.path("").to_str().unwrap(), "$DIR/");
            expect!["cannot watch $DIR/net.d: EMFILE: Too many open files; raise sysctl fs.inotify.max_user_instances, or the limit of open files"].assert_eq(&text);
        });
    });
}

#[test]
fn no_watch_is_left() {
    in_a_namespace_of_its_own("no_watch_is_left", || {
        wait(async {
            let node = Node::new();
            node.plugin("bin/a", ALL_VERSIONS).network("net.d/1.conflist", "n");
            let folder = node.open();
            fs::write(WATCHES, "6").unwrap();
            // Not watched, but right: each call reads.
            expect![[r#"
                n a
                cannot watch $DIR/bin/a: ENOSPC: No space left on device; raise sysctl fs.inotify.max_user_watches"#]]
            .assert_eq(&node.show(&folder.networks().await));
            testns::write_unshared(node.path("net.d/1.conflist"), network("m")).unwrap();
            assert_eq!(names(&folder.networks().await), "m");
            fs::write(WATCHES, "1").unwrap();
            let error = Folder::open(node.path("net.d"), node.runtime()).unwrap_err();
            expect!["cannot watch /: ENOSPC: No space left on device; raise sysctl fs.inotify.max_user_watches"]
                .assert_eq(&error.to_string().replace(node.path("").to_str().unwrap(), "$DIR/"));
            fs::write(WATCHES, "100").unwrap();
            assert!(folder.networks().await.problem.is_none());
            node.after(&folder, |node| node.network("net.d/1.conflist", "k"), "k").await;
        });
    });
}
