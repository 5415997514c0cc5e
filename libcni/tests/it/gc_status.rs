//! GC and STATUS.

use crate::test_folder::{Folder, GOOD, eth0, network, wait};
use expect_test::expect;
use libcni::cni_spec::CniError;
use libcni::inventory::{Inventory, Life, OnNode};
use libcni::{AttachmentId, Error, NetworkConf, RuntimeConf};

/// A folder where c1, c2 and c3 are attached to `net`, and c1 to `other`.
fn attached(script: &str) -> Folder {
    let folder = Folder::with(&[("a", GOOD), ("b", script)]);
    let (runtime, net) = (folder.runtime(), network("1.1.0", &["a"]));
    let mut other = net.clone();
    other.name = "other".into();
    for container in ["c1", "c2", "c3"] {
        let attachment = RuntimeConf::new(container, "eth0").unwrap().netns("/gone").arg("K", container).unwrap();
        wait(runtime.add(&net, &attachment)).unwrap();
    }
    wait(runtime.add(&other, &eth0())).unwrap();
    folder.clear_log();
    folder
}

#[test]
fn a_cache_folder_that_cannot_be_read_is_an_error_and_gc_goes_on() {
    let folder = Folder::with(&[("a", GOOD)]);
    folder.write("cache/results", "a file where the folder should be");
    let error = wait(folder.runtime().gc(&network("1.1.0", &["a"]), &[]).without_inventory()).unwrap_err();
    assert!(matches!(error, Error::Cache { verb: "list", .. }), "{error:?}");
    expect!["GC a"].assert_eq(&folder.log());
}

/// An inventory that lists what the test puts in it.
struct Found(Vec<OnNode>);

impl Inventory for Found {
    fn list(&self, _: &NetworkConf, _: &[AttachmentId]) -> Result<Vec<OnNode>, CniError> {
        Ok(self.0.clone())
    }
}

fn found(container: Option<&str>, life: Life) -> OnNode {
    let id = container.map(|id| RuntimeConf::new(id, "eth0").unwrap().id);
    OnNode { id, objects: vec!["address 10.7.0.9".into()], life }
}

/// `c2` is the caller's; another runtime has a living one and one that is gone. What comes to the node later is in neither list,
/// and is the plugins' to keep.
#[test]
fn gc_with_an_inventory_keeps_what_lives_and_says_what_it_has_seen() {
    let folder = attached(GOOD);
    let node =
        Found(vec![found(Some("c1"), Life::Lives), found(Some("lives"), Life::Lives), found(Some("x"), Life::Gone)]);
    let valid = [RuntimeConf::new("c2", "eth0").unwrap().id];
    let (runtime, net) = (folder.runtime(), network("1.1.0", &["b"]));
    let kept = wait(runtime.gc(&net, &valid).with_inventory(&node)).unwrap();
    assert_eq!(kept, [found(Some("lives"), Life::Lives)]);
    assert_eq!(folder.cache_files(), ["net-c2-eth0", "other-c1-eth0"]);
    expect!["DEL a, DEL b, DEL a, DEL b, GC b"].assert_eq(&folder.log());
    expect![[r#"{"cniVersion":"1.1.0","name":"net","type":"b","cni.dev/valid-attachments":[{"containerID":"c2","ifname":"eth0"},{"containerID":"lives","ifname":"eth0"}],"cni.dev/attachments":[{"containerID":"c2","ifname":"eth0"},{"containerID":"lives","ifname":"eth0"}],"cni-plugins/seen":[{"containerID":"c1","ifname":"eth0"},{"containerID":"c2","ifname":"eth0"},{"containerID":"c3","ifname":"eth0"},{"containerID":"lives","ifname":"eth0"},{"containerID":"x","ifname":"eth0"}]}"#]]
    .assert_eq(&folder.read("stdin.b.GC"));
}

#[test]
fn gc_runs_nothing_if_something_in_use_cannot_be_kept() {
    let folder = attached(GOOD);
    let node = Found(vec![found(None, Life::Lives)]);
    let error = wait(folder.runtime().gc(&network("1.1.0", &["b"]), &[]).with_inventory(&node)).unwrap_err();
    expect!["cannot keep address 10.7.0.9: a network namespace uses it, and no mark names its attachment"]
        .assert_eq(&error.to_string());
    expect![""].assert_eq(&folder.log());
}
