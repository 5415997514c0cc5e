//! The parsers of all plugins' keys, for checking configurations. Nothing else of the plugins becomes part of an executable
//! that uses this.

use std::rc::Rc;

use cni_spec::{CniError, ConfObject, FromConf, PluginConf, SpecVersion};
use interface::InterfacePlugin;
use interface::attach::require_ipam;
use skel::Plugin;
use validate::{Known, Role};

/// The plugins, by name.
pub const ALL: &[Known] = &[
    known::<bandwidth::Bandwidth>(Role::Chained),
    interface::<bridge::Bridge>(),
    known::<dhcp::Dhcp>(Role::Address),
    interface::<dummy::Dummy>(),
    known::<firewall::Firewall>(Role::Chained),
    interface::<host_device::HostDevice>(),
    known::<host_local::HostLocal>(Role::Address),
    interface::<ipvlan::Ipvlan>(),
    known::<loopback::Loopback>(Role::Any),
    interface::<macvlan::Macvlan>(),
    known::<portmap::Portmap>(Role::Chained),
    interface::<ptp::Ptp>(),
    known::<sbr::Sbr>(Role::Chained),
    known::<static_ipam::Static>(Role::Address),
    interface::<tap::Tap>(),
    known::<tuning::Tuning>(Role::Chained),
    interface::<vlan::Vlan>(),
    known::<vrf::VrfPlugin>(Role::Chained),
];

const fn known<P: Plugin>(role: Role) -> Known {
    Known { name: <P as Plugin>::NAME, role, versions: <P as Plugin>::VERSIONS, parse: parse::<<P as Plugin>::Conf> }
}

const fn interface<P: Plugin + InterfacePlugin>() -> Known {
    Known { parse: parse_interface::<P>, ..known::<P>(Role::Interface) }
}

fn parse_interface<P: Plugin + InterfacePlugin>(object: &Rc<ConfObject>, version: SpecVersion) -> Result<(), CniError> {
    let conf = PluginConf::<<P as Plugin>::Conf>::checked(object, version)?;
    require_ipam::<P>(conf.ipam.is_some())
}

fn parse<C: FromConf>(object: &Rc<ConfObject>, version: SpecVersion) -> Result<(), CniError> {
    PluginConf::<C>::checked(object, version).map(drop)
}
