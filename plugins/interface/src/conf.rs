//! Keys that interface plugins have in common: how they are written, and every rule about them.

use std::net::IpAddr;

use cni_filter::Backend;
use cni_spec::{AddResult, CniError, Code, Dns, IfName, SpecVersion};
use ipnetwork::IpNetwork;
use netops::link::{self, Mac};
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use skel::Call;

use crate::plan::Compared;

/// A config that cannot be used: `cannot use network config: TEXT`, code 7.
pub fn invalid(text: impl std::fmt::Display) -> CniError {
    CniError::new(Code::INVALID_CONFIG, format!("cannot use network config: {text}"))
}

#[derive(Debug, Clone, Deserialize, Default)]
#[serde(default)]
pub struct DnsKey {
    nameservers: Option<Vec<String>>,
    domain: String,
    search: Option<Vec<String>>,
    options: Option<Vec<String>>,
}

impl DnsKey {
    /// Any of its keys replaces all of IPAM's: a list even if it is empty, an empty domain not, as the reference has it.
    pub fn into_dns(self) -> Option<Dns> {
        let absent =
            self.nameservers.is_none() && self.domain.is_empty() && self.search.is_none() && self.options.is_none();
        (!absent).then(|| {
            let mut dns = Dns::default();
            dns.nameservers = self.nameservers.unwrap_or_default();
            dns.domain = self.domain;
            dns.search = self.search.unwrap_or_default();
            dns.options = self.options.unwrap_or_default();
            dns
        })
    }
}

/// Key `ipam`, as far as an interface plugin reads it.
#[derive(Debug, Clone, Deserialize, Default)]
#[serde(default)]
pub struct IpamKey {
    /// The address plugin; empty if there is none.
    #[serde(rename = "type")]
    pub plugin: String,
}

#[derive(Debug, Clone, Deserialize, Default)]
#[serde(default)]
pub struct ArgsKey {
    /// Arguments for all plugins of the network.
    pub cni: MacKey,
}

/// An object with an Ethernet address: `args.cni`, `runtimeConfig`.
#[derive(Debug, Clone, Deserialize, Default)]
#[serde(default)]
pub struct MacKey {
    mac: String,
}

/// The Ethernet address that the config asks for: `runtimeConfig.mac`, else `args.cni.mac`.
pub fn mac(args: &ArgsKey, runtime_config: &MacKey) -> Result<Option<Mac>, CniError> {
    let weak = parse_mac("args.cni.mac", &args.cni.mac)?;
    let strong = parse_mac("runtimeConfig.mac", &runtime_config.mac)?;
    Ok(strong.or(weak))
}

/// The Ethernet address that a call asks for: the config's, else that of `CNI_ARGS`, the weakest.
pub fn requested_mac(raw: &Call, config: Option<Mac>) -> Result<Option<Mac>, CniError> {
    let weakest = args_mac(raw)?;
    Ok(config.or(weakest))
}

/// The Ethernet address that `CNI_ARGS` ask for.
/// Errors: code 4: `CNI_ARGS` are malformed, or have another key than `MAC`.
pub fn args_mac(raw: &Call) -> Result<Option<Mac>, CniError> {
    let args = raw.parse_args()?;
    args.expect_known(&["MAC"])?;
    let mac = parse_mac("CNI_ARGS MAC", args.find("MAC").unwrap_or_default());
    mac.map_err(|error| CniError { code: Code::INVALID_ENVIRONMENT, ..error })
}

/// The Ethernet addresses that a config asks for, for plugins with key `mac`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Macs {
    /// `runtimeConfig.mac`.
    pub strong: Option<Mac>,
    /// `args.cni.mac`, else key `mac`.
    pub weak: Option<Mac>,
}

impl Macs {
    pub fn parse(mac: &str, args: &ArgsKey, runtime_config: &MacKey) -> Result<Self, CniError> {
        let own = parse_mac("mac", mac)?;
        let of_args = parse_mac("args.cni.mac", &args.cni.mac)?;
        Ok(Self { strong: parse_mac("runtimeConfig.mac", &runtime_config.mac)?, weak: of_args.or(own) })
    }

    /// The address that a call asks for: that of `CNI_ARGS` comes between the config's two.
    pub fn requested(self, raw: &Call) -> Result<Option<Mac>, CniError> {
        let of_args = args_mac(raw)?;
        Ok(self.strong.or(of_args).or(self.weak))
    }
}

/// Parses a requested address; an empty text asks for none.
/// Errors: code 7 naming where it came from: no Ethernet address, or one that no single interface may have.
pub fn parse_mac(key: &str, text: &str) -> Result<Option<Mac>, CniError> {
    if text.is_empty() {
        return Ok(None);
    }
    let invalid =
        |why: String| CniError::new(Code::INVALID_CONFIG, format!("cannot use {key} = {text:?}: {why}")).at_key(key);
    let mac: Mac = text.parse().map_err(|error: netops::link::MacError| invalid(error.to_string()))?;
    if mac.0[0] & 1 == 1 {
        return Err(invalid("it is a multicast address".into()));
    }
    if mac.0 == [0; 6] {
        return Err(invalid("no interface can have it".into()));
    }
    Ok(Some(mac))
}

/// The least MTU of a link that carries IPv4 (RFC 791, section 3.2), in bytes: below it the kernel takes all IPv4 addresses away.
pub const IPV4_MTU_MIN: u32 = 68; // IPV4_MIN_MTU, include/net/ip.h

/// The least MTU of a link that carries IPv6 (RFC 8200, section 5), in bytes: below it the kernel takes all IPv6 addresses away.
pub const IPV6_MTU_MIN: u32 = 1280; // IPV6_MIN_MTU, include/uapi/linux/ipv6.h

/// Refuses an MTU with which the kernel would take a family off the interface, which has one of these addresses.
/// Errors: code 7: the MTU is below the least of the family of one of the addresses.
pub fn refuse_mtu_below_least(
    mtu_bytes: Option<u32>,
    mut addresses: impl Iterator<Item = IpAddr>,
) -> Result<(), CniError> {
    let Some(mtu) = mtu_bytes.filter(|mtu| *mtu < IPV6_MTU_MIN) else { return Ok(()) };
    let least = |ip: IpAddr| match ip {
        IpAddr::V4(_) if mtu < IPV4_MTU_MIN => Some((ip, "IPv4", IPV4_MTU_MIN)),
        IpAddr::V6(v6) if !v6.is_unicast_link_local() => Some((ip, "IPv6", IPV6_MTU_MIN)),
        IpAddr::V4(_) | IpAddr::V6(_) => None,
    };
    addresses.find_map(least).map_or(Ok(()), |(ip, family, least)| {
        let expected = format!("expected {least} at least, as the interface has the {family} address {ip}");
        Err(CniError::invalid_key("mtu", mtu, &expected)
            .detail(format!("With less the kernel takes the interface's {family} addresses and routes away.")))
    })
}

/// Key `mtu` in bytes; 0 is the kernel's default. The kernel's virtual links have 65535 at most (`ETH_MAX_MTU`,
/// include/uapi/linux/if_ether.h).
pub fn mtu(bytes: u16) -> Option<u32> {
    Some(bytes.into()).filter(|bytes| *bytes != 0)
}

/// A VLAN's number at `path`.
/// Errors: code 7: it is not within 1 to 4094.
pub fn vlan_id(path: &str, id: u16) -> Result<u16, CniError> {
    match id {
        1..=4094 => Ok(id),
        _ => Err(CniError::invalid_key(path, id, "VLANs are numbered 1 to 4094")),
    }
}

/// A key that is a VLAN's number, or 0 for none. Numbers above 4094 are left to [`vlan_id`].
/// Errors: it is no number, or none of a `u16`.
pub fn vlan_or_none<'de, D: Deserializer<'de>>(decoder: D) -> Result<u16, D::Error> {
    u16::deserialize(decoder).map_err(|_range| D::Error::custom("expected a whole number from 0 to 4094"))
}

/// Key `rules` of all plugins that have rules for a container: whether they are shared. `other` is a key that needs rules of
/// each container.
/// Errors: code 7: `rules` has another value, or excludes that key.
pub fn shared_rules(rules: Option<&str>, other: Option<&'static str>) -> Result<bool, CniError> {
    match (rules, other) {
        (None, _) => Ok(false),
        (Some("shared"), None) => Ok(true),
        (Some("shared"), Some(key)) => {
            let why = format!("keys {key} and rules exclude each other: shared rules are of no single container");
            Err(invalid(why).at_key(key))
        }
        (Some(other), _) => Err(CniError::invalid_key("rules", format_args!("{other:?}"), "expected shared")),
    }
}

/// Masquerade of a network's containers: they leave the node under its address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Masquerade {
    /// The program whose rules do it.
    pub backend: Backend,
    /// Destinations to which packets keep their source.
    pub spared: Vec<IpNetwork>,
}

/// Keys `ipMasq`, `ipMasqBackend`, `ipMasqExcept` and `rules`; `None` without the first.
/// Errors: code 2: the backend is none. Code 7: an exception is no prefix; those of [`shared_rules`].
pub fn masquerade(
    ip_masq: bool,
    backend: &str,
    except: &[String],
    rules: Option<&str>,
) -> Result<Option<Masquerade>, CniError> {
    let other = [("ipMasqBackend", backend == "iptables"), ("ipMasqExcept", !except.is_empty())];
    let other = other.into_iter().find_map(|(key, is_given)| is_given.then_some(key));
    let is_shared = shared_rules(rules, other)?;
    let backend = match backend {
        _ if is_shared => Backend::Shared,
        "" => Backend::Default,
        "iptables" => Backend::Iptables,
        "nftables" => Backend::Nftables,
        other => {
            let why = "it is neither iptables nor nftables";
            let refused = CniError::invalid_key("ipMasqBackend", format_args!("{other:?}"), why);
            return Err(CniError { code: Code::UNSUPPORTED_FIELD, ..refused });
        }
    };
    let prefix = |text: &String| {
        let parsed = text.parse::<IpNetwork>().and_then(|prefix| IpNetwork::new(prefix.network(), prefix.prefix()));
        let expected = "expected prefixes, as 10.0.0.0/8 or, for all of IPv6, ::/0";
        parsed.ok().ok_or_else(|| CniError::invalid_key("ipMasqExcept", format_args!("{text:?}"), expected))
    };
    let spared = except.iter().map(prefix).collect::<Result<_, _>>()?;
    Ok(ip_masq.then_some(Masquerade { backend, spared }))
}

impl Masquerade {
    /// The step for these addresses, without those of a family that is spared as a whole; `None` if none is left.
    pub fn step(&self, addresses: impl Iterator<Item = IpNetwork>) -> Option<Compared> {
        let (all, spared): (Vec<_>, Vec<_>) = self.spared.iter().copied().partition(|spared| spared.prefix() == 0);
        let is_masqueraded = |address: &IpNetwork| all.iter().all(|all| all.is_ipv4() != address.is_ipv4());
        let addresses: Vec<_> = addresses.filter(is_masqueraded).collect();
        (!addresses.is_empty()).then_some(Compared::Masquerade(Self { spared, ..*self }, addresses))
    }

    pub(crate) fn of<'a>(&'a self, addresses: &'a [IpNetwork]) -> cni_filter::Masquerade<'a> {
        cni_filter::Masquerade { addresses, spared: &self.spared }
    }
}

/// Refuses an interface name with `%`, by which the kernel would choose another one: the specification allows it.
pub(crate) fn refuse_pattern(ifname: &IfName) -> Result<(), CniError> {
    let text = ifname.as_str();
    match link::is_name(text) {
        true => Ok(()),
        false => Err(CniError::new(
            Code::INVALID_ENVIRONMENT,
            format!("cannot use CNI_IFNAME = {text:?}: no link can have that name"),
        )
        .detail("The kernel replaces %d by a number, and refuses any other %.")),
    }
}

/// Refuses an attachment without addresses in result forms before 0.3.0, which have no place for it.
pub(crate) fn refuse_inexpressible(has_ipam: bool, version: SpecVersion) -> Result<(), CniError> {
    if has_ipam { Ok(()) } else { AddResult::default().to_json(version).map(drop) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_one_interface() {
        assert_eq!(parse_mac("mac", "").unwrap(), None);
        assert_eq!(parse_mac("mac", "0A:00:00:00:00:05").unwrap(), Some(Mac([10, 0, 0, 0, 0, 5])));
        for bad in ["x", "01:00:5e:00:00:01", "ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00"] {
            let error = parse_mac("runtimeConfig.mac", bad).unwrap_err();
            assert!(error.msg.starts_with(&format!("cannot use runtimeConfig.mac = {bad:?}: ")), "{error}");
        }
    }
}
