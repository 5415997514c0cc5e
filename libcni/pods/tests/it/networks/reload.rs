//! Changes of the folder and of the executables count, and nothing else does.

use super::test_folders::{ALL_VERSIONS, TestFolders, names, network, wait};
use std::fs::{self, OpenOptions};
use std::io::Write;

/// A node with plugin `a` and network `n`.
fn ready() -> TestFolders {
    let node = TestFolders::new();
    node.plugin("bin/a", ALL_VERSIONS).network("net.d/5.conflist", "n");
    node
}

#[test]
fn files_come_change_and_go() {
    wait(async {
        let node = ready();
        let folder = node.open();
        node.after(&folder, |node| node.network("net.d/1.conflist", "m"), "m n").await;
        node.after(&folder, |node| node.network("net.d/1.conflist", "k"), "k n").await;
        let swap = |node: &TestFolders| node.network("net.d/.new", "j").rename("net.d/.new", "net.d/1.conflist");
        node.after(&folder, swap, "j n").await;
        node.after(&folder, |node| node.rename("net.d/1.conflist", "net.d/9.conflist"), "n j").await;
        node.after(&folder, |node| node.rename("net.d/9.conflist", "net.d/9.off"), "n").await;
        node.after(&folder, |node| node.remove("net.d/5.conflist"), "").await;
    });
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
fn the_folder_comes_and_goes_with_its_parents() {
    wait(async {
        let node = TestFolders::bare();
        node.make_dir("bin").plugin("bin/a", ALL_VERSIONS);
        let folder = node.open_at(&node.path("etc/cni/net.d"));
        let empty = folder.networks().await;
        assert_eq!(names(&empty), "");
        assert!(empty.problem.is_some());
        node.after(&folder, |node| node.network("etc/cni/net.d/1.conflist", "n"), "n").await;
        node.after(&folder, |node| node.remove("etc"), "").await;
        node.after(&folder, |node| node.network("etc/cni/net.d/1.conflist", "m"), "m").await;
        node.after(&folder, |node| node.remove("etc/cni/net.d").make_dir("etc/cni/net.d"), "").await;
        node.after(&folder, |node| node.network("etc/cni/net.d/1.conflist", "k"), "k").await;
        let whole = |node: &TestFolders| {
            node.network("new/net.d/1.conflist", "j").rename("etc/cni", "etc/old").rename("new", "etc/cni")
        };
        node.after(&folder, whole, "j").await;
        node.after(&folder, |node| node.rename("etc", "off"), "").await;
        node.after(&folder, |node| node.rename("off", "etc"), "j").await;
        // Changes in the old place no longer matter.
        node.unmoved(&folder, |node| node.network("etc/old/net.d/1.conflist", "x")).await;
        node.after(&folder, |node| node.network("etc/cni/net.d/2.conflist", "i"), "j i").await;
    });
}

#[test]
fn plugins_in_a_lists_own_folder_come_and_go() {
    wait(async {
        let node = ready();
        node.plugin("bin/b", ALL_VERSIONS);
        let folder = node.open();
        folder.networks().await;
        node.after(&folder, |node| node.write("net.d/n/1.conf", r#"{"type":"c"}"#), "").await;
        node.after(&folder, |node| node.write("net.d/n/1.conf", r#"{"type":"b"}"#), "n").await;
        assert_eq!(node.show(&folder.networks().await), "n a+b");
        node.unmoved(&folder, |node| node.write("net.d/n/1.json", "x")).await;
        node.after(&folder, |node| node.remove("net.d/n"), "n").await;
        assert_eq!(node.show(&folder.networks().await), "n a");
        // A broken file hides its list; the list's folder is still known.
        node.after(&folder, |node| node.write("net.d/n/2.conf", "{}"), "").await;
        node.after(&folder, |node| node.remove("net.d/n/2.conf"), "n").await;
    });
}

#[test]
fn executables_come_change_and_go() {
    wait(async {
        let node = TestFolders::bare();
        node.network("net.d/1.conflist", "n");
        let folder = node.open();
        assert_eq!(names(&folder.networks().await), "");
        let old = r#"echo '{"cniVersion":"0.4.0","supportedVersions":["0.4.0"]}'"#;
        node.after(&folder, |node| node.make_dir("more/bin").plugin("more/bin/a", ALL_VERSIONS), "n").await;
        // Earlier folders take precedence, whatever they contain.
        node.after(&folder, |node| node.make_dir("bin").plugin("bin/a", old), "").await;
        node.after(&folder, |node| node.plugin("bin/a", ALL_VERSIONS), "n").await;
        node.after(&folder, |node| node.mode("bin/a", 0o644), "").await;
        node.after(&folder, |node| node.mode("bin/a", 0o755), "n").await;
        node.after(&folder, |node| node.write("bin/a", "#!/bin/false"), "").await;
        node.after(&folder, |node| node.remove("bin/a"), "n").await;
        node.after(&folder, |node| node.remove("more"), "").await;
        node.after(&folder, |node| node.make_dir("more/bin").plugin("more/bin/a", ALL_VERSIONS), "n").await;
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
fn links_to_the_folder_to_a_file_and_to_an_executable_are_swapped() {
    wait(async {
        let node = TestFolders::bare();
        node.network("v1/1.conflist", "one").network("v2/1.conflist", "two").link("v1", "net.d").make_dir("bin");
        node.make_dir("suite/v1").make_dir("suite/v2").plugin("suite/v2/cni", ALL_VERSIONS);
        node.plugin("suite/v1/cni", r#"echo '{"cniVersion":"0.4.0","supportedVersions":["0.4.0"]}'"#);
        node.link("v2", "suite/current").link("../suite/current/cni", "bin/a");
        let folder = node.open();
        assert_eq!(names(&folder.networks().await), "one");
        node.after(&folder, |node| node.link("v2", "new").rename("new", "net.d"), "two").await;
        node.unmoved(&folder, |node| node.network("v1/0.conflist", "zero")).await;
        let to_a_file =
            |node: &TestFolders| node.network("v3/x", "three").link("../v3/x", "new").rename("new", "v2/1.conflist");
        node.after(&folder, to_a_file, "three").await;
        node.after(&folder, |node| node.link("v1", "new").rename("new", "suite/current"), "").await;
        node.after(&folder, |node| node.link("v2", "new").rename("new", "suite/current"), "three").await;
    });
}

/// `<name>/*.conf` has more plugins of a list: a file in the folder's place is an error, also where it comes later.
#[test]
fn a_file_in_the_place_of_a_lists_own_folder_comes_and_goes() {
    wait(async {
        let node = ready();
        // Another network with the plugin, so that the executables stay the same.
        node.network("net.d/6.conflist", "m");
        let folder = node.open();
        assert_eq!(names(&folder.networks().await), "n m");
        node.after(&folder, |node| node.write("net.d/n", "{}"), "m").await;
        node.after(&folder, |node| node.rename("net.d/n", "gone"), "n m").await;
    });
}
