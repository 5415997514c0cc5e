//! The node's present state.

use crate::doctor::{Finding, Kind, Level};
use crate::node_networks::View;
use cluster_keys::NodeView;
use libcni::inventory::Life;
use prometheus::{Error, GaugeVec, Opts};

use super::Page;

/// All states, so that each network has a series of each: a series that vanishes cannot trigger an alert.
const STATES: [Life; 4] = [Life::Lives, Life::Young, Life::Unknown, Life::Gone];

type Gauge = (&'static str, &'static str, fn(&NodeView) -> u64);

/// Gauges of a node's memory of the plugin `cluster`: name, help, value.
const OF_CLUSTER: [Gauge; 6] = [
    ("cni_cluster_runs", "Runs of addresses that this node has.", |of| of.memory.runs.len() as u64),
    ("cni_cluster_addresses_left", "Addresses that were in no run where this node looked for room last.", |of| {
        of.left.try_into().unwrap_or(u64::MAX)
    }),
    ("cni_cluster_claims", "Claims that containers of this node hold.", |of| of.memory.claims.len() as u64),
    ("cni_cluster_store_away", "1 if the store did not answer when a call asked it last.", |of| {
        (of.standing.away_until_ms > 0).into()
    }),
    ("cni_cluster_view_timestamp_seconds", "When this node has last written to the store.", |of| of.standing.read_at_s),
    ("cni_cluster_trust_seconds", "For how long this node gives addresses after that.", |of| {
        of.standing.trust_seconds.into()
    }),
];

impl Page {
    /// Adds networks, their addresses and attachments.
    pub(crate) fn add_view(&self, view: &View) -> Result<(), Error> {
        let help = "Attachments, by whether their container lives (see cnitool show).";
        let attachments = self.gauges("cni_attachments", help, &["network", "state"])?;
        let help = "Addresses of host-local that an operator holds for no container.";
        let held_by_hand = self.gauges("cni_addresses_held_by_hand", help, &["network"])?;
        let help = "Reserved addresses that are in no run of this node: another node may give them.";
        let in_no_run = self.gauges("cni_addresses_in_no_run", help, &["network"])?;
        let of_cluster =
            OF_CLUSTER.iter().map(|(name, help, value)| Ok((self.gauges(name, help, &["network"])?, value)));
        let of_cluster = of_cluster.collect::<Result<Vec<_>, Error>>()?;
        let ranges = Ranges::new(self)?;
        for network in &view.networks {
            for state in STATES {
                let count = network.attachments.iter().filter(|attachment| attachment.life == state).count();
                attachments
                    .with_label_values(&[network.name.as_str(), crate::node_networks::word(state)])
                    .set(gauge(count));
            }
            held_by_hand.with_label_values(&[&network.name]).set(gauge(network.by_hand.len()));
            if let Some(cluster) = &network.cluster {
                in_no_run.with_label_values(&[&network.name]).set(i64::try_from(cluster.in_no_run).unwrap_or(i64::MAX));
                for (gauges, value) in &of_cluster {
                    let value = i64::try_from(value(&cluster.view)).unwrap_or(i64::MAX);
                    gauges.with_label_values(&[&network.name]).set(value);
                }
            }
            for range in &network.ranges {
                ranges.add(&network.name, range);
            }
        }
        let unowned =
            self.gauges("cni_unowned_objects", "Objects on the node that belong to no known network.", &[])?;
        unowned.with_label_values::<&str>(&[]).set(gauge(view.unowned.len()));
        let help = "Places that could not be looked at for this page.";
        let unseen = self.gauges("cni_unseen_places", help, &[])?;
        unseen.with_label_values::<&str>(&[]).set(gauge(view.unseen.len()));
        Ok(())
    }

    /// Adds the number of findings of each kind, zero where there are none.
    pub(crate) fn add_findings(&self, findings: &[Finding]) -> Result<(), Error> {
        let kinds = self.gauges("cni_doctor_findings", "Findings of cnitool doctor, by kind.", &["kind"])?;
        for kind in Kind::ALL {
            let count = findings.iter().filter(|finding| finding.kind == kind).count();
            kinds.with_label_values(&[kind.as_str()]).set(gauge(count));
        }
        let help = "Findings of cnitool doctor, by level.";
        let levels = self.gauges("cni_doctor_findings_by_level", help, &["level"])?;
        for level in [Level::Error, Level::Warning, Level::Note] {
            let count = findings.iter().filter(|finding| finding.level == level).count();
            levels.with_label_values(&[level.as_str()]).set(gauge(count));
        }
        Ok(())
    }
}

/// Gauges of floating point: a range of IPv6 has more addresses than an integer of 64 bits.
struct Ranges {
    size: GaugeVec,
    used: GaugeVec,
    free: GaugeVec,
}

impl Ranges {
    fn new(page: &Page) -> Result<Self, Error> {
        let of = |name, help| {
            let gauges = GaugeVec::new(Opts::new(name, help), &["network", "range", "set"])?;
            page.registry.register(Box::new(gauges.clone()))?;
            Ok::<_, Error>(gauges)
        };
        Ok(Self {
            size: of(
                "cni_range_addresses",
                "Addresses of a range of host-local that containers may get: without gateways.",
            )?,
            used: of("cni_range_addresses_used", "Addresses of a range of host-local that are reserved.")?,
            free: of("cni_range_addresses_free", "Addresses of a range of host-local that are free.")?,
        })
    }

    #[expect(clippy::cast_precision_loss, reason = "Prometheus has no other numbers")]
    fn add(&self, network: &str, range: &host_local::inventory::Usage) {
        let span = format!("{}-{}", range.first, range.last);
        let labels = [network, &span, &range.set.to_string()];
        // Ranges that overlap are refused by host-local's configuration, so no series is written twice.
        self.size.with_label_values(&labels).set(range.total as f64);
        self.used.with_label_values(&labels).set(range.used as f64);
        self.free.with_label_values(&labels).set(range.total.saturating_sub(range.used) as f64);
    }
}

fn gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
