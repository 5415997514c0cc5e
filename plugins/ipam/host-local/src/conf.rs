//! The keys: JSON to [`Conf`]. Every rule about them is here, except for `CNI_ARGS`, which only ADD reads.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use cni_spec::version::Family as VersionFamily;
use cni_spec::{CniArgs, CniError, Code, ConfObject, FromAnyConf, FromConf, Route, SpecVersion, json};
use ipnetwork::IpNetwork;
use serde::{Deserialize, Deserializer, de};

use crate::address::{Address, Family};
use crate::range::{BadRange, Range, RangeSet, RawRange, Span};
use crate::store::{StoreLocation, private_files};

/// Where the reference keeps its stores.
pub(crate) const DATA_DIR: &str = "/var/lib/cni/networks";
/// The default time to wait for the lock. The holder needs milliseconds, the reference some seconds where ten
/// thousands of reservations make it read as many files; runtimes wait some minutes.
const LOCK_DEADLINE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone)]
pub struct Conf {
    pub place: StoreLocation,
    /// The range sets: a container gets one address of each.
    pub sets: Vec<RangeSet>,
    /// The requested addresses, without those of `CNI_ARGS`.
    pub requested: Vec<Address>,
    /// Addresses that are never given: all gateways, and `exclude`.
    pub barred: Barred,
    pub routes: Vec<Route>,
    /// A file whose name servers go into the result.
    pub resolv_conf: Option<PathBuf>,
    /// The treatment of reservations of earlier boots.
    pub reclaim: Reclaim,
    /// Whether a container that holds an address gets it again, instead of an error.
    pub reuse_address: bool,
    /// How long a released address is given again only after all others.
    pub cool_down: Duration,
    /// Whether an address that cools down is given where a set has no other; a caller that can get others says no.
    pub yields: bool,
    /// Whether STATUS is an error while a set has no free address, as the letter of the specification has it.
    pub report_exhausted: bool,
}

/// The keys that removal needs: the folder of the reservations, and the treatment of a released address.
#[derive(Debug, Clone)]
pub struct Removal {
    pub place: StoreLocation,
    /// How long a released address is given again only after all others.
    pub cool_down: Duration,
}

impl FromAnyConf for Removal {
    fn from_any_conf(object: &ConfObject) -> Self {
        let data_dir: String = object.find(&["ipam", "dataDir"]).unwrap_or_default();
        let cool_down: u32 = object.find(&["ipam", "releaseCooldownSeconds"]).unwrap_or_default();
        Self {
            place: place(object, &data_dir, object.find(&["ipam", "lockTimeoutSeconds"])),
            cool_down: Duration::from_secs(cool_down.into()),
        }
    }
}

/// The store of the object's network.
fn place(object: &ConfObject, data_dir: &str, lock_timeout_seconds: Option<u32>) -> StoreLocation {
    let data_dir = if data_dir.is_empty() { DATA_DIR } else { data_dir };
    StoreLocation {
        folder: PathBuf::from(data_dir).join(object.name().as_str()),
        private_files: PathBuf::from(private_files::FOLDER),
        deadline: lock_timeout_seconds.map_or(LOCK_DEADLINE, |seconds| Duration::from_secs(seconds.into())),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reclaim {
    /// Reservations of an earlier boot stay until DEL or GC.
    #[default]
    Never,
    /// Reservations of an earlier boot are released when an address is needed and none is free.
    Exhausted,
    /// Reservations of an earlier boot are released by the first ADD of a boot.
    Always,
}

/// Addresses that are never given.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Barred {
    gateways: Vec<Address>,
    excluded: Vec<Span>,
}

impl Barred {
    /// The last address of the excluded span that `address` is in.
    pub fn end(&self, address: Address) -> Option<Address> {
        let excluded = self.excluded.iter().filter(|span| span.contains(address)).map(|span| span.last).max();
        excluded.or_else(|| self.gateways.contains(&address).then_some(address))
    }

    /// How many addresses of the span may be given.
    pub fn count_allowed(&self, span: Span) -> u128 {
        let (mut count, mut at) = (0, Some(span.first));
        while let Some(address) = at.filter(|address| span.contains(*address)) {
            at = match self.end(address) {
                Some(end) => end.next(),
                None => {
                    let barred = self.excluded.iter().map(|span| span.first).chain(self.gateways.iter().copied());
                    let stop = barred.filter(|barred| span.contains(*barred) && *barred > address).min();
                    let after = stop.map_or(span.last.bits.saturating_add(1), |stop| stop.bits);
                    count += after - address.bits;
                    stop
                }
            };
        }
        count
    }

    /// Whether `address` is some range's gateway.
    pub fn is_gateway(&self, address: Address) -> bool {
        self.gateways.contains(&address)
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Net {
    ipam: Option<Ipam>,
    args: Args,
    runtime_config: RuntimeConfig,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Ipam {
    // Known here so that they do not look misspelt; the base parses them.
    #[serde(rename = "type")]
    _plugin: String,
    subnet: Option<Cidr>,
    #[serde(with = "json::optional_ip")]
    range_start: Option<IpAddr>,
    #[serde(with = "json::optional_ip")]
    range_end: Option<IpAddr>,
    #[serde(with = "json::optional_ip")]
    gateway: Option<IpAddr>,
    ranges: Vec<Vec<RangeKeys>>,
    routes: Vec<Route>,
    resolv_conf: String,
    data_dir: String,
    exclude: Vec<Excluded>,
    reclaim_earlier_boot: ReclaimText,
    reuse_address: bool,
    release_cooldown_seconds: u32,
    lock_timeout_seconds: Option<u32>,
    report_exhausted: bool,
}

#[derive(Deserialize, Default, Clone)]
#[serde(rename_all = "camelCase", default)]
struct RangeKeys {
    subnet: Option<Cidr>,
    #[serde(with = "json::optional_ip")]
    range_start: Option<IpAddr>,
    #[serde(with = "json::optional_ip")]
    range_end: Option<IpAddr>,
    #[serde(with = "json::optional_ip")]
    gateway: Option<IpAddr>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Args {
    cni: CniKeys,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct CniKeys {
    ips: Vec<Requested>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RuntimeConfig {
    ips: Vec<Requested>,
    ip_ranges: Vec<Vec<RangeKeys>>,
}

/// A network as it is written: IPv4 in the form of IPv6 is refused, as by the reference.
#[derive(Clone, Copy)]
struct Cidr(IpNetwork);

/// An address, perhaps with a prefix length, which is ignored.
struct Requested(Address);

/// An address, `a/n`, or `a-b`.
struct Excluded(Span);

#[derive(Default)]
struct ReclaimText(Reclaim);

/// Deserialises from a string by a function.
macro_rules! from_text {
    ($Type:ident, $parse:expr) => {
        impl<'de> Deserialize<'de> for $Type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                $parse(&text).map($Type).map_err(de::Error::custom)
            }
        }
    };
}
from_text!(Cidr, json::parse_cidr_as_written);
from_text!(Requested, parse_requested);
from_text!(Excluded, parse_excluded);
from_text!(ReclaimText, parse_reclaim);

fn parse_requested(text: &str) -> Result<Address, String> {
    let ip = match text.contains('/') {
        true => json::parse_cidr(text)?.ip(),
        false => json::parse_ip(text)?,
    };
    Ok(ip.into())
}

fn parse_excluded(text: &str) -> Result<Span, String> {
    let bad = |why: &str| format!("{text:?} is no address, no network a/n and no stretch a-b: {why}");
    let address = |text: &str| json::parse_ip(text.trim()).map(Address::from).map_err(|error| bad(&error));
    let (first, last) = if let Some((first, last)) = text.split_once('-') {
        (address(first)?, address(last)?)
    } else if text.contains('/') {
        let network = json::parse_cidr(text).map_err(|error| bad(&error))?;
        (network.network().into(), network.broadcast().into())
    } else {
        (address(text)?, address(text)?)
    };
    match first.family == last.family && first <= last {
        true => Ok(Span { first, last }),
        false => Err(bad("its end is not above its start")),
    }
}

fn parse_reclaim(text: &str) -> Result<Reclaim, String> {
    match text {
        "" | "never" => Ok(Reclaim::Never),
        "exhausted" => Ok(Reclaim::Exhausted),
        "always" => Ok(Reclaim::Always),
        _ => Err(format!("{text:?} is none of \"never\", \"exhausted\", \"always\"")),
    }
}

impl RangeKeys {
    fn raw(&self) -> RawRange {
        RawRange {
            subnet: self.subnet.map(|subnet| subnet.0),
            start: self.range_start,
            end: self.range_end,
            gateway: self.gateway,
        }
    }
}

impl FromConf for Conf {
    fn from_conf(object: &ConfObject) -> Result<Self, CniError> {
        let net: Net = object.decode()?;
        let invalid = |text: String| object.hint(CniError::new(Code::INVALID_CONFIG, text));
        let ipam = net.ipam.ok_or_else(|| invalid("IPAM config missing 'ipam' key".to_owned()))?;
        let sets = range_sets(&ipam, &net.runtime_config.ip_ranges).map_err(|error| object.hint(error))?;
        if sets.is_empty() {
            object.await_capability("ipRanges");
            let error = CniError::new(Code::INVALID_CONFIG, "no IP ranges specified");
            return Err(object.hint(error.detail("Set ipam.ranges, ipam.subnet or runtimeConfig.ipRanges.")));
        }
        check_version(&sets, object.version_text()).map_err(|text| invalid(text).at_key("ipam"))?;
        let gateways = sets.iter().flat_map(RangeSet::ranges).map(|range| range.gateway).collect();
        let excluded = ipam.exclude.iter().map(|excluded| excluded.0).collect();
        let requested = net.args.cni.ips.iter().chain(&net.runtime_config.ips).map(|requested| requested.0);
        Ok(Self {
            place: place(object, &ipam.data_dir, ipam.lock_timeout_seconds),
            sets,
            requested: requested.collect(),
            barred: Barred { gateways, excluded },
            routes: ipam.routes,
            resolv_conf: (!ipam.resolv_conf.is_empty()).then(|| PathBuf::from(&ipam.resolv_conf)),
            reclaim: ipam.reclaim_earlier_boot.0,
            reuse_address: ipam.reuse_address,
            cool_down: Duration::from_secs(ipam.release_cooldown_seconds.into()),
            yields: true,
            report_exhausted: ipam.report_exhausted,
        })
    }
}

impl Conf {
    /// The keys, with the address that `CNI_ARGS` asks for; `also` are keys there that the caller knows.
    pub fn asking(mut self, args: &CniArgs, also: &[&str]) -> Result<Self, CniError> {
        if let Some(address) = requested_by(args, also)? {
            self.request_by_cni_args(address);
        }
        Ok(self)
    }

    /// Adds the address that `CNI_ARGS` requests, unless `args` or `runtimeConfig` request one of the same range set
    /// (CONVENTIONS, "CNI_ARGS": a plugin ignores the field whose equivalent is in `args`).
    fn request_by_cni_args(&mut self, address: Address) {
        let has_both = |set: &RangeSet| {
            set.find(address).is_some() && self.requested.iter().any(|other| set.find(*other).is_some())
        };
        if !self.sets.iter().any(has_both) {
            self.requested.insert(0, address);
        }
    }
}

/// The key of the range that is not in a set.
const OLD_FORM: &str = "ipam.subnet";

/// All sets in their order: the runtime's, the range in the old form, `ranges`. Each comes with its key.
fn range_sets(ipam: &Ipam, runtime: &[Vec<RangeKeys>]) -> Result<Vec<RangeSet>, CniError> {
    let old = ipam.subnet.is_some().then(|| {
        let keys = RangeKeys {
            subnet: ipam.subnet,
            range_start: ipam.range_start,
            range_end: ipam.range_end,
            gateway: ipam.gateway,
        };
        (OLD_FORM.to_owned(), vec![keys])
    });
    let numbered =
        |key: &'static str| move |(index, set): (usize, &Vec<RangeKeys>)| (format!("{key}[{index}]"), set.clone());
    let all = runtime.iter().enumerate().map(numbered("runtimeConfig.ipRanges"));
    let all = all.chain(old).chain(ipam.ranges.iter().enumerate().map(numbered("ipam.ranges")));
    let (keys, sets): (Vec<String>, Vec<RangeSet>) =
        all.enumerate().map(|(index, (key, set))| range_set(index, key, &set)).collect::<Result<_, _>>()?;
    for (index, one) in sets.iter().enumerate() {
        let rest = sets.iter().enumerate().skip(index + 1);
        if let Some((other, set)) = rest.into_iter().find(|(_, set)| one.overlaps(set)) {
            let name = |index: usize| keys.get(index).map_or("", String::as_str);
            return Err(CniError::new(Code::INVALID_CONFIG, format!("range set {index} overlaps with {other}"))
                .detail(format!("Key {} is {one}, key {} is {set}.", name(index), name(other)))
                .at_key(name(other)));
        }
    }
    Ok(sets)
}

fn range_set(index: usize, key: String, keys: &[RangeKeys]) -> Result<(String, RangeSet), CniError> {
    let bad = |key: &str, text: &str| {
        CniError::new(Code::INVALID_CONFIG, format!("invalid range set {index}: {text}"))
            .detail(format!("It is key {key}."))
            .at_key(key)
    };
    let range = |(number, keys): (usize, &RangeKeys)| {
        Range::new(&keys.raw()).map_err(|BadRange { key: own, text }| match own {
            None => bad(&key, &text),
            // The range in the old form is in ipam itself.
            Some(own) if key == OLD_FORM => bad(&format!("ipam.{own}"), &text),
            Some(own) => bad(&format!("{key}[{number}].{own}"), &text),
        })
    };
    let ranges = keys.iter().enumerate().map(range).collect::<Result<_, _>>()?;
    let set = RangeSet::new(ranges).map_err(|text| bad(&key, &text))?;
    Ok((key, set))
}

/// Results of 0.1.0 and 0.2.0 have room for one address of each family.
fn check_version(sets: &[RangeSet], version: &str) -> Result<(), String> {
    let old =
        version.is_empty() || SpecVersion::find(version).is_some_and(|version| version.family() == VersionFamily::V02);
    let many = |family: Family| sets.iter().filter(|set| set.family() == family).count() > 1;
    let version = if version.is_empty() { "0.1.0" } else { version };
    match old && (many(Family::V4) || many(Family::V6)) {
        true => Err(format!("CNI version {version} does not support more than 1 address per family")),
        false => Ok(()),
    }
}

pub(crate) fn requested_by(args: &CniArgs, also: &[&str]) -> Result<Option<Address>, CniError> {
    args.expect_known(&[&["IP"], also].concat())?;
    let Some(text) = args.find("IP").filter(|text| !text.is_empty()) else { return Ok(None) };
    parse_requested(text)
        .map(Some)
        .map_err(|error| CniError::new(Code::INVALID_ENVIRONMENT, format!("cannot use CNI_ARGS: key IP: {error}")))
}

#[cfg(test)]
mod tests;
