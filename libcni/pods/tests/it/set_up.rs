//! Set-up: all or nothing, in the requested order or at the same time.

use crate::test_node::{GOOD, TestNode, but, failing, on_node};
use expect_test::expect;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use pods::libcni::cni_spec::{IfName, NetworkName};
use pods::{Loopback, NetworkRequest, Order, Pod, PodId, PortMapping};
use std::collections::BTreeMap;

pub(crate) fn on(network: &str) -> NetworkRequest {
    NetworkRequest { network: Some(NetworkName::parse(network).unwrap()), ..NetworkRequest::default() }
}

#[test]
fn a_pod_is_set_up_on_the_default_network_and_taken_down() {
    on_node(async |test_node| {
        test_node.bridge("10-office", "office", 1);
        test_node.bridge("20-lab", "lab", 2);
        let pods = test_node.pods();
        let (pod, container) = test_node.pod("web");
        let status = pods.set_up(&pod).await.unwrap();

        let namespace = container.namespace();
        assert!(namespace.link("eth0").up);
        assert_eq!(status.networks.len(), 1);
        assert_eq!((status.networks[0].network.as_str(), status.networks[0].is_primary), ("office", true));
        // The result has the IPv6 address first; a kubelet reports IPv4 first.
        let ips: Vec<_> = status.networks[0].result.as_ref().unwrap().ips.iter().map(|ip| ip.address.ip()).collect();
        assert!(ips[0].is_ipv6() && ips[1].is_ipv4());
        assert_eq!(status.addresses(), [ips[1], ips[0]]);
        namespace.ping("10.1.0.1".parse::<std::net::IpAddr>().unwrap());
        assert_eq!(pods.status(&pod.id).await.unwrap(), status);
        assert_eq!(pods.check(&pod.id).await.unwrap(), status);
        assert_eq!(test_node.pods().known().unwrap(), std::slice::from_ref(&pod.id));

        pods.tear_down(&pod.id).await.unwrap();
        assert!(namespace.find_link("eth0").is_none());
        test_node.assert_nothing_left();
        assert!(pods.known().unwrap().is_empty());
        expect!["pod default/web (sandbox sandbox-web) has no network: not found in the cache /run/testns/cache"]
            .assert_eq(&pods.status(&pod.id).await.unwrap_err().to_string());
    });
}

#[test]
fn several_networks_are_set_up_in_the_order_of_the_request() {
    on_node(async |test_node| {
        test_node.bridge("10-office", "office", 1);
        test_node.bridge("20-lab", "lab", 2);
        let pods = test_node.pods();
        let (mut pod, container) = test_node.pod("web");
        pod.networks = vec![
            on("lab"),
            NetworkRequest { ifname: Some(IfName::parse("net7").unwrap()), ..NetworkRequest::default() },
            NetworkRequest {
                ips: vec!["10.2.0.77".parse().unwrap()],
                mac: Some("0A:00:00:00:00:77".into()),
                ..on("lab")
            },
        ];
        let status = pods.set_up(&pod).await.unwrap();
        let names = status.networks.iter().map(|network| (network.network.as_str(), network.ifname.as_str()));
        assert_eq!(names.collect::<Vec<_>>(), [("lab", "eth0"), ("office", "net7"), ("lab", "eth1")]);
        // The default network is the second requested one, and its addresses are the pod's.
        assert_eq!(status.addresses(), status.networks[1].addresses().into_iter().rev().collect::<Vec<_>>());
        let eth1 = container.namespace().link("eth1");
        assert_eq!(eth1.mac, "0a:00:00:00:00:77");
        assert!(container.namespace().global_addresses("eth1").contains(&"10.2.0.77/24".to_owned()));
        // After a restart the order is still that of the request.
        assert_eq!(test_node.pods().status(&pod.id).await.unwrap(), status);
        pods.tear_down(&pod.id).await.unwrap();
        test_node.assert_nothing_left();
    });
}

fn three_networks(test_node: &TestNode, scripts: [&str; 3]) -> Pod {
    for (name, script) in ["a", "b", "c"].iter().zip(scripts) {
        test_node.plugin(name, script);
        test_node.network(&format!("10-{name}"), &format!("net-{name}"), &[name]);
    }
    let (mut pod, _) = test_node.pod("web");
    pod.networks = vec![on("net-a"), on("net-b"), on("net-c")];
    pod
}

/// Each waits for the other in its ADD, so one after the other would never end.
#[test]
fn different_networks_are_set_up_at_the_same_time() {
    on_node(async |test_node| {
        for fifo in ["ab", "ba"] {
            mkfifo(&test_node.dir().join(fifo), Mode::S_IRWXU).unwrap();
        }
        let first = but("ADD", r#"echo > "$dir/ab"; read line < "$dir/ba""#);
        let second = but("ADD", r#"read line < "$dir/ab"; echo > "$dir/ba""#);
        let pod = three_networks(test_node, [&first, &second, GOOD]);
        let status = test_node.pods().set_up(&pod).await.unwrap();
        let names = status.networks.iter().map(|network| network.network.as_str());
        assert_eq!(names.collect::<Vec<_>>(), ["net-a", "net-b", "net-c"]);
        test_node.pods().tear_down(&pod).await.unwrap();
        assert!(test_node.log().ends_with("DEL c eth2, DEL b eth1, DEL a eth0"), "{}", test_node.log());
    });
}

#[test]
fn one_networks_attachments_are_set_up_in_the_order_of_the_request() {
    on_node(async |test_node| {
        let mut pod = three_networks(test_node, [&but("ADD", r#"echo "begin $CNI_IFNAME" >> "$dir/log""#), GOOD, GOOD]);
        pod.networks = vec![on("net-a"), on("net-a"), on("net-a")];
        test_node.pods().set_up(&pod).await.unwrap();
        assert_eq!(test_node.log(), "begin eth0, ADD a eth0, begin eth1, ADD a eth1, begin eth2, ADD a eth2");
    });
}

#[test]
fn in_turn_the_first_that_fails_is_the_last() {
    on_node(async |test_node| {
        let pod = three_networks(test_node, [GOOD, &but("ADD", &failing(11, "not now")), GOOD]);
        let pods = test_node.builder().order(Order::InTurn).build().unwrap();
        let error = pods.set_up(&pod).await.unwrap_err();
        assert_eq!(test_node.log(), "ADD a eth0, ADD b eth1, DEL b eth1, DEL a eth0");
        expect![[r#"cannot set up the network of pod default/web (sandbox sandbox-web): network net-b, interface eth1: plugin type="b" failed (add): not now. Rolled back: b."#]]
        .assert_eq(&error.to_string());
        assert_eq!(test_node.cache_files(), [""; 0]);
    });
}

/// The failures of both networks are reported, and the network that succeeded is taken down.
#[test]
fn a_failed_set_up_reports_every_error_and_leaves_nothing() {
    on_node(async |test_node| {
        let full = but("ADD", &failing(105, "no address is free"));
        three_networks(test_node, [&but("ADD", &failing(11, "not now")), &full, GOOD]);
        test_node.bridge("01-office", "office", 1);
        let (mut pod, container) = test_node.pod("api");
        pod.networks = vec![on("net-a"), on("office"), on("net-b")];
        let before = container.namespace().snapshot();
        let error = test_node.pods().set_up(&pod).await.unwrap_err();
        expect![[r#"cannot set up the network of pod default/api (sandbox sandbox-api): network net-a, interface eth0: plugin type="a" failed (add): not now. Rolled back: a; network net-b, interface eth2: plugin type="b" failed (add): no address is free. Rolled back: b."#]]
        .assert_eq(&error.to_string());
        assert_eq!(error.errors.iter().map(|error| error.code().unwrap().0).collect::<Vec<_>>(), [11, 105]);
        assert!(error.left.is_empty());
        test_node.assert_nothing_left();
        assert_eq!(testns::changes(&before, &container.namespace().snapshot()), "");
    });
}

#[test]
fn what_the_rollback_left_is_reported_and_removed_by_a_tear_down() {
    on_node(async |test_node| {
        let pod =
            three_networks(test_node, [&but("ADD", &failing(11, "not now")), &but("DEL", &failing(5, "stuck")), GOOD]);
        let pods = test_node.pods();
        let error = pods.set_up(&pod).await.unwrap_err();
        expect![[r#"cannot set up the network of pod default/web (sandbox sandbox-web): network net-a, interface eth0: plugin type="a" failed (add): not now. Rolled back: a; left behind: network net-b, interface eth1: plugin type="b" failed (delete): stuck"#]]
        .assert_eq(&error.to_string());
        assert_eq!(test_node.cache_files(), ["net-b-sandbox-web-eth1"]);
        pods.tear_down(&pod.id).await.unwrap_err();
        assert_eq!(test_node.cache_files(), ["net-b-sandbox-web-eth1"]);
        test_node.plugin("b", GOOD);
        pods.tear_down(&pod.id).await.unwrap();
        assert_eq!(test_node.cache_files(), [""; 0]);
    });
}

#[test]
fn a_pod_that_is_up_stays_as_it_is() {
    on_node(async |test_node| {
        test_node.bridge("10-office", "office", 1);
        let pods = test_node.pods();
        let (pod, container) = test_node.pod("web");
        let status = pods.set_up(&pod).await.unwrap();
        let link = container.namespace().link("eth0");
        // Also when the configuration has changed meanwhile.
        test_node.bridge("10-office", "office", 9);
        assert_eq!(pods.set_up(&pod).await.unwrap(), status);
        assert_eq!(container.namespace().link("eth0"), link);

        let mut other = pod.clone();
        other.annotations = BTreeMap::from([("kubernetes.io/ingress-bandwidth".to_owned(), "1M".to_owned())]);
        let mut texts = vec![pods.set_up(&other).await.unwrap_err().to_string()];
        other = pod.clone();
        other.netns = "/proc/self/ns/net".into();
        texts.push(pods.set_up(&other).await.unwrap_err().to_string());
        other = pod.clone();
        other.networks =
            vec![NetworkRequest { ifname: Some(IfName::parse("net1").unwrap()), ..NetworkRequest::default() }];
        texts.push(pods.set_up(&other).await.unwrap_err().to_string());
        expect![[r#"
            cannot set up the network of pod default/web (sandbox sandbox-web): it is up, but a capability argument of network office is another; tear it down first
            cannot set up the network of pod default/web (sandbox sandbox-web): it is up, but the network namespace of network office is another; tear it down first
            cannot set up the network of pod default/web (sandbox sandbox-web): it is up, but on network office as eth0, which is not asked for; tear it down first"#]]
        .assert_eq(&texts.join("\n"));
        assert_eq!(container.namespace().link("eth0"), link);
    });
}

/// Another pod lives in the namespace.
#[test]
fn lo_that_is_up_stays_up_when_a_set_up_fails() {
    on_node(async |test_node| {
        test_node.bridge("10-office", "office", 1);
        let pods = test_node.builder().loopback(Loopback::Plugin).build().unwrap();
        let (living, container) = test_node.pod("living");
        pods.set_up(&living).await.unwrap();
        let other = Pod::new(PodId::new("default", "other", "", "other").unwrap(), &*living.netns);
        pods.set_up(&other).await.unwrap_err();
        pods.tear_down(&other).await.unwrap();
        assert!(container.namespace().link("lo").up && container.namespace().link("eth0").up);
        pods.tear_down(&living).await.unwrap();
        assert!(!container.namespace().link("lo").up, "the last one is down");
        test_node.assert_nothing_left();
    });
}

#[test]
fn a_request_that_cannot_be_met_runs_nothing() {
    on_node(async |test_node| {
        let pod = three_networks(test_node, [GOOD, GOOD, GOOD]);
        test_node.write("net.d/00-broken.conflist", "{");
        let pods = test_node.pods();
        let mut texts = Vec::new();
        let mut try_it = async |change: &dyn Fn(&mut Pod)| {
            let mut pod = pod.clone();
            change(&mut pod);
            texts.push(pods.set_up(&pod).await.unwrap_err().errors[0].to_string());
        };
        try_it(&|pod| pod.networks[1] = on("attic")).await;
        let eth0 = Some(IfName::parse("eth0").unwrap());
        try_it(&|pod| pod.networks[..2].iter_mut().for_each(|request| request.ifname.clone_from(&eth0))).await;
        try_it(&|pod| pod.networks[0].mac = Some("0a:00".into())).await;
        let limit = ("kubernetes.io/egress-bandwidth".to_owned(), "1k b".to_owned());
        try_it(&|pod| pod.annotations.extend([limit.clone()])).await;
        try_it(&|pod| pod.args.push(("a;b".into(), "c".into()))).await;
        expect![[r#"
            network attic not found: there is net-a, net-b, net-c; /run/testns/net.d/00-broken.conflist ignored: cannot parse network config: EOF while parsing an object at line 1 column 1
            interface name eth0 is asked for twice
            hardware address "0a:00": want six octets in hex, such as 0a:00:00:00:00:05
            annotation kubernetes.io/egress-bandwidth = "1k b": want 1k to 1P bits a second, as a quantity such as 10M or 1.5Gi
            cannot put "a;b" = "c" into CNI_ARGS: a pair has no other = and no ; in it"#]]
        .assert_eq(&texts.join("\n"));
        assert_eq!((test_node.log().as_str(), test_node.cache_files().len()), ("", 0));
    });
}

#[test]
fn loopback_can_be_left_to_the_plugin_or_to_another_component() {
    on_node(async |test_node| {
        test_node.bridge("10-office", "office", 1);
        let pods = test_node.builder().loopback(Loopback::None).build().unwrap();
        let (pod, container) = test_node.pod("none");
        pods.set_up(&pod).await.unwrap();
        assert!(!container.namespace().link("lo").up);
        pods.tear_down(&pod.id).await.unwrap();

        let pods = test_node.builder().loopback(Loopback::default()).build().unwrap();
        let (pod, container) = test_node.pod("plugin");
        let status = pods.set_up(&pod).await.unwrap();
        assert!(container.namespace().link("lo").up);
        assert_eq!(test_node.cache_files(), ["cni-loopback-sandbox-plugin-lo", "office-sandbox-plugin-eth0"]);
        assert_eq!((status.networks.len(), pods.set_up(&pod).await.unwrap()), (1, status.clone()));
        assert_eq!(pods.check(&pod.id).await.unwrap(), status);
        pods.tear_down(&pod.id).await.unwrap();
        assert!(!container.namespace().link("lo").up);
        test_node.assert_nothing_left();

        // Of a set-up that fails after it, too.
        test_node.plugin("bad", &but("ADD", &failing(11, "not now")));
        test_node.network("01-bad", "bad", &["bad"]);
        let (pod, container) = test_node.pod("undone");
        pods.set_up(&pod).await.unwrap_err();
        assert!(!container.namespace().link("lo").up);
        test_node.assert_nothing_left();
    });
}

#[test]
fn plugins_get_the_pods_identity_and_its_requests() {
    on_node(async |test_node| {
        test_node.plugin("a", GOOD);
        test_node.write(
            "net.d/10-a.conflist",
            r#"{"cniVersion":"1.0.0","name":"net-a","plugins":[{"type":"a",
                "capabilities":{"portMappings":true,"bandwidth":true,"io.kubernetes.cri.pod-annotations":true}}]}"#,
        );
        let (mut pod, _) = test_node.pod("web");
        pod.id.uid = "0f1e".into();
        pod.port_mappings =
            vec![PortMapping { host_port: 8080, container_port: 80, protocol: "TCP".into(), host_ip: None }];
        pod.annotations = BTreeMap::from([("kubernetes.io/ingress-bandwidth".to_owned(), "1M".to_owned())]);
        assert_eq!(test_node.pods().set_up(&pod).await.unwrap().warnings(), [""; 0]);
        let stdin = test_node.read("stdin.a.eth0.ADD");
        expect![[r#"{"cniVersion":"1.0.0","name":"net-a","type":"a","runtimeConfig":{"bandwidth":{"ingressRate":1000000,"ingressBurst":4294967295},"io.kubernetes.cri.pod-annotations":{"kubernetes.io/ingress-bandwidth":"1M"},"portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]}}"#]]
        .assert_eq(&stdin);
        let args = test_node.read("args.a.eth0.ADD");
        expect![[r#"
            IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web;K8S_POD_INFRA_CONTAINER_ID=sandbox-web;K8S_POD_UID=0f1e
        "#]]
        .assert_eq(&args);
        // DEL gets the same, by the cache alone.
        test_node.pods().tear_down(&pod.id).await.unwrap();
        assert_eq!(test_node.read("args.a.eth0.DEL"), args);
        let runtime_config =
            |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap()["runtimeConfig"].clone();
        assert_eq!(runtime_config(&test_node.read("stdin.a.eth0.DEL")), runtime_config(&stdin));
    });
}

/// Runtimes spawn these futures, and hold them in futures of their own.
#[test]
fn futures_can_be_sent_between_threads_and_are_small() {
    fn is_send<T: Send>(future: T) {
        assert!(size_of_val(&future) < 16384, "{} has {} bytes", std::any::type_name::<T>(), size_of_val(&future));
    }
    on_node(async |test_node| {
        let pods = test_node.pods();
        let (pod, _) = test_node.pod("web");
        is_send(pods.set_up(&pod));
        is_send(pods.tear_down(&pod));
        is_send(pods.tear_down(&pod.id));
        is_send(pods.status(&pod.id));
        is_send(pods.check(&pod.id));
        is_send(pods.ready());
        is_send(pods.gc_without_inventory(&[]));
        is_send(pods.networks());
    });
}
