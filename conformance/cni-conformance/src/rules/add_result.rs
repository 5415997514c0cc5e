//! SPEC 5, Success: what a result promises is what the kernel has. Its form is asked for elsewhere.

use super::attached::{Attached, Interface, Ip, namespace_of};
use super::prev_result::own_addresses_are_set;
use crate::rules::prelude::*;
use std::net::IpAddr;
use std::path::Path;
use testns::{Link, Namespace, Route};

pub(super) const CASES: &[Code] = &[
    ("add.result-interfaces-exist", interfaces_exist),
    ("add.result-has-all-interfaces", has_all_interfaces),
    ("add.result-sandbox-is-the-namespace", sandbox_is_the_namespace),
    ("add.result-mac-is-the-links", mac_is_the_links),
    ("add.result-mtu-is-the-links", mtu_is_the_links),
    ("add.result-addresses-are-set/alone", addresses_are_set),
    ("add.result-addresses-are-set/after-others", own_addresses_are_set),
    ("add.result-has-all-addresses", has_all_addresses),
    ("add.result-gateway-is-within-reach", gateway_is_within_reach),
    ("add.result-routes-are-set", routes_are_set),
    ("add.result-has-all-routes", has_all_routes),
];

fn place(attached: &Attached<'_>, interface: &Interface) -> Namespace {
    match &interface.sandbox {
        Some(path) => Namespace::at(path),
        None => attached.testbed.node.host().clone(),
    }
}

fn find(attached: &Attached<'_>, interface: &Interface) -> Result<Link, Stop> {
    let place = place(attached, interface);
    if !place.path().exists() {
        return Err(Finding::new("a sandbox that exists", format!("it named {}", place.path().display())).into());
    }
    place.find_link(&interface.name).ok_or_else(|| {
        let sandbox = interface.sandbox.as_deref().unwrap_or("the node");
        let finding = Finding::new(format!("a link {} in {sandbox}", interface.name), "there is none");
        finding.based_on("add.result-interfaces-exist").into()
    })
}

/// Looks at each interface of a result that has values, in the place where it should be.
fn compare<T: PartialEq + std::fmt::Display>(
    testbed: &Testbed,
    what: &str,
    reported: fn(&Interface) -> Option<T>,
    is: fn(&Link) -> T,
) -> Result<(), Stop> {
    let attached = Attached::add(testbed)?;
    let mut compared = 0;
    for interface in attached.parsed.interfaces.iter().filter(|interface| !interface.elsewhere) {
        let (Some(reported), link) = (reported(interface), find(&attached, interface)?) else {
            continue;
        };
        let is = is(&link);
        if reported != is {
            let expected = format!("{what} {is} of {}, as the link has", interface.name);
            return Err(Finding::new(expected, format!("the result says {reported}")).into());
        }
        compared += 1;
    }
    Stop::skip_if(compared == 0, format!("its result has no {what}"))
}

fn interfaces_exist(testbed: &Testbed) -> Result<(), Stop> {
    let attached = Attached::add(testbed)?;
    let mut here = attached.parsed.interfaces.iter().filter(|interface| !interface.elsewhere);
    here.try_for_each(|interface| find(&attached, interface).map(drop))
}

fn has_all_interfaces(testbed: &Testbed) -> Result<(), Stop> {
    let attached = Attached::add(testbed)?;
    let is_listed = |link: &Link, in_container: bool| {
        let mut reported = attached.parsed.interfaces.iter();
        reported.any(|reported| {
            reported.name == link.name && reported.sandbox.is_some() == in_container && !reported.elsewhere
        })
    };
    let (on_node, in_pod) = (attached.made_on_node(), attached.made_in_pod());
    let mut missing = on_node.iter().filter(|link| !is_listed(link, false)).map(|link| (link, "the node"));
    let missing = missing.next().or_else(|| {
        let mut missing = in_pod.iter().filter(|link| !is_listed(link, true));
        missing.next().map(|link| (link, "the container"))
    });
    Finding::unless_none(missing, |(link, place)| {
        (format!("{} of {place} among the interfaces", link.name), format!("the result is {}", attached.result))
    })
}

/// Passes a path that a plugin might be tempted to clean up.
fn sandbox_is_the_namespace(testbed: &Testbed) -> Result<(), Stop> {
    let pod = testbed.pod();
    let mut attachment = pod.attachment();
    attachment.netns = attachment.netns.replace("/netns/", "/./netns//");
    assert!(Path::new(&attachment.netns).exists(), "{} is no path", attachment.netns);
    let result = testbed.make(&testbed.call(testns::Verb::Add, &attachment))?.succeeds()?;
    let interfaces = result["interfaces"].as_array().cloned().unwrap_or_default();
    let mut sandboxes = interfaces.iter().filter_map(namespace_of);
    Stop::skip_if(interfaces.is_empty(), "its result has no interfaces")?;
    Finding::unless_none(sandboxes.find(|sandbox| *sandbox != attachment.netns), |other| {
        (format!("sandbox {:?}", attachment.netns), format!("the result says {other:?}"))
    })
}

fn mac_is_the_links(testbed: &Testbed) -> Result<(), Stop> {
    // Either case of the digits is the same address.
    compare(testbed, "mac", |reported| reported.mac.as_ref().map(|mac| mac.to_lowercase()), |link| link.mac.clone())
}

fn mtu_is_the_links(testbed: &Testbed) -> Result<(), Stop> {
    compare(testbed, "mtu", |reported| reported.mtu, |link| u64::from(link.mtu_bytes))
}

fn addresses_are_set(testbed: &Testbed) -> Result<(), Stop> {
    let attached = Attached::add(testbed)?;
    let ifname = &attached.attachment.ifname;
    for ip in &attached.parsed.ips {
        let (namespace, name) = match ip.interface.map(|index| attached.parsed.interfaces.get(index)) {
            Some(Some(interface)) if interface.elsewhere => continue,
            Some(Some(interface)) => (place(&attached, interface), &interface.name),
            Some(None) => {
                let seen = format!("the index of {} is beyond the interfaces", ip.address);
                return Err(Finding::new("an index into interfaces", seen).into());
            }
            // Before 0.3.0 there is one interface; later it means that it is unknown.
            None if attached.parsed.interfaces.is_empty() && attached.pod.namespace().find_link(ifname).is_some() => {
                (attached.pod.namespace().clone(), ifname)
            }
            None => continue,
        };
        let found = namespace.addresses();
        let is_it = |address: &&testns::Address| address.link == *name;
        let found: Vec<_> = found.iter().filter(is_it).map(|a| format!("{}/{}", a.ip, a.prefix)).collect();
        if !found.contains(&ip.address) {
            let expected = format!("the address {} of the result on {name}", ip.address);
            return Err(Finding::new(expected, format!("it has {found:?}")).into());
        }
    }
    Ok(())
}

fn has_all_addresses(testbed: &Testbed) -> Result<(), Stop> {
    let attached = Attached::add(testbed)?;
    let name = attached.interface_name()?;
    // Addresses that the kernel makes by itself, of router advertisements, are not permanent.
    let by_somebody =
        |address: &testns::Address| address.link == name && address.scope == 0 && address.flags & 0x80 != 0;
    let set = attached.pod.namespace().addresses().into_iter().filter(by_somebody);
    let set: Vec<_> = set.map(|address| format!("{}/{}", address.ip, address.prefix)).collect();
    let missing = set.iter().find(|address| !attached.parsed.ips.iter().any(|ip| ip.address == **address));
    Finding::unless_none(missing, |missing| {
        (format!("{missing}, which is on {name}, among the addresses"), format!("the result is {}", attached.result))
    })
}

fn gateway_is_within_reach(testbed: &Testbed) -> Result<(), Stop> {
    let attached = Attached::add(testbed)?;
    let routes = attached.pod.namespace().routes();
    let mut gateways = 0;
    for ip in attached.addresses() {
        let Some(gateway) = &ip.gateway else {
            continue;
        };
        gateways += 1;
        let parsed = gateway.parse::<IpAddr>().ok();
        let parsed = parsed.filter(|parsed| parsed.is_ipv6() == ip.address.contains(':'));
        let parsed = parsed.ok_or_else(|| {
            Finding::new(format!("a gateway of the family of {}", ip.address), format!("it is {gateway:?}"))
        })?;
        if !routes.iter().any(|route| leads_to(route, parsed)) {
            return Err(Finding::new(format!("a route to the gateway {gateway}"), "the container has none").into());
        }
    }
    Stop::skip_if(gateways == 0, "its result names no gateway")
}

/// Whether a route that needs no gateway itself leads to an address.
pub(super) fn leads_to(route: &Route, ip: IpAddr) -> bool {
    covers(&route.to, ip) && route.kind == 1 && route.hops.iter().any(|hop| hop.via.is_none())
}

fn covers(network: &str, ip: IpAddr) -> bool {
    let Some((network, length)) = network.split_once('/') else {
        return false;
    };
    let (Ok(network), Ok(length)) = (network.parse::<IpAddr>(), length.parse::<u32>()) else {
        return false;
    };
    match (network, ip) {
        (IpAddr::V4(network), IpAddr::V4(ip)) => (network.to_bits() ^ ip.to_bits()).leading_zeros() >= length,
        (IpAddr::V6(network), IpAddr::V6(ip)) => (network.to_bits() ^ ip.to_bits()).leading_zeros() >= length,
        _ => false,
    }
}

/// Whether a destination is the network of an address, or its gateway alone.
fn is_network_of(destination: &str, ip: &Ip) -> bool {
    let length = |text: &str| text.rsplit('/').next().unwrap_or_default().to_owned();
    let bare = |text: &str| text.split('/').next().and_then(|ip| ip.parse::<IpAddr>().ok());
    let is_network = length(destination) == length(&ip.address);
    let gateway = ip.gateway.as_deref().filter(|_| ["32", "128"].contains(&length(destination).as_str()));
    let through = |ip: Option<IpAddr>| ip.is_some_and(|ip| covers(destination, ip));
    is_network && through(bare(&ip.address)) || through(gateway.and_then(bare))
}

fn routes_are_set(testbed: &Testbed) -> Result<(), Stop> {
    let attached = Attached::add(testbed)?;
    // Routes of prevResult are the affair of who made them.
    let given = testbed.laid_for(&attached.attachment).filter(|_| testbed.profile.is_chained()).unwrap_or_default();
    let is_own = |route: &&super::attached::Route| !given["routes"].to_string().contains(&format!("{:?}", route.dst));
    let reported: Vec<_> = attached.parsed.routes.iter().filter(is_own).collect();
    Stop::skip_if(reported.is_empty(), "its result has no route of its own")?;
    let found = attached.pod.namespace().routes();
    for reported in reported {
        let table = reported.table.unwrap_or(254);
        let of_addresses = attached.parsed.ips.iter().filter_map(|ip| ip.gateway.clone());
        let gateways: Vec<_> = match &reported.gw {
            Some(gateway) => vec![gateway.clone()],
            None => of_addresses.collect(),
        };
        let goes_there = |route: &&Route| {
            let via = |hop: &testns::Hop| hop.via.is_none_or(|via| gateways.contains(&via.to_string()));
            route.to == reported.dst && u64::from(route.table) == table && route.hops.iter().any(via)
        };
        if !found.iter().any(|route| goes_there(&route)) {
            let lines: Vec<_> = found.iter().filter(|route| route.table != 255).map(ToString::to_string).collect();
            let via = reported.gw.as_ref().map(|gateway| format!(" via {gateway}")).unwrap_or_default();
            let expected = format!("a route to {}{via}, as the result says", reported.dst);
            return Err(Finding::new(expected, format!("the container has {lines:?}")).into());
        }
    }
    Ok(())
}

/// The kernel makes routes for an address itself; ptp replaces that to its network by one through the gateway.
fn has_all_routes(testbed: &Testbed) -> Result<(), Stop> {
    let attached = Attached::add(testbed)?;
    let by_kernel = [2, 9]; // and by router advertisements
    let made = attached.pod.namespace().routes().into_iter().filter(|route| !by_kernel.contains(&route.protocol));
    let is_of_an_address = |route: &Route| attached.parsed.ips.iter().any(|ip| is_network_of(&route.to, ip));
    let mut made = made.filter(|route| route.table != 255 && !is_of_an_address(route)).peekable();
    Stop::skip_if(made.peek().is_none(), "its ADD makes no route")?;
    let missing = made.find(|route| !attached.parsed.routes.iter().any(|reported| reported.dst == route.to));
    Finding::unless_none(missing, |missing| {
        (
            format!("{missing}, which is in the container, among the routes"),
            format!("the result is {}", attached.result),
        )
    })
}
