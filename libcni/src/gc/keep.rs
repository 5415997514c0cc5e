//! What GC keeps: the valid attachments, and those that may live although no list has them.

use crate::attachment::AttachmentId;
use crate::conflist::NetworkConf;
use crate::inventory::{Inventory, Life, OnNode};
use cni_spec::{CniError, Code};

/// GC's decision about the node's objects, made from an [`Inventory`] and the attachments that are valid anyway.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Survey {
    /// The attachments that are valid anyway, on the node or not.
    listed: Vec<AttachmentId>,
    /// The valid attachments.
    pub valid: Vec<OnNode>,
    /// Attachments that are not valid but may live: they have to be kept, so they are added to the valid ones.
    pub kept: Vec<OnNode>,
    /// The objects that the plugins will remove.
    pub removed: Vec<OnNode>,
}

impl Survey {
    /// Decides about the node's objects. `others` are attachments that are not valid and help to decode marks; what
    /// `is_to_go` selects is removed even if it may live.
    ///
    /// A network below version 1.1.0 has no GC, so its plugins remove nothing.
    ///
    /// # Errors
    /// As [`Inventory::list`]; an unknown version.
    pub fn of(
        inventory: &dyn Inventory,
        network: &NetworkConf,
        valid: &[AttachmentId],
        others: &[AttachmentId],
        is_to_go: impl Fn(&OnNode) -> bool,
    ) -> Result<Self, CniError> {
        let mut survey = Self { listed: valid.to_vec(), ..Self::default() };
        if network.disable_gc || !network.version()?.has_gc() {
            return Ok(survey);
        }
        for found in inventory.list(network, &[valid, others].concat())? {
            let is_valid = found.id.as_ref().is_some_and(|id| valid.contains(id));
            let is_removed = found.life == Life::Gone || is_to_go(&found);
            let list = match (is_valid, is_removed) {
                (true, _) => &mut survey.valid,
                (false, true) => &mut survey.removed,
                (false, false) => &mut survey.kept,
            };
            list.push(found);
        }
        Ok(survey)
    }

    /// The attachments to be added to the valid ones.
    ///
    /// # Errors
    /// The first object that may live and whose mark does not identify its attachment: no list can keep it.
    pub fn keep(&self) -> Result<Vec<AttachmentId>, &OnNode> {
        self.kept.iter().map(|found| found.id.clone().ok_or(found)).collect()
    }

    /// All valid attachments: those that are valid anyway, and those that are kept.
    /// Errors: code 106: see [`Survey::keep`].
    pub(crate) fn all_valid(&self) -> Result<Vec<AttachmentId>, CniError> {
        let keep = self.keep().map_err(|found| {
            let objects = found.objects.join(", ");
            let msg = format!("cannot keep {objects}: {}, and no mark names its attachment", found.life);
            CniError::new(Code::STATE, msg)
        })?;
        Ok([self.listed.clone(), keep].concat())
    }

    pub(crate) fn seen(&self) -> impl Iterator<Item = &AttachmentId> {
        self.valid.iter().chain(&self.kept).chain(&self.removed).filter_map(|found| found.id.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cni_spec::{ContainerId, IfName};

    struct Fixed(Vec<OnNode>);

    impl Inventory for Fixed {
        fn list(&self, _: &NetworkConf, _: &[AttachmentId]) -> Result<Vec<OnNode>, CniError> {
            Ok(self.0.clone())
        }
    }

    fn id(container: &str) -> AttachmentId {
        AttachmentId { container_id: ContainerId::parse(container).unwrap(), ifname: IfName::parse("eth0").unwrap() }
    }

    fn on_node(container: Option<&str>, life: Life) -> OnNode {
        OnNode { id: container.map(id), objects: Vec::new(), life }
    }

    fn survey(found: Vec<OnNode>, version: &str) -> Survey {
        let network = format!(r#"{{"cniVersion":"{version}","name":"n","plugins":[{{"type":"bridge"}}]}}"#);
        let network = NetworkConf::parse(network.as_bytes()).unwrap();
        Survey::of(&Fixed(found), &network, &[id("valid")], &[], |found| found.id == Some(id("judged"))).unwrap()
    }

    #[test]
    fn only_what_is_gone_or_was_decided_on_is_removed() {
        let found = |container, life| on_node(Some(container), life);
        let (gone, judged) = (found("gone", Life::Gone), found("judged", Life::Lives));
        let kept = [found("young", Life::Young), found("unsure", Life::Unknown), found("lives", Life::Lives)];
        let valid = found("valid", Life::Gone);
        let all = [vec![gone.clone(), judged.clone(), valid.clone()], kept.to_vec()].concat();
        let seen = survey(all.clone(), "1.1.0");
        let listed = vec![id("valid")];
        let expected =
            Survey { listed: listed.clone(), valid: vec![valid], kept: kept.to_vec(), removed: vec![gone, judged] };
        assert_eq!(seen, expected);
        assert_eq!(seen.keep().unwrap(), [id("young"), id("unsure"), id("lives")]);
        assert_eq!(seen.all_valid().unwrap(), [id("valid"), id("young"), id("unsure"), id("lives")]);
        assert_eq!(survey(all, "1.0.0"), Survey { listed, ..Survey::default() });
    }

    #[test]
    fn what_lives_and_has_no_name_cannot_be_kept_by_a_list() {
        let nameless = on_node(None, Life::Lives);
        assert_eq!(survey(vec![nameless.clone()], "1.1.0").keep(), Err(&nameless));
        assert_eq!(survey(vec![on_node(None, Life::Gone)], "1.1.0").keep(), Ok(Vec::new()));
    }
}
