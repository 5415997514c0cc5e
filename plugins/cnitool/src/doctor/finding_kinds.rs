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

/// The kinds of faults, each with its name, which is stable, for monitoring, and the consequence for containers.
macro_rules! kinds {
    ($($kind:ident $name:literal: $consequence:literal;)*) => {
        /// The kinds of faults: `DOCTOR.md` says of each what is found.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Kind {
            $($kind),*
        }

        impl Kind {
            /// All kinds, in the order of the enum.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$kind),*];

            /// The kind's name.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$kind => $name),*
                }
            }

            const fn consequence(self) -> &'static str {
                match self {
                    $(Self::$kind => $consequence),*
                }
            }
        }
    };
}

kinds! {
    Config "config": "Runtimes skip the file, or containers cannot be attached as it says.";
    NoNetwork "no-network": "No container can be attached; a kubelet reports its node as NotReady: \"cni plugin not initialized\".";
    NotReady "not-ready": "New containers cannot be attached to this network.";
    MixedMakes "mixed-makes": "Plugins of different makes in one list may disagree about names and rules.";
    Leftover "leftover": "Their addresses are not given to new containers, and their rules may match packets of others.";
    Undecided "undecided": "Garbage collection keeps them, with their addresses.";
    UnreadableEntry "unreadable-entry": "DEL and garbage collection of a runtime do not know these attachments.";
    DamagedReservation "damaged-reservation": "No DEL releases the addresses, and GC of this suite only those of empty files, which its host-local also gives again.";
    Unfinished "unfinished": "They take space only.";
    RangeFull "range-full": "ADD fails when no address is left.";
    LockHeld "lock-held": "Calls that need the lock wait, and fail at their time limit.";
    ForwardingOff "forwarding-off": "Containers reach no other network, and none reaches them.";
    TwoRulesets "two-rulesets": "The kernel evaluates both, so a packet that one accepts the other may drop; iptables shows only one.";
    Mtu "mtu": "Large packets are dropped or fragmented on their way out.";
    BridgeFull "bridge-full": "ADD fails when the bridge takes no port more.";
    ConnectionsFull "connections-full": "The kernel drops the packets of new connections, of containers and the node.";
    LinkDown "link-down": "No packet passes it.";
    LinkGone "link-gone": "The next ADD does not find it: it fails, or makes a bridge without these containers. Those whose link is gone, and not only renamed, reach nothing.";
    GatewayAddress "gateway-address": "Containers have no way out of their own network, or the next ADD fails.";
    FirewallDrops "firewall-drops": "Packets of these containers are dropped.";
    NoWayOut "no-way-out": "Containers reach no other network.";
    RouteElsewhere "route-elsewhere": "Packets of these containers are lost, answers too: they leave by another link, or are refused.";
    ReversePath "reverse-path": "The kernel drops what these containers send.";
    BridgeNetfilter "bridge-netfilter": "A container does not reach a service whose endpoint is on the same bridge: the answer comes from another address.";
    MasqueradeGone "masquerade-gone": "No answer from beyond the node finds the way back to these containers.";
    PortGone "port-gone": "Packets to the port of the node, or some of them, do not get to the container.";
    PortTwice "port-twice": "Packets to the port reach only the container whose rule comes first.";
    PortTaken "port-taken": "Packets from other hosts reach the container, and never the process.";
    LoopbackOpen "loopback-open": "Other hosts on the link can send packets to programs that listen on 127.0.0.1.";
    DuplicateAddress "duplicate-address": "Packets to the address reach only one of them.";
    Ipv6Disabled "ipv6-disabled": "ADD fails, as the node's link of the network cannot have its IPv6 address.";
    ContainerSide "container-side": "The container reaches nothing by this interface, or not all that it should.";
    Unreserved "unreserved": "Another container may get the address, or has it: packets reach only one of them.";
    CheckFails "check-fails": "The container may be unreachable: its network is not as ADD left it.";
    Unseen "unseen": "Faults there may be missing in this report.";
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
