//! The kernel's own account of what its rules do with packets: nftables' trace.
//!
//! [`Trace`] owns tables that end with the process (`flags owner`). In them, packets that have a [`Mark`] are traced from the first
//! hook on, pass *checkpoints* (empty base chains, of which the trace tells as of any other), and are dropped at the last hook, before
//! conntrack confirms them: none leaves the node, and no entry stays. What nftables does not trace, legacy iptables and eBPF, takes a
//! packet between two checkpoints. [`Trace::watch`] does the same with real packets, which go their ways.

use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use netlink_sys::Socket;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, setsockopt, sockopt};

use super::expr::{Base, Cmp, Expr, Meta, Register, Verdict};
use super::object::{BaseChain, Chain, ChainType, Family, Hook, Table};
use super::socket::{Nft, open_socket};
use super::transaction::{Change, TRACE, Transaction};
use super::wire::{Attrs, RawMessages, Writer};
use crate::error::{OpError, Result};
use crate::netns::HOST;

/// `NFNLGRP_NFTRACE` (linux/netfilter/nfnetlink.h).
const GROUP: u32 = 9;
/// The room for events that wait to be read.
const ROOM_BYTES: usize = 8 << 20;
const RECEIVE_LEN: usize = 64 * 1024;
/// `NF_IP_PRI_CONNTRACK_CONFIRM`, the last priority of all, less one.
const LAST: i32 = i32::MAX - 1;
/// Before all that netfilter itself does, and every chain that is known.
const FIRST: i32 = -2000;
/// Checkpoints by hook: before and behind raw (-300), connection tracking (-200), mangle (-150), the translation of
/// destinations (-100), filter (0), security (50), and the translation of sources (100).
const CHECKPOINTS: [(Hook, &[i32]); 5] = [
    (Hook::Prerouting, &[FIRST, -301, -299, -151, -149, -101, 300]),
    (Hook::Input, &[-151, -149, -1, 1, LAST]),
    (Hook::Forward, &[-151, -149, -1, 1, 300]),
    (Hook::Output, &[FIRST, -301, -299, -151, -149, -101, -99, -1, 1, 300]),
    (Hook::Postrouting, &[-151, -149, 99, 101, LAST]),
];
/// Of bridges: `NF_BR_PRI_FILTER_BRIDGED` is -200, `NF_BR_PRI_FILTER_OTHER` 200.
const OF_BRIDGES: [(Hook, &[i32]); 5] = [
    (Hook::Prerouting, &[FIRST, 300]),
    (Hook::Input, &[FIRST, 300]),
    (Hook::Forward, &[FIRST, 300]),
    (Hook::Output, &[FIRST, 300]),
    // Frames between two ports end here: no container gets one.
    (Hook::Postrouting, &[FIRST, 300, LAST]),
];

/// By what the packets of one process are known, in the bits of a packet that neither routers nor translations change: the
/// identification of IPv4 or the flow label of IPv6, and four bytes behind the ports, of which the last twelve bits number them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// The identification of IPv4.
    pub identification: u16,
    /// The flow label of IPv6, 20 bits.
    pub flow: u32,
    /// The first 20 bits of the four bytes.
    pub cookie: u32,
}

/// The bits of a packet's number.
pub const NUMBER: u32 = 0xfff;
/// Numbers from here on are of packets that may leave the last hook, and are dropped where they leave by a link.
pub const LEAVING: u32 = 0xf00;

/// Something that a rule or chain has done with a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The kernel's number of the packet, which another may get later.
    pub id: u32,
    /// The table's family (`NFPROTO_*`).
    pub family: u8,
    /// The table.
    pub table: String,
    /// The chain.
    pub chain: String,
    /// The rule's handle; `None`: the chain's policy, or its end.
    pub rule: Option<u64>,
    /// What became of the packet.
    pub outcome: Outcome,
    /// The packet, with the first event of each base chain.
    pub packet: Option<Seen>,
}

/// A verdict on a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The packet is dropped.
    Drop,
    /// A program decides on it.
    Queue,
    /// The packet is accepted, and translated as it may have been.
    Accept,
    /// The packet leaves the chain, by `return` or `goto`.
    Leaves,
    /// The packet goes on.
    Goes,
}

/// A packet as a base chain has seen it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// The source address.
    pub from: IpAddr,
    /// The destination address.
    pub to: IpAddr,
    /// The source port; 0 for ICMP.
    pub from_port: u16,
    /// The destination port; 0 for ICMP.
    pub to_port: u16,
    /// The index of the link that it came by.
    pub iif: Option<u32>,
    /// The index of the link that it leaves by.
    pub oif: Option<u32>,
    /// The protocol (`IPPROTO_*`).
    pub protocol: u8,
    /// The four bytes behind the ports; 0: the packet is shorter.
    pub cookie: u32,
}

/// A place on the way of packets at which the trace tells of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checkpoint {
    /// Whether the place is one of bridges.
    pub is_of_frames: bool,
    /// The hook; `None`: where a link receives or sends.
    pub hook: Option<Hook>,
    /// The priority.
    pub priority: i32,
}

/// A connection that reads the trace, and the tables with checkpoints.
#[derive(Debug)]
pub struct Trace {
    events: Socket,
    /// The connection that owns the tables, which end with it.
    _owner: Nft,
    name: String,
    /// `None`: real packets.
    mark: Option<Mark>,
    /// What the kernel lacks, in words.
    pub lacks: Vec<String>,
    /// Whether packets that leave by these links are dropped there.
    pub has_egress: bool,
}

impl Trace {
    /// Sets checkpoints for packets with this mark in the calling thread's namespace, which come in by the first links and leave by the
    /// second ones.
    ///
    /// # Errors
    /// `EOPNOTSUPP`, `EPROTONOSUPPORT`, `EINVAL`: the kernel has no nf_tables, or no tables with an owner. `EPERM`.
    pub fn start(mark: Mark, incoming: &[&str], outgoing: &[&str]) -> Result<Self> {
        let name = format!("cnitool-probe-{}", std::process::id());
        let (events, mut owner) = connect(&name, &of_hooks(Family::Inet, &name, &CHECKPOINTS, mark))?;
        let mut lacks = Vec::new();
        let mut optional = |transaction: Transaction, what: &str| {
            let done = owner.commit(&transaction);
            done.map_err(|error| lacks.push(format!("{what}: {error}"))).is_ok()
        };
        optional(of_hooks(Family::Bridge, &name, &OF_BRIDGES, mark), "rules of bridges");
        optional(of_links(&name, incoming, mark, false), "rules where links receive");
        let has_egress = optional(of_links(&name, outgoing, mark, true), "rules where links send");
        Ok(Self { events, _owner: owner, name, mark: Some(mark), lacks, has_egress })
    }

    /// Traces real packets from and to these addresses, five a second at most, of which bridges have two. An answer counts from
    /// the hook on behind which it has the address again.
    ///
    /// # Errors
    /// As [`Trace::start`].
    pub fn watch(addresses: &[IpAddr]) -> Result<Self> {
        let name = format!("cnitool-trace-{}", std::process::id());
        let (events, mut owner) = connect(&name, &watching(Family::Inet, &name, &CHECKPOINTS, addresses))?;
        let of_bridges = owner.commit(&watching(Family::Bridge, &name, &OF_BRIDGES, addresses));
        let lacks = of_bridges.err().map(|error| format!("rules of bridges: {error}")).into_iter().collect();
        Ok(Self { events, _owner: owner, name, mark: None, lacks, has_egress: false })
    }

    /// Reads events until `is_done` with all that came, or nothing has come for `patience`.
    ///
    /// # Errors
    /// `ENOBUFS`: events were lost.
    pub fn read(&self, patience: Duration, mut is_done: impl FnMut(Event) -> bool) -> Result<()> {
        let mut buffer = Vec::with_capacity(RECEIVE_LEN);
        let failed = |error: &std::io::Error| OpError::io("read", "a trace of nf_tables", error).at(HOST);
        let mut end = Instant::now() + patience;
        loop {
            buffer.clear();
            match self.events.recv(&mut buffer, MsgFlags::MSG_DONTWAIT.bits()) {
                Ok(_) => {}
                // Events come many at a time: only an empty queue is waited for.
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    let left = end.saturating_duration_since(Instant::now());
                    let mut files = [PollFd::new(self.events.as_fd(), PollFlags::POLLIN)];
                    match poll(&mut files, PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO)) {
                        Ok(0) => return Ok(()),
                        Ok(_) | Err(Errno::EINTR) => continue,
                        Err(errno) => return Err(failed(&errno.into())),
                    }
                }
                Err(error) => return Err(failed(&error)),
            }
            let mut is_over = false;
            for message in RawMessages(&buffer).filter(|message| message.kind == TRACE) {
                is_over = event(message.family(), message.attrs()).is_some_and(&mut is_done);
                end = Instant::now() + patience;
            }
            if is_over {
                return Ok(());
            }
        }
    }

    /// The number of a packet, if it has this trace's mark.
    #[must_use]
    pub fn number(&self, packet: &Seen) -> Option<u32> {
        self.mark.filter(|mark| packet.cookie & !NUMBER == mark.cookie).map(|_| packet.cookie & NUMBER)
    }

    /// The checkpoint that an event is of; `None`: it is of another program's chain.
    #[must_use]
    pub fn checkpoint(&self, event: &Event) -> Option<Checkpoint> {
        if event.table != self.name {
            return None;
        }
        let mut parts = event.chain.split('.');
        let hook = parts.next()?;
        let hooks = [Hook::Prerouting, Hook::Input, Hook::Forward, Hook::Output, Hook::Postrouting];
        let hook = hooks.into_iter().find(|known| known.name() == hook);
        let priority = parts.next()?.parse().ok()?;
        Some(Checkpoint { is_of_frames: event.family == Family::Bridge as u8, hook, priority })
    }

    /// Whether an event is the drop at the end of a packet's way.
    #[must_use]
    pub fn is_end(&self, event: &Event) -> bool {
        event.table == self.name && event.outcome == Outcome::Drop
    }
}

/// Opens a connection that reads the trace, and one that owns the first table.
fn connect(name: &str, table: &Transaction) -> Result<(Socket, Nft)> {
    let failed = |error: std::io::Error| OpError::io("open", "a trace of nf_tables", &error).at(HOST);
    let events = open_socket().map_err(failed)?;
    setsockopt(&events, sockopt::RcvBufForce, &ROOM_BYTES)
        .or_else(|_| setsockopt(&events, sockopt::RcvBuf, &ROOM_BYTES))
        .map_err(|errno| failed(errno.into()))?;
    events.add_membership(GROUP).map_err(failed)?;
    let mut owner = Nft::open(HOST)?;
    owner.commit(table)?;
    let table = Table { family: Family::Inet, name: name.to_owned().into() };
    if owner.find_table(&table)?.is_none_or(|it| !it.is_owned) {
        owner.commit(&Transaction::new(vec![Change::DeleteTable(table)]))?;
        return Err(OpError::state("create", "an nft table", "the kernel has no tables with an owner"));
    }
    Ok((events, owner))
}

impl Checkpoint {
    /// Whether a packet that the trace tells of here has begun its way.
    #[must_use]
    pub fn is_first(self) -> bool {
        self.priority == FIRST
    }

    /// Whether the packet has passed all rules here: it leaves by a link, or the node gets it.
    #[must_use]
    pub fn is_last(self) -> bool {
        self.priority == LAST
    }

    /// The next place on the way of a packet at the same hook.
    #[must_use]
    pub fn next(self) -> Option<Self> {
        let all = if self.is_of_frames { &OF_BRIDGES } else { &CHECKPOINTS };
        let (_, priorities) = all.iter().find(|(hook, _)| Some(*hook) == self.hook)?;
        let priority = *priorities.iter().find(|priority| **priority > self.priority)?;
        Some(Self { priority, ..self })
    }
}

fn of_hooks(family: Family, name: &str, checkpoints: &[(Hook, &[i32])], mark: Mark) -> Transaction {
    let table = Table { family, name: name.to_owned().into() };
    let mut changes = vec![Change::OwnTable(table.clone())];
    for (hook, priorities) in checkpoints {
        for priority in *priorities {
            let base = BaseChain { kind: ChainType::Filter, hook: *hook, priority: *priority };
            let chain = Chain { base: Some(base), ..table.chain(format!("{}.{priority}", hook.name())) };
            let rules: Vec<Vec<Expr>> = match *priority {
                FIRST => known(mark, 0, &[traced()].concat()),
                LAST => {
                    let leaving = known(mark, LEAVING, &[Expr::Verdict(Verdict::Accept)]);
                    let all = known(mark, 0, &[Expr::Verdict(Verdict::Drop)]);
                    // At the last hook of what the node itself gets, nothing leaves.
                    if *hook == Hook::Postrouting { [leaving, all].concat() } else { all }
                }
                _ => Vec::new(),
            };
            let rules: Vec<Change> = rules.into_iter().map(|exprs| Change::AppendRule(chain.rule(exprs))).collect();
            changes.push(Change::EnsureChain(chain));
            changes.extend(rules);
        }
    }
    Transaction::new(changes)
}

/// Checkpoints, and rules that have packets from or to these addresses traced.
fn watching(family: Family, name: &str, checkpoints: &[(Hook, &[i32])], addresses: &[IpAddr]) -> Transaction {
    let table = Table { family, name: name.to_owned().into() };
    let limited = table.chain("traced");
    let rate: u64 = if family == Family::Bridge { 2 } else { 3 };
    let mut changes = vec![Change::OwnTable(table.clone()), Change::EnsureChain(limited.clone())];
    changes.push(Change::AppendRule(limited.rule([vec![limit(rate)], traced()].concat())));
    for (hook, priorities) in checkpoints {
        for priority in *priorities {
            let base = BaseChain { kind: ChainType::Filter, hook: *hook, priority: *priority };
            let chain = Chain { base: Some(base), ..table.chain(format!("{}.{priority}", hook.name())) };
            changes.push(Change::EnsureChain(chain.clone()));
            // An answer has the node's address until it is translated back.
            let is_answer = (*hook, *priority) == (Hook::Prerouting, 300);
            for address in addresses.iter().filter(|_| *priority == FIRST || is_answer) {
                for is_source in [true, false].into_iter().filter(|is_source| !(*is_source && is_answer)) {
                    let steps =
                        [with_address(*address, is_source), vec![Expr::Verdict(Verdict::Jump(limited.name.clone()))]];
                    changes.push(Change::AppendRule(chain.rule(steps.concat())));
                }
            }
        }
    }
    Transaction::new(changes)
}

/// `limit rate N/second` (enum nft_limit_attributes).
fn limit(rate: u64) -> Expr {
    let mut w = Writer::default();
    w.attr(1, &rate.to_be_bytes());
    w.attr(2, &1_u64.to_be_bytes());
    w.be32(3, u32::try_from(rate).unwrap_or_default());
    Expr::Other { name: "limit".to_owned(), data: w.finish().unwrap_or_default() }
}

/// Compares the source or the destination of packets.
fn with_address(address: IpAddr, is_source: bool) -> Vec<Expr> {
    let (protocol, offset, length) = match (address, is_source) {
        (IpAddr::V4(_), true) => (0x0800, 12, 4),
        (IpAddr::V4(_), false) => (0x0800, 16, 4),
        (IpAddr::V6(_), true) => (0x86dd, 8, 16),
        (IpAddr::V6(_), false) => (0x86dd, 24, 16),
    };
    let load = Expr::Payload { base: Base::Network, offset, length, to: Register::R1 };
    [of_protocol(protocol), vec![load, Expr::Cmp(Cmp::Eq, Register::R1, super::octets(address))]].concat()
}

/// Compares the EtherType of packets.
fn of_protocol(number: u16) -> Vec<Expr> {
    const PROTOCOL: u32 = 1;
    vec![meta(&[(1, 1), (2, PROTOCOL)]), Expr::Cmp(Cmp::Eq, Register::R1, number.to_be_bytes().to_vec())]
}

fn of_links(name: &str, links: &[&str], mark: Mark, is_egress: bool) -> Transaction {
    let table = Table { family: Family::Netdev, name: name.to_owned().into() };
    let mut changes = vec![Change::OwnTable(table.clone())];
    for link in links {
        let kind = if is_egress { "egress" } else { "ingress" };
        let priority = if is_egress { LAST } else { FIRST };
        let chain = table.chain(format!("{kind}.{priority}.{link}"));
        let rules = match is_egress {
            true => known(mark, 0, &[traced(), vec![Expr::Verdict(Verdict::Drop)]].concat()),
            false => known(mark, 0, &traced()),
        };
        let rules: Vec<Change> = rules.into_iter().map(|exprs| Change::AppendRule(chain.rule(exprs))).collect();
        changes.push(Change::EnsureLinkChain { chain, link: (*link).to_owned(), is_egress, priority });
        changes.extend(rules);
    }
    Transaction::new(changes)
}

/// `meta nftrace set 1`.
fn traced() -> Vec<Expr> {
    const NFTRACE: u32 = 12;
    vec![Expr::Load(Register::R1, vec![1]), meta(&[(2, NFTRACE), (3, 1)])]
}

fn meta(attributes: &[(u16, u32)]) -> Expr {
    let mut w = Writer::default();
    attributes.iter().for_each(|(kind, value)| w.be32(*kind, *value));
    Expr::Other { name: "meta".to_owned(), data: w.finish().unwrap_or_default() }
}

/// Rules with these steps for packets with the mark, and with a number from `from` on.
fn known(mark: Mark, from: u32, steps: &[Expr]) -> Vec<Vec<Expr>> {
    let load = |base, offset, length| Expr::Payload { base, offset, length, to: Register::R1 };
    let is = |value: Vec<u8>| Expr::Cmp(Cmp::Eq, Register::R1, value);
    let ipv4 = [of_protocol(0x0800), vec![load(Base::Network, 4, 2), is(mark.identification.to_be_bytes().to_vec())]];
    let flow = [
        load(Base::Network, 0, 4),
        Expr::Mask(Register::R1, 0x000f_ffff_u32.to_be_bytes().to_vec()),
        is(mark.flow.to_be_bytes().to_vec()),
    ];
    let ipv6 = [of_protocol(0x86dd), flow.to_vec()];
    let bits = !NUMBER | from;
    let cookie = |l4: u8, offset| {
        vec![
            Expr::Meta(Meta::L4Proto, Register::R1),
            is(vec![l4]),
            load(Base::Transport, offset, 4),
            Expr::Mask(Register::R1, bits.to_be_bytes().to_vec()),
            is((mark.cookie | from).to_be_bytes().to_vec()),
        ]
    };
    let of = |family: &[Vec<Expr>; 2], l4: u8, offset| [family.concat(), cookie(l4, offset), steps.to_vec()].concat();
    vec![
        of(&ipv4, TCP, 4),
        of(&ipv4, UDP, 8),
        of(&ipv4, ICMP, 8),
        of(&ipv6, TCP, 4),
        of(&ipv6, UDP, 8),
        of(&ipv6, ICMPV6, 8),
    ]
}

/// `IPPROTO_TCP` and others.
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMP: u8 = 1;
pub(crate) const ICMPV6: u8 = 58;

/// Reads an event (enum nft_trace_attributes).
fn event(family: u8, attrs: Attrs<'_>) -> Option<Event> {
    const RULE: u32 = 3;
    let verdict = attrs.nested(5).be32(1).or_else(|| attrs.be32(16));
    Some(Event {
        id: attrs.be32(6)?,
        family,
        table: attrs.text(1)?,
        chain: attrs.text(2)?,
        rule: attrs.be64(3).filter(|_| attrs.be32(4) == Some(RULE)),
        // linux/netfilter.h: NF_DROP 0, NF_ACCEPT 1, NF_QUEUE 3, with the queue in the upper bits; linux/netfilter/nf_tables.h: NFT_GOTO,
        // NFT_RETURN.
        outcome: match verdict.map(u32::cast_signed) {
            Some(0) => Outcome::Drop,
            Some(1) => Outcome::Accept,
            Some(-5 | -4) => Outcome::Leaves,
            Some(verdict) if verdict > 0 && verdict & 0xff == 3 => Outcome::Queue,
            _ => Outcome::Goes,
        },
        packet: seen(attrs),
    })
}

fn seen(attrs: Attrs<'_>) -> Option<Seen> {
    let (network, transport) = (attrs.get(8)?, attrs.get(9)?);
    let v4 = |at: usize| network.get(at..)?.first_chunk::<4>().copied().map(IpAddr::from);
    let v6 = |at: usize| network.get(at..)?.first_chunk::<16>().copied().map(IpAddr::from);
    let (from, to, protocol) = match network.first()? >> 4 {
        4 => (v4(12)?, v4(16)?, *network.get(9)?),
        6 => (v6(8)?, v6(24)?, *network.get(6)?),
        _ => return None,
    };
    let cookie = |at: usize| transport.get(at..)?.first_chunk().copied().map(u32::from_be_bytes);
    let port = |at: usize| transport.get(at..)?.first_chunk().copied().map(u16::from_be_bytes);
    let is_icmp = [ICMP, ICMPV6].contains(&protocol);
    let [from_port, to_port] = [0, 2].map(|at| port(at).filter(|_| !is_icmp).unwrap_or_default());
    let cookie = cookie(if protocol == TCP { 4 } else { 8 }).unwrap_or_default();
    Some(Seen { from, to, from_port, to_port, iif: attrs.be32(10), oif: attrs.be32(12), protocol, cookie })
}
