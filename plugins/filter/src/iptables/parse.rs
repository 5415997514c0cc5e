//! Parses the output of iptables-save: the rules of chains in a table of the legacy variant.

use std::net::SocketAddr;

use super::rule::{Is, Masked, Protocol, Rule, Target};

/// A chain in the output of `iptables-save -t TABLE`: for each rule the text after `-A` and the decoded rule. `None` if
/// the chain does not exist.
pub(crate) fn chain(text: &str, name: &str) -> Option<Vec<(String, Option<Rule>)>> {
    let declaration = format!(":{name} ");
    text.lines().find(|line| line.starts_with(&declaration))?;
    let start = format!("{name} ");
    let lines = text.lines().filter_map(|line| line.strip_prefix("-A "));
    let own = lines.filter(|line| line.starts_with(&start) || *line == name);
    Some(own.map(|line| (line.to_owned(), rule(line))).collect())
}

/// The names of all chains.
pub(crate) fn chains(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| line.strip_prefix(':')?.split(' ').next())
}

/// The argument of `-j`. What a comment says is none.
pub(crate) fn jump(words: &str) -> Option<&str> {
    argument(words, "-j")
}

/// The argument of `-g`.
pub(crate) fn goes_on(words: &str) -> Option<&str> {
    argument(words, "-g")
}

/// The argument of an option of one letter, unless it is in quotes or the comment's only word.
fn argument<'a>(words: &'a str, option: &str) -> Option<&'a str> {
    let mut words = raw_words(words);
    while let Some(word) = words.next() {
        match word {
            "--comment" => drop(words.next()),
            word if word == option => return words.next(),
            _ => {}
        }
    }
    None
}

/// The words of a line as they stand there, with quotes and backslashes.
fn raw_words(line: &str) -> impl Iterator<Item = &str> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    line.split(move |character| {
        let is_end = character == ' ' && !is_quoted;
        is_quoted ^= character == '"' && !is_escaped;
        is_escaped = is_quoted && character == '\\' && !is_escaped;
        is_end
    })
}

/// The argument of `--comment`.
pub(crate) fn comment(words: &str) -> Option<String> {
    let mut words = split_words(words).into_iter();
    words.find(|word| word == "--comment").and_then(|_| words.next())
}

/// Counts a chain's rules and the rules that jump to it or (`-g`) go to it.
pub(crate) fn count_uses(text: &str, name: &str) -> usize {
    let rules = text.lines().filter_map(|line| line.strip_prefix("-A "));
    let goes_there = |words: &str| goes_on(words).or_else(|| jump(words)) == Some(name);
    rules.filter(|words| words.split(' ').next() == Some(name) || goes_there(words)).count()
}

/// The part of the output of `iptables-save` about this table; empty if the table is not there.
pub(crate) fn table<'a>(text: &'a str, name: &str) -> &'a str {
    let Some((_, behind)) = text.split_once(&format!("*{name}\n")) else { return "" };
    behind.split_once("\nCOMMIT").map_or("", |(table, _)| table)
}

/// Decodes the words `CHAIN OPTION...`; `None` if they contain anything that our rules do not have.
pub(crate) fn rule(line: &str) -> Option<Rule> {
    let words = split_words(line);
    let mut words = words.iter().map(String::as_str).skip(1);
    let mut rule = Rule::default();
    let mut negated = false;
    while let Some(word) = words.next() {
        if word == "!" {
            if negated {
                return None;
            }
            negated = true;
            continue;
        }
        let value = words.next()?;
        match word {
            "-s" => rule.source = Some(Is { value: value.parse().ok()?, negated }),
            "-d" => rule.destination = Some(Is { value: value.parse().ok()?, negated }),
            "-i" => rule.input = Some(Is { value: plain(value)?, negated }),
            "-o" => rule.output = Some(Is { value: plain(value)?, negated }),
            // In our rules, the remaining options are never negated.
            _ if negated => return None,
            "-p" => rule.protocol = Protocol::ALL.into_iter().find(|protocol| protocol.name() == value).map(Some)?,
            "-m" => {}
            "--comment" => rule.comment = Some(value.to_owned()),
            "--dport" => rule.port = Some(value.parse().ok()?),
            "--dports" => rule.ports = value.split(',').map(|port| port.parse().ok()).collect::<Option<_>>()?,
            "--dst-type" if value == "LOCAL" => rule.to_local = true,
            "--ctstate" if value == "RELATED,ESTABLISHED" => rule.established = true,
            "--ctstate" if value == "DNAT" => rule.translated = true,
            "--mark" => rule.mark = Some(masked(value)?),
            "-j" => rule.target = target(value, &mut words)?,
            _ => return None,
        }
        negated = false;
    }
    let has_ports = rule.port.is_some() || !rule.ports.is_empty();
    (!negated && (!has_ports || rule.protocol.is_some())).then_some(rule)
}

fn target<'a>(name: &str, words: &mut impl Iterator<Item = &'a str>) -> Option<Target> {
    Some(match name {
        "ACCEPT" => Target::Accept,
        "DROP" => Target::Drop,
        "RETURN" => Target::Return,
        "MASQUERADE" => Target::Masquerade,
        "DNAT" if words.next()? == "--to-destination" => {
            let to = words.next()?;
            Target::Dnat(to.parse().ok().or_else(|| Some(SocketAddr::new(to.parse().ok()?, 0)))?)
        }
        "MARK" if words.next()? == "--set-xmark" => Target::SetMark(masked(words.next()?)?),
        // Other targets are in capitals, too. None of our chains has a name in capitals only.
        name if name.bytes().all(|byte| byte.is_ascii_uppercase()) => return None,
        chain => Target::Jump(plain(chain)?),
    })
}

fn masked(text: &str) -> Option<Masked> {
    let number = |text: &str| u32::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    Some(match text.split_once('/') {
        Some((value, mask)) => Masked { value: number(value)?, mask: number(mask)? },
        None => Masked { value: number(text)?, mask: u32::MAX },
    })
}

/// A name that needs no quotes in a line.
fn plain(name: &str) -> Option<String> {
    let is_plain =
        !name.is_empty() && !name.contains(|c: char| c.is_whitespace() || c.is_control() || "\"\\'".contains(c));
    is_plain.then(|| name.to_owned())
}

/// Splits a line at spaces, except in double quotes. There, a backslash escapes the next character.
pub(crate) fn split_words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    // A quoted word may be empty.
    let mut word: Option<String> = None;
    let mut is_quoted = false;
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            '"' => {
                is_quoted = !is_quoted;
                word.get_or_insert_default();
            }
            '\\' if is_quoted => word.get_or_insert_default().extend(characters.next()),
            ' ' if !is_quoted => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A condition must not get lost.
    #[test]
    fn a_negation_without_an_option_is_no_rule() {
        for words in ["!", "-s 192.0.2.0/24 !", "! ! -s 192.0.2.0/24", "! -j ACCEPT", "-j ACCEPT !"] {
            assert_eq!(rule(&format!("CNI-A {words}")), None, "{words}");
        }
        assert!(rule("CNI-A ! -s 192.0.2.0/24 -j ACCEPT").is_some());
    }

    /// Words as `iptables-save` prints them: what an administrator's comment says is no option.
    #[test]
    fn comments_are_no_options() {
        let cases = [
            (r#"CNI-A -m comment --comment "see -j CNI-B here" -j ACCEPT"#, Some("ACCEPT"), "see -j CNI-B here"),
            (r#"CNI-A -m comment --comment "see -j CNI-B here""#, None, "see -j CNI-B here"),
            (r#"CNI-A -m comment --comment -j -j CNI-C"#, Some("CNI-C"), "-j"),
            (r#"CNI-A -m comment --comment "5\" -j CNI-B \\" -j CNI-C"#, Some("CNI-C"), r#"5" -j CNI-B \"#),
            (r#"CNI-A -m comment --comment "O\'Hara, Zürich" -j CNI-C"#, Some("CNI-C"), "O'Hara, Zürich"),
            (r#"CNI-A -m comment --comment "" -j LOG --log-prefix "x -j CNI-B ""#, Some("LOG"), ""),
        ];
        for (words, expected, says) in cases {
            assert_eq!((jump(words), comment(words).as_deref()), (expected, Some(says)), "{words}");
        }
        let save = "*nat\n:CNI-A - [0:0]\n-A CNI-A -m comment --comment \"a -g CNI-B\"\n-A CNI-A -g CNI-B\n\
                    -A CNI-A -m comment --comment \"a -j CNI-B b\" -j RETURN\n-A CNI-A -j CNI-B\nCOMMIT\n";
        assert_eq!(count_uses(save, "CNI-B"), 2);
    }
}
