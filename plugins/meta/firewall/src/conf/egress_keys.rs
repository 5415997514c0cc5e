//! Key `egressPolicy`.

use cni_filter::{Destination, EgressPolicy, To};
use cni_spec::CniError;
use serde::Deserialize;

/// Cloud metadata services.
const METADATA: [&str; 2] = ["169.254.169.254/32", "fd00:ec2::254/128"];
/// Addresses that are no public ones: RFC 1918, 6598, 3927, 4193, 4291.
const PRIVATE: [&str; 7] =
    ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16", "fc00::/7", "fe80::/10"];
// IANA's protocol numbers.
const PROTOCOLS: [(&str, u8); 4] = [("tcp", 6), ("udp", 17), ("sctp", 132), ("icmp", 1)];
const ICMP: u8 = 1;
const EXPECTED: &str = "expected metadata, private, node or a prefix, and then tcp, udp, sctp or icmp, and ports: 10.0.0.0/8 tcp \
                        443,8000-8080";

#[derive(Debug, Deserialize, Default)]
#[serde(default)]
pub(super) struct Keys {
    default: String,
    allow: Vec<String>,
    deny: Vec<String>,
}

impl Keys {
    pub(super) fn read(self, key: &str) -> Result<EgressPolicy, CniError> {
        let is_closed = match &*self.default {
            "" | "allow" => false,
            "deny" => true,
            other => {
                let expected = "expected allow or deny";
                return Err(CniError::invalid_key(&format!("{key}.default"), format_args!("{other:?}"), expected));
            }
        };
        let list = |name: &str, entries: &[String]| {
            let mut list = Vec::new();
            for (index, entry) in entries.iter().enumerate() {
                list.extend(destinations(entry).ok_or_else(|| {
                    let key = format!("{key}.{name}[{index}]");
                    CniError::invalid_key(&key, format_args!("{entry:?}"), EXPECTED)
                })?);
            }
            Ok::<_, CniError>(list)
        };
        Ok(EgressPolicy { allow: list("allow", &self.allow)?, deny: list("deny", &self.deny)?, is_closed })
    }
}

/// The destinations of an entry; `None` if it is malformed.
fn destinations(entry: &str) -> Option<Vec<Destination>> {
    let mut words = entry.split(' ');
    let (to, protocol, ports) = (words.next()?, words.next(), words.next());
    if words.next().is_some() {
        return None;
    }
    let number = |word: &str| PROTOCOLS.into_iter().find(|(name, _)| *name == word).map(|(_, number)| number);
    let protocol = match protocol {
        Some(word) => Some(number(word)?),
        None => None,
    };
    let ports = match ports {
        Some(_) if protocol == Some(ICMP) => return None,
        Some(ports) => ports.split(',').map(range).collect::<Option<_>>()?,
        None => Vec::new(),
    };
    let addresses = match to {
        "node" => vec![To::Node],
        "metadata" => prefixes(&METADATA)?,
        "private" => prefixes(&PRIVATE)?,
        prefix => prefixes(&[prefix])?,
    };
    Some(addresses.into_iter().map(|to| Destination { to, protocol, ports: ports.clone() }).collect())
}

fn prefixes(texts: &[&str]) -> Option<Vec<To>> {
    texts.iter().map(|text| text.parse().ok().map(To::Prefix)).collect()
}

/// The first and last port of `443` or `8000-8080`.
fn range(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    first.parse().ok().zip(last.parse().ok()).filter(|(first, last)| first <= last)
}

#[cfg(test)]
mod tests {
    use super::super::{Conf, ConfObject, FromConf};
    use cni_filter::{Destination, To};

    fn read(policy: &str) -> Result<Conf, String> {
        let text = format!(r#"{{"name":"n","type":"firewall","egressPolicy":{policy}}}"#);
        let object = ConfObject::parse(text.as_bytes()).unwrap();
        Conf::from_conf(&object).map_err(|error| error.msg.replace("cannot use network config: ", ""))
    }

    #[test]
    fn presets_prefixes_and_ports_are_destinations() {
        let conf = read(r#"{"default":"deny","allow":["10.0.0.53 udp 53,8000-8080"],"deny":["metadata","node icmp"]}"#);
        let [policy] = &*conf.unwrap().egress else { panic!("not one policy") };
        let prefix = |text: &str| To::Prefix(text.parse().unwrap());
        let to = |to, protocol, ports| Destination { to, protocol, ports };
        assert!(policy.is_closed);
        assert_eq!(policy.allow, [to(prefix("10.0.0.53"), Some(17), vec![(53, 53), (8000, 8080)])]);
        let metadata = ["169.254.169.254/32", "fd00:ec2::254/128"].map(|text| to(prefix(text), None, Vec::new()));
        assert_eq!(policy.deny, [metadata.as_slice(), &[to(To::Node, Some(1), Vec::new())]].concat());
    }

    /// A word that is not understood would let pass what was to be denied.
    #[test]
    fn what_is_not_understood_is_refused_by_entry_and_value() {
        let refused = read(r#"{"default":"drop"}"#).unwrap_err();
        assert_eq!(refused, r#"key egressPolicy.default = "drop": expected allow or deny"#);
        for entry in ["10.0.0.0/33", "public", "10.0.0.1 53", "10.0.0.1 tcp 9-8", "10.0.0.1 icmp 8", "node tcp 1 2", ""]
        {
            let refused = read(&format!(r#"{{"deny":["private",{entry:?}]}}"#)).unwrap_err();
            assert!(refused.starts_with(&format!("key egressPolicy.deny[1] = {entry:?}: expected ")), "{refused}");
        }
        let refused = read(r#"{"denny":["metadata"]}"#).unwrap_err();
        assert!(refused.contains("egressPolicy.denny"), "{refused}");
    }
}
