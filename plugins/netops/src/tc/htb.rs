//! A limit of some of the packets that a link sends: a root of kind `htb`, with one class for the limited packets.
//!
//! Packets that the root sends by no class have no limit. A filter for each network chooses the way that is not the default.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{
    TcAttribute, TcFilterU32, TcFilterU32Option, TcMessage, TcOption, TcU32Key, TcU32Selector, TcU32SelectorFlags,
};

use super::{BELOW, HTB, OWN, Qdisc, RATE_AT, filters, find_root, nested, rate_in, words};
use crate::error::Result;
use crate::feature::Feature;
use crate::link::Link;
use crate::netlink_connection::{Kernel, Request};
use crate::netlink_frames::u32_at;
use crate::nft::wire::Attrs;

const TCA_HTB_PARMS: u16 = 1; // include/uapi/linux/pkt_sched.h
const TCA_HTB_INIT: u16 = 2;
const TCA_HTB_DIRECT_QLEN: u16 = 5;
const TCA_HTB_RATE64: u16 = 6;
const TCA_HTB_CEIL64: u16 = 7;
const VERSION: u32 = 3;
const RATE_TO_QUANTUM: u32 = 10;
/// The most packets without a limit that wait in the root. No other program is known to choose this number, so it marks a root
/// as one of [`super::add`].
const DIRECT_PACKETS: u32 = 1024;
const BUFFER_AT: usize = 24;
/// There is one class, so any number does; without one the kernel logs a warning.
const QUANTUM_BYTES: u32 = 10_000;
const ETH_P_IP: u16 = 0x0800; // include/uapi/linux/if_ether.h
const ETH_P_IPV6: u16 = 0x86dd;

/// The rate of a class, and which packets it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Htb {
    /// The rate, in bytes per second; 0 while there is no class.
    pub rate_bytes: u64,
    /// The burst: the time to send it at the rate, in ticks of 64 ns.
    pub buffer_ticks: u32,
    /// Whether packets without a filter are limited, and those with one are not; otherwise the other way round.
    pub limits_others: bool,
    /// Sorted, each once.
    pub filters: Vec<Filter>,
}

/// The end of a packet's way whose address a filter compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The sender.
    Source,
    /// The receiver.
    Destination,
}

/// A filter of the addresses of one network.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Filter {
    protocol: u16,
    /// Offset in the packet, mask and value of each word.
    words: Vec<(i32, u32, u32)>,
    is_limited: bool,
}

impl Htb {
    /// A limit that only `networks` have, or, with `limits_others`, all but they.
    #[must_use]
    pub fn new((rate_bytes, buffer_ticks): (u64, u32), limits_others: bool, end: End, networks: &[IpNetwork]) -> Self {
        let mut filters: Vec<_> = networks.iter().map(|network| Filter::new(*network, end, !limits_others)).collect();
        filters.sort();
        filters.dedup();
        Self { rate_bytes, buffer_ticks, limits_others, filters }
    }

    /// The root, for [`super::add`].
    #[must_use]
    pub fn root(&self) -> Qdisc {
        Qdisc::Htb { limits_others: self.limits_others }
    }

    /// Adds class and filters to the root, which has none.
    ///
    /// # Errors
    /// `ENODEV`: the link is gone. [`crate::error::Cause::Unsupported`]: the kernel lacks `u32`.
    pub fn below_root(&self, link: &Link) -> Vec<Request> {
        let filters = self.filters.iter().map(|filter| filter.add(link));
        std::iter::once(self.class(link)).chain(filters).collect()
    }

    fn class(&self, link: &Link) -> Request {
        let mut message = TcMessage::with_index(link.index.cast_signed());
        (message.header.handle, message.header.parent) = (BELOW, OWN);
        let rate = u32::try_from(self.rate_bytes).unwrap_or(u32::MAX);
        let ticks = self.buffer_ticks;
        // struct tc_htb_opt: two tc_ratespec of 12 bytes, buffer, cbuffer, quantum, level, prio.
        let numbers = [(RATE_AT, rate), (12 + RATE_AT, rate), (BUFFER_AT, ticks), (28, ticks), (32, QUANTUM_BYTES)];
        let parameters = words(44, numbers);
        let long = self.rate_bytes.to_ne_bytes().to_vec();
        let options = [(TCA_HTB_PARMS, parameters), (TCA_HTB_RATE64, long.clone()), (TCA_HTB_CEIL64, long)];
        let options = options.map(|(kind, value)| TcOption::Other(DefaultNla::new(kind, value))).into();
        message.attributes = vec![TcAttribute::Kind(HTB.to_owned()), TcAttribute::Options(options)];
        Request::new("add", format!("class of {}", link.name), RouteNetlinkMessage::NewTrafficClass(message))
            .flags(NLM_F_CREATE | NLM_F_EXCL)
            .wire_name(format!("RTM_NEWTCLASS dev={} kind={HTB}", link.name))
    }

    /// The limit of a link whose root is one of [`Htb::root`].
    ///
    /// # Errors
    /// `ENODEV`: the link is gone.
    pub fn find(net: &Kernel, link: &Link) -> Result<Option<Self>> {
        let Some(Qdisc::Htb { limits_others }) = find_root(net, link)? else { return Ok(None) };
        let message = RouteNetlinkMessage::GetTrafficClass(TcMessage::with_index(link.index.cast_signed()));
        let request = Request::new("list", format!("classes of {}", link.name), message)
            .flags(NLM_F_DUMP)
            .wire_name(format!("RTM_GETTCLASS dump dev={}", link.name));
        let class = net.call(request)?.iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewTrafficClass(class) if class.header.handle == BELOW => class_in(class),
            _ => None,
        });
        let (rate_bytes, buffer_ticks) = class.unwrap_or_default();
        let mut like = TcMessage::with_index(link.index.cast_signed());
        like.header.parent = OWN;
        let mut filters: Vec<_> = filters(net, link, like)?.iter().filter_map(Filter::read).collect();
        filters.sort();
        Ok(Some(Self { rate_bytes, buffer_ticks, limits_others, filters }))
    }
}

/// Options of the root.
pub(super) fn root_options(limits_others: bool) -> Vec<TcOption> {
    // struct tc_htb_glob: version, rate2quantum, defcls, debug, direct_pkts.
    let default = if limits_others { BELOW.minor } else { 0 };
    let init = words(20, [(0, VERSION), (4, RATE_TO_QUANTUM), (8, default.into())]);
    let direct = DIRECT_PACKETS.to_ne_bytes().to_vec();
    [(TCA_HTB_INIT, init), (TCA_HTB_DIRECT_QLEN, direct)]
        .map(|(kind, value)| TcOption::Other(DefaultNla::new(kind, value)))
        .into()
}

/// Reads the root's options; `None` if it is another program's.
pub(super) fn read_root(options: &[u8]) -> Option<Qdisc> {
    let options = Attrs(options);
    let is_own = u32_at(options.get(TCA_HTB_DIRECT_QLEN)?, 0)? == DIRECT_PACKETS;
    let default = u32_at(options.get(TCA_HTB_INIT)?, 8)?;
    is_own.then_some(Qdisc::Htb { limits_others: default == u32::from(BELOW.minor) })
}

fn class_in(message: &TcMessage) -> Option<(u64, u32)> {
    let options = nested(message)?;
    let parameters = Attrs(&options).get(TCA_HTB_PARMS)?;
    Some((rate_in(&options, TCA_HTB_RATE64, parameters)?, u32_at(parameters, BUFFER_AT)?))
}

impl Filter {
    fn new(network: IpNetwork, end: End, is_limited: bool) -> Self {
        // Offsets of the addresses in struct iphdr and struct ipv6hdr.
        let (protocol, source, destination) = if network.is_ipv4() { (ETH_P_IP, 12, 16) } else { (ETH_P_IPV6, 8, 24) };
        let at = if end == End::Source { source } else { destination };
        let pairs = words_of(network.mask()).into_iter().zip(words_of(network.network()));
        let all = (at..).step_by(4).zip(pairs).map(|(at, (mask, value))| (at, mask, value));
        // A network of all addresses compares its first word with the mask 0.
        let words = all.filter(|(place, mask, _)| *place == at || *mask != 0).collect();
        Self { protocol, words, is_limited }
    }

    fn add(&self, link: &Link) -> Request {
        let mut message = TcMessage::with_index(link.index.cast_signed());
        message.header.parent = OWN;
        // Each preference has filters of one protocol.
        let preference = if self.protocol == ETH_P_IP { 1 } else { 2 };
        message.header.info = (preference << 16) | u32::from(self.protocol.to_be());
        let mut selector = TcU32Selector::default();
        selector.flags = TcU32SelectorFlags::Terminal;
        let key = |(off, mask, val): &(i32, u32, u32)| {
            let mut key = TcU32Key::default();
            (key.off, key.mask, key.val) = (*off, *mask, *val);
            key
        };
        selector.keys = self.words.iter().map(key).collect();
        selector.nkeys = u8::try_from(selector.keys.len()).unwrap_or(u8::MAX);
        let class = if self.is_limited { BELOW } else { OWN };
        message.attributes.push(TcAttribute::Kind(TcFilterU32::KIND.to_owned()));
        message.attributes.push(TcAttribute::Options(vec![
            TcOption::U32(TcFilterU32Option::ClassId(class)),
            TcOption::U32(TcFilterU32Option::Selector(selector)),
        ]));
        Request::new("add", format!("filter of {}", link.name), RouteNetlinkMessage::NewTrafficFilter(message))
            .flags(NLM_F_CREATE | NLM_F_EXCL)
            .needs(Feature::Redirect)
            .wire_name(format!("RTM_NEWTFILTER dev={} kind=u32", link.name))
    }

    fn read(message: &TcMessage) -> Option<Self> {
        let protocol = u16::from_be(u16::try_from(message.header.info & 0xffff).ok()?);
        let (mut words, mut is_limited) = (None, false);
        let options = message.attributes.iter().filter_map(|attribute| match attribute {
            TcAttribute::Options(options) => Some(options),
            _ => None,
        });
        for option in options.flatten() {
            match option {
                TcOption::U32(TcFilterU32Option::Selector(selector)) => {
                    words = Some(selector.keys.iter().map(|key| (key.off, key.mask, key.val)).collect());
                }
                TcOption::U32(TcFilterU32Option::ClassId(class)) => is_limited = *class == BELOW,
                _ => {}
            }
        }
        Some(Self { protocol, words: words?, is_limited })
    }
}

/// The words of an address, in the order of the packet.
fn words_of(address: IpAddr) -> Vec<u32> {
    let bytes = match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    bytes.chunks(4).map(|word| word.iter().fold(0, |word, byte| word << 8 | u32::from(*byte))).collect()
}
