//! The ranges of addresses that a node has for its pods.

use anyhow::{Context, ensure};
use ipnetwork::IpNetwork;
use std::fmt;
use std::path::Path;

/// The ranges of one node, the primary one first: at least one, each in the form of its network address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranges(Vec<IpNetwork>);

impl Ranges {
    /// Reads ranges in the form `10.1.0.0/24`.
    ///
    /// # Errors
    /// There is none; one is no range, has bits of a host, or is all addresses.
    pub fn parse<S: AsRef<str>>(texts: impl IntoIterator<Item = S>) -> anyhow::Result<Self> {
        let ranges: Vec<_> = texts.into_iter().map(|text| parse_one(text.as_ref())).collect::<Result<_, _>>()?;
        ensure!(!ranges.is_empty(), "there is no range of addresses");
        Ok(Self(ranges))
    }

    /// Reads a file with a range a line. Empty lines and those that begin with `#` are ignored.
    ///
    /// # Errors
    /// As [`Ranges::parse`], and those of reading the file.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let failed = || format!("cannot read ranges from {}", path.display());
        let text = std::fs::read_to_string(path).with_context(failed)?;
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        Self::parse(lines).with_context(failed)
    }

    pub fn iter(&self) -> impl Iterator<Item = &IpNetwork> {
        self.0.iter()
    }

    /// The default routes of the families that the ranges have, as containerd gives them to a template: IPv4 first.
    #[must_use]
    pub fn default_routes(&self) -> Vec<String> {
        let has = |is_wanted: fn(&IpNetwork) -> bool| self.iter().any(is_wanted);
        let (v4, v6) = (has(IpNetwork::is_ipv4), has(IpNetwork::is_ipv6));
        [(v4, "0.0.0.0/0"), (v6, "::/0")].into_iter().filter(|(has, _)| *has).map(|(_, route)| route.into()).collect()
    }

    /// Returns whether a range has addresses of another one.
    #[must_use]
    pub fn overlaps(&self, other: &IpNetwork) -> bool {
        self.iter().any(|own| match (own, other) {
            (IpNetwork::V4(own), IpNetwork::V4(other)) => own.overlaps(*other),
            (IpNetwork::V6(own), IpNetwork::V6(other)) => own.overlaps(*other),
            (IpNetwork::V4(_), IpNetwork::V6(_)) | (IpNetwork::V6(_), IpNetwork::V4(_)) => false,
        })
    }
}

impl fmt::Display for Ranges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<_> = self.iter().map(ToString::to_string).collect();
        f.write_str(&texts.join(", "))
    }
}

fn parse_one(text: &str) -> anyhow::Result<IpNetwork> {
    let range: IpNetwork = text.parse().with_context(|| format!("{text:?} is no range such as 10.1.0.0/24"))?;
    ensure!(text.contains('/'), "{text:?} has no prefix length, such as /24");
    ensure!(
        range.ip() == range.network(),
        "{text} has bits of a host: its range is {}/{}",
        range.network(),
        range.prefix()
    );
    ensure!(range.prefix() > 0, "{text} is all addresses");
    Ok(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_that_is_none_is_refused_with_its_text() {
        for (text, why) in [
            ("10.1.0.0", "has no prefix length"),
            ("10.1.0.1/24", "bits of a host: its range is 10.1.0.0/24"),
            ("0.0.0.0/0", "all addresses"),
            ("10.1.0.0/33", "no range"),
        ] {
            let error = format!("{:#}", Ranges::parse([text]).expect_err(text));
            assert!(error.contains(text) && error.contains(why), "{error}");
        }
        assert!(Ranges::parse([""; 0]).is_err());
    }
}
