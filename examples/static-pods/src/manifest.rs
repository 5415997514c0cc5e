//! Pod manifests: the parts of a Kubernetes Pod that its network depends on.
//!
//! A file holds one Pod or several documents, as YAML or JSON. Unknown fields are ignored, as an older kubelet would;
//! fields that are known are checked, and an error names file, document, key and value. Containers are not run, so
//! nothing of them counts but their ports.

mod check;
mod yaml;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

/// The key of a pod: each namespace and name has one pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Key {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What a manifest says, checked. A pod is replaced when this changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) key: Key,
    /// `metadata.uid`.
    pub(crate) uid: Option<String>,
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) host_network: bool,
    /// `spec.hostname`; the pod's name if it is not given.
    pub(crate) hostname: Option<String>,
    pub(crate) ports: Vec<Port>,
    pub(crate) dns_policy: DnsPolicy,
    pub(crate) dns_config: DnsConfig,
}

/// A port of a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Port {
    pub(crate) container_port: u16,
    /// Port of the node that leads there; 0 is none.
    pub(crate) host_port: u16,
    /// Address of the node; `None` is every one.
    pub(crate) host_ip: Option<IpAddr>,
    pub(crate) protocol: Protocol,
}

/// As Kubernetes writes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Protocol {
    #[default]
    Tcp,
    Udp,
    Sctp,
}

impl Protocol {
    /// As the capability `portMappings` has it.
    pub(crate) fn lower_case(self) -> &'static str {
        match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
            Protocol::Sctp => "sctp",
        }
    }
}

/// Where a pod's resolver settings come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) enum DnsPolicy {
    /// The cluster's server, but the node's settings for pods in the node's network.
    #[default]
    ClusterFirst,
    /// The cluster's server for these too.
    ClusterFirstWithHostNet,
    /// The node's settings.
    Default,
    /// `dnsConfig` alone.
    None,
}

/// `spec.dnsConfig`: added to what the policy gives.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct DnsConfig {
    pub(crate) nameservers: Vec<IpAddr>,
    pub(crate) searches: Vec<String>,
    pub(crate) options: Vec<DnsOption>,
}

/// `ndots:5`, or `edns0` alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DnsOption {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) value: Option<String>,
}

/// A document that gives no pod, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    /// From 1, if the file has more than one.
    pub(crate) document: Option<usize>,
    /// Key, value and what is wrong with it.
    pub(crate) what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.document {
            Some(document) => write!(f, "document {document}: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

/// Reads what a manifest file holds: for each document a pod or what is wrong with it.
pub(crate) fn parse(bytes: &[u8]) -> Vec<Result<Manifest, Problem>> {
    let documents = match yaml::documents(bytes) {
        Ok(documents) => documents,
        Err(what) => return vec![Err(Problem { document: None, what })],
    };
    if documents.is_empty() {
        return vec![Err(Problem { document: None, what: "the file is empty".to_owned() })];
    }
    let several = documents.len() > 1;
    let numbered = documents.into_iter().enumerate();
    let read = numbered.map(|(index, document)| {
        check::manifest(document).map_err(|what| Problem { document: several.then_some(index + 1), what })
    });
    read.collect()
}

#[cfg(test)]
mod tests;
