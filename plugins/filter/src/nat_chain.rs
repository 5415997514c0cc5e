//! The reference's iptables masquerade: the chain of one container on one network, as either
//! variant of iptables has it, and which of its rules are one attachment's.
//!
//! The chain is shared by all attachments of the container to the network, and the reference's rules do not
//! say whose they are. Ours note it in the comment of the rule for the attachment's own prefix.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;
use netops::nft::{Base, Cmp, Expr, Rule, Verdict};

use crate::owner::Attachment;

/// A rule in the chain, or one that jumps to it. `T` is how to delete it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NatRule<T> {
    pub(crate) id: T,
    pub(crate) source: Option<IpNetwork>,
    pub(crate) destination: Option<IpNetwork>,
    pub(crate) target: String,
    pub(crate) comment: Option<String>,
}

/// A chain and the rules that send packets there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NatChain<T> {
    pub(crate) rules: Vec<NatRule<T>>,
    pub(crate) jumps: Vec<NatRule<T>>,
}

/// What of a chain goes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Removal<T> {
    /// These jumps, then the chain with all it has.
    Chain(Vec<T>),
    /// These rules; the chain still serves another attachment.
    Rules(Vec<T>),
}

/// What the comment of an attachment's own rule says behind the reference's text.
pub(crate) fn note(ifname: &str, address: IpAddr) -> String {
    format!(" if: \"{ifname}\" ip: \"{address}\"")
}

/// Reads [`note`] back.
fn noted(comment: &str) -> Option<(&str, IpAddr)> {
    let (_, note) = comment.split_once(" if: \"")?;
    let (ifname, rest) = note.split_once("\" ip: \"")?;
    Some((ifname, rest.strip_suffix('"')?.parse().ok()?))
}

impl<T: Clone> NatChain<T> {
    /// What of the chain is this attachment's.
    ///
    /// Without addresses and notes, a single address that nobody else notes must be its own; of
    /// several, none is touched: they may be those of an attachment that lives.
    pub(crate) fn removal(&self, attachment: Attachment<'_>, addresses: &[IpAddr]) -> Removal<T> {
        let notes: Vec<_> = self.rules.iter().filter_map(|rule| noted(rule.comment.as_deref()?)).collect();
        let mut ours = addresses.to_vec();
        ours.extend(notes.iter().filter(|(ifname, _)| *ifname == attachment.ifname).map(|(_, address)| *address));
        if ours.is_empty() {
            let mut unclaimed: Vec<_> = self.jumps.iter().filter_map(|rule| Some(rule.source?.ip())).collect();
            unclaimed.retain(|address| notes.iter().all(|(_, noted)| noted != address));
            unclaimed.sort();
            unclaimed.dedup();
            match unclaimed.len() {
                0 | 1 => ours = unclaimed,
                _ => tracing::warn!(
                    ?attachment,
                    ?unclaimed,
                    "cannot tell whose these masquerade rules are: left to a DEL with a result, or GC"
                ),
            }
        }
        let is_ours = |rule: &&NatRule<T>| rule.source.is_some_and(|source| ours.iter().any(|ip| source.contains(*ip)));
        let jumps: Vec<_> = self.jumps.iter().filter(is_ours).map(|rule| rule.id.clone()).collect();
        if jumps.len() == self.jumps.len() {
            return Removal::Chain(jumps);
        }
        let own_rules = self.rules.iter().filter(|rule| {
            let note = rule.comment.as_deref().and_then(noted);
            note.is_some_and(|(ifname, _)| ifname == attachment.ifname)
        });
        Removal::Rules(jumps.into_iter().chain(own_rules.map(|rule| rule.id.clone())).collect())
    }

    /// The rules that notes of such interfaces are about: their own, and the jumps from their addresses.
    pub(crate) fn noted_for(&self, is_meant: impl Fn(&str) -> bool) -> Vec<T> {
        let note_of = |rule: &NatRule<T>| {
            let (ifname, address) = rule.comment.as_deref().and_then(noted)?;
            is_meant(ifname).then_some(address)
        };
        let addresses: Vec<_> = self.rules.iter().filter_map(note_of).collect();
        let jumps = self.jumps.iter().filter(|rule| rule.source.is_some_and(|from| addresses.contains(&from.ip())));
        let own = self.rules.iter().filter(|rule| note_of(rule).is_some());
        jumps.chain(own).map(|rule| rule.id.clone()).collect()
    }

    /// What the chain lacks to masquerade this address, if anything.
    pub(crate) fn lacks(&self, address: IpNetwork) -> Option<&'static str> {
        let is_host = |source: IpNetwork| source.ip() == address.ip();
        let has_jump = self.jumps.iter().any(|rule| rule.source.is_some_and(is_host));
        let prefix = |rule: &NatRule<T>| rule.destination.map(|to| (to.network(), to.prefix()));
        let inside = Some((address.network(), address.prefix()));
        let has_accept = self.rules.iter().any(|rule| rule.target == "ACCEPT" && prefix(rule) == inside);
        if !has_jump {
            Some("the rule in POSTROUTING was not found")
        } else if !has_accept {
            Some("the ACCEPT rule for its own prefix was not found")
        } else if !self.rules.iter().any(|rule| rule.target == "MASQUERADE") {
            Some("the MASQUERADE rule was not found")
        } else {
            None
        }
    }
}

/// Reads a rule that iptables-nft has written.
pub(crate) fn from_nft(rule: Rule) -> NatRule<Rule> {
    let (mut source, mut destination, mut target, mut comment) = (None, None, String::new(), None);
    // An address match is a load, a mask unless whole bytes are compared, and a comparison.
    let mut loaded = None;
    let mut mask: Option<&[u8]> = None;
    for expr in &rule.exprs {
        match expr {
            Expr::Payload { base: Base::Network, offset, .. } => (loaded, mask) = (Some(*offset), None),
            Expr::Mask(_, bits) => mask = Some(bits),
            Expr::Cmp(Cmp::Eq, _, value) => match loaded {
                Some(12 | 8) => source = network(value, mask, loaded == Some(12)),
                Some(16 | 24) => destination = network(value, mask, loaded == Some(16)),
                _ => {}
            },
            Expr::Verdict(Verdict::Accept) => "ACCEPT".clone_into(&mut target),
            Expr::Verdict(verdict) => verdict.chain().unwrap_or_default().clone_into(&mut target),
            Expr::Masquerade => "MASQUERADE".clone_into(&mut target),
            other => {
                comment = comment.or_else(|| other.iptables_comment());
                target = other.iptables_target().unwrap_or(target);
            }
        }
    }
    NatRule { source, destination, target, comment, id: rule }
}

fn network(value: &[u8], mask: Option<&[u8]>, is_ipv4: bool) -> Option<IpNetwork> {
    let ones: u32 = match mask {
        Some(mask) => mask.iter().map(|byte| byte.count_ones()).sum(),
        None => u32::try_from(value.len()).ok()?.checked_mul(8)?,
    };
    let prefix = u8::try_from(ones).ok()?;
    let mut octets = [0; 16];
    octets.get_mut(..value.len())?.copy_from_slice(value);
    let address = if is_ipv4 {
        IpAddr::from(Ipv4Addr::from(*octets.first_chunk::<4>()?))
    } else {
        IpAddr::from(Ipv6Addr::from(octets))
    };
    IpNetwork::new(address, prefix).ok()
}

/// Reads the chain in the text of `iptables-save -t nat`; `None` if it isn't there.
pub(crate) fn from_save(text: &str, chain: &str) -> Option<NatChain<String>> {
    let declaration = format!(":{chain} ");
    text.lines().find(|line| line.starts_with(&declaration))?;
    let mut found = NatChain { rules: Vec::new(), jumps: Vec::new() };
    for line in text.lines() {
        let Some((of_chain, rule)) = parse_save_line(line) else { continue };
        if of_chain == chain {
            found.rules.push(rule);
        } else if of_chain == "POSTROUTING" && rule.target == chain {
            found.jumps.push(rule);
        }
    }
    Some(found)
}

/// One `-A CHAIN ...` line; the id is what comes behind `-A`.
fn parse_save_line(line: &str) -> Option<(String, NatRule<String>)> {
    let id = line.strip_prefix("-A ")?.to_owned();
    let mut words = split_words(&id).into_iter();
    let chain = words.next()?;
    let mut rule = NatRule { id, source: None, destination: None, target: String::new(), comment: None };
    let mut is_negated = false;
    while let Some(word) = words.next() {
        match word.as_str() {
            "!" => {
                is_negated = true;
                continue;
            }
            "-s" if !is_negated => rule.source = words.next()?.parse().ok(),
            "-d" if !is_negated => rule.destination = words.next()?.parse().ok(),
            "-j" => rule.target = words.next()?,
            "--comment" => rule.comment = words.next(),
            _ => {}
        }
        is_negated = false;
    }
    Some((chain, rule))
}

/// Splits at spaces but for those in double quotes, where a backslash takes the next character as it is.
pub(crate) fn split_words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut is_quoted = false;
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            '"' => is_quoted = !is_quoted,
            '\\' if is_quoted => words.extend_last(characters.next()),
            ' ' if !is_quoted => words.push(String::new()),
            other => words.extend_last(Some(other)),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

trait ExtendLast {
    fn extend_last(&mut self, character: Option<char>);
}

impl ExtendLast for Vec<String> {
    fn extend_last(&mut self, character: Option<char>) {
        if let Some(word) = self.last_mut() {
            word.extend(character);
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    const ETH0: Attachment<'_> = Attachment { network: "office", container: "c1", ifname: "eth0" };

    /// The reference's rules for two interfaces, and one of ours for a third.
    const SAVED: &str = r#"*nat
:POSTROUTING ACCEPT [0:0]
:CNI-a - [0:0]
-A POSTROUTING -s 10.1.0.5/32 -m comment --comment "name: \"office\" id: \"c1\"" -j CNI-a
-A POSTROUTING -s 10.2.0.5/32 -m comment --comment "name: \"office\" id: \"c1\"" -j CNI-a
-A POSTROUTING -s 10.3.0.5/32 -m comment --comment "name: \"office\" id: \"c1\"" -j CNI-a
-A POSTROUTING -s 10.9.0.5/32 -j CNI-b
-A CNI-a -d 10.3.0.0/24 -m comment --comment "name: \"office\" id: \"c1\" if: \"net2\" ip: \"10.3.0.5\"" -j ACCEPT
-A CNI-a -d 10.1.0.0/24 -m comment --comment "name: \"office\" id: \"c1\"" -j ACCEPT
-A CNI-a -d 10.2.0.0/24 -m comment --comment "name: \"office\" id: \"c1\"" -j ACCEPT
-A CNI-a ! -d 224.0.0.0/4 -m comment --comment "name: \"office\" id: \"c1\"" -j MASQUERADE
COMMIT
"#;

    fn check(text: &str, ifname: &str, addresses: &[&str], expect: &Expect) {
        let addresses: Vec<_> = addresses.iter().map(|text| text.parse().unwrap()).collect();
        let removal = from_save(text, "CNI-a").unwrap().removal(Attachment { ifname, ..ETH0 }, &addresses);
        expect.assert_eq(&match removal {
            Removal::Chain(jumps) => format!("the chain and\n{}", jumps.join("\n")),
            Removal::Rules(rules) => rules.join("\n"),
        });
    }

    #[test]
    fn what_goes_and_what_stays() {
        // By address.
        check(
            SAVED,
            "eth0",
            &["10.1.0.5", "fd00::5"],
            &expect![[r#"POSTROUTING -s 10.1.0.5/32 -m comment --comment "name: \"office\" id: \"c1\"" -j CNI-a"#]],
        );
        // By the note.
        check(
            SAVED,
            "net2",
            &[],
            &expect![[r#"
            POSTROUTING -s 10.3.0.5/32 -m comment --comment "name: \"office\" id: \"c1\"" -j CNI-a
            CNI-a -d 10.3.0.0/24 -m comment --comment "name: \"office\" id: \"c1\" if: \"net2\" ip: \"10.3.0.5\"" -j ACCEPT"#]],
        );
        // Either could be eth0's: none goes.
        check(SAVED, "eth0", &[], &expect![[""]]);
        // One is left, and nobody else's.
        let one: String =
            SAVED.lines().filter(|line| !line.contains("10.2.0.5")).map(|l| l.to_owned() + "\n").collect();
        check(
            &one,
            "eth0",
            &[],
            &expect![[r#"POSTROUTING -s 10.1.0.5/32 -m comment --comment "name: \"office\" id: \"c1\"" -j CNI-a"#]],
        );
        // The last one.
        let last: String = SAVED
            .lines()
            .filter(|line| !line.contains("-s 10.") || line.contains("10.1.0.5"))
            .map(|l| l.to_owned() + "\n")
            .collect();
        check(
            &last,
            "eth0",
            &["10.1.0.5"],
            &expect![[r#"
            the chain and
            POSTROUTING -s 10.1.0.5/32 -m comment --comment "name: \"office\" id: \"c1\"" -j CNI-a"#]],
        );
        // The older form of the jump, and an address of the other family alone.
        let older = SAVED.replace("-s 10.1.0.5/32", "-s 10.1.0.0/24");
        check(
            &older,
            "eth0",
            &["10.1.0.5"],
            &expect![[r#"POSTROUTING -s 10.1.0.0/24 -m comment --comment "name: \"office\" id: \"c1\"" -j CNI-a"#]],
        );
        check(SAVED, "eth0", &["fd00::5"], &expect![[""]]);
        // Killed between the jumps and the chain.
        check(
            ":CNI-a - [0:0]\n",
            "eth0",
            &[],
            &expect![[r#"
            the chain and
        "#]],
        );
    }

    #[test]
    fn a_chain_that_is_not_declared_is_absent() {
        assert_eq!(from_save(SAVED, "CNI-b"), None);
        assert_eq!(from_save(SAVED, "CNI-"), None);
        assert_eq!(from_save("", "CNI-a"), None);
    }

    #[test]
    fn no_line_makes_it_panic() {
        for line in [
            "-A",
            "-A ",
            "-A POSTROUTING -s",
            "-A CNI-a -d x/y -j",
            "-A CNI-a --comment \"a\\",
            "-A \" \" !",
            "-A é \\",
        ] {
            let text = format!(":CNI-a - [0:0]\n{line}\n");
            assert!(from_save(&text, "CNI-a").is_some(), "{line}");
        }
    }

    #[test]
    fn iptables_short_matches_are_networks() {
        // iptables-nft compares three bytes for a /24, and masks what does not end at a byte.
        let network4 = |value: &[u8], mask: Option<&[u8]>| network(value, mask, true).map(|n| n.to_string());
        assert_eq!(network4(&[10, 1, 0], None).as_deref(), Some("10.1.0.0/24"));
        assert_eq!(network4(&[224, 0, 0, 0], Some(&[240, 0, 0, 0])).as_deref(), Some("224.0.0.0/4"));
        assert_eq!(network4(&[0; 40], None), None);
        assert_eq!(network4(&[0; 16], None), None);
    }
}
