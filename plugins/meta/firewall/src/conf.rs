//! The keys, and every rule about them.

mod egress_keys;

use cni_filter::EgressPolicy;
use cni_spec::{CniError, ConfObject, FromAnyConf, FromConf};
use interface::conf::{invalid, shared_rules};
use serde::Deserialize;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conf {
    pub backend: Backend,
    pub zone: String,
    pub admin_chain: String,
    /// `ingressPolicy`; `None` if it is open.
    pub policy: Option<Policy>,
    /// `rules`: whether packets are accepted by a mark, which elements of the table `cni_shared` give them.
    pub is_shared: bool,
    /// `egressPolicy` of the network, then of the runtime, as far as they are given: a packet has to pass each.
    pub egress: Vec<EgressPolicy>,
}

/// `backend`: who lets the container's packets pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// firewalld where it runs, else iptables: as the reference for any other value, too.
    Found,
    /// Rules in iptables' table `filter`.
    Iptables,
    Firewalld,
    /// Rules in table `cni_firewall` of nf_tables, for nodes without iptables.
    Nftables,
}

/// `ingressPolicy`: whose packets may come to the container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Packets of containers on its bridge, not those of other bridges.
    SameBridge,
    /// Packets of no container.
    Isolated,
}

impl Policy {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SameBridge => "same-bridge",
            Self::Isolated => "isolated",
        }
    }

    pub(crate) fn parse(word: &str) -> Option<Self> {
        [Self::SameBridge, Self::Isolated].into_iter().find(|policy| policy.as_str() == word)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    pub backend: Backend,
    pub zone: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Keys {
    backend: String,
    firewalld_zone: String,
    iptables_admin_chain_name: String,
    ingress_policy: String,
    egress_policy: Option<egress_keys::Keys>,
    rules: Option<String>,
    runtime_config: RuntimeConfig,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RuntimeConfig {
    egress_policy: Option<egress_keys::Keys>,
}

fn backend(word: &str) -> Backend {
    match word {
        "iptables" => Backend::Iptables,
        "firewalld" => Backend::Firewalld,
        "nftables" => Backend::Nftables,
        _ => Backend::Found,
    }
}

fn or(text: String, default: &str) -> String {
    if text.is_empty() { default.to_owned() } else { text }
}

impl FromConf for Conf {
    fn from_conf(object: &ConfObject) -> Result<Self, CniError> {
        let keys: Keys = object.decode()?;
        if !matches!(&*keys.backend, "" | "iptables" | "firewalld" | "nftables") {
            tracing::warn!(
                backend = keys.backend,
                "the backend is unknown: firewalld is used if it runs, else iptables"
            );
        }
        let policy = match &*keys.ingress_policy {
            "" | "open" => None,
            "same-bridge" => Some(Policy::SameBridge),
            "isolated" => Some(Policy::Isolated),
            other => {
                let expected = "expected open, same-bridge or isolated";
                return Err(CniError::invalid_key("ingressPolicy", format!("{other:?}"), expected));
            }
        };
        let admin_chain = or(keys.iptables_admin_chain_name, "CNI-ADMIN");
        // libxtables: XT_EXTENSION_MAXNAMELEN.
        if admin_chain.len() > 28
            || admin_chain.contains(|c: char| !c.is_ascii_graphic())
            || admin_chain.starts_with(['-', '!'])
        {
            let expected = "expected the name of an iptables chain, 1 to 28 characters";
            return Err(CniError::invalid_key("iptablesAdminChainName", format!("{admin_chain:?}"), expected));
        }
        let (backend, other) = (backend(&keys.backend), ["backend"].into_iter().find(|_| keys.backend == "firewalld"));
        let is_shared = shared_rules(keys.rules.as_deref(), other)?;
        let named =
            [("egressPolicy", keys.egress_policy), ("runtimeConfig.egressPolicy", keys.runtime_config.egress_policy)];
        // What is misspelt would let pass what was to be denied.
        let is_of_policy = |key: &str| {
            named.iter().any(|(policy, _)| key.strip_prefix(policy).is_some_and(|key| key.starts_with('.')))
        };
        if let Some(unknown) = object.ignored().into_iter().find(|unknown| is_of_policy(&unknown.path)) {
            return Err(invalid(format!("{} is no key: expected default, allow or deny", unknown.path)));
        }
        let given = named.into_iter().filter_map(|(key, policy)| Some(policy?.read(key)));
        let egress = given.collect::<Result<_, _>>()?;
        Ok(Self { egress, is_shared, backend, zone: or(keys.firewalld_zone, "trusted"), admin_chain, policy })
    }
}

impl FromAnyConf for Removal {
    fn from_any_conf(object: &ConfObject) -> Self {
        let word = |key: &str| object.find::<String>(&[key]).unwrap_or_default();
        Self { backend: backend(&word("backend")), zone: or(word("firewalldZone"), "trusted") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(keys: &str) -> Result<Conf, String> {
        let object = ConfObject::parse(format!(r#"{{"name":"n","type":"firewall"{keys}}}"#).as_bytes()).unwrap();
        Conf::from_conf(&object).map_err(|error| error.msg.replace("cannot use network config: ", ""))
    }

    #[test]
    fn the_defaults_are_the_references() {
        let conf = read("").unwrap();
        assert_eq!((conf.backend, conf.policy), (Backend::Found, None));
        assert_eq!((&*conf.zone, &*conf.admin_chain), ("trusted", "CNI-ADMIN"));
        assert_eq!(read(r#","backend":"ipfw","ingressPolicy":"open""#).unwrap(), conf);
    }

    #[test]
    fn refusals_name_key_and_value() {
        let policy = read(r#","ingressPolicy":"closed""#).unwrap_err();
        assert_eq!(policy, r#"key ingressPolicy = "closed": expected open, same-bridge or isolated"#);
        let chain = read(r#","iptablesAdminChainName":"a b""#).unwrap_err();
        assert_eq!(
            chain,
            r#"key iptablesAdminChainName = "a b": expected the name of an iptables chain, 1 to 28 characters"#
        );
    }

    #[test]
    fn removal_reads_a_config_that_add_refuses() {
        let object =
            ConfObject::parse(br#"{"name":"n","backend":"iptables","ingressPolicy":7,"firewalldZone":7}"#).unwrap();
        let expected = Removal { backend: Backend::Iptables, zone: "trusted".to_owned() };
        assert_eq!(Removal::from_any_conf(&object), expected);
    }
}
