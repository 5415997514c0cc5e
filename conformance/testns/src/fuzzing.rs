//! For the tests that give decoders any bytes: what is read of netlink.

use crate::netlink::{Attributes, split};

/// Types and bodies of messages.
#[must_use]
pub fn messages(mut bytes: &[u8]) -> Vec<(u16, Vec<u8>)> {
    std::iter::from_fn(|| split(&mut bytes)).map(|(kind, body)| (kind, body.to_vec())).collect()
}

/// Values of attributes, those in other attributes not among them, behind a message's header of any length.
#[must_use]
pub fn attributes(body: &[u8]) -> Vec<Vec<u8>> {
    let longest =
        [0, 4, 8, 12, 16].map(|header| Attributes::after(body, header).map(|(_, value)| value.to_vec()).collect());
    longest.into_iter().max_by_key(Vec::len).unwrap_or_default()
}
