//! A document to a manifest: every rule about the keys.

use super::{DnsConfig, DnsPolicy, Key, Manifest, Port, Protocol};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::IpAddr;

#[derive(Deserialize)]
struct Pod {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
    namespace: Option<String>,
    uid: Option<String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    host_network: bool,
    hostname: Option<String>,
    dns_policy: DnsPolicy,
    dns_config: DnsConfig,
    containers: Vec<Container>,
    init_containers: Vec<Container>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Container {
    restart_policy: Option<String>,
    ports: Vec<ContainerPort>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerPort {
    container_port: u16,
    #[serde(default)]
    host_port: u16,
    #[serde(default, rename = "hostIP")]
    host_ip: Option<String>,
    #[serde(default)]
    protocol: Protocol,
}

/// The manifest in a document, or key, value and what is wrong with it.
pub(super) fn manifest(document: Value) -> Result<Manifest, String> {
    kind(&document)?;
    let pod: Pod = serde_path_to_error::deserialize(document).map_err(|error| {
        let (path, what) = (error.path().to_string(), error.inner().to_string());
        // All numbers here are ports.
        let what = what.replace("expected u16", "expected a port, 0 to 65535");
        if path == "." { what } else { format!("{path}: {what}") }
    })?;
    let (metadata, spec) = (pod.metadata, pod.spec);
    let namespace = metadata.namespace.unwrap_or_else(|| "default".to_owned());
    dns_name("metadata.namespace", &namespace, 63, false)?;
    dns_name("metadata.name", &metadata.name, 253, true)?;
    if let Some(hostname) = &spec.hostname {
        dns_name("spec.hostname", hostname, 63, false)?;
    }
    if spec.dns_policy == DnsPolicy::None && spec.dns_config.nameservers.is_empty() {
        return Err("spec.dnsPolicy: None needs a server in spec.dnsConfig.nameservers".to_owned());
    }
    let ports = ports(&spec)?;
    Ok(Manifest {
        key: Key { namespace, name: metadata.name },
        uid: metadata.uid,
        annotations: metadata.annotations,
        host_network: spec.host_network,
        hostname: spec.hostname,
        ports,
        dns_policy: spec.dns_policy,
        dns_config: spec.dns_config,
    })
}

fn kind(document: &Value) -> Result<(), String> {
    let Value::Object(map) = document else { return Err("no mapping of keys, so no Pod".to_owned()) };
    match (map.get("apiVersion").and_then(Value::as_str), map.get("kind").and_then(Value::as_str)) {
        (Some("v1"), Some("Pod")) => Ok(()),
        (_, None) => Err("kind: missing; a Pod has apiVersion v1 and kind Pod".to_owned()),
        (version, Some(kind)) => {
            let version = version.unwrap_or("missing");
            Err(format!("kind: {kind:?} of apiVersion {version:?} is no Pod of v1, and only these have a place here"))
        }
    }
}

/// Ports of all containers that stay: init containers that are never done (sidecars) too.
fn ports(spec: &Spec) -> Result<Vec<Port>, String> {
    let sidecars = spec.init_containers.iter().enumerate();
    let sidecars = sidecars.filter(|(_, container)| container.restart_policy.as_deref() == Some("Always"));
    let lists = [("containers", spec.containers.iter().enumerate().collect::<Vec<_>>())];
    let lists = lists.into_iter().chain([("initContainers", sidecars.collect())]);
    let mut ports = Vec::new();
    for (list, containers) in lists {
        for (index, container) in containers {
            for (number, port) in container.ports.iter().enumerate() {
                ports.push(checked(port, spec.host_network, &format!("spec.{list}[{index}].ports[{number}]"))?);
            }
        }
    }
    Ok(ports)
}

fn checked(port: &ContainerPort, host_network: bool, at: &str) -> Result<Port, String> {
    let ContainerPort { container_port, host_port, .. } = *port;
    if container_port == 0 {
        return Err(format!("{at}.containerPort: 0 is no port (1 to 65535)"));
    }
    // In the node's network a port of the container is one of the node, so Kubernetes sets hostPort to it.
    let host_port = match (host_network, host_port) {
        (true, 0) => container_port,
        (true, other) if other != container_port => {
            return Err(format!("{at}.hostPort: {other} is not containerPort {container_port}, as hostNetwork needs"));
        }
        (_, given) => given,
    };
    let host_ip = match port.host_ip.as_deref() {
        None | Some("") => None,
        Some(text) => {
            let ip: IpAddr = text.parse().map_err(|error| format!("{at}.hostIP: {text:?}: {error}"))?;
            (!ip.is_unspecified()).then_some(ip)
        }
    };
    Ok(Port { container_port, host_port, host_ip, protocol: port.protocol })
}

/// RFC 1123: lower case letters, digits and `-`, and with `dots` labels of these.
fn dns_name(key: &str, name: &str, max: usize, dots: bool) -> Result<(), String> {
    let label = |label: &str| {
        let ends = [label.chars().next(), label.chars().last()];
        let alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        ends.iter().all(|end| end.is_some_and(alphanumeric)) && label.chars().all(|c| c == '-' || alphanumeric(c))
    };
    let right = if dots { name.split('.').all(label) } else { label(name) };
    if right && name.len() <= max {
        return Ok(());
    }
    let or_dots = if dots { ", \".\"" } else { "" };
    Err(format!("{key}: {name:?} is no name: up to {max} of a-z, 0-9, \"-\"{or_dots}, a letter or digit at both ends"))
}
