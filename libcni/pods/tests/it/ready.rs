//! Ready or not, with every reason.

use crate::set_up::on;
use crate::test_node::{GOOD, TestNode, but, failing, on_node};
use expect_test::{Expect, expect};
use libcni::NetworkConf;
use pods::libcni::cni_spec::NetworkName;
use pods::{Loopback, NotReadyReason, Pods};

async fn not_ready(pods: &Pods, expected: &Expect) -> pods::NotReady {
    let not_ready = pods.ready().await.unwrap_err();
    expected.assert_eq(&not_ready.to_string());
    assert!(!not_ready.to_string().contains('\n'));
    not_ready
}

#[test]
fn a_default_network_that_can_be_used() {
    on_node(async |test_node| {
        let pods = test_node.pods();
        std::fs::remove_dir(test_node.conf_dir()).unwrap();
        not_ready(&pods, &expect!["network is not ready: no network can be used in /run/testns/net.d; no folder /run/testns/net.d: no such file or directory"]).await;
        std::fs::create_dir(test_node.conf_dir()).unwrap();
        not_ready(&pods, &expect!["network is not ready: no network can be used in /run/testns/net.d"]).await;
        test_node.write("net.d/00-broken.conf", "{");
        test_node.network("10-a", "net-a", &["a"]);
        not_ready(&pods, &expect!["network is not ready: no network can be used in /run/testns/net.d; /run/testns/net.d/00-broken.conf ignored: cannot parse network config: EOF while parsing an object at line 1 column 1; /run/testns/net.d/10-a.conflist ignored: executable of plugin a not found in /run/testns/bin"]).await;
        // The executable arrives, and no call announces it.
        test_node.plugin("a", GOOD);
        pods.ready().await.unwrap();
        std::fs::remove_file(test_node.node.bin_dir().join("a")).unwrap();
        not_ready(&pods, &expect!["network is not ready: no network can be used in /run/testns/net.d; /run/testns/net.d/00-broken.conf ignored: cannot parse network config: EOF while parsing an object at line 1 column 1; /run/testns/net.d/10-a.conflist ignored: executable of plugin a not found in /run/testns/bin"]).await;
    });
}

#[test]
fn the_plugin_of_lo_is_part_of_it() {
    on_node(async |test_node| {
        test_node.plugin("a", GOOD);
        test_node.network("10-a", "net-a", &["a"]);
        let pods = test_node.builder().loopback(Loopback::Plugin).build().unwrap();
        pods.ready().await.unwrap();
        std::fs::remove_file(test_node.node.bin_dir().join("loopback")).unwrap();
        not_ready(&pods, &expect![[r#"network is not ready: network cni-loopback fails: failed to find plugin "loopback" in path [/run/testns/bin]. Install loopback into one of these folders, or correct the type."#]]).await;
        test_node.pods().ready().await.unwrap();
    });
}

#[test]
fn a_fixed_default_network() {
    on_node(async |test_node| {
        test_node.plugin("a", GOOD);
        test_node.network("10-a", "net-a", &["a"]);
        let pods = test_node.builder().default_network(NetworkName::parse("net-b").unwrap()).build().unwrap();
        not_ready(&pods, &expect!["network is not ready: default network net-b not found in /run/testns/net.d"]).await;
        let (pod, _) = test_node.pod("web");
        let error = pods.set_up(&pod).await.unwrap_err();
        expect!["cannot set up the network of pod default/web (sandbox sandbox-web): there is no default network net-b: there is net-a"].assert_eq(&error.to_string());
        test_node.network("20-b", "net-b", &["a"]);
        pods.ready().await.unwrap();
        assert_eq!(pods.set_up(&pod).await.unwrap().networks[0].network.as_str(), "net-b");
    });
}

/// The runtime's own network comes first, and needs no folder.
#[test]
fn a_network_of_bytes() {
    on_node(async |test_node| {
        test_node.plugin("a", GOOD);
        std::fs::remove_dir(test_node.conf_dir()).unwrap();
        let list = |text: &str| NetworkConf::parse(text.as_bytes()).unwrap();
        let given = || list(r#"{"cniVersion": "1.1.0", "name": "own", "plugins": [{"type": "a"}]}"#);
        let pods = test_node.builder().network(given()).network(list(r#"{"name": "empty"}"#)).build().unwrap();
        pods.ready().await.unwrap();
        test_node.network("10-own", "own", &["a"]);
        test_node.network("20-other", "other", &["a"]);
        let networks = pods.networks().await;
        let names: Vec<_> = networks.usable.iter().map(|network| network.conf.name.as_str()).collect();
        assert_eq!(names, ["own", "other"]);
        let ignored: Vec<_> = networks.passed_over.iter().map(ToString::to_string).collect();
        expect![[r#"
            empty ignored: it has no plugins
            /run/testns/net.d/10-own.conflist ignored: network name "own" is taken by own"#]]
        .assert_eq(&ignored.join("\n"));
        let (pod, _container) = test_node.pod("web");
        assert_eq!(pods.set_up(&pod).await.unwrap().networks[0].network.as_str(), "own");
        // The cache has what a tear-down needs, after a restart without the network, too.
        test_node.pods().tear_down(&pod.id).await.unwrap();
        test_node.assert_nothing_left();
    });
}

#[test]
fn the_status_of_each_plugin() {
    on_node(async |test_node| {
        test_node.plugin("a", GOOD);
        test_node.plugin("b", &but("STATUS", &failing(50, "the daemon is away")));
        test_node.network("10-net", "net", &["a", "b"]);
        let pods = test_node.pods();
        let reasons = not_ready(&pods, &expect![[r#"network is not ready: network net cannot take pods: plugin type="b" failed (status): the daemon is away"#]]).await;
        assert!(matches!(reasons.reasons[..], [NotReadyReason::NotAvailable { .. }]));
        test_node.plugin("b", &but("STATUS", &failing(51, "the daemon is away")));
        let reasons = not_ready(&pods, &expect![[r#"network is not ready: network net cannot take pods, and those that are up may have limited connectivity: plugin type="b" failed (status): the daemon is away"#]]).await;
        assert!(matches!(reasons.reasons[..], [NotReadyReason::LimitedConnectivity { .. }]));
        test_node.plugin("b", &but("STATUS", &failing(999, "two\\nlines")));
        not_ready(&pods, &expect![[r#"network is not ready: network net fails: plugin type="b" failed (status): netplugin failed but its stdout is no error object: stdout "{\"code\":999,\"msg\":\"two\nlines\"}", stderr "". How it ended: exit status 1."#]]).await;
        // Below 1.1.0 there is no STATUS.
        test_node.write("net.d/10-net.conflist", r#"{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"b"}]}"#);
        pods.ready().await.unwrap();
    });
}

#[test]
fn as_many_networks_as_wanted() {
    on_node(async |test_node| {
        test_node.plugin("a", GOOD);
        test_node.plugin("b", &but("STATUS", &failing(50, "full")));
        test_node.network("10-a", "net-a", &["a"]);
        test_node.network("20-b", "net-b", &["b"]);
        let two = test_node.builder().min_networks(2).build().unwrap();
        not_ready(&two, &expect![[r#"network is not ready: 1 usable networks, 2 wanted; network net-b cannot take pods: plugin type="b" failed (status): full"#]]).await;
        // A network other than the default one is no reason while there are enough.
        test_node.pods().ready().await.unwrap();
        test_node.plugin("b", GOOD);
        two.ready().await.unwrap();
    });
}

#[test]
fn a_plugin_that_does_not_answer_delays_no_other_call() {
    on_node(async |test_node: &TestNode| {
        test_node.plugin("a", &but("STATUS", "exec sleep 1000"));
        test_node.network("10-a", "net-a", &["a"]);
        let pods = test_node.builder().deadline(std::time::Duration::from_secs(1)).build().unwrap();
        let not_ready = pods.ready().await.unwrap_err();
        let [NotReadyReason::Failing { error, .. }] = &not_ready.reasons[..] else { panic!("{not_ready}") };
        assert_eq!(error.code().unwrap().0, 104);
    });
}

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
