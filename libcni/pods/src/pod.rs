//! A runtime's description of a pod: its identity and the requested network.

use cni_spec::{CniError, ContainerId, IfName, NetworkName};
use ipnetwork::IpNetwork;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

/// A pod and its sandbox: a pod that is started anew gets a new sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodId {
    /// `metadata.namespace`; goes into `K8S_POD_NAMESPACE`.
    pub namespace: String,
    /// `metadata.name`; goes into `K8S_POD_NAME`. Empty for a sandbox that is no pod of Kubernetes: no `K8S_*` is set then.
    pub name: String,
    /// `metadata.uid`; goes into `K8S_POD_UID`. May be empty.
    pub uid: String,
    /// The container that holds the namespaces: `CNI_CONTAINERID` and `K8S_POD_INFRA_CONTAINER_ID`.
    pub sandbox: ContainerId,
}

/// A pod that is to have a network.
#[derive(Debug, Clone)]
pub struct Pod {
    pub id: PodId,
    /// Path of its network namespace.
    pub netns: String,
    /// `metadata.annotations`. `kubernetes.io/ingress-bandwidth` and `kubernetes.io/egress-bandwidth` are read here;
    /// all go to plugins that ask for `io.kubernetes.cri.pod-annotations`.
    pub annotations: BTreeMap<String, String>,
    /// The requested networks, in order. Empty: the default network. The first request of the default network, or else
    /// the first of all, has the pod's primary interface.
    pub networks: Vec<NetworkRequest>,
    /// Ports of the node that lead to the pod, by its primary interface.
    pub port_mappings: Vec<PortMapping>,
    /// Settings for the pod's resolvers; plugins with the capability `dns` get them.
    pub dns: Option<Dns>,
    /// Bandwidth; each direction that is set overrides its annotation.
    pub bandwidth: Option<Bandwidth>,
    /// The ranges of its addresses: the node's pod CIDRs. One set of ranges for each address.
    pub ip_ranges: Vec<Vec<IpNetwork>>,
    /// Other names of the pod; each network gets them as `{"<network>": [..]}`.
    pub aliases: Vec<String>,
    pub cgroup_path: Option<String>,
    /// More capability arguments, by capability; these override all of the above.
    pub capabilities: BTreeMap<String, Value>,
    /// More pairs for `CNI_ARGS`, after the standard ones.
    pub args: Vec<(String, String)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NetworkRequest {
    /// The network; `None` is the default one.
    pub network: Option<NetworkName>,
    /// The interface; `None` is the first free `<prefix>N`.
    pub ifname: Option<IfName>,
    /// Requested addresses: capability `ips`, and, if it is a single one, `IP` in `CNI_ARGS`, for older plugins. Host
    /// addresses (`/32`, `/128`) are passed on without prefix length; the plugin `static` needs one.
    pub ips: Vec<IpNetwork>,
    /// Hardware address, six octets in hex with colons: capability `mac`, and `MAC` in `CNI_ARGS`.
    pub mac: Option<String>,
}

/// A port of the node that leads to a port of the pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortMapping {
    /// Port of the node; 0 means none, and the mapping is left out.
    pub host_port: u16,
    pub container_port: u16,
    /// `tcp`, `udp` or `sctp`, in any case.
    pub protocol: String,
    /// Address of the node; `None` is every one.
    pub host_ip: Option<IpAddr>,
}

/// Bandwidth of a pod, in bits a second, seen from the pod: ingress is what it receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bandwidth {
    /// `None` is unlimited.
    pub ingress_bits_per_second: Option<u64>,
    /// `None` is unlimited.
    pub egress_bits_per_second: Option<u64>,
}

/// Settings for resolvers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Dns {
    /// Addresses of servers.
    pub servers: Vec<String>,
    /// Domains to search.
    pub searches: Vec<String>,
    /// Options as in resolv.conf(5).
    pub options: Vec<String>,
}

impl PodId {
    /// A pod, with its sandbox's ID checked.
    /// Errors: code 4 when the sandbox's ID is not what the specification allows.
    pub fn new(namespace: &str, name: &str, uid: &str, sandbox: &str) -> Result<Self, CniError> {
        let (namespace, name, uid) = (namespace.to_owned(), name.to_owned(), uid.to_owned());
        Ok(Self { namespace, name, uid, sandbox: ContainerId::parse(sandbox)? })
    }
}

/// Writes the pod as `namespace/name (sandbox ID)`.
impl fmt::Display for PodId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} (sandbox {})", self.namespace, self.name, self.sandbox)
    }
}

impl Pod {
    /// A pod that requests the default network only.
    pub fn new(id: PodId, netns: impl Into<String>) -> Self {
        Self {
            id,
            netns: netns.into(),
            annotations: BTreeMap::new(),
            networks: Vec::new(),
            port_mappings: Vec::new(),
            dns: None,
            bandwidth: None,
            ip_ranges: Vec::new(),
            aliases: Vec::new(),
            cgroup_path: None,
            capabilities: BTreeMap::new(),
            args: Vec::new(),
        }
    }
}
