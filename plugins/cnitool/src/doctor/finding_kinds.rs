//! The kinds of findings: what a fault is, what shows it, what it means, what to do.

use std::error::Error;
use std::fmt::{self, Display};
use std::io::{self, ErrorKind};

use cni_spec::{CniError, Code};
use libcni::AttachmentId;
use netops::{Errno, OpError};
use on_node::pod_names::{Names, PodName};
use serde_json::{Value, json};

use crate::doctor::remedy::{Remedy, Step, advice, tool};
use crate::node_networks::{Attachment, Network};
pub use crate::validate::Level;

/// A fault of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What kind of fault.
    pub kind: Kind,
    pub level: Level,
    /// The network that it concerns; `None`: the node.
    pub network: Option<String>,
    /// The fault, on one line.
    pub what: String,
    /// The attachment that it is about, if it is about one.
    pub subject: Option<Subject>,
    /// The object of the node that is wrong, where other checks ask for it.
    pub(crate) object: Option<Object>,
    /// The answer of a plugin that it passes on.
    pub(crate) answer: Option<CniError>,
    pub evidence: Vec<Line>,
    pub remedy: Remedy,
    /// How a program can mend it without harm to a container that lives; `None`: only an operator can decide.
    pub fix: Option<Fix>,
    /// Whether addresses are among what it is about.
    pub(crate) has_addresses: bool,
}

/// An attachment that a finding is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    pub network: String,
    pub id: AttachmentId,
    /// The attachment's name for people.
    pub name: String,
    pod: Option<(String, String)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Object {
    /// The link that has this name now.
    Link(String),
    /// A parameter of the kernel, as `sysctl` names it.
    Setting(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The attachment that it is about.
    pub subject: Option<Subject>,
    /// The words that are said; empty: the attachment is what the finding says.
    pub text: String,
}

impl Subject {
    pub(crate) fn new(network: &str, id: &AttachmentId, names: &Names) -> Self {
        Self::of_pod(network, id, names.attachment(id), names.find_pod(&id.container_id))
    }

    fn of_pod(network: &str, id: &AttachmentId, name: String, pod: Option<&PodName>) -> Self {
        let pod = pod.map(|pod| (pod.namespace.clone(), pod.name.clone()));
        Self { network: network.to_owned(), id: id.clone(), name, pod }
    }

    pub(crate) fn of(network: &Network, attachment: &Attachment) -> Self {
        Self::of_pod(&network.name, &attachment.id, attachment.full_name(), attachment.pod.as_ref())
    }

    pub(crate) fn key(&self) -> (&str, &AttachmentId) {
        (&self.network, &self.id)
    }

    pub(crate) fn line(self, text: impl Into<String>) -> Line {
        Line { subject: Some(self), text: text.into() }
    }

    pub(crate) fn to_json(&self) -> Value {
        let (namespace, pod) = self.pod.as_ref().map(|(namespace, pod)| (namespace, pod)).unzip();
        json!({"network": self.network, "container": self.id.container_id.as_str(),
            "ifname": self.id.ifname.as_str(), "pod": pod,
            "namespace": namespace})
    }
}

impl From<String> for Line {
    fn from(text: String) -> Self {
        Self { subject: None, text }
    }
}

impl Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.subject {
            Some(Subject { name, .. }) if self.text.is_empty() => f.write_str(name),
            Some(Subject { name, .. }) => write!(f, "{name}: {}", self.text),
            None => f.write_str(&self.text),
        }
    }
}

/// An object that could not be looked at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unread {
    place: String,
    why: String,
    /// Whether a privilege is missing.
    is_denied: bool,
    /// Whether nothing is wrong: what would be there is not, or is another one's affair.
    pub(crate) is_expected: bool,
}

impl Unread {
    pub(crate) fn new(place: impl Into<String>, error: &(dyn Error + 'static)) -> Self {
        let of_library = error.downcast_ref::<libcni::Error>().map(libcni::Error::with_causes);
        let why = of_library.unwrap_or_else(|| error.to_string());
        Self { is_denied: is_denied(error), ..Self::told(place, why) }
    }

    pub(crate) fn told(place: impl Into<String>, why: impl Into<String>) -> Self {
        Self { place: place.into(), why: why.into(), is_denied: false, is_expected: false }
    }

    pub(crate) fn expected(self) -> Self {
        Self { is_expected: true, ..self }
    }
}

impl Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.why)
    }
}

/// Whether an error, or a cause of it, is a privilege that is missing.
fn is_denied(error: &(dyn Error + 'static)) -> bool {
    let by_io = error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == ErrorKind::PermissionDenied);
    let by_kernel = error.downcast_ref::<OpError>().and_then(OpError::os_errno);
    let by_plugin = error.downcast_ref::<CniError>().is_some_and(|error| error.code == Code::PERMISSION);
    let by_call = error.downcast_ref::<libcni::Error>().and_then(libcni::Error::code) == Some(Code::PERMISSION);
    by_io
        || by_plugin
        || by_call
        || matches!(by_kernel, Some(Errno::EPERM | Errno::EACCES))
        || error.source().is_some_and(is_denied)
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
    pub(crate) fn help(self, remedy: impl Into<Remedy>) -> Self {
        Self { remedy: remedy.into(), ..self }
    }

    pub(crate) fn steps(self, steps: impl IntoIterator<Item = impl Into<Step>>) -> Self {
        self.help(steps.into_iter().map(Into::into).collect::<Remedy>())
    }

    /// The fault in words about the one attachment that it was found on.
    pub(crate) fn why(&self) -> String {
        self.evidence.first().map_or_else(|| self.what.clone(), Line::to_string)
    }

    pub(crate) fn shown_by<L: Into<Line>>(self, lines: impl IntoIterator<Item = L>) -> Self {
        Self { evidence: lines.into_iter().map(Into::into).collect(), ..self }
    }

    /// The lines of the evidence; of a fault that several networks share, with the network of each attachment.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.evidence.iter().map(|line| match &line.subject {
            Some(subject) if self.network.is_none() => format!("network {}: {line}", subject.network),
            _ => line.to_string(),
        })
    }

    /// Whether the fault is one of this kind of the object.
    pub(crate) fn is_of(&self, kind: Kind, object: &Object) -> bool {
        self.kind == kind && self.object.as_ref() == Some(object)
    }

    /// The attachments that it names.
    pub(crate) fn subjects(&self) -> impl Iterator<Item = &Subject> {
        self.evidence.iter().filter_map(|line| line.subject.as_ref()).chain(&self.subject)
    }

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
    /// The remedy for a finding of this kind where no command mends it.
    pub(crate) fn remedy(self, network: &str) -> Remedy {
        Remedy::from(match self {
            Self::MasqueradeGone | Self::PortGone => return tool(["repair", network]).into(),
            Self::PortTwice => advice("Stop one of the containers, or give it another port of the node."),
            Self::PortTaken => advice("End the process, or give the container another port of the node."),
            Self::DuplicateAddress => {
                advice("Take the address from the node's link, or start the container anew with another one.")
            }
            _ => advice(ANEW),
        })
    }

    pub(crate) fn finding(self, level: Level, network: Option<&str>, what: impl Into<String>) -> Finding {
        Finding {
            kind: self,
            level,
            network: network.map(str::to_owned),
            what: what.into(),
            subject: None,
            object: None,
            answer: None,
            evidence: Vec::new(),
            remedy: Remedy::default(),
            fix: None,
            has_addresses: true,
        }
    }

    /// The finding for an object that could not be examined, with the cause.
    pub(crate) fn unseen(network: Option<&str>, what: &str, error: &(dyn Error + 'static)) -> Finding {
        Self::unread(network, &Unread::new(what, error))
    }

    pub(crate) fn unread(network: Option<&str>, unread: &Unread) -> Finding {
        Self::Unseen.finding(Level::Warning, network, format!("cannot look at {unread}")).help(advice(
            match unread.is_denied {
                true => "Run it as root, with all capabilities, on the node itself.",
                false => "Mend what the message names, and run it again.",
            },
        ))
    }
}

/// The advice where nothing mends an attachment.
pub(crate) const ANEW: &str = "Start the container anew.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remedy_of_what_is_unseen_fits_the_cause() {
        let of = |error: &(dyn Error + 'static)| Kind::unseen(None, "it", error).remedy.to_string();
        let privilege = "Run it as root, with all capabilities, on the node itself.";
        assert_eq!(of(&io::Error::from(ErrorKind::PermissionDenied)), privilege);
        assert_eq!(of(&OpError::io("read", "it", &io::Error::from_raw_os_error(1))), privilege);
        assert_eq!(of(&CniError::new(Code::PERMISSION, "no")), privilege);
        let path = std::path::PathBuf::from("/x");
        assert_eq!(of(&libcni::Error::ReadConfig { path, source: ErrorKind::PermissionDenied.into() }), privilege);
        assert_eq!(of(&io::Error::from(ErrorKind::NotADirectory)), "Mend what the message names, and run it again.");
    }

    #[test]
    fn the_readme_has_a_line_for_each_kind() {
        let readme = include_str!("../../DOCTOR.md");
        for kind in Kind::ALL {
            assert!(readme.contains(&format!("- `{}`: ", kind.as_str())), "{kind:?}");
        }
    }
}
