//! STATUS: whether ADD could be served now.

use cni_spec::{CniError, Code};
use interface::failed;
use interface::status::{self, probe_filter};
use netops::Kernel;
use netops::link::{self, Bridge, Link};

use crate::conf::Conf;
use crate::shared::find_bridge;

/// Whether the node can do what the config asks for.
///
/// # Errors
/// Why not.
pub(crate) fn node(conf: &Conf, search_path: &str) -> Result<(), CniError> {
    let host = Kernel::host().map_err(failed)?;
    match find_bridge(&host, &conf.bridge)? {
        Some(bridge) => vlans(conf, &bridge)?,
        None => try_out(conf)?,
    }
    probe_filter(conf.masquerade, conf.mac_spoof_check, search_path)
}

/// Whether the bridge that is there can do what the config asks for.
fn vlans(conf: &Conf, bridge: &Link) -> Result<(), CniError> {
    if conf.vlans.is_none() || bridge.kind.bridge_vlans().default_pvid.is_some() {
        if conf.vlans.is_some() && bridge.kind.bridge_vlans().filtering == Some(false) {
            tracing::warn!(bridge = bridge.name, "the bridge does not filter VLANs: ports are not kept apart");
        }
        return Ok(());
    }
    Err(CniError::new(Code::KERNEL_FEATURE, "the kernel has no bridge VLAN filtering (CONFIG_BRIDGE_VLAN_FILTERING)"))
}

/// Makes what ADD would make.
fn try_out(conf: &Conf) -> Result<(), CniError> {
    let vlan_filtering = conf.vlans.is_some();
    status::try_out(|net| {
        net.run(link::create_bridge(&conf.bridge, &Bridge { mtu_bytes: conf.mtu_bytes, mac: None, vlan_filtering }))?;
        link::create_veth(net, &status::trial_veth(conf.mtu_bytes)).map(drop)
    })
}
