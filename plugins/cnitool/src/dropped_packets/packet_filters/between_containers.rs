//! Frames that a bridge passes on between its own containers, where they pass the filter of routed packets
//! (`net.bridge.bridge-nf-call-iptables`).

use cni_filter::iptables::Rule;
use cni_filter::packet_path::{At, Gate};
use libcni::inventory::Life;
use netops::Family;
use netops::nft::Hook;

use super::Own;
use super::rule_texts::{accept_among, in_words};
use super::rules_passed::Passed;
use crate::dropped_packets::way_to_container::Bridge;
use crate::dropped_packets::{Cause, Level, Reason, Sight};
use crate::node_networks::Attachment;

impl Sight<'_> {
    /// Why containers on one bridge do not reach each other, while the gate lets pass what leaves the bridge.
    pub(super) fn among(
        &self,
        gate: &Gate,
        attachment: &Attachment,
        (bridge, own): (&Bridge, &Own<'_>),
        family: Family,
    ) -> Option<Reason> {
        if gate.at != At::Hook(Hook::Forward) || gate.is_of_frames || !self.filters_bridges[family as usize] {
            return None;
        }
        let own = Own { links: own.links.clone(), ports: Vec::new(), way_out: None, is_switched: true, ..*own };
        let fits = |rule: &Rule| {
            own.fits(rule.source.as_ref(), rule.input.as_ref())
                && own.fits(rule.destination.as_ref(), rule.output.as_ref())
        };
        let mut met = gate.clone();
        for steps in met.chains.values_mut() {
            steps.retain(|step| step.rule.as_ref().is_none_or(fits));
        }
        let passed = Passed::of(&met, &own, family, [true, true]);
        let is_closed = passed.barrier.is_some() || met.drops;
        if !is_closed || passed.accepts.contains(&true) || passed.may_accept > 0 || passed.may_accept_all {
            return None;
        }
        let is_neighbour = |other: &Attachment| {
            let is_on_it = other.links.iter().any(|link| link.master.as_ref() == Some(&bridge.name));
            other.life == Life::Lives && other.id != attachment.id && is_on_it
        };
        if !self.view.networks.iter().flat_map(|network| &network.attachments).any(is_neighbour) {
            return None;
        }
        let by = match &passed.barrier {
            Some((chain, rule, _)) => in_words(gate, chain, rule),
            None => format!("{} by its policy", gate.place),
        };
        let name = &bridge.name;
        let what = format!(
            "{by} drops what containers on bridge {name} send each other, as net.bridge.bridge-nf-call-iptables is 1"
        );
        Some(Reason::new(Cause::Filtered, Level::Warning, what).mended_by([accept_among(gate, bridge)]))
    }
}
