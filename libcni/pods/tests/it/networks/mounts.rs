//! A folder that is mounted over the watched one counts; once it is unmounted, the watched one counts again.

use super::node::{ALL_VERSIONS, Node, names, wait};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use std::path::Path;

fn with_plugin() -> Node {
    let node = Node::new();
    node.plugin("bin/a", ALL_VERSIONS).network("net.d/1.conflist", "below").network("over/1.conflist", "over");
    node
}

fn bind(from: &Path, to: &Path) {
    mount(Some(from), to, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
}

fn tmpfs(at: &Path) {
    mount(Some("none"), at, Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
}

fn unmount(at: &Path) {
    umount2(at, MntFlags::MNT_DETACH).unwrap();
}

#[test]
fn a_folder_is_mounted_over_ours() {
    wait(async {
        let node = with_plugin();
        let folder = node.open();
        assert_eq!(names(&folder.networks().await), "below");
        node.after(&folder, |node| bind(&node.path("over"), &node.path("net.d")), "over").await;
        node.after(&folder, |node| node.network("over/2.conflist", "more"), "over more").await;
        node.after(&folder, |node| unmount(&node.path("net.d")), "below").await;
        node.after(&folder, |node| tmpfs(&node.path("net.d")), "").await;
        node.after(&folder, |node| node.network("net.d/2.conflist", "new"), "new").await;
        node.after(&folder, |node| umount2(&node.path("net.d"), MntFlags::empty()).unwrap(), "below").await;
        node.after(&folder, |node| node.network("net.d/0.conflist", "zero"), "zero below").await;
    });
}

/// A file is mounted as one that is given to a container.
#[test]
fn a_file_is_mounted_over_one_of_ours() {
    wait(async {
        let node = with_plugin();
        let folder = node.open();
        assert_eq!(names(&folder.networks().await), "below");
        node.after(&folder, |node| bind(&node.path("over/1.conflist"), &node.path("net.d/1.conflist")), "over").await;
        node.after(&folder, |node| node.network("over/1.conflist", "written"), "written").await;
        node.after(&folder, |node| unmount(&node.path("net.d/1.conflist")), "below").await;
    });
}

/// A node mounts something for every container.
#[test]
fn other_mounts_are_no_change() {
    wait(async {
        let node = with_plugin();
        node.make_dir("other");
        let folder = node.open();
        node.unmoved(&folder, |node| tmpfs(&node.path("other"))).await;
        node.unmoved(&folder, |node| unmount(&node.path("other"))).await;
    });
}
