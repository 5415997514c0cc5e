//! Ways in which an attachment may come to harm. Each does one thing and says what; it skips where there is nothing of
//! the kind.

use super::add_result::leads_to;
use super::attached::{Attached, skip};
use crate::finding::{Stop, quoted};
use crate::profile::Stage;
use serde::Deserialize;
use std::fs;
use testns::{Link, changes};

/// A kind of harm, by its name in a case.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Harm(Damage);

/// Does harm, and returns it in words.
type Damage = fn(&Attached<'_>) -> Result<&'static str, Stop>;

const HARMS: &[(&str, Damage)] = &[
    ("remove-interface", remove_interface),
    ("rename-interface", rename_interface),
    ("set-interface-down", set_interface_down),
    ("change-mac", change_mac),
    ("change-mtu", change_mtu),
    ("add-address", add_address),
    ("add-route", add_route),
    ("remove-address", remove_address),
    ("remove-last-address", remove_last_address),
    ("remove-route", remove_route),
    ("remove-host-end", remove_host_end),
    ("set-host-end-down", set_host_end_down),
    ("detach-host-end", detach_host_end),
    ("remove-bridge", remove_bridge),
    ("remove-master", remove_master),
    ("flush-filters", flush_filters),
    ("lose-files", lose_files),
];

impl TryFrom<String> for Harm {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let found = HARMS.iter().find(|(known, _)| *known == name);
        found.map(|(_, harm)| Self(*harm)).ok_or_else(|| format!("there is no harm {name}"))
    }
}

impl Harm {
    pub(super) fn befalls(self, attached: &Attached<'_>) -> Result<&'static str, Stop> {
        self.0(attached)
    }
}

/// The interface in the container is removed, of a chained plugin that of the plugins before it.
fn remove_interface(attached: &Attached<'_>) -> Result<&'static str, Stop> {
    let is_chained = attached.testbed.profile.is_chained();
    let name = if is_chained { attached.interface_name()? } else { attached.interface()?.name };
    attached.pod.namespace().delete_link(&name);
    Ok("the interface was removed")
}

fn rename_interface(attached: &Attached<'_>) -> Result<&'static str, Stop> {
    let interface = attached.interface()?;
    attached.pod.namespace().rename(&interface.name, "other0");
    Ok("the interface was renamed")
}

pub(super) fn set_interface_down(attached: &Attached<'_>) -> Result<&'static str, Stop> {
    let name = attached.interface_name()?;
    match attached.pod.namespace().link(&name).up {
        true => attached.pod.namespace().set_down(&name),
        false => return Err(skip("its interface is down after ADD")),
    }
    Ok("the interface was set down")
}

fn change_mac(attached: &Attached<'_>) -> Result<&'static str, Stop> {
    let interface = attached.interface()?;
    let reported = attached
        .parsed
        .interfaces
        .iter()
        .find(|reported| reported.sandbox.is_some() && reported.name == interface.name);
    match reported.and_then(|reported| reported.mac.as_ref()) {
        // An ipvlan's address follows the master's, and cannot be set.
        Some(_) if interface.kind == "ipvlan" => Err(skip("an ipvlan has no hardware address of its own")),
        Some(_) => {
            attached.pod.namespace().set_mac(&interface.name, "0a:00:00:00:77:77");
            Ok("the interface was given another mac")
        }
        None => Err(skip("its result names no hardware address")),
    }
}

fn change_mtu(attached: &Attached<'_>) -> Result<&'static str, Stop> {
    attached.pod.namespace().set_mtu(&attached.interface_name()?, 1300);
    Ok("the interface was given another MTU")
}

fn add_address(attached: &Attached<'_>) -> Result<&'static str, Stop> {
    attached.pod.namespace().add_address(&attached.interface_name()?, "192.0.2.177/28");
    Ok("the interface has an address more")
}

/// A route by the gateway of the result.
fn add_route(attached: &Attached<'_>) -> Result<&'static str, Stop> {
    let name = attached.interface_name()?;
    let gateway = attached.addresses().iter().find_map(|ip| ip.gateway.clone().filter(|text| !text.contains(':')));
    let gateway =
        gateway.ok_or_else(|| skip("its result names no gateway through which there could be more routes"))?;
    let on_link = |hop: &testns::Hop| hop.link == name && hop.via.is_none();
    let mut routes = attached.pod.namespace().routes();
    routes.retain(|route| route.table == 254 && route.hops.iter().any(on_link));
    let leads = gateway.parse().is_ok_and(|gateway| routes.iter().any(|route| leads_to(route, gateway)));
    Stop::skip_if(!leads, "the container has no route to its gateway")?;
    attached.pod.namespace().add_route("203.0.113.64/26", &gateway, &name);
    Ok("the container has a route more")
}

/// The first address of the result is taken from the interface.
pub(super) fn remove_address(attached: &Attached<'_>) -> Result<&'static str, Stop> {
    let name = attached.interface()?.name;
    let addresses = attached.addresses();
    let first = addresses.first().ok_or_else(|| skip("its result has no address of the container"))?;
    take_address(attached, &name, &first.address)?;
    Ok("an address was removed")
}

fn take_address(attached: &Attached<'_>, interface: &str, address: &str) -> Result<(), Stop> {
    let pod = attached.pod.namespace();
    match pod.global_addresses(interface).iter().any(|found| found == address) {
        true => pod.delete_address(interface, address),
        false => return Err(skip("its interface does not have the address of its result")),
    }
    Ok(())
}

/// The last address of the result is taken from the interface; there are more.
fn remove_last_address(attached: &Attached<'_>) -> Result<&'static str, Stop> {
    let name = attached.interface()?.name;
    match attached.addresses().as_slice() {
        [_, .., last] => {
            take_address(attached, &name, &last.address)?;
            Ok("an address was removed")
        }
        _ => Err(skip("its result has no second address of the container")),
    }
}

fn remove_route(attached: &Attached<'_>) -> Result<&'static str, Stop> {
    let in_main = |table: Option<u64>| table.is_none_or(|table| table == 254);
    let route = attached.parsed.routes.iter().find(|route| in_main(route.table));
    let route = route.ok_or_else(|| skip("its result has no route"))?;
    match attached.pod.namespace().routes().iter().any(|found| found.table == 254 && found.to == route.dst) {
        true => attached.pod.namespace().delete_route(&route.dst),
        false => return Err(skip("the container has no route of its result")),
    }
    Ok("a route was removed")
}

fn host_end(attached: &Attached<'_>) -> Result<Link, Stop> {
    let peer = attached.interface()?.peer;
    let made = attached.made_on_node().into_iter().find(|link| Some(link.index) == peer && link.kind != "bridge");
    made.ok_or_else(|| skip("its interface has no other end on the node"))
}

fn remove_host_end(attached: &Attached<'_>) -> Result<&'static str, Stop> {
    attached.testbed.node.host().delete_link(&host_end(attached)?.name);
    Ok("the end on the node was removed")
}

fn set_host_end_down(attached: &Attached<'_>) -> Result<&'static str, Stop> {
    attached.testbed.node.host().set_down(&host_end(attached)?.name);
    Ok("the end on the node was set down")
}

/// The end on the node is taken from its bridge.
fn detach_host_end(attached: &Attached<'_>) -> Result<&'static str, Stop> {
    let end = host_end(attached)?;
    match end.master {
        Some(_) => attached.testbed.node.host().clear_master(&end.name),
        None => return Err(skip("the end on the node is no port of a bridge")),
    }
    Ok("the end on the node was taken from its bridge")
}

fn remove_bridge(attached: &Attached<'_>) -> Result<&'static str, Stop> {
    let bridge = host_end(attached)?.master.ok_or_else(|| skip("it uses no bridge"))?;
    attached.testbed.node.host().delete_link(&bridge);
    Ok("the bridge was removed")
}

/// The link of the node to which the interface belongs is removed.
fn remove_master(attached: &Attached<'_>) -> Result<&'static str, Stop> {
    let name = |part: &Stage| if let Stage::Cable { name } = part { Some(name.clone()) } else { None };
    let cable = attached.testbed.profile.stage.iter().find_map(name);
    attached.testbed.node.host().delete_link(&cable.ok_or_else(|| skip("it uses no link of the node"))?);
    Ok("its master was removed")
}

/// All filter rules are removed, on the node and in the container.
pub(super) fn flush_filters(attached: &Attached<'_>) -> Result<&'static str, Stop> {
    let (node, pod) = (attached.testbed.node.host(), attached.pod.namespace());
    Stop::skip_if(node.nft().is_empty() && pod.nft().is_empty(), "its ADD sets no filter rules")?;
    node.flush_nft();
    pod.flush_nft();
    Ok("the filter rules were removed")
}

/// Every file that names the container is removed.
pub(super) fn lose_files(attached: &Attached<'_>) -> Result<&'static str, Stop> {
    let files: Vec<_> =
        attached.testbed.files_naming(&attached.pod).into_iter().filter(|path| path.is_file()).collect();
    Stop::skip_if(files.is_empty(), "no file of it names the container")?;
    for file in files {
        testns::step(format!("rm {}", quoted(&file.display().to_string())));
        fs::remove_file(&file).unwrap_or_else(|error| panic!("cannot remove {}: {error}", file.display()));
    }
    Ok("the files that name the container were removed")
}

/// Sysctls that a change between two snapshots shows, with the values from before.
pub(super) fn sysctls_before(before: &testns::Snapshot, after: &testns::Snapshot) -> Vec<(String, String)> {
    let text = changes(before, after);
    let gone = text.lines().filter_map(|line| line.strip_prefix("- sysctl ")?.split_once(" = "));
    // The MTU of IPv6 follows the link's.
    gone.filter(|(key, _)| !key.ends_with("/mtu")).map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}
