use super::*;
use crate::pod::{Bandwidth, PodId};
use expect_test::{Expect, expect};

/// Two networks, `office` is the default one, and a skipped file.
fn with_choice<T>(test: impl FnOnce(&Choice<'_>) -> T) -> T {
    let conf = |name: &str| {
        let text = format!(r#"{{"cniVersion":"1.0.0","name":"{name}","plugins":[{{"type":"noop"}}]}}"#);
        NetworkConf::parse(text.as_bytes()).unwrap()
    };
    let (office, lab) = (conf("office"), conf("lab"));
    test(&Choice {
        usable: vec![&office, &lab],
        default: Some(&office),
        fixed: None,
        passed_over: vec!["/etc/cni/net.d/00-broken.conf ignored: EOF while parsing".into()],
    })
}

fn pod() -> Pod {
    Pod::new(PodId::new("default", "web-0", "u1", "c1").unwrap(), "/run/netns/c1")
}

/// Each attachment: network and interface, then `CNI_ARGS` and capability arguments without those that all have.
fn check(pod: &Pod, expected: &Expect) {
    let text = with_choice(|choice| match plan(pod, choice, "eth") {
        Err(error) => format!("{error}\n"),
        Ok(planned) => planned.iter().map(text).collect(),
    });
    expected.assert_eq(&text);
}

fn text(planned: &Planned<'_>) -> String {
    let RuntimeConf { id, args, capability_args, .. } = &planned.attachment;
    let mut text = format!("{} {}\n", planned.network, id.ifname);
    let pairs = args.pairs().iter().filter(|(key, _)| !key.starts_with("K8S_") && key != "IgnoreUnknown");
    text.extend(pairs.map(|(key, value)| format!("  {key}={value}\n")));
    text.extend(capability_args.iter().map(|(name, value)| format!("  {name} {value}\n")));
    text
}

fn on(network: Option<&str>, ifname: Option<&str>) -> NetworkRequest {
    NetworkRequest {
        network: network.map(|name| NetworkName::parse(name).unwrap()),
        ifname: ifname.map(|name| IfName::parse(name).unwrap()),
        ..NetworkRequest::default()
    }
}

#[test]
fn a_sandbox_without_a_name_has_no_arguments_of_kubernetes() {
    let pod = Pod::new(PodId::new("", "", "", "c1").unwrap(), "/run/netns/c1");
    let args = with_choice(|choice| plan(&pod, choice, "eth").unwrap()[0].attachment.args.to_string());
    expect!["IgnoreUnknown=1"].assert_eq(&args);
}

#[test]
fn standard_arguments_come_first_and_in_order() {
    let mut pod = pod();
    pod.networks = vec![NetworkRequest {
        ips: vec!["10.1.0.7".parse().unwrap()],
        mac: Some("0A:00:00:00:00:05".into()),
        ..NetworkRequest::default()
    }];
    pod.args = vec![("COLOUR".into(), "red".into())];
    let args = with_choice(|choice| plan(&pod, choice, "eth").unwrap()[0].attachment.args.to_string());
    expect!["IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0;K8S_POD_INFRA_CONTAINER_ID=c1;K8S_POD_UID=u1;IP=10.1.0.7;MAC=0a:00:00:00:00:05;COLOUR=red"].assert_eq(&args);
}

#[test]
fn interfaces_are_the_first_free_or_those_given() {
    let mut pod = pod();
    pod.networks = vec![
        on(None, None),
        on(Some("lab"), Some("eth1")),
        on(Some("lab"), None),
        on(Some("office"), Some("net0")),
        on(None, None),
    ];
    check(
        &pod,
        &expect![[r#"
            office eth0
              pods.place {"index":0,"is_primary":true}
            lab eth1
              pods.place {"index":1,"is_primary":false}
            lab eth2
              pods.place {"index":2,"is_primary":false}
            office net0
              pods.place {"index":3,"is_primary":false}
            office eth3
              pods.place {"index":4,"is_primary":false}
        "#]],
    );
}

/// The primary interface is the default network's at any position, otherwise the first.
#[test]
fn ports_bandwidth_and_ranges_are_the_primary_interfaces() {
    let mut pod = pod();
    let port = |host_port, protocol: &str, host_ip: Option<&str>| PortMapping {
        host_port,
        container_port: 80,
        protocol: protocol.into(),
        host_ip: host_ip.map(|ip| ip.parse().unwrap()),
    };
    pod.port_mappings = vec![
        port(8080, "TCP", None),
        port(0, "TCP", None),
        port(53, "UDP", Some("127.0.0.1")),
        port(9, "sctp", Some("::1")),
    ];
    pod.bandwidth = Some(Bandwidth { ingress_bits_per_second: Some(1_000_000), egress_bits_per_second: None });
    pod.ip_ranges =
        vec![vec!["10.1.0.0/24".parse().unwrap(), "10.2.0.0/24".parse().unwrap()], vec!["fd00::/64".parse().unwrap()]];
    pod.networks = vec![on(Some("lab"), None), on(None, None)];
    check(
        &pod,
        &expect![[r#"
            lab eth0
              pods.place {"index":0,"is_primary":false}
            office eth1
              bandwidth {"ingressRate":1000000,"ingressBurst":4294967295}
              ipRanges [[{"subnet":"10.1.0.0/24"},{"subnet":"10.2.0.0/24"}],[{"subnet":"fd00::/64"}]]
              pods.place {"index":1,"is_primary":true}
              portMappings [{"hostPort":8080,"containerPort":80,"protocol":"tcp"},{"hostPort":53,"containerPort":80,"protocol":"udp","hostIP":"127.0.0.1"},{"hostPort":9,"containerPort":80,"protocol":"sctp","hostIP":"::1"}]
        "#]],
    );
    pod.networks = vec![on(Some("lab"), None)];
    (pod.bandwidth, pod.ip_ranges) = (None, Vec::new());
    pod.port_mappings.truncate(1);
    check(
        &pod,
        &expect![[r#"
            lab eth0
              pods.place {"index":0,"is_primary":true}
              portMappings [{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]
        "#]],
    );
    // An empty list of ports sets no mapping.
    pod.port_mappings = vec![port(0, "TCP", None)];
    check(
        &pod,
        &expect![[r#"
            lab eth0
              pods.place {"index":0,"is_primary":true}
        "#]],
    );
}

#[test]
fn what_concerns_every_interface_goes_to_each() {
    let mut pod = pod();
    pod.dns =
        Some(Dns { servers: vec!["10.1.0.1".into()], searches: vec!["a.b".into()], options: vec!["ndots:5".into()] });
    pod.aliases = vec!["web".into(), "www".into()];
    pod.cgroup_path = Some("/kubepods/pod1".into());
    pod.annotations = BTreeMap::from([("team".into(), "blue".into())]);
    pod.capabilities =
        BTreeMap::from([("deviceID".into(), json!("0000:03:00.1")), ("dns".into(), json!({"servers": ["9.9.9.9"]}))]);
    pod.networks = vec![
        NetworkRequest { ips: vec!["10.1.0.7/24".parse().unwrap(), "fd00::7".parse().unwrap()], ..on(None, None) },
        NetworkRequest { mac: Some("0a:00:00:00:00:05".into()), ..on(Some("lab"), None) },
    ];
    check(
        &pod,
        &expect![[r#"
            office eth0
              aliases {"office":["web","www"]}
              cgroupPath "/kubepods/pod1"
              deviceID "0000:03:00.1"
              dns {"servers":["9.9.9.9"]}
              io.kubernetes.cri.pod-annotations {"team":"blue"}
              ips ["10.1.0.7/24","fd00::7"]
              pods.place {"index":0,"is_primary":true}
            lab eth1
              MAC=0a:00:00:00:00:05
              aliases {"lab":["web","www"]}
              cgroupPath "/kubepods/pod1"
              deviceID "0000:03:00.1"
              dns {"servers":["9.9.9.9"]}
              io.kubernetes.cri.pod-annotations {"team":"blue"}
              mac "0a:00:00:00:00:05"
              pods.place {"index":1,"is_primary":false}
        "#]],
    );
}

#[test]
fn bandwidth_comes_from_annotations() {
    let mut pod = pod();
    let mut text = String::new();
    for (ingress, egress) in [("1M", None), ("1.5Ki", Some("1k")), ("1P", Some("999")), ("1.0001P", None)] {
        pod.annotations = BTreeMap::from([(INGRESS.to_owned(), ingress.to_owned())]);
        pod.annotations.extend(egress.map(|egress| (EGRESS.to_owned(), egress.to_owned())));
        text += &match bandwidth(&pod) {
            Ok(value) => format!("{}\n", value.unwrap()),
            Err(error) => format!("{error}\n"),
        };
    }
    // The runtime's own value takes precedence, and an annotation that is not needed is not parsed.
    pod.bandwidth = Some(Bandwidth { ingress_bits_per_second: Some(5), egress_bits_per_second: None });
    text += &bandwidth(&pod).unwrap().unwrap().to_string();
    expect![[r#"
        {"ingressRate":1000000,"ingressBurst":4294967295}
        {"ingressRate":1536,"ingressBurst":4294967295,"egressRate":1000,"egressBurst":4294967295}
        annotation kubernetes.io/egress-bandwidth = "999": want 1k to 1P bits a second, as a quantity such as 10M or 1.5Gi
        annotation kubernetes.io/ingress-bandwidth = "1.0001P": want 1k to 1P bits a second, as a quantity such as 10M or 1.5Gi
        {"ingressRate":5,"ingressBurst":4294967295}"#]]
    .assert_eq(&text);
}

#[test]
fn a_bandwidth_is_a_quantity_of_kubernetes() {
    for (text, value) in [
        ("+1k", 1000),
        ("1Ei", 1 << 60),
        ("3E3", 3000),
        ("12000e-1", 1200),
        ("1500e+1", 15_000),
        ("007k", 7000),
        ("1000.", 1000),
        ("1000001m", 1001),
        ("1000.00000000000000001", 1001),
        ("0.30000000000000001Mi", 314_573),
    ] {
        assert_eq!(bits(text), Some(value), "{text}");
    }
    let texts = ". -1k + ++1k k 1.2.3 1x 1K 1kb 1ki 1e 1e+ 1e1.5 1e1k 1_000 ١ 1.5.Gi 1e40 1e-40 1e99999999999";
    for text in texts.split(' ').chain([""]) {
        assert_eq!(bits(text), None, "{text}");
    }
}
