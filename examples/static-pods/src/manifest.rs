//! Pod manifests: the parts of a Kubernetes Pod that its network depends on.
//!
//! A file holds one Pod or several documents, as YAML or JSON. Unknown fields are ignored, as an older kubelet would
//! ignore them. Containers are not run, so only their ports count.

use anyhow::{Context, Result, bail, ensure};
use pods::libcni::cni_spec::{IfName, NetworkName};
use pods::pod::{NetworkRequest, PortMapping};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

/// Networks besides the default one, as the Network Plumbing Working Group's de facto standard names them.
const MORE_NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";

/// The key of a pod: each namespace and name has one pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A Pod as its file has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Manifest {
    api_version: String,
    kind: String,
    pub(crate) metadata: Metadata,
    #[serde(default)]
    pub(crate) spec: Spec,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Metadata {
    name: String,
    namespace: Option<String>,
    #[serde(default)]
    pub(crate) annotations: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Spec {
    pub(crate) host_network: bool,
    containers: Vec<Container>,
    init_containers: Vec<Container>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Container {
    restart_policy: Option<String>,
    ports: Vec<Port>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Port {
    container_port: u16,
    #[serde(default)]
    host_port: u16,
    #[serde(rename = "hostIP")]
    host_ip: Option<IpAddr>,
    protocol: Option<String>,
}

pub(crate) fn parse(text: &str) -> Result<Vec<Manifest>> {
    // The parser counts and limits the nodes that aliases repeat, so nested aliases cannot fill the memory.
    let manifests: Vec<Manifest> =
        serde_saphyr::from_multiple(text).map_err(|error| anyhow::anyhow!("{}", error.without_snippet()))?;
    ensure!(!manifests.is_empty(), "the file has no Pod");
    for Manifest { api_version, kind, metadata, .. } in &manifests {
        let is_pod = (api_version.as_str(), kind.as_str()) == ("v1", "Pod");
        ensure!(is_pod, "kind: {kind:?} of apiVersion {api_version:?} is no Pod of v1");
        for name in [&metadata.name].into_iter().chain(&metadata.namespace) {
            let is_right = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
            let is_name = !name.is_empty() && name.chars().all(is_right);
            ensure!(is_name, "metadata: {name:?} is no name: use a-z, 0-9, -, .");
        }
    }
    Ok(manifests)
}

impl Manifest {
    pub(crate) fn key(&self) -> Key {
        let Metadata { name, namespace, .. } = &self.metadata;
        Key { namespace: namespace.as_deref().unwrap_or("default").to_owned(), name: name.clone() }
    }

    /// The pod's UID, made from its manifest as kubelets do for pods of files: a changed pod has another one.
    pub(crate) fn uid(&self) -> Result<String> {
        let digest = Sha256::digest(serde_json::to_vec(self)?);
        Ok(digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect())
    }

    /// Ports of the node that lead to the pod. Init containers that never end (sidecars) have theirs, too.
    pub(crate) fn ports(&self) -> Vec<PortMapping> {
        let is_sidecar = |container: &&Container| container.restart_policy.as_deref() == Some("Always");
        let sidecars = self.spec.init_containers.iter().filter(is_sidecar);
        let ports = self.spec.containers.iter().chain(sidecars).flat_map(|container| &container.ports);
        let mappings = ports.map(|port| PortMapping {
            // In the node's network a port of the container is one of the node.
            host_port: if self.spec.host_network { port.container_port } else { port.host_port },
            container_port: port.container_port,
            protocol: port.protocol.as_deref().unwrap_or("tcp").to_lowercase(),
            host_ip: port.host_ip.filter(|ip| !ip.is_unspecified()),
        });
        mappings.filter(|mapping| mapping.host_port != 0).collect()
    }

    /// The default network and those of the annotation: `net1, namespace/net2@eth5`.
    pub(crate) fn networks(&self) -> Result<Vec<NetworkRequest>> {
        let mut networks = vec![NetworkRequest::default()];
        let text = self.metadata.annotations.get(MORE_NETWORKS).map_or("", String::as_str);
        if text.trim_start().starts_with(['[', '{']) {
            bail!("annotation {MORE_NETWORKS}: only the short form is known here, as in \"net1, net2@eth5\"");
        }
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let wrong = || format!("annotation {MORE_NETWORKS}: {item:?}");
            let (name, ifname) = match item.split_once('@') {
                Some((name, ifname)) => (name, Some(IfName::parse(ifname).with_context(wrong)?)),
                None => (item, None),
            };
            // Networks of files have no namespace.
            let name = name.rsplit('/').next().unwrap_or(name);
            let network = Some(NetworkName::parse(name).with_context(wrong)?);
            networks.push(NetworkRequest { network, ifname, ..NetworkRequest::default() });
        }
        Ok(networks)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn pod(name: &str, spec: &str) -> Manifest {
        parse(&format!("{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {spec}}}")).unwrap().remove(0)
    }

    #[test]
    fn an_error_names_the_value() {
        for (text, named) in [
            ("", "the file has no Pod"),
            ("{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}}", "\"Deployment\" of apiVersion \"apps"),
            ("{apiVersion: v1, kind: Pod, metadata: {name: a/b}}", "\"a/b\" is no name"),
            ("{apiVersion: v1, kind: Pod}", "metadata"),
            ("{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {hostNetwork: perhaps}}", "line 1"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }

    #[test]
    fn ports_of_the_node_are_those_of_containers_that_stay() {
        let ports = "ports: [{containerPort: 80, hostPort: 8080, hostIP: 0.0.0.0}, {containerPort: 81}]";
        let done = "initContainers: [{ports: [{containerPort: 1, hostPort: 1}]}]";
        let own = pod("web", &format!("{{containers: [{{{ports}}}], {done}}}")).ports();
        assert_eq!(own.iter().map(|port| (port.host_port, port.host_ip)).collect::<Vec<_>>(), [(8080, None)]);
        let of_node = pod("web", "{hostNetwork: true, containers: [{ports: [{containerPort: 81, protocol: UDP}]}]}");
        assert_eq!((of_node.ports()[0].host_port, of_node.ports()[0].protocol.as_str()), (81, "udp"));
    }

    #[test]
    fn more_networks_come_after_the_default_one() {
        let asked = |annotation: &str| {
            let mut manifest = pod("web", "{}");
            manifest.metadata.annotations.insert(MORE_NETWORKS.into(), annotation.into());
            manifest.networks()
        };
        let name = |request: &NetworkRequest| request.network.as_ref().map(|name| name.as_str().to_owned());
        let networks = asked("storage, kube-system/lab@eth5,").unwrap();
        assert_eq!(networks.iter().map(name).collect::<Vec<_>>(), [None, Some("storage".into()), Some("lab".into())]);
        assert_eq!(networks[2].ifname.as_ref().map(IfName::as_str), Some("eth5"));
        for wrong in ["a b", "a@", "a@b/c", "[{}]"] {
            let error = format!("{:#}", asked(wrong).unwrap_err());
            assert!(error.starts_with("annotation k8s.v1.cni.cncf.io/networks: "), "{error}");
        }
    }
}
