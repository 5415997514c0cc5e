//! The parsers of all plugins' keys, for checking configurations, and what they say as JSON Schemas. Nothing else of the
//! plugins becomes part of an executable that uses this.

pub mod schemas;

use std::rc::Rc;

use crate::validate::{Known, Role};
use cni_spec::{CniError, ConfObject, FromConf, PluginConf, SpecVersion};
use interface::InterfacePlugin;
use interface::attach::require_ipam;
use skel::Plugin;

macro_rules! table {
    ($($kind:ident $plugin:path, $folder:literal;)*) => {
        /// The plugins, by name, each with its page.
        pub const ALL: &[Known] =
            &[$($kind::<$plugin>(include_str!(concat!("../../", $folder, "/README.md")))),*];
    };
}

cni_plugins::plugins!(table);

const fn known<P: Plugin>(role: Role, readme: &'static str) -> Known {
    Known {
        name: <P as Plugin>::NAME,
        role,
        versions: <P as Plugin>::VERSIONS,
        parse: parse::<<P as Plugin>::Conf>,
        readme,
    }
}

const fn chained<P: Plugin>(readme: &'static str) -> Known {
    known::<P>(Role::Chained, readme)
}

const fn address<P: Plugin>(readme: &'static str) -> Known {
    known::<P>(Role::Address, readme)
}

const fn loopback<P: Plugin>(readme: &'static str) -> Known {
    known::<P>(Role::Any, readme)
}

const fn interface<P: Plugin + InterfacePlugin>(readme: &'static str) -> Known {
    Known { parse: parse_interface::<P>, ..known::<P>(Role::Interface, readme) }
}

fn parse_interface<P: Plugin + InterfacePlugin>(object: &Rc<ConfObject>, version: SpecVersion) -> Result<(), CniError> {
    let conf = PluginConf::<<P as Plugin>::Conf>::checked(object, version)?;
    require_ipam::<P>(conf.ipam.is_some())
}

fn parse<C: FromConf>(object: &Rc<ConfObject>, version: SpecVersion) -> Result<(), CniError> {
    PluginConf::<C>::checked(object, version).map(drop)
}
