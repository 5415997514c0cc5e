//! Filters that packets of other hosts to a port of the node meet before the port is forwarded: chains of table `raw`, and at links.

use cni_filter::iptables::Rule;
use cni_filter::iptables::rule::{Is, Target};
use cni_filter::packet_path::{At, Gate};
use netops::Family;
use netops::nft::Hook;

use super::address_translation::gets;
use super::rule_texts::{in_words, show};
use super::{Own, rules_passed};
use crate::dropped_packets::{Cause, Level, Reason, Sight};
use crate::node_networks::{Attachment, Forward};

/// The priority of chains that translate the destination: NF_IP_PRI_NAT_DST of linux/netfilter_ipv4.h.
const DESTINATION: i32 = -100;

/// The end of the way of packets to a port in a chain.
enum End<'a> {
    Decided,
    Dropped(&'a str, &'a Rule),
}

impl Sight<'_> {
    /// Why packets of other hosts do not get as far as the rules that forward ports to the attachment.
    pub(super) fn port_dropped(
        &self,
        gate: &Gate,
        attachment: &Attachment,
        own: &Own<'_>,
        family: Family,
    ) -> Option<Reason> {
        let is_before = match &gate.at {
            At::Hook(hook) => *hook == Hook::Prerouting && gate.priority < DESTINATION && !gate.is_of_frames,
            At::Ingress(links) => own.way_out.is_some_and(|out| links.iter().any(|link| link == out)),
            At::Egress(_) => false,
        };
        let is_public = |port: &Forward| port.address.is_none_or(|address| !address.is_loopback());
        let is_of = |port: &&Forward| port.is_entered && is_public(port) && Family::from(port.to.ip()) == family;
        attachment.ports.iter().filter(|_| is_before).filter(is_of).find_map(|port| {
            let End::Dropped(chain, rule) = self.end_of(gate, &gate.chain, (port, own), 0)? else { return None };
            let why = format!("{} drops what other hosts send to {}", in_words(gate, chain, rule), port.host_port());
            Some(Reason::new(Cause::PortGone, Level::Error, why).mended_by([show(gate)]))
        })
    }

    /// The verdict of a chain on packets to the port, by the rules that all of them meet.
    fn end_of<'a>(&self, gate: &'a Gate, chain: &str, of: (&Forward, &Own<'_>), depth: usize) -> Option<End<'a>> {
        let (chain, steps) = gate.chains.get_key_value(chain).filter(|_| depth < rules_passed::DEPTH_MAX)?;
        for step in steps {
            let Some(rule) = step.rule.as_ref().filter(|rule| self.is_met(rule, of)) else { continue };
            if let Some(to) = &step.to {
                let end = self.end_of(gate, to, of, depth + 1);
                if end.is_some() || step.is_goto {
                    return end;
                }
                continue;
            }
            match rule.target {
                Target::Drop | Target::Reject if rule.port.is_some() || !rule.ports.is_empty() => {
                    return Some(End::Dropped(chain, rule));
                }
                // A rule without ports is one for all packets, of which the walk through all rules says more.
                Target::Accept | Target::Drop | Target::Reject => return Some(End::Decided),
                Target::Return => return None,
                _ => {}
            }
        }
        None
    }

    /// Whether all packets of other hosts to the port meet the rule's conditions.
    fn is_met(&self, rule: &Rule, (port, own): (&Forward, &Own<'_>)) -> bool {
        let is_node = |is: &Is<_>| is.host().is_some_and(|to| self.host.is_main(to));
        let to_any = Rule { destination: rule.destination.clone().filter(|is| !is_node(is)), ..rule.clone() };
        gets(&rules_passed::without_any(&to_any), port, own)
    }
}
