//! The container that ports are forwarded to, as all backends need it.

use std::net::IpAddr;

use cni_filter::iptables::FoundRule;
use cni_filter::iptables::rule::{Is, Protocol, Rule, Target};
use cni_filter::{Names, Owner, SharedPort};
use cni_spec::Attachment;
use ipnetwork::IpNetwork;
use netops::nft::Family;
use netops::nft::conntrack::Flow;

use crate::conf::{Conf, Mapping};

pub(crate) const FAMILIES: [Family; 2] = [Family::Ip, Family::Ip6];

/// An attachment's forwarded ports in one family.
pub(crate) struct PodPorts<'a> {
    pub(crate) names: Names<'a>,
    pub(crate) conf: &'a Conf,
    pub(crate) family: Family,
    /// The container's address, with its prefix.
    pub(crate) address: IpNetwork,
    /// The node's loopback addresses that programs listen on, which keep their packets; `None`: not looked for.
    pub(crate) spared: Option<Vec<(Mapping, IpAddr)>>,
}

impl<'a> PodPorts<'a> {
    pub(crate) fn new(attachment: &'a Attachment, conf: &'a Conf, address: IpNetwork) -> Self {
        Self { names: names(attachment), conf, family: Family::of(address.ip()), address, spared: None }
    }

    /// The loopback addresses that a program of the node listens on, at the port of this mapping.
    pub(crate) fn spared(&self, mapping: Mapping) -> impl Iterator<Item = IpAddr> {
        self.spared.iter().flatten().filter(move |(of, _)| *of == mapping).map(|(_, address)| *address)
    }

    /// The mappings of this family, each once.
    pub(crate) fn mappings(&self) -> Vec<Mapping> {
        let mut mappings: Vec<Mapping> = Vec::new();
        for mapping in self.conf.mappings.iter().filter(|mapping| mapping.is_for(self.family)) {
            if !mappings.contains(mapping) {
                mappings.push(*mapping);
            }
        }
        mappings
    }
}

/// What DEL knows beside the attachment. It needs none of it for rules that name their attachment.
pub(crate) struct KnownAddresses<'a> {
    /// The attachment's addresses; empty if unknown.
    pub(crate) addresses: &'a [IpAddr],
    /// The addresses of the container's other interfaces; `None` if they cannot be known.
    pub(crate) held: &'a dyn Fn() -> Option<Vec<IpAddr>>,
}

/// The owner of rules that name only their container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    /// The attachment's.
    Ours,
    /// Another attachment's of the container.
    Others,
    /// The rules forward to no address.
    Unclear,
}

/// Returns the owner of the rules. A note decides. Without one (the reference's rules, or the legacy variant's) the
/// address decides that packets are forwarded to.
pub(crate) fn whose(rules: &[FoundRule], owner: &Owner, known: &KnownAddresses<'_>) -> Whose {
    if let Some(note) = rules.iter().find_map(|found| found.note.as_deref()) {
        return if owner.owns(Some(note)) { Whose::Ours } else { Whose::Others };
    }
    let targets: Vec<IpAddr> = rules.iter().filter_map(target).collect();
    if targets.is_empty() {
        return Whose::Unclear;
    }
    let has = |addresses: &[IpAddr]| targets.iter().any(|target| addresses.contains(target));
    if !known.addresses.is_empty() && has(known.addresses) {
        return Whose::Ours;
    }
    match (known.held)() {
        // The interface may have got another address since, so only a holder speaks against it.
        Some(held) => {
            if has(&held) {
                Whose::Others
            } else {
                Whose::Ours
            }
        }
        // As the reference, which removes all of the container's.
        None if known.addresses.is_empty() => Whose::Ours,
        None => Whose::Others,
    }
}

/// The container's address in a rule of ours.
pub(crate) fn target(found: &FoundRule) -> Option<IpAddr> {
    let rule = found.rule.as_ref()?;
    match rule.target {
        Target::Dnat(to) => Some(to.ip()),
        Target::Masquerade => rule.destination.as_ref().and_then(Is::host),
        Target::None
        | Target::Jump(_)
        | Target::Accept
        | Target::Drop
        | Target::Reject
        | Target::Return
        | Target::SetMark(_) => None,
    }
}

/// Whether a rule is for some packets only, by a network's conditions. A mapping's host address is none.
pub(crate) fn is_conditional(rule: &Rule) -> bool {
    let is_network = |to: &Is<_>| to.host().is_none();
    rule.source.is_some()
        || rule.input.is_some()
        || rule.output.is_some()
        || rule.destination.as_ref().is_some_and(is_network)
}

/// A UDP port of the node that is forwarded to a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Forwarded {
    port: u16,
    /// The address of the node; `None`: any.
    host: Option<IpAddr>,
    container: IpAddr,
}

impl Forwarded {
    /// The forwarded port of a rule, if it is of UDP: the kernel keeps a flow's translation when the rule is gone. Of a rule
    /// for a network of addresses the port alone is taken, as by the reference.
    pub(crate) fn of_rule(found: &FoundRule) -> Option<Self> {
        let rule = found.rule.as_ref().filter(|rule| rule.protocol == Some(Protocol::Udp))?;
        match rule.target {
            Target::Dnat(to) => {
                let host = rule.destination.as_ref().and_then(Is::host);
                rule.port.map(|port| Self { port, host, container: to.ip() })
            }
            _ => None,
        }
    }

    /// The forwarded UDP ports among those of shared rules.
    pub(crate) fn of_shared(ports: &[SharedPort]) -> Vec<Self> {
        let udp = ports.iter().filter(|port| port.protocol == Protocol::Udp);
        udp.map(|port| Self { port: port.port, host: port.address, container: port.to.ip() }).collect()
    }

    /// The forwarded UDP ports of a container.
    pub(crate) fn of_pod(pod: &PodPorts<'_>) -> Vec<Self> {
        let own = pod.mappings().into_iter().filter(|mapping| mapping.protocol == Protocol::Udp);
        let container = pod.address.ip();
        own.map(|mapping| Self { port: mapping.host_port, host: mapping.destination(), container }).collect()
    }

    pub(crate) fn family(&self) -> Family {
        Family::of(self.container)
    }

    /// Whether the packets of a flow are sent to the port.
    pub(crate) fn takes(&self, flow: &Flow) -> bool {
        let is_of_family = flow.address.is_ipv4() == self.container.is_ipv4();
        is_of_family && flow.port == self.port && self.host.is_none_or(|host| host == flow.address)
    }

    /// Whether the container answers a flow that is sent to the port. Another container's flow to that port of a foreign host
    /// is answered by the foreign host.
    pub(crate) fn answers(&self, flow: &Flow) -> bool {
        self.takes(flow) && flow.server == self.container
    }
}

pub(crate) fn names(attachment: &Attachment) -> Names<'_> {
    Names::from(attachment)
}
