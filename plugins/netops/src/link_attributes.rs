//! Prepares a message about a link, an address or a rule for the packet crates: names and aliases become [`text`], and
//! attributes that this crate does not use are removed.
//!
//! A link has about sixty attributes, without nested ones, and the packet crates allocate an object for each. That took
//! longer than the kernel takes to find the link.

use std::borrow::Cow;

use crate::netlink_frames::{u16_at, u32_at};
use crate::text;

const RTM_NEWLINK: u16 = 16; // include/uapi/linux/rtnetlink.h
const RTM_DELLINK: u16 = 17;
const RTM_SETLINK: u16 = 19;
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_GETADDR: u16 = 22;
const RTM_NEWRULE: u16 = 32;
const RTM_GETRULE: u16 = 34;
const RTM_NEWLINKPROP: u16 = 108;
const RTM_GETLINKPROP: u16 = 110;
const HEADER_BYTES: usize = 16 + 16; // struct nlmsghdr, struct ifinfomsg
const ADDRESS_HEADER_BYTES: usize = 16 + 8; // struct nlmsghdr, struct ifaddrmsg
const RULE_HEADER_BYTES: usize = 16 + 12; // struct nlmsghdr, struct fib_rule_hdr
/// `IFA_LABEL` (include/uapi/linux/if_addr.h).
const ADDRESS_LABEL: u16 = 3;
const FAMILY_AT: usize = 16; // ifi_family
const AF_BRIDGE: u8 = 7;
const AF_INET6: u8 = 10;
const KIND: u16 = 0x3fff; // NLA_TYPE_MASK

/// `IFLA_ADDRESS`, `IFNAME`, `MTU`, `LINK`, `MASTER`, `TXQLEN`, `OPERSTATE`, `LINKINFO`, `IFALIAS`, `PROMISCUITY`,
/// `GROUP`, `LINK_NETNSID`, `PROP_LIST`, `PERM_ADDRESS`, `PARENT_DEV_NAME`, `PARENT_DEV_BUS_NAME`
/// (include/uapi/linux/if_link.h): the attributes that [`crate::link::Link`] is made from.
const LINK_ATTRIBUTES: [u16; 16] = [1, 3, 4, 5, 10, 13, 16, 18, 20, 27, 30, 37, 52, 54, 56, 57];
/// `IFLA_LINKMODE`, `STATS64`, `AF_SPEC`, `PROTO_DOWN`, `GSO_MAX_SEGS`, `GSO_MAX_SIZE`, `XDP`, `GRO_MAX_SIZE`, `GSO_IPV4_MAX_SIZE`,
/// `GRO_IPV4_MAX_SIZE`: what [`crate::link::details`] and [`crate::link::has_carried`] use besides.
const DETAILS: [u16; 10] = [17, 23, 26, 39, 40, 41, 43, 58, 63, 64];
/// `IFLA_AF_SPEC`: in a message of the bridge family a port's VLANs, the only part that is used; otherwise settings by
/// address family.
const PORT_ATTRIBUTE: u16 = 26;
/// `IFLA_PROTINFO`: in a message of the IPv6 family what routers have advertised.
const IPV6_ATTRIBUTE: u16 = 12;

/// The attributes of a message that are names or aliases.
struct Texts {
    plain: &'static [u16],
    /// Attributes that contain others, all of which are names.
    nested: &'static [u16],
}

/// `IFLA_IFNAME`, `IFLA_IFALIAS`; `IFLA_PROP_LIST`, which has `IFLA_ALT_IFNAME`.
const OF_LINK: Texts = Texts { plain: &[3, 20], nested: &[52] };
const OF_ADDRESS: Texts = Texts { plain: &[ADDRESS_LABEL], nested: &[] };
/// `FRA_IIFNAME`, `FRA_OIFNAME` (include/uapi/linux/fib_rules.h).
const OF_RULE: Texts = Texts { plain: &[3, 17], nested: &[] };

/// The length of the headers, and which attributes are texts. `None`: of another object.
fn layout(message: &[u8]) -> Option<(usize, Texts)> {
    match u16_at(message, 4)? {
        RTM_NEWLINK..=RTM_SETLINK | RTM_NEWLINKPROP..=RTM_GETLINKPROP => Some((HEADER_BYTES, OF_LINK)),
        RTM_NEWADDR..=RTM_GETADDR => Some((ADDRESS_HEADER_BYTES, OF_ADDRESS)),
        RTM_NEWRULE..=RTM_GETRULE => Some((RULE_HEADER_BYTES, OF_RULE)),
        _ => None,
    }
}

/// A message of the kernel's as the packet crates decode it: with text in its attributes, and without the unused ones. A
/// message that is about none of these objects, or is damaged, is returned unchanged.
pub(crate) fn decodable(message: &[u8], in_detail: bool) -> Cow<'_, [u8]> {
    let of_family = match message.get(FAMILY_AT) {
        Some(&AF_BRIDGE) => Some(PORT_ATTRIBUTE),
        Some(&AF_INET6) => Some(IPV6_ATTRIBUTE),
        _ => None,
    };
    let is_of_link =
        |kind| LINK_ATTRIBUTES.contains(&kind) || of_family == Some(kind) || in_detail && DETAILS.contains(&kind);
    let is_used = |kind| match u16_at(message, 4) {
        Some(RTM_NEWLINK | RTM_DELLINK) => is_of_link(kind),
        Some(RTM_NEWADDR | RTM_DELADDR) => in_detail || kind != ADDRESS_LABEL,
        _ => true,
    };
    rewritten(message, is_used, text::read).map_or(Cow::Borrowed(message), Cow::Owned)
}

/// A request as the kernel takes it: with the bytes of names and aliases.
pub(crate) fn sendable(message: &[u8]) -> Cow<'_, [u8]> {
    let changed = text::may_change(message).then(|| rewritten(message, |_| true, text::written)).flatten();
    changed.map_or(Cow::Borrowed(message), Cow::Owned)
}

/// The message with the attributes of these kinds only, and other texts.
fn rewritten(message: &[u8], is_used: impl Fn(u16) -> bool, change: fn(&[u8]) -> Cow<'_, [u8]>) -> Option<Vec<u8>> {
    let (header_bytes, texts) = layout(message)?;
    let length = usize::try_from(u32_at(message, 0)?).ok()?;
    let (headers, attributes) = message.get(..length)?.split_at_checked(header_bytes)?;
    let mut kept = Vec::with_capacity(length);
    kept.extend_from_slice(headers);
    rewrite(attributes, &mut kept, &texts, &is_used, change)?;
    let length = u32::try_from(kept.len()).ok()?;
    kept.get_mut(..4)?.copy_from_slice(&length.to_ne_bytes());
    Some(kept)
}

fn rewrite(
    mut rest: &[u8],
    kept: &mut Vec<u8>,
    texts: &Texts,
    is_used: &dyn Fn(u16) -> bool,
    change: fn(&[u8]) -> Cow<'_, [u8]>,
) -> Option<()> {
    /// All attributes are texts.
    const NAMES: Texts = Texts { plain: &[53], nested: &[] }; // IFLA_ALT_IFNAME
    while !rest.is_empty() {
        let (length, kind) = (usize::from(u16_at(rest, 0)?), u16_at(rest, 2)? & KIND);
        if is_used(kind) {
            let attribute = rest.get(..length)?;
            match attribute.split_at_checked(4) {
                Some((header, value)) if texts.nested.contains(&kind) => {
                    let mut names = Vec::with_capacity(value.len());
                    rewrite(value, &mut names, &NAMES, &|_| true, change)?;
                    push_names(kept, header, &names)?;
                }
                Some((header, value)) if texts.plain.contains(&kind) => push(kept, header, &change(value))?,
                _ => kept.extend_from_slice(attribute),
            }
            kept.resize(kept.len().next_multiple_of(4), 0);
        }
        // A length of 0 would loop forever. The packet crates report it as an error.
        rest = rest.get(length.max(4).next_multiple_of(4)..).unwrap_or_default();
    }
    Some(())
}

/// An attribute with this header, but for its length.
fn push(kept: &mut Vec<u8>, header: &[u8], value: &[u8]) -> Option<()> {
    kept.extend_from_slice(&u16::try_from(4 + value.len()).ok()?.to_ne_bytes());
    kept.extend_from_slice(header.get(2..)?);
    kept.extend_from_slice(value);
    Some(())
}

/// Writes as many attributes as the names need: as text they may be too long for one.
fn push_names(kept: &mut Vec<u8>, header: &[u8], mut names: &[u8]) -> Option<()> {
    const PART_BYTES: usize = 32 * 1024;
    loop {
        let mut end = 0;
        while let Some(length) = names.get(end..).and_then(|rest| u16_at(rest, 0)).filter(|_| end < PART_BYTES) {
            end = (end + usize::from(length).max(4).next_multiple_of(4)).min(names.len());
        }
        let (part, rest) = names.split_at_checked(end)?;
        push(kept, header, part)?;
        if rest.is_empty() || part.is_empty() {
            return Some(());
        }
        names = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::{Link, Mac};
    use crate::netlink_connection::parse;
    use netlink_packet_core::NetlinkMessage;
    use netlink_packet_route::RouteNetlinkMessage;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(value.len() + 4).unwrap().to_ne_bytes();
        let padding = vec![0; value.len().next_multiple_of(4) - value.len()];
        [&length[..], &kind.to_ne_bytes(), value, &padding].concat()
    }

    /// A message of this kind, with 7 at the place of the index, and with `attributes`.
    fn message(kind: u16, header: &[u8], attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let body: Vec<u8> = attributes.iter().flat_map(|(kind, value)| attribute(*kind, value)).collect();
        let length = u32::try_from(16 + header.len() + body.len()).unwrap();
        let mut message = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 10], header, &body].concat();
        message[20..24].copy_from_slice(&7_u32.to_ne_bytes());
        message
    }

    /// `RTM_NEWLINK` for link 7 with `attributes`.
    fn link(family: u8, attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut header = [0; HEADER_BYTES - 16];
        header[0] = family;
        message(RTM_NEWLINK, &header, attributes)
    }

    fn whole(bytes: &[u8]) -> Link {
        let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(bytes).unwrap();
        match message.payload {
            netlink_packet_core::NetlinkPayload::InnerMessage(message) => Link::from_message(&message).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_remaining_attributes_decode_to_the_same_link() {
        let (bridge, name) = (attribute(1, b"bridge\0"), attribute(53, b"enp3\0"));
        let of_families = attribute(10, &attribute(1, &[0; 4]));
        let number = 5_u32.to_ne_bytes();
        let attributes: [(u16, &[u8]); 19] = [
            (3, b"cni0\0"),
            (7, &[0; 96]), // statistics
            (4, &1400_u32.to_ne_bytes()),
            (1, &[2, 0, 0, 0, 0, 9]),
            (5, &number),
            (10, &number),
            (13, &number),
            (26 | 1 << 15, &of_families),
            (16, &[6]),
            (18, &bridge),
            (20, b"cni:net/pod/eth0\0"),
            (27, &number),
            (30, &number),
            (37, &number),
            (52 | 1 << 15, &name),
            (54, &[2, 0, 0, 0, 0, 8]),
            (56, b"0000:3b:00.1\0"),
            (57, b"pci\0"),
            (999, b"of a newer kernel"),
        ];
        let message = link(0, &attributes);
        let without = decodable(&message, false);
        assert!(without.len() + 100 < message.len(), "{}", without.len());
        let read = whole(&without);
        assert_eq!(read, whole(&message));
        assert_eq!(read.alias.as_deref(), Some("cni:net/pod/eth0"));
        assert_eq!((read.mtu_bytes, read.peer, read.master, read.tx_queue_len), (1400, Some(5), Some(5), 5));
        assert_eq!((read.promiscuity, read.group, read.peer_netns_id), (5, 5, Some(5)));
        assert_eq!(read.parent_device.as_deref(), Some("pci/0000:3b:00.1"));
        assert_eq!(read.permanent_mac, Some(Mac([2, 0, 0, 0, 0, 8])));
        assert_eq!(read.alt_names, ["enp3"]);
    }

    #[test]
    fn a_rule_on_a_link_whose_name_is_no_text_is_decoded() {
        let message = message(RTM_NEWRULE, &[2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[(3, b"a\xff\0")]);
        let decoded = |bytes: &[u8]| NetlinkMessage::<RouteNetlinkMessage>::deserialize(bytes);
        assert!(decoded(&message).is_err() && decoded(&decodable(&message, false)).is_ok());
        assert_eq!(sendable(&decodable(&message, false)), message);
    }

    #[test]
    fn a_damaged_message_is_returned_unchanged() {
        let mut cut = link(0, &[(3, b"cni0\0")]);
        cut[32..34].copy_from_slice(&200_u16.to_ne_bytes());
        assert_eq!(decodable(&cut, false), cut);
        assert!(parse(&cut, false).is_err());
        let mut endless = link(0, &[(999, b"")]);
        endless[32..34].fill(0);
        assert_eq!(decodable(&endless, false), link(0, &[]));
        assert_eq!(decodable(&cut[..20], false), &cut[..20]);
    }
}
