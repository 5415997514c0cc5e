//! Links on the way to the folder, to its files and to executables: swapped, replaced, broken, mended.

use super::node::{ALL_VERSIONS, Node, names, network, wait};

fn with_plugin() -> Node {
    let node = Node::bare();
    node.make_dir("bin").plugin("bin/a", ALL_VERSIONS);
    node
}

/// Publishes files as a kubelet's atomic writer does: a folder by its time, `..data` leads to it, the files lead through `..data`.
fn publish(node: &Node, time: &str, files: &[&str]) {
    for file in files {
        node.network(&format!("net.d/..{time}/{file}"), &format!("{}-{time}", file.trim_end_matches(".conflist")));
    }
    node.link(&format!("..{time}"), "net.d/..data_tmp").rename("net.d/..data_tmp", "net.d/..data");
    for file in files {
        let path = node.path(&format!("net.d/{file}"));
        if !path.is_symlink() {
            node.link(&format!("..data/{file}"), &format!("net.d/{file}"));
        }
    }
}

#[test]
fn a_config_map_is_swapped() {
    wait(async {
        let node = with_plugin();
        publish(&node, "t1", &["x.conflist"]);
        let folder = node.open();
        assert_eq!(names(&folder.networks().await), "x-t1");
        node.after(&folder, |node| publish(node, "t2", &["x.conflist"]), "x-t2").await;
        node.unmoved(&folder, |node| node.remove("net.d/..t1")).await;
        node.after(&folder, |node| publish(node, "t3", &["x.conflist", "y.conflist"]), "x-t3 y-t3").await;
        let only = |node: &Node| {
            publish(node, "t4", &["y.conflist"]);
            node.remove("net.d/..t3").remove("net.d/x.conflist");
        };
        node.after(&folder, only, "y-t4").await;
    });
}

#[test]
fn the_folder_or_a_parent_is_a_link_that_is_swapped() {
    wait(async {
        let node = with_plugin();
        node.network("v1/cni/net.d/1.conflist", "one").network("v2/cni/net.d/1.conflist", "two");
        node.network("v3/1.conflist", "three");
        node.link("v1", "etc").link("etc/cni/net.d", "net.d");
        let folder = node.open();
        assert_eq!(names(&folder.networks().await), "one");
        node.after(&folder, |node| node.link("v2", "new").rename("new", "etc"), "two").await;
        node.unmoved(&folder, |node| node.network("v1/cni/net.d/0.conflist", "zero")).await;
        node.after(&folder, |node| node.network("v2/cni/net.d/2.conflist", "more"), "two more").await;
        node.after(&folder, |node| node.link("./etc/../v3", "new").rename("new", "net.d"), "three").await;
        node.after(&folder, |node| node.link("net.d", "new").rename("new", "net.d"), "").await;
        node.after(&folder, |node| node.link("nowhere", "new").rename("new", "net.d"), "").await;
        node.after(&folder, |node| node.network("nowhere/1.conflist", "there"), "there").await;
    });
}

#[test]
fn a_linked_file_is_replaced_where_it_is() {
    wait(async {
        let node = with_plugin();
        node.make_dir("net.d").network("elsewhere/deep/x", "one").link("deep/x", "elsewhere/y");
        node.link(node.path("elsewhere/y").to_str().unwrap(), "net.d/1.conflist");
        let folder = node.open();
        assert_eq!(names(&folder.networks().await), "one");
        let replace = |node: &Node| node.network("new", "two").rename("new", "elsewhere/deep/x");
        node.after(&folder, replace, "two").await;
        node.after(&folder, |node| node.network("elsewhere/deep/x", "three"), "three").await;
        node.after(&folder, |node| node.remove("elsewhere"), "").await;
        node.after(&folder, |node| node.network("elsewhere/y", "four"), "four").await;
        node.unmoved(&folder, |node| node.network("elsewhere/z", "five")).await;
    });
}

#[test]
fn a_link_to_a_folder_is_no_network_until_it_leads_to_a_file() {
    wait(async {
        let node = with_plugin();
        node.make_dir("net.d").make_dir("elsewhere/x");
        node.link(node.path("elsewhere/x").to_str().unwrap(), "net.d/1.conflist");
        let folder = node.open();
        assert_eq!(names(&folder.networks().await), "");
        let replace = |node: &Node| node.rename("elsewhere/x", "elsewhere/y").network("elsewhere/x", "one");
        node.after(&folder, replace, "one").await;
    });
}

/// No folder on the way has an event, only the file itself.
#[test]
fn a_file_is_written_by_its_other_name() {
    wait(async {
        let node = with_plugin();
        node.make_dir("net.d").network("elsewhere/x", "one");
        std::fs::hard_link(node.path("elsewhere/x"), node.path("net.d/1.conflist")).unwrap();
        let folder = node.open();
        assert_eq!(names(&folder.networks().await), "one");
        let write = |node: &Node| testns::write_unshared(node.path("elsewhere/x"), network("two")).unwrap();
        node.after(&folder, write, "two").await;
    });
}

#[test]
fn an_executable_is_a_link_that_is_swapped() {
    wait(async {
        let node = Node::new();
        node.network("net.d/1.conflist", "n").link("../suite/current/cni", "bin/a");
        node.make_dir("suite/v1").make_dir("suite/v2").plugin("suite/v2/cni", ALL_VERSIONS);
        node.plugin("suite/v1/cni", r#"echo '{"cniVersion":"0.4.0","supportedVersions":["0.4.0"]}'"#);
        let folder = node.open();
        assert_eq!(names(&folder.networks().await), "");
        node.after(&folder, |node| node.link("v2", "suite/current"), "n").await;
        node.after(&folder, |node| node.link("v1", "new").rename("new", "suite/current"), "").await;
        node.after(&folder, |node| node.link("v2", "new").rename("new", "suite/current"), "n").await;
    });
}

/// The links of /proc do not lead where their text says.
#[test]
fn the_folder_is_reached_through_proc() {
    wait(async {
        let node = with_plugin();
        node.network("net.d/1.conflist", "n");
        let net_d = node.path("net.d");
        let folder = node.open_at(&std::path::Path::new("/proc/self/root").join(net_d.strip_prefix("/").unwrap()));
        assert_eq!(names(&folder.networks().await), "n");
        node.after(&folder, |node| node.network("net.d/2.conflist", "m"), "n m").await;
        node.after(&folder, |node| node.remove("net.d"), "").await;
    });
}
