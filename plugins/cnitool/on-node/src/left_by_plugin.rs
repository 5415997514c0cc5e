//! All plugins, and what each leaves on the node beside host veths, reservations and rules of masquerade and spoof guards.
//!
//! Host veths, reservations and these rules are searched for in any network: most interface plugins have them. Only a
//! network that has the plugin can have the rest, as GC calls no other, or one whose list has a plugin of another project. Each list comes from the plugin's own crate, from
//! the code by which its GC finds what it removes.

use std::collections::BTreeSet;

use cni_filter::Noted;
use cni_spec::{Attachment, CniError, ConfObject, ContainerId, FromAnyConf, IfName, NetworkName};
use netops::link::Link;
use skel::inventory::{Item, Owner, Sign};

/// The input of a plugin's list.
pub(crate) struct Asked<'a> {
    pub(crate) network: &'a NetworkName,
    /// What the plugin gets on stdin.
    pub(crate) object: &'a ConfObject,
    /// `PATH`, for iptables of the legacy variant.
    pub(crate) search_path: &'a str,
    pub(crate) links: &'a [Link],
}

type List = fn(&Asked<'_>) -> Result<Vec<Item>, CniError>;

type Networks = fn() -> Result<BTreeSet<String>, CniError>;

pub(crate) struct Plugin {
    /// The file name it is called by.
    pub(crate) name: &'static str,
    /// Whether networks name it as the type of `ipam`.
    pub(crate) is_of_addresses: bool,
    /// Lists what it has left; `None`: it leaves nothing more.
    pub(crate) inventory: Option<List>,
    /// The names of the networks in its records, where it keeps them unless a config says otherwise.
    pub(crate) networks: Option<Networks>,
    /// The words by which items may name an attachment instead of its container.
    pub(crate) words: fn(&Attachment) -> Vec<String>,
}

pub(crate) const ALL: &[Plugin] = &[
    leaves("bandwidth", |asked| bandwidth::inventory(asked.network, asked.links)),
    leaves_nothing_more("bridge"),
    Plugin {
        is_of_addresses: true,
        networks: Some(dhcp::networks),
        ..leaves("dhcp", |asked| {
            dhcp::inventory(&dhcp::conf::Removal::from_any_conf(asked.object).socket, asked.network)
        })
    },
    leaves_nothing_more("dummy"),
    leaves("firewall", |asked| Ok(of_rules(firewall::inventory(asked.network, asked.search_path)?))),
    Plugin {
        networks: Some(host_device::networks),
        ..leaves("host-device", |asked| host_device::inventory(asked.network))
    },
    Plugin { is_of_addresses: true, ..leaves_nothing_more("host-local") },
    leaves_nothing_more("ipvlan"),
    leaves_nothing_more("loopback"),
    leaves_nothing_more("macvlan"),
    leaves_nothing_more("noop"),
    Plugin {
        words: portmap::words,
        ..leaves("portmap", |asked| Ok(of_rules(portmap::inventory(asked.network, asked.search_path)?)))
    },
    leaves_nothing_more("ptp"),
    leaves_nothing_more("sbr"),
    Plugin { is_of_addresses: true, ..leaves_nothing_more("static") },
    leaves_nothing_more("tap"),
    Plugin {
        networks: Some(tuning::record::networks),
        ..leaves("tuning", |asked| {
            tuning::record::inventory(&tuning::conf::DataDir::from_any_conf(asked.object), asked.network)
        })
    },
    leaves_nothing_more("vlan"),
    leaves_nothing_more("vrf"),
];

const fn leaves(name: &'static str, inventory: List) -> Plugin {
    Plugin { inventory: Some(inventory), ..leaves_nothing_more(name) }
}

const fn leaves_nothing_more(name: &'static str) -> Plugin {
    Plugin { name, is_of_addresses: false, inventory: None, networks: None, words: |_| Vec::new() }
}

/// The plugin of this suite that a type names: of that name, with `cnv-` before it, as OpenShift's copies have it, or with a version
/// behind it (`bridge-1.2`). Else the type itself: other projects have plugins such as `vpc-bridge`, with keys of their own.
pub fn plugin_of(plugin_type: &str) -> &str {
    let name = plugin_type.strip_prefix("cnv-").unwrap_or(plugin_type);
    let is_version = |rest: &str| {
        rest.strip_prefix("-")
            .is_some_and(|rest| rest.trim_start_matches('v').starts_with(|c: char| c.is_ascii_digit()))
    };
    let is_its =
        |plugin: &&Plugin| name.strip_prefix(plugin.name).is_some_and(|rest| rest.is_empty() || is_version(rest));
    ALL.iter().find(is_its).map_or(plugin_type, |plugin| plugin.name)
}

/// The plugins that an object of a network's list names: its own type's, and that of its addresses.
pub(crate) fn of_object(object: &ConfObject) -> impl Iterator<Item = &'static Plugin> {
    let own: Option<String> = object.find(&["type"]);
    let ipam = object.ipam_type().ok().flatten();
    ALL.iter().filter(move |plugin| match plugin.is_of_addresses {
        true => ipam.as_ref().is_some_and(|ipam| plugin_of(ipam.as_str()) == plugin.name),
        false => own.as_deref().map(plugin_of) == Some(plugin.name),
    })
}

/// What a comment in the packet filter says.
pub(crate) fn of_rules(noted: Vec<Noted>) -> Vec<Item> {
    noted.into_iter().map(of_rule).collect()
}

/// The words in a comment of one rule.
pub(crate) fn of_rule(Noted { key, container, ifname, address, object, .. }: Noted) -> Item {
    let container = container.and_then(|container| ContainerId::parse(&container).ok());
    let ifname = ifname.and_then(|ifname| IfName::parse(&ifname).ok());
    let owner = match (container, ifname) {
        (Some(container), Some(ifname)) => Owner::Attachment(container, ifname),
        (Some(container), None) => Owner::Container(container),
        (None, _) => Owner::Word(key),
    };
    Item { owner, object, signs: address.map(Sign::Address).into_iter().collect() }
}

/// Whether an object of a network's list names a plugin of another project. One may call any plugin of this suite, as flannel and
/// Multus do.
pub(crate) fn is_foreign(object: &ConfObject) -> bool {
    let own: Option<String> = object.find(&["type"]);
    own.is_none_or(|own| ALL.iter().all(|plugin| plugin.name != plugin_of(&own)))
}

/// The address plugins that keep records of a network, where they keep them unless a config says otherwise.
pub(crate) fn of_addresses_with_records(network: &str) -> impl Iterator<Item = &'static str> {
    let has_records = move |plugin: &&Plugin| {
        plugin.networks.is_some_and(|networks| networks().is_ok_and(|names| names.contains(network)))
    };
    ALL.iter().filter(|plugin| plugin.is_of_addresses).filter(has_records).map(|plugin| plugin.name)
}

/// The plugins that leave something more, but those of addresses.
pub(crate) fn that_leave_more() -> impl Iterator<Item = &'static str> {
    ALL.iter().filter(|plugin| plugin.inventory.is_some() && !plugin.is_of_addresses).map(|plugin| plugin.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_plugin_of_the_executable_is_in_the_table() {
        let names = |names: &mut dyn Iterator<Item = &'static str>| names.collect::<std::collections::BTreeSet<_>>();
        let executable = names(&mut cni_plugins::ENTRIES.iter().map(|entry| entry.name));
        assert_eq!(names(&mut ALL.iter().map(|plugin| plugin.name)), executable);
    }
}
