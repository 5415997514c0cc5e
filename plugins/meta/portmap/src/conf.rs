//! The keys, and every rule about them.

use std::net::IpAddr;

use chained::invalid;
use cni_filter::iptables::rule::{Masked, Protocol};
use cni_spec::{CniError, ConfObject, FromConf, json};
use interface::conf::shared_rules;
use netops::nft::Family;
use serde::Deserialize;

use crate::conditions::Conditions;

/// The reference's `markMasqBit`.
const DEFAULT_MARK_BIT: i64 = 13;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conf {
    /// `backend`, or the one that other keys are for. `None`: iptables, or nftables where that cannot be.
    pub backend: Option<Backend>,
    /// `rules`: whether the ports are elements of the table `cni_shared`, whatever `backend` says.
    pub is_shared: bool,
    /// `snat` and the keys about it.
    pub snat: Option<Snat>,
    pub conditions_v4: Conditions,
    pub conditions_v6: Conditions,
    pub on_port_in_use: OnPortInUse,
    /// `acceptForwarded`: whether forwarded connections are accepted in iptables' `FORWARD`. `None`: where docker has made its
    /// policy DROP.
    pub accept_forwarded: Option<bool>,
    pub mappings: Vec<Mapping>,
}

/// `backend`: where the rules are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// iptables' table `nat`.
    Iptables,
    /// The table `cni_hostport` of nf_tables.
    Nftables,
}

/// The forwarded connections that get the node's address as their source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snat {
    /// `masqAll`: all, not only those of the container itself and of the node's loopback addresses.
    pub masq_all: bool,
    /// How iptables selects them.
    pub mark: Mark,
}

/// How iptables marks connections for masquerade.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mark {
    /// `markMasqBit`: by this bit, in chains of portmap.
    Own(Masked),
    /// `externalSetMarkChain`: by another program's chain.
    External(String),
}

/// `onPortInUse`: what ADD does if another container holds a host port, or a program of the node listens on it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnPortInUse {
    /// The first container keeps the port, a program loses it, and a warning in the log names either: as the reference, which
    /// logs nothing.
    #[default]
    Log,
    /// ADD fails, and its error names the container or program.
    Error,
}

/// An entry of `runtimeConfig.portMappings`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapping {
    pub protocol: Protocol,
    pub host_port: u16,
    pub container_port: u16,
    pub host_ip: Option<IpAddr>,
}

impl Mapping {
    /// Returns whether the mapping applies to this family: one with a host address applies to the address's family alone.
    pub fn is_for(&self, family: Family) -> bool {
        self.host_ip.is_none_or(|ip| ip.is_ipv4() == (family == Family::Ip))
    }

    /// The host address that packets must be sent to; `None` for any, which `0.0.0.0` and `::` mean, too.
    pub fn destination(&self) -> Option<IpAddr> {
        self.host_ip.filter(|ip| !ip.is_unspecified())
    }
}

impl Conf {
    pub fn conditions(&self, family: Family) -> &Conditions {
        if family == Family::Ip6 { &self.conditions_v6 } else { &self.conditions_v4 }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Keys {
    backend: String,
    rules: Option<String>,
    snat: bool,
    masq_all: bool,
    mark_masq_bit: Option<i64>,
    external_set_mark_chain: Option<String>,
    #[serde(rename = "conditionsV4")]
    conditions_v4: Vec<String>,
    #[serde(rename = "conditionsV6")]
    conditions_v6: Vec<String>,
    on_port_in_use: OnPortInUse,
    accept_forwarded: Option<bool>,
    runtime_config: RuntimeConfig,
}

impl Default for Keys {
    fn default() -> Self {
        Self {
            backend: String::new(),
            rules: None,
            snat: true,
            masq_all: false,
            mark_masq_bit: None,
            external_set_mark_chain: None,
            conditions_v4: Vec::new(),
            conditions_v6: Vec::new(),
            on_port_in_use: OnPortInUse::default(),
            accept_forwarded: None,
            runtime_config: RuntimeConfig::default(),
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RuntimeConfig {
    port_mappings: Vec<Entry>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Entry {
    host_port: u16,
    container_port: u16,
    protocol: String,
    #[serde(rename = "hostIP")]
    host_ip: String,
}

impl FromConf for Conf {
    fn from_conf(object: &ConfObject) -> Result<Self, CniError> {
        let keys: Keys = object.decode()?;
        let conditions_v4 = Conditions::parse("conditionsV4", &keys.conditions_v4, Family::Ip)?;
        let conditions_v6 = Conditions::parse("conditionsV6", &keys.conditions_v6, Family::Ip6)?;
        let mark = mark(keys.mark_masq_bit, keys.external_set_mark_chain.as_deref())?;
        let mut wanted: Vec<(&str, Backend)> = Vec::new();
        match &*keys.backend {
            "" => {}
            "iptables" => wanted.push(("backend", Backend::Iptables)),
            "nftables" => wanted.push(("backend", Backend::Nftables)),
            other => {
                return Err(CniError::invalid_key("backend", format!("{other:?}"), "expected iptables or nftables"));
            }
        }
        wanted.extend(keys.mark_masq_bit.map(|_| ("markMasqBit", Backend::Iptables)));
        wanted.extend(keys.external_set_mark_chain.as_ref().map(|_| ("externalSetMarkChain", Backend::Iptables)));
        wanted.extend(conditions_v4.backend().map(|backend| ("conditionsV4", backend)));
        wanted.extend(conditions_v6.backend().map(|backend| ("conditionsV6", backend)));
        if let Some(((one, is), (other, _))) = wanted.first().zip(wanted.iter().find(|(_, it)| *it != wanted[0].1)) {
            let is = if *is == Backend::Iptables { "iptables" } else { "nftables" };
            return Err(invalid(format!("key {other} is not for backend {is}, which key {one} is for")).at_key(*other));
        }
        let iptables = wanted.first().filter(|(_, is)| *is == Backend::Iptables).map(|(key, _)| *key);
        let conditional =
            conditions_v4.backend().map(|_| "conditionsV4").or(conditions_v6.backend().map(|_| "conditionsV6"));
        let accepts = (keys.accept_forwarded == Some(true)).then_some("acceptForwarded");
        let is_shared = shared_rules(keys.rules.as_deref(), iptables.or(conditional).or(accepts))?;
        let entries = keys.runtime_config.port_mappings.iter().enumerate();
        Ok(Self {
            backend: wanted.first().map(|(_, backend)| *backend),
            is_shared,
            snat: keys.snat.then_some(Snat { masq_all: keys.masq_all, mark }),
            conditions_v4,
            conditions_v6,
            on_port_in_use: keys.on_port_in_use,
            accept_forwarded: keys.accept_forwarded,
            mappings: entries.map(|(index, entry)| entry.parse(index)).collect::<Result<_, _>>()?,
        })
    }
}

impl Mark {
    /// The mark of a config without keys about it.
    pub(crate) fn usual() -> Self {
        Self::Own(Masked { value: 1 << DEFAULT_MARK_BIT, mask: 1 << DEFAULT_MARK_BIT })
    }
}

fn mark(bit: Option<i64>, chain: Option<&str>) -> Result<Mark, CniError> {
    match (bit, chain) {
        (Some(_), Some(_)) => {
            Err(invalid("keys markMasqBit and externalSetMarkChain exclude each other").at_key("externalSetMarkChain"))
        }
        // libxtables: XT_EXTENSION_MAXNAMELEN.
        (None, Some(chain))
            if chain.is_empty() || chain.len() > 28 || chain.contains(|c: char| !c.is_ascii_graphic()) =>
        {
            let expected = "expected the name of an iptables chain, 1 to 28 characters";
            Err(CniError::invalid_key("externalSetMarkChain", format!("{chain:?}"), expected))
        }
        (None, Some(chain)) => Ok(Mark::External(chain.to_owned())),
        (bit, None) => {
            let bit = bit.unwrap_or(DEFAULT_MARK_BIT);
            let number = u32::try_from(bit).ok().filter(|number| *number < 32);
            let number = number.ok_or_else(|| CniError::invalid_key("markMasqBit", bit, "expected 0 to 31"))?;
            Ok(Mark::Own(Masked { value: 1 << number, mask: 1 << number }))
        }
    }
}

impl Entry {
    fn parse(&self, index: usize) -> Result<Mapping, CniError> {
        let key = |name: &str| format!("runtimeConfig.portMappings[{index}].{name}");
        let port = |name: &str, number: u16| match number {
            1.. => Ok(number),
            0 => Err(CniError::invalid_key(&key(name), number, "expected a port, 1 to 65535")),
        };
        let is_named = |protocol: &Protocol| self.protocol.eq_ignore_ascii_case(protocol.name());
        let protocol = Protocol::ALL.into_iter().find(is_named).ok_or_else(|| {
            CniError::invalid_key(&key("protocol"), format!("{:?}", self.protocol), "expected tcp, udp, sctp or dccp")
        })?;
        let host_ip = match &*self.host_ip {
            "" => None,
            text => Some(json::parse_ip(text).map_err(|_parse_error| {
                CniError::invalid_key(&key("hostIP"), format!("{text:?}"), "expected an IP address")
            })?),
        };
        Ok(Mapping {
            protocol,
            host_port: port("hostPort", self.host_port)?,
            container_port: port("containerPort", self.container_port)?,
            host_ip,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(keys: &str) -> Result<Conf, String> {
        let object = ConfObject::parse(format!(r#"{{"name":"n","type":"portmap",{keys}}}"#).as_bytes()).unwrap();
        Conf::from_conf(&object).map_err(|error| error.msg.replace("cannot use network config: ", ""))
    }

    #[test]
    fn the_defaults_are_the_references() {
        let conf = read(r#""snat":null"#).unwrap();
        let mark = Mark::Own(Masked { value: 0x2000, mask: 0x2000 });
        assert_eq!(conf.snat, Some(Snat { masq_all: false, mark }));
        assert_eq!((conf.backend, conf.on_port_in_use, conf.mappings.len()), (None, OnPortInUse::Log, 0));
    }

    #[test]
    fn a_protocol_may_be_in_capitals_and_an_unspecified_address_is_any() {
        let mapping = r#"{"hostPort":80,"containerPort":8080,"protocol":"TCP","hostIP":"0.0.0.0"}"#;
        let conf = read(&format!(r#""runtimeConfig":{{"portMappings":[{mapping}]}}"#)).unwrap();
        let [mapping] = &conf.mappings[..] else { panic!("{conf:?}") };
        assert_eq!((mapping.protocol, mapping.destination()), (Protocol::Tcp, None));
        assert_eq!((mapping.is_for(Family::Ip), mapping.is_for(Family::Ip6)), (true, false));
    }

    #[test]
    fn refusals_name_key_and_value() {
        let mapping = |fields: &str| format!(r#""runtimeConfig":{{"portMappings":[{{{fields}}}]}}"#);
        let cases = [
            (r#""backend":"ipvs""#.to_owned(), r#"key backend = "ipvs": expected iptables or nftables"#),
            (r#""markMasqBit":32"#.to_owned(), "key markMasqBit = 32: expected 0 to 31"),
            (
                r#""markMasqBit":3,"externalSetMarkChain":"X""#.to_owned(),
                "keys markMasqBit and externalSetMarkChain exclude each other",
            ),
            (
                r#""backend":"nftables","markMasqBit":3"#.to_owned(),
                "key markMasqBit is not for backend nftables, which key backend is for",
            ),
            (
                r#""conditionsV4":["-s","10.0.0.0/8"],"conditionsV6":["ip6","saddr","fd00::/8"]"#.to_owned(),
                "key conditionsV6 is not for backend iptables, which key conditionsV4 is for",
            ),
            (r#""rules":"all""#.to_owned(), r#"key rules = "all": expected shared"#),
            (
                r#""rules":"shared","conditionsV4":["ip","saddr","10.0.0.0/8"]"#.to_owned(),
                "keys conditionsV4 and rules exclude each other: shared rules are of no single container",
            ),
            (
                mapping(r#""hostPort":0,"containerPort":1,"protocol":"tcp""#),
                "key runtimeConfig.portMappings[0].hostPort = 0: expected a port, 1 to 65535",
            ),
            (
                mapping(r#""hostPort":1,"containerPort":65536,"protocol":"tcp""#),
                "key runtimeConfig.portMappings[0].containerPort = 65536: expected a whole number from 0 to 65535",
            ),
            (
                mapping(r#""hostPort":1,"containerPort":1,"protocol":"icmp""#),
                r#"key runtimeConfig.portMappings[0].protocol = "icmp": expected tcp, udp, sctp or dccp"#,
            ),
            (
                mapping(r#""hostPort":1,"containerPort":1,"protocol":"tcp","hostIP":"localhost""#),
                r#"key runtimeConfig.portMappings[0].hostIP = "localhost": expected an IP address"#,
            ),
        ];
        for (keys, expected) in cases {
            assert_eq!(read(&keys).unwrap_err(), expected);
        }
    }
}
