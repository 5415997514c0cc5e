//! What an attachment is on the node, as a list of steps in the order in which they are made.
//!
//! ADD applies the list, CHECK compares the node with it, and its text is the list as commands of `ip`, `bridge` and
//! `sysctl`: all three go through the same steps, so they cannot disagree. A plan is made without touching anything.

use std::fmt;

use cni_filter::Backend;
use cni_spec::{AddResult, Attachment, CniError, Dns};
use ipnetwork::IpNetwork;
use netops::Family;
use netops::addr::Address;
use netops::bridge_port::Vlans;
use netops::link::{Kind, Link, Mac, Port};
use netops::route::Route;
use netops::sysctl::Need;

use crate::conf::Masquerade;
use crate::container::{self, Dad, Options, RouterAdvertisements, Sysctl};
use crate::plugin::OwnStep;
use crate::{alias, conf, host_veth, stacked};

/// The end of a link that a step is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Host,
    Container,
}

/// What an attachment is on the node.
#[derive(Debug, Clone)]
pub struct Plan<O> {
    pub names: Names,
    pub steps: Vec<Step<O>>,
    /// The part of the result that IPAM decides, completed by the plugin.
    pub lease: AddResult,
    /// `lease.dns` counts even if it is empty.
    pub replaces_dns: bool,
}

/// When a step is made in an ADD whose address plugin has to find the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// With the link. The step is the same whatever the addresses are.
    BeforeAddresses,
    /// With the link, and again for what the addresses add to it.
    Both,
    /// When the addresses are known.
    AfterAddresses,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    pub container: String,
    /// The host's end of a veth, unless another link has that name.
    pub host: String,
    /// The mark of the host's end, or of a link that is in the container alone.
    pub alias: String,
}

/// A plugin's own step, without the plugin's type.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnIndex {
    /// The step's place among the plan's own steps.
    pub(crate) place: usize,
    pub(crate) turn: Turn,
    pub(crate) name: &'static str,
    pub(crate) is_on_node: bool,
}

#[derive(Debug, Clone)]
pub enum Step<O> {
    /// A step that only this plugin has.
    Own(O),
    /// A step that CHECK compares with the node.
    Compared(Compared),
    /// A step that CHECK does not compare.
    Uncompared(Uncompared),
}

/// The state after a step, which CHECK looks for.
#[derive(Debug, Clone)]
pub enum Compared {
    /// A veth between host and container, the container's end down.
    Veth(Veth),
    /// Any other new link in the container, down.
    Create(Box<Create>),
    /// The container sends from its Ethernet address only. CHECK knows no address, and compares with the link's.
    SpoofGuard(Option<Mac>),
    /// Packets of these addresses leave the node under its own.
    Masquerade(Masquerade, Vec<IpNetwork>),
    /// The host's end joins VLANs, in order.
    JoinVlans(Vec<Vlans>),
    /// Flags of the host's end as a port.
    Port(Port),
    Addresses(Side, Vec<Address>),
    Up(Side),
    /// Routes; their link is filled in.
    Routes(Side, Vec<Route>),
    /// Routes that must be the only ones to their destinations; their link is filled in.
    OnlyRoutes(Side, Vec<Route>),
}

/// A wait, a removal, or a setting that plugins behind this one or the administrator may change.
#[derive(Debug, Clone)]
pub enum Uncompared {
    /// The host does not take the container for its router (CVE-2020-10749).
    RefuseAdvertisements(Need),
    /// The host's end leaves the VLAN that the bridge put it in.
    LeaveDefaultVlan,
    /// Sysctls of the container, in order.
    Sysctls(Vec<Sysctl>),
    /// The container announces its IPv4 addresses by ARP when its link gets up: neighbours that knew another owner learn it.
    /// By netlink: opening a namespace's `/proc/sys/net/ipv4` takes the longer the more namespaces have been there.
    ArpNotify,
    /// The container announces its addresses anew by a link that carries packets (RFC 5227, 2.3; RFC 4861, 7.2.6): when it got
    /// up, a bridge may not have passed on anything yet. Neighbours that knew another owner send to it from now on.
    Announce,
    /// The container's link stays down.
    StayDown,
    /// Routes that the kernel made with an address are deleted; their link is filled in. The kernel makes them again when the
    /// link was down.
    DeleteRoutes(Side, Vec<Route>),
    /// The link can carry packets.
    AwaitUp(Side),
    /// The container's addresses answer; those with `nodad` whether the container looks for duplicates or not.
    AwaitAddresses(Vec<Address>),
    /// The node forwards packets of a family. Last, as it is for the whole node and not taken back.
    Forward(Family),
}

impl<O> From<Compared> for Step<O> {
    fn from(step: Compared) -> Self {
        Self::Compared(step)
    }
}

impl<O> From<Uncompared> for Step<O> {
    fn from(step: Uncompared) -> Self {
        Self::Uncompared(step)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Veth {
    /// The name of the link whose port the host's end becomes; an earlier step has put that link into [`crate::Stage::master`].
    pub master: Option<String>,
    /// MTU of both ends, in bytes.
    pub mtu_bytes: Option<u32>,
    /// The container's Ethernet address, if one is asked for.
    pub mac: Option<Mac>,
    /// The host's end gets up at once: for plans without a step that has to come before.
    pub up: bool,
}

/// A link of one end to be made, under its final name in the container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Create {
    pub kind: Kind,
    /// The link it is stacked on, and where that is: links on top of one of the node's are made from there.
    pub lower: Option<(Side, Link)>,
    pub mtu_bytes: Option<u32>,
    /// The link's Ethernet address, if one is asked for.
    pub mac: Option<Mac>,
}

impl Names {
    pub fn of(attachment: &Attachment) -> Self {
        Self {
            container: attachment.ifname.as_str().to_owned(),
            host: host_veth::name(attachment),
            alias: alias::of(attachment),
        }
    }
}

impl Create {
    /// A link of this kind on its own, with the kernel's defaults.
    pub fn new(kind: Kind) -> Self {
        Self { kind, lower: None, mtu_bytes: None, mac: None }
    }
}

impl<O> Plan<O> {
    /// An empty plan for an attachment with this lease (`None`: a network without IPAM). `dns` replaces IPAM's.
    pub fn new(attachment: &Attachment, lease: Option<AddResult>, dns: Option<Dns>) -> Self {
        let mut lease = lease.unwrap_or_default();
        let replaces_dns = dns.is_some();
        if let Some(dns) = dns {
            lease.dns = dns;
        }
        Self { names: Names::of(attachment), steps: Vec::new(), lease, replaces_dns }
    }

    pub fn push(&mut self, step: impl Into<Step<O>>) {
        self.steps.push(step.into());
    }

    /// Refuses an MTU that is too small for the lease's addresses.
    /// Errors: code 7 with the MTU and the first address that it is too small for.
    pub fn refuse_mtu(&self, mtu_bytes: Option<u32>) -> Result<(), CniError> {
        conf::refuse_mtu_below_least(mtu_bytes, self.lease.ips.iter().map(|ip| ip.address.ip()))
    }

    /// Adds what most plugins do with the container's link once it is there: sysctls, addresses of the lease, up, routes,
    /// and the waits for carrier and addresses.
    /// Errors: code 110: addresses or routes that no interface can have.
    pub fn push_container(&mut self, options: Options) -> Result<(), CniError> {
        self.push_configuration(options)?;
        self.push_await(options.dad == Dad::Never);
        Ok(())
    }

    /// The same without the last wait, for plugins that have other work to do meanwhile.
    pub fn push_configuration(&mut self, options: Options) -> Result<(), CniError> {
        self.push_addresses(options);
        let routes = container::plan_routes_by_link(&self.lease)?;
        let routes = routes.into_iter().filter(|routes| !routes.is_empty());
        self.steps.extend(routes.map(|routes| Compared::Routes(Side::Container, routes).into()));
        if options.await_up {
            self.push(Uncompared::AwaitUp(Side::Container));
        }
        Ok(())
    }

    /// Only sysctls, addresses and up, for plugins with routes of their own before the lease's.
    pub fn push_addresses(&mut self, options: Options) {
        self.steps.extend(container::address_steps(&self.names.container, options, &self.lease));
    }

    /// Only the lease's routes, for plugins with routes of their own to the gateways.
    /// Errors: code 110: routes that no interface can have.
    pub fn push_routes(&mut self) -> Result<(), CniError> {
        let routes = container::plan_routes(&self.lease)?;
        if !routes.is_empty() {
            self.push(Compared::Routes(Side::Container, routes));
        }
        Ok(())
    }

    /// Adds the step by which the host's end of a veth takes no router advertisements.
    pub fn push_refuse_advertisements(&mut self) {
        self.push(Uncompared::RefuseAdvertisements(container::need_of_ipv6(&self.lease)));
    }

    /// Adds what is done with a container's link that stays down.
    pub fn push_left_down(&mut self, routers: RouterAdvertisements) {
        let sysctls: Vec<Sysctl> =
            container::accept_ra(&self.names.container, routers, &self.lease).into_iter().collect();
        if !sysctls.is_empty() {
            self.push(Uncompared::Sysctls(sysctls));
        }
        self.push(Uncompared::StayDown);
    }

    /// Adds the wait until the container's IPv6 addresses answer, if it has any.
    pub fn push_await_addresses(&mut self) {
        self.push_await(false);
    }

    fn push_await(&mut self, nodad: bool) {
        let ipv6 = self.lease.ips.iter().filter(|ip| ip.address.is_ipv6());
        let ipv6: Vec<Address> = ipv6.map(|ip| Address { nodad, ..ip.address.into() }).collect();
        if !ipv6.is_empty() {
            self.push(Uncompared::AwaitAddresses(ipv6));
        }
    }

    /// Whether the plan touches the packet filter.
    pub(crate) fn has_filter(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Compared(Compared::SpoofGuard(_) | Compared::Masquerade(..))))
    }
}

impl<O: OwnStep> Plan<O> {
    /// The plan with places in place of its own steps, and those.
    pub(crate) fn erase(self) -> (Plan<OwnIndex>, Vec<O>) {
        let Self { names, steps, lease, replaces_dns } = self;
        let mut own = Vec::new();
        let steps = steps.into_iter().map(|step| step.erase(&mut own)).collect();
        (Plan { names, steps, lease, replaces_dns }, own)
    }
}

impl<O: OwnStep> fmt::Display for Plan<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.steps.iter().try_for_each(|step| step.fmt(f, &self.names))
    }
}

impl Names {
    fn on(&self, side: Side) -> &str {
        match side {
            Side::Host => &self.host,
            Side::Container => &self.container,
        }
    }
}

impl Step<OwnIndex> {
    /// Whether the step is made before or after an address plugin that has to find the link.
    pub(crate) fn turn(&self) -> Turn {
        match self {
            Self::Own(own) => own.turn,
            Self::Uncompared(Uncompared::Sysctls(_)) => Turn::Both,
            Self::Compared(
                Compared::Veth(_)
                | Compared::Create(_)
                | Compared::SpoofGuard(_)
                | Compared::JoinVlans(_)
                | Compared::Port(_)
                | Compared::Up(Side::Host),
            )
            | Self::Uncompared(Uncompared::RefuseAdvertisements(_) | Uncompared::LeaveDefaultVlan) => {
                Turn::BeforeAddresses
            }
            Self::Compared(_) | Self::Uncompared(_) => Turn::AfterAddresses,
        }
    }
}

impl<O: OwnStep> Step<O> {
    fn erase(self, own: &mut Vec<O>) -> Step<OwnIndex> {
        match self {
            Self::Own(step) => {
                let place =
                    OwnIndex { place: own.len(), turn: step.turn(), name: step.name(), is_on_node: step.is_on_node() };
                own.push(step);
                Step::Own(place)
            }
            Self::Compared(step) => Step::Compared(step),
            Self::Uncompared(step) => Step::Uncompared(step),
        }
    }
}

impl<O: OwnStep> Step<O> {
    /// As [`fmt::Display`] of the plan.
    pub(crate) fn text(&self, names: &Names) -> String {
        struct Text<'a, O>(&'a Step<O>, &'a Names);
        impl<O: OwnStep> fmt::Display for Text<'_, O> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f, self.1)
            }
        }
        Text(self, names).to_string()
    }

    /// Writes a step as commands of `ip`, `bridge` and `sysctl`, a change a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>, names: &Names) -> fmt::Result {
        match self {
            Self::Own(own) => own.fmt(f),
            Self::Compared(step) => step.fmt(f, names),
            Self::Uncompared(step) => step.fmt(f, names),
        }
    }
}

impl Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>, names: &Names) -> fmt::Result {
        let Names { container, host, alias } = names;
        match self {
            Self::Veth(Veth { master, mtu_bytes, mac, up }) => {
                let mtu = mtu_bytes.map(|mtu| format!(" mtu {mtu}")).unwrap_or_default();
                let master = master.as_ref().map(|master| format!(" master {master}")).unwrap_or_default();
                let mac = mac.map(|mac| format!(" address {mac}")).unwrap_or_default();
                writeln!(f, "ip link add {host}{mtu}{master} type veth peer {container}{mac}")?;
                writeln!(f, "ip link set {host} alias {alias}")?;
                if *up { writeln!(f, "ip link set {host} up") } else { Ok(()) }
            }
            Self::Create(create) => {
                let Create { kind, lower, mtu_bytes, mac } = &**create;
                let lower = lower.as_ref().map(|(_, lower)| format!(" link {}", lower.name)).unwrap_or_default();
                let mtu = mtu_bytes.map(|mtu| format!(" mtu {mtu}")).unwrap_or_default();
                let mac = mac.map(|mac| format!(" address {mac}")).unwrap_or_default();
                writeln!(f, "ip link add {container}{lower}{mtu}{mac} type {kind}{}", stacked::settings(kind))?;
                writeln!(f, "ip link set {container} alias {alias}")
            }
            Self::SpoofGuard(_) => {
                writeln!(f, "drop what {host} sends from another address than {container}'s")
            }
            Self::Masquerade(Masquerade { backend, spared }, addresses) => {
                let addresses: Vec<String> = addresses.iter().map(IpNetwork::to_string).collect();
                let backend = match backend {
                    Backend::Default => "rules of iptables, or of nf_tables where those cannot be",
                    Backend::Iptables => "rules of iptables",
                    Backend::Nftables => "rules of nf_tables",
                    Backend::Shared => "elements of table cni_shared of nf_tables",
                };
                let spared: String = spared.iter().map(|spared| format!(", not to {spared}")).collect();
                writeln!(f, "masquerade {} by {backend}{spared}", addresses.join(" "))
            }
            Self::JoinVlans(join) => join.iter().try_for_each(|vlan| writeln!(f, "bridge vlan add {vlan} dev {host}")),
            Self::Port(Port { hairpin, isolated }) => {
                let (hairpin, isolated) = (u8::from(*hairpin), u8::from(*isolated));
                writeln!(f, "bridge link set dev {host} hairpin {hairpin} isolated {isolated}")
            }
            Self::Addresses(side, addresses) => addresses.iter().try_for_each(|address| {
                let nodad = if address.nodad { " nodad" } else { "" };
                writeln!(f, "ip address add {} dev {}{nodad}", address.net, names.on(*side))
            }),
            Self::Up(side) => writeln!(f, "ip link set {} up", names.on(*side)),
            Self::Routes(side, routes) | Self::OnlyRoutes(side, routes) => {
                routes.iter().try_for_each(|route| writeln!(f, "ip route add {route} dev {}", names.on(*side)))
            }
        }
    }
}

impl Uncompared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>, names: &Names) -> fmt::Result {
        let Names { container, host, .. } = names;
        match self {
            Self::RefuseAdvertisements(_) => writeln!(f, "sysctl net/ipv6/conf/{host}/accept_ra=0"),
            Self::LeaveDefaultVlan => writeln!(f, "bridge vlan del vid 1 dev {host}"),
            Self::Sysctls(sysctls) => sysctls.iter().try_for_each(|sysctl| writeln!(f, "sysctl {sysctl}")),
            Self::ArpNotify => writeln!(f, "sysctl net/ipv4/conf/{container}/arp_notify=1"),
            Self::Announce => writeln!(f, "announce the addresses of {container}"),
            Self::StayDown => writeln!(f, "{container} stays down"),
            Self::DeleteRoutes(side, routes) => {
                routes.iter().try_for_each(|route| writeln!(f, "ip route del {route} dev {}", names.on(*side)))
            }
            Self::AwaitUp(side) => writeln!(f, "wait until {} can carry packets", names.on(*side)),
            Self::AwaitAddresses(_) => writeln!(f, "wait until no address of {container} is tentative"),
            Self::Forward(Family::V4) => writeln!(f, "sysctl net/ipv4/ip_forward=1"),
            Self::Forward(Family::V6) => writeln!(f, "sysctl net/ipv6/conf/all/forwarding=1"),
        }
    }
}
