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

/// How long duplicate address detection may take before ADD gives up (the reference's limit).
pub const DAD_DEADLINE: Duration = Duration::from_secs(5);

/// Whether the container looks for duplicates of its IPv6 addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dad {
    /// Addresses are usable at once.
    Off,
    /// Enhanced duplicate address detection (RFC 7527), which bridges and hairpins do not fool.
    Enhanced,
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
    /// Whether a kernel without the file makes ADD fail.
    pub required: bool,
}

impl Plan {
    /// The plan for an interface without addresses: it only gets up.
    #[must_use]
    pub fn layer2(ifname: &str) -> Self {
        Self { ifname: ifname.to_owned(), sysctls: vec![no_advertisements(ifname)], addresses: vec![], routes: vec![] }
    }

    /// The plan for an interface with addresses.
    ///
    /// # Errors
    /// Code 110: addresses or routes that no interface can have.
    pub fn layer3(ifname: &str, ips: &[Ip], routes: &[ResultRoute], dad: Dad) -> std::result::Result<Self, CniError> {
        let ipv6 = ips.iter().any(|ip| ip.address.is_ipv6());
        let address = |ip: &Ip| Address { nodad: ip.address.is_ipv6() && dad == Dad::Off, ..Address::from(ip.address) };
        Ok(Self {
            ifname: ifname.to_owned(),
            sysctls: sysctls(ifname, dad, ipv6),
            addresses: ips.iter().map(address).collect(),
            routes: plan_routes(ips, routes)?,
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

/// CVE-2020-10749: a container must not take another's word for who its router is.
fn no_advertisements(ifname: &str) -> Sysctl {
    Sysctl { family: "ipv6", link: ifname.to_owned(), name: "accept_ra", value: "0", required: false }
}

fn sysctls(ifname: &str, dad: Dad, ipv6: bool) -> Vec<Sysctl> {
    let of = |family, name, value, required| Sysctl { family, link: ifname.to_owned(), name, value, required };
    let mut sysctls = vec![no_advertisements(ifname)];
    match dad {
        Dad::Off => sysctls.push(of("ipv6", "accept_dad", "0", false)),
        Dad::Enhanced => {
            sysctls.push(of("ipv6", "enhanced_dad", "1", false));
            sysctls.push(of("ipv6", "accept_dad", "1", false));
        }
    }
    if ipv6 {
        let lo = Sysctl { family: "ipv6", link: "lo".into(), name: "disable_ipv6", value: "0", required: false };
        sysctls.push(lo);
        sysctls.push(of("ipv6", "disable_ipv6", "0", false));
        sysctls.push(of("ipv6", "keep_addr_on_down", "1", true));
    }
    sysctls
}

/// Each route of the result with its next hop: its own, or the first gateway of its family. A route that comes
/// twice is set once.
fn plan_routes(ips: &[Ip], routes: &[ResultRoute]) -> std::result::Result<Vec<Route>, CniError> {
    let mut plan: Vec<Route> = Vec::with_capacity(routes.len());
    for wanted in routes {
        let route = plan_route(ips, wanted)?;
        if !plan.contains(&route) {
            plan.push(route);
        }
    }
    Ok(plan)
}

fn plan_route(ips: &[Ip], wanted: &ResultRoute) -> std::result::Result<Route, CniError> {
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
        link: 0,
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
        match written {
            Err(error) if error.is_absent() && !self.required => Ok(()),
            written => written,
        }
    }
}

/// Gives the container's link addresses, sets it up, adds the routes and returns it as it is then: one call to the
/// kernel, unless duplicate address detection has to be waited for.
///
/// # Errors
/// The first refusal; [`netops::error::Cause::State`] for a duplicate address.
pub async fn configure(net: &Kernel, netns: &Netns, link: &Link, plan: &Plan) -> Result<Link> {
    let waits = plan.addresses.iter().any(|address| address.net.is_ipv6() && !address.nodad);
    let mut watch = match waits {
        true => Some(Watch::in_netns(netns)?),
        false => None,
    };
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
    let routes = plan.routes.iter().map(|route| route::add(&Route { link: link.index, ..route.clone() }));
    match &mut watch {
        None => {
            requests.extend(routes);
            link::run_and_get(net, requests, &link.into())
        }
        Some(watch) => {
            net.run_all(requests)?;
            settle(net, link, watch).await?;
            link::run_and_get(net, routes.collect(), &link.into())
        }
    }
}

/// Waits until no address of the link is tentative.
async fn settle(net: &Kernel, link: &Link, watch: &mut Watch) -> Result<()> {
    let object = format!("for the addresses of {} to be found unique", link.name);
    let look = |net: &Kernel| {
        let addresses = addr::list(net, link)?;
        if let Some(twice) = addresses.iter().find(|address| address.dad_failed) {
            let object = format!("address {} on {}", twice.net, link.name);
            return Err(OpError::state("use", object, "somebody else on the link has it").at(net.place()));
        }
        Ok((!addresses.iter().any(|address| address.tentative)).then_some(()))
    };
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
            let nodad = if address.nodad { " nodad" } else { "" };
            writeln!(f, "ip address add {} dev {}{nodad}", address.net, self.ifname)?;
        }
        writeln!(f, "ip link set {} up", self.ifname)?;
        if self.has_ipv6() && self.addresses.iter().any(|address| address.net.is_ipv6() && !address.nodad) {
            writeln!(f, "wait for duplicate address detection")?;
        }
        for route in &self.routes {
            writeln!(f, "ip route add {route} dev {}", self.ifname)?;
        }
        Ok(())
    }
}
