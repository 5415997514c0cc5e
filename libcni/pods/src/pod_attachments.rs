//! Converts a pod's request into attachments: networks, interfaces, and arguments for the plugins. Pure.
//!
//! The arguments of containerd, CRI-O, podman and dockershim differ in places. Here:
//!
//! - Port mappings, bandwidth and address ranges go to the primary interface only, as from CRI-O and dockershim: a port
//!   of the node leads to one place. (containerd sends them to every network, and has one by default.)
//! - `aliases` are `{"<network>": [names]}`, as from CRI-O and podman; the conventions have a plain list.
//! - A single static address is also set in `CNI_ARGS` as `IP`, as podman does, several are not: older plugins read one
//!   there.

use crate::error::{KnownNetworks, RequestError};
use crate::pod::{Dns, NetworkRequest, Pod, PodId, PortMapping};
use cni_spec::{CniError, IfName, NetworkName};
use ipnetwork::IpNetwork;
use libcni::{CapabilityArgs, NetworkConf, RuntimeConf};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The annotations that limit a pod's bandwidth, in bits a second.
const INGRESS: &str = "kubernetes.io/ingress-bandwidth";
const EGRESS: &str = "kubernetes.io/egress-bandwidth";
/// The range that a kubelet accepts: 1k to 1P.
const BANDWIDTH: std::ops::RangeInclusive<u64> = 1_000..=1_000_000_000_000_000;
/// The burst in bits: containerd's. It means "no limit of its own" and is below the bandwidth plugin's maximum,
/// 4294967295 bytes (CRI-O passes that, in bits).
const BURST_BITS: u64 = 4_294_967_295;
/// A capability argument that no plugin asks for: the cache keeps it, so after a restart the order of the networks and
/// the primary interface are known.
const PLACE: &str = "pods.place";
/// Capabilities that pods get without a request, and those that `CNI_ARGS` carries as well: it is no loss if no plugin
/// enables one of these.
const OFFERED: &[&str] =
    &["dns", "ipRanges", "aliases", "cgroupPath", "io.kubernetes.cri.pod-annotations", "mac", PLACE];

#[derive(Debug, Clone, Default)]
pub(crate) struct Choice<'a> {
    pub(crate) usable: Vec<&'a NetworkConf>,
    pub(crate) default: Option<&'a NetworkConf>,
    /// The default network's name, if it is fixed.
    pub(crate) fixed: Option<&'a NetworkName>,
    /// The skipped files, for error texts.
    pub(crate) passed_over: Vec<String>,
}

/// A network of a pod, ready for ADD.
#[derive(Debug, Clone)]
pub(crate) struct Planned<'a> {
    pub(crate) conf: &'a NetworkConf,
    pub(crate) network: NetworkName,
    pub(crate) attachment: RuntimeConf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Position {
    /// In the order of the request, from 0.
    pub(crate) index: usize,
    /// Whether the interface is the one whose addresses are the pod's.
    pub(crate) is_primary: bool,
}

impl Position {
    /// The attachment's place as in the cache; `None` where another runtime wrote the entry.
    pub(crate) fn find_in(arguments: &CapabilityArgs) -> Option<Self> {
        arguments.find(PLACE).and_then(|text| serde_json::from_str(text).ok())
    }
}

/// The capabilities that a pod requests and that no plugin of the network enables.
pub(crate) fn unserved(conf: &NetworkConf, arguments: &CapabilityArgs) -> Vec<String> {
    let is_enabled = |name: &str| conf.plugins.iter().flat_map(|plugin| &plugin.capabilities).any(|own| own == name);
    let is_asked_for = |name: &str, value: &str| match serde_json::from_str(value).unwrap_or_default() {
        Value::Null => false,
        Value::Object(keys) => !keys.is_empty(),
        // A single static address also goes into CNI_ARGS.
        Value::Array(items) => items.len() > usize::from(name == "ips"),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    };
    let missing = arguments
        .iter()
        .filter(|(name, value)| !OFFERED.contains(name) && !is_enabled(name) && is_asked_for(name, value));
    missing.map(|(name, _)| name.to_owned()).collect()
}

impl<'a> Choice<'a> {
    /// Details for an error about a missing network.
    pub(crate) fn known(&self) -> KnownNetworks {
        let networks = self.usable.iter().map(|conf| conf.name.clone()).collect();
        KnownNetworks { networks, passed_over: self.passed_over.clone() }
    }

    fn get(&self, name: Option<&NetworkName>) -> Result<&'a NetworkConf, RequestError> {
        match name {
            None => {
                self.default.ok_or_else(|| RequestError::NoDefault { name: self.fixed.cloned(), known: self.known() })
            }
            Some(name) => {
                self.find(name).ok_or_else(|| RequestError::UnknownNetwork { name: name.clone(), known: self.known() })
            }
        }
    }

    pub(crate) fn find(&self, name: &NetworkName) -> Option<&'a NetworkConf> {
        self.usable.iter().find(|conf| conf.name == name.as_str()).copied()
    }
}

/// The attachments of a pod, in the order of its request.
pub(crate) fn plan<'a>(pod: &Pod, choice: &Choice<'a>, prefix: &str) -> Result<Vec<Planned<'a>>, RequestError> {
    let default = [NetworkRequest::default()];
    let requests = if pod.networks.is_empty() { &default[..] } else { &pod.networks[..] };
    let confs = requests.iter().map(|request| choice.get(request.network.as_ref())).collect::<Result<Vec<_>, _>>()?;
    let ifnames = ifnames(requests, prefix)?;
    let is_default = |conf: &&NetworkConf| choice.default.is_some_and(|default| default.name == conf.name);
    let primary = confs.iter().position(is_default).unwrap_or(0);
    let of_primary = [
        ("portMappings", port_mappings(&pod.port_mappings)),
        ("bandwidth", bandwidth(pod)?),
        ("ipRanges", ip_ranges(&pod.ip_ranges)),
    ];
    let mut planned = Vec::new();
    for (index, ((request, conf), ifname)) in requests.iter().zip(confs).zip(ifnames).enumerate() {
        let network = conf.network_name().map_err(RequestError::Argument)?;
        let place = Position { index, is_primary: index == primary };
        let attachment = attachment(pod, request, &network, ifname, place, &of_primary)?;
        planned.push(Planned { conf, network, attachment });
    }
    Ok(planned)
}

/// The given names, and for the others the first free `<prefix>N`.
fn ifnames(requests: &[NetworkRequest], prefix: &str) -> Result<Vec<IfName>, RequestError> {
    let mut taken = BTreeSet::new();
    for ifname in requests.iter().filter_map(|request| request.ifname.as_ref()) {
        if !taken.insert(ifname.clone()) {
            return Err(RequestError::DoubleIfName(ifname.clone()));
        }
    }
    let mut number = 0;
    let mut first_free = || loop {
        let ifname = IfName::parse(&format!("{prefix}{number}")).map_err(RequestError::Argument)?;
        number += 1;
        if !taken.contains(&ifname) {
            return Ok(ifname);
        }
    };
    requests.iter().map(|request| request.ifname.clone().map_or_else(&mut first_free, Ok)).collect()
}

fn attachment(
    pod: &Pod,
    request: &NetworkRequest,
    network: &NetworkName,
    ifname: IfName,
    place: Position,
    of_primary: &[(&str, Option<Value>)],
) -> Result<RuntimeConf, RequestError> {
    let container_id = pod.id.sandbox.clone();
    let mut attachment = RuntimeConf::from(libcni::AttachmentId { container_id, ifname }).netns(&pod.netns);
    let mac = request.mac.as_deref().map(mac).transpose()?;
    for (key, value) in args(pod, request, mac.as_deref()) {
        attachment.args.push(key, &value).map_err(RequestError::Argument)?;
    }
    let mut capabilities = BTreeMap::new();
    let mut set = |name: &str, value: Option<Value>| value.map(|value| capabilities.insert(name.to_owned(), value));
    for (name, value) in of_primary.iter().filter(|_| place.is_primary) {
        set(name, value.clone());
    }
    set("dns", pod.dns.as_ref().map(dns));
    set("ips", some(&request.ips).map(|ips| ips.iter().map(address).collect()));
    set("mac", mac.map(Value::from));
    set("aliases", some(&pod.aliases).map(|aliases| json!({ network.as_str(): aliases })));
    set("cgroupPath", pod.cgroup_path.clone().map(Value::from));
    let annotations = (!pod.annotations.is_empty()).then(|| json!(pod.annotations));
    set("io.kubernetes.cri.pod-annotations", annotations);
    for (name, value) in &pod.capabilities {
        set(name, Some(value.clone()));
    }
    set(PLACE, Some(json!(place)));
    for (name, value) in capabilities {
        attachment.capability_args.set(&name, &value).map_err(RequestError::Argument)?;
    }
    Ok(attachment)
}

/// The pod's identity, if it has a name. Unknown keys are to be ignored, otherwise `host-local` would refuse these.
pub(crate) fn pod_args(id: &PodId) -> Vec<(&'static str, String)> {
    let mut pairs = vec![("IgnoreUnknown", "1".to_owned())];
    if id.name.is_empty() {
        return pairs;
    }
    pairs.extend([
        ("K8S_POD_NAMESPACE", id.namespace.clone()),
        ("K8S_POD_NAME", id.name.clone()),
        ("K8S_POD_INFRA_CONTAINER_ID", id.sandbox.to_string()),
    ]);
    if !id.uid.is_empty() {
        pairs.push(("K8S_POD_UID", id.uid.clone()));
    }
    pairs
}

fn args<'a>(pod: &'a Pod, request: &NetworkRequest, mac: Option<&str>) -> Vec<(&'a str, String)> {
    let mut pairs = pod_args(&pod.id);
    if let [ip] = &request.ips[..] {
        pairs.push(("IP", address(ip)));
    }
    pairs.extend(mac.map(|mac| ("MAC", mac.to_owned())));
    pairs.extend(pod.args.iter().map(|(key, value)| (key.as_str(), value.clone())));
    pairs
}

fn some<T>(list: &[T]) -> Option<&[T]> {
    (!list.is_empty()).then_some(list)
}

/// Without prefix length where it covers the whole address.
fn address(address: &IpNetwork) -> String {
    let bits = if address.is_ipv4() { 32 } else { 128 };
    if address.prefix() == bits { address.ip().to_string() } else { address.to_string() }
}

fn mac(text: &str) -> Result<String, RequestError> {
    let is_octet = |part: &str| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    if text.split(':').count() == 6 && text.split(':').all(is_octet) {
        return Ok(text.to_ascii_lowercase());
    }
    Err(RequestError::Mac(text.to_owned()))
}

fn port_mappings(all: &[PortMapping]) -> Option<Value> {
    let mapped: Vec<_> = all.iter().filter(|mapping| mapping.host_port > 0).map(port_mapping).collect();
    (!mapped.is_empty()).then(|| mapped.into())
}

fn port_mapping(mapping: &PortMapping) -> Value {
    let mut value = json!({
        "hostPort": mapping.host_port,
        "containerPort": mapping.container_port,
        "protocol": mapping.protocol.to_ascii_lowercase(),
    });
    if let Some(ip) = mapping.host_ip {
        value["hostIP"] = ip.to_string().into();
    }
    value
}

fn ip_ranges(sets: &[Vec<IpNetwork>]) -> Option<Value> {
    let set = |set: &Vec<IpNetwork>| set.iter().map(|range| json!({ "subnet": range.to_string() })).collect::<Value>();
    some(sets).map(|sets| sets.iter().map(set).collect())
}

fn dns(dns: &Dns) -> Value {
    json!({ "servers": dns.servers, "searches": dns.searches, "options": dns.options })
}

fn bandwidth(pod: &Pod) -> Result<Option<Value>, RequestError> {
    let own = pod.bandwidth.unwrap_or_default();
    let limits = [
        ("ingress", limit(pod, INGRESS, own.ingress_bits_per_second)?),
        ("egress", limit(pod, EGRESS, own.egress_bits_per_second)?),
    ];
    let mut value = serde_json::Map::new();
    for (direction, rate) in limits {
        if let Some(rate) = rate {
            value.insert(format!("{direction}Rate"), rate.into());
            value.insert(format!("{direction}Burst"), BURST_BITS.into());
        }
    }
    Ok((!value.is_empty()).then_some(Value::Object(value)))
}

fn limit(pod: &Pod, annotation: &'static str, own: Option<u64>) -> Result<Option<u64>, RequestError> {
    let Some(text) = pod.annotations.get(annotation).filter(|_| own.is_none()) else { return Ok(own) };
    let refused = || RequestError::Annotation { annotation, value: text.clone() };
    bits(text).filter(|bits| BANDWIDTH.contains(bits)).map(Some).ok_or_else(refused)
}

/// Parses a quantity in Kubernetes' notation (`apimachinery/pkg/api/resource`): a number, then a suffix or an exponent.
/// Exact: no floating point; what is left of a bit rounds up.
fn bits(text: &str) -> Option<u64> {
    let text = text.strip_prefix('+').unwrap_or(text);
    let (number, suffix) = text.split_at(text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len()));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    // A second point is no digit either.
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    let decimal = (-3..).zip(["n", "u", "m", "", "k", "M", "G", "T", "P", "E"]).find(|(_, name)| *name == suffix);
    let binary = (1..).zip(["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]).find(|(_, name)| *name == suffix);
    let tens: i32 = match (decimal, binary) {
        (Some((thousands, _)), _) => 3 * thousands,
        (None, Some(_)) => 0,
        (None, None) => suffix.strip_prefix(['e', 'E'])?.parse().ok()?,
    };
    let units = digits.checked_mul(1 << (10 * binary.map_or(0, |(kilos, _)| kilos)))?;
    let tens = tens.checked_sub(i32::try_from(fraction.len()).ok()?)?;
    let power = 10_u128.checked_pow(tens.unsigned_abs())?;
    let bits = if tens < 0 { units.div_ceil(power) } else { units.checked_mul(power)? };
    u64::try_from(bits).ok()
}

/// The parts of a pod's request that a tear-down can use: what no set-up could have used is left out.
pub(crate) fn usable_part(pod: &Pod, choice: &Choice<'_>) -> Pod {
    let mut pod = pod.clone();
    let is_known = |request: &NetworkRequest| choice.get(request.network.as_ref()).is_ok();
    pod.networks.retain(is_known);
    for annotation in [INGRESS, EGRESS] {
        if limit(&pod, annotation, None).is_err() {
            pod.annotations.remove(annotation);
        }
    }
    pod
}

/// A prefix from which interface names can be made.
pub(crate) fn check_prefix(prefix: &str) -> Result<(), CniError> {
    IfName::parse(&format!("{prefix}0")).map(drop)
}

#[cfg(test)]
#[path = "pod_attachments/tests.rs"]
mod tests;
