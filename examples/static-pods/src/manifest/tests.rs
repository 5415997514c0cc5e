//! Manifests and what is read from them, or said about them.

use super::{Manifest, parse};
use expect_test::{Expect, expect};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

fn check(text: &str, expected: Expect) {
    let read = parse(text.as_bytes()).into_iter().map(|document| match document {
        Ok(manifest) => format!("{}\n", serde_json::to_string(&manifest).unwrap()),
        Err(problem) => format!("error: {problem}\n"),
    });
    expected.assert_eq(&read.collect::<String>());
}

fn port(port: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: web}}, spec: {{containers: [{{}}, {{ports: [{{{port}}}]}}]}}}}"
    )
}

#[test]
fn a_pod_as_people_write_them() {
    check(
        include_str!("../../manifests/web.yaml"),
        expect![[r#"
        {"key":{"namespace":"default","name":"web"},"uid":null,"annotations":{"kubernetes.io/egress-bandwidth":"10M","kubernetes.io/ingress-bandwidth":"10M"},"host_network":false,"hostname":null,"ports":[{"container_port":80,"host_port":8080,"host_ip":null,"protocol":"TCP"}],"dns_policy":"ClusterFirst","dns_config":{"nameservers":[],"searches":[],"options":[]}}
        {"key":{"namespace":"kube-system","name":"node-agent"},"uid":null,"annotations":{},"host_network":true,"hostname":null,"ports":[],"dns_policy":"ClusterFirst","dns_config":{"nameservers":[],"searches":[],"options":[]}}
    "#]],
    );
}

#[test]
fn json_and_several_documents() {
    check(
        "---\n{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"metadata\": {\"name\": \"a\"}}\n---\n---\nkind: Service\napiVersion: v1\n---\n3\n",
        expect![[r#"
            {"key":{"namespace":"default","name":"a"},"uid":null,"annotations":{},"host_network":false,"hostname":null,"ports":[],"dns_policy":"ClusterFirst","dns_config":{"nameservers":[],"searches":[],"options":[]}}
            error: document 2: kind: "Service" of apiVersion "v1" is no Pod of v1, and only these have a place here
            error: document 3: no mapping of keys, so no Pod
        "#]],
    );
}

#[test]
fn ports_in_the_nodes_network_are_the_nodes() {
    let spec = "hostNetwork: true, containers: [{ports: [{containerPort: 80, protocol: UDP}]}]";
    check(
        &format!("{{apiVersion: v1, kind: Pod, metadata: {{name: a}}, spec: {{{spec}}}}}"),
        expect![[r#"
        {"key":{"namespace":"default","name":"a"},"uid":null,"annotations":{},"host_network":true,"hostname":null,"ports":[{"container_port":80,"host_port":80,"host_ip":null,"protocol":"UDP"}],"dns_policy":"ClusterFirst","dns_config":{"nameservers":[],"searches":[],"options":[]}}
    "#]],
    );
    let spec = "hostNetwork: true, containers: [{ports: [{containerPort: 80, hostPort: 81}]}]";
    check(
        &format!("{{apiVersion: v1, kind: Pod, metadata: {{name: a}}, spec: {{{spec}}}}}"),
        expect![[r#"
        error: spec.containers[0].ports[0].hostPort: 81 is not containerPort 80, as hostNetwork needs
    "#]],
    );
}

#[test]
fn sidecars_have_ports_and_other_init_containers_do_not() {
    let spec = "initContainers: [{ports: [{containerPort: 1}]}, {restartPolicy: Always, ports: [{containerPort: 2}]}]";
    check(
        &format!("{{apiVersion: v1, kind: Pod, metadata: {{name: a}}, spec: {{{spec}}}}}"),
        expect![[r#"
        {"key":{"namespace":"default","name":"a"},"uid":null,"annotations":{},"host_network":false,"hostname":null,"ports":[{"container_port":2,"host_port":0,"host_ip":null,"protocol":"TCP"}],"dns_policy":"ClusterFirst","dns_config":{"nameservers":[],"searches":[],"options":[]}}
    "#]],
    );
}

#[test]
fn what_is_wrong_with_a_port() {
    check(
        &port("containerPort: 70000"),
        expect![[r#"
        error: spec.containers[1].ports[0].containerPort: invalid value: integer `70000`, expected a port, 0 to 65535
    "#]],
    );
    check(
        &port("containerPort: http"),
        expect![[r#"
        error: spec.containers[1].ports[0].containerPort: invalid type: string "http", expected a port, 0 to 65535
    "#]],
    );
    check(
        &port("containerPort: 0"),
        expect![[r#"
        error: spec.containers[1].ports[0].containerPort: 0 is no port (1 to 65535)
    "#]],
    );
    check(
        &port("hostPort: 80"),
        expect![[r#"
        error: spec.containers[1].ports[0]: missing field `containerPort`
    "#]],
    );
    check(
        &port("containerPort: 80, hostIP: localhost"),
        expect![[r#"
        error: spec.containers[1].ports[0].hostIP: "localhost": invalid IP address syntax
    "#]],
    );
    check(
        &port("containerPort: 80, protocol: tcp"),
        expect![[r#"
        error: spec.containers[1].ports[0].protocol: unknown variant `tcp`, expected one of `TCP`, `UDP`, `SCTP`
    "#]],
    );
}

#[test]
fn what_is_wrong_with_a_pod() {
    check(
        "apiVersion: v1\nkind: Pod\n",
        expect![[r#"
        error: missing field `metadata`
    "#]],
    );
    check(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: Web}\n",
        expect![[r#"
        error: metadata.name: "Web" is no name: up to 253 of a-z, 0-9, "-", ".", a letter or digit at both ends
    "#]],
    );
    check(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: a.b}\n",
        expect![[r#"
        error: metadata.namespace: "a.b" is no name: up to 63 of a-z, 0-9, "-", a letter or digit at both ends
    "#]],
    );
    check(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: web, annotations: {a: true}}\n",
        expect![[r#"
        error: metadata.annotations.a: invalid type: boolean `true`, expected a string
    "#]],
    );
    check(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {dnsPolicy: None}\n",
        expect![[r#"
        error: spec.dnsPolicy: None needs a server in spec.dnsConfig.nameservers
    "#]],
    );
    check(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {dnsPolicy: Sometimes}\n",
        expect![[r#"
        error: spec.dnsPolicy: unknown variant `Sometimes`, expected one of `ClusterFirst`, `ClusterFirstWithHostNet`, `Default`, `None`
    "#]],
    );
    check(
        "apiVersion: apps/v1\nkind: Deployment\n",
        expect![[r#"
        error: kind: "Deployment" of apiVersion "apps/v1" is no Pod of v1, and only these have a place here
    "#]],
    );
    check(
        "metadata: {name: web}\n",
        expect![[r#"
        error: kind: missing; a Pod has apiVersion v1 and kind Pod
    "#]],
    );
    check(
        "",
        expect![[r#"
        error: the file is empty
    "#]],
    );
}

#[test]
fn what_is_no_yaml() {
    check(
        "apiVersion: v1\nkind: [Pod\nmetadata: x\n",
        expect![[r#"
        error: no YAML: illegal placement of ':' indicator at line 3, column 9
    "#]],
    );
    check(
        "kind: Pod\nkind: Pod\n",
        expect![[r#"
        error: no YAML: duplicate mapping key: kind at line 2, column 1
    "#]],
    );
    assert!(super::parse(&[0xff, 0xfe, 0x00])[0].is_err());
    assert!(super::parse(&vec![b'a'; super::yaml::MAX_BYTES + 1])[0].is_err());
}

/// Nine lines that would be a thousand million nodes.
#[test]
fn nested_aliases_end_early() {
    let mut text = "a: &a [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
    for (name, before) in "bcdefghi".chars().zip("abcdefgh".chars()) {
        let list = vec![format!("*{before}"); 10].join(",");
        text.push_str(&format!("{name}: &{name} [{list}]\n"));
    }
    let problem = super::parse(text.as_bytes()).remove(0).unwrap_err().to_string();
    assert!(problem.contains("budget breached"), "{problem}");
}

#[test]
fn empty_and_null_values_are_absent() {
    check(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  annotations:\nspec:\n  containers:\n  - name: b\n    ports:\n",
        expect![[r#"
            {"key":{"namespace":"default","name":"a"},"uid":null,"annotations":{},"host_network":false,"hostname":null,"ports":[],"dns_policy":"ClusterFirst","dns_config":{"nameservers":[],"searches":[],"options":[]}}
        "#]],
    );
}

/// Parts of manifests, as random files have them.
const PARTS: &[&str] = &[
    "apiVersion: v1\n",
    "kind: Pod\n",
    "metadata:\n",
    "  name: ",
    "spec:\n",
    "---\n",
    "&a ",
    "*a",
    "!!binary ",
    "<<: ",
    "{",
    "}",
    "[",
    "]",
    ", ",
    ": ",
    "null",
    "\"",
    "containers:",
    "ports:",
    "hostPort:",
    "\u{feff}",
];

fn is_host_name(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = name.as_bytes();
    let ends = [bytes.first(), bytes.last()];
    ends.iter().all(|end| end.is_some_and(|byte| is_letter(*byte)))
        && bytes.len() < 254
        && bytes.iter().all(|byte| is_letter(*byte) || b"-.".contains(byte))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Names become parts of paths and names of hosts; the record of a pod is read after a restart.
    #[test]
    fn any_file_is_refused_on_one_line_or_read_as_pods_with_names_of_hosts(
        parts in vec(prop_oneof![3 => select(PARTS).prop_map(str::to_owned), 1 => any::<String>()], 0..40),
    ) {
        for document in parse(parts.concat().as_bytes()) {
            match document {
                Ok(pod) => {
                    let record = serde_json::to_string(&pod).unwrap();
                    prop_assert_eq!(&serde_json::from_str::<Manifest>(&record).unwrap(), &pod);
                    let names = [Some(&pod.key.namespace), Some(&pod.key.name), pod.hostname.as_ref()];
                    prop_assert!(names.into_iter().flatten().all(|name| is_host_name(name)), "{pod:?}");
                }
                Err(problem) => {
                    let text = problem.to_string();
                    prop_assert!(!text.is_empty() && !text.contains(['\n', '\r']), "{text:?}");
                }
            }
        }
    }
}
