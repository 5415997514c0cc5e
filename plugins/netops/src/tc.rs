//! Traffic control: limits a link's rate, and redirects incoming packets through another link.

pub mod htb;

use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_DUMP, NLM_F_ECHO, NLM_F_EXCL, NLM_F_REPLACE, Nla};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{
    TcAction, TcActionAttribute, TcActionMirror, TcActionMirrorOption, TcActionOption, TcActionType, TcAttribute,
    TcFilterU32, TcFilterU32Option, TcHandle, TcMessage, TcMirror, TcMirrorActionType, TcOption, TcU32Key,
    TcU32Selector, TcU32SelectorFlags,
};
use nix::errno::Errno;

use crate::error::Result;
use crate::feature::Feature;
use crate::link::Link;
use crate::netlink_connection::{Kernel, Request};
use crate::netlink_frames::u32_at;
use crate::nft::wire::Attrs;

/// A token bucket filter: a sustained rate with bursts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tbf {
    /// The rate, in bytes per second.
    pub rate_bytes: u64,
    /// The queue limit in bytes, the bucket included.
    pub limit_bytes: u32,
    /// The bucket's size: the time to send it at the rate, in ticks of 64 ns.
    pub buffer_ticks: u32,
}

impl Tbf {
    /// A bucket of `burst_bytes`. Besides it, as much may be queued as arrives in `latency_us` at the rate.
    ///
    /// Rounded as in the reference, because its CHECK compares these numbers: on amd64 a time beyond 32 bits loses its upper ones
    /// there. Where no packet would fit into such a bucket, it is the largest that the kernel has.
    #[must_use]
    pub fn new(rate_bytes: u64, burst_bytes: u32, latency_us: u32) -> Self {
        let waiting = u128::from(rate_bytes) * u128::from(latency_us) / MICROSECONDS;
        let limit = u32::try_from(waiting).unwrap_or(u32::MAX).saturating_add(burst_bytes);
        let burst_us = u128::from(burst_bytes) * MICROSECONDS / u128::from(rate_bytes.max(1));
        // 15.625 ticks make a microsecond (PSCHED_SHIFT in include/net/pkt_sched.h).
        let ticks_of = |us: u128| us * 125 / 8;
        let low = |number: u128| number & u128::from(u32::MAX);
        let (ticks, wrapped) = (ticks_of(burst_us), low(ticks_of(low(burst_us))));
        let bucket_bytes = wrapped * TICK_NS * u128::from(rate_bytes) / (1000 * MICROSECONDS);
        let ticks = if ticks > u128::from(u32::MAX) && bucket_bytes < PACKET_BYTES_MAX { ticks } else { wrapped };
        Self { rate_bytes, limit_bytes: limit, buffer_ticks: u32::try_from(ticks).unwrap_or(u32::MAX) }
    }

    /// Whether the numbers are those of [`Tbf::new`] for this latency, whatever rate and burst are.
    #[must_use]
    pub fn is_for(&self, latency_us: u32) -> bool {
        let without_burst = Self::new(self.rate_bytes, 0, latency_us).limit_bytes;
        // A limit of the largest number does not show the burst.
        self.limit_bytes == u32::MAX
            || self.limit_bytes.checked_sub(without_burst).is_some_and(|burst_bytes| {
                burst_bytes > 0 && Self::new(self.rate_bytes, burst_bytes, latency_us) == *self
            })
    }
}

const MICROSECONDS: u128 = 1_000_000;
const TICK_NS: u128 = 64;
/// The longest packet that a link may hand over, with its Ethernet header.
const PACKET_BYTES_MAX: u128 = (64 << 10) + 14;

/// A queueing discipline of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Qdisc {
    /// A token bucket filter, for outgoing packets.
    Tbf(Tbf),
    /// Below the token bucket filter: a queue for each flow, which drops what has waited for too long.
    FqCodel,
    /// A token bucket for some of the packets: [`htb::Htb`].
    Htb {
        /// Whether packets without a filter are limited.
        limits_others: bool,
    },
    /// Below the class of [`Qdisc::Htb`]: one queue of at most this many bytes.
    Bfifo(u32),
    /// The attachment point of filters for incoming packets.
    Ingress,
    /// The attachment point of filters for incoming and for outgoing packets, which is in the same place.
    Clsact,
    /// Another kind, by the kernel's name, or one with another handle than [`add`] gives: `noqueue`, `htb`.
    Other(String),
}

impl Qdisc {
    /// The kernel's name of its kind.
    #[must_use]
    pub fn kind(&self) -> &str {
        match self {
            Self::Tbf(_) => TBF,
            Self::FqCodel => FQ_CODEL,
            Self::Htb { .. } => HTB,
            Self::Bfifo(_) => BFIFO,
            Self::Ingress => INGRESS,
            Self::Clsact => CLSACT,
            Self::Other(kind) => kind,
        }
    }

    fn header(&self, link: &Link) -> TcMessage {
        let mut message = TcMessage::with_index(link.index.cast_signed());
        (message.header.handle, message.header.parent) = match self {
            Self::Ingress | Self::Clsact => (TcHandle { major: TcHandle::INGRESS.major, minor: 0 }, TcHandle::INGRESS),
            // The kernel gives it a handle.
            Self::FqCodel | Self::Bfifo(_) => (TcHandle::UNSPEC, BELOW),
            Self::Tbf(_) | Self::Htb { .. } | Self::Other(_) => (OWN, TcHandle::ROOT),
        };
        message
    }
}

/// The root's handle, `1:`.
const OWN: TcHandle = TcHandle { major: 1, minor: 0 };
/// The only class of a token bucket filter, and of [`Qdisc::Htb`]: the parent of the queue below it.
const BELOW: TcHandle = TcHandle { major: 1, minor: 1 };
const TBF: &str = "tbf";
const FQ_CODEL: &str = "fq_codel";
const HTB: &str = "htb";
const BFIFO: &str = "bfifo";
const TCA_OPTIONS: u16 = 2; // include/uapi/linux/rtnetlink.h
const INGRESS: &str = "ingress";
const CLSACT: &str = "clsact";
const TCA_TBF_PARMS: u16 = 1; // include/uapi/linux/pkt_sched.h
const TCA_TBF_RATE64: u16 = 4;
/// `struct tc_tbf_qopt`: two `tc_ratespec` of 12 bytes, limit, buffer, mtu.
const TBF_BYTES: usize = 36;
const RATE_AT: usize = 8;
const LIMIT_AT: usize = 24;
const BUFFER_AT: usize = 28;

/// Adds a qdisc to a link: `ingress` as `ffff:`, `fq_codel` and `bfifo` below the token bucket, any other as the root `1:`.
///
/// # Errors
/// `EEXIST`: the link already has one that was configured. [`crate::error::Cause::Unsupported`]: the kernel lacks the
/// kind. `EINVAL`: the burst is smaller than the MTU, or the rate is 0.
pub fn add(link: &Link, qdisc: &Qdisc) -> Request {
    put("add", link, qdisc, NLM_F_EXCL)
}

/// Puts a qdisc in the place of what the link has there, or changes it if it is of the kind.
///
/// # Errors
/// As [`add`], but for `EEXIST`.
pub fn replace(link: &Link, qdisc: &Qdisc) -> Request {
    put("replace", link, qdisc, NLM_F_REPLACE)
}

fn put(op: &'static str, link: &Link, qdisc: &Qdisc, flag: u16) -> Request {
    let mut message = qdisc.header(link);
    message.attributes.push(TcAttribute::Kind(qdisc.kind().to_owned()));
    match qdisc {
        Qdisc::Tbf(tbf) => message.attributes.push(TcAttribute::Options(tbf.options())),
        Qdisc::Htb { limits_others } => {
            message.attributes.push(TcAttribute::Options(htb::root_options(*limits_others)));
        }
        Qdisc::Bfifo(bytes) => {
            let limit = DefaultNla::new(TCA_OPTIONS, bytes.to_ne_bytes().to_vec());
            message.attributes.push(TcAttribute::Other(limit));
        }
        Qdisc::FqCodel | Qdisc::Ingress | Qdisc::Clsact | Qdisc::Other(_) => {}
    }
    let request = Request::new(
        op,
        format!("qdisc {} of {}", qdisc.kind(), link.name),
        RouteNetlinkMessage::NewQueueDiscipline(message),
    )
    .flags(NLM_F_CREATE | flag)
    .wire_name(format!("RTM_NEWQDISC dev={} kind={}", link.name, qdisc.kind()));
    match qdisc {
        Qdisc::Tbf(_) => request.needs(Feature::Tbf),
        Qdisc::FqCodel => request.needs(Feature::FqCodel),
        Qdisc::Htb { .. } => request.needs(Feature::Htb),
        Qdisc::Ingress | Qdisc::Clsact => request.needs(Feature::Ingress),
        Qdisc::Bfifo(_) | Qdisc::Other(_) => request,
    }
}

impl Tbf {
    fn options(&self) -> Vec<TcOption> {
        let rate = u32::try_from(self.rate_bytes).unwrap_or(u32::MAX);
        let numbers = [(RATE_AT, rate), (LIMIT_AT, self.limit_bytes), (BUFFER_AT, self.buffer_ticks)];
        let parameters = words(TBF_BYTES, numbers);
        let mut options = vec![TcOption::Other(DefaultNla::new(TCA_TBF_PARMS, parameters))];
        if self.rate_bytes > u64::from(u32::MAX) {
            let rate = self.rate_bytes.to_ne_bytes().to_vec();
            options.push(TcOption::Other(DefaultNla::new(TCA_TBF_RATE64, rate)));
        }
        options
    }

    /// Decodes the attributes in `TCA_OPTIONS`.
    fn read(options: &[u8]) -> Option<Self> {
        let parameters = Attrs(options).get(TCA_TBF_PARMS)?;
        let rate_bytes = rate_in(options, TCA_TBF_RATE64, parameters)?;
        let number = |at| u32_at(parameters, at);
        Some(Self { rate_bytes, limit_bytes: number(LIMIT_AT)?, buffer_ticks: number(BUFFER_AT)? })
    }
}

/// The rate of a qdisc or class. It has an attribute where 32 bits are not enough.
fn rate_in(options: &[u8], long: u16, parameters: &[u8]) -> Option<u64> {
    let long = Attrs(options).get(long).and_then(|rate| rate.try_into().ok()).map(u64::from_ne_bytes);
    long.or_else(|| u32_at(parameters, RATE_AT).map(u64::from))
}

/// A struct of this many bytes with numbers at their offsets, otherwise 0.
fn words(bytes: usize, numbers: impl IntoIterator<Item = (usize, u32)>) -> Vec<u8> {
    let mut structure = vec![0; bytes];
    for (at, number) in numbers {
        if let Some(place) = structure.get_mut(at..at + 4) {
            place.copy_from_slice(&number.to_ne_bytes());
        }
    }
    structure
}

/// The bytes of `TCA_OPTIONS`, of a kind that the packet crate does not know.
fn nested(message: &TcMessage) -> Option<Vec<u8>> {
    message.attributes.iter().find_map(|attribute| match attribute {
        TcAttribute::Options(options) => match options.first()? {
            TcOption::Other(nest) => {
                let mut bytes = vec![0; nest.value_len()];
                nest.emit_value(&mut bytes);
                Some(bytes)
            }
            _ => None,
        },
        _ => None,
    })
}

/// Deletes a qdisc of a link. The kernel's default one comes back.
///
/// # Errors
/// `ENOENT`, `EINVAL`: the link has none of the kind.
pub fn delete(link: &Link, qdisc: &Qdisc) -> Request {
    let mut message = qdisc.header(link);
    message.attributes.push(TcAttribute::Kind(qdisc.kind().to_owned()));
    Request::new(
        "delete",
        format!("qdisc {} of {}", qdisc.kind(), link.name),
        RouteNetlinkMessage::DelQueueDiscipline(message),
    )
    .wire_name(format!("RTM_DELQDISC dev={} kind={}", link.name, qdisc.kind()))
}

/// The root qdisc, for outgoing packets.
///
/// # Errors
/// `ENODEV`: the link is gone.
pub fn find_root(net: &Kernel, link: &Link) -> Result<Option<Qdisc>> {
    find(net, link, TcHandle::ROOT)
}

/// The queue below the token bucket filter.
///
/// # Errors
/// As [`find_root`].
pub fn find_below(net: &Kernel, link: &Link) -> Result<Option<Qdisc>> {
    find(net, link, BELOW)
}

/// The ingress qdisc, where filters for incoming packets are attached.
///
/// # Errors
/// As [`find_root`].
pub fn find_ingress(net: &Kernel, link: &Link) -> Result<Option<Qdisc>> {
    find(net, link, TcHandle::INGRESS)
}

fn find(net: &Kernel, link: &Link, parent: TcHandle) -> Result<Option<Qdisc>> {
    let mut message = TcMessage::with_index(link.index.cast_signed());
    message.header.parent = parent;
    let request =
        Request::new("get", format!("qdisc of {}", link.name), RouteNetlinkMessage::GetQueueDiscipline(message))
            // Without this flag, the answer is sent as an announcement only.
            .flags(NLM_F_ECHO)
            .wire_name(format!("RTM_GETQDISC dev={}", link.name));
    let answers = match net.call(request) {
        Err(error) if error.os_errno() == Some(Errno::ENOENT) => return Ok(None),
        answers => answers?,
    };
    let qdisc = |answer: &RouteNetlinkMessage| match answer {
        RouteNetlinkMessage::NewQueueDiscipline(message) => read(message),
        _ => None,
    };
    Ok(answers.iter().find_map(qdisc))
}

fn read(message: &TcMessage) -> Option<Qdisc> {
    let kind = message.attributes.iter().find_map(|attribute| match attribute {
        TcAttribute::Kind(kind) => Some(kind.as_str()),
        _ => None,
    })?;
    let is_below = message.header.parent == BELOW;
    let decoded = match kind {
        INGRESS => Some(Qdisc::Ingress),
        CLSACT => Some(Qdisc::Clsact),
        FQ_CODEL if is_below => Some(Qdisc::FqCodel),
        BFIFO if is_below => nested(message).and_then(|limit| u32_at(&limit, 0)).map(Qdisc::Bfifo),
        TBF if message.header.handle == OWN => return Tbf::read(&nested(message)?).map(Qdisc::Tbf),
        HTB if message.header.handle == OWN => nested(message).and_then(|options| htb::read_root(&options)),
        _ => None,
    };
    Some(decoded.unwrap_or_else(|| Qdisc::Other(kind.to_owned())))
}

/// Redirects all packets that come in on `link`, which has [`Qdisc::Ingress`], out through `to`: a `u32` filter of
/// preference 1 that matches everything. The kernel deletes it with the qdisc or with either link.
///
/// # Errors
/// `EEXIST`: such a filter exists. `ENODEV`: one of the links is gone. [`crate::error::Cause::Unsupported`]: the kernel
/// lacks `u32` or `mirred`.
pub fn redirect_all(link: &Link, to: &Link) -> Request {
    redirect_by(link, to, TcMirrorActionType::EgressRedir)
}

/// As [`redirect_all`], but the packets come in by `to`.
///
/// # Errors
/// As [`redirect_all`].
pub fn redirect_in(link: &Link, to: &Link) -> Request {
    redirect_by(link, to, TcMirrorActionType::IngressRedir)
}

fn redirect_by(link: &Link, to: &Link, way: TcMirrorActionType) -> Request {
    let mut message = redirection(link);
    let mut selector = TcU32Selector::default();
    selector.flags = TcU32SelectorFlags::Terminal;
    selector.nkeys = 1;
    // The mask is 0, so every packet matches.
    selector.keys = vec![TcU32Key::default()];
    message.attributes.push(TcAttribute::Kind(TcFilterU32::KIND.to_owned()));
    message.attributes.push(TcAttribute::Options(vec![
        TcOption::U32(TcFilterU32Option::ClassId(TcHandle { major: 1, minor: 1 })),
        TcOption::U32(TcFilterU32Option::Selector(selector)),
        TcOption::U32(TcFilterU32Option::Action(vec![redirect(to, way)])),
    ]));
    Request::new(
        "add",
        format!("filter of {} to {}", link.name, to.name),
        RouteNetlinkMessage::NewTrafficFilter(message),
    )
    .flags(NLM_F_CREATE | NLM_F_EXCL)
    .needs(Feature::Redirect)
    .wire_name(format!("RTM_NEWTFILTER dev={} kind=u32 action=mirred to={}", link.name, to.name))
}

/// A filter as [`redirect_all`] makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Redirect {
    /// The index of the link that packets are sent to, 0 if that is gone.
    pub to: u32,
    handle: TcHandle,
}

/// Deletes this filter. Others stay, of its preference, too.
///
/// # Errors
/// `ENOENT`, `EINVAL`: it is gone.
pub fn delete_redirect(link: &Link, redirect: &Redirect) -> Request {
    let mut message = redirection(link);
    message.header.handle = redirect.handle;
    Request::new("delete", format!("filter of {}", link.name), RouteNetlinkMessage::DelTrafficFilter(message))
        .wire_name(format!("RTM_DELTFILTER dev={} pref={PREFERENCE} to={}", link.name, redirect.to))
}

/// The filters as [`redirect_all`] makes, in the order in which packets come to them.
///
/// # Errors
/// `ENODEV`: the link is gone.
pub fn list_redirects(net: &Kernel, link: &Link) -> Result<Vec<Redirect>> {
    let redirect = |message: &TcMessage| {
        let to = message.attributes.iter().find_map(target_in)?;
        Some(Redirect { to, handle: message.header.handle })
    };
    Ok(filters(net, link, redirection(link))?.iter().filter_map(redirect).collect())
}

/// Whether the link has filters for incoming packets.
///
/// # Errors
/// `ENODEV`: the link is gone.
pub fn has_filters(net: &Kernel, link: &Link) -> Result<bool> {
    let mut any = redirection(link);
    any.header.info = 0;
    Ok(!filters(net, link, any)?.is_empty())
}

fn filters(net: &Kernel, link: &Link, like: TcMessage) -> Result<Vec<TcMessage>> {
    let message = RouteNetlinkMessage::GetTrafficFilter(like);
    let request = Request::new("list", format!("filters of {}", link.name), message)
        .flags(NLM_F_DUMP)
        .wire_name(format!("RTM_GETTFILTER dump dev={}", link.name));
    let answers = match net.call(request) {
        // There is no qdisc for it.
        Err(error) if matches!(error.os_errno(), Some(Errno::ENOENT | Errno::EINVAL)) => return Ok(Vec::new()),
        answers => answers?,
    };
    let filter = |answer| match answer {
        RouteNetlinkMessage::NewTrafficFilter(message) => Some(message),
        _ => None,
    };
    Ok(answers.into_iter().filter_map(filter).collect())
}

fn target_in(attribute: &TcAttribute) -> Option<u32> {
    let TcAttribute::Options(options) = attribute else { return None };
    let actions = options.iter().filter_map(|option| match option {
        TcOption::U32(TcFilterU32Option::Action(actions)) => Some(actions),
        _ => None,
    });
    let options = actions.flatten().flat_map(|action| &action.attributes).filter_map(|attribute| match attribute {
        TcActionAttribute::Options(options) => Some(options),
        _ => None,
    });
    options.flatten().find_map(|option| match option {
        TcActionOption::Mirror(TcActionMirrorOption::Parms(mirror)) => Some(mirror.ifindex),
        _ => None,
    })
}

fn redirection(link: &Link) -> TcMessage {
    let mut message = TcMessage::with_index(link.index.cast_signed());
    message.header.parent = INCOMING;
    message.header.info = (PREFERENCE << 16) | u32::from(ETH_P_ALL.to_be());
    message
}

/// `TC_H_MIN_INGRESS` of `ffff:`: where filters of incoming packets are, by the qdisc `ingress` and by `clsact`.
const INCOMING: TcHandle = TcHandle { major: TcHandle::INGRESS.major, minor: 0xfff2 };
const ETH_P_ALL: u16 = 3; // include/uapi/linux/if_ether.h
const PREFERENCE: u32 = 1;

fn redirect(to: &Link, way: TcMirrorActionType) -> TcAction {
    let mut mirror = TcMirror::default();
    mirror.generic.action = TcActionType::Stolen;
    mirror.eaction = way;
    mirror.ifindex = to.index;
    let mut action = TcAction::default();
    action.attributes = vec![
        TcActionAttribute::Kind(TcActionMirror::KIND.to_owned()),
        TcActionAttribute::Options(vec![TcActionOption::Mirror(TcActionMirrorOption::Parms(mirror))]),
    ];
    action
}
