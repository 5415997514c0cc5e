//! The messages of `runtime.v1` (`api.proto` of `k8s.io/cri-api`) that the tests exchange, with the fields they use.
//!
//! Fields left out travel as their defaults; unknown ones of an answer are skipped.

use std::collections::HashMap;

#[derive(Clone, PartialEq, prost::Message)]
pub struct PodSandboxMetadata {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub uid: String,
    #[prost(string, tag = "3")]
    pub namespace: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct DnsConfig {
    #[prost(string, repeated, tag = "1")]
    pub servers: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub searches: Vec<String>,
    #[prost(string, repeated, tag = "3")]
    pub options: Vec<String>,
}

/// `PortMapping`; `protocol` is left at TCP.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PortMapping {
    #[prost(int32, tag = "2")]
    pub container_port: i32,
    #[prost(int32, tag = "3")]
    pub host_port: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct LinuxPodSandboxConfig {
    /// Cgroup that the pod's are made in.
    #[prost(string, tag = "1")]
    pub cgroup_parent: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct PodSandboxConfig {
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<PodSandboxMetadata>,
    #[prost(string, tag = "2")]
    pub hostname: String,
    /// Folder of the logs of the pod's containers.
    #[prost(string, tag = "3")]
    pub log_directory: String,
    #[prost(message, optional, tag = "4")]
    pub dns_config: Option<DnsConfig>,
    #[prost(message, repeated, tag = "5")]
    pub port_mappings: Vec<PortMapping>,
    #[prost(map = "string, string", tag = "7")]
    pub annotations: HashMap<String, String>,
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

#[derive(Clone, PartialEq, prost::Message)]
pub struct PodIp {
    #[prost(string, tag = "1")]
    pub ip: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct PodSandboxNetworkStatus {
    /// The pod's first address.
    #[prost(string, tag = "1")]
    pub ip: String,
    /// The pod's other addresses.
    #[prost(message, repeated, tag = "2")]
    pub additional_ips: Vec<PodIp>,
}

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
    #[prost(string, tag = "1")]
    pub image: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ContainerMetadata {
    #[prost(string, tag = "1")]
    pub name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ContainerConfig {
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<ContainerMetadata>,
    #[prost(message, optional, tag = "2")]
    pub image: Option<ImageSpec>,
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
    #[prost(message, optional, tag = "3")]
    pub sandbox_config: Option<PodSandboxConfig>,
}

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

#[derive(Clone, PartialEq, prost::Message)]
pub struct ExecSyncResponse {
    #[prost(bytes = "vec", tag = "1")]
    pub stdout: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub stderr: Vec<u8>,
    #[prost(int32, tag = "3")]
    pub exit_code: i32,
}
