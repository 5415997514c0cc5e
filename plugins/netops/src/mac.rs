//! Ethernet addresses and their text form.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::str::FromStr;

/// An Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

/// A text that is not an Ethernet address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no Ethernet address like 0a:00:00:00:00:05")]
pub struct MacError(String);

impl Mac {
    /// A random locally administered unicast address (IEEE 802).
    #[must_use]
    pub fn random() -> Self {
        // The hasher's key is random in each process.
        let [_, _, a, b, c, d, e, g] = RandomState::new().build_hasher().finish().to_be_bytes();
        Self([a & 0xfc | 0x02, b, c, d, e, g])
    }

    /// Whether one link can have the address: neither zero, as a bridge has it that lost its last port, nor a group's (IEEE 802).
    #[must_use]
    pub fn is_of_one_link(self) -> bool {
        self.0[0] & 1 == 0 && self.0 != [0; 6]
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Mac {
    type Err = MacError;

    /// Six octets in hexadecimal, separated by colons or dashes, or three groups of four by dots, in any case.
    fn from_str(text: &str) -> std::result::Result<Self, MacError> {
        let error = || MacError(text.to_owned());
        let (separator, digits) = match text {
            _ if text.contains(':') => (':', 2),
            _ if text.contains('-') => ('-', 2),
            _ => ('.', 4),
        };
        let groups: Vec<&str> = text.split(separator).collect();
        if groups.len() * digits != 12 {
            return Err(error());
        }
        let mut octets = Vec::with_capacity(6);
        for group in groups {
            if group.len() != digits || !group.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                return Err(error());
            }
            for start in (0..digits).step_by(2) {
                let pair = group.get(start..start + 2).ok_or_else(error)?;
                octets.push(u8::from_str_radix(pair, 16).ok().ok_or_else(error)?);
            }
        }
        octets.try_into().map(Mac).ok().ok_or_else(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_addresses_are_local_unicast_and_differ() {
        let (one, other) = (Mac::random(), Mac::random());
        assert_ne!(one, other);
        for Mac([first, ..]) in [one, other] {
            assert_eq!(first & 3, 2, "{first:02x}");
        }
    }

    #[test]
    fn mac_texts() {
        let parse = |text: &str| text.parse::<Mac>().map(|mac| mac.to_string()).ok();
        let same = Some("0a:00:00:00:00:05".to_owned());
        assert_eq!(parse("0A:00:00:00:00:05"), same);
        assert_eq!(parse("0a-00-00-00-00-05"), same);
        assert_eq!(parse("0a00.0000.0005"), same);
        for bad in
            ["", "0a:00:00:00:00", "0a:00:00:00:00:5", "0a:00:00:00:00:+5", "0a:00:00:00:00:05:06", "é:00:00:00:00:05"]
        {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
