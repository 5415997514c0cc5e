//! STATUS: whether ADD could be served now.

use cni_spec::{CniError, Code};
use interface::failed;
use interface::status::{self, probe_filter};
use netops::Kernel;
use netops::link::{self, Bridge, BridgeVlans};

use crate::conf::Conf;
use crate::ensure_bridge::find_bridge;

/// Whether the node can do what the config asks for.
pub(crate) fn node(conf: &Conf, search_path: &str) -> Result<(), CniError> {
    match link::see(&conf.bridge).map_err(failed)?.map(|seen| seen.bridge) {
        Some(Some(bridge)) => vlans(conf, bridge)?,
        // The error says of which kind the link is.
        Some(None) => find_bridge(&Kernel::host().map_err(failed)?, &conf.bridge).map(drop)?,
        None => try_out(conf)?,
    }
    probe_filter(conf.masquerade.as_ref(), conf.mac_spoof_check, search_path)
}

/// Whether the bridge that is there can do what the config asks for.
fn vlans(conf: &Conf, bridge: BridgeVlans) -> Result<(), CniError> {
    if conf.vlans.is_none() || bridge.are_known {
        if conf.vlans.is_some() && !bridge.are_filtered {
            tracing::warn!(bridge = conf.bridge, "the bridge does not filter VLANs: ports are not kept apart");
        }
        return Ok(());
    }
    Err(CniError::new(Code::KERNEL_FEATURE, "the kernel has no bridge VLAN filtering (CONFIG_BRIDGE_VLAN_FILTERING)"))
}

/// Makes what ADD would make.
fn try_out(conf: &Conf) -> Result<(), CniError> {
    let vlan_filtering = conf.vlans.is_some();
    let (mtu_bytes, multicast_snooping) = (conf.mtu_bytes, conf.multicast_snooping);
    let options = Bridge { mtu_bytes, vlan_filtering, multicast_snooping, ..Bridge::default() };
    let words = if vlan_filtering { "bridge-vlan" } else { "bridge" };
    let words = if multicast_snooping.is_some() { format!("{words}-multicast") } else { words.to_owned() };
    status::try_out(&format!("{words}{}", status::mtu_word(conf.mtu_bytes)), |net| {
        net.run(link::create_bridge(&conf.bridge, &options))?;
        link::create_veth(net, &status::trial_veth(conf.mtu_bytes)).map(drop)
    })
}
