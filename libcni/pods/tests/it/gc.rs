//! Garbage collection.

use crate::set_up::on;
use crate::test_node::{GOOD, but, failing, on_node};
use expect_test::expect;
use pods::libcni::cni_spec::ContainerId;
use pods::{Loopback, Order};
use serde_json::Value;

/// The valid attachments that a plugin's GC got.
fn valid(stdin: &str) -> Vec<String> {
    let stdin: Value = serde_json::from_str(stdin).unwrap();
    let valid = stdin["cni.dev/valid-attachments"].as_array().unwrap();
    let text = |one: &Value| format!("{} {}", one["containerID"].as_str().unwrap(), one["ifname"].as_str().unwrap());
    valid.iter().map(text).collect()
}

#[test]
fn dead_pods_are_taken_down_and_plugins_get_the_living_ones() {
    on_node(async |test_node| {
        test_node.bridge("10-office", "office", 1);
        test_node.plugin("a", GOOD);
        test_node.network("20-a", "net-a", &["a"]);
        test_node.network("30-b", "net-b", &["a"]);
        let pods = test_node.builder().loopback(Loopback::Plugin).order(Order::InTurn).build().unwrap();
        let mut live = Vec::new();
        for name in ["dead", "alive"] {
            let (mut pod, _) = test_node.pod(name);
            pod.networks = vec![on("office"), on("net-a"), on("net-b")];
            pods.set_up(&pod).await.unwrap();
            live = vec![pod.id.sandbox.clone(), ContainerId::parse("unknown").unwrap()];
        }
        // A stale lease: its runtime lost its cache.
        let (lost, _) = test_node.pod("lost");
        pods.set_up(&lost).await.unwrap();
        std::fs::remove_file(test_node.cache_dir().join("results/office-sandbox-lost-eth0")).unwrap();
        std::fs::remove_file(test_node.cache_dir().join("results/cni-loopback-sandbox-lost-lo")).unwrap();
        assert_eq!(test_node.leases("office").len(), 6);
        // net-b is in the cache only, and the cache has the configuration.
        std::fs::remove_file(test_node.conf_dir().join("30-b.conflist")).unwrap();

        let collected = test_node.pods().gc_without_inventory(&live).await.unwrap();
        assert_eq!(collected.pods.iter().map(|pod| pod.name.as_str()).collect::<Vec<_>>(), ["dead"]);
        assert_eq!(collected.networks, ["office", "net-a", "net-b"]);
        assert_eq!(test_node.leases("office").len(), 2);
        assert_eq!(
            test_node.cache_files(),
            [
                "cni-loopback-sandbox-alive-lo",
                "net-a-sandbox-alive-eth1",
                "net-b-sandbox-alive-eth2",
                "office-sandbox-alive-eth0"
            ]
        );
        expect![[r#"
            [
                "sandbox-alive eth0",
                "sandbox-alive eth1",
                "sandbox-alive eth2",
                "sandbox-alive lo",
                "unknown eth0",
            ]
        "#]]
        .assert_debug_eq(&valid(&test_node.read("stdin.a..GC")));
        // No sandbox is alive.
        pods.gc_without_inventory(&[]).await.unwrap();
        test_node.assert_nothing_left();
    });
}

#[test]
fn a_living_sandbox_with_a_broken_cache_file_keeps_what_it_has() {
    on_node(async |test_node| {
        test_node.bridge("10-office", "office", 1);
        let (mut pod, container) = test_node.pod("web");
        pod.networks = vec![on("office"), on("office")];
        let pods = test_node.pods();
        pods.set_up(&pod).await.unwrap();
        let leases = test_node.leases("office");
        std::fs::write(test_node.cache_dir().join("results/office-sandbox-web-eth1"), "").unwrap();
        pods.gc_without_inventory(std::slice::from_ref(&pod.id.sandbox)).await.unwrap();
        assert_eq!((test_node.leases("office"), leases.len()), (leases, 4));
        assert!(container.namespace().find_link("eth1").is_some());
        pods.tear_down(&pod.id).await.unwrap();
        test_node.assert_nothing_left();
    });
}

#[test]
fn errors_are_reported_at_the_end_and_failed_entries_are_kept() {
    on_node(async |test_node| {
        test_node.bridge("10-office", "office", 1);
        test_node.plugin("a", &but("GC", &failing(11, "not now")));
        test_node.network("20-a", "net-a", &["a"]);
        let pods = test_node.pods();
        let (mut pod, _) = test_node.pod("web");
        pod.networks = vec![on("office"), on("net-a")];
        pods.set_up(&pod).await.unwrap();
        test_node.plugin("a", &but("DEL", &failing(11, "not now")).replace("GOOD", ""));
        let error = pods.gc_without_inventory(&[]).await.unwrap_err();
        expect![[r#"network net-a, interface eth1: plugin type="a" failed (delete): not now"#]]
            .assert_eq(&error.to_string());
        assert_eq!(test_node.cache_files(), ["net-a-sandbox-web-eth1"]);
        assert_eq!(valid(&test_node.read("stdin.a..GC")), ["sandbox-web eth1"]);
        test_node.plugin("a", &but("GC", &failing(11, "not now")));
        let error = pods.gc_without_inventory(&[]).await.unwrap_err();
        expect![[r#"network net-a: plugin type="a" failed (gc): not now"#]].assert_eq(&error.to_string());
        test_node.assert_nothing_left();
    });
}

#[test]
fn a_network_that_forbids_it_is_left_alone() {
    on_node(async |test_node| {
        test_node.plugin("a", GOOD);
        test_node.write(
            "net.d/10-a.conflist",
            r#"{"cniVersion":"1.1.0","name":"net-a","disableGC":true,"plugins":[{"type":"a"}]}"#,
        );
        let pods = test_node.pods();
        let (pod, _) = test_node.pod("web");
        pods.set_up(&pod).await.unwrap();
        assert!(pods.gc_without_inventory(&[]).await.unwrap().pods.is_empty());
        assert_eq!((test_node.log().as_str(), test_node.cache_files().len()), ("ADD a eth0", 1));
    });
}
