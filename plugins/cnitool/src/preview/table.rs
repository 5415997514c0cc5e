//! The plugins that say what they would do, by name.

use chained::ChainedPlugin;
use cni_spec::{AddResult, CniError, PluginType};
use host_local::HostLocal;
use interface::InterfacePlugin;
use interface::preview::{Lease, Preview, preview};
use skel::{Call, Plugin, add_request};
use static_ipam::Static;

/// Whether the executable of an address plugin is of this suite. The error: there is none.
pub(crate) type IsOurs<'a> = &'a dyn Fn(&PluginType) -> Result<bool, CniError>;

/// What ADD of a plugin would do by this call.
pub(crate) type Foresee = fn(&Call, IsOurs<'_>) -> Result<Preview, CniError>;

const ALL: &[(&str, Foresee)] = &[
    chained_plugin::<bandwidth::Bandwidth>(),
    interface_plugin::<bridge::Bridge>(),
    interface_plugin::<dummy::Dummy>(),
    chained_plugin::<firewall::Firewall>(),
    interface_plugin::<host_device::HostDevice>(),
    interface_plugin::<ipvlan::Ipvlan>(),
    ("loopback", |call, _| loopback::preview(&add_request::<loopback::Loopback>(call)?)),
    interface_plugin::<macvlan::Macvlan>(),
    chained_plugin::<portmap::Portmap>(),
    interface_plugin::<ptp::Ptp>(),
    chained_plugin::<sbr::Sbr>(),
    interface_plugin::<tap::Tap>(),
    chained_plugin::<tuning::Tuning>(),
    interface_plugin::<vlan::Vlan>(),
    chained_plugin::<vrf::VrfPlugin>(),
];

/// The plugin of this name, if it says what it would do.
pub(crate) fn find(name: &str) -> Option<Foresee> {
    ALL.iter().find(|(found, _)| *found == name).map(|(_, foresee)| *foresee)
}

const fn interface_plugin<P: InterfacePlugin + Plugin<Conf = <P as InterfacePlugin>::Conf>>() -> (&'static str, Foresee)
{
    (<P as Plugin>::NAME, |call, is_ours| {
        let request = add_request::<P>(call)?;
        let ipam = request.conf.ipam.as_ref();
        preview::<P>(&request, &mut || lease(call, ipam, is_ours))
    })
}

const fn chained_plugin<P: ChainedPlugin + Plugin<Conf = <P as ChainedPlugin>::Conf>>() -> (&'static str, Foresee) {
    (<P as Plugin>::NAME, |call, _| chained::drive::preview::<P>(&add_request::<P>(call)?))
}

fn known(lease: AddResult) -> Lease {
    Lease::Known(Box::new(lease))
}

/// The addresses that the address plugin would give.
fn lease(call: &Call, ipam: Option<&PluginType>, is_ours: IsOurs<'_>) -> Result<Lease, CniError> {
    let Some(ipam) = ipam else { return Ok(Lease::None) };
    let is_ours = is_ours(ipam)?;
    match ipam.as_str() {
        _ if !is_ours => Ok(Lease::Unknown),
        "host-local" => Ok(host_local::foresee(&add_request::<HostLocal>(call)?)?.map_or(Lease::Unknown, known)),
        "static" => static_ipam::foresee(&add_request::<Static>(call)?).map(known),
        _ => Ok(Lease::Unknown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cni_validate::Role;

    #[test]
    fn each_plugin_that_a_list_can_have_says_what_it_would_do() {
        let silent = |known: &&cni_validate::Known| !matches!(known.role, Role::Address) && find(known.name).is_none();
        assert_eq!(plugin_keys::ALL.iter().filter(silent).map(|known| known.name).collect::<Vec<_>>(), Vec::<&str>::new());
    }
}
