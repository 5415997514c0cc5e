//! Steps about what a pod holds: a host port that another one asks for, addresses that someone wants to free, a machine that
//! has them in the pod's place, and ADD after the look of a GC.

use testns::Attachment;

use crate::calls;
use crate::course::{Course, Outcome, SlotState};
use crate::lane::{self, LANES, Lane};
use crate::pod::PodInSlot;
use crate::rules;
use crate::step::{By, List};

impl Course<'_> {
    /// A machine gets the pod's addresses. A macvlan link takes in no packet for another Ethernet address.
    pub(crate) fn hand_over(&mut self, slot: usize) -> Outcome {
        match self.take(slot) {
            SlotState::Living(mut pod) if Lane::of(slot).is_routed() && !pod.is_changed() => {
                self.traffic.close(slot);
                pod.hand_over(self.node, Lane::of(slot));
                self.admit(slot, pod)
            }
            other => {
                *self.place(slot) = other;
                Ok(())
            }
        }
    }

    /// ADD of another container for the host port of a living pod, which keeps it.
    pub(crate) fn contend(&mut self, slot: usize, by: By) -> Outcome {
        let slot = self.living_or_anchor(slot);
        if !Lane::of(slot).is_routed() {
            return Ok(());
        }
        let container = self.node.container_without_probes();
        let mut target = self.target(slot, &container);
        target.attachment.container_id = "contender".to_owned();
        let result = target.add(by)?;
        let pod = PodInSlot::new(container, result, by);
        rules::addresses_are_no_others(slot, &pod, self.present())?;
        self.no_packet_is_lost()?;
        target.del(by, Some(&pod.result))?;
        pod.leave();
        Ok(())
    }

    /// `ipam release` of a living pod's addresses without `--force`.
    pub(crate) fn release(&mut self, slot: usize) -> Outcome {
        let slot = self.living_or_anchor(slot);
        let SlotState::Living(pod) = self.place(slot) else { return Ok(()) };
        let addresses = rules::addresses(&pod.result);
        for ip in addresses {
            let words = ["ipam", "release", Lane::of(slot).name(), &ip.to_string()];
            if calls::cnitool(self.node, &words).is_ok() {
                return Err(format!("ipam release frees {ip} of the living slot {slot}"));
            }
        }
        Ok(())
    }

    /// ADD by one runtime between another one's look at the node and its GC.
    pub(crate) fn attach_after_look(&mut self, slot: usize, by: By) -> Outcome {
        self.del(slot, By::Ours, None)?;
        let lane = slot % LANES;
        let attachments = |slots: &[usize]| slots.iter().map(|slot| lane::attachment(*slot, "")).collect::<Vec<_>>();
        let in_lane = |(other, _): (usize, &PodInSlot)| (other % LANES == lane).then_some(other);
        let valid: Vec<_> = self.living().filter_map(in_lane).collect();
        let omitted: Vec<_> = self.omitted().filter_map(in_lane).collect();
        let seen = [attachments(&valid), attachments(&omitted)].concat();
        let container = self.node.container_without_probes();
        let result = self.target(slot, &container).add(by)?;
        self.admit(slot, PodInSlot::new(container, result, by))?;
        calls::collect(self.node, Lane(lane), &attachments(&valid), Some(&seen));
        Ok(())
    }

    /// GC of the address plugin alone. Only of a machine behind a veth with our mark it knows nothing: the interface plugin
    /// removes that link.
    pub(crate) fn collect_addresses(&mut self, lane: usize, list: List) -> Outcome {
        let is_hidden = |pod: &PodInSlot| pod.machine.is_some() && pod.by != By::Theirs;
        let listed = self
            .living()
            .filter(|(slot, pod)| slot % LANES == lane && (is_hidden(pod) || !list.omits(*slot)))
            .chain(self.omitted().filter(|(slot, pod)| slot % LANES == lane && is_hidden(pod)));
        let mut valid: Vec<Attachment> = listed.map(|(slot, _)| lane::attachment(slot, "")).collect();
        valid.extend(list.has_bogus().then(lane::bogus));
        calls::collect_addresses(self.node, Lane(lane), &valid);
        Ok(())
    }
}
