//! CHECK of a pod: whether it still has what its set-up left.

use crate::set_up::on;
use crate::test_node::{GOOD, but, failing, on_node};
use expect_test::expect;
use pods::Loopback;

#[test]
fn missing_objects_are_reported_for_each_network() {
    on_node(async |test_node| {
        test_node.bridge("10-office", "office", 1);
        test_node.plugin("a", &but("CHECK", &failing(107, "it is not as it was")));
        test_node.network("20-a", "net-a", &["a"]);
        let pods = test_node.pods();
        let (mut pod, _) = test_node.pod("web");
        pod.networks = vec![on("office")];
        pods.set_up(&pod).await.unwrap();
        pods.check(&pod.id).await.unwrap();
        pods.tear_down(&pod).await.unwrap();

        pod.networks = vec![on("office"), on("net-a")];
        pods.set_up(&pod).await.unwrap();
        let error = pods.check(&pod.id).await.unwrap_err();
        expect![[r#"network net-a, interface eth1: plugin type="a" failed (check): it is not as it was"#]]
            .assert_eq(&error.to_string());
    });
}

#[test]
fn lo_of_the_plugin_is_checked_by_it() {
    on_node(async |test_node| {
        test_node.bridge("10-office", "office", 1);
        let pods = test_node.builder().loopback(Loopback::Plugin).build().unwrap();
        let (pod, container) = test_node.pod("web");
        let status = pods.set_up(&pod).await.unwrap();
        assert_eq!(pods.check(&pod.id).await.unwrap(), status);
        container.namespace().set_down("lo");
        let error = pods.check(&pod.id).await.unwrap_err().to_string();
        assert!(error.starts_with("network cni-loopback, interface lo: ") && error.contains("it is down"), "{error}");
    });
}

/// Networks of old versions have no CHECK.
#[test]
fn networks_of_old_versions_are_taken_to_be_well() {
    on_node(async |test_node| {
        test_node.plugin(
            "a",
            &GOOD
                .replace(r#""cniVersion":"1.0.0""#, r#""cniVersion":"0.3.1""#)
                .replace(r#""address""#, r#""version":"4","address""#),
        );
        test_node.write("net.d/10-a.conflist", r#"{"cniVersion":"0.3.1","name":"net-a","plugins":[{"type":"a"}]}"#);
        let pods = test_node.pods();
        let (pod, _) = test_node.pod("web");
        let status = pods.set_up(&pod).await.unwrap();
        assert_eq!(pods.check(&pod.id).await.unwrap(), status);
        assert_eq!((test_node.log().as_str(), status.addresses().len()), ("ADD a eth0", 1));
    });
}
