//! Decodes a rule as the kernel has it, in any of the equivalent encodings of iptables 1.8.2 to 1.8.11 and nft(8).
//!
//! The encodings differ in what nf_tables does itself: address prefixes by whole bytes or with a mask, registers reused
//! or used one after another, ports by a load or by iptables' match, marks, connection states, local addresses and
//! translation by nf_tables' own expressions or by iptables' extensions, comments by a match or in the rule's user
//! data. A rule that does anything else is not one of our rules. It is not decoded at all, so it cannot be mistaken for
//! a rule that does less.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnetwork::IpNetwork;
use netops::nft::{self, Base, Cmp, Expr, Extension, Family, Meta, Register, Verdict};

use super::rule::{Is, Masked, Protocol, Rule, Target, is};
use super::xt::{self, Match};

/// The decoded rule; `None` if it contains anything that our rules do not have.
pub(crate) fn rule(rule: &nft::Rule) -> Option<Rule> {
    let family = rule.table.family;
    let mut decoding = Decoding { family, rule: Rule::default(), registers: Vec::new(), is_over: false };
    decoding.rule.comment.clone_from(&rule.comment);
    rule.exprs.iter().try_for_each(|expr| decoding.expression(expr))?;
    let Decoding { family: found, rule: mut decoded, .. } = decoding;
    if found != family && decoded.source.is_none() && decoded.destination.is_none() {
        let any = if found == Family::Ip6 { IpAddr::from(Ipv6Addr::UNSPECIFIED) } else { Ipv4Addr::UNSPECIFIED.into() };
        decoded.source = is(IpNetwork::new(any, 0).ok()?);
    }
    Some(decoded)
}

/// The comment of a rule, whatever else it contains.
pub(crate) fn comment(rule: &nft::Rule) -> Option<String> {
    let in_match = |expr: &Expr| match expr {
        Expr::Match(extension) if extension.name == "comment" => Some(extension.text()),
        _ => None,
    };
    rule.comment.clone().or_else(|| rule.exprs.iter().find_map(in_match))
}

struct Decoding {
    /// The table's family, until a rule of an `inet` table names its own.
    family: Family,
    rule: Rule,
    /// The values loaded so far, the last first.
    registers: Vec<(Register, Loaded)>,
    /// Whether the target was read: nothing may follow it.
    is_over: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Loaded {
    what: What,
    mask: Option<Vec<u8>>,
    xor: Option<Vec<u8>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    Meta(Meta),
    Payload(Base, u32),
    Value(Vec<u8>),
    CtState,
    DestinationType,
}

impl Decoding {
    fn expression(&mut self, expr: &Expr) -> Option<()> {
        if self.is_over {
            return None;
        }
        match expr {
            Expr::Meta(meta, to) => self.load(*to, What::Meta(*meta)),
            Expr::Payload { base, offset, to, .. } => self.load(*to, What::Payload(*base, *offset)),
            Expr::Load(to, value) => self.load(*to, What::Value(value.clone())),
            Expr::CtState(to) => self.load(*to, What::CtState),
            Expr::DestinationType(to) => self.load(*to, What::DestinationType),
            Expr::Mask(register, mask) => self.mask(*register, mask, None)?,
            Expr::MaskXor(register, mask, xor) => self.mask(*register, mask, Some(xor))?,
            Expr::Cmp(cmp, register, value) => self.compare(*cmp, *register, value)?,
            Expr::Counter => {}
            Expr::Match(extension) => self.extension(extension)?,
            Expr::Target(extension) => self.target(self.extension_target(extension)?),
            Expr::Verdict(verdict) => self.target(verdict_target(verdict)?),
            Expr::Masquerade => self.target(Target::Masquerade),
            Expr::Dnat { family, address, port } => self.target(Target::Dnat(self.dnat(*family, *address, *port)?)),
            Expr::SetMark(from) => self.target(Target::SetMark(self.set_mark(*from)?)),
            Expr::CtDirection(_) | Expr::InSet(..) | Expr::VerdictMap(..) | Expr::Map(..) | Expr::Other { .. } => {
                return None;
            }
        }
        Some(())
    }

    fn load(&mut self, to: Register, what: What) {
        self.registers.insert(0, (to, Loaded { what, mask: None, xor: None }));
    }

    fn loaded(&self, register: Register) -> Option<&Loaded> {
        self.registers.iter().find(|(found, _)| *found == register).map(|(_, loaded)| loaded)
    }

    fn mask(&mut self, register: Register, mask: &[u8], xor: Option<&[u8]>) -> Option<()> {
        let (_, loaded) = self.registers.iter_mut().find(|(found, _)| *found == register)?;
        if loaded.mask.is_some() {
            return None;
        }
        loaded.mask = Some(mask.to_vec());
        loaded.xor = xor.map(<[u8]>::to_vec);
        Some(())
    }

    fn compare(&mut self, cmp: Cmp, register: Register, value: &[u8]) -> Option<()> {
        let Loaded { what, mask, xor } = self.loaded(register)?.clone();
        if xor.is_some() || !matches!(cmp, Cmp::Eq | Cmp::Neq) {
            return None;
        }
        let mask = mask.as_deref();
        let negated = cmp == Cmp::Neq;
        let family = self.family;
        let (source_at, destination_at) = if family == Family::Ip6 { (8, 24) } else { (12, 16) };
        match what {
            What::Payload(Base::Network, _) if self.family == Family::Inet => None,
            What::Payload(Base::Network, at) if at == source_at => {
                set(&mut self.rule.source, Is { value: network(value, mask, family)?, negated })
            }
            What::Payload(Base::Network, at) if at == destination_at => {
                set(&mut self.rule.destination, Is { value: network(value, mask, family)?, negated })
            }
            What::Meta(Meta::IifName) => set(&mut self.rule.input, Is { value: name(value, mask)?, negated }),
            What::Meta(Meta::OifName) => set(&mut self.rule.output, Is { value: name(value, mask)?, negated }),
            What::CtState => {
                let bits = u32::from_ne_bytes(mask?.try_into().ok()?);
                let is_any = negated && value.iter().all(|byte| *byte == 0);
                (is_any && bits == u32::from(xt::ESTABLISHED_OR_RELATED)).then(|| self.rule.established = true)
            }
            // In our rules, the remaining matches are never negated.
            _ if negated => None,
            What::Payload(Base::Transport, 2) if mask.is_none() => {
                set(&mut self.rule.port, u16::from_be_bytes(value.try_into().ok()?))
            }
            What::Meta(Meta::NfProto) if mask.is_none() && self.family == Family::Inet => {
                self.family = [Family::Ip, Family::Ip6].into_iter().find(|family| value == [*family as u8])?;
                Some(())
            }
            What::Meta(Meta::L4Proto) if mask.is_none() => self.protocol(value),
            What::Meta(Meta::Mark) => {
                let number = |bytes: &[u8]| bytes.try_into().ok().map(u32::from_ne_bytes);
                let mask = mask.map_or(Some(u32::MAX), number)?;
                set(&mut self.rule.mark, Masked { value: number(value)?, mask })
            }
            What::DestinationType if mask.is_none() => {
                (value == xt::LOCAL.to_ne_bytes()).then(|| self.rule.to_local = true)
            }
            What::Payload(..) | What::Meta(_) | What::Value(_) | What::DestinationType => None,
        }
    }

    /// A port match repeats the protocol.
    fn protocol(&mut self, value: &[u8]) -> Option<()> {
        let [number] = *value else { return None };
        let protocol = Protocol::ALL.into_iter().find(|protocol| *protocol as u8 == number)?;
        match self.rule.protocol {
            Some(found) if found != protocol => None,
            _ => {
                self.rule.protocol = Some(protocol);
                Some(())
            }
        }
    }

    fn extension(&mut self, extension: &Extension) -> Option<()> {
        match xt::read_match(extension)? {
            Match::Comment(text) => set(&mut self.rule.comment, text),
            Match::Port(protocol, port) => {
                self.protocol(&[protocol as u8])?;
                set(&mut self.rule.port, port)
            }
            Match::Ports(ports) if self.rule.ports.is_empty() => {
                self.rule.ports = ports;
                Some(())
            }
            Match::Ports(_) => None,
            Match::ToLocal => {
                self.rule.to_local = true;
                Some(())
            }
            Match::Established => {
                self.rule.established = true;
                Some(())
            }
            Match::Translated => {
                self.rule.translated = true;
                Some(())
            }
            Match::Mark(bits) => set(&mut self.rule.mark, bits),
        }
    }

    fn target(&mut self, target: Target) {
        self.rule.target = target;
        self.is_over = true;
    }

    fn extension_target(&self, extension: &Extension) -> Option<Target> {
        match extension.name.as_str() {
            "DNAT" => xt::read_dnat(extension, self.family).map(Target::Dnat),
            "MARK" => xt::read_mark(extension).map(Target::SetMark),
            _ => xt::is_masquerade(extension, self.family).then_some(Target::Masquerade),
        }
    }

    fn dnat(&self, family: Family, address: Register, port: Option<Register>) -> Option<SocketAddr> {
        if ![Family::Inet, family].contains(&self.family) {
            return None;
        }
        let value = |register| match &self.loaded(register)?.what {
            What::Value(value) => Some(value.as_slice()),
            What::Meta(_) | What::Payload(..) | What::CtState | What::DestinationType => None,
        };
        let port = match port {
            Some(register) => u16::from_be_bytes(*value(register)?.first_chunk()?),
            None => 0,
        };
        let to = value(address)?;
        let address: IpAddr = match family {
            Family::Ip6 => Ipv6Addr::from(<[u8; 16]>::try_from(to).ok()?).into(),
            _ => Ipv4Addr::from(<[u8; 4]>::try_from(to).ok()?).into(),
        };
        Some(SocketAddr::new(address, port))
    }

    /// Sets the mark: mark = (mark & !mask) ^ value, or the whole mark.
    fn set_mark(&self, from: Register) -> Option<Masked> {
        let number = |bytes: &[u8]| bytes.try_into().ok().map(u32::from_ne_bytes);
        match self.loaded(from)? {
            Loaded { what: What::Value(value), mask: None, .. } => {
                Some(Masked { value: number(value)?, mask: u32::MAX })
            }
            Loaded { what: What::Meta(Meta::Mark), mask: Some(kept), xor } => {
                let value = xor.as_deref().map_or(Some(0), number)?;
                Some(Masked { value, mask: !number(kept)? })
            }
            _ => None,
        }
    }
}

/// Sets a condition. A second one of the same kind occurs in none of our rules.
fn set<T>(place: &mut Option<T>, value: T) -> Option<()> {
    place.is_none().then(|| *place = Some(value))
}

fn verdict_target(verdict: &Verdict) -> Option<Target> {
    Some(match verdict {
        Verdict::Accept => Target::Accept,
        Verdict::Drop => Target::Drop,
        Verdict::Return => Target::Return,
        Verdict::Jump(chain) => Target::Jump(chain.clone().into_owned()),
        Verdict::Goto(_) => return None,
    })
}

/// An address with its prefix length: the number of bits that are compared.
fn network(value: &[u8], mask: Option<&[u8]>, family: Family) -> Option<IpNetwork> {
    let bits = u32::try_from(value.len()).ok()?.checked_mul(8)?;
    let ones = match mask {
        Some(mask) => prefix_length(mask)?,
        None => bits,
    };
    let prefix = u8::try_from(ones).ok()?;
    let mut octets = [0; 16];
    octets.get_mut(..value.len())?.copy_from_slice(value);
    let address: IpAddr = if family == Family::Ip6 {
        Ipv6Addr::from(octets).into()
    } else if value.len() <= 4 {
        Ipv4Addr::from(*octets.first_chunk::<4>()?).into()
    } else {
        return None;
    };
    IpNetwork::new(address, prefix).ok()
}

/// The number of bits in a mask, if they are all at its start.
fn prefix_length(mask: &[u8]) -> Option<u32> {
    let ones = mask.iter().map(|byte| byte.count_ones()).sum();
    let leading = mask.iter().take_while(|byte| **byte == 0xff).count();
    let rest = mask.get(leading..).unwrap_or_default();
    let is_prefix = match rest {
        [] => true,
        [byte, zeros @ ..] => byte.leading_ones() == byte.count_ones() && zeros.iter().all(|byte| *byte == 0),
    };
    is_prefix.then_some(ones)
}

/// An interface's name. If it is compared without its final NUL, it matches all names that start with it.
fn name(value: &[u8], mask: Option<&[u8]>) -> Option<String> {
    let compared = match mask {
        Some(mask) => {
            let ones = prefix_length(mask)?;
            value.get(..usize::try_from(ones / 8).ok().filter(|_| ones.is_multiple_of(8))?)?
        }
        None => value,
    };
    let end = compared.iter().position(|byte| *byte == 0);
    let name = compared.get(..end.unwrap_or(compared.len()))?;
    let text = std::str::from_utf8(name).ok()?.to_owned();
    Some(if end.is_none() && compared.len() < 16 { text + "+" } else { text })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(family: Family, exprs: Vec<Expr>, expected: &str) {
        let chain = nft::Table::new(family, "nat").chain("CNI-A");
        let says = rule(&chain.rule(exprs)).map(|rule| rule.to_string());
        assert_eq!(says.as_deref().unwrap_or("nothing").trim_start(), expected);
    }

    fn info(fields: &[&[u8]]) -> Vec<u8> {
        fields.concat()
    }

    /// Options as older versions encoded them, or newer ones may.
    #[test]
    fn extensions_of_other_versions_are_recognised() {
        let (ip, ip6) = (Family::Ip, Family::Ip6);
        let matches = |name, revision, info| vec![Expr::Match(Extension::new(name, revision, info))];
        let target = |name, revision, info| vec![Expr::Target(Extension::new(name, revision, info))];
        let port = 8080_u16.to_ne_bytes();
        let any = [0, 0, 0xff, 0xff];
        check(ip, matches("tcp", 0, info(&[&any, &port, &port, &[0; 4]])), "-p tcp -m tcp --dport 8080");
        check(ip6, matches("udp", 0, info(&[&any, &port, &port, &[0; 2]])), "-p udp -m udp --dport 8080");
        check(ip, matches("tcp", 0, info(&[&any, &port, &[0xff; 2], &[0; 4]])), "nothing");
        check(ip, matches("tcp", 0, info(&[&any, &port, &port, &[0, 0, 0, 1]])), "nothing");
        check(
            ip,
            matches("addrtype", 0, info(&[&[0, 0], &4_u16.to_ne_bytes(), &[0; 8]])),
            "-m addrtype --dst-type LOCAL",
        );
        check(ip, matches("addrtype", 0, info(&[&[0, 0], &4_u16.to_ne_bytes(), &[0; 4], &[1, 0, 0, 0]])), "nothing");
        let bits = 0x2000_u32.to_ne_bytes();
        check(ip, matches("mark", 1, info(&[&bits, &bits, &[0]])), "-m mark --mark 0x2000/0x2000");
        check(ip, matches("mark", 1, info(&[&bits, &bits, &[1]])), "nothing");
        check(ip, matches("mark", 1, vec![1, 2]), "nothing");
        let (address, port) = ([10, 1, 0, 2], 80_u16.to_be_bytes());
        let one = 1_u32.to_ne_bytes();
        let old = info(&[&one, &3_u32.to_ne_bytes(), &address, &address, &port, &port]);
        check(ip, target("DNAT", 0, old), "-j DNAT --to-destination 10.1.0.2:80");
        let address6 = [0xfd; 16];
        let old = info(&[&3_u32.to_ne_bytes(), &address6, &address6, &port, &port]);
        check(ip6, target("DNAT", 1, old), "-j DNAT --to-destination [fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd]:80");
        check(ip, target("LOG", 0, vec![0; 36]), "nothing");
    }

    /// A complete comparison of 16 bytes, masks that the kernel does not need, registers used one after another.
    #[test]
    fn equivalent_comparisons_are_recognised() {
        let (r1, r2) = (Register::R1, Register::R2);
        let mut name = b"cni0".to_vec();
        name.resize(16, 0);
        let whole = vec![Expr::Meta(Meta::IifName, r1), Expr::Cmp(Cmp::Eq, r1, name)];
        check(Family::Ip, whole, "-i cni0");
        let load = |offset, length, to| Expr::Payload { base: Base::Network, offset, length, to };
        let masked =
            vec![load(12, 4, r1), Expr::Mask(r1, vec![255, 255, 255, 0]), Expr::Cmp(Cmp::Eq, r1, vec![10, 1, 0, 0])];
        check(Family::Ip, masked, "-s 10.1.0.0/24");
        let apart = vec![
            load(12, 4, r1),
            load(16, 3, r2),
            Expr::Cmp(Cmp::Neq, r2, vec![10, 1, 0]),
            Expr::Cmp(Cmp::Eq, r1, vec![10, 1, 0, 2]),
        ];
        check(Family::Ip, apart, "-s 10.1.0.2/32 ! -d 10.1.0.0/24");
        check(Family::Ip, vec![Expr::Cmp(Cmp::Eq, r1, vec![10, 1, 0, 2])], "nothing");
        let twice = vec![Expr::Verdict(Verdict::Accept), Expr::Counter];
        check(Family::Ip, twice, "nothing");
    }

    #[test]
    fn any_address_and_any_interface_are_no_conditions() {
        let any = Rule {
            source: super::super::rule::is("0.0.0.0/0".parse().unwrap()),
            input: super::super::rule::is("+".to_owned()),
            ..Rule::default()
        };
        check(Family::Ip, xt::expressions(&any, Family::Ip), "");
    }
}
