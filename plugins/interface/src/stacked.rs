//! Links on top of another one (macvlan, ipvlan, vlan): which link that is, their settings, and why the kernel refuses one.

use std::fs;

use cni_spec::{CniError, Code, Interface};
use netops::link::{self, AnyName, AnyNameError, Kind, Link, LinkName, NewLink, Sight, ipvlan, macvlan};
use netops::{Errno, Family, Kernel, Netns, OpError, route, veth_peer};
use serde::Deserialize;

use crate::conf::invalid;
use crate::plan::{Create, Side};
use crate::plugin::{AddOrCheck, Verb};
use crate::sides::Sides;
use crate::{check, failed, status};

/// Keys `master`, `masterFrom` and `linkInContainer`: the link that the container's is stacked on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The link's name; `None`: `from` says which it is.
    pub name: Option<AnyName>,
    /// Key `masterFrom`; without it the link that the default route leaves by.
    pub from: Option<MasterFrom>,
    pub side: Side,
}

/// How a link without key `master` is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MasterFrom {
    /// The link that the default route leaves by.
    DefaultRoute,
    /// The one interface that prevResult has on the side.
    PrevResult,
}

impl Wanted {
    /// Reads the keys; an empty `master` is none. One that is not is stronger than `masterFrom`.
    /// Errors: code 7: no link can have that name.
    pub fn parse(master: &str, from: Option<MasterFrom>, link_in_container: bool) -> Result<Self, CniError> {
        let side = if link_in_container { Side::Container } else { Side::Host };
        let name = match master {
            "" => None,
            name => {
                let refused =
                    |error: AnyNameError| CniError::invalid_key("master", format_args!("{name:?}"), &error.to_string());
                Some(AnyName::parse(name).map_err(refused)?)
            }
        };
        Ok(Self { from: from.filter(|_| name.is_none()), name, side })
    }

    /// The link. CHECK looks for one that has a name only: a default route may have changed since ADD.
    /// Errors: the link does not exist; the error names those that do. Code 107 for CHECK. Code 7: prevResult does not say which.
    pub fn find(&self, call: &AddOrCheck<'_>) -> Result<Option<Link>, CniError> {
        let net = if self.side == Side::Host { &call.sides.host } else { &call.sides.container };
        let of_prev_result = match self.from {
            Some(MasterFrom::PrevResult) => self.in_prev_result(call)?,
            Some(MasterFrom::DefaultRoute) | None => None,
        };
        let wanted = Self { name: self.name.clone().or(of_prev_result), ..self.clone() };
        match (&wanted.name, call.verb) {
            (None, Verb::Check) => Ok(None),
            (_, Verb::Add) => wanted.of(net).map(Some),
            (Some(name), Verb::Check) => {
                let found = link::find(net, name.as_str()).map_err(failed)?;
                found.map(Some).ok_or_else(|| check::differs(format!("master {name} {}", at(net)), "it is not found"))
            }
        }
    }

    /// The one interface of prevResult on this side, but the attachment's own, which the result of ADD has. `None`: a later plugin
    /// has added another one, so CHECK cannot know.
    fn in_prev_result(&self, call: &AddOrCheck<'_>) -> Result<Option<AnyName>, CniError> {
        let interfaces = call.conf.prev_result()?.unwrap_or_default().interfaces;
        let own = call.attachment.ifname.as_str();
        let is_meant = |entry: &&Interface| match self.side {
            Side::Host => entry.sandbox.is_empty(),
            Side::Container => !entry.sandbox.is_empty() && entry.name != own,
        };
        let names: Vec<&str> = interfaces.iter().filter(is_meant).map(|entry| entry.name.as_str()).collect();
        if let [name] = names.as_slice()
            && let Ok(name) = AnyName::parse(name)
        {
            return Ok(Some(name));
        }
        if call.verb == Verb::Check {
            return Ok(None);
        }
        let place = match self.side {
            Side::Host => "on the host".to_owned(),
            Side::Container => format!("in the container beside {own}"),
        };
        let why = format!("prevResult has {} interfaces {place}, not one: {}", names.len(), names.join(", "));
        Err(CniError::invalid_key("masterFrom", r#""prevResult""#, &why))
    }

    /// Whether the node could make such a link of `kind`, for STATUS, with the master that it would be on. What is in a
    /// container is not known then.
    /// Errors: the kernel has no such links; the master is missing or down.
    pub fn status(&self, kind: &Kind) -> Result<Option<Sight>, CniError> {
        probe(kind)?;
        if self.side == Side::Container || self.from == Some(MasterFrom::PrevResult) {
            return Ok(None);
        }
        let host = || Kernel::host().map_err(failed);
        let seen = self.name.as_ref().map(|name| link::see(name.as_str()).map_err(failed)).transpose()?;
        let master = match (&self.name, seen.flatten()) {
            (_, Some(seen)) => seen,
            // The error lists the links of the host.
            (_, None) => Sight::from(&self.of(&host()?)?),
        };
        if !master.has_frames {
            // The error names the links that can be used.
            self.of(&host()?)?;
        }
        if !master.up {
            return Err(down(&master.name, "on the host"));
        }
        Ok(Some(master))
    }

    /// The link, which carries Ethernet frames.
    fn of(&self, net: &Kernel) -> Result<Link, CniError> {
        let master = match &self.name {
            Some(name) => named(net, name)?,
            None => by_default_route(net)?,
        };
        if master.mac.is_some() && !master.loopback {
            return Ok(master);
        }
        let by = if self.name.is_none() { ", by which the default route leaves" } else { "" };
        let text = format!("cannot use master {}{by}, {}: it carries no Ethernet frames", master.name, at(net));
        Err(CniError::new(Code::KERNEL, text)
            .detail("Tunnels and the loopback link cannot have such links: set key master to another interface.")
            .detail(listing(net)))
    }
}

/// Refuses a master on the node that a macvlan in mode passthru has for itself, or that has another where this one would be in
/// that mode; as far as the other is on the node or in a namespace with a name.
/// Errors: code 103, with where the other is.
pub fn refuse_occupied(master: &Link, wanted: macvlan::Macvlan) -> Result<(), CniError> {
    let is_alone = wanted.mode == macvlan::Mode::Passthru;
    // A macvlan in mode passthru keeps its master promiscuous: without one no namespace is opened.
    if !is_alone && master.promiscuity == 0 {
        return Ok(());
    }
    let is_in_the_way = |link: &Link| match link.kind {
        Kind::Macvlan(other) => is_alone || other.mode == macvlan::Mode::Passthru,
        _ => false,
    };
    let host = Kernel::host().map_err(failed)?;
    let mut holders = list_on(&host, master, true, is_in_the_way);
    for netns in namespaces() {
        let Ok(net) = Kernel::in_netns(&netns) else { continue };
        // A container may have a macvlan on a link of another namespace, which has the number of the master.
        let is_on_host =
            |link: &Link| is_in_the_way(link) && matches!(veth_peer::is_other_end_on_host(link, &net), Ok(true));
        holders.extend(list_on(&net, master, false, is_on_host));
    }
    match holders.is_empty() {
        true => Ok(()),
        false => Err(occupied(wanted, &master.name, &holders)),
    }
}

fn occupied(wanted: macvlan::Macvlan, master: &str, holders: &[String]) -> CniError {
    let is_alone = wanted.mode == macvlan::Mode::Passthru;
    let mode = macvlan_mode(wanted.mode);
    let who = if is_alone { "a macvlan in this mode" } else { "a macvlan in mode passthru" };
    let text = format!(
        "cannot create a macvlan in mode {mode} on {master}: {who} is the only one on its master, which has one already{}",
        known(holders)
    );
    CniError::new(Code::EXISTS, text)
}

/// Refuses a master that is down.
/// Errors: code 100.
pub fn require_up(master: &Link, net: &Kernel) -> Result<(), CniError> {
    if master.up { Ok(()) } else { Err(down(&master.name, &at(net))) }
}

fn down(master: &str, at: &str) -> CniError {
    let text = format!("cannot use master {master} {at}: it is down");
    CniError::new(Code::KERNEL, text).detail(format!("Set it up: ip link set {master} up."))
}

/// Refuses an MTU above the master's, which the kernel would cut (macvlan) or refuse (vlan).
/// Errors: code 7 with both values.
pub fn refuse_mtu_above(master: &str, its_bytes: u32, mtu_bytes: Option<u32>) -> Result<(), CniError> {
    match mtu_bytes {
        Some(mtu) if mtu > its_bytes => {
            Err(CniError::invalid_key("mtu", mtu, &format!("master {master} has MTU {its_bytes}"))
                .detail(format!("Use at most {its_bytes}, or give the master a larger MTU.")))
        }
        Some(_) | None => Ok(()),
    }
}

fn named(net: &Kernel, name: &AnyName) -> Result<Link, CniError> {
    match link::find(net, name.as_str()).map_err(failed)? {
        Some(link) => Ok(link),
        None => Err(CniError::new(
            Code::KERNEL,
            format!("cannot use master {name} {}: there is no interface of that name", at(net)),
        )
        .detail(listing(net))),
    }
}

/// The link of the default route in the main table: of IPv4 if there is one, else of IPv6; the one with the lowest metric.
fn by_default_route(net: &Kernel) -> Result<Link, CniError> {
    for family in Family::BOTH {
        let mut routes = route::list(net, None, Some(route::MAIN_TABLE), family).map_err(failed)?;
        routes.retain(|route| route.dst.prefix() == 0 && route.link.is_some());
        // The first of equals, as the kernel takes it.
        let best = routes.into_iter().min_by_key(|route| route.metric.unwrap_or_default());
        if let Some(index) = best.and_then(|route| route.link)
            && let Some(link) = link::find_index(net, index).map_err(failed)?
        {
            return Ok(link);
        }
    }
    let text = format!("cannot find a master {}: key master is not set, and there is no default route", at(net));
    Err(CniError::new(Code::KERNEL, text).detail("Set key master.").detail(listing(net)))
}

fn at(net: &Kernel) -> String {
    match net.place() {
        "the host" => "on the host".to_owned(),
        place => format!("in {place}"),
    }
}

/// The interfaces that are there, for an error.
fn listing(net: &Kernel) -> String {
    const SHOWN_MAX: usize = 30;
    let Ok(links) = link::list(net, None) else { return String::new() };
    // Ends of containers' veths are hardly meant, and many.
    let is_meant = |link: &&Link| link.kind != Kind::Veth || link.peer_netns_id.is_none();
    let (meant, others): (Vec<_>, Vec<_>) = links.iter().partition(is_meant);
    let mut names: Vec<&str> = meant.into_iter().chain(others).map(|link| link.name.as_str()).collect();
    let more = if names.len() > SHOWN_MAX { ", ..." } else { "" };
    names.truncate(SHOWN_MAX);
    format!("Interfaces there: {}{more}.", names.join(", "))
}

/// Makes a link of `kind` on one end of a veth, in a namespace that ends at once: whether the kernel has such links.
/// Errors: the kernel has no such links, or the plugin may not make one.
pub fn probe(kind: &Kind) -> Result<(), CniError> {
    let name = LinkName::parse("trial0").map_err(|error| invalid(error.to_string()))?;
    status::try_out(&format!("{}{}", kind.name(), settings(kind).replace(' ', "-")), |net| {
        let lower = link::create_veth(net, &link::Veth::new("lower0", "lower1"))?;
        let new = NewLink { lower: Some(lower.index), ..NewLink::new(&name, kind.clone()) };
        link::create(net, &new, None).map(drop)
    })
}

/// The settings of a link of this kind, as `ip` writes them; empty for kinds without settings that plugins make.
pub(crate) fn settings(kind: &Kind) -> String {
    match kind {
        Kind::Macvlan(macvlan) => {
            let queue = macvlan.bc_queue_len.map(|length| format!(" bcqueuelen {length}")).unwrap_or_default();
            format!(" mode {}{queue}", macvlan_mode(macvlan.mode))
        }
        Kind::Ipvlan(ipvlan) => {
            let mode = match ipvlan.mode {
                ipvlan::Mode::L2 => "l2".to_owned(),
                ipvlan::Mode::L3 => "l3".to_owned(),
                ipvlan::Mode::L3s => "l3s".to_owned(),
                ipvlan::Mode::Other(number) => number.to_string(),
            };
            let flags = match ipvlan.flags {
                ipvlan::Flags::Bridge => "bridge",
                ipvlan::Flags::Private => "private",
                ipvlan::Flags::Vepa => "vepa",
            };
            format!(" mode {mode} {flags}")
        }
        Kind::Vlan(vlan) => format!(" id {}", vlan.id),
        _ => String::new(),
    }
}

fn macvlan_mode(mode: macvlan::Mode) -> String {
    match mode {
        macvlan::Mode::Bridge => "bridge".to_owned(),
        macvlan::Mode::Private => "private".to_owned(),
        macvlan::Mode::Vepa => "vepa".to_owned(),
        macvlan::Mode::Passthru => "passthru".to_owned(),
        macvlan::Mode::Other(number) => number.to_string(),
    }
}

/// How a link that was made as `create` differs from that. `result_mtu` is the result's, which a later plugin may have
/// changed.
pub(crate) fn difference(
    create: &Create,
    found: &Link,
    sides: &Sides,
    result_mtu: u32,
) -> Result<Option<String>, CniError> {
    let mut kind = found.kind.clone();
    // Only what was asked for is compared.
    if let (Kind::Macvlan(wanted), Kind::Macvlan(found)) = (&create.kind, &mut kind)
        && wanted.bc_queue_len.is_none()
    {
        found.bc_queue_len = None;
    }
    let (wanted, has) = (settings(&create.kind), settings(&kind));
    if wanted != has {
        return Ok(Some(format!("it has{has}, not{wanted}")));
    }
    // A vlan's is compared in every version, as in the reference.
    let result_mtu = match create {
        Create { kind: Kind::Vlan(_), mtu_bytes: Some(mtu), .. } if result_mtu == 0 => *mtu,
        _ => result_mtu,
    };
    if let Some(mtu) = create.mtu_bytes.filter(|mtu| !check::has_mtu(found, *mtu, result_mtu)) {
        return Ok(Some(format!("its MTU is {}, not {mtu}", found.mtu_bytes)));
    }
    let Some((side, lower)) = &create.lower else { return Ok(None) };
    let is_on = match side {
        Side::Host => {
            found.peer == Some(lower.index)
                && veth_peer::is_other_end_on_host(found, &sides.container).map_err(failed)?
        }
        Side::Container => found.peer == Some(lower.index) && found.peer_netns_id.is_none(),
    };
    Ok((!is_on).then(|| format!("it is not on {}", lower.name)))
}

/// The kernel's refusal to make a link, with the link that is in the way where that can be known.
pub(crate) fn explain(error: OpError, create: &Create, sides: &Sides) -> CniError {
    let (errno, refused) = (error.os_errno(), failed(error));
    let Some((side, lower)) = &create.lower else { return refused };
    let name = &lower.name;
    match (&create.kind, errno) {
        (Kind::Vlan(wanted), Some(Errno::EEXIST)) => {
            let is_same = |link: &Link| matches!(&link.kind, Kind::Vlan(found) if found == wanted);
            let holders = list_holders(sides, *side, lower, is_same);
            let text =
                format!("cannot create VLAN {} of {name}: it has an interface already{}", wanted.id, known(&holders));
            let detail = "A VLAN of a master can have one interface. Delete the other one, or use another vlanId.";
            CniError::new(Code::EXISTS, text).detail(detail)
        }
        (Kind::Macvlan(wanted), Some(Errno::EINVAL | Errno::EBUSY)) => {
            let holders = list_holders(sides, *side, lower, |link| matches!(link.kind, Kind::Macvlan(_)));
            match holders.is_empty() || errno == Some(Errno::EBUSY) {
                true => busy(refused, errno, name),
                false => occupied(*wanted, name, &holders).detail(refused.details),
            }
        }
        (Kind::Ipvlan(_), Some(Errno::EBUSY)) => busy(refused, errno, name),
        _ => refused,
    }
}

/// The kernel's refusal of a request to the container's link, with the link that has its Ethernet address where that is why: two
/// macvlans of a master cannot be up with one address.
pub(crate) fn explain_taken_mac(error: OpError, link: Option<&Link>, sides: &Sides) -> CniError {
    let is_taken = error.os_errno() == Some(Errno::EADDRINUSE);
    let refused = failed(error);
    let Some((link, mac)) = link.filter(|_| is_taken).and_then(|link| Some((link, link.mac?))) else { return refused };
    let side = if link.peer_netns_id.is_none() { Side::Container } else { Side::Host };
    let lower = Link { index: link.peer.unwrap_or_default(), ..Link::default() };
    let holders = list_holders(sides, side, &lower, |other| other.mac == Some(mac) && other.alias != link.alias);
    let refused = CniError { code: Code::EXISTS, ..refused };
    refused.detail(format!(
        "Another link on the same master has Ethernet address {mac}{}. Remove that one, or ask for another address.",
        known(&holders)
    ))
}

fn busy(refused: CniError, errno: Option<Errno>, name: &str) -> CniError {
    match errno {
        Some(Errno::EBUSY) => refused.detail(format!(
            "{name} is a bridge's or a bond's port, or has links of the other kind: macvlan and ipvlan exclude each other."
        )),
        _ => refused,
    }
}

fn known(holders: &[String]) -> String {
    match holders {
        [] => String::new(),
        holders => format!(": {}", holders.join(", ")),
    }
}

/// Links on the same master that are on the host, in the container, or in a namespace with a name.
///
/// What a container says of its own links is only shown, never acted on.
fn list_holders(sides: &Sides, side: Side, lower: &Link, is_meant: impl Fn(&Link) -> bool) -> Vec<String> {
    if side == Side::Container {
        return list_on(&sides.container, lower, true, is_meant);
    }
    let mut holders = list_on(&sides.host, lower, true, &is_meant);
    holders.extend(list_on(&sides.container, lower, false, &is_meant));
    let own = sides.netns.identity();
    for netns in namespaces().filter(|netns| netns.identity() != own) {
        if let Ok(net) = Kernel::in_netns(&netns) {
            holders.extend(list_on(&net, lower, false, &is_meant));
        }
    }
    holders
}

/// The namespaces with a name, but the node's own.
fn namespaces() -> impl Iterator<Item = Netns> {
    const NAMESPACES: &str = "/run/netns";
    let entries = fs::read_dir(NAMESPACES).into_iter().flatten().flatten();
    let opened = entries.filter_map(|entry| Netns::open(entry.path()).ok());
    opened.filter(|netns| matches!(netns.is_current(), Ok(false)))
}

/// Links on `lower` in one namespace, with their marks; `is_home`: it is the one that `lower` is in.
fn list_on(net: &Kernel, lower: &Link, is_home: bool, is_meant: impl Fn(&Link) -> bool) -> Vec<String> {
    let is_on = |link: &Link| link.peer == Some(lower.index) && link.peer_netns_id.is_none() == is_home;
    let Ok(links) = link::list(net, None) else { return Vec::new() };
    let named = links.iter().filter(|link| is_on(link) && is_meant(link)).map(|link| {
        let mark = link.alias.as_ref().map(|alias| format!(" ({alias})")).unwrap_or_default();
        format!("{} {}{mark}", link.name, at(net))
    });
    named.collect()
}

/// Returns one of a key's values; the first is the default.
/// Errors: code 7 naming them.
pub fn keyword<T: Copy>(key: &str, text: &str, values: &[(&str, T)]) -> Result<T, CniError> {
    let found = match text {
        "" => values.first(),
        text => values.iter().find(|(value, _)| *value == text),
    };
    found.map(|(_, value)| *value).ok_or_else(|| {
        let all: Vec<&str> = values.iter().map(|(value, _)| *value).collect();
        CniError::invalid_key(key, format_args!("{text:?}"), &format!("it is none of {}", all.join(", ")))
    })
}
