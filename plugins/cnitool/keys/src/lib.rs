//! The parsers of all plugins' keys, for checking configurations, and what they say as JSON Schemas. Nothing else of the
//! plugins becomes part of an executable that uses this.

pub mod schemas;

use std::rc::Rc;

use cni_spec::{CniError, ConfObject, FromConf, PluginConf, SpecVersion};
use cni_validate::{Known, Role};
use interface::InterfacePlugin;
use interface::attach::require_ipam;
use skel::Plugin;

/// A plugin's page.
macro_rules! readme {
    ($folder:literal) => {
        include_str!(concat!("../../", $folder, "/README.md"))
    };
}

/// The plugins, by name.
pub const ALL: &[Known] = &[
    known::<bandwidth::Bandwidth>(Role::Chained, readme!("meta/bandwidth")),
    interface::<bridge::Bridge>(readme!("main/bridge")),
    known::<dhcp::Dhcp>(Role::Address, readme!("ipam/dhcp")),
    interface::<dummy::Dummy>(readme!("main/dummy")),
    known::<firewall::Firewall>(Role::Chained, readme!("meta/firewall")),
    interface::<host_device::HostDevice>(readme!("main/host-device")),
    known::<host_local::HostLocal>(Role::Address, readme!("ipam/host-local")),
    interface::<ipvlan::Ipvlan>(readme!("main/ipvlan")),
    known::<loopback::Loopback>(Role::Any, readme!("main/loopback")),
    interface::<macvlan::Macvlan>(readme!("main/macvlan")),
    known::<portmap::Portmap>(Role::Chained, readme!("meta/portmap")),
    interface::<ptp::Ptp>(readme!("main/ptp")),
    known::<sbr::Sbr>(Role::Chained, readme!("meta/sbr")),
    known::<static_ipam::Static>(Role::Address, readme!("ipam/static")),
    interface::<tap::Tap>(readme!("main/tap")),
    known::<tuning::Tuning>(Role::Chained, readme!("meta/tuning")),
    interface::<vlan::Vlan>(readme!("main/vlan")),
    known::<vrf::VrfPlugin>(Role::Chained, readme!("meta/vrf")),
];

const fn known<P: Plugin>(role: Role, readme: &'static str) -> Known {
    Known {
        name: <P as Plugin>::NAME,
        role,
        versions: <P as Plugin>::VERSIONS,
        parse: parse::<<P as Plugin>::Conf>,
        readme,
    }
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
