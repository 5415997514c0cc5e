//! The names of containers for people: a pod's name where the runtime gave one, else the ID.
//!
//! Runtimes of Kubernetes send `K8S_POD_NAMESPACE`, `K8S_POD_NAME` and `K8S_POD_UID` in `CNI_ARGS`, and the cache keeps them.
//! A pod's container ID has 64 hexadecimal digits, of which the first twelve identify it, as in `crictl` and `podman`.

use std::collections::{BTreeMap, BTreeSet};

use cni_spec::{CniArgs, ContainerId};
use libcni::{AttachmentId, Cached};
use serde_json::{Value, json};

/// The digits of an ID that are shown at least.
pub const DIGITS_MIN: usize = 12;

/// A pod, by what its runtime put into `CNI_ARGS`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodName {
    /// The pod's namespace in Kubernetes; empty if the runtime sent none.
    pub namespace: String,
    pub name: String,
    /// The pod's UID; empty if the runtime sent none.
    pub uid: String,
}

impl PodName {
    pub fn find(args: &CniArgs) -> Option<Self> {
        let value = |key| args.find(key).unwrap_or_default().to_owned();
        let pod =
            Self { namespace: value("K8S_POD_NAMESPACE"), name: value("K8S_POD_NAME"), uid: value("K8S_POD_UID") };
        (!pod.name.is_empty()).then_some(pod)
    }

    /// `NAMESPACE/NAME`, or the name alone if the namespace is not known.
    pub fn full_name(&self) -> String {
        if self.namespace.is_empty() { self.name.clone() } else { format!("{}/{}", self.namespace, self.name) }
    }

    /// The word for programs.
    pub fn to_json(&self) -> Value {
        json!({"namespace": self.namespace, "name": self.name, "uid": self.uid})
    }
}

/// The names of all containers of a node: what is unique depends on the others.
#[derive(Debug, Clone, Default)]
pub struct Names {
    pods: BTreeMap<ContainerId, PodName>,
    ids: BTreeSet<ContainerId>,
    /// How many containers have a pod's full name: a pod whose sandbox was made anew has two for a while.
    counts: BTreeMap<String, usize>,
}

impl Names {
    pub fn of_cache<'a>(cached: impl IntoIterator<Item = &'a Cached>) -> Self {
        let mut names = Self::default();
        for entry in cached {
            names.add(&entry.attachment.id.container_id, PodName::find(&entry.attachment.args));
        }
        names
    }

    pub fn add(&mut self, id: &ContainerId, pod: Option<PodName>) {
        self.ids.insert(id.clone());
        if let Some(pod) = pod.filter(|_| !self.pods.contains_key(id)) {
            *self.counts.entry(pod.full_name()).or_default() += 1;
            self.pods.insert(id.clone(), pod);
        }
    }

    pub fn find_pod(&self, id: &ContainerId) -> Option<&PodName> {
        self.pods.get(id)
    }

    /// The name of a container: its pod's full name, with the ID behind a colon where two containers have that name; else the ID,
    /// of 64 digits only as many as are unique.
    pub fn name(&self, id: &ContainerId) -> String {
        let short = self.short(id);
        match self.pods.get(id).map(PodName::full_name) {
            Some(name) if self.counts.get(&name).is_some_and(|count| *count > 1) => format!("{name}:{short}"),
            Some(name) => name,
            None => short.to_owned(),
        }
    }

    /// The name of an attachment: its container's, and the interface behind a slash.
    pub fn attachment(&self, id: &AttachmentId) -> String {
        format!("{}/{}", self.name(&id.container_id), id.ifname)
    }

    /// The containers that a word names: a pod's name, with or without its namespace, an ID, or the beginning of one. Names that
    /// [`Names::name`] gives are such words.
    pub fn find(&self, word: &str) -> Vec<&ContainerId> {
        let is_pod = |id: &ContainerId| {
            let pod = self.pods.get(id);
            pod.is_some_and(|pod| word == pod.name || word == pod.full_name() || word == self.name(id))
        };
        let exact: Vec<_> = self.ids.iter().filter(|id| id.as_str() == word || is_pod(id)).collect();
        if !exact.is_empty() || word.is_empty() {
            return exact;
        }
        self.ids.iter().filter(|id| id.as_str().starts_with(word)).collect()
    }

    /// Whether people may call a container so: by its pod's name, or by enough digits of an ID that is shown in part.
    pub fn is_shown_as(&self, id: &ContainerId, word: &str) -> bool {
        let is_part = word.len() >= DIGITS_MIN && id.as_str().starts_with(word) && self.short(id) != id.as_str();
        is_part
            || self.pods.get(id).is_some_and(|pod| word == pod.name || word == pod.full_name() || word == self.name(id))
    }

    fn short<'a>(&self, id: &'a ContainerId) -> &'a str {
        let text = id.as_str();
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return text;
        }
        // In their order, the ID with the longest beginning in common is a neighbour.
        let common = |other: &ContainerId| {
            text.bytes().zip(other.as_str().bytes()).take_while(|(one, other)| one == other).count()
        };
        let before = self.ids.range(..id).next_back().map_or(0, common);
        let after = self.ids.range(id..).find(|other| *other != id).map_or(0, common);
        let digits = (before.max(after) + 1).clamp(DIGITS_MIN, text.len());
        text.get(..digits).unwrap_or(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> ContainerId {
        ContainerId::parse(text).unwrap()
    }

    fn pod(args: &str) -> Option<PodName> {
        PodName::find(&CniArgs::parse(args).unwrap())
    }

    #[test]
    fn a_pod_is_named_by_its_namespace_and_name() {
        let mut names = Names::default();
        let web = id(&"a".repeat(64));
        names.add(&web, pod("IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;K8S_POD_UID=u-1"));
        assert_eq!(names.name(&web), "shop/web-0");
        for word in ["shop/web-0", "web-0", "aaa", &"a".repeat(64)] {
            assert_eq!(names.find(word), [&web], "{word}");
        }
        assert!(names.find("shop").is_empty() && names.find("").is_empty());
        assert_eq!(pod("K8S_POD_NAME=alone").unwrap().full_name(), "alone");
        assert_eq!(pod("K8S_POD_NAMESPACE=shop;K8S_POD_NAME="), None);
    }

    #[test]
    fn two_sandboxes_of_one_pod_are_told_apart() {
        let mut names = Names::default();
        let (old, new) = (id(&"1".repeat(64)), id(&"2".repeat(64)));
        for one in [&old, &new] {
            names.add(one, pod("K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0"));
            names.add(one, pod("K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0"));
        }
        assert_eq!(names.name(&old), "shop/web-0:111111111111");
        assert_eq!(names.find("shop/web-0:222222222222"), [&new]);
        assert_eq!(names.find("web-0"), [&old, &new]);
    }

    #[test]
    fn an_id_is_shortened_as_far_as_it_is_unique() {
        let mut names = Names::default();
        let one = id(&format!("{}0{}", "abcdefabcdef12", "0".repeat(49)));
        let other = id(&format!("{}1{}", "abcdefabcdef12", "0".repeat(49)));
        let short = id("cnitool-82e215debf7df4651d36");
        [&one, &short].into_iter().for_each(|id| names.add(id, None));
        assert_eq!(names.name(&one), "abcdefabcdef");
        names.add(&other, None);
        assert_eq!(names.name(&one), "abcdefabcdef120");
        assert_eq!(names.name(&other), "abcdefabcdef121");
        assert_eq!(names.name(&short), "cnitool-82e215debf7df4651d36");
        // An ID that only looks like a longer one's beginning.
        let fragment = id("abcdefabcdef12");
        names.add(&fragment, None);
        assert_eq!((names.name(&fragment).as_str(), names.find("abcdefabcdef12")), ("abcdefabcdef12", vec![&fragment]));
    }
}
