//! Encodes and decodes the kernel's structures of matches and targets (linux/netfilter/xt_*.h, nf_nat.h).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnetwork::IpNetwork;
use netops::nft::{Base, Cmp, Expr, Extension, Family, Meta, Register, Verdict, octets};

use super::rule::{Masked, Protocol};
use crate::iptables::rule::{Is, Rule, Target};

/// `XT_MULTI_PORTS`.
pub(crate) const MAX_PORTS: usize = 15;
/// `XT_MULTIPORT_DESTINATION`.
const TO_PORTS: u8 = 1;
/// `RTN_LOCAL`, and its bit in a mask of address types.
pub(crate) const LOCAL: u32 = 2;
const LOCAL_BIT: u16 = 1 << LOCAL;
/// `XT_CONNTRACK_STATE`.
const STATE: u16 = 1;
/// `NF_CT_STATE_BIT` of `IP_CT_ESTABLISHED` and of `IP_CT_RELATED`, in nf_tables and in xtables.
pub(crate) const ESTABLISHED_OR_RELATED: u16 = 2 | 4;
/// `XT_CONNTRACK_STATE_DNAT` (linux/netfilter/xt_conntrack.h).
const DNAT: u16 = 1 << 7;
/// `XT_SCTP_DEST_PORTS`.
const SCTP_TO_PORTS: u32 = 2;
/// `XT_DCCP_DEST_PORTS`.
const DCCP_TO_PORTS: u16 = 2;
/// `NF_NAT_RANGE_MAP_IPS`, `NF_NAT_RANGE_PROTO_SPECIFIED`.
const MAP_IPS: u32 = 1;
const MAP_PORT: u32 = 2;

/// `struct xt_comment_info`.
pub(crate) fn comment(text: &str) -> Extension {
    let mut info = text.as_bytes().to_vec();
    info.truncate(255);
    info.resize(256, 0);
    Extension::new("comment", 0, info)
}

/// `struct xt_multiport_v1`: flags, count, ports, which of them start a range, inversion.
pub(crate) fn multiport(ports: &[u16]) -> Extension {
    let ports = ports.get(..MAX_PORTS).unwrap_or(ports);
    let mut info = vec![TO_PORTS, u8::try_from(ports.len()).unwrap_or_default()];
    info.extend(ports.iter().flat_map(|port| port.to_ne_bytes()));
    info.resize(48, 0);
    Extension::new("multiport", 1, info)
}

/// `struct xt_addrtype_info_v1`: types of the source, of the destination, flags.
pub(crate) fn to_local() -> Extension {
    let mut info = vec![0; 8];
    put(&mut info, 2, &LOCAL_BIT.to_ne_bytes());
    Extension::new("addrtype", 1, info)
}

/// `struct xt_conntrack_mtinfo3`: eight addresses, expiry, protocol and ports; then the flags of what is matched and
/// what is inverted; states.
pub(crate) fn established() -> Extension {
    in_state(ESTABLISHED_OR_RELATED)
}

/// The same for connections whose destination was translated.
pub(crate) fn translated() -> Extension {
    in_state(DNAT)
}

fn in_state(states: u16) -> Extension {
    let mut info = vec![0; 164];
    put(&mut info, 146, &STATE.to_ne_bytes());
    put(&mut info, 150, &states.to_ne_bytes());
    Extension::new("conntrack", 3, info)
}

/// `struct xt_sctp_info`. The ports of TCP and UDP need no match.
pub(crate) fn sctp_port(port: u16) -> Extension {
    let mut info = vec![0; 292];
    put(&mut info, 0, &port.to_ne_bytes());
    put(&mut info, 2, &port.to_ne_bytes());
    // struct xt_sctp_flag_info: none of four, as iptables encodes it.
    (0..4).for_each(|entry| put(&mut info, 268 + 3 * entry, &[0xff]));
    put(&mut info, 284, &SCTP_TO_PORTS.to_ne_bytes());
    Extension::new("sctp", 0, info)
}

/// `struct xt_dccp_info`: destination ports, source ports, flags, inverted flags, types, option.
pub(crate) fn dccp_port(port: u16) -> Extension {
    let mut info = vec![0; 16];
    put(&mut info, 0, &port.to_ne_bytes());
    put(&mut info, 2, &port.to_ne_bytes());
    put(&mut info, 8, &DCCP_TO_PORTS.to_ne_bytes());
    Extension::new("dccp", 0, info)
}

/// `struct nf_nat_ipv4_multi_range_compat` of one empty range, or an empty `struct nf_nat_range`.
pub(crate) fn masquerade(family: Family) -> Extension {
    let mut info = vec![0; if family == Family::Ip6 { 40 } else { 24 }];
    if family != Family::Ip6 {
        put(&mut info, 0, &1_u32.to_ne_bytes());
    }
    Extension::new("MASQUERADE", 0, info)
}

/// `struct nf_nat_range2`: flags, first and last address, first and last port, base port.
pub(crate) fn dnat(to: SocketAddr) -> Extension {
    let mut info = vec![0; 42];
    let flags = if to.port() == 0 { MAP_IPS } else { MAP_IPS | MAP_PORT };
    put(&mut info, 0, &flags.to_ne_bytes());
    for at in [4, 20] {
        put(&mut info, at, &octets(to.ip()));
    }
    for at in [36, 38] {
        put(&mut info, at, &to.port().to_be_bytes());
    }
    Extension::new("DNAT", 2, info)
}

/// `struct xt_mark_tginfo2`.
pub(crate) fn set_mark(bits: Masked) -> Extension {
    let info = [bits.value.to_ne_bytes(), bits.mask.to_ne_bytes()].concat();
    Extension::new("MARK", 2, info)
}

fn put(info: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = info.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

/// Whether a `struct xt_multiport` of any revision may match one of these ports.
pub(crate) fn has_port(info: &[u8], ports: &[u16]) -> bool {
    let (Some([_, count]), Some(listed)) = (info.first_chunk(), info.get(2..)) else { return true };
    let listed = listed.chunks_exact(2).take(usize::from(*count)).map(|port| u16::from_ne_bytes([port[0], port[1]]));
    // A range or an inversion is decoded: then the rule is none of ours.
    let is_plain = info.get(32..48).is_some_and(|rest| rest.iter().all(|byte| *byte == 0));
    !is_plain || listed.into_iter().any(|port| ports.contains(&port))
}

/// The condition of an iptables match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Match {
    Comment(String),
    Port(Protocol, u16),
    Ports(Vec<u16>),
    ToLocal,
    Established,
    Translated,
    Mark(Masked),
}

/// Decodes a match; `None` if it has any other condition.
pub(crate) fn read_match(extension: &Extension) -> Option<Match> {
    let info = Info(&extension.info);
    let protocol = Protocol::ALL.into_iter().find(|protocol| protocol.name() == extension.name);
    match (extension.name.as_str(), extension.revision) {
        ("comment", 0) => Some(Match::Comment(extension.text())),
        ("multiport", 1) => {
            let count = usize::from(info.byte(1)?);
            let ports = (0..count).map(|index| info.u16(2 + 2 * index)).collect::<Option<_>>()?;
            let is_plain = info.byte(0)? == TO_PORTS && count <= MAX_PORTS && info.is_zero(32..48);
            is_plain.then_some(Match::Ports(ports))
        }
        // Revision 0 has two inversion flags; later ones have one word of flags.
        ("addrtype", 0 | 1) => {
            let is_plain = info.u16(0)? == 0 && info.u16(2)? == LOCAL_BIT && info.is_zero(4..extension.info.len());
            is_plain.then_some(Match::ToLocal)
        }
        ("conntrack", 2 | 3) => {
            let states = info.u16(150)?;
            let is_plain = info.u16(146)? == STATE && info.u16(148)? == 0;
            match states {
                ESTABLISHED_OR_RELATED if is_plain => Some(Match::Established),
                DNAT if is_plain => Some(Match::Translated),
                _ => None,
            }
        }
        ("mark", 1) => {
            let bits = Masked { value: info.u32(0)?, mask: info.u32(4)? };
            (info.byte(8)? == 0).then_some(Match::Mark(bits))
        }
        // struct xt_tcp, struct xt_udp: first and last port, then the other conditions on the header.
        ("tcp" | "udp", 0) => {
            let any_source = info.u16(0)? == 0 && info.u16(2)? == u16::MAX;
            let is_plain = any_source && info.u16(4)? == info.u16(6)? && info.is_zero(8..12);
            is_plain.then_some(Match::Port(protocol?, info.u16(4)?))
        }
        ("sctp", 0) => {
            let is_plain = info.u32(284)? == SCTP_TO_PORTS && info.u32(288)? == 0 && info.u16(0)? == info.u16(2)?;
            is_plain.then_some(Match::Port(protocol?, info.u16(0)?))
        }
        ("dccp", 0) => {
            let is_plain = info.u16(8)? == DCCP_TO_PORTS && info.u16(10)? == 0 && info.u16(0)? == info.u16(2)?;
            is_plain.then_some(Match::Port(protocol?, info.u16(0)?))
        }
        _ => None,
    }
}

/// Returns whether the extension is a plain `MASQUERADE`.
pub(crate) fn is_masquerade(extension: &Extension, family: Family) -> bool {
    extension.name == "MASQUERADE" && *extension == masquerade(family)
}

/// Decodes a `DNAT` to one address and at most one port.
pub(crate) fn read_dnat(extension: &Extension, family: Family) -> Option<SocketAddr> {
    let info = Info(&extension.info);
    let (flags, first, last, port, last_port) = match (extension.revision, family) {
        // struct nf_nat_ipv4_multi_range_compat: the number of ranges, flags, addresses, ports.
        (0, Family::Ip) if info.u32(0)? == 1 => {
            (info.u32(4)?, info.ipv4(8)?, info.ipv4(12)?, info.be16(16)?, info.be16(18)?)
        }
        (1 | 2, Family::Ip) => (info.u32(0)?, info.ipv4(4)?, info.ipv4(20)?, info.be16(36)?, info.be16(38)?),
        (1 | 2, Family::Ip6) => (info.u32(0)?, info.ipv6(4)?, info.ipv6(20)?, info.be16(36)?, info.be16(38)?),
        _ => return None,
    };
    let has_port = flags & MAP_PORT != 0;
    let is_plain = flags & !MAP_PORT == MAP_IPS && first == last && (!has_port || port == last_port);
    is_plain.then_some(SocketAddr::new(first, if has_port { port } else { 0 }))
}

/// Decodes `MARK --set-xmark`.
pub(crate) fn read_mark(extension: &Extension) -> Option<Masked> {
    let info = Info(&extension.info);
    (extension.revision == 2).then_some(Masked { value: info.u32(0)?, mask: info.u32(4)? })
}

/// A structure, decoded without trusting its length.
struct Info<'a>(&'a [u8]);

impl Info<'_> {
    fn array<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.0.get(at..)?.first_chunk().copied()
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.0.get(at).copied()
    }

    fn u16(&self, at: usize) -> Option<u16> {
        self.array(at).map(u16::from_ne_bytes)
    }

    fn be16(&self, at: usize) -> Option<u16> {
        self.array(at).map(u16::from_be_bytes)
    }

    fn u32(&self, at: usize) -> Option<u32> {
        self.array(at).map(u32::from_ne_bytes)
    }

    fn ipv4(&self, at: usize) -> Option<IpAddr> {
        self.array::<4>(at).map(|octets| Ipv4Addr::from(octets).into())
    }

    fn ipv6(&self, at: usize) -> Option<IpAddr> {
        self.array::<16>(at).map(|octets| Ipv6Addr::from(octets).into())
    }

    fn is_zero(&self, range: std::ops::Range<usize>) -> bool {
        self.0.get(range).is_some_and(|bytes| bytes.iter().all(|byte| *byte == 0))
    }
}

const R: Register = Register::R1;
/// `IFNAMSIZ` less the final NUL.
const IFNAME_MAX: usize = 15;

/// The rule's expressions, in the order of iptables.
pub(crate) fn expressions(rule: &Rule, family: Family) -> Vec<Expr> {
    let mut exprs = Vec::new();
    interface(&mut exprs, Meta::IifName, rule.input.as_ref());
    interface(&mut exprs, Meta::OifName, rule.output.as_ref());
    if let Some(protocol) = rule.protocol {
        exprs.extend([Expr::Meta(Meta::L4Proto, R), Expr::Cmp(Cmp::Eq, R, vec![protocol as u8])]);
    }
    let (source_at, destination_at) = if family == Family::Ip6 { (8, 24) } else { (12, 16) };
    address(&mut exprs, source_at, rule.source.as_ref());
    address(&mut exprs, destination_at, rule.destination.as_ref());
    matches(&mut exprs, rule);
    exprs.push(Expr::Counter);
    exprs.extend(target(&rule.target, family));
    exprs
}

/// A complete name is compared with its final NUL, a pattern such as `eth+` without.
pub(super) fn interface(exprs: &mut Vec<Expr>, meta: Meta, is: Option<&Is<String>>) {
    let Some(Is { value, negated }) = is else { return };
    let mut name = value.clone().into_bytes();
    match name.strip_suffix(b"+") {
        // The pattern matches any interface, so it is no condition.
        Some([]) => return,
        Some(start) => name.truncate(start.len()),
        None => {
            name.truncate(IFNAME_MAX);
            name.push(0);
        }
    }
    exprs.extend([Expr::Meta(meta, R), Expr::Cmp(cmp(*negated), R, name)]);
}

/// A prefix of whole bytes is compared directly; one that ends within a byte is masked.
fn address(exprs: &mut Vec<Expr>, offset: u32, is: Option<&Is<IpNetwork>>) {
    let Some(Is { value: net, negated }) = is else { return };
    let mut network = octets(net.network());
    let whole = usize::from(net.prefix() / 8);
    let is_whole = net.prefix().is_multiple_of(8);
    match (is_whole, whole) {
        // The prefix matches any address, so it is no condition.
        (true, 0) if !negated => return,
        (true, 1..) => network.truncate(whole),
        _ => {}
    }
    let length = u32::try_from(network.len()).unwrap_or_default();
    exprs.push(Expr::Payload { base: Base::Network, offset, length, to: R });
    if !is_whole || whole == 0 {
        exprs.push(Expr::Mask(R, octets(net.mask())));
    }
    exprs.push(Expr::Cmp(cmp(*negated), R, network));
}

fn matches(exprs: &mut Vec<Expr>, rule: &Rule) {
    exprs.extend(rule.comment.as_deref().map(|text| Expr::Match(comment(text))));
    match (rule.port, rule.protocol) {
        (Some(port), Some(Protocol::Dccp)) => exprs.push(Expr::Match(dccp_port(port))),
        (Some(port), Some(Protocol::Sctp)) => exprs.push(Expr::Match(sctp_port(port))),
        (Some(port), _) => exprs.extend([
            Expr::Payload { base: Base::Transport, offset: 2, length: 2, to: R },
            Expr::Cmp(Cmp::Eq, R, port.to_be_bytes().to_vec()),
        ]),
        (None, _) => {}
    }
    if !rule.ports.is_empty() {
        exprs.push(Expr::Match(multiport(&rule.ports)));
    }
    if rule.to_local {
        exprs.push(Expr::Match(to_local()));
    }
    if rule.established {
        exprs.push(Expr::Match(established()));
    }
    if rule.translated {
        exprs.push(Expr::Match(translated()));
    }
    if let Some(mark) = rule.mark {
        exprs.extend(self::mark(mark));
    }
}

pub(super) fn mark(mark: Masked) -> Vec<Expr> {
    let mut exprs = vec![Expr::Meta(Meta::Mark, R)];
    if mark.mask != u32::MAX {
        exprs.push(Expr::Mask(R, mark.mask.to_ne_bytes().to_vec()));
    }
    exprs.push(Expr::Cmp(Cmp::Eq, R, mark.value.to_ne_bytes().to_vec()));
    exprs
}

fn target(target: &Target, family: Family) -> Option<Expr> {
    Some(match target {
        // `native::refuse` refuses to write Target::Reject.
        Target::None | Target::Reject => return None,
        Target::Jump(chain) => Expr::Verdict(Verdict::Jump(chain.clone().into())),
        Target::Accept => Expr::Verdict(Verdict::Accept),
        Target::Drop => Expr::Verdict(Verdict::Drop),
        Target::Return => Expr::Verdict(Verdict::Return),
        Target::Masquerade => Expr::Target(masquerade(family)),
        Target::Dnat(to) => Expr::Target(dnat(*to)),
        Target::SetMark(bits) => Expr::Target(set_mark(*bits)),
    })
}

pub(super) fn cmp(negated: bool) -> Cmp {
    if negated { Cmp::Neq } else { Cmp::Eq }
}
