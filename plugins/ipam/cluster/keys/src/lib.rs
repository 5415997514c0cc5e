//! The keys of address plugin `cluster`: host-local's, and those of the cluster. Every rule about the latter is here.
//!
//! A crate of its own: `cnitool` checks configurations by it, and has no TLS.

mod endpoint;
mod node_view;

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cni_spec::{CniArgs, CniError, Code, ConfObject, ContainerId, FromAnyConf, FromConf};
use host_local::address::Address;
use host_local::conf as local;
use host_local::range::{Range, RangeSet, Span};
use serde::Deserialize;

pub use endpoint::Endpoint;
pub use node_view::{Memory, NodeView, Standing};

/// The default length of a run.
const CLAIM_SIZE: u32 = 32;
/// A run is worked through address by address, within the time of an ADD.
const CLAIM_SIZE_MAX: u32 = 1 << 16;
/// The default time for which a node trusts what it has read: an hour.
const TRUST_SECONDS: u32 = 3600;
/// The shortest one: a call that takes longer than this is not expected to end well.
const TRUST_SECONDS_MIN: u32 = 60;
/// The default time to wait for the store.
const TIMEOUT_SECONDS: u32 = 2;
/// The keys of `CNI_ARGS` that name a claim, and say that its container moves.
const CLAIM: &str = "claim";
const CLAIM_MOVES: &str = "claimMoves";
/// The value of `ipam.claim` that makes the pod's name the claim's; the variables of Kubernetes' runtimes.
const POD: &str = "pod";
const POD_NAMESPACE: &str = "K8S_POD_NAMESPACE";
const POD_NAME: &str = "K8S_POD_NAME";
const CLAIM_BYTES_MAX: usize = 253;
/// The default beginning of etcd's keys.
const PREFIX: &str = "/cni/cluster";
/// The default credentials of Kubernetes' API: runtimes read no file of this name.
const KUBECONFIG: &str = "/etc/cni/net.d/cluster.kubeconfig";
/// The default namespace of the objects.
const NAMESPACE: &str = "kube-system";

/// The keys, checked.
#[derive(Debug, Clone)]
pub struct Conf {
    /// The keys of host-local.
    pub local: local::Conf,
    /// The network's name.
    pub network: String,
    /// The node's name; `None`: the machine-id.
    pub node: Option<String>,
    /// The store that all nodes share.
    pub store: StoreConf,
    /// The time to wait for the store.
    pub timeout: Duration,
    /// The length of a run.
    pub claim_size: u32,
    /// How long the node trusts what it has read.
    pub trust_seconds: u32,
    /// The claim whose addresses the container gets.
    pub claim: Option<String>,
    /// Whether the claim may be held by another node, too: its container moves here while both live.
    pub claim_moves: bool,
    /// Whether the claim is the pod's own name, of `CNI_ARGS`.
    pub is_claim_of_pod: bool,
}

/// The store that a config names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreConf {
    /// A folder that all nodes share.
    Folder(PathBuf),
    /// etcd.
    Etcd(EtcdConf),
    /// The API of Kubernetes.
    Kubernetes(KubernetesConf),
}

/// Where etcd is, and as whom the node speaks with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdConf {
    /// The members.
    pub endpoints: Vec<Endpoint>,
    /// The authority that has signed the members' certificates.
    pub ca_file: PathBuf,
    /// The node's certificate.
    pub cert_file: PathBuf,
    /// The certificate's key, which only its owner may read.
    pub key_file: PathBuf,
    /// The prefix of the keys of all networks.
    pub prefix: String,
}

/// Where Kubernetes' API has the records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubernetesConf {
    /// The file that says where the API is, and as whom the node speaks with it; only its owner may read it.
    pub kubeconfig: PathBuf,
    /// The namespace of the objects.
    pub namespace: String,
}

/// The keys that removal needs.
#[derive(Debug, Clone)]
pub struct Removal {
    /// Where the reservations are.
    pub local: local::Removal,
    /// All keys, to give runs back; `None` if ADD would refuse them.
    pub whole: Option<Box<Conf>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Net {
    ipam: Ipam,
    args: Args,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Args {
    cni: CniKeys,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct CniKeys {
    claim: Option<String>,
    claim_moves: bool,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Ipam {
    store: Option<StoreKeys>,
    node: String,
    claim_size: Option<u32>,
    trust_seconds: Option<u32>,
    claim: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct StoreKeys {
    path: String,
    timeout_seconds: Option<u32>,
    endpoints: Vec<String>,
    ca_file: String,
    cert_file: String,
    key_file: String,
    prefix: String,
    kubernetes: Option<KubernetesKeys>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct KubernetesKeys {
    kubeconfig: String,
    namespace: String,
}

/// Refuses a name that no node can have: it is a part of paths.
///
/// # Errors
/// Code 7.
pub fn check_name(node: &str) -> Result<(), CniError> {
    let expected =
        "a node's name has at most 230 letters, digits, '_', '.' and '-', and begins with one of the first two";
    let is_name = node.len() <= 230 && ContainerId::parse(node).is_ok();
    if is_name { Ok(()) } else { Err(CniError::invalid_key("ipam.node", quoted(node), expected)) }
}

impl FromConf for Conf {
    fn from_conf(object: &ConfObject) -> Result<Self, CniError> {
        let local = local::Conf::from_conf(object)?;
        let net: Net = object.decode_also()?;
        let keys = net.ipam.store.as_ref().ok_or_else(|| missing("ipam.store"))?;
        let store = store(keys)?;
        let within = |key: &str, value: Option<u32>, default: u32, range: RangeInclusive<u32>| {
            let value = value.unwrap_or(default);
            let refused =
                || CniError::invalid_key(key, value, &format!("expected {} to {}", range.start(), range.end()));
            range.contains(&value).then_some(value).ok_or_else(refused)
        };
        let node = Some(net.ipam.node.clone()).filter(|node| !node.is_empty());
        node.as_deref().map_or(Ok(()), check_name)?;
        if !["", POD].contains(&net.ipam.claim.as_str()) {
            let why = "expected \"pod\"; one container's claim is named by args.cni.claim, or claim in CNI_ARGS";
            return Err(CniError::invalid_key("ipam.claim", quoted(&net.ipam.claim), why));
        }
        let timeout = within("ipam.store.timeoutSeconds", keys.timeout_seconds, TIMEOUT_SECONDS, 1..=u32::MAX)?;
        Ok(Self {
            local,
            network: object.name().to_string(),
            node,
            store,
            timeout: Duration::from_secs(timeout.into()),
            claim_size: within("ipam.claimSize", net.ipam.claim_size, CLAIM_SIZE, 1..=CLAIM_SIZE_MAX)?,
            trust_seconds: within(
                "ipam.trustSeconds",
                net.ipam.trust_seconds,
                TRUST_SECONDS,
                TRUST_SECONDS_MIN..=u32::MAX,
            )?,
            claim: claim("args.cni.claim", net.args.cni.claim.as_deref().unwrap_or_default())?,
            claim_moves: net.args.cni.claim_moves,
            is_claim_of_pod: net.ipam.claim == POD,
        })
    }
}

/// Whether a text can be a claim's name: letters, digits, `_`, `.`, `-` and `/`, as in `NAMESPACE/NAME`.
#[must_use]
pub fn is_claim(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_.-/".contains(c);
    !text.is_empty() && text.len() <= CLAIM_BYTES_MAX && text.chars().all(is_plain)
}

/// A claim's name; none if the text is empty.
fn claim(key: &str, text: &str) -> Result<Option<String>, CniError> {
    match text {
        "" => Ok(None),
        name if is_claim(name) => Ok(Some(name.to_owned())),
        other => Err(CniError::invalid_key(
            key,
            quoted(other),
            "a claim's name has 1 to 253 letters, digits, '_', '.', '-' and '/', as NAMESPACE/NAME",
        )),
    }
}

/// A text as it is in the file.
fn quoted(text: &str) -> String {
    format!("{text:?}")
}

fn missing(key: &str) -> CniError {
    CniError::new(Code::INVALID_CONFIG, format!("key {key} is missing"))
        .detail(
            "Name a folder that all nodes share, \"store\": {\"path\": \"/shared/cni\"}, or etcd: endpoints, caFile, certFile, \
             keyFile, or Kubernetes: \"kubernetes\": {}.",
        )
        .at_key(key)
}

/// The store's keys: a folder, etcd, or Kubernetes.
fn store(keys: &StoreKeys) -> Result<StoreConf, CniError> {
    if let Some(kubernetes) = &keys.kubernetes {
        let endpoint = keys.endpoints.first().map_or("", String::as_str);
        refuse_beside("ipam.store.kubernetes", &[("path", &keys.path), ("endpoints[0]", endpoint)])?;
        return self::kubernetes(kubernetes);
    }
    if keys.endpoints.is_empty() {
        return Ok(StoreConf::Folder(absolute("path", &keys.path)?));
    }
    refuse_beside("ipam.store.endpoints", &[("path", &keys.path)])?;
    let endpoint = |(at, text): (usize, &String)| {
        let key = format!("ipam.store.endpoints[{at}]");
        Endpoint::parse(text).map_err(|wanted| CniError::invalid_key(&key, quoted(text), wanted))
    };
    let prefix = if keys.prefix.is_empty() { PREFIX } else { keys.prefix.trim_end_matches('/') };
    if !prefix.starts_with('/') {
        return Err(CniError::invalid_key("ipam.store.prefix", quoted(prefix), "the prefix must begin with /"));
    }
    Ok(StoreConf::Etcd(EtcdConf {
        endpoints: keys.endpoints.iter().enumerate().map(endpoint).collect::<Result<_, _>>()?,
        ca_file: absolute("caFile", &keys.ca_file)?,
        cert_file: absolute("certFile", &keys.cert_file)?,
        key_file: absolute("keyFile", &keys.key_file)?,
        prefix: prefix.to_owned(),
    }))
}

fn absolute(key: &str, value: &str) -> Result<PathBuf, CniError> {
    match Path::new(value) {
        _ if value.is_empty() => Err(missing(&format!("ipam.store.{key}"))),
        path if path.is_absolute() => Ok(path.to_owned()),
        _ => Err(CniError::invalid_key(&format!("ipam.store.{key}"), quoted(value), "the path must begin with /")),
    }
}

/// Refuses keys that name a store of another kind than `wanted` does.
fn refuse_beside(wanted: &str, others: &[(&str, &str)]) -> Result<(), CniError> {
    let Some((key, value)) = others.iter().find(|(_, value)| !value.is_empty()) else { return Ok(()) };
    let why = format!("a store is a folder, etcd, or Kubernetes: remove it, or {wanted}");
    Err(CniError::invalid_key(&format!("ipam.store.{key}"), quoted(value), &why))
}

fn kubernetes(keys: &KubernetesKeys) -> Result<StoreConf, CniError> {
    let given = |value: &str, default: &str| if value.is_empty() { default.to_owned() } else { value.to_owned() };
    let namespace = given(&keys.namespace, NAMESPACE);
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if namespace.len() > 63
        || !namespace.chars().all(is_inner)
        || namespace.starts_with('-')
        || namespace.ends_with('-')
    {
        let why =
            "a namespace has at most 63 small letters, digits and '-', and begins and ends with one of the first two";
        return Err(CniError::invalid_key("ipam.store.kubernetes.namespace", quoted(&namespace), why));
    }
    let kubeconfig = absolute("kubernetes.kubeconfig", &given(&keys.kubeconfig, KUBECONFIG))?;
    Ok(StoreConf::Kubernetes(KubernetesConf { kubeconfig, namespace }))
}

impl FromAnyConf for Removal {
    fn from_any_conf(object: &ConfObject) -> Self {
        let whole = Conf::from_conf(object).ok().map(Box::new);
        Self { local: local::Removal::from_any_conf(object), whole }
    }
}

impl Conf {
    /// The keys, with what `CNI_ARGS` asks for: an address, and a claim where `args.cni` has none.
    ///
    /// # Errors
    /// Code 4 and 7: an unknown key without `IgnoreUnknown`, a malformed address or claim; no pod's name where it is the claim's.
    pub fn asking(self, args: &CniArgs) -> Result<Self, CniError> {
        let of_args = claim("claim in CNI_ARGS", args.find(CLAIM).unwrap_or_default())?;
        let claim_moves =
            self.claim_moves || args.find(CLAIM_MOVES).is_some_and(|value| ["1", "true"].contains(&value));
        let claim = match (self.claim.or(of_args), args.find(POD_NAMESPACE), args.find(POD_NAME)) {
            (None, Some(namespace), Some(name)) if self.is_claim_of_pod => {
                claim("K8S_POD_NAMESPACE and K8S_POD_NAME in CNI_ARGS", &format!("{namespace}/{name}"))?
            }
            (None, ..) if self.is_claim_of_pod => {
                let text =
                    "the claim is the pod's name (ipam.claim), and CNI_ARGS has no K8S_POD_NAMESPACE and K8S_POD_NAME";
                return Err(CniError::new(Code::INVALID_ENVIRONMENT, text));
            }
            (claim, ..) => claim,
        };
        let local = self.local.asking(args, &[CLAIM, CLAIM_MOVES, POD_NAMESPACE, POD_NAME])?;
        Ok(Self { local, claim, claim_moves, ..self })
    }

    /// The network's data folder on the node.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.local.place.folder
    }

    /// Whether a range set has the address.
    #[must_use]
    pub fn is_in_a_set(&self, address: Address) -> bool {
        self.local.sets.iter().any(|set| set.find(address).is_some())
    }

    /// The addresses of a range set.
    #[must_use]
    pub fn spans(set: &RangeSet) -> Vec<Span> {
        set.ranges().iter().map(Range::span).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(ipam: &str) -> Result<Conf, CniError> {
        let text =
            format!(r#"{{"cniVersion":"1.1.0","name":"n","ipam":{{"type":"cluster","subnet":"10.0.0.0/24",{ipam}}}}}"#);
        Conf::from_conf(&ConfObject::parse(text.as_bytes()).unwrap())
    }

    #[test]
    fn keys_that_cannot_be_obeyed_are_refused_by_name() {
        for (ipam, code, word) in [
            (r#""store":{}"#, Code::INVALID_CONFIG, "ipam.store.path is missing"),
            (r#""routes":[]"#, Code::INVALID_CONFIG, "ipam.store is missing"),
            (r#""store":{"path":"shared"}"#, Code::INVALID_CONFIG, "must begin with /"),
            (r#""store":{"endpoints":["http://e:2379"]}"#, Code::INVALID_CONFIG, "https://HOST:PORT"),
            (r#""store":{"endpoints":["https://e:2379"]}"#, Code::INVALID_CONFIG, "ipam.store.caFile is missing"),
            (r#""store":{"endpoints":["https://e:2379"],"path":"/s"}"#, Code::INVALID_CONFIG, "a folder, etcd"),
            (r#""store":{"kubernetes":{},"path":"/s"}"#, Code::INVALID_CONFIG, "ipam.store.path"),
            (
                r#""store":{"kubernetes":{},"endpoints":["https://e:1"]}"#,
                Code::INVALID_CONFIG,
                "remove it, or ipam.store.kubernetes",
            ),
            (r#""store":{"kubernetes":{"kubeconfig":"c"}}"#, Code::INVALID_CONFIG, "kubernetes.kubeconfig = \"c\""),
            (r#""store":{"kubernetes":{"namespace":"A"}}"#, Code::INVALID_CONFIG, "ipam.store.kubernetes.namespace"),
            (r#""store":{"path":"/s"},"claimSize":0"#, Code::INVALID_CONFIG, "ipam.claimSize = 0"),
            (r#""store":{"path":"/s"},"claimSize":65537"#, Code::INVALID_CONFIG, "expected 1 to 65536"),
            (r#""store":{"path":"/s"},"trustSeconds":5"#, Code::INVALID_CONFIG, "expected 60 to"),
            (r#""store":{"path":"/s"},"node":"a/b""#, Code::INVALID_CONFIG, "ipam.node"),
        ] {
            let error = parse(ipam).unwrap_err();
            assert!(error.code == code && error.msg.contains(word), "{ipam}: {error}");
        }
        let conf = parse(r#""store":{"path":"/s"}"#).unwrap();
        assert_eq!((conf.claim_size, conf.trust_seconds, conf.timeout.as_secs()), (32, 3600, 2));
        let kubernetes = KubernetesConf { kubeconfig: KUBECONFIG.into(), namespace: NAMESPACE.into() };
        assert_eq!(parse(r#""store":{"kubernetes":{}}"#).unwrap().store, StoreConf::Kubernetes(kubernetes));
    }

    #[test]
    fn a_claim_has_a_name_and_args_come_before_cni_args() {
        let parse = |claim: &str| {
            let text = format!(
                r#"{{"cniVersion":"1.1.0","name":"n","args":{{"cni":{{"claim":{claim}}}}},
                "ipam":{{"type":"cluster","subnet":"10.0.0.0/24","store":{{"path":"/s"}}}}}}"#
            );
            Conf::from_conf(&ConfObject::parse(text.as_bytes()).unwrap())
        };
        let asked = CniArgs::parse("claim=web/0").unwrap();
        for (text, of_conf, with_args) in
            [(r#""db-0""#, Some("db-0"), "db-0"), (r#""""#, None, "web/0"), ("null", None, "web/0")]
        {
            let conf = parse(text).unwrap();
            assert_eq!(conf.claim.as_deref(), of_conf);
            assert_eq!(conf.asking(&asked).unwrap().claim.as_deref(), Some(with_args));
        }
        for bad in [r#""a b""#, "\"a\\u0000\"", "[]", &format!("\"{}\"", "x".repeat(254))] {
            let error = parse(bad).unwrap_err();
            assert!(error.code == Code::INVALID_CONFIG && error.msg.contains("args.cni.claim"), "{error}");
        }
        let conf = parse("null").unwrap();
        let error = conf.asking(&CniArgs::parse("claim=a b").unwrap()).unwrap_err();
        assert!(error.msg.contains("CNI_ARGS"), "{error}");
    }
}
