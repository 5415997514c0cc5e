//! The container's side: its interface, addresses and route out, from inside its namespace.

use std::fmt;
use std::net::IpAddr;

use netops::link::{self, Link};
use netops::{Kernel, Netns, addr, route};

use super::carrier::{Carrier, sets};
use super::routes::OUTSIDE;
use super::{Cause, Findings, Level, Reason, Sight};
use crate::view::Attachment;

/// Why nothing can be said of the container's side, or what it lacks.
enum Inside {
    Unseen(String),
    Missing(String),
}

impl Sight<'_> {
    pub(super) fn inside(&self, attachment: &Attachment, carrier: &Carrier, findings: &mut Findings) {
        let (kernel, link, addresses) = match look(attachment) {
            Ok(found) => found,
            Err(Inside::Missing(what)) => {
                let why = format!("the container has no {what}");
                let remedy = ["Start the container anew.".to_owned()];
                findings.reasons.push(Reason::new(Cause::Inside, Level::Error, why).mended_by(remedy));
                return;
            }
            Err(Inside::Unseen(why)) => {
                findings.unseen.push(format!("the container's side: {why}"));
                return;
            }
        };
        let enter = format!("nsenter --net={} ip", attachment.netns);
        let mut missing = |why: String, remedy: Option<String>| {
            findings.reasons.push(Reason::new(Cause::Inside, Level::Error, why).mended_by(remedy));
        };
        if !link.up {
            missing(
                format!("{} is down in the container", link.name),
                Some(format!("{enter} link set {} up", link.name)),
            );
        }
        for address in attachment.addresses.iter().filter(|address| !addresses.contains(address)) {
            let net = attachment.result.ips.iter().map(|ip| ip.address).find(|net| net.ip() == *address);
            let remedy = net.map(|net| format!("{enter} address add {net} dev {}", link.name));
            missing(format!("{} in the container does not have {address}", link.name), remedy);
        }
        for outside in OUTSIDE {
            if !attachment.addresses.iter().any(|address| address.is_ipv4() == outside.is_ipv4()) {
                continue;
            }
            let family = if outside.is_ipv4() { "IPv4" } else { "IPv6" };
            match route::lookup(&kernel, outside) {
                Ok(found) => {
                    let by = found.gateway.map_or("directly".to_owned(), |gateway| format!("by {gateway}"));
                    let own = if found.link == Some(link.index) { link.name.as_str() } else { "another interface" };
                    findings.from.push(format!("in the container, {family} leads out {by} on {own}"));
                }
                Err(_) if has_way_out(attachment, carrier, outside.is_ipv4()) => {
                    let gateway = attachment.result.ips.iter().filter_map(|ip| ip.gateway);
                    let gateway = gateway.into_iter().find(|gateway| gateway.is_ipv4() == outside.is_ipv4());
                    let remedy =
                        gateway.map(|gateway| format!("{enter} route add default via {gateway} dev {}", link.name));
                    findings.reasons.push(
                        Reason::new(
                            Cause::Inside,
                            Level::Error,
                            format!("the container has no {family} route out of its own network"),
                        )
                        .mended_by(remedy),
                    );
                }
                Err(_) => findings.from.push(format!("in the container, {family} leads to its own network only")),
            }
        }
    }
}

fn look(attachment: &Attachment) -> Result<(Kernel, Link, Vec<IpAddr>), Inside> {
    let unseen = |error: &dyn fmt::Display| Inside::Unseen(error.to_string());
    if attachment.netns.is_empty() {
        return Err(Inside::Unseen("the cache does not have the namespace's path".to_owned()));
    }
    let netns = Netns::open(&attachment.netns).map_err(|error| unseen(&error))?;
    let kernel = Kernel::in_netns(&netns).map_err(|error| unseen(&error))?;
    let name = attachment.id.ifname.as_str();
    let link = link::find(&kernel, name).map_err(|error| unseen(&error))?;
    let link = link.ok_or_else(|| Inside::Missing(format!("interface {name}")))?;
    let addresses = addr::list(&kernel, &link).map_err(|error| unseen(&error))?;
    Ok((kernel, link, addresses.iter().map(|address| address.net.ip()).collect()))
}

/// Whether ADD gave the container a default route of the family. Without its result, a routed network does.
fn has_way_out(attachment: &Attachment, carrier: &Carrier, is_ipv4: bool) -> bool {
    let result = &attachment.result;
    if result.ips.is_empty() {
        return carrier.is_routed();
    }
    let is_default = |route: &libcni::cni_spec::Route| route.dst.prefix() == 0 && route.dst.is_ipv4() == is_ipv4;
    let has_gateway = || result.ips.iter().any(|ip| ip.gateway.is_some_and(|gateway| gateway.is_ipv4() == is_ipv4));
    result.routes.iter().any(is_default)
        || attachment.conf.as_ref().is_some_and(|conf| sets(conf, "isDefaultGateway")) && has_gateway()
}
