//! Encodes a rule as iptables-nft 1.8.9 does: by nf_tables' own expressions where they exist, otherwise by matches and
//! targets of iptables.

use ipnetwork::IpNetwork;
use netops::nft::{Base, Cmp, Expr, Family, Meta, Register, Verdict, octets};

use super::rule::{Is, Masked, Protocol, Rule, Target};
use super::xt;

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
    exprs.extend(rule.comment.as_deref().map(|text| Expr::Match(xt::comment(text))));
    match (rule.port, rule.protocol) {
        (Some(port), Some(Protocol::Dccp)) => exprs.push(Expr::Match(xt::dccp_port(port))),
        (Some(port), Some(Protocol::Sctp)) => exprs.push(Expr::Match(xt::sctp_port(port))),
        (Some(port), _) => exprs.extend([
            Expr::Payload { base: Base::Transport, offset: 2, length: 2, to: R },
            Expr::Cmp(Cmp::Eq, R, port.to_be_bytes().to_vec()),
        ]),
        (None, _) => {}
    }
    if !rule.ports.is_empty() {
        exprs.push(Expr::Match(xt::multiport(&rule.ports)));
    }
    if rule.to_local {
        exprs.push(Expr::Match(xt::to_local()));
    }
    if rule.established {
        exprs.push(Expr::Match(xt::established()));
    }
    if rule.translated {
        exprs.push(Expr::Match(xt::translated()));
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
        Target::Masquerade => Expr::Target(xt::masquerade(family)),
        Target::Dnat(to) => Expr::Target(xt::dnat(*to)),
        Target::SetMark(bits) => Expr::Target(xt::set_mark(*bits)),
    })
}

pub(super) fn cmp(negated: bool) -> Cmp {
    if negated { Cmp::Neq } else { Cmp::Eq }
}
