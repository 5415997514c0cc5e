//! Encodes rules by nf_tables' own expressions, as nft(8) does. They need no iptables extension in the kernel.

use std::net::SocketAddr;

use ipnetwork::IpNetwork;
use netops::nft::{
    Base, BaseChain, Cmp, Expr, Family, Meta, Register, Rule as NftRule, Side, Table, Verdict, address_in, nfproto_is,
    octets,
};

use super::rule::{Is, Masked, Rule, Target};
use super::table::NewRule;
use super::xt;

const R: Register = Register::R1;
/// The space for comment and note together (`NFT_USERDATA_MAXLEN`, less type, length and NUL of each).
const COMMENT_AND_NOTE_MAX: usize = 250;
/// nft(8) prints longer comments but cannot load them again (`NFTNL_UDATA_COMMENT_MAXLEN`).
const COMMENT_MAX: usize = 128;

/// A table of our own with its base chains; its rules are native.
#[derive(Debug, Clone)]
pub struct NativeTable {
    /// Family and name: `inet`, `ip` or `ip6`; before Linux 5.2 there is no NAT in `inet`.
    pub table: Table,
    /// The base chains. Each is created with its first rule. Other chains need [`super::Edit::CreateChain`].
    pub base_chains: &'static [(&'static str, BaseChain)],
}

/// Why a rule of iptables cannot be encoded natively.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotNative {
    /// The comment is too long for nft(8); iptables takes 255 bytes.
    #[error("its comment has {0} bytes, and nft loads {COMMENT_MAX}; shorten it")]
    Comment(usize),
    /// nft(8) has no syntax for these characters in a comment.
    #[error("its comment has a quotation mark or a control character, which nft cannot load; leave it out")]
    Quote,
    /// The comment and the note do not fit into the rule's user data.
    #[error("its comment and its note have {0} bytes, and nf_tables keeps {COMMENT_AND_NOTE_MAX}; shorten them")]
    Note(usize),
    /// A rule has one family: that of its table, unless the table is `inet`.
    #[error("it has addresses of both families, or of another than its table's; write one rule for each family")]
    Family,
    /// Without a protocol, nf_tables would match the ports in any protocol's header.
    #[error("it has a port but no protocol; set the protocol")]
    Port,
    /// The rule has `--dport` and `--dports`.
    #[error("it has both a port and a list of ports; leave one out")]
    Ports,
    /// The rule has [`Rule::words`].
    #[error("it has words that only the programs of iptables know; leave them out")]
    Words,
    /// `! -i +` matches no interface at all.
    #[error("it excludes every interface, so no packet can match; leave it out")]
    Interface,
}

/// The rules that are read back after this one was written: one for each of its ports, because a rule compares with one
/// value, and without conditions that always hold.
pub(crate) fn spelled(rule: &Rule, family: Family) -> Result<Vec<Rule>, NotNative> {
    refuse(rule, family)?;
    let mut plain = with_whole_prefixes(rule);
    let is_any = |is: &mut Is<IpNetwork>| !is.negated && is.value.prefix() == 0;
    let any = [&mut plain.source, &mut plain.destination].map(|is| is.take_if(is_any));
    if family == Family::Inet && plain.source.is_none() && plain.destination.is_none() {
        plain.source = any.into_iter().flatten().next(); // says the family
    }
    for name in [&mut plain.input, &mut plain.output] {
        name.take_if(|is| is.value == "+");
    }
    let mut ports = std::mem::take(&mut plain.ports);
    ports.sort_unstable();
    ports.dedup();
    if ports.is_empty() {
        return Ok(vec![plain]);
    }
    Ok(ports.into_iter().map(|port| Rule { port: Some(port), ..plain.clone() }).collect())
}

/// The rule as iptables reads it back, without addresses and interfaces that match everything.
pub(crate) fn spelled_by_iptables(rule: &Rule) -> Rule {
    let mut plain = with_whole_prefixes(rule);
    for address in [&mut plain.source, &mut plain.destination] {
        address.take_if(|is| !is.negated && is.value.prefix() == 0);
    }
    for name in [&mut plain.input, &mut plain.output] {
        name.take_if(|is| !is.negated && is.value == "+");
    }
    plain
}

/// Clears the address bits after the prefix.
fn with_whole_prefixes(rule: &Rule) -> Rule {
    let mut plain = rule.clone();
    for is in [&mut plain.source, &mut plain.destination].into_iter().flatten() {
        let net = is.value;
        is.value = IpNetwork::new(net.network(), net.prefix()).unwrap_or(net);
    }
    plain
}

/// The native rules of this chain. Comments are stored in nft(8)'s form.
pub(crate) fn encoded(new: &NewRule, table: &Table) -> Result<Vec<NftRule>, NotNative> {
    let NewRule { chain, rule: Rule { comment, .. }, note } = new;
    if let (Some(comment), Some(note)) = (comment, note)
        && comment.len() + note.len() > COMMENT_AND_NOTE_MAX
    {
        return Err(NotNative::Note(comment.len() + note.len()));
    }
    let chain = table.chain(chain.clone());
    let encoded = |one: Rule| {
        let rule = chain.rule(expressions(&one, table.family));
        NftRule { comment: one.comment, note: note.clone(), ..rule }
    };
    Ok(spelled(&new.rule, table.family)?.into_iter().map(encoded).collect())
}

fn refuse(rule: &Rule, family: Family) -> Result<(), NotNative> {
    if let Some(length) = rule.comment.as_ref().map(String::len).filter(|length| *length > COMMENT_MAX) {
        return Err(NotNative::Comment(length));
    }
    if rule.comment.iter().flat_map(|comment| comment.chars()).any(|c| c == '"' || c.is_control()) {
        return Err(NotNative::Quote);
    }
    let to_port = matches!(rule.target, Target::Dnat(to) if to.port() != 0);
    let has_port = rule.port.is_some() || !rule.ports.is_empty() || to_port;
    if has_port && rule.protocol.is_none() {
        return Err(NotNative::Port);
    }
    if !rule.words.is_empty() || rule.translated || rule.target == Target::Reject {
        return Err(NotNative::Words);
    }
    if rule.port.is_some() && !rule.ports.is_empty() {
        return Err(NotNative::Ports);
    }
    if [&rule.input, &rule.output].into_iter().flatten().any(|is| is.negated && is.value == "+") {
        return Err(NotNative::Interface);
    }
    if has_one_family(rule, family) { Ok(()) } else { Err(NotNative::Family) }
}

/// The conditions, in an order in which nft(8) prints each as one statement: the network header before the transport
/// header.
fn expressions(rule: &Rule, family: Family) -> Vec<Expr> {
    let mut exprs = Vec::new();
    for (meta, is) in [(Meta::IifName, &rule.input), (Meta::OifName, &rule.output)] {
        xt::interface(&mut exprs, meta, is.as_ref());
        // nft(8) compares the complete name.
        if let Some(Expr::Cmp(_, _, name)) = exprs.last_mut().filter(|_| is.is_some())
            && name.last() == Some(&0)
        {
            name.resize(16, 0);
        }
    }
    let ip = rule.source.as_ref().or(rule.destination.as_ref()).map(|is| is.value.ip());
    if let (Some(ip), Family::Inet) = (ip, family) {
        exprs.extend(nfproto_is(ip));
    }
    address(&mut exprs, Side::Source, rule.source.as_ref());
    address(&mut exprs, Side::Destination, rule.destination.as_ref());
    if let Some(protocol) = rule.protocol {
        exprs.extend([Expr::Meta(Meta::L4Proto, R), Expr::Cmp(Cmp::Eq, R, vec![protocol as u8])]);
    }
    if let Some(port) = rule.port {
        exprs.push(Expr::Payload { base: Base::Transport, offset: 2, length: 2, to: R });
        exprs.push(Expr::Cmp(Cmp::Eq, R, port.to_be_bytes().to_vec()));
    }
    if rule.to_local {
        exprs.extend([Expr::DestinationType(R), Expr::Cmp(Cmp::Eq, R, xt::LOCAL.to_ne_bytes().to_vec())]);
    }
    if rule.established {
        let states = u32::from(xt::ESTABLISHED_OR_RELATED).to_ne_bytes().to_vec();
        exprs.extend([Expr::CtState(R), Expr::Mask(R, states), Expr::Cmp(Cmp::Neq, R, vec![0; 4])]);
    }
    exprs.extend(rule.mark.into_iter().flat_map(xt::mark));
    target(&mut exprs, &rule.target);
    exprs
}

/// Returns whether all addresses have the table's family.
fn has_one_family(rule: &Rule, family: Family) -> bool {
    let networks = [&rule.source, &rule.destination].into_iter().flatten().map(|is| is.value.ip());
    let dnat = if let Target::Dnat(to) = rule.target { Some(to.ip()) } else { None };
    let are_ipv4: Vec<bool> = networks.chain(dnat).map(|address| address.is_ipv4()).collect();
    match family {
        Family::Ip => are_ipv4.iter().all(|is_ipv4| *is_ipv4),
        Family::Ip6 => are_ipv4.iter().all(|is_ipv4| !is_ipv4),
        Family::Inet => are_ipv4.windows(2).all(|pair| pair[0] == pair[1]),
        Family::Netdev | Family::Bridge => false,
    }
}

fn address(exprs: &mut Vec<Expr>, side: Side, is: Option<&Is<IpNetwork>>) {
    match is {
        // The prefix matches any address of its family.
        Some(Is { value, negated: false }) if value.prefix() == 0 => {}
        Some(Is { value, negated }) => exprs.extend(address_in(side, xt::cmp(*negated), *value)),
        None => {}
    }
}

fn target(exprs: &mut Vec<Expr>, target: &Target) {
    match target {
        Target::None | Target::Reject => {}
        Target::Jump(chain) => exprs.push(Expr::Verdict(Verdict::Jump(chain.clone().into()))),
        Target::Accept => exprs.push(Expr::Verdict(Verdict::Accept)),
        Target::Drop => exprs.push(Expr::Verdict(Verdict::Drop)),
        Target::Return => exprs.push(Expr::Verdict(Verdict::Return)),
        Target::Masquerade => exprs.push(Expr::Masquerade),
        Target::Dnat(to) => dnat(exprs, *to),
        Target::SetMark(bits) => set_mark(exprs, *bits),
    }
}

fn dnat(exprs: &mut Vec<Expr>, to: SocketAddr) {
    let family = Family::of(to.ip());
    exprs.push(Expr::Load(R, octets(to.ip())));
    let port = (to.port() != 0).then_some(Register::R2);
    exprs.extend(port.map(|register| Expr::Load(register, to.port().to_be_bytes().to_vec())));
    exprs.push(Expr::Dnat { family, address: R, port });
}

/// Sets the bits of the mask; the other bits of the mark stay.
fn set_mark(exprs: &mut Vec<Expr>, Masked { value, mask }: Masked) {
    if mask == u32::MAX {
        exprs.push(Expr::Load(R, value.to_ne_bytes().to_vec()));
    } else {
        let (kept, turned) = ((!mask).to_ne_bytes().to_vec(), value.to_ne_bytes().to_vec());
        exprs.extend([Expr::Meta(Meta::Mark, R), Expr::MaskXor(R, kept, turned)]);
    }
    exprs.push(Expr::SetMark(R));
}

#[cfg(test)]
mod tests {
    use super::super::rule::{is, is_not};
    use super::*;

    #[test]
    fn rules_that_only_iptables_can_express_are_refused() {
        use Family::{Bridge, Inet, Ip, Ip6};
        let none = Rule::default;
        let v4 = || is("10.1.0.2/32".parse().unwrap());
        let v6 = || is("fd00::/64".parse().unwrap());
        let to = |text: &str| Target::Dnat(text.parse().unwrap());
        let tcp = Some(super::super::rule::Protocol::Tcp);
        let cases = [
            (Inet, Rule { comment: Some("x".repeat(129)), ..none() }, Some(NotNative::Comment(129))),
            (Inet, Rule { comment: Some("x".repeat(128)), ..none() }, None),
            (Inet, Rule { comment: Some("a \"b\"".to_owned()), ..none() }, Some(NotNative::Quote)),
            (Inet, Rule { source: v4(), destination: v6(), ..none() }, Some(NotNative::Family)),
            (Inet, Rule { source: v4(), target: to("[fd00::2]:0"), ..none() }, Some(NotNative::Family)),
            (Ip, Rule { source: v6(), ..none() }, Some(NotNative::Family)),
            (Ip6, Rule { source: is("0.0.0.0/0".parse().unwrap()), ..none() }, Some(NotNative::Family)),
            (Ip6, Rule { destination: v6(), target: to("[fd00::2]:0"), ..none() }, None),
            (Bridge, none(), Some(NotNative::Family)),
            (Ip, Rule { port: Some(1), ..none() }, Some(NotNative::Port)),
            (Ip, Rule { ports: vec![1, 2], ..none() }, Some(NotNative::Port)),
            (Ip, Rule { target: to("10.1.0.2:80"), ..none() }, Some(NotNative::Port)),
            (Ip, Rule { protocol: tcp, port: Some(1), ports: vec![2], ..none() }, Some(NotNative::Ports)),
            (Ip, Rule { output: is_not("+".to_owned()), ..none() }, Some(NotNative::Interface)),
        ];
        for (family, rule, expected) in cases {
            assert_eq!(spelled(&rule, family).err(), expected, "{rule}");
        }
        let noted = |length| {
            let rule = Rule { comment: Some("x".repeat(128)), ..none() };
            let new = NewRule { chain: "c".to_owned(), rule, note: Some("y".repeat(length)) };
            encoded(&new, &Table::new(Inet, "t")).err()
        };
        assert_eq!((noted(122), noted(123)), (None, Some(NotNative::Note(251))));
    }
}
