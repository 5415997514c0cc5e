//! `resolvConf`: the keywords of resolv.conf(5) that a result can express.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use cni_spec::{CniError, Code, Dns};
use nix::libc::{O_NOCTTY, O_NONBLOCK};

/// A thousand times the size of a long one.
const MAX_BYTES: u64 = 1 << 20;

/// Reads the file that `ipam.resolvConf` names, following links, as `/etc/resolv.conf` is often one.
pub(crate) fn read(path: &Path) -> Result<Dns, CniError> {
    // A fifo must not block until a writer comes, nor a terminal become this process's.
    let file = OpenOptions::new().read(true).custom_flags(O_NONBLOCK | O_NOCTTY).open(path);
    let text = file.and_then(read_bounded).map_err(|error| {
        let object = path.display();
        CniError::new(Code::IO, format!("cannot read {object}: {error}")).detail("It is named by key ipam.resolvConf.")
    })?;
    Ok(parse(&String::from_utf8_lossy(&text)))
}

fn read_bounded(file: File) -> io::Result<Vec<u8>> {
    // A device such as /dev/null means "no DNS"; a fifo without a writer must not look like one.
    let kind = file.metadata()?.file_type();
    if !kind.is_file() && !kind.is_char_device() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut bytes = Vec::new();
    match file.take(MAX_BYTES + 1).read_to_end(&mut bytes)? as u64 > MAX_BYTES {
        true => Err(io::Error::other("it is larger than 1 MiB")),
        false => Ok(bytes),
    }
}

/// Parses `nameserver`, `domain`, `search` and `options`. Lists accumulate over lines; other keywords, lines of one
/// word and comments (`#`, `;`) are skipped.
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
