//! Finding the device on the node, and what the node loses with it.

use std::path::Path;

use cni_spec::{CniError, Code};
use interface::{conf::invalid, failed};
use netops::error::Result as OpResult;
use netops::link::{self, Before, Link};
use netops::route::{self, Route};
use netops::{Family, Kernel};

use crate::conf::{Conf, Selector};
use crate::identity;
use crate::record::AwayDevice;

pub fn selects_nothing() -> CniError {
    invalid("none of the keys device, hwaddr, kernelpath, pciBusID and runtimeConfig.deviceID is set")
}

/// The device that the config selects, if it is on the host.
/// Errors: code 7: no key selects a device, `runtimeConfig.deviceID` is on no bus, or the function has several interfaces.
pub fn find(conf: &Conf, host: &Kernel) -> Result<Option<Link>, CniError> {
    let selector = conf.selector();
    match &selector {
        Selector::Name(name) => link::find(host, name.as_str()).map_err(failed),
        Selector::Mac(mac) => {
            let links = link::list(host, None).map_err(failed)?;
            Ok(links.into_iter().find(|link| link.mac == Some(*mac)))
        }
        Selector::None => Err(selects_nothing()),
        Selector::Unknown(id) => Err(invalid(format_args!(
            "key runtimeConfig.deviceID = {id:?}: neither the PCI bus nor the auxiliary bus has such a device"
        ))),
        Selector::KernelPath(_) | Selector::Pci(_) | Selector::Auxiliary(_) => {
            let interfaces = selector.folders().iter().map(|folder| entries(folder)).find(|names| !names.is_empty());
            let interfaces = interfaces.unwrap_or_default();
            match interfaces.as_slice() {
                [] => Ok(None),
                [only] => link::find(host, only).map_err(failed),
                several => Err(invalid(format_args!("the {selector} is not one interface: {}", several.join(", ")))
                    .detail("Set key device or hwaddr in its place.")),
            }
        }
    }
}

/// The interfaces in a device's folder, by name, without those that represent ports of the card's switch.
fn entries(folder: &Path) -> Vec<String> {
    let entries =
        std::fs::read_dir(folder).into_iter().flatten().flatten().filter(|entry| !is_representor(&entry.path()));
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// Whether the port's name is that of a function (`pf0vf1`, `c1pf0sf2`), not of a plug (`p0`): `devlink_port_phys_port_name_get` in
/// net/devlink/port.c.
fn is_representor(interface: &Path) -> bool {
    std::fs::read_to_string(interface.join("phys_port_name")).is_ok_and(|name| name.contains("pf"))
}

/// The error of a device that is not on the host. It names the container that has or had the device, if the node knows.
pub fn absent(conf: &Conf, holder: Option<&AwayDevice>) -> CniError {
    let msg = format!("cannot find {} on the host", conf.selector());
    match holder {
        Some(record @ AwayDevice { container_id, network, ifname, .. }) if identity::has_namespace(record) => {
            CniError::new(
                Code::KERNEL,
                format!("{msg}: container {container_id} has it as {ifname} by network {network}"),
            )
            .detail("DEL of that attachment brings it home.")
        }
        Some(AwayDevice { container_id, network, ifname, .. }) => CniError::new(
            Code::KERNEL,
            format!("{msg}: container {container_id}, which had it as {ifname} by network {network}, is gone"),
        )
        .detail("The kernel returns hardware when the container's namespace has ended, and deletes other links."),
        None => CniError::new(Code::KERNEL, msg)
            .detail("Look at the node's links (ip link): the key may be wrong, or a container may have the device."),
    }
}

/// What the node uses the device for, a phrase each; empty if for nothing.
pub fn uses(host: &Kernel, before: &Before) -> OpResult<Vec<String>> {
    let index = before.link.index;
    let mut uses: Vec<String> = before.addresses.iter().map(|address| format!("address {}", address.net)).collect();
    for family in Family::BOTH {
        let routes = route::list(host, Some(index), Some(route::MAIN_TABLE), family)?;
        let is_kernels = |route: &Route| route.gateway.is_none() && covers_own_address(route, before);
        uses.extend(routes.iter().filter(|route| !is_kernels(route)).map(|route| format!("route {route}")));
    }
    if let Some(master) = before.link.master {
        let name = link::find_index(host, master)?.map_or_else(|| format!("number {master}"), |master| master.name);
        uses.push(format!("its place as a port of {name}"));
    }
    Ok(uses)
}

/// A route that comes and goes with an address, or with the link.
fn covers_own_address(route: &Route, before: &Before) -> bool {
    let is_link_local = matches!(route.dst.ip(), std::net::IpAddr::V6(ip) if ip.is_unicast_link_local());
    is_link_local || before.addresses.iter().any(|address| address.net.network() == route.dst.ip())
}
