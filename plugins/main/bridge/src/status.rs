//! STATUS: whether ADD could be served now.

use cni_spec::{CniError, Code};
use filter::Filter;
use interface::failed;
use netops::link::{self, Bridge, Link, Veth};
use netops::{Kernel, Netns, OpError};
use skel::StatusRequest;

use crate::conf::Conf;
use crate::observe::find_bridge;

/// Tells whether ADD could be served.
///
/// # Errors
/// Code 50 with the reason; the IPAM plugin's own.
pub async fn status(request: &StatusRequest<Conf>) -> Result<(), CniError> {
    let conf = &request.conf.own;
    let not_available = |error: CniError| CniError {
        code: Code::NOT_AVAILABLE,
        msg: format!("network {} is not available: {}", request.conf.name, error.msg),
        ..error
    };
    node(conf, request.raw.search_path()).map_err(not_available)?;
    let Some(ipam) = request.ipam() else { return Ok(()) };
    match ipam.status().await {
        // It did not answer, so there is no answer of its own to pass on.
        Err(error) if error.code == Code::DELEGATE => Err(not_available(error)),
        answer => answer,
    }
}

fn node(conf: &Conf, search_path: &str) -> Result<(), CniError> {
    let host = Kernel::host().map_err(failed)?;
    match find_bridge(&host, &conf.bridge)? {
        Some(bridge) => vlans(conf, &bridge)?,
        None => try_out(conf)?,
    }
    if conf.masquerade.is_none() && !conf.mac_spoof_check {
        return Ok(());
    }
    let mut filter = Filter::open().map_err(failed)?.searching(search_path);
    if let Some(backend) = conf.masquerade {
        filter.probe_masquerade(backend).map_err(failed)?;
    }
    if conf.mac_spoof_check {
        filter.probe_spoof_guard().map_err(failed)?;
    }
    Ok(())
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

/// Makes what ADD would make, in a namespace that ends at once: that also loads the modules.
fn try_out(conf: &Conf) -> Result<(), CniError> {
    let vlan_filtering = conf.vlans.is_some();
    let tried = Netns::run_in_new(|| {
        let net = Kernel::host()?;
        net.run(link::create_bridge(&conf.bridge, &Bridge { mtu_bytes: conf.mtu_bytes, mac: None, vlan_filtering }))?;
        let veth = Veth {
            name: "veth-trial0",
            master: None,
            alias: "",
            mtu_bytes: conf.mtu_bytes,
            peer_name: "veth-trial1",
            peer_mac: None,
            peer_netns: None,
        };
        link::create_veth(&net, &veth).map(drop)
    });
    tried.and_then(|made: Result<(), OpError>| made).map_err(failed)
}
