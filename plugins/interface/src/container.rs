//! The plan for a container's interface, made from an IPAM result without touching anything, and applying it.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use cni_spec::{CniError, Code, Ip, Route as ResultRoute};
use ipnetwork::IpNetwork;
use netops::addr::{self, Address};
use netops::error::{OpError, Result};
use netops::link::{self, Link, Settings};
use netops::route::{self, Route};
use netops::sysctl::{self, Key};
use netops::watch::Watch;
use netops::{Kernel, Netns};

/// How long duplicate address detection may take before ADD gives up: the limit of the reference's 1.1.1, which a pod
/// needs whose kernel asks more often than once (`dad_transmits`).
pub const DAD_DEADLINE: Duration = Duration::from_secs(10);

/// Whether the container looks for duplicates of its IPv6 addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dad {
    /// Addresses are usable as soon as the kernel has joined their groups.
    Off,
    /// Enhanced duplicate address detection (RFC 7527), which bridges and hairpins do not fool.
    Enhanced,
}

/// Whether the container believes a router that speaks up on its link (IPv6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouterAdvertisements {
    /// As the kernel has it for new links: it does, unless somebody changed the default.
    Kernels,
    /// It does.
    Accepted,
    /// It does not: any neighbour could say that it is the router (CVE-2020-10749).
    Refused,
}

/// What the container's interface is to have. Links are not known yet: routes have link 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Its name.
    pub ifname: String,
    /// `net/FAMILY/conf/IFNAME/NAME`, values, and whether their absence is an error; in order.
    pub sysctls: Vec<Sysctl>,
    /// Its addresses.
    pub addresses: Vec<Address>,
    /// Its routes.
    pub routes: Vec<Route>,
}

/// One value of one link in the container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sysctl {
    /// `ipv4` or `ipv6`.
    pub family: &'static str,
    /// The link.
    pub link: String,
    /// The file.
    pub name: &'static str,
    /// What to write.
    pub value: &'static str,
    /// What becomes of ADD without it.
    pub need: Need,
}

/// What becomes of ADD when a sysctl cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// It fails.
    Always,
    /// It fails unless the kernel has no such file.
    WhereThere,
    /// It goes on, with a warning.
    Wish,
}

impl Plan {
    /// The plan for an interface without addresses: it only gets up.
    #[must_use]
    pub fn layer2(ifname: &str, routers: RouterAdvertisements) -> Self {
        let sysctls = accept_ra(ifname, routers).into_iter().collect();
        Self { ifname: ifname.to_owned(), sysctls, addresses: vec![], routes: vec![] }
    }

    /// The plan for an interface with addresses.
    ///
    /// # Errors
    /// Code 110: addresses or routes that no interface can have.
    pub fn layer3(
        ifname: &str,
        ips: &[Ip],
        routes: &[ResultRoute],
        dad: Dad,
        routers: RouterAdvertisements,
    ) -> std::result::Result<Self, CniError> {
        let ipv6 = ips.iter().any(|ip| ip.address.is_ipv6());
        Ok(Self {
            ifname: ifname.to_owned(),
            sysctls: accept_ra(ifname, routers).into_iter().chain(sysctls(ifname, dad, ipv6)).collect(),
            addresses: ips.iter().map(|ip| ip.address.into()).collect(),
            routes: routes.iter().map(|route| plan_route(ips, route)).collect::<std::result::Result<_, _>>()?,
        })
    }

    /// The one announcement of new addresses: neighbours that knew another owner learn it when the link gets up. By
    /// netlink: opening a namespace's `/proc/sys/net/ipv4` takes the longer the more namespaces have been there.
    fn announces(&self) -> bool {
        !self.addresses.is_empty()
    }

    fn has_ipv6(&self) -> bool {
        self.addresses.iter().any(|address| address.net.is_ipv6())
    }
}

fn accept_ra(ifname: &str, routers: RouterAdvertisements) -> Option<Sysctl> {
    let value = match routers {
        RouterAdvertisements::Kernels => return None,
        RouterAdvertisements::Accepted => "1",
        RouterAdvertisements::Refused => "0",
    };
    let need = Need::WhereThere;
    Some(Sysctl { family: "ipv6", link: ifname.to_owned(), name: "accept_ra", value, need })
}

fn sysctls(ifname: &str, dad: Dad, ipv6: bool) -> Vec<Sysctl> {
    let of = |name, value, need| Sysctl { family: "ipv6", link: ifname.to_owned(), name, value, need };
    let mut sysctls = Vec::new();
    match dad {
        // Where it stays on, ADD takes a second longer.
        Dad::Off => sysctls.push(of("accept_dad", "0", Need::Wish)),
        Dad::Enhanced => {
            sysctls.push(of("enhanced_dad", "1", Need::WhereThere));
            sysctls.push(of("accept_dad", "1", Need::WhereThere));
        }
    }
    if ipv6 {
        sysctls.push(Sysctl { link: "lo".into(), ..of("disable_ipv6", "0", Need::WhereThere) });
        sysctls.push(of("disable_ipv6", "0", Need::WhereThere));
        sysctls.push(of("keep_addr_on_down", "1", Need::Always));
    }
    sysctls
}

/// A route of the result with its next hop: its own, or the first gateway of its family.
fn plan_route(ips: &[Ip], wanted: &ResultRoute) -> std::result::Result<Route, CniError> {
    let prefix = network(wanted.dst);
    // The kernel refuses host bits in IPv4, and cuts them in IPv6.
    if wanted.dst.is_ipv4() && wanted.dst != prefix {
        let msg = format!("cannot use route to {}: its destination is an address, not a prefix", wanted.dst);
        let one = wanted.dst.ip();
        return Err(CniError::new(Code::UNUSABLE_RESULT, msg)
            .detail(format!("Write {prefix}, or {one}/32 for the one address, where the route comes from.")));
    }
    let of_family = |ip: &IpAddr| ip.is_ipv4() == wanted.dst.is_ipv4();
    let gateway = wanted.gw.or_else(|| ips.iter().filter_map(|ip| ip.gateway).find(of_family));
    if let Some(gateway) = gateway.filter(|gateway| !of_family(gateway)) {
        let msg = format!("cannot use route {} via {gateway}: they are of different families", wanted.dst);
        return Err(CniError::new(Code::UNUSABLE_RESULT, msg));
    }
    let number = |number: u32| (number != 0).then_some(number);
    Ok(Route {
        dst: prefix,
        // An unspecified next hop (some DHCP servers' word for "on the link") is none.
        gateway: gateway.filter(|gateway| !gateway.is_unspecified()),
        link: None,
        table: wanted.table,
        scope: wanted.scope,
        metric: number(wanted.priority),
        mtu_bytes: number(wanted.mtu),
        advmss_bytes: number(wanted.advmss),
        source: None,
    })
}

/// The prefix without host bits.
fn network(net: IpNetwork) -> IpNetwork {
    IpNetwork::new(net.network(), net.prefix()).unwrap_or(net)
}

/// Writes the plan's sysctls in the container. The link must be there and down: a router's advertisement could
/// otherwise come first.
///
/// # Errors
/// The first value that could not be written.
pub fn write_sysctls(netns: &Netns, plan: &Plan) -> Result<()> {
    let place = netns.path().display().to_string();
    let keys: Vec<(Key, &Sysctl)> =
        plan.sysctls.iter().map(|sysctl| Ok((sysctl.key()?, sysctl))).collect::<Result<_>>()?;
    let write_all = || keys.iter().try_for_each(|(key, sysctl)| sysctl.write(key));
    netns.run(write_all)?.map_err(|error: OpError| error.at(place))
}

impl Sysctl {
    fn key(&self) -> Result<Key> {
        Key::of_link(self.family, &self.link, self.name)
    }

    fn write(&self, key: &Key) -> Result<()> {
        let written = match self.name {
            "disable_ipv6" => sysctl::ensure(key, self.value),
            _ => sysctl::write(key, self.value),
        };
        match (written, self.need) {
            (Err(error), Need::WhereThere | Need::Wish) if error.is_absent() => Ok(()),
            (Err(error), Need::Wish) => {
                tracing::warn!(%error, "going on without");
                Ok(())
            }
            (written, _) => written,
        }
    }
}

/// Gives the container's link addresses, sets it up, adds the routes and returns it as it is then, in one call to the
/// kernel. Its IPv6 addresses answer from [`settle`] on.
///
/// # Errors
/// The first refusal. `EEXIST` for a route that comes twice, as with the reference.
pub fn configure(net: &Kernel, link: &Link, plan: &Plan) -> Result<Link> {
    let up = Settings { up: Some(true), ..Settings::default() };
    let (ipv4, ipv6): (Vec<&Address>, Vec<&Address>) = plan.addresses.iter().partition(|address| address.net.is_ipv4());
    // IPv4 addresses first: the ARP announcement on getting up is for those that are there by then.
    let mut requests = Vec::new();
    if plan.announces() {
        requests.push(link::set(&link.into(), &Settings { arp_notify: Some(true), ..Settings::default() }));
    }
    requests.extend(ipv4.into_iter().map(|address| addr::add(link, address)));
    requests.push(link::set(&link.into(), &up));
    requests.extend(ipv6.into_iter().map(|address| addr::add(link, address)));
    let routes = plan.routes.iter().map(|route| route::add(&Route { link: Some(link.index), ..route.clone() }));
    requests.extend(routes);
    link::run_and_get(net, requests, &link.into())
}

/// Waits until none of the plan's IPv6 addresses is tentative. Only then has the kernel joined the groups by which
/// neighbours ask for them, also where nobody looks for duplicates: it joins on its own, after it has answered the
/// request for the address. Most are done by the time that ADD has no other work left.
///
/// # Errors
/// [`netops::error::Cause::State`] for a duplicate address; [`netops::error::Cause::Timeout`] if the link could carry
/// packets all the time.
pub async fn settle(net: &Kernel, netns: &Netns, link: &Link, plan: &Plan) -> Result<()> {
    if !plan.has_ipv6() {
        return Ok(());
    }
    let object = format!("for the addresses of {} to be found unique", link.name);
    let look = |net: &Kernel| {
        // The link-local one is the kernel's: two pods that were given one hardware address share it, too.
        let mut addresses = addr::list(net, link)?;
        addresses.retain(|address| plan.addresses.iter().any(|wanted| wanted.net == address.net));
        if let Some(twice) = addresses.iter().find(|address| address.dad_failed) {
            let object = format!("address {} on {}", twice.net, link.name);
            return Err(OpError::state("use", object, "somebody else on the link has it").at(net.place()));
        }
        Ok((!addresses.iter().any(|address| address.tentative)).then_some(()))
    };
    if look(net)?.is_some() {
        return Ok(());
    }
    // Nothing is lost by subscribing only now: the wait looks again first.
    let mut watch = Watch::in_netns(netns)?;
    match watch.until(net, link.index, object, DAD_DEADLINE, look).await {
        // Without carrier nobody can answer; the addresses settle when the carrier comes.
        Err(error) if matches!(error.cause, netops::error::Cause::Timeout(_)) => {
            match link::get(net, &link.into())?.oper_up {
                true => Err(error),
                false => Ok(()),
            }
        }
        settled => settled,
    }
}

impl fmt::Display for Plan {
    /// In the words of `sysctl` and `ip`, a step a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for sysctl in &self.sysctls {
            writeln!(f, "sysctl net/{}/conf/{}/{}={}", sysctl.family, sysctl.link, sysctl.name, sysctl.value)?;
        }
        if self.announces() {
            writeln!(f, "sysctl net/ipv4/conf/{}/arp_notify=1", self.ifname)?;
        }
        for address in &self.addresses {
            writeln!(f, "ip address add {} dev {}", address.net, self.ifname)?;
        }
        writeln!(f, "ip link set {} up", self.ifname)?;
        for route in &self.routes {
            writeln!(f, "ip route add {route} dev {}", self.ifname)?;
        }
        if self.has_ipv6() {
            writeln!(f, "wait until no address of {} is tentative", self.ifname)?;
        }
        Ok(())
    }
}
