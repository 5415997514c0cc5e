//! The bandwidth plugin's keys.

use std::fmt;

use chained::invalid;
use cni_spec::json::parse_cidr;
use cni_spec::{CniError, ConfObject, FromAnyConf, FromConf};
use ipnetwork::IpNetwork;
use netops::tc::Tbf;
use netops::tc::htb::{End, Htb};
use serde::Deserialize;

use crate::shaper::Shaper;

/// How long a packet may wait in the queue, in microseconds, as in the reference.
const LATENCY_US: u32 = 25_000;

/// The limits of an attachment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Conf {
    /// The limits of packets to the container.
    pub ingress: Option<Limit>,
    /// The limits of packets from the container.
    pub egress: Option<Limit>,
    /// The queue of both directions.
    pub queue: Queue,
    /// The other ends that limits are for. Without it, for all.
    pub subnets: Option<Subnets>,
}

/// Keys `shapedSubnets` and `unshapedSubnets`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subnets {
    /// Whether limits are for these; otherwise for all others.
    pub are_shaped: bool,
    pub networks: Vec<IpNetwork>,
}

/// The queue of packets that wait for the bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Queue {
    /// A single queue, as in the reference. It may be as long as the burst.
    #[default]
    Fifo,
    /// A queue for each flow, kept short.
    FqCodel,
}

/// A limit of one direction. At least a byte per second, and a burst of a byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    rate_bytes: u64,
    burst_bytes: u32,
}

impl fmt::Display for Limit {
    /// In the syntax of `tc qdisc`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tbf rate {}bit burst {}b latency {}us", self.rate_bytes * 8, self.burst_bytes, LATENCY_US)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Wire {
    ingress_rate: Option<u64>,
    ingress_burst: Option<u64>,
    egress_rate: Option<u64>,
    egress_burst: Option<u64>,
    queue: Queue,
    shaped_subnets: Vec<String>,
    unshaped_subnets: Vec<String>,
    runtime_config: RuntimeConfig,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RuntimeConfig {
    bandwidth: Bandwidth,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Bandwidth {
    ingress_rate: u64,
    ingress_burst: u64,
    egress_rate: u64,
    egress_burst: u64,
    shaped_subnets: Vec<String>,
    unshaped_subnets: Vec<String>,
}

impl FromConf for Conf {
    /// The network's limits; those of the runtime, if the network has none of the four keys. Likewise with the subnets, which
    /// kubelets do not give with their limits.
    fn from_conf(object: &ConfObject) -> Result<Self, CniError> {
        let wire: Wire = object.decode()?;
        let own = [wire.ingress_rate, wire.ingress_burst, wire.egress_rate, wire.egress_burst];
        let of_runtime = wire.runtime_config.bandwidth;
        let (prefix, [ingress_rate, ingress_burst, egress_rate, egress_burst]) = match own {
            [None, None, None, None] => {
                let Bandwidth { ingress_rate, ingress_burst, egress_rate, egress_burst, .. } = of_runtime;
                ("runtimeConfig.bandwidth.", [ingress_rate, ingress_burst, egress_rate, egress_burst])
            }
            own => ("", own.map(Option::unwrap_or_default)),
        };
        Ok(Self {
            ingress: Limit::parse(&format!("{prefix}ingress"), ingress_rate, ingress_burst)?,
            egress: Limit::parse(&format!("{prefix}egress"), egress_rate, egress_burst)?,
            queue: wire.queue,
            subnets: Subnets::parse("", &wire.shaped_subnets, &wire.unshaped_subnets)?.or(Subnets::parse(
                "runtimeConfig.bandwidth.",
                &of_runtime.shaped_subnets,
                &of_runtime.unshaped_subnets,
            )?),
        })
    }
}

impl Conf {
    /// The shaper of packets from `end`'s side to the container, or to there.
    pub fn shaper(&self, limit: Limit, end: End) -> Shaper {
        let tbf = limit.tbf();
        self.subnets.as_ref().map_or(Shaper::All(tbf), |Subnets { are_shaped, networks }| {
            Shaper::Some(Htb::new((tbf.rate_bytes, tbf.buffer_ticks), !are_shaped, end, networks))
        })
    }
}

impl Subnets {
    fn parse(prefix: &str, shaped: &[String], unshaped: &[String]) -> Result<Option<Self>, CniError> {
        let (key, texts) = match (shaped, unshaped) {
            ([], []) => return Ok(None),
            (texts, []) => ("shapedSubnets", texts),
            ([], texts) => ("unshapedSubnets", texts),
            _ => {
                let msg = format!("keys {prefix}shapedSubnets and {prefix}unshapedSubnets exclude each other");
                return Err(invalid(msg).at_key(format!("{prefix}unshapedSubnets")));
            }
        };
        let network = |(place, text): (usize, &String)| {
            let key = format!("{prefix}{key}[{place}]");
            parse_cidr(text).map_err(|why| CniError::invalid_key(&key, format_args!("{text:?}"), &why))
        };
        let networks = texts.iter().enumerate().map(network).collect::<Result<_, _>>()?;
        Ok(Some(Self { are_shaped: key == "shapedSubnets", networks }))
    }
}

/// DEL knows the node's shaper by the limits, where the config still has them.
impl FromAnyConf for Conf {
    fn from_any_conf(object: &ConfObject) -> Self {
        object.unless_unread(Self::from_conf(object)).unwrap_or_default()
    }
}

impl Limit {
    /// A limit in bits per second and bits; none if both are 0.
    fn parse(key: &str, rate_bits: u64, burst_bits: u64) -> Result<Option<Self>, CniError> {
        let refused = |name: &str, bits: u64, why: &str| Err(CniError::invalid_key(&format!("{key}{name}"), bits, why));
        match (rate_bits, burst_bits) {
            (0, 0) => return Ok(None),
            (0, _) => return refused("Burst", burst_bits, &format!("it needs key {key}Rate")),
            (_, 0) => return refused("Rate", rate_bits, &format!("it needs key {key}Burst")),
            (1..=7, _) => return refused("Rate", rate_bits, "a rate is at least 8 bits per second"),
            (_, 1..=7) => return refused("Burst", burst_bits, "a burst is at least 8 bits"),
            (_, _) => (),
        }
        match u32::try_from(burst_bits / 8) {
            Ok(burst_bytes) if burst_bytes < u32::MAX => Ok(Some(Self { rate_bytes: rate_bits / 8, burst_bytes })),
            Ok(_) | Err(_) => refused("Burst", burst_bits, "a burst is less than 4294967295 bytes"),
        }
    }

    /// The shaper, with the reference's numbers.
    pub fn tbf(self) -> Tbf {
        Tbf::new(self.rate_bytes, self.burst_bytes, LATENCY_US)
    }

    /// The class with the limit, in the syntax of `tc class`.
    pub fn in_class(self) -> String {
        format!("htb rate {}bit burst {}b", self.rate_bytes * 8, self.burst_bytes)
    }

    /// Whether a shaper may be ours or the reference's: it has the same latency.
    pub fn may_have_made(found: &Tbf) -> bool {
        found.is_for(LATENCY_US)
    }

    /// Whether packets of a link with this MTU never fit into the bucket.
    pub fn is_below(self, mtu_bytes: u32) -> bool {
        const ETHERNET_HEADER_BYTES: u32 = 14;
        self.burst_bytes < mtu_bytes.saturating_add(ETHERNET_HEADER_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(own: &Value) -> String {
        let mut all = json!({"name": "n"});
        all.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
        match Conf::from_conf(&ConfObject::parse(all.to_string().as_bytes()).unwrap()) {
            Ok(Conf { ingress, egress, queue: Queue::Fifo, subnets }) => {
                let text =
                    |limit: Option<Limit>| limit.map_or("-".into(), |l| format!("{}/{}", l.rate_bytes, l.burst_bytes));
                let subnets = subnets.map(|own| format!(" {} {:?}", own.are_shaped, own.networks)).unwrap_or_default();
                format!("{} {}{subnets}", text(ingress), text(egress))
            }
            Ok(other) => format!("{other:?}"),
            Err(error) => error.msg.replace("cannot use network config: key ", ""),
        }
    }

    #[test]
    fn the_networks_limits_win_as_a_whole() {
        let runtime =
            json!({"bandwidth": {"ingressRate": 80, "ingressBurst": 160, "egressRate": 800, "egressBurst": 1600}});
        assert_eq!(read(&json!({})), "- -");
        assert_eq!(read(&json!({"runtimeConfig": runtime})), "10/20 100/200");
        let own = json!({"ingressRate": 8, "ingressBurst": 8, "runtimeConfig": runtime});
        assert_eq!(read(&own), "1/1 -");
        assert_eq!(read(&json!({"ingressRate": 0, "runtimeConfig": runtime})), "- -");
    }

    #[test]
    fn subnets_are_the_networks_or_else_the_runtimes() {
        let limits = json!({"ingressRate": 80, "ingressBurst": 160, "shapedSubnets": ["fd00::/8"]});
        assert!(read(&json!({"runtimeConfig": {"bandwidth": limits}})).starts_with("10/20 - true [V6("));
        let own = json!({"unshapedSubnets": ["10.1.2.3/8"], "runtimeConfig": {"bandwidth": limits}});
        assert!(read(&own).starts_with("10/20 - false [V4("));
    }

    /// An administrator's shaper, whose queue has another length.
    #[test]
    fn a_shaper_is_known_by_its_latency() {
        for (rate_bits, burst_bits) in [(8, 8), (8_000_000, 800_000), (999_999, 12_345), (1 << 30, 0x7fff_ffff)] {
            let ours = Limit::parse("ingress", rate_bits, burst_bits).unwrap().unwrap().tbf();
            assert!(Limit::may_have_made(&ours), "{ours:?}");
            let other = Tbf { limit_bytes: ours.limit_bytes + 1500, ..ours };
            assert!(!Limit::may_have_made(&other), "{other:?}");
            let other = Tbf { buffer_ticks: ours.buffer_ticks / 2, ..ours };
            assert!(!Limit::may_have_made(&other), "{other:?}");
        }
    }

    #[test]
    fn limits_that_cannot_be_kept_are_refused() {
        for (own, expected) in [
            (json!({"ingressRate": 8}), "ingressRate = 8: it needs key ingressBurst"),
            (json!({"egressBurst": 8}), "egressBurst = 8: it needs key egressRate"),
            (json!({"egressRate": 7, "egressBurst": 8}), "egressRate = 7: a rate is at least 8 bits per second"),
            (json!({"egressRate": 8, "egressBurst": 7}), "egressBurst = 7: a burst is at least 8 bits"),
            (
                json!({"egressRate": 8, "egressBurst": 8 * 4_294_967_295_u64}),
                "egressBurst = 34359738360: a burst is less than 4294967295 bytes",
            ),
            (
                json!({"runtimeConfig": {"bandwidth": {"egressRate": 8}}}),
                "runtimeConfig.bandwidth.egressRate = 8: it needs key runtimeConfig.bandwidth.egressBurst",
            ),
            (json!({"queue": "sfq"}), "queue = \"sfq\": unknown variant `sfq`, expected `fifo` or `fq_codel`"),
            (json!({"ingressRate": -1}), "ingressRate = -1: expected a whole number from 0 to 18446744073709551615"),
        ] {
            assert_eq!(read(&own), expected);
        }
        assert_eq!(read(&json!({"egressRate": 8, "egressBurst": 8 * 4_294_967_294_u64})), "- 1/4294967294");
    }
}
