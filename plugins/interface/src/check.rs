//! CHECK's way through a plan: the node compared with each step, and with the result that ADD gave.

use std::net::IpAddr;

use cni_filter::Filter;
use cni_spec::{AddResult, Attachment, CniError, Code, Interface, Ip};
use ipnetwork::IpNetwork;
use netops::addr::{self, Address};
use netops::bridge_port::{self, Vlans};
use netops::link::{self, Link, Mac, Port};
use netops::route::{self, MAIN_TABLE, Route};
use netops::sysctl::{self, Key};
use netops::{Family, OpError, veth_peer};
use skel::NetnsPath;

use crate::attach::DynObserved;
use crate::plan::{Compared, Create, Names, OwnIndex, Side, Step};
use crate::sides::Sides;
use crate::{failed, stacked};

/// A difference between the node and what ADD left.
pub fn differs(object: impl std::fmt::Display, how: impl std::fmt::Display) -> CniError {
    CniError::new(Code::CHECK_FAILED, format!("{object} is not as ADD left it: {how}"))
}

/// All differences as one error; each once, as several steps may find that one link is missing.
/// Errors: code and message of the first, the others in its details.
pub fn all(compared: impl IntoIterator<Item = Result<(), CniError>>) -> Result<(), CniError> {
    let mut differences: Vec<CniError> = Vec::new();
    for difference in compared.into_iter().filter_map(Result::err) {
        if !differences.iter().any(|known| known.msg == difference.msg) {
            differences.push(difference);
        }
    }
    CniError::join(differences).map_or(Ok(()), Err)
}

/// The result's entry for the container's interface, whose sandbox must be the namespace that CHECK is for.
/// Errors: code 107: there is no such entry, or it is of another namespace.
pub fn container_interface<'a>(
    result: &'a AddResult,
    ifname: &str,
    netns: &NetnsPath,
) -> Result<&'a Interface, CniError> {
    // An earlier result that ADD passed on may have one of this name in another namespace; the own ones come behind.
    let named = || result.interfaces.iter().rev().filter(|entry| entry.name == ifname && !entry.sandbox.is_empty());
    if let Some(entry) = named().find(|entry| entry.sandbox == netns.as_str()) {
        return Ok(entry);
    }
    Err(match named().next() {
        None => CniError::new(Code::CHECK_FAILED, format!("prevResult has no interface {ifname} with a sandbox")),
        Some(entry) => {
            differs(format!("sandbox of {ifname}"), format!("prevResult says {}, CNI_NETNS {netns}", entry.sandbox))
        }
    })
}

/// Whether a link's MTU is the one that ADD gave it, or the result's: plugins behind this one may have changed it. A result
/// before version 1.1.0 has none (0), so there any MTU may be theirs.
pub fn has_mtu(link: &Link, mtu_bytes: u32, result_mtu_bytes: u32) -> bool {
    result_mtu_bytes == 0 || [mtu_bytes, result_mtu_bytes].contains(&link.mtu_bytes)
}

/// Compares a link's Ethernet address with the result's, if that has one.
/// Errors: code 107.
pub fn mac(link: &Link, entry: &Interface) -> Result<(), CniError> {
    if entry.mac.is_empty() {
        return Ok(());
    }
    match (entry.mac.parse::<Mac>(), link.mac) {
        (Ok(wanted), Some(found)) if wanted == found => Ok(()),
        (_, Some(found)) => {
            Err(differs(format!("link {}", link.name), format!("its address is {found}, not {}", entry.mac)))
        }
        (_, None) => Err(differs(format!("link {}", link.name), "it has no Ethernet address")),
    }
}

/// A CHECK under way: the node, looked at as steps need it.
pub struct Look<'a> {
    pub attachment: &'a Attachment,
    pub sides: &'a Sides,
    pub names: &'a Names,
    /// The result of ADD and of the plugins after it.
    pub prev: &'a AddResult,
    /// The result's entry for the container's interface.
    pub entry: &'a Interface,
    /// What the host's end is a port of: a plugin's own step sets it.
    pub master: Option<Link>,
    /// The result names the links on the host: those before version 0.3.0 do not.
    pub(crate) names_host_links: bool,
    /// The comparison is a repair's, which also finds what CHECK leaves to the administrator.
    pub is_repair: bool,
    search_path: &'a str,
    host_link: Option<Link>,
    container: Option<Link>,
    addresses: Option<Vec<Address>>,
    /// The routes of the container's link and then of all its links, each by family, IPv4 first.
    routes: [[Option<Vec<Route>>; 2]; 2],
    prefixes: Vec<IpNetwork>,
    filter: Option<Filter>,
}

impl<'a> Look<'a> {
    pub(crate) fn new(
        attachment: &'a Attachment,
        sides: &'a Sides,
        names: &'a Names,
        prev: &'a AddResult,
        entry: &'a Interface,
        search_path: &'a str,
    ) -> Self {
        let (master, host_link, container, addresses, filter) = (None, None, None, None, None);
        Self {
            attachment,
            sides,
            names,
            prev,
            entry,
            master,
            names_host_links: true,
            is_repair: false,
            search_path,
            host_link,
            container,
            addresses,
            routes: Default::default(),
            prefixes: Vec::new(),
            filter,
        }
    }

    /// The result's entry for a link of the node.
    pub fn entry_of(&self, link: &Link) -> Option<&'a Interface> {
        self.prev.interfaces.iter().find(|entry| entry.name == link.name && entry.sandbox.is_empty())
    }

    /// The container's link.
    /// Errors: code 107: it is not there.
    pub fn container(&mut self) -> Result<&Link, CniError> {
        match &mut self.container {
            Some(link) => Ok(link),
            none @ None => {
                let object = format!("interface {} in {}", self.entry.name, self.sides.container.place());
                let link = link::find(&self.sides.container, &self.entry.name).map_err(failed)?;
                Ok(none.insert(link.ok_or_else(|| differs(&object, "it is not found"))?))
            }
        }
    }

    /// Compares the container's link with a kind and with the result's Ethernet address.
    /// Errors: code 107.
    pub fn compare_kind(&mut self, kind: &str) -> Result<(), CniError> {
        let object = format!("interface {} in {}", self.entry.name, self.sides.container.place());
        let entry = self.entry;
        let link = self.container()?;
        if link.kind.name() != kind {
            return Err(differs(&object, format!("it is a {}, not a {kind}", link.kind)));
        }
        mac(link, entry)
    }

    /// Compares the container's link with what was made: kind, settings, MTU, and the link that it is on.
    fn compare_created(&mut self, create: &Create) -> Result<(), CniError> {
        self.compare_kind(create.kind.name())?;
        let (sides, entry) = (self.sides, self.entry);
        let link = self.container()?;
        match stacked::difference(create, link, sides, entry.mtu)? {
            None => Ok(()),
            Some(how) => Err(differs(format!("interface {} in {}", entry.name, sides.container.place()), how)),
        }
    }

    /// The host's end of the container's veth: the pair's, whatever its name, and in prevResult.
    /// Errors: code 107: there is none.
    pub fn host_link(&mut self) -> Result<&Link, CniError> {
        if self.host_link.is_none() {
            let Sides { host, netns, container: there } = self.sides;
            let container = self.container()?;
            let object = format!("host end of {}", container.name);
            let peer = veth_peer::find_host_end(host, there, netns, container).map_err(failed)?;
            let peer = peer.ok_or_else(|| differs(&object, "it is not found"))?;
            if self.names_host_links && self.entry_of(&peer).is_none() {
                return Err(differs(&object, format!("it is {}, which prevResult does not have", peer.name)));
            }
            self.host_link = Some(peer);
        }
        self.host_link.as_ref().ok_or_else(|| differs("host end", "it is not found"))
    }

    fn link(&mut self, side: Side) -> Result<&Link, CniError> {
        match side {
            Side::Host => self.host_link(),
            Side::Container => self.container(),
        }
    }

    fn filter(&mut self) -> Result<&mut Filter, CniError> {
        match &mut self.filter {
            Some(filter) => Ok(filter),
            none @ None => Ok(none.insert(Filter::open(self.search_path).map_err(failed)?)),
        }
    }

    /// Forgets what was read of the node, where something was changed since.
    pub(crate) fn forget_node(&mut self) {
        self.host_link = None;
        self.filter = None;
    }

    /// Whether the node forwards packets of a family. CHECK does not compare it, as it is the whole node's.
    pub(crate) fn forwards(&self, family: Family) -> Result<(), CniError> {
        match forwarding(family)? {
            (key, Some(value)) if value == "0" => Err(differs(key, "it is 0, so the node forwards nothing")),
            _ => Ok(()),
        }
    }

    /// `bridge`: the name of the one that the host's end is a port of.
    fn compare_veth(&mut self, bridge: Option<&str>) -> Result<(), CniError> {
        self.compare_kind("veth")?;
        let master = self.master.as_ref().map(|master| master.index);
        let peer = self.host_link()?;
        match bridge {
            Some(bridge) if master.is_none() || peer.master != master => {
                Err(differs(format!("link {}", peer.name), format!("it is no port of bridge {bridge}")))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn compare_up(&mut self, side: Side) -> Result<(), CniError> {
        let place = self.sides.container.place().to_owned();
        let link = self.link(side)?;
        let object = match side {
            Side::Host => format!("link {}", link.name),
            Side::Container => format!("interface {} in {place}", link.name),
        };
        if link.up { Ok(()) } else { Err(differs(object, "it is down")) }
    }

    fn compare_port(&mut self, wanted: Port) -> Result<(), CniError> {
        let link = self.host_link()?;
        let (object, found) = (format!("bridge port {}", link.name), link.port.unwrap_or_default());
        if wanted.hairpin != found.hairpin {
            return Err(differs(object, format!("hairpin mode is {}", on_or_off(found.hairpin))));
        }
        if wanted.isolated != found.isolated {
            return Err(differs(object, format!("isolation is {}", on_or_off(found.isolated))));
        }
        Ok(())
    }

    fn compare_vlans(&mut self, join: &[Vlans]) -> Result<(), CniError> {
        let (host, master) = (&self.sides.host, self.master.as_ref().map_or(0, |master| master.index));
        let link = self.host_link()?;
        let found = bridge_port::list_vlans(host, master, link.index).map_err(failed)?;
        let missing = join.iter().flat_map(|vlans| vlans.first..=vlans.last);
        match missing.into_iter().find(|id| !found.iter().any(|vlan| vlan.first == *id)) {
            None => Ok(()),
            Some(id) => Err(differs(format!("bridge port {}", link.name), format!("it is not in VLAN {id}"))),
        }
    }

    fn compare_routes(&mut self, side: Side, wanted: &[Route]) -> Result<(), CniError> {
        let (index, name) = self.link(side).map(|link| (link.index, link.name.clone()))?;
        let others = self.gateways_of_others();
        let on_host = |family| route::list(&self.sides.host, Some(index), None, family).map_err(failed);
        let mut of_host: [Option<Vec<Route>>; 2] = Default::default();
        let mut missing = Vec::new();
        for wanted in wanted {
            let is_it = |found: &Route| same(wanted, &others, found);
            let family = Family::from(wanted.dst);
            let is_there = match side {
                Side::Container => self.has_route(family, wanted.table, &is_it)?,
                Side::Host => {
                    let found = match &mut of_host[family as usize] {
                        Some(found) => found,
                        none @ None => none.insert(on_host(family)?),
                    };
                    found.iter().any(|found| found.table == Some(wanted.table.unwrap_or(MAIN_TABLE)) && is_it(found))
                }
            };
            if !is_there {
                missing.push(Err(differs(format!("link {name}"), format!("route {wanted} is not found"))));
            }
        }
        all(missing)
    }

    /// The gateways of other interfaces in the result: its routes do not say whose they are, and one without a gateway may have
    /// been an earlier plugin's.
    fn gateways_of_others(&self) -> Vec<IpAddr> {
        let is_own = |ip: &&Ip| ip.interface.and_then(|index| self.prev.interfaces.get(index)) == Some(self.entry);
        self.prev.ips.iter().filter(|ip| !is_own(ip)).filter_map(|ip| ip.gateway).collect()
    }

    /// Looks for a route to the prefix of each of the container's addresses, when all steps were compared.
    pub(crate) fn compare_prefixes(&mut self) -> Result<(), CniError> {
        let wanted = std::mem::take(&mut self.prefixes);
        if wanted.is_empty() {
            return Ok(());
        }
        let name = self.container()?.name.clone();
        let mut missing = Vec::new();
        for prefix in wanted.into_iter().filter(|prefix| is_subnet(*prefix)) {
            let is_direct = |route: &Route| route.dst.ip() == prefix.network() && route.dst.prefix() == prefix.prefix();
            if !self.has_route(prefix.into(), None, &is_direct)? {
                missing.push(Err(differs(format!("link {name}"), format!("route to {prefix} is not found"))));
            }
        }
        all(missing)
    }

    /// Whether the container has a route: of the interface in any table, if none was asked for, as sbr and vrf move routes to
    /// tables of their own; or of another link, to which another plugin behind this one may have moved it.
    fn has_route(
        &mut self,
        family: Family,
        table: Option<u32>,
        is_it: &dyn Fn(&Route) -> bool,
    ) -> Result<bool, CniError> {
        let link = self.container()?.index;
        let is_own = |route: &Route| table.is_none_or(|table| route.table == Some(table)) && is_it(route);
        if self.container_routes(Some(link), family)?.iter().any(is_own) {
            return Ok(true);
        }
        let is_there = |route: &Route| route.table == Some(table.unwrap_or(MAIN_TABLE)) && is_it(route);
        Ok(self.container_routes(None, family)?.iter().any(is_there))
    }

    /// The container's routes of one link, which the kernel selects, or of all links.
    fn container_routes(&mut self, link: Option<u32>, family: Family) -> Result<&[Route], CniError> {
        match &mut self.routes[usize::from(link.is_none())][family as usize] {
            Some(routes) => Ok(routes),
            none @ None => Ok(none.insert(route::list(&self.sides.container, link, None, family).map_err(failed)?)),
        }
    }

    /// Compares the addresses on a link with those that were given to it. Others may have been added since.
    fn compare_addresses(&mut self, side: Side, wanted: &[Address]) -> Result<(), CniError> {
        let Sides { host, container, .. } = self.sides;
        let link = self.link(side)?.clone();
        let found = match (side, &mut self.addresses) {
            (Side::Host, _) => addr::list(host, &link).map_err(failed)?,
            (Side::Container, Some(found)) => std::mem::take(found),
            (Side::Container, None) => addr::list(container, &link).map_err(failed)?,
        };
        let is_missing = |wanted: &&Address| !found.iter().any(|address| address.net == wanted.net);
        let how = |wanted: &Address| {
            Err(differs(format!("link {}", link.name), format!("address {} is not found", wanted.net)))
        };
        let missing: Vec<_> = wanted.iter().filter(is_missing).map(how).collect();
        if side == Side::Container {
            self.addresses = Some(found);
            self.prefixes.extend(wanted.iter().map(|address| address.net));
        }
        all(missing)
    }
}

impl Step<OwnIndex> {
    pub(crate) fn check(&self, look: &mut Look<'_>, plugin: &mut dyn DynObserved) -> Result<(), CniError> {
        match self {
            Self::Own(own) => plugin.check(*own, look),
            Self::Compared(step) => step.check(look),
            Self::Uncompared(_) => Ok(()),
        }
    }
}

impl Compared {
    fn check(&self, look: &mut Look<'_>) -> Result<(), CniError> {
        match self {
            Self::Veth(veth) => {
                let up = if veth.up { look.compare_up(Side::Host) } else { Ok(()) };
                all([look.compare_veth(veth.master.as_deref()), up])
            }
            Self::Create(create) => look.compare_created(create),
            Self::SpoofGuard(_) => match look.container()?.mac {
                None => Ok(()),
                Some(mac) => {
                    let (attachment, veth) = (look.attachment, look.host_link()?.name.clone());
                    look.filter()?.check_spoof_guard(attachment.into(), &veth, mac.0).map_err(different)
                }
            },
            Self::Masquerade(masquerade, addresses) => {
                let attachment = look.attachment;
                let checked =
                    look.filter()?.check_masquerade(masquerade.backend, attachment.into(), masquerade.of(addresses));
                checked.map_err(different)
            }
            Self::JoinVlans(join) => look.compare_vlans(join),
            Self::Port(port) => look.compare_port(*port),
            Self::Addresses(side, addresses) => look.compare_addresses(*side, addresses),
            Self::Up(side) => look.compare_up(*side),
            Self::Routes(side, wanted) | Self::OnlyRoutes(side, wanted) => look.compare_routes(*side, wanted),
        }
    }
}

/// The sysctl by which the node forwards packets of a family, and its value, if the kernel has it.
pub(crate) fn forwarding(family: Family) -> Result<(Key, Option<String>), CniError> {
    let key = sysctl::forwarding(family).map_err(failed)?;
    let value = sysctl::find(&key).map_err(failed)?;
    Ok((key, value))
}

fn different(error: OpError) -> CniError {
    CniError { code: Code::CHECK_FAILED, ..failed(error) }
}

fn on_or_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

/// A /32 or /128 is no subnet: the kernel makes no route for it (IPv4), or a local one.
fn is_subnet(net: IpNetwork) -> bool {
    net.prefix() < if net.is_ipv4() { 32 } else { 128 }
}

/// Whether `found` is the route that was `wanted`, in whichever table. A default route may have got another next hop since.
fn same(wanted: &Route, others: &[IpAddr], found: &Route) -> bool {
    let is_of_another = found.gateway.is_some_and(|gateway| others.contains(&gateway));
    let gateway =
        wanted.dst.prefix() == 0 || wanted.gateway.is_none() || wanted.gateway == found.gateway || is_of_another;
    wanted.dst == found.dst && gateway
}
