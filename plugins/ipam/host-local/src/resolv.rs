//! `resolvConf`: the few words of resolv.conf(5) that a result can carry.

use cni_spec::Dns;

/// Reads `nameserver`, `domain`, `search` and `options`. Lists accumulate over lines; other words, lines of one
/// word and comments (`#`, `;`) are skipped.
#[must_use]
pub(crate) fn parse(text: &str) -> Dns {
    let mut dns = Dns::default();
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
        let mut words = line.split_whitespace().map(str::to_owned);
        let keyword = words.next();
        let mut values = words.peekable();
        if values.peek().is_none() {
            continue;
        }
        match keyword.as_deref() {
            Some("nameserver") => dns.nameservers.extend(values.next()),
            Some("domain") => dns.domain = values.next().unwrap_or_default(),
            Some("search") => dns.search.extend(values),
            Some("options") => dns.options.extend(values),
            Some(_) | None => {}
        }
    }
    dns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_accumulate_and_comments_are_skipped() {
        let dns = parse(
            "# head\n ; head\nnameserver 10.0.0.1 trailing\nnameserver\nnameserver fd00::1\n\
             domain a.example\ndomain b.example\nsearch x.example\tz.example\nsearch y.example\n\
             options ndots:5 rotate\nsortlist 1.2.3.4\r\n",
        );
        assert_eq!(dns.nameservers, ["10.0.0.1", "fd00::1"]);
        assert_eq!(dns.domain, "b.example");
        assert_eq!(dns.search, ["x.example", "z.example", "y.example"]);
        assert_eq!(dns.options, ["ndots:5", "rotate"]);
        assert!(parse("").is_empty());
    }
}
