//! Tear-down: from the cache alone, whatever has become of everything else.

use crate::set_up::on;
use crate::test_node::{GOOD, TestNode, but, failing, on_node};
use pods::libcni::cni_spec::IfName;
use pods::{NetworkRequest, Pod, PodId};
use std::time::{Duration, Instant};
use testns::{Container, Remains};

/// A pod on a bridge and a chain of scripts, set up.
async fn up(test_node: &TestNode, chain: &[&str]) -> (Pod, Container) {
    test_node.bridge("10-office", "office", 1);
    for name in chain {
        test_node.plugin(name, GOOD);
    }
    test_node.network("20-lab", "lab", chain);
    let (mut pod, container) = test_node.pod("web");
    pod.networks = vec![on("office"), on("lab")];
    test_node.pods().set_up(&pod).await.unwrap();
    assert_eq!(test_node.cache_files().len(), 2);
    (pod, container)
}

#[test]
fn with_the_namespace_gone() {
    for remains in [Remains::Gone, Remains::PlainFile] {
        on_node(async |test_node| {
            let (pod, container) = up(test_node, &["a"]).await;
            container.leave(remains);
            // The kernel removes the host's end some time after the last process has left.
            test_node.pods().tear_down(&pod.id).await.unwrap();
            test_node
                .node
                .host()
                .wait_for("the end of veth", |host| host.links().iter().all(|link| link.kind != "veth"));
            test_node.assert_nothing_left();
        });
    }
}

#[test]
fn with_the_configuration_changed_or_removed() {
    on_node(async |test_node| {
        let (pod, _) = up(test_node, &["a", "b"]).await;
        let pods = test_node.pods();
        test_node.network("20-lab", "lab", &["b"]);
        std::fs::remove_file(test_node.conf_dir().join("10-office.conflist")).unwrap();
        pods.tear_down(&pod.id).await.unwrap();
        assert_eq!(test_node.log(), "ADD a eth1, ADD b eth1, DEL b eth1, DEL a eth1");
        test_node.assert_nothing_left();
    });
    on_node(async |test_node| {
        let (pod, _) = up(test_node, &["a"]).await;
        std::fs::remove_dir_all(test_node.conf_dir()).unwrap();
        test_node.pods().tear_down(&pod.id).await.unwrap();
        test_node.assert_nothing_left();
    });
}

#[test]
fn it_may_be_repeated_and_needs_no_network() {
    on_node(async |test_node| {
        let (pod, _) = up(test_node, &["a"]).await;
        let pods = test_node.pods();
        for _ in 0..3 {
            pods.tear_down(&pod.id).await.unwrap();
        }
        std::fs::remove_dir_all(test_node.conf_dir()).unwrap();
        for remains in ["", "/run/netns/gone", "/proc/self/ns/net"] {
            let mut pod = pod.clone();
            pod.netns = remains.into();
            pods.tear_down(&pod).await.unwrap();
        }
        test_node.assert_nothing_left();
    });
}

/// Another runtime set it up, or the cache is lost.
#[test]
fn with_nothing_cached_the_requested_networks_or_the_default_one_get_del() {
    on_node(async |test_node| {
        let (mut pod, container) = up(test_node, &["a"]).await;
        std::fs::remove_dir_all(test_node.cache_dir()).unwrap();
        let pods = test_node.pods();
        // By the ID alone, that is the default network's eth0.
        pods.tear_down(&pod.id).await.unwrap();
        assert!(test_node.leases("office").is_empty());
        assert_eq!(test_node.log(), "ADD a eth1");
        // An invalid request does not keep the rest from being deleted.
        pod.networks = vec![on("attic"), NetworkRequest { ifname: Some(IfName::parse("eth1").unwrap()), ..on("lab") }];
        pod.annotations = [("kubernetes.io/ingress-bandwidth".to_owned(), "much".to_owned())].into();
        pods.tear_down(&pod).await.unwrap();
        assert_eq!(test_node.log(), "ADD a eth1, DEL a eth1");
        assert!(test_node.read("args.a.eth1.DEL").contains("K8S_POD_NAME=web;"));
        assert!(container.namespace().find_link("eth0").is_none());
        test_node.assert_nothing_left();
    });
}

#[test]
fn broken_cache_files_are_made_up_for_by_the_folder() {
    on_node(async |test_node| {
        let (pod, _) = up(test_node, &["a"]).await;
        std::fs::write(test_node.cache_dir().join("results/lab-sandbox-web-eth1"), "{\"kind\":").unwrap();
        // A config that cannot be used, as other libraries have left it.
        let entry = test_node.read("cache/results/office-sandbox-web-eth0");
        let mut entry: serde_json::Value = serde_json::from_str(&entry).unwrap();
        entry["config"] = "bm9uc2Vuc2U=".into();
        test_node.write("cache/results/office-sandbox-web-eth0", &entry.to_string());
        test_node.pods().tear_down(&pod.id).await.unwrap();
        assert!(test_node.log().ends_with("DEL a eth1"), "{}", test_node.log());
        test_node.assert_nothing_left();
    });
}

/// However often it is tried, the network that hangs leaves the others their time.
#[test]
fn a_plugin_that_hangs_leaves_the_others_their_share_of_the_time() {
    on_node(async |test_node| {
        let (pod, _) = up(test_node, &["a"]).await;
        test_node.plugin("a", &but("DEL", "exec sleep 1000"));
        let pods = test_node.builder().deadline(Duration::from_secs(4)).build().unwrap();
        let begin = Instant::now();
        let error = pods.tear_down(&pod.id).await.unwrap_err();
        assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
        assert_eq!(error.code().unwrap().0, 104, "{error}");
        assert_eq!(test_node.cache_files(), ["lab-sandbox-web-eth1"]);
        assert!(test_node.leases("office").is_empty());
        test_node.plugin("a", GOOD);
        pods.tear_down(&pod.id).await.unwrap();
        test_node.assert_nothing_left();
    });
}

/// Written by a runtime that keeps the same cache but knows no places.
#[test]
fn another_runtimes_pods_are_taken_down_too() {
    on_node(async |test_node| {
        let (pod, _) = up(test_node, &["a"]).await;
        for name in test_node.cache_files() {
            let mut entry: serde_json::Value =
                serde_json::from_str(&test_node.read(&format!("cache/results/{name}"))).unwrap();
            entry.as_object_mut().unwrap().remove("capabilityArgs");
            test_node.write(&format!("cache/results/{name}"), &entry.to_string());
        }
        let pods = test_node.pods();
        let status = pods.status(&pod.id).await.unwrap();
        assert_eq!(status.addresses(), status.networks[0].addresses().into_iter().rev().collect::<Vec<_>>());
        let by_sandbox = PodId::new("", "", "", pod.id.sandbox.as_str()).unwrap();
        pods.tear_down(&by_sandbox).await.unwrap();
        test_node.assert_nothing_left();
    });
}

/// A network whose plugin refuses each verb for its key `bad`: the text of its file.
fn refused_network(test_node: &TestNode) -> &'static str {
    let refusal = failing(999, "cannot use key bad");
    let good = GOOD.replace("cat >", "echo >");
    test_node.plugin("picky", &format!("config=$(cat); case $config in *bad*) {refusal};; esac\n{good}"));
    let list = r#"{"cniVersion":"1.1.0","name":"net","plugins":[{"type":"picky","bad":1}]}"#;
    test_node.write("net.d/10-net.conflist", list);
    list
}

/// The reference's plugins refuse a configuration with 999, which may be anything, so that the cache keeps an intent.
#[test]
fn a_pod_whose_network_was_refused_comes_up_goes_and_is_collected_once_that_is_mended() {
    for way in ["set-up", "tear-down", "gc"] {
        on_node(async |test_node| {
            let list = refused_network(test_node);
            let ((pod, _), pods) = (test_node.pod("web"), test_node.pods());
            let error = pods.set_up(&pod).await.unwrap_err();
            assert_eq!(error.errors[0].code().unwrap().0, 999);
            assert_eq!(test_node.cache_files(), ["net-sandbox-web-eth0"]);
            pods.tear_down(&pod.id).await.unwrap_err();
            test_node.write("net.d/10-net.conflist", &list.replace("bad", "good"));
            match way {
                "gc" => drop(pods.gc_without_inventory(&[]).await.unwrap()),
                "tear-down" => pods.tear_down(&pod.id).await.unwrap(),
                _ => {
                    pods.set_up(&pod).await.unwrap();
                    pods.tear_down(&pod.id).await.unwrap();
                }
            }
            test_node.assert_nothing_left();
        });
    }
}
