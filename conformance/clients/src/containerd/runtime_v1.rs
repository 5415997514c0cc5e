//! The messages of `runtime.v1` (`api.proto` of `k8s.io/cri-api`) that the tests exchange, with the fields they use.
//!
//! Fields left out travel as their defaults; unknown ones of an answer are skipped.

use std::collections::HashMap;

/// `PodSandboxMetadata`
#[derive(Clone, PartialEq, prost::Message)]
pub struct PodSandboxMetadata {
    /// Name of the pod.
    #[prost(string, tag = "1")]
    pub name: String,
    /// UID of the pod.
    #[prost(string, tag = "2")]
    pub uid: String,
    /// Namespace of the pod.
    #[prost(string, tag = "3")]
    pub namespace: String,
}

/// `DNSConfig`
#[derive(Clone, PartialEq, prost::Message)]
pub struct DnsConfig {
    /// Addresses of name servers.
    #[prost(string, repeated, tag = "1")]
    pub servers: Vec<String>,
    /// Search domains.
    #[prost(string, repeated, tag = "2")]
    pub searches: Vec<String>,
    /// Options of resolv.conf.
    #[prost(string, repeated, tag = "3")]
    pub options: Vec<String>,
}

/// `PortMapping`; `protocol` is left at TCP.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PortMapping {
    #[prost(int32, tag = "2")]
    pub container_port: i32,
    /// Port of the node.
    #[prost(int32, tag = "3")]
    pub host_port: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct LinuxPodSandboxConfig {
    /// Cgroup that the pod's are made in.
    #[prost(string, tag = "1")]
    pub cgroup_parent: String,
}

/// `PodSandboxConfig`
#[derive(Clone, PartialEq, prost::Message)]
pub struct PodSandboxConfig {
    /// The pod's identity.
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<PodSandboxMetadata>,
    /// The pod's host name.
    #[prost(string, tag = "2")]
    pub hostname: String,
    /// Folder of the logs of the pod's containers.
    #[prost(string, tag = "3")]
    pub log_directory: String,
    /// The pod's resolver.
    #[prost(message, optional, tag = "4")]
    pub dns_config: Option<DnsConfig>,
    /// The pod's ports on the node.
    #[prost(message, repeated, tag = "5")]
    pub port_mappings: Vec<PortMapping>,
    /// The pod's annotations.
    #[prost(map = "string, string", tag = "7")]
    pub annotations: HashMap<String, String>,
    /// Settings for Linux.
    #[prost(message, optional, tag = "8")]
    pub linux: Option<LinuxPodSandboxConfig>,
}

/// The requests and answers that are just the ID of a sandbox (`RunPodSandboxResponse`, `StopPodSandboxRequest`,
/// `RemovePodSandboxRequest`, `PodSandboxStatusRequest`) or container (`CreateContainerResponse`, `StartContainerRequest`).
#[derive(Clone, PartialEq, prost::Message)]
pub struct Id {
    #[prost(string, tag = "1")]
    pub id: String,
}

/// The requests and answers that are just another message: `RunPodSandboxRequest`, `PodSandboxStatusResponse`, `StatusResponse`,
/// `ImageStatusRequest`, `ImageStatusResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Only<M: prost::Message + Default + std::fmt::Debug> {
    #[prost(message, optional, tag = "1")]
    pub message: Option<M>,
}

/// The answers without any field.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Nothing {}

/// `PodIP`
#[derive(Clone, PartialEq, prost::Message)]
pub struct PodIp {
    /// The address.
    #[prost(string, tag = "1")]
    pub ip: String,
}

/// `PodSandboxNetworkStatus`
#[derive(Clone, PartialEq, prost::Message)]
pub struct PodSandboxNetworkStatus {
    /// The pod's first address.
    #[prost(string, tag = "1")]
    pub ip: String,
    /// The pod's other addresses.
    #[prost(message, repeated, tag = "2")]
    pub additional_ips: Vec<PodIp>,
}

/// `PodSandboxStatus`
#[derive(Clone, PartialEq, prost::Message)]
pub struct PodSandboxStatus {
    /// 0 ready, 1 not.
    #[prost(int32, tag = "3")]
    pub state: i32,
    #[prost(message, optional, tag = "5")]
    pub network: Option<PodSandboxNetworkStatus>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct RuntimeCondition {
    /// `RuntimeReady` or `NetworkReady`.
    #[prost(string, tag = "1")]
    pub kind: String,
    /// Whether the condition is met.
    #[prost(bool, tag = "2")]
    pub status: bool,
    /// The reason why a condition is not met, in a word.
    #[prost(string, tag = "3")]
    pub reason: String,
    /// The reason why a condition is not met, in a sentence.
    #[prost(string, tag = "4")]
    pub message: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct RuntimeStatus {
    #[prost(message, repeated, tag = "1")]
    pub conditions: Vec<RuntimeCondition>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ImageSpec {
    /// Name of the image.
    #[prost(string, tag = "1")]
    pub image: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ContainerMetadata {
    /// The container's name within the pod.
    #[prost(string, tag = "1")]
    pub name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ContainerConfig {
    /// The container's identity.
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<ContainerMetadata>,
    /// The container's image.
    #[prost(message, optional, tag = "2")]
    pub image: Option<ImageSpec>,
    /// The command that the container runs.
    #[prost(string, repeated, tag = "3")]
    pub command: Vec<String>,
    /// The container's log, below the pod's folder.
    #[prost(string, tag = "11")]
    pub log_path: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CreateContainerRequest {
    #[prost(string, tag = "1")]
    pub pod_sandbox_id: String,
    #[prost(message, optional, tag = "2")]
    pub config: Option<ContainerConfig>,
    /// The pod again.
    #[prost(message, optional, tag = "3")]
    pub sandbox_config: Option<PodSandboxConfig>,
}

/// `ExecSyncRequest`
#[derive(Clone, PartialEq, prost::Message)]
pub struct ExecSyncRequest {
    #[prost(string, tag = "1")]
    pub container_id: String,
    /// The command to run in the container.
    #[prost(string, repeated, tag = "2")]
    pub cmd: Vec<String>,
    /// After how many seconds it is killed.
    #[prost(int64, tag = "3")]
    pub timeout_s: i64,
}

/// `ExecSyncResponse`
#[derive(Clone, PartialEq, prost::Message)]
pub struct ExecSyncResponse {
    /// The command's stdout.
    #[prost(bytes = "vec", tag = "1")]
    pub stdout: Vec<u8>,
    /// The command's stderr.
    #[prost(bytes = "vec", tag = "2")]
    pub stderr: Vec<u8>,
    /// The command's exit status.
    #[prost(int32, tag = "3")]
    pub exit_code: i32,
}
