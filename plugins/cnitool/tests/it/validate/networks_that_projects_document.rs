//! Networks in the shapes that projects document for their users: what works on so many nodes is no fault. The texts are our own.

use cnitool::validate::{Level, Source, validate};

/// Projects, and a list with the keys that each uses.
const NETWORKS: &str = r#"
== containerd
{"cniVersion": "1.0.0", "name": "runtime-net", "plugins": [
    {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true, "promiscMode": true,
     "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.90.0.0/16"}], [{"subnet": "2001:db8:4860::/64"}]],
              "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}},
    {"type": "portmap", "capabilities": {"portMappings": true}}]}
== CRI-O
{"cniVersion": "1.0.0", "name": "node-bridge", "plugins": [
    {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true, "hairpinMode": true,
     "ipam": {"type": "host-local", "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
              "ranges": [[{"subnet": "10.85.0.0/16"}], [{"subnet": "fd00:85::/64"}]]}}]}
== podman
{"cniVersion": "0.4.0", "name": "pods", "plugins": [
    {"type": "bridge", "bridge": "pods0", "isGateway": true, "ipMasq": true, "hairpinMode": true,
     "ipam": {"type": "host-local", "routes": [{"dst": "0.0.0.0/0"}],
              "ranges": [[{"subnet": "10.88.0.0/16", "gateway": "10.88.0.1"}]]}},
    {"type": "portmap", "capabilities": {"portMappings": true}},
    {"type": "firewall"}, {"type": "tuning"}]}
== nerdctl
{"cniVersion": "1.0.0", "name": "default", "nerdctlID": "17f2", "nerdctlLabels": {}, "plugins": [
    {"type": "bridge", "bridge": "ctl0", "isGateway": true, "ipMasq": true, "hairpinMode": true,
     "ipam": {"type": "host-local", "ranges": [[{"gateway": "10.4.0.1", "subnet": "10.4.0.0/24"}]],
              "routes": [{"dst": "0.0.0.0/0"}]}},
    {"type": "portmap", "capabilities": {"portMappings": true}},
    {"type": "firewall", "ingressPolicy": "same-bridge"}, {"type": "tuning"}]}
== nomad
{"cniVersion": "0.4.0", "name": "jobs", "plugins": [
    {"type": "loopback"},
    {"type": "bridge", "bridge": "jobs0", "ipMasq": true, "isGateway": true, "forceAddress": true, "hairpinMode": false,
     "ipam": {"type": "host-local", "ranges": [[{"subnet": "172.26.64.0/20"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
    {"type": "firewall", "backend": "iptables", "iptablesAdminChainName": "JOBS-ADMIN"},
    {"type": "portmap", "capabilities": {"portMappings": true}, "snat": true}]}
== kind
{"cniVersion": "0.3.1", "name": "nodes", "plugins": [
    {"type": "ptp", "ipMasq": false, "mtu": 1500,
     "ipam": {"type": "host-local", "dataDir": "/run/ipam-state", "routes": [{"dst": "0.0.0.0/0"}],
              "ranges": [[{"subnet": "10.244.0.0/24"}]]}},
    {"type": "portmap", "capabilities": {"portMappings": true}}]}
== GKE
{"cniVersion": "0.3.1", "name": "cloud-pods", "plugins": [
    {"type": "ptp", "mtu": 1460, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.12.1.0/24"}]],
     "routes": [{"dst": "0.0.0.0/0"}]}},
    {"type": "portmap", "capabilities": {"portMappings": true}}]}
== kube-router
{"cniVersion": "0.3.0", "name": "router", "plugins": [
    {"name": "pods", "type": "bridge", "bridge": "router0", "isDefaultGateway": true, "mtu": 1480,
     "ipam": {"type": "host-local", "subnet": "10.1.2.0/24"}},
    {"type": "portmap", "capabilities": {"snat": true, "portMappings": true}}]}
== flannel and k3s
{"cniVersion": "1.0.0", "name": "overlay", "plugins": [
    {"type": "flannel", "delegate": {"hairpinMode": true, "forceAddress": true, "isDefaultGateway": true}},
    {"type": "portmap", "capabilities": {"portMappings": true}},
    {"type": "bandwidth", "capabilities": {"bandwidth": true}}]}
== Calico
{"cniVersion": "0.3.1", "name": "routed", "plugins": [
    {"type": "calico", "log_level": "info", "datastore_type": "kubernetes", "nodename": "n1", "mtu": 0,
     "ipam": {"type": "calico-ipam"}, "policy": {"type": "k8s"}, "kubernetes": {"kubeconfig": "/etc/cni/kubeconfig"}},
    {"type": "portmap", "snat": true, "capabilities": {"portMappings": true}},
    {"type": "bandwidth", "capabilities": {"bandwidth": true}}]}
== Cilium
{"cniVersion": "0.3.1", "name": "ebpf", "plugins": [{"type": "cilium-cni", "enable-debug": false}]}
== Cilium behind AWS
{"cniVersion": "0.4.0", "name": "eni", "plugins": [
    {"name": "eni", "type": "aws-cni", "vethPrefix": "eni", "mtu": "9001", "podSGEnforcingMode": "strict"},
    {"type": "portmap", "capabilities": {"portMappings": true}, "snat": true},
    {"type": "cilium-cni", "enable-debug": false}]}
== AWS
{"cniVersion": "0.4.0", "name": "eni", "disableCheck": true, "plugins": [
    {"name": "eni", "type": "aws-cni", "vethPrefix": "eni", "mtu": "9001", "pluginLogLevel": "DEBUG"},
    {"name": "egress", "type": "egress-cni", "mtu": "9001", "enabled": "false", "nodeIP": "",
     "ipam": {"type": "host-local", "ranges": [[{"subnet": "169.254.172.0/22"}]], "routes": [{"dst": "0.0.0.0/0"}],
              "dataDir": "/run/egress"}},
    {"type": "portmap", "capabilities": {"portMappings": true}, "snat": true}]}
== Azure
{"cniVersion": "0.3.0", "name": "vnet", "plugins": [
    {"type": "azure-vnet", "mode": "transparent", "ipsToRouteViaHost": ["169.254.20.10"],
     "ipam": {"type": "azure-vnet-ipam"}},
    {"type": "portmap", "capabilities": {"portMappings": true}, "snat": true}]}
== Weave
{"cniVersion": "0.3.0", "name": "mesh", "plugins": [
    {"name": "mesh", "type": "weave-net", "hairpinMode": true},
    {"type": "portmap", "capabilities": {"portMappings": true}, "snat": true}]}
== Antrea
{"cniVersion": "0.3.0", "name": "ovs", "plugins": [
    {"type": "antrea", "ipam": {"type": "host-local"}},
    {"type": "portmap", "capabilities": {"portMappings": true}},
    {"type": "bandwidth", "capabilities": {"bandwidth": true}}]}
== OVN-Kubernetes
{"cniVersion": "0.4.0", "name": "ovn", "plugins": [
    {"type": "ovn-k8s-cni-overlay", "ipam": {}, "dns": {}, "logFile": "/var/log/ovn/cni.log", "logLevel": "5"}]}
== Multus
{"cniVersion": "0.3.1", "name": "many", "plugins": [
    {"type": "multus-cni", "capabilities": {"portMappings": true, "bandwidth": true}, "logLevel": "error",
     "kubeconfig": "/etc/cni/multus.kubeconfig", "clusterNetwork": "/host/etc/cni/net.d/10-ovn.conf"}]}
== Whereabouts
{"cniVersion": "0.3.0", "name": "lan", "plugins": [
    {"type": "macvlan", "master": "eth1", "mode": "bridge",
     "ipam": {"type": "whereabouts", "range": "192.168.2.225/28", "exclude": ["192.168.2.229/30"]}}]}
== SR-IOV
{"cniVersion": "0.3.1", "name": "vf", "plugins": [
    {"type": "sriov", "vlan": 1000, "spoofchk": "off", "capabilities": {"ips": true}, "ipam": {"type": "static"}},
    {"type": "sbr"}, {"type": "tuning", "sysctl": {"net.core.somaxconn": "500"}}]}
== Istio behind a bridge
{"cniVersion": "0.3.1", "name": "mesh", "plugins": [
    {"type": "bridge", "bridge": "mesh0", "isDefaultGateway": true, "ipam": {"type": "host-local", "subnet": "10.9.0.0/24"}},
    {"type": "istio-cni", "log_level": "info", "kubernetes": {"kubeconfig": "/etc/cni/istio", "exclude_namespaces": ["s"]}}]}
"#;

#[test]
fn networks_of_projects_have_no_fault() {
    for network in NETWORKS.split("== ").skip(1) {
        let (project, text) = network.split_once('\n').unwrap();
        let source = Source::file(&format!("{project}.conflist"), text.as_bytes());
        let findings = validate(vec![source], cnitool::keys::ALL).findings;
        // A plugin that is not of this suite gets a note.
        let faults: Vec<_> = findings.iter().filter(|finding| finding.level != Level::Note).collect();
        assert!(faults.is_empty(), "{project}: {faults:#?}");
    }
}
