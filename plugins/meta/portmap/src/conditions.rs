//! `conditionsV4` and `conditionsV6`: which packets are forwarded at all, in the words of iptables or of nft.
//!
//! What a rule of crate filter can say is written over netlink. iptables' other words are left to its programs. nft's
//! other words are refused: nothing but nft itself reads its language.

use cni_filter::iptables::rule::{Is, Rule, Target};
use cni_spec::CniError;
use ipnetwork::IpNetwork;
use netops::nft::Family;

use crate::conf::Backend;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Conditions {
    #[default]
    None,
    /// Conditions in the words of iptables: a rule's fields, or its [`Rule::words`].
    Iptables(Rule),
    Nft(Rule),
}

impl Conditions {
    /// Reads a key's words: in iptables' dialect if the first starts with `-` or `!`.
    pub(crate) fn parse(key: &str, words: &[String], family: Family) -> Result<Self, CniError> {
        let Some(first) = words.first() else { return Ok(Self::None) };
        let text = words.join(" ");
        if first.starts_with(['-', '!']) {
            let rule = iptables(words, family).map_err(|why| CniError::invalid_key(key, format!("{text:?}"), why))?;
            return Ok(Self::Iptables(rule));
        }
        let rule = nft(&text, family).ok_or_else(|| {
            let expected = "only ip saddr, ip daddr (ip6 in conditionsV6), iifname and oifname, each once and with != or \
                            without, are written as rules of nftables; more is possible in the words of iptables";
            CniError::invalid_key(key, format!("{text:?}"), expected)
        })?;
        let refused = |why| CniError::invalid_key(key, format!("{text:?}"), why);
        Ok(Self::Nft(usable(rule).map_err(refused)?))
    }

    pub(crate) fn backend(&self) -> Option<Backend> {
        match self {
            Self::None => None,
            Self::Iptables(_) => Some(Backend::Iptables),
            Self::Nft(_) => Some(Backend::Nftables),
        }
    }

    pub(crate) fn rule(&self) -> Rule {
        match self {
            Self::None => Rule::default(),
            Self::Iptables(rule) | Self::Nft(rule) => rule.clone(),
        }
    }

    /// Whether only the programs of iptables can write the conditions.
    pub(crate) fn need_programs(&self) -> bool {
        matches!(self, Self::Iptables(rule) if !rule.words.is_empty())
    }
}

/// The options that a rule has a field for. Each may be there once: iptables refuses most repetitions itself.
const FIELDS: [&str; 4] = ["-s", "-d", "-i", "-o"];

/// The longest name of an interface, a `+` at its end included: `IFNAMSIZ` less the final NUL.
const IFNAME_MAX: usize = 15;

/// # Errors
/// Why iptables refuses the words, or its kernel does. What needs its programs is left to them.
fn iptables(words: &[String], family: Family) -> Result<Rule, &'static str> {
    let in_words = || Ok(Rule { words: words.to_vec(), ..Rule::default() });
    let is_simple = |word: &&String| FIELDS.contains(&word.as_str());
    let options: Vec<&String> = words.iter().filter(is_simple).collect();
    let is_repeated = options.iter().enumerate().any(|(at, word)| options[..at].contains(word));
    let is_other = |word: &String| word.starts_with('-') && !FIELDS.contains(&word.as_str());
    if is_repeated || words.iter().any(is_other) {
        return in_words();
    }
    let is_negation = |word: &String| word == "!";
    if words.windows(2).any(|pair| is_negation(&pair[0]) && !FIELDS.contains(&pair[1].as_str()))
        || words.last().is_some_and(is_negation)
    {
        return Err("! must be in front of an option, such as -s or -i");
    }
    let is_plain =
        |word: &String| !word.is_empty() && !word.contains(|c: char| c.is_whitespace() || "\"\\'".contains(c));
    let parsed = words.iter().all(is_plain).then(|| Rule::parse(&words.join(" "))).flatten();
    match parsed {
        Some(rule) if rule.target == Target::None && is_of(family, &rule) => usable(rule),
        _ => in_words(),
    }
}

/// The rule as iptables stores it, if a packet can match it.
/// Errors: why none can.
fn usable(rule: Rule) -> Result<Rule, &'static str> {
    if [&rule.source, &rule.destination].into_iter().flatten().any(|is| is.negated && is.value.prefix() == 0) {
        return Err("it excludes every address, so that no packet matches");
    }
    let names = [&rule.input, &rule.output];
    if names.into_iter().flatten().any(|is| is.negated && is.value == "+") {
        return Err("it excludes every interface, so that no packet matches");
    }
    if names.into_iter().flatten().any(|is| is.value.len() > IFNAME_MAX) {
        return Err("the name of an interface has at most 15 characters, with + at its end");
    }
    Ok(rule.as_stored())
}

fn nft(text: &str, family: Family) -> Option<Rule> {
    let mut rule = Rule::default();
    let mut words = text.split_whitespace().peekable();
    while let Some(word) = words.next() {
        let field = match word {
            "ip" if family == Family::Ip => words.next()?,
            "ip6" if family == Family::Ip6 => words.next()?,
            "iifname" | "oifname" => word,
            _ => return None,
        };
        let operator = words.next_if(|word| ["!=", "=="].contains(word));
        let negated = operator == Some("!=");
        let value = words.next()?;
        match field {
            "saddr" => set(&mut rule.source, Is { value: address(value)?, negated })?,
            "daddr" => set(&mut rule.destination, Is { value: address(value)?, negated })?,
            "iifname" => set(&mut rule.input, Is { value: name(value)?, negated })?,
            "oifname" => set(&mut rule.output, Is { value: name(value)?, negated })?,
            _ => return None,
        }
    }
    // Words such as "" say nothing, so they are no condition either.
    (rule != Rule::default() && is_of(family, &rule)).then_some(rule)
}

fn set<T>(place: &mut Option<T>, value: T) -> Option<()> {
    place.is_none().then(|| *place = Some(value))
}

/// An address, perhaps with a prefix length. nft knows no other form of a mask.
fn address(text: &str) -> Option<IpNetwork> {
    let is_length = |length: &str| length.bytes().all(|byte| byte.is_ascii_digit());
    text.split_once('/').is_none_or(|(_, length)| is_length(length)).then(|| text.parse().ok()).flatten()
}

/// An interface's name, perhaps in quotation marks; `*` at its end is iptables' `+`. As nft, not `*` alone.
fn name(text: &str) -> Option<String> {
    let name = text.strip_prefix('"').map_or(Some(text), |text| text.strip_suffix('"'))?;
    let is_plain = !["", "*"].contains(&name) && name.len() <= IFNAME_MAX && !name.contains(['"', '+', '\\']);
    is_plain.then(|| name.strip_suffix('*').map_or_else(|| name.to_owned(), |start| format!("{start}+")))
}

fn is_of(family: Family, rule: &Rule) -> bool {
    let addresses = [&rule.source, &rule.destination].into_iter().flatten();
    addresses.into_iter().all(|is| is.value.is_ipv4() == (family == Family::Ip))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str], family: Family) -> String {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        match Conditions::parse("conditionsV4", &words, family) {
            Ok(Conditions::None) => "none".to_owned(),
            Ok(Conditions::Iptables(rule)) if rule.words.is_empty() => format!("netlink{rule}"),
            Ok(Conditions::Iptables(rule)) => format!("programs{rule}"),
            Ok(Conditions::Nft(rule)) => format!("nft{rule}"),
            Err(error) => {
                assert_eq!(error.code, CniError::invalid_key("", "", "").code);
                error.msg.split(": only ").next().unwrap_or_default().to_owned()
            }
        }
    }

    #[test]
    fn words_of_iptables_are_written_over_netlink_or_by_its_programs() {
        let (ip, ip6) = (Family::Ip, Family::Ip6);
        assert_eq!(read(&[], ip), "none");
        assert_eq!(read(&["!", "-s", "10.0.0.0/8", "-i", "eth+"], ip), "netlink ! -s 10.0.0.0/8 -i eth+");
        assert_eq!(read(&["-d", "192.0.2.1"], ip), "netlink -d 192.0.2.1/32");
        assert_eq!(read(&["-s", "fd00::/8"], ip6), "netlink -s fd00::/8");
        // As iptables stores them.
        assert_eq!(
            read(&["-s", "10.1.2.3/16", "-d", "192.0.2.1/255.255.255.0"], ip),
            "netlink -s 10.1.0.0/16 -d 192.0.2.0/24"
        );
        assert_eq!(read(&["-s", "10.1.2.3/0", "-i", "+"], ip), "netlink");
        assert_eq!(read(&["-s", "::/0", "-d", "fd00::1/8"], ip6), "netlink -d fd00::/8");
        for words in [
            &["-m", "ttl", "--ttl-gt", "3"][..],
            &["-p", "udp"],
            &["-s", "10.0.0.1,10.0.0.2"],
            &["-s", "10.0.0.1", "-s", "10.0.0.2"],
            &["-s", "fd00::/8"],
            &["-j", "ACCEPT"],
            &["-s"],
        ] {
            assert_eq!(
                read(words, ip),
                format!(
                    "programs {}",
                    Rule { words: words.iter().map(|word| (*word).to_owned()).collect(), ..Rule::default() }
                        .to_string()
                        .trim()
                ),
                "{words:?}"
            );
        }
    }

    /// The reference's ADD fails with all but `! -i +`, which matches no packet there.
    #[test]
    fn words_that_iptables_refuses_or_that_no_packet_matches_are_refused() {
        let refused = |words: &[&str], family, why: &str| {
            let words_as_text = words.join(" ");
            let expected = format!("cannot use network config: key conditionsV4 = {words_as_text:?}: {why}");
            assert_eq!(read(words, family), expected);
        };
        let (ip, ip6) = (Family::Ip, Family::Ip6);
        let negation = "! must be in front of an option, such as -s or -i";
        for words in [&["!"][..], &["-i", "lo", "!"], &["!", "!", "-i", "lo"], &["-i", "!", "lo"], &["!", "lo"]] {
            refused(words, ip, negation);
            refused(words, ip6, negation);
        }
        refused(&["-s", "192.0.2.0/24", "!"], ip, negation);
        refused(&["-s", "2001:db8::/32", "!"], ip6, negation);
        let address = "it excludes every address, so that no packet matches";
        refused(&["!", "-s", "0.0.0.0/0"], ip, address);
        refused(&["!", "-d", "192.0.2.1/0"], ip, address);
        refused(&["!", "-s", "::/0"], ip6, address);
        refused(&["ip", "saddr", "!=", "0.0.0.0/0"], ip, address);
        refused(&["ip6", "daddr", "!=", "::/0"], ip6, address);
        for family in [ip, ip6] {
            refused(&["!", "-i", "+"], family, "it excludes every interface, so that no packet matches");
            let name = "the name of an interface has at most 15 characters, with + at its end";
            refused(&["-i", "averyveryverylongname"], family, name);
            refused(&["!", "-i", "averyveryverylongname"], family, name);
            refused(&["-o", "abcdefghijklmno+"], family, name);
        }
        assert_eq!(read(&["-o", "abcdefghijklmno"], ip), "netlink -o abcdefghijklmno");
        assert_eq!(read(&["!", "-i", "abcdefghijklmn+"], ip6), "netlink ! -i abcdefghijklmn+");
    }

    #[test]
    fn words_of_nft_are_addresses_and_interfaces() {
        let (ip, ip6) = (Family::Ip, Family::Ip6);
        let words = ["ip", "saddr", "!=", "10.0.0.0/8", "iifname", "\"eth*\""];
        assert_eq!(read(&words, ip), "nft ! -s 10.0.0.0/8 -i eth+");
        assert_eq!(read(&["ip6 daddr fd00::1"], ip6), "nft -d fd00::1/128");
        assert_eq!(read(&["iifname", "==", "eth0"], ip6), "nft -i eth0");
        for text in [
            "tcp dport 80",
            "ip saddr @friends",
            "ip6 saddr fd00::1",
            "ip saddr 1.2.3.4 ip saddr 1.2.3.5",
            // What nft refuses, too.
            "",
            " ",
            "ip saddr 1.2.3.4 !=",
            "ip saddr 1.2.3.4 ip",
            "iifname",
            "iifname != == eth0",
            "iifname \"eth0",
            "iifname eth0\"",
            "iifname *",
            "iifname != \"*\"",
            "iifname averyveryverylongname",
            "iifname abcdefghijklmno*",
            "ip saddr 1.2.3.4/255.255.0.0",
        ] {
            assert_eq!(read(&[text], ip), format!("cannot use network config: key conditionsV4 = {text:?}"));
        }
    }
}
