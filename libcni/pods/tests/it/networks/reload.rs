//! Readings that come again, and those that do not, also for callers at the same time. That any change counts is shown by `random`.

use super::test_folders::{ALL_VERSIONS, TestFolders, names, network, wait};
use futures::future::join_all;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// A node with plugin `a` and network `n`.
fn ready() -> TestFolders {
    let node = TestFolders::new();
    node.plugin("bin/a", ALL_VERSIONS).network("net.d/5.conflist", "n");
    node
}

/// A file that is written in place is cut for a moment.
#[test]
fn a_file_counts_when_it_is_whole() {
    wait(async {
        let node = ready();
        let folder = node.open();
        node.after(&folder, |node| node.network("net.d/1.conflist", "m"), "m n").await;
        let mut old = None;
        node.unmoved(&folder, |node| {
            let mut file = OpenOptions::new().write(true).truncate(true).open(node.path("net.d/1.conflist")).unwrap();
            file.write_all(&network("k").as_bytes()[..9]).unwrap();
            old = Some(file);
        })
        .await;
        node.after(&folder, |_| old.unwrap().write_all(&network("k").as_bytes()[9..]).unwrap(), "k n").await;
        node.unmoved(&folder, |node| node.write("net.d/1.conflist", "{")).await;
        node.until(&folder, |networks| names(networks) == "n").await;
        node.after(&folder, |node| node.network("net.d/2.conflist", "m"), "m n").await;
    });
}

#[test]
fn what_is_no_network_is_no_change() {
    wait(async {
        let node = ready();
        let folder = node.open();
        for name in ["net.d/x.txt", "net.d/.5.conflist.swp", "bin/b", "net.e", "x/y"] {
            node.unmoved(&folder, |node| node.write(name, "x").remove(name)).await;
        }
        node.unmoved(&folder, |node| drop(fs::read(node.path("net.d/5.conflist")).unwrap())).await;
    });
}

#[test]
fn only_executables_that_changed_are_asked_again() {
    wait(async {
        let node = ready();
        node.plugin("bin/b", ALL_VERSIONS).plugin("bin/bad", "exit 3").network("net.d/9.conflist", "z");
        node.write("net.d/6.conf", r#"{"cniVersion":"1.0.0","name":"o","type":"b"}"#);
        node.write("net.d/7.conf", r#"{"cniVersion":"1.0.0","name":"p","type":"bad"}"#);
        let folder = node.open();
        folder.networks().await;
        assert_eq!(node.asked(), "a b bad");
        node.network("net.d/1.conflist", "m").remove("net.d/9.conflist");
        assert_eq!(names(&folder.networks().await), "m n o");
        assert_eq!(node.asked(), "");
        node.plugin("bin/b", ALL_VERSIONS);
        assert_eq!(names(&folder.networks().await), "m n o");
        assert_eq!(node.asked(), "b");
    });
}

/// Two names of one file may be two plugins: each is asked, once.
#[test]
fn names_of_one_executable_are_asked_apart() {
    wait(async {
        let node = ready();
        node.write("net.d/6.conf", r#"{"cniVersion":"1.0.0","name":"o","type":"b"}"#);
        fs::hard_link(node.path("bin/a"), node.path("bin/b")).unwrap();
        let folder = node.open();
        assert_eq!(names(&folder.networks().await), "n o");
        assert_eq!(node.asked(), "a b");
    });
}

#[test]
fn callers_at_the_same_time_share_one_reading() {
    wait(async {
        let node = ready();
        let folder = node.open();
        for name in ["m", "k"] {
            node.network("net.d/1.conflist", name);
            let all = join_all((0..50).map(|_| folder.networks())).await;
            assert!(all.iter().all(|networks| Arc::ptr_eq(networks, &all[0])));
            assert_eq!(names(&all[0]), format!("{name} n"));
        }
        assert_eq!(node.asked(), "a");
    });
}

#[test]
fn callers_that_give_up_lose_nothing() {
    wait(async {
        let node = ready();
        let folder = node.open();
        folder.networks().await;
        for round in 0..20 {
            let name = format!("m{round}");
            node.network("net.d/1.conflist", &name).plugin("bin/a", ALL_VERSIONS);
            // Dropped while or after the executable is asked.
            drop(timeout(Duration::from_micros(round * 200), folder.networks()).await);
            drop(timeout(Duration::ZERO, folder.networks()).await);
            assert_eq!(names(&folder.networks().await), format!("{name} n"));
        }
    });
}
