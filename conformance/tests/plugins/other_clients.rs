//! What runtimes without a lane of their own do: their executables' names, their lists, their namespaces.

use crate::interface_plugins::ALL;
use crate::prelude::*;
use conformance::chained_plugins::{behind, bridged, chained_plugins};
use conformance::shell::sh;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A container whose network namespace belongs to another user namespace, as of a pod with `hostUsers: false`.
struct OfOtherUsers(Child, Attachment);

impl OfOtherUsers {
    fn start(node: &Node, id: &str) -> Self {
        let script = "echo begun; exec sleep infinity";
        let mut unshare = Command::new("unshare");
        unshare.args(["--user", "--map-root-user", "--net", "sh", "-c", script]).stdout(Stdio::piped());
        let mut child = node.host().enter(|| unshare.spawn()).expect("run unshare");
        BufReader::new(child.stdout.take().expect("its output")).read_line(&mut String::new()).expect("its line");
        let path = format!("/run/netns/{id}");
        sh(node.host(), &format!("mkdir -p /run/netns; touch {path}; mount --bind /proc/{}/ns/net {path}", child.id()));
        Self(child, Attachment { container_id: id.to_owned(), netns: path, ifname: "eth0".to_owned() })
    }
}

impl Drop for OfOtherUsers {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).expect("end the container");
    }
}

#[test]
fn a_namespace_of_another_user_namespace_has_all_plugins() {
    for kind in ALL.into_iter().filter(|kind| kind.is_known()) {
        let (node, _outside) = kind.node(1);
        let pod = OfOtherUsers::start(&node, "others");
        Attached::add(&node, &kind.config(0, json!({})), &pod.1).check_and_del();
    }
    for chained in chained_plugins() {
        let node = node();
        let pod = OfOtherUsers::start(&node, "others");
        let before = bridged(&node, &pod.1);
        let mut config = (chained.config)();
        // In older kernels (6.1) namespaces of other users than the machine's have no sysctls of `net.core`.
        if let Some(sysctls) = config.get_mut("sysctl").and_then(Value::as_object_mut) {
            sysctls.remove("net.core.somaxconn");
        }
        Attached::add(&node, &behind(&before, config), &pod.1).check_and_del();
        before.del().ok();
    }
}

/// Makes the calls of a list by hand; each has to say nothing on stderr.
#[track_caller]
fn add_silently(node: &Node, plugins: &[Value], pod: &Container) -> Value {
    let mut result = Value::Null;
    for plugin in plugins {
        let call = Call::new(Verb::Add, plugin, pod);
        let reply = if result.is_null() { call } else { call.prev_result(&result) }.run(node);
        assert_eq!(reply.output.stderr, "", "{plugin}");
        result = reply.ok();
    }
    for plugin in plugins {
        Call::new(Verb::Check, plugin, pod).prev_result(&result).run(node).ok();
    }
    result
}

#[track_caller]
fn del_silently(node: &Node, plugins: &[Value], pod: &Container, result: &Value) {
    for plugin in plugins.iter().rev() {
        let reply = Call::new(Verb::Del, plugin, pod).prev_result(result).run(node);
        assert_eq!(reply.output.stderr, "", "{plugin}");
        reply.ok();
    }
}

/// A list of network `name`, whose executables' names begin with `prefix`.
fn list(name: &str, prefix: &str, plugins: Value) -> Vec<Value> {
    let whole = |plugin: &Value| {
        let plugin_type = format!("{prefix}{}", plugin["type"].as_str().expect("a type"));
        let mut plugin = with(plugin.clone(), json!({"cniVersion": "1.0.0", "name": name, "type": plugin_type}));
        if let Some(ipam) = plugin["ipam"]["type"].as_str().map(|ipam| format!("{prefix}{ipam}")) {
            plugin["ipam"]["type"] = json!(ipam);
        }
        plugin
    };
    plugins.as_array().expect("plugins").iter().map(whole).collect()
}

/// BuildKit calls `buildkit-cni-bridge` and the like, for namespaces of a pool that it fills ahead.
#[test]
fn buildkits_pool_is_filled_and_drained_without_a_warning() {
    let node = node();
    for name in ["loopback", "bridge", "firewall", "host-local"] {
        let folder = node.bin_dir();
        std::fs::rename(folder.join(name), folder.join(format!("buildkit-cni-{name}"))).expect("rename a plugin");
    }
    for backend in ["", "iptables"] {
        let ipam = json!({"type": "host-local", "ranges": [[{"subnet": "10.7.0.0/24"}]]});
        let bridge = json!({"type": "bridge", "bridge": "br0", "isDefaultGateway": true, "ipMasq": true, "ipam": ipam});
        let firewall = json!({"type": "firewall", "backend": backend, "ingressPolicy": "same-bridge"});
        let plugins = list("net", "buildkit-cni-", json!([{"type": "loopback"}, bridge, firewall]));
        let pool: Vec<_> = (0..4).map(|_| node.container()).collect();
        let results: Vec<_> = pool.iter().map(|pod| add_silently(&node, &plugins, pod)).collect();
        pool.iter().for_each(|pod| pod.namespace().ping(ip("10.7.0.1")));
        pool.iter().zip(&results).for_each(|(pod, result)| del_silently(&node, &plugins, pod, result));
        node.assert_as_before_except(conformance::chained_plugins::stays_on_node);
    }
}

/// concourse makes the administrator's chain, its denials and a rule of INPUT itself, before the first container.
#[test]
fn concourses_own_chain_and_rules_hold_and_stay() {
    let node = node();
    let outside = node.remote("outside");
    node.host().add_veth("uplink", &outside, "outside");
    sh(node.host(), "ip address add 198.51.100.1/24 dev uplink; ip link set uplink up");
    sh(
        &outside,
        "ip address add 198.51.100.2/24 dev outside; ip link set outside up; ip route add default via 198.51.100.1",
    );
    sh(
        node.host(),
        "iptables -N CONCOURSE-OPERATOR
        iptables -A CONCOURSE-OPERATOR -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
        iptables -A CONCOURSE-OPERATOR -d 198.51.100.2 -j REJECT
        iptables -I INPUT 1 -i concourse0 -j REJECT --reject-with icmp-host-prohibited",
    );
    let own = || {
        let rules = sh(node.host(), "iptables-save -t filter");
        rules
            .lines()
            .filter(|line| line.contains("CONCOURSE-OPERATOR -") || line.contains("-A INPUT"))
            .map(str::to_owned)
            .collect()
    };
    let before: Vec<String> = own();
    let ipam = json!({"type": "host-local", "subnet": "10.80.0.0/16", "routes": [{"dst": "0.0.0.0/0"}]});
    let bridge = json!({"type": "bridge", "bridge": "concourse0", "isGateway": true, "ipMasq": true, "ipam": ipam});
    let firewall = json!({"type": "firewall", "iptablesAdminChainName": "CONCOURSE-OPERATOR"});
    let plugins = list("concourse", "", json!([bridge, firewall]));
    let pod = node.container();
    let result = add_silently(&node, &plugins, &pod);
    let reaches = |address: &str| pod.namespace().pings(ip(address), Duration::ZERO);
    assert!(!reaches("10.80.0.1") && !reaches("198.51.100.2"));
    sh(node.host(), "iptables -D CONCOURSE-OPERATOR -d 198.51.100.2 -j REJECT");
    pod.namespace().ping(ip("198.51.100.2"));
    sh(node.host(), "iptables -A CONCOURSE-OPERATOR -d 198.51.100.2 -j REJECT");
    del_silently(&node, &plugins, &pod, &result);
    assert_eq!(own(), before);
}
