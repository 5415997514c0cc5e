//! The container's link: its part of a plan, made from an IPAM result without touching anything, and what applying that
//! needs.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use cni_spec::{AddResult, CniError, Code, Ip, Route as ResultRoute};
use ipnetwork::IpNetwork;
use netops::addr::{self, Address};
use netops::error::{Cause, OpError, Result};
use netops::link::{self, Kind, Link};
use netops::route::{MAIN_TABLE, Route};
use netops::sysctl::{self, Key, Need};
use netops::watch::Watch;
use netops::{Kernel, Netns};

use crate::plan::{Compared, Side, Step, Uncompared};

const SCOPE_LINK: u8 = 253; // RT_SCOPE_LINK, include/uapi/linux/rtnetlink.h

/// How long duplicate address detection may take before ADD gives up: twice the reference's limit, which a pod
/// needs whose kernel asks more often than once (`dad_transmits`).
pub const DAD_DEADLINE: Duration = Duration::from_secs(10);

/// How long hardware may take to have a carrier, which it looks for anew when it is set up in the container: as long as the
/// reference waits.
const CARRIER_DEADLINE: Duration = Duration::from_secs(5);

/// Whether the container looks for duplicates of its IPv6 addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dad {
    /// The kernel's setting for new links: ADD takes a second or two longer.
    Kernels,
    /// Addresses are usable as soon as the kernel has joined their groups.
    Off,
    /// The same where the container's `all.accept_dad` asks for it on every link, too: for links that have no carrier at first,
    /// on which an address would stay tentative.
    Never,
    /// Enhanced duplicate address detection (RFC 7527), which bridges and hairpins do not fool.
    Enhanced,
}

/// Whether the container believes a router that speaks up on its link (IPv6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouterAdvertisements {
    /// The kernel's setting for new links: they listen to routers, unless an administrator changed the default.
    Kernels,
    /// The container does.
    Accepted,
    /// The container does not: any neighbour could say that it is the router (CVE-2020-10749).
    Refused,
}

/// The options of the container's link beside the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Duplicate address detection, with addresses.
    pub dad: Dad,
    pub routers: RouterAdvertisements,
    /// New addresses are announced when the link gets up: IPv4 by ARP, IPv6 by a neighbour advertisement.
    pub announces: bool,
    /// ADD waits until the link can carry packets, as a veth can as soon as both ends are up.
    pub await_up: bool,
}

impl Default for Options {
    /// All as the kernel has it for new links.
    fn default() -> Self {
        let (dad, routers) = (Dad::Kernels, RouterAdvertisements::Kernels);
        Self { dad, routers, announces: false, await_up: false }
    }
}

/// A value of a link in the container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sysctl {
    /// `ipv4` or `ipv6`.
    pub family: &'static str,
    pub link: String,
    /// The file.
    pub name: &'static str,
    pub value: &'static str,
    /// The outcome of ADD without it.
    pub need: Need,
}

/// The steps for the container's link up to its routes, in order. IPv4 addresses come before the link gets up: the ARP
/// announcement on getting up is for the addresses that the link has then.
pub(crate) fn address_steps<O>(ifname: &str, options: Options, lease: &AddResult) -> Vec<Step<O>> {
    let addresses = lease.ips.iter().map(|ip| Address::from(ip.address));
    let (ipv4, ipv6): (Vec<Address>, Vec<Address>) = addresses.partition(|address| address.net.is_ipv4());
    let has_addresses = !lease.ips.is_empty();
    let mut sysctls: Vec<Sysctl> = accept_ra(ifname, options.routers, lease).into_iter().collect();
    if has_addresses {
        sysctls.extend(address_sysctls(ifname, options, need_of_ipv6(lease)));
    }
    let mut steps: Vec<Step<O>> = Vec::new();
    steps.extend((!sysctls.is_empty()).then(|| Uncompared::Sysctls(sysctls).into()));
    steps.extend((has_addresses && options.announces).then(|| Uncompared::ArpNotify.into()));
    steps.extend((!ipv4.is_empty()).then(|| Compared::Addresses(Side::Container, ipv4).into()));
    steps.push(Compared::Up(Side::Container).into());
    steps.extend((!ipv6.is_empty()).then(|| Compared::Addresses(Side::Container, ipv6).into()));
    steps
}

/// Routes over the link itself to gateways that no address of the lease has in its prefix, and then the lease's routes. The
/// kernel takes no route by a next hop that it cannot reach, but hosters give single addresses, with a gateway anywhere. Another
/// next hop outside of a subnet is a mistake, which the kernel refuses.
/// Errors: code 110: routes that no interface can have.
pub(crate) fn plan_routes_by_link(lease: &AddResult) -> std::result::Result<[Vec<Route>; 2], CniError> {
    let mut routes = plan_routes(lease)?;
    let mut outside: Vec<IpAddr> = Vec::new();
    for gateway in routes.iter().filter_map(|route| route.gateway) {
        if may_be_outside(gateway, lease) && !is_on_link(gateway, lease, &routes) && !outside.contains(&gateway) {
            outside.push(gateway);
        }
    }
    // The lease may have such a route, which has got the gateway for its own next hop.
    let is_made = |route: &Route| route.gateway.is_some_and(|gateway| route.dst == IpNetwork::from(gateway));
    routes.retain(|route| !(is_made(route) && outside.iter().any(|gateway| route.gateway == Some(*gateway))));
    let to = |gateway: IpAddr| {
        let scope = gateway.is_ipv4().then_some(SCOPE_LINK);
        Route { scope, ..Route::new(gateway.into(), None, None) }
    };
    Ok([outside.into_iter().map(to).collect(), routes])
}

/// Whether the lease has the next hop for an address's gateway, or has single addresses alone.
fn may_be_outside(gateway: IpAddr, lease: &AddResult) -> bool {
    let is_single = |net: IpNetwork| net.prefix() == if net.is_ipv4() { 32 } else { 128 };
    let of_family = |ip: &&Ip| ip.address.is_ipv4() == gateway.is_ipv4();
    lease.ips.iter().any(|ip| ip.gateway == Some(gateway))
        || lease.ips.iter().filter(of_family).all(|ip| is_single(ip.address))
}

/// Whether the kernel reaches a next hop over the link with the lease's addresses and routes.
fn is_on_link(gateway: IpAddr, lease: &AddResult, routes: &[Route]) -> bool {
    let is_link_local = matches!(gateway, IpAddr::V6(ip) if ip.is_unicast_link_local());
    let leads_there = |route: &Route| {
        let is_direct = route.gateway.is_none() && (gateway.is_ipv6() || route.scope == Some(SCOPE_LINK));
        is_direct && route.table.is_none_or(|table| table == MAIN_TABLE) && route.dst.contains(gateway)
    };
    is_link_local || lease.ips.iter().any(|ip| ip.address.contains(gateway)) || routes.iter().any(leads_there)
}

/// The lease's routes with their next hops.
/// Errors: code 110: routes that no interface can have.
pub(crate) fn plan_routes(lease: &AddResult) -> std::result::Result<Vec<Route>, CniError> {
    lease.routes.iter().map(|route| plan_route(&lease.ips, route)).collect()
}

/// The need of a sysctl of IPv6: a network without addresses of IPv6 works where `/proc/sys` is read-only.
pub(crate) fn need_of_ipv6(lease: &AddResult) -> Need {
    if lease.ips.iter().any(|ip| ip.address.is_ipv6()) { Need::WhereThere } else { Need::WhereWritable }
}

pub(crate) fn accept_ra(ifname: &str, routers: RouterAdvertisements, lease: &AddResult) -> Option<Sysctl> {
    let (value, need) = match routers {
        RouterAdvertisements::Kernels => return None,
        RouterAdvertisements::Accepted => ("1", Need::WhereThere),
        RouterAdvertisements::Refused => ("0", need_of_ipv6(lease)),
    };
    Some(Sysctl { family: "ipv6", link: ifname.to_owned(), name: "accept_ra", value, need })
}

fn address_sysctls(ifname: &str, options: Options, of_ipv6: Need) -> Vec<Sysctl> {
    let of = |name, value, need| Sysctl { family: "ipv6", link: ifname.to_owned(), name, value, need };
    let mut sysctls = Vec::new();
    match options.dad {
        Dad::Kernels => (),
        // If duplicate address detection stays on, ADD takes a second longer.
        Dad::Off | Dad::Never => sysctls.push(of("accept_dad", "0", Need::Wish)),
        Dad::Enhanced => {
            sysctls.push(of("enhanced_dad", "1", of_ipv6));
            sysctls.push(of("accept_dad", "1", of_ipv6));
        }
    }
    if of_ipv6 == Need::WhereThere {
        sysctls.push(Sysctl { link: "lo".into(), ..of("disable_ipv6", "0", Need::WhereThere) });
        sysctls.push(of("disable_ipv6", "0", Need::WhereThere));
        sysctls.push(of("keep_addr_on_down", "1", Need::Always));
        if options.announces {
            sysctls.push(of("ndisc_notify", "1", Need::Wish));
        }
    }
    sysctls
}

/// A route of the result with its next hop: its own, or the first gateway of its family.
fn plan_route(ips: &[Ip], wanted: &ResultRoute) -> std::result::Result<Route, CniError> {
    refuse_host_bits(wanted.dst)?;
    let of_family = |ip: &IpAddr| ip.is_ipv4() == wanted.dst.is_ipv4();
    let gateway = wanted.gw.or_else(|| ips.iter().filter_map(|ip| ip.gateway).find(of_family));
    if let Some(gateway) = gateway.filter(|gateway| !of_family(gateway)) {
        let msg = format!("cannot use route {} via {gateway}: they are of different families", wanted.dst);
        return Err(CniError::new(Code::UNUSABLE_RESULT, msg));
    }
    let number = |number: u32| (number != 0).then_some(number);
    Ok(Route {
        dst: network(wanted.dst),
        // An unspecified next hop (some DHCP servers' word for "on the link") is none.
        gateway: gateway.filter(|gateway| !gateway.is_unspecified()),
        link: None,
        // 0 is RT_TABLE_UNSPEC, by which the kernel takes the main table.
        table: wanted.table.and_then(number),
        scope: wanted.scope,
        metric: number(wanted.priority),
        mtu_bytes: number(wanted.mtu),
        advmss_bytes: number(wanted.advmss),
        source: None,
    })
}

/// Refuses the destination of a route that is an address in a prefix: the kernel refuses host bits in IPv4, and cuts them in IPv6.
/// Errors: code 110.
pub fn refuse_host_bits(dst: IpNetwork) -> std::result::Result<(), CniError> {
    let prefix = network(dst);
    if dst.is_ipv6() || dst == prefix {
        return Ok(());
    }
    let msg = format!("cannot use route to {dst}: its destination is an address, not a prefix");
    let one = dst.ip();
    Err(CniError::new(Code::UNUSABLE_RESULT, msg)
        .detail(format!("Write {prefix}, or {one}/32 for the one address, where the route comes from.")))
}

fn network(net: IpNetwork) -> IpNetwork {
    IpNetwork::new(net.network(), net.prefix()).unwrap_or(net)
}

/// Writes sysctls in the container. The link must be there and down: a router's advertisement could otherwise come first.
/// Errors: the first value that could not be written.
pub(crate) fn write_sysctls(netns: &Netns, sysctls: &[Sysctl]) -> Result<()> {
    let place = netns.path().display().to_string();
    let keys: Vec<(Key, &Sysctl)> = sysctls.iter().map(|sysctl| Ok((sysctl.key()?, sysctl))).collect::<Result<_>>()?;
    let write_all = || keys.iter().try_for_each(|(key, sysctl)| sysctl::set(key, sysctl.value, sysctl.need));
    netns.run(write_all)?.map_err(|error: OpError| error.at(place))
}

impl Sysctl {
    fn key(&self) -> Result<Key> {
        Key::of_link(self.family, &self.link, self.name)
    }
}

/// Waits until none of these IPv6 addresses is tentative. Only then has the kernel joined the groups by which
/// neighbours ask for them, also without duplicate address detection: it joins on its own, after it has answered the
/// request for the address. Most are done by the time that ADD has no other work left.
///
/// Addresses that are wanted with `nodad` are set again so where the container's `all.accept_dad` is stronger than the
/// link's: with the flag from the start nothing would show when the kernel has joined.
/// Errors: [`netops::error::Cause::State`] for a duplicate address; [`netops::error::Cause::Timeout`] if the link could carry
/// packets all the time.
pub(crate) async fn settle(net: &Kernel, netns: &Netns, link: &Link, wanted: &[Address]) -> Result<()> {
    let object = format!("for the addresses of {} to be found unique", link.name);
    let look = |net: &Kernel| {
        // The link-local one is the kernel's: two pods that were given one hardware address share it, too.
        let mut addresses = addr::list(net, link)?;
        addresses.retain(|address| wanted.iter().any(|wanted| wanted.net == address.net));
        if let Some(twice) = addresses.iter().find(|address| address.dad_failed) {
            let object = format!("address {} on {}", twice.net, link.name);
            return Err(OpError::state("use", object, "another host on the link has it").at(net.place()));
        }
        Ok((!addresses.iter().any(|address| address.tentative)).then_some(()))
    };
    if look(net)?.is_some() {
        return Ok(());
    }
    let never: Vec<Address> = wanted.iter().filter(|address| address.nodad).copied().collect();
    if !never.is_empty() && asks_for_dad(netns)? {
        net.run_all(never.iter().map(|address| addr::delete(link, address.net)).collect())?;
        let mut watch = Watch::in_netns(netns)?;
        net.run_all(never.iter().map(|address| addr::add(link, address)).collect())?;
        let ips: Vec<IpAddr> = never.iter().map(|address| address.net.ip()).collect();
        return watch.until_announced(link, &ips, DAD_DEADLINE).await;
    }
    // Duplicate address detection waits for a carrier, which other links than hardware have at once.
    let deadline = match link::get(net, &link.into())? {
        Link { carrier: true, .. } => DAD_DEADLINE,
        // The kernel joins groups and adds local routes without a carrier where it looks for no duplicates.
        _ if !never.is_empty() => CARRIER_DEADLINE,
        Link { kind: Kind::None, .. } => CARRIER_DEADLINE,
        Link { name, .. } => {
            tracing::warn!(link = name, "no carrier: its IPv6 addresses settle when that comes");
            return Ok(());
        }
    };
    // Nothing is lost by subscribing only now: the wait looks again first.
    let mut watch = Watch::in_netns(netns)?;
    match watch.until(net, link.index, object, deadline, look).await {
        // Without carrier no host can answer; the addresses settle when the carrier comes.
        Err(error) if matches!(error.cause, netops::error::Cause::Timeout(_)) => {
            match link::get(net, &link.into())?.oper_up {
                true => Err(error),
                false => Ok(()),
            }
        }
        settled => settled,
    }
}

/// Whether the container looks for duplicates on all links, whatever a link's own value is: the kernel takes the larger.
fn asks_for_dad(netns: &Netns) -> Result<bool> {
    let all = Key::of_link("ipv6", "all", "accept_dad")?;
    Ok(sysctl::in_netns(netns, || sysctl::find(&all))??.is_some_and(|value| !matches!(&*value, "0" | "-1")))
}

impl fmt::Display for Sysctl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "net/{}/conf/{}/{}={}", self.family, self.link, self.name, self.value)
    }
}

/// How long the kernel may take to join the groups of new addresses.
const DEADLINE: Duration = Duration::from_secs(1);

/// A subscription to the kernel's announcements of new IPv6 addresses on the host, from before they are added.
#[derive(Debug)]
pub struct AddressWatch(Watch);

impl AddressWatch {
    pub fn watch() -> Result<Self> {
        Watch::host().map(Self)
    }

    /// Waits until these addresses answer. ADD does not fail when that takes longer: the addresses are set, and will answer.
    /// Errors: the announcements cannot be read.
    pub async fn settle(mut self, link: &Link, addresses: &[IpAddr]) -> Result<()> {
        match self.0.until_announced(link, addresses, DEADLINE).await {
            Err(error) if matches!(error.cause, Cause::Timeout(_)) => {
                tracing::warn!(%error, "going on");
                Ok(())
            }
            settled => settled,
        }
    }
}
