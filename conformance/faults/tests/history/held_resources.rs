//! Steps about what a pod holds: a host port that another one asks for, addresses that someone wants to free, a machine that
//! has them in the pod's place, and ADD after the look of a GC.

use serde_json::Value;
use testns::Attachment;

use crate::calls;
use crate::network::{self, NETWORKS, Network};
use crate::pod::PodInSlot;
use crate::rules;
use crate::run::{Outcome, Run, SlotState};
use crate::step::{By, List};

impl Run<'_> {
    /// A machine gets the pod's addresses. A macvlan link takes in no packet for another Ethernet address.
    pub(crate) fn hand_over(&mut self, slot: usize) -> Outcome {
        match self.take(slot) {
            SlotState::Living(mut pod) if Network::of(slot).is_routed() && !pod.is_changed() => {
                self.traffic.close(slot);
                pod.hand_over(self.node, Network::of(slot));
                self.admit(slot, pod)
            }
            other => {
                *self.place(slot) = other;
                Ok(())
            }
        }
    }

    /// ADD of another container for the host port of a living pod, which keeps it. Shared rules refuse the port.
    pub(crate) fn contend(&mut self, slot: usize, by: By) -> Outcome {
        let slot = self.living_or_anchor(slot);
        if !Network::of(slot).is_routed() {
            return Ok(());
        }
        let container = self.node.container_without_probes();
        let mut target = self.target(slot, &container);
        target.attachment.container_id = "contender".to_owned();
        let added =
            target.add(by).or_else(|words| if Network::of(slot).is_shared() { Ok(Value::Null) } else { Err(words) });
        let pod = PodInSlot::new(container, added?, by);
        rules::addresses_are_no_others(slot, &pod, self.present())?;
        self.no_packet_is_lost()?;
        target.del(by, Some(&pod.result).filter(|result| !result.is_null()))?;
        pod.leave();
        Ok(())
    }

    /// `ipam release` of a living pod's addresses without `--force`.
    pub(crate) fn release(&mut self, slot: usize) -> Outcome {
        let slot = self.living_or_anchor(slot);
        let SlotState::Living(pod) = self.place(slot) else { return Ok(()) };
        let addresses = rules::addresses(&pod.result);
        for ip in addresses {
            let words = ["ipam", "release", Network::of(slot).name(), &ip.to_string()];
            if calls::cnitool(self.node, &words).is_ok() {
                return Err(format!("ipam release frees {ip} of the living slot {slot}"));
            }
        }
        Ok(())
    }

    /// ADD by one runtime between another one's look at the node and its GC.
    pub(crate) fn attach_after_look(&mut self, slot: usize, by: By) -> Outcome {
        self.del(slot, By::Ours, None)?;
        let network = slot % NETWORKS;
        let attachments = |slots: &[usize]| slots.iter().map(|slot| network::attachment(*slot, "")).collect::<Vec<_>>();
        let in_network = |(other, _): (usize, &PodInSlot)| (other % NETWORKS == network).then_some(other);
        let valid: Vec<_> = self.living().filter_map(in_network).collect();
        let omitted: Vec<_> = self.omitted().filter_map(in_network).collect();
        let seen = [attachments(&valid), attachments(&omitted)].concat();
        let container = self.node.container_without_probes();
        let result = self.target(slot, &container).add(by)?;
        self.admit(slot, PodInSlot::new(container, result, by))?;
        calls::collect(self.node, Network(network), &attachments(&valid), Some(&seen));
        Ok(())
    }

    /// GC of the address plugin alone. Only of a machine behind a veth with our mark it knows nothing: the interface plugin
    /// removes that link.
    pub(crate) fn collect_addresses(&mut self, network: usize, list: List) -> Outcome {
        let is_hidden = |pod: &PodInSlot| pod.machine.is_some() && pod.by != By::Theirs;
        let listed = self
            .living()
            .filter(|(slot, pod)| slot % NETWORKS == network && (is_hidden(pod) || !list.omits(*slot)))
            .chain(self.omitted().filter(|(slot, pod)| slot % NETWORKS == network && is_hidden(pod)));
        let mut valid: Vec<Attachment> = listed.map(|(slot, _)| network::attachment(slot, "")).collect();
        valid.extend(list.has_bogus().then(network::bogus));
        calls::collect_addresses(self.node, Network(network), &valid);
        Ok(())
    }
}
