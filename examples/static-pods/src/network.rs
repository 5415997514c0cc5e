//! The pods' networks: all that this program asks of crate `pods`.

use crate::board::Readiness;
use crate::cli::Options;
use crate::dns::{NodeDns, parse_resolv_conf, resolv_conf};
use crate::manifest::Manifest;
use crate::process::ProcessId;
use crate::state::Record;
use anyhow::{Context, Result, anyhow, bail};
use pods::libcni::Cancellation;
use pods::libcni::cni_spec::{ContainerId, IfName, NetworkName};
use pods::pod::{Dns, NetworkRequest, Pod, PodId, PortMapping};
use pods::{Pods, Status};
use sha2::{Digest, Sha256};
use std::net::IpAddr;

/// The networks, and the node's settings for pods.
#[derive(Debug)]
pub(crate) struct Network {
    pods: Pods,
    dns: NodeDns,
}

/// A pod's network that is complete.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Up {
    pub(crate) addresses: Vec<IpAddr>,
    /// As `network:interface`.
    pub(crate) networks: Vec<String>,
    /// Requests of the pod without effect.
    pub(crate) warnings: Vec<String>,
    /// What plugins say of DNS.
    pub(crate) dns: Dns,
}

impl From<Status> for Up {
    fn from(status: Status) -> Self {
        let networks = status.networks.iter().map(|network| format!("{}:{}", network.network, network.ifname));
        let (addresses, networks) = (status.addresses(), networks.collect());
        Self { addresses, networks, warnings: status.warnings(), dns: status.dns() }
    }
}

/// Networks besides the default one, as the Network Plumbing Working Group's de facto standard names them.
const MORE_NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";

impl Network {
    pub(crate) fn open(options: &Options) -> Result<Self> {
        let mut builder = Pods::builder()
            .conf_dir(&options.conf_dir)
            .plugin_dirs(&options.plugin_dir)
            .cache_dir(&options.cache_dir)
            .loopback(options.loopback.into())
            .deadline(options.deadline);
        if !options.verbose {
            // Errors of plugins come as results; the rest would be drawn into the table.
            builder = builder.stderr(|_, _| ());
        }
        let node = match std::fs::read_to_string(&options.resolv_conf) {
            Ok(text) => parse_resolv_conf(&text),
            // As in a C library: without the file there are no servers.
            Err(_) => Dns::default(),
        };
        let (cluster_servers, cluster_domain) = (options.cluster_dns.clone(), options.cluster_domain.clone());
        Ok(Self { pods: builder.build()?, dns: NodeDns { cluster_servers, cluster_domain, node } })
    }

    /// Whether pods can have a network now.
    pub(crate) async fn readiness(&self) -> Readiness {
        if let Err(reason) = self.pods.ready().await {
            return Readiness::NotReady(reason.to_string());
        }
        let networks = self.pods.networks().await;
        let names = networks.usable.iter().map(|network| network.conf.name.clone()).collect();
        Readiness::Ready { names, passed_over: networks.passed_over.iter().map(ToString::to_string).collect() }
    }

    /// Waits until [`Network::readiness`] may be another.
    pub(crate) async fn changed(&self) {
        self.pods.networks_changed().await;
    }

    /// Gives a sandbox its networks, all or none; also when it is called off, which is why this is not to be dropped.
    pub(crate) async fn set_up(&self, record: &Record, process: ProcessId, call_off: Cancellation) -> Result<Up> {
        let pod = self.pod(record, process)?;
        let status = self.pods.cancelled_by(call_off).set_up(&pod).await;
        // Only what the networks say: the pod's name stands beside it wherever it is shown.
        let status = status.map_err(|error| match &error.left[..] {
            [] => anyhow!("{}", lines(&error.errors)),
            left => anyhow!("{}; left behind: {}", lines(&error.errors), lines(left)),
        })?;
        Ok(status.into())
    }

    /// Takes a sandbox's networks away.
    pub(crate) async fn tear_down(&self, record: &Record) -> Result<()> {
        Ok(self.pods.tear_down(&pod_id(record)?).await?)
    }

    /// The text of the pod's resolv.conf.
    pub(crate) fn resolv_conf(&self, manifest: &Manifest, up: &Up) -> String {
        resolv_conf(&self.dns.in_pod(manifest, &up.dns))
    }

    /// What a sandbox has, as far as it is known to have it.
    pub(crate) async fn status(&self, record: &Record) -> Result<Up> {
        Ok(self.pods.status(&pod_id(record)?).await?.into())
    }

    /// Takes away what belongs to no sandbox that is known.
    pub(crate) async fn collect(&self, live: &[String]) -> Result<()> {
        let live = live.iter().map(|id| ContainerId::parse(id)).collect::<Result<Vec<_>, _>>()?;
        for (network, found) in self.pods.gc(&live).with_inventory(node_inventory()).await?.kept {
            let objects = found.objects.join(", ");
            eprintln!(
                "static-pods: network {network}: kept what another runtime may have made: {objects}: {}",
                found.life
            );
        }
        Ok(())
    }

    fn pod(&self, record: &Record, process: ProcessId) -> Result<Pod> {
        let manifest = &record.manifest;
        let mut pod = Pod::new(pod_id(record)?, process.netns().display().to_string());
        pod.annotations = manifest.annotations.clone();
        pod.networks = networks(manifest)?;
        pod.dns = Some(self.dns.of(manifest));
        let mappings = manifest.ports.iter().filter(|port| port.host_port != 0).map(|port| PortMapping {
            host_port: port.host_port,
            container_port: port.container_port,
            protocol: port.protocol.lower_case().to_owned(),
            host_ip: port.host_ip,
        });
        pod.port_mappings = mappings.collect();
        Ok(pod)
    }
}

/// The inventory of the node, so that pods of other runtimes on the same networks stay.
#[expect(clippy::disallowed_methods, reason = "PATH, as a plugin's caller has it")]
fn node_inventory() -> on_node::Node {
    on_node::Node { search_path: std::env::var("PATH").unwrap_or_default() }
}

fn lines(errors: &[pods::Error]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

fn pod_id(record: &Record) -> Result<PodId> {
    let Manifest { key, uid, .. } = &record.manifest;
    let uid = uid.clone().unwrap_or_else(|| uid_of(&record.manifest));
    Ok(PodId::new(&key.namespace, &key.name, &uid, &record.sandbox)?)
}

/// A pod of the API has its UID from the API server; one from a file has it from its manifest, as with a kubelet.
fn uid_of(manifest: &Manifest) -> String {
    // Writing a manifest as JSON cannot fail: it has no map but of strings.
    let digest = Sha256::digest(serde_json::to_vec(manifest).unwrap_or_default());
    let hex: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// The default network and those of the annotation: `net1, namespace/net2@eth5`.
pub(crate) fn networks(manifest: &Manifest) -> Result<Vec<NetworkRequest>> {
    let Some(text) = manifest.annotations.get(MORE_NETWORKS) else { return Ok(Vec::new()) };
    if text.trim_start().starts_with(['[', '{']) {
        bail!("annotation {MORE_NETWORKS}: only the short form is known here, as in \"net1, net2@eth5\"");
    }
    let mut networks = vec![NetworkRequest::default()];
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

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(annotation: &str) -> Manifest {
        let text = format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: web, annotations: {{k8s.v1.cni.cncf.io/networks: {annotation:?}}}}}}}"
        );
        crate::manifest::parse(text.as_bytes()).remove(0).unwrap()
    }

    #[test]
    fn more_networks_come_after_the_default_one() {
        let asked = networks(&manifest("storage, kube-system/lab@eth5,")).unwrap();
        let asked: Vec<_> = asked
            .iter()
            .map(|request| {
                (request.network.as_ref().map(NetworkName::as_str), request.ifname.as_ref().map(IfName::as_str))
            })
            .collect();
        assert_eq!(asked, [(None, None), (Some("storage"), None), (Some("lab"), Some("eth5"))]);
        for wrong in ["a b", "a@", "a@b/c", "[{}]"] {
            let error = format!("{:#}", networks(&manifest(wrong)).unwrap_err());
            assert!(error.starts_with("annotation k8s.v1.cni.cncf.io/networks: "), "{error}");
        }
    }

    #[test]
    fn a_uid_is_the_manifests() {
        let (one, other) = (uid_of(&manifest("a")), uid_of(&manifest("b")));
        assert!(one.len() == 36 && one != other && one == uid_of(&manifest("a")), "{one} {other}");
    }
}
