//! What became of packets of an attachment, by the way that each took.

use std::collections::BTreeMap;
use std::net::IpAddr;

use netops::Family;
use netops::nft::trace::{Checkpoint, Seen};
use netops::probe::{Kind, Met};

use super::way_to_container::Bridge;
use crate::node_networks::{Attachment, Network};

/// A way that packets take to or from an attachment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Way {
    /// From the container to other networks.
    Out(Kind),
    /// The answer from other networks to what the container has asked.
    Answer(Kind),
    /// From the container to the node's own address.
    ToNode(Kind),
    FromNode(Kind),
    /// The container's answer to what the node has asked.
    Back(Kind),
    /// From other hosts to a port of the node that is forwarded to the container.
    Port(Kind),
    /// The container's answer to them.
    PortAnswer(Kind),
    /// From the container to another one on its bridge.
    Among,
}

/// What became of the packets of one way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The last hook has seen them like this.
    Passed(Seen),
    /// Packets passed, but not as they have to.
    Astray(Stray),
    /// A rule or policy dropped them.
    Dropped(Met),
    /// Packets were lost behind a place; `None`: before the node has seen them.
    Lost(Option<Checkpoint>),
    /// The node's routing refuses them, with this error.
    Refused(netops::Errno),
    /// Nobody answers for the Ethernet address of the receiver.
    NoAnswer(IpAddr),
}

/// How packets pass that do not arrive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stray {
    /// Packets leave with the container's own address.
    NotMasqueraded,
    /// Packets leave with this address, which the node does not have.
    As(IpAddr),
    /// Packets reach this address, and not the container.
    ElseWhere {
        to: IpAddr,
        /// Whether packets had another destination before.
        is_translated: bool,
    },
    ByLink(String),
}

/// The verdicts on one attachment, in one family.
#[derive(Debug, Clone)]
pub(crate) struct Asked<'a> {
    pub(super) network: &'a Network,
    pub(super) attachment: &'a Attachment,
    pub(super) family: Family,
    pub(super) ways: BTreeMap<Way, Verdict>,
    /// The rules that packets met which passed, but not as they have to.
    pub(super) rules: BTreeMap<Way, Vec<Met>>,
    pub(super) bridge: Option<Bridge>,
    /// Whether the node passes on frames alone.
    pub(super) is_switched: bool,
    /// Whether container and node have a route to other networks.
    pub(super) leads_out: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Answers<'a> {
    pub(crate) asked: Vec<Asked<'a>>,
    /// Parts that were left out, and why.
    pub(crate) skipped: Vec<String>,
}
impl Asked<'_> {
    fn verdicts(&self, is_it: impl Fn(&Way) -> bool) -> impl Iterator<Item = (&Way, &Verdict)> {
        self.ways.iter().filter(move |(way, _)| is_it(way))
    }

    /// What became of the packets of each way, a line each.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        let end = |way: &Way, verdict: &Verdict| match verdict {
            Verdict::Passed(seen) if matches!(way, Way::Out(_)) => format!("pass, and leave as {}", seen.from),
            Verdict::Passed(_) => "pass".to_owned(),
            _ => "do not arrive".to_owned(),
        };
        let ends: Vec<(Way, String)> = self.ways.iter().map(|(way, verdict)| (*way, end(way, verdict))).collect();
        let is_same = |one: &(Way, String), next: &(Way, String)| one.0.ends() == next.0.ends() && one.1 == next.1;
        let groups = ends.chunk_by(is_same).map(|same| {
            let ways: Vec<Way> = same.iter().map(|(way, _)| *way).collect();
            format!("packets {} {}", in_words(&ways), same.first().map_or("", |(_, end)| end))
        });
        groups.collect::<Vec<_>>().into_iter()
    }

    /// Whether nothing passes to other networks of which an answer comes back.
    pub(super) fn is_cut_off(&self) -> bool {
        let passes = |way: Way| self.ways.get(&way).map(|verdict| matches!(verdict, Verdict::Passed(_)));
        let mut out =
            self.ways.keys().filter_map(|way| if let Way::Out(kind) = way { Some(*kind) } else { None }).peekable();
        let lives = |kind| passes(Way::Out(kind)) == Some(true) && passes(Way::Answer(kind)) != Some(false);
        out.peek().is_some() && !out.any(lives)
    }

    /// Whether packets pass between the container and other networks in both directions, as far as there is a way, and to others on its
    /// bridge.
    pub(crate) fn lives(&self) -> bool {
        let is_out = |way: &Way| matches!(way, Way::Out(_));
        let mut beyond = self.verdicts(|way| !matches!(way, Way::ToNode(_)));
        (!self.leads_out || self.ways.keys().any(is_out))
            && beyond.all(|(_, verdict)| matches!(verdict, Verdict::Passed(_)))
    }
}

impl Way {
    /// Where packets of the way begin and end.
    fn ends(self) -> &'static str {
        match self {
            Self::Out(_) => "from the container to other networks",
            Self::Answer(_) => "that answer the container",
            Self::ToNode(_) => "from the container to the node",
            Self::FromNode(_) => "from the node to the container",
            Self::Back(_) => "that answer the node",
            Self::Port(_) => "from other hosts to the node",
            Self::PortAnswer(_) => "that answer other hosts",
            Self::Among => "between containers on one bridge",
        }
    }

    fn kind(self) -> Option<String> {
        match self {
            Self::Among => None,
            Self::Out(kind)
            | Self::Answer(kind)
            | Self::ToNode(kind)
            | Self::FromNode(kind)
            | Self::Back(kind)
            | Self::Port(kind)
            | Self::PortAnswer(kind) => Some(match kind {
                Kind::Ping | Kind::Pong => "ICMP".to_owned(),
                Kind::Tcp(port) | Kind::TcpFrom(port, ..) => format!("TCP port {port}"),
                Kind::Udp(port) | Kind::UdpFrom(port, _) => format!("UDP port {port}"),
            }),
        }
    }
}

/// Ways in words, those with the same ends as one.
pub(super) fn in_words(ways: &[Way]) -> String {
    let of = |same: &[Way]| {
        let kinds: Vec<String> = same.iter().filter_map(|way| way.kind()).collect();
        let ends = same.first().map_or("", |way| way.ends());
        if kinds.is_empty() { ends.to_owned() } else { format!("{ends} ({})", kinds.join(", ")) }
    };
    ways.chunk_by(|one, next| one.ends() == next.ends()).map(of).collect::<Vec<_>>().join(", ")
}
