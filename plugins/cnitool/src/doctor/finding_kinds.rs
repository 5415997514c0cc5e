//! The kinds of findings: what a fault is, what shows it, what it means, what to do.

use std::fmt;

pub use crate::validate::Level;

/// A fault of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What kind of fault.
    pub kind: Kind,
    /// The severity.
    pub level: Level,
    /// The network that it concerns; `None`: the node.
    pub network: Option<String>,
    /// The fault, on one line.
    pub what: String,
    /// The evidence: objects, files, values; may be long.
    pub evidence: Vec<String>,
    /// The remedy: a command, or a sentence.
    pub remedy: String,
    /// How a program can mend it without harm to a container that lives; `None`: only an operator can decide.
    pub fix: Option<Fix>,
    /// Whether addresses are among what it is about.
    pub(crate) has_addresses: bool,
}

/// How a finding can be mended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fix {
    /// Garbage collection of this network, which keeps whatever may live.
    Collect {
        /// The network's name.
        network: String,
    },
}

/// The kinds of faults. Their names are stable, for monitoring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A configuration has a fault.
    Config,
    /// A runtime's folder has no network.
    NoNetwork,
    /// A network's plugins report by STATUS that they cannot add containers.
    NotReady,
    /// A folder of plugins has executables of this suite and of others.
    MixedMakes,
    /// Attachments on the node or in the cache whose containers are gone.
    Leftover,
    /// Objects on the node of which it cannot be determined whether their containers live.
    Undecided,
    /// Files of the cache that cannot be read.
    UnreadableEntry,
    /// Files of a store that name no owner, and hold no address.
    DamagedReservation,
    /// Files that a killed process has not finished.
    Unfinished,
    /// A range of addresses is used up, or nearly.
    RangeFull,
    /// A lock that is held for long.
    LockHeld,
    /// Packets are not forwarded.
    ForwardingOff,
    /// Both variants of iptables have rules.
    TwoRulesets,
    /// A network's MTU is above that of the link that packets leave by.
    Mtu,
    /// A bridge has as many ports as the kernel allows, or nearly.
    BridgeFull,
    /// The kernel's table of connections is full, or nearly.
    ConnectionsFull,
    /// A network's bridge or a container's link on the node is down, or no port of the bridge.
    LinkDown,
    /// The bridge of living containers, or the link that theirs are stacked on, is gone.
    LinkGone,
    /// A bridge or veth does not have the gateway's address, or has another one.
    GatewayAddress,
    /// The packet filter drops packets of containers.
    FirewallDrops,
    /// The node has no way to other networks.
    NoWayOut,
    /// The node's route to a network's containers leads elsewhere.
    RouteElsewhere,
    /// The kernel takes packets of containers for forged ones.
    ReversePath,
    /// Frames on bridges do not pass iptables, though rules of services count on it.
    BridgeNetfilter,
    /// Rules that masquerade packets of living containers are gone.
    MasqueradeGone,
    /// Rules that forward a port of the node to a living container are gone.
    PortGone,
    /// Several living containers have one port of the node.
    PortTwice,
    /// A process of the node listens on a port that leads to a container.
    PortTaken,
    /// Hosts that are no containers reach loopback addresses of the node.
    LoopbackOpen,
    /// A living container has an address that the node or another container has.
    DuplicateAddress,
    /// A network has IPv6 addresses, and IPv6 is disabled on the node.
    Ipv6Disabled,
    /// The interface, an address or a route is missing in a living container.
    ContainerSide,
    /// A container lives, and nothing reserves its address for it.
    Unreserved,
    /// CHECK of an attachment fails.
    CheckFails,
    /// Something could not be looked at.
    Unseen,
}

impl Finding {
    /// The consequence for containers.
    #[must_use]
    pub const fn consequence(&self) -> &'static str {
        match (self.kind, self.level) {
            (Kind::Leftover, _) if !self.has_addresses => {
                "Their links and rules may match packets of others, and DEL of a runtime may no longer know them."
            }
            (Kind::Config, Level::Warning) => "Runtimes use the file, and containers may not be attached as it says.",
            (kind, _) => kind.consequence(),
        }
    }
}

impl Kind {
    /// All kinds, in the order of the enum.
    pub const ALL: [Self; 35] = [
        Self::Config,
        Self::NoNetwork,
        Self::NotReady,
        Self::MixedMakes,
        Self::Leftover,
        Self::Undecided,
        Self::UnreadableEntry,
        Self::DamagedReservation,
        Self::Unfinished,
        Self::RangeFull,
        Self::LockHeld,
        Self::ForwardingOff,
        Self::TwoRulesets,
        Self::Mtu,
        Self::BridgeFull,
        Self::ConnectionsFull,
        Self::LinkDown,
        Self::LinkGone,
        Self::GatewayAddress,
        Self::FirewallDrops,
        Self::NoWayOut,
        Self::RouteElsewhere,
        Self::ReversePath,
        Self::BridgeNetfilter,
        Self::MasqueradeGone,
        Self::PortGone,
        Self::PortTwice,
        Self::PortTaken,
        Self::LoopbackOpen,
        Self::DuplicateAddress,
        Self::Ipv6Disabled,
        Self::ContainerSide,
        Self::Unreserved,
        Self::CheckFails,
        Self::Unseen,
    ];

    /// The kind's name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::NoNetwork => "no-network",
            Self::NotReady => "not-ready",
            Self::MixedMakes => "mixed-makes",
            Self::Leftover => "leftover",
            Self::Undecided => "undecided",
            Self::UnreadableEntry => "unreadable-entry",
            Self::DamagedReservation => "damaged-reservation",
            Self::Unfinished => "unfinished",
            Self::RangeFull => "range-full",
            Self::LockHeld => "lock-held",
            Self::ForwardingOff => "forwarding-off",
            Self::TwoRulesets => "two-rulesets",
            Self::Mtu => "mtu",
            Self::BridgeFull => "bridge-full",
            Self::ConnectionsFull => "connections-full",
            Self::LinkDown => "link-down",
            Self::LinkGone => "link-gone",
            Self::GatewayAddress => "gateway-address",
            Self::FirewallDrops => "firewall-drops",
            Self::NoWayOut => "no-way-out",
            Self::RouteElsewhere => "route-elsewhere",
            Self::ReversePath => "reverse-path",
            Self::BridgeNetfilter => "bridge-netfilter",
            Self::MasqueradeGone => "masquerade-gone",
            Self::PortGone => "port-gone",
            Self::PortTwice => "port-twice",
            Self::PortTaken => "port-taken",
            Self::LoopbackOpen => "loopback-open",
            Self::DuplicateAddress => "duplicate-address",
            Self::Ipv6Disabled => "ipv6-disabled",
            Self::ContainerSide => "container-side",
            Self::Unreserved => "unreserved",
            Self::CheckFails => "check-fails",
            Self::Unseen => "unseen",
        }
    }

    /// The consequence for containers of a fault of this kind.
    const fn consequence(self) -> &'static str {
        match self {
            Self::Config => "Runtimes skip the file, or containers cannot be attached as it says.",
            Self::NoNetwork => {
                "No container can be attached; a kubelet reports its node as NotReady: \"cni plugin not initialized\"."
            }
            Self::NotReady => "New containers cannot be attached to this network.",
            Self::MixedMakes => "Plugins of different makes in one list may disagree about names and rules.",
            Self::Leftover => {
                "Their addresses are not given to new containers, and their rules may match packets of others."
            }
            Self::Undecided => "Garbage collection keeps them, with their addresses.",
            Self::UnreadableEntry => "DEL and garbage collection of a runtime do not know these attachments.",
            Self::DamagedReservation => {
                "No DEL releases the addresses, and GC of this suite only those of empty files, which its host-local also gives again."
            }
            Self::Unfinished => "They take space only.",
            Self::RangeFull => "ADD fails when no address is left.",
            Self::LockHeld => "Calls that need the lock wait, and fail at their time limit.",
            Self::ForwardingOff => "Containers reach no other network, and none reaches them.",
            Self::TwoRulesets => {
                "The kernel evaluates both, so a packet that one accepts the other may drop; iptables shows only one."
            }
            Self::Mtu => "Large packets are dropped or fragmented on their way out.",
            Self::BridgeFull => "ADD fails when the bridge takes no port more.",
            Self::ConnectionsFull => "The kernel drops the packets of new connections, of containers and the node.",
            Self::LinkDown => "No packet passes it.",
            Self::LinkGone => {
                "The next ADD does not find it: it fails, or makes a bridge without these containers. \
                 Those whose link is gone, and not only renamed, reach nothing."
            }
            Self::GatewayAddress => "Containers have no way out of their own network, or the next ADD fails.",
            Self::FirewallDrops => "Packets of these containers are dropped.",
            Self::NoWayOut => "Containers reach no other network.",
            Self::RouteElsewhere => {
                "Packets of these containers are lost, answers too: they leave by another link, or are refused."
            }
            Self::ReversePath => "The kernel drops what these containers send.",
            Self::BridgeNetfilter => {
                "A container does not reach a service whose endpoint is on the same bridge: the answer comes from another address."
            }
            Self::MasqueradeGone => "No answer from beyond the node finds the way back to these containers.",
            Self::PortGone => "Packets to the port of the node, or some of them, do not get to the container.",
            Self::PortTwice => "Packets to the port reach only the container whose rule comes first.",
            Self::PortTaken => "Packets from other hosts reach the container, and never the process.",
            Self::LoopbackOpen => "Other hosts on the link can send packets to programs that listen on 127.0.0.1.",
            Self::DuplicateAddress => "Packets to the address reach only one of them.",
            Self::Ipv6Disabled => "ADD fails, as the node's link of the network cannot have its IPv6 address.",
            Self::ContainerSide => "The container reaches nothing by this interface, or not all that it should.",
            Self::Unreserved => "Another container may get the address, or has it: packets reach only one of them.",
            Self::CheckFails => "The container may be unreachable: its network is not as ADD left it.",
            Self::Unseen => "Faults there may be missing in this report.",
        }
    }

    /// The advice for a finding of this kind where no command mends it.
    pub(crate) fn advice(self, network: &str) -> String {
        match self {
            Self::MasqueradeGone | Self::PortGone => format!("cnitool repair {network}"),
            Self::PortTwice => "Stop one of the containers, or give it another port of the node.".to_owned(),
            Self::PortTaken => "End the process, or give the container another port of the node.".to_owned(),
            Self::DuplicateAddress => {
                "Take the address from the node's link, or start the container anew with another one.".to_owned()
            }
            _ => "Start the container anew.".to_owned(),
        }
    }

    /// A finding of this kind.
    pub(crate) fn finding(self, level: Level, network: Option<&str>, what: impl Into<String>) -> Finding {
        Finding {
            kind: self,
            level,
            network: network.map(str::to_owned),
            what: what.into(),
            evidence: Vec::new(),
            remedy: String::new(),
            fix: None,
            has_addresses: true,
        }
    }

    /// The finding for an object that could not be examined, with the cause.
    pub(crate) fn unseen(network: Option<&str>, what: &str, error: &dyn fmt::Display) -> Finding {
        let error = error.to_string();
        let mut finding = Self::Unseen.finding(Level::Warning, network, format!("cannot look at {what}: {error}"));
        finding.remedy = remedy(&error).to_owned();
        finding
    }
}

/// The remedy for an object that could not be examined; the cause is known as text only.
fn remedy(error: &str) -> &'static str {
    let error = error.to_lowercase();
    match ["permission denied", "operation not permitted", "eperm", "eacces"].iter().any(|word| error.contains(word)) {
        true => "Run it as root, with all capabilities, on the node itself.",
        false => "Mend what the message names, and run it again.",
    }
}

#[cfg(test)]
mod tests {
    use super::{Kind, remedy};

    #[test]
    fn the_remedy_of_what_is_unseen_fits_the_cause() {
        let privilege = "Run it as root, with all capabilities, on the node itself.";
        assert_eq!(remedy("cannot read /x: Permission denied (os error 13)"), privilege);
        assert_eq!(remedy("RTM_GETLINK: EPERM (1)"), privilege);
        let text = "cannot list cache /var/lib/cni/results: Not a directory (os error 20)";
        assert_eq!(remedy(text), "Mend what the message names, and run it again.");
    }

    #[test]
    fn the_readme_has_a_row_for_each_kind() {
        let readme = include_str!("../../DOCTOR.md");
        for kind in Kind::ALL {
            assert!(readme.contains(&format!("| `{}` | ", kind.as_str())), "{kind:?}");
        }
    }
}
