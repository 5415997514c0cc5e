//! The versions of the specification, and what each allows.

use crate::error::{CniError, Code};
use std::fmt;

/// A released version of the specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum SpecVersion {
    /// 0.1.0: one IPv4 and one IPv6 address.
    V0_1_0,
    /// 0.2.0: adds VERSION.
    V0_2_0,
    /// 0.3.0: lists of interfaces and addresses, plugin chains.
    V0_3_0,
    /// 0.3.1: as 0.3.0, corrected.
    V0_3_1,
    /// 0.4.0: adds CHECK and prevResult for DEL.
    V0_4_0,
    /// 1.0.0: drops the address family field; lists only.
    V1_0_0,
    /// 1.1.0: adds GC, STATUS, mtu and route attributes.
    V1_1_0,
}

/// The shapes a result can have (SPEC 5 and its older editions).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Family {
    /// 0.1.0 and 0.2.0: `ip4` and `ip6`.
    V02,
    /// 0.3.0 to 0.4.0: `ips` with `version`.
    V04,
    /// 1.0.0 and 1.1.0: `ips` without.
    V1,
}

impl SpecVersion {
    /// Every version, oldest first.
    pub const ALL: [SpecVersion; 7] = [
        SpecVersion::V0_1_0,
        SpecVersion::V0_2_0,
        SpecVersion::V0_3_0,
        SpecVersion::V0_3_1,
        SpecVersion::V0_4_0,
        SpecVersion::V1_0_0,
        SpecVersion::V1_1_0,
    ];
    /// The newest version.
    pub const LATEST: SpecVersion = SpecVersion::V1_1_0;

    /// The version as written in `cniVersion`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            SpecVersion::V0_1_0 => "0.1.0",
            SpecVersion::V0_2_0 => "0.2.0",
            SpecVersion::V0_3_0 => "0.3.0",
            SpecVersion::V0_3_1 => "0.3.1",
            SpecVersion::V0_4_0 => "0.4.0",
            SpecVersion::V1_0_0 => "1.0.0",
            SpecVersion::V1_1_0 => "1.1.0",
        }
    }

    /// The version spelled exactly `text`; empty means 0.1.0, as a config without `cniVersion` does.
    #[must_use]
    pub fn find(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Some(SpecVersion::V0_1_0);
        }
        Self::ALL.into_iter().find(|version| version.as_str() == text)
    }

    /// This version and all later ones, oldest first: what a plugin supports that needs what this version brought.
    #[must_use]
    pub const fn and_later(self) -> &'static [SpecVersion] {
        const ALL: &[SpecVersion] = &SpecVersion::ALL;
        ALL.split_at(self as usize).1
    }

    /// The form of results.
    #[must_use]
    pub fn family(self) -> Family {
        match self {
            SpecVersion::V0_1_0 | SpecVersion::V0_2_0 => Family::V02,
            SpecVersion::V0_3_0 | SpecVersion::V0_3_1 | SpecVersion::V0_4_0 => Family::V04,
            SpecVersion::V1_0_0 | SpecVersion::V1_1_0 => Family::V1,
        }
    }

    /// Whether the version has CHECK, and gives DEL a prevResult.
    #[must_use]
    pub fn has_check(self) -> bool {
        self >= SpecVersion::V0_4_0
    }

    /// Whether the version has GC and STATUS.
    #[must_use]
    pub fn has_gc(self) -> bool {
        self >= SpecVersion::V1_1_0
    }
}

impl fmt::Display for SpecVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A version number of one to three parts, released or not, for ordering: `1` is 1.0.0.
///
/// # Errors
/// Code 6 if a part is not a number or there are more than three.
pub fn parse_number(text: &str) -> Result<(u32, u32, u32), CniError> {
    if text.is_empty() {
        return Ok((0, 1, 0));
    }
    let bad = || {
        CniError::new(Code::DECODING, format!("cannot parse version {text:?}: want up to three numbers, such as 1.1.0"))
    };
    let parts = text.split('.').map(parse_part).collect::<Option<Vec<u32>>>().ok_or_else(bad)?;
    match parts[..] {
        [major] => Ok((major, 0, 0)),
        [major, minor] => Ok((major, minor, 0)),
        [major, minor, patch] => Ok((major, minor, patch)),
        _ => Err(bad()),
    }
}

/// Digits only: `u32::from_str` would also take `+1`.
fn parse_part(part: &str) -> Option<u32> {
    part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_is_found_by_its_name() {
        for version in SpecVersion::ALL {
            assert_eq!(SpecVersion::find(version.as_str()), Some(version));
        }
        assert_eq!(SpecVersion::find(""), Some(SpecVersion::V0_1_0));
        assert_eq!(SpecVersion::find("1"), None);
    }

    #[test]
    fn later_versions_begin_with_the_version_itself() {
        assert_eq!(SpecVersion::V0_1_0.and_later(), SpecVersion::ALL);
        assert_eq!(SpecVersion::V0_4_0.and_later(), [SpecVersion::V0_4_0, SpecVersion::V1_0_0, SpecVersion::V1_1_0]);
    }

    #[test]
    fn numbers_have_one_to_three_parts() {
        assert_eq!(parse_number("1").ok(), Some((1, 0, 0)));
        assert_eq!(parse_number("0.42").ok(), Some((0, 42, 0)));
        assert_eq!(parse_number("").ok(), Some((0, 1, 0)));
        for bad in ["1.2.3.4", "a", "1.", "-1", "+1", "1.0.0-rc1", "99999999999"] {
            assert!(parse_number(bad).is_err(), "{bad}");
        }
    }
}
