//! What a link has besides what [`Link`] says: settings that the kernel makes anew in each namespace (its sysctls, what its
//! bridge has for it), and those that the administrator of the namespace that it is in can change.
//!
//! Settings are numbers by name, `ipv6/accept_ra`: a caller that keeps them for later needs no more.

use std::collections::BTreeMap;

use netlink_packet_core::{DefaultNla, Nla};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    AfSpecInet, AfSpecInet6, AfSpecUnspec, Inet6DevConf, InetDevConf, InfoBridgePort, InfoPortData, InfoPortKind,
    LinkAttribute, LinkInfo, LinkMessage, LinkProtocolDownReason, LinkXdp,
};

use super::{Link, Target, get_request};
use crate::error::{OpError, Result};
use crate::netlink_connection::{Kernel, Request};
use crate::sysctl::{self, Key};

/// Settings by name.
pub type Values = BTreeMap<String, i64>;

type Size = fn(u32) -> LinkAttribute;

type Sysctls<Conf, const N: usize> = [(&'static str, fn(&Conf) -> i32); N];

/// Sysctls of `net/ipv4/conf/LINK`.
const IPV4: Sysctls<InetDevConf, 13> = [
    ("accept_local", |conf| conf.accept_local),
    ("accept_redirects", |conf| conf.accept_redirects),
    ("accept_source_route", |conf| conf.accept_source_route),
    ("arp_announce", |conf| conf.arp_announce),
    ("arp_filter", |conf| conf.arpfilter),
    ("arp_ignore", |conf| conf.arp_ignore),
    ("forwarding", |conf| conf.forwarding),
    ("log_martians", |conf| conf.log_martians),
    ("proxy_arp", |conf| conf.proxy_arp),
    ("route_localnet", |conf| conf.route_localnet),
    ("rp_filter", |conf| conf.rp_filter),
    ("secure_redirects", |conf| conf.secure_redirects),
    ("send_redirects", |conf| conf.send_redirects),
];

/// Sysctls of `net/ipv6/conf/LINK`.
const IPV6: Sysctls<Inet6DevConf, 10> = [
    ("accept_dad", |conf| conf.accept_dad),
    ("accept_ra", |conf| conf.accept_ra),
    ("accept_redirects", |conf| conf.accept_redirects),
    ("accept_source_route", |conf| conf.accept_source_route),
    ("addr_gen_mode", |conf| conf.addr_gen_mode),
    ("autoconf", |conf| conf.autoconf),
    ("disable_ipv6", |conf| conf.disable_ipv6),
    ("forwarding", |conf| conf.forwarding),
    ("proxy_ndp", |conf| conf.proxy_ndp),
    ("use_tempaddr", |conf| conf.use_tempaddr),
];

/// The settings without which a link takes part in more than its administrator allows.
const CRITICAL: [&str; 5] =
    ["ipv4/forwarding", "ipv4/rp_filter", "ipv6/accept_ra", "ipv6/disable_ipv6", "ipv6/forwarding"];

/// `IFLA_BRPORT_*` (include/uapi/linux/if_link.h): name, number, and bytes of the value.
const PORT: [(&str, u16, usize); 22] = [
    ("bcast_flood", 30, 1),
    (COST, 3, 4),
    ("fastleave", 7, 1),
    ("flood", 9, 1),
    ("group_fwd_mask", 31, 2),
    ("guard", 5, 1),
    ("hairpin", 4, 1),
    ("isolated", 33, 1),
    ("learning", 8, 1),
    ("locked", 39, 1),
    ("mab", 40, 1),
    ("mcast_flood", 27, 1),
    ("mcast_max_groups", 42, 4),
    ("mcast_router", 25, 1),
    ("mcast_to_unicast", 28, 1),
    ("neigh_suppress", 32, 1),
    ("neigh_vlan_suppress", 43, 1),
    ("priority", 2, 2),
    ("proxy_arp", 10, 1),
    ("proxy_arp_wifi", 12, 1),
    ("root_block", 6, 1),
    ("vlan_tunnel", 29, 1),
];
/// The kernel makes one of the link's speed when that is set up.
const COST: &str = "cost";

/// Where a program for incoming packets can be: name, and `XDP_FLAGS_*` (include/uapi/linux/if_link.h).
const XDP: [(&str, u32); 3] = [("driver", 4), ("generic", 2), ("hardware", 8)];

/// Reads them all, in one call to the kernel. What the kernel does not have is absent.
///
/// # Errors
/// `ENODEV`: the link is gone.
pub fn read(net: &Kernel, link: &Link) -> Result<Values> {
    let reply = net.call(get_request(&link.into()).in_detail())?;
    let mut values = Values::new();
    reply.iter().for_each(|answer| take_all(&mut values, answer));
    Ok(values)
}

/// Takes those in one answer of the kernel's.
pub(crate) fn take_all(values: &mut Values, answer: &RouteNetlinkMessage) {
    if let RouteNetlinkMessage::NewLink(LinkMessage { attributes, .. }) = answer {
        attributes.iter().for_each(|attribute| take(values, attribute));
    }
}

fn take(values: &mut Values, attribute: &LinkAttribute) {
    let mut insert = |family: &str, name: &str, value: i64| {
        values.insert(format!("{family}/{name}"), value);
    };
    match attribute {
        LinkAttribute::Mode(mode) => insert("link", "mode", u8::from(*mode).into()),
        LinkAttribute::ProtoDown(down) => insert("link", "proto_down", (*down).into()),
        LinkAttribute::GsoMaxSegs(number) => insert("size", "gso_max_segs", (*number).into()),
        LinkAttribute::GsoMaxSize(bytes) => insert("size", "gso_max_size", (*bytes).into()),
        LinkAttribute::GroMaxSize(bytes) => insert("size", "gro_max_size", (*bytes).into()),
        LinkAttribute::GsoIpv4MaxSize(bytes) => insert("size", "gso_ipv4_max_size", (*bytes).into()),
        LinkAttribute::GroIpv4MaxSize(bytes) => insert("size", "gro_ipv4_max_size", (*bytes).into()),
        LinkAttribute::Xdp(programs) => {
            for program in programs {
                match program {
                    LinkXdp::DrvProgId(id) => insert("xdp", "driver", (*id).into()),
                    LinkXdp::SkbProgId(id) => insert("xdp", "generic", (*id).into()),
                    LinkXdp::HwProgId(id) => insert("xdp", "hardware", (*id).into()),
                    _ => (),
                }
            }
        }
        LinkAttribute::LinkInfo(infos) => {
            for info in infos {
                if let LinkInfo::PortData(InfoPortData::BridgePort(options)) = info {
                    for (name, value) in options.iter().filter_map(port_option) {
                        insert("port", name, value);
                    }
                }
            }
        }
        LinkAttribute::AfSpecUnspec(families) => {
            for family in families {
                match family {
                    AfSpecUnspec::Inet(all) => {
                        for one in all {
                            if let AfSpecInet::DevConf(conf) = one {
                                IPV4.iter().for_each(|(name, value)| insert("ipv4", name, value(conf).into()));
                            }
                        }
                    }
                    AfSpecUnspec::Inet6(all) => {
                        for one in all {
                            if let AfSpecInet6::DevConf(conf) = one {
                                IPV6.iter().for_each(|(name, value)| insert("ipv6", name, value(conf).into()));
                            }
                        }
                    }
                    _ => (),
                }
            }
        }
        _ => (),
    }
}

fn port_option(option: &InfoBridgePort) -> Option<(&'static str, i64)> {
    let (name, _, bytes) = PORT.iter().find(|(_, kind, _)| *kind == option.kind())?;
    let mut value = [0; 8];
    option.emit_value(value.get_mut(..option.value_len()).filter(|place| place.len() == *bytes)?);
    // The kernel's numbers are the machine's.
    let bits = if cfg!(target_endian = "big") {
        i64::from_be_bytes(value) >> (64 - 8 * bytes)
    } else {
        i64::from_le_bytes(value)
    };
    Some((name, bits))
}

/// The requests that give a link the mode (`dormant`), the sizes and the `proto_down` that are `wanted`.
pub fn restore(link: &Link, wanted: &Values, now: &Values) -> Vec<Request> {
    let mut requests = Vec::new();
    let mut push = |what: &str, attributes: Vec<LinkAttribute>| requests.push(set(link, what, attributes));
    for (name, value) in changed("link", wanted, now) {
        let value = u8::try_from(value).unwrap_or_default();
        match name {
            "mode" => push("mode", vec![LinkAttribute::Mode(value.into())]),
            // As long as there is a reason, the kernel refuses to take it back.
            "proto_down" if value == 0 => {
                let reasons = vec![LinkProtocolDownReason::Mask(u32::MAX), LinkProtocolDownReason::Value(0)];
                push("proto_down", vec![LinkAttribute::ProtoDownReason(reasons), LinkAttribute::ProtoDown(0)]);
            }
            "proto_down" => push("proto_down", vec![LinkAttribute::ProtoDown(value)]),
            _ => (),
        }
    }
    // The kernel changes the sizes for IPv4 with those for both, so these are first.
    if changed("size", wanted, now).next().is_some() {
        let sizes: [(&str, Size); 5] = [
            ("gso_max_segs", LinkAttribute::GsoMaxSegs),
            ("gso_max_size", LinkAttribute::GsoMaxSize),
            ("gro_max_size", LinkAttribute::GroMaxSize),
            ("gso_ipv4_max_size", LinkAttribute::GsoIpv4MaxSize),
            ("gro_ipv4_max_size", LinkAttribute::GroIpv4MaxSize),
        ];
        let wanted = |name: &str| wanted.get(&format!("size/{name}")).and_then(|value| u32::try_from(*value).ok());
        for (name, attribute) in sizes {
            if let Some(value) = wanted(name).filter(|_| now.contains_key(&format!("size/{name}"))) {
                push(name, vec![attribute(value)]);
            }
        }
    }
    requests
}

fn set(link: &Link, what: &str, attributes: Vec<LinkAttribute>) -> Request {
    let mut message = Target::from(link).message();
    message.attributes.extend(attributes);
    Request::new("set", format!("{what} of link {}", link.name), RouteNetlinkMessage::SetLink(message))
        .wire_name(format!("RTM_SETLINK dev={} {what}", link.name))
}

/// The requests that detach the XDP programs that the link has `now` and had not.
pub fn detach_programs(link: &Link, had: &Values, now: &Values) -> Vec<Request> {
    let is_new = |name: &str| {
        let id = |values: &Values| values.get(&format!("xdp/{name}")).copied();
        id(now).is_some() && id(now) != id(had)
    };
    let detach = |(name, flags): &(&str, u32)| {
        let nothing = LinkAttribute::Xdp(vec![LinkXdp::Fd(-1), LinkXdp::Flags(*flags)]);
        set(link, &format!("no XDP program ({name})"), vec![nothing])
    };
    XDP.iter().filter(|(name, _)| is_new(name)).map(detach).collect()
}

/// The request that gives a port of a bridge the settings that are `wanted`, but for its cost.
pub fn restore_port(link: &Link, wanted: &Values, now: &Values) -> Option<Request> {
    port_request(link, wanted, now, |name| name != COST)
}

/// The request that gives a port of a bridge the cost that is wanted, once it is up.
pub fn restore_cost(link: &Link, wanted: &Values, now: &Values) -> Option<Request> {
    port_request(link, wanted, now, |name| name == COST)
}

fn port_request(link: &Link, wanted: &Values, now: &Values, is_meant: impl Fn(&str) -> bool) -> Option<Request> {
    let option = |(name, value): (&str, i64)| {
        let (_, kind, bytes) = PORT.iter().find(|(of, ..)| *of == name)?;
        let value = value.to_le_bytes().get(..*bytes)?.to_vec();
        let value = if cfg!(target_endian = "big") { value.into_iter().rev().collect() } else { value };
        Some(InfoBridgePort::Other(DefaultNla::new(*kind, value)))
    };
    let options: Vec<_> = changed("port", wanted, now).filter(|(name, _)| is_meant(name)).filter_map(option).collect();
    if options.is_empty() {
        return None;
    }
    let mut message = Target::from(link).message();
    message.attributes.push(LinkAttribute::LinkInfo(vec![
        LinkInfo::PortKind(InfoPortKind::Bridge),
        LinkInfo::PortData(InfoPortData::BridgePort(options)),
    ]));
    let request = Request::new("set", format!("bridge port {}", link.name), RouteNetlinkMessage::NewLink(message));
    Some(request.wire_name(format!("RTM_NEWLINK dev={} bridge_slave", link.name)))
}

/// The values of one part (`ipv6`) that are others `now`, and are there: name without the part, and value wanted.
fn changed<'a>(part: &'a str, wanted: &'a Values, now: &'a Values) -> impl Iterator<Item = (&'a str, i64)> {
    wanted.iter().filter_map(move |(name, value)| {
        let (of, short) = name.split_once('/')?;
        let is_other = now.get(name).is_some_and(|now| now != value);
        (of == part && is_other).then_some((short, *value))
    })
}

/// Writes the sysctls of the link, in the caller's namespace, that are not as `wanted`.
/// Returns those that could not be written, each with whether it is one that a link should not be set up without: by them
/// it takes router advertisements, has addresses, forwards, or receives from anywhere.
#[must_use]
pub fn restore_sysctls(link: &str, wanted: &Values, now: &Values) -> Vec<(bool, OpError)> {
    let mut failed = Vec::new();
    for family in ["ipv4", "ipv6"] {
        for (name, value) in changed(family, wanted, now) {
            let written = Key::of_link(family, link, name).and_then(|key| sysctl::ensure(&key, &value.to_string()));
            let is_critical = || CRITICAL.contains(&&*format!("{family}/{name}"));
            failed.extend(written.err().map(|error| (is_critical(), error)));
        }
    }
    failed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::{self, Bridge};

    /// A kernel without BPF, on which the tests may run, at least understands the request.
    #[test]
    fn the_kernel_understands_that_a_program_is_detached() {
        crate::Netns::run_in_new(|| {
            let net = Kernel::host().unwrap();
            net.run(link::create_bridge("br0", &Bridge::default())).unwrap();
            let link = link::find(&net, "br0").unwrap().unwrap();
            let (none, one) = (Values::new(), Values::from([("xdp/generic".to_owned(), 7)]));
            assert!(detach_programs(&link, &one, &one).is_empty() && detach_programs(&link, &one, &none).is_empty());
            net.run_all(detach_programs(&link, &none, &one)).unwrap();
        })
        .unwrap();
    }

    #[test]
    fn a_part_has_what_is_other_now() {
        let values =
            |all: &[(&str, i64)]| all.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect::<Values>();
        let wanted = values(&[("ipv4/rp_filter", 1), ("ipv6/accept_ra", 0), ("ipv6/autoconf", 1), ("ipv6/gone", 3)]);
        let now = values(&[("ipv4/rp_filter", 0), ("ipv6/accept_ra", 1), ("ipv6/autoconf", 1), ("ipv6/new", 3)]);
        assert_eq!(changed("ipv6", &wanted, &now).collect::<Vec<_>>(), [("accept_ra", 0)]);
    }
}
