//! The parsers of all plugins' keys, for checking configurations. Nothing else of the plugins becomes part of an executable
//! that uses this.

use std::rc::Rc;

use crate::validate::{KnownPlugin, Role};
use chained::ChainedPlugin;
use cni_plugins::entry;
use cni_spec::{CniError, ConfObject, FromConf, NetConf, SpecVersion};
use interface::InterfacePlugin;
use interface::attach::require_ipam;
use skel::{Entry, Plugin};

macro_rules! table {
    ($($kind:ident $plugin:path, $folder:literal;)*) => {
        /// The plugins, by name, each with its page.
        pub const ALL: &[KnownPlugin] =
            &[$($kind::<$plugin>(include_str!(concat!("../../", $folder, "/README.md"))),)* CLUSTER];
    };
}

cni_plugins::plugins!(table);

/// The plugin whose executable is one of its own. Most of its keys are on host-local's page.
const CLUSTER: KnownPlugin = KnownPlugin {
    name: "cluster",
    role: Role::Address,
    chained_by: None,
    versions: &SpecVersion::ALL,
    parse: parse::<cluster_keys::Conf>,
    readme: concat!(
        include_str!("../../ipam/cluster/README.md"),
        "\n",
        include_str!("../../ipam/host-local/README.md")
    ),
};

const fn known<C: FromConf>(role: Role, plugin: &Entry, readme: &'static str) -> KnownPlugin {
    KnownPlugin { name: plugin.name, role, chained_by: None, versions: plugin.versions, parse: parse::<C>, readme }
}

const fn chained<P: ChainedPlugin>(readme: &'static str) -> KnownPlugin {
    known::<P::Conf>(Role::Chained, &entry::chained::<P>(), readme)
}

const fn address<P: Plugin>(readme: &'static str) -> KnownPlugin {
    known::<P::Conf>(Role::Address, &entry::address::<P>(), readme)
}

const fn loopback<P: Plugin>(readme: &'static str) -> KnownPlugin {
    known::<P::Conf>(Role::Any, &entry::loopback::<P>(), readme)
}

const fn interface<P: InterfacePlugin>(readme: &'static str) -> KnownPlugin {
    let chained_by = match P::CHAINED {
        Some(form) => Some(form.key),
        None => None,
    };
    let plugin = known::<P::Conf>(Role::Interface, &entry::interface::<P>(), readme);
    KnownPlugin { parse: parse_interface::<P>, chained_by, ..plugin }
}

fn parse_interface<P: InterfacePlugin>(object: &Rc<ConfObject>, version: SpecVersion) -> Result<(), CniError> {
    let (conf, keys) = NetConf::checked(object, version, P::Conf::from_conf)?;
    require_ipam::<P>(conf.ipam.is_some())?;
    P::require(&keys)
}

fn parse<C: FromConf>(object: &Rc<ConfObject>, version: SpecVersion) -> Result<(), CniError> {
    NetConf::checked(object, version, C::from_conf).map(drop)
}
