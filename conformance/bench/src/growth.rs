//! The cost of calls while something on the node grows.

mod links;
mod rules;
mod store;

use std::sync::Arc;

use testns::Verb;

use crate::comparison::Comparison;
use crate::latency::warm_up;
use crate::progress;
use crate::report::Growth;
use crate::scene::{self, Scene};
use crate::subject::{Subject, Who};
use crate::subject_node::settle;

/// The objects that grow in number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dimension {
    /// Reservations in host-local's store.
    Reservations,
    /// Pods on the bridge.
    Pods,
    /// Rules of other software in nftables.
    Rules,
    /// Links of the host, also while others make and remove some.
    Links,
    /// Attachments whose masquerade rules are in iptables' table `nat`.
    Attachments,
    /// Host ports that lead to other containers.
    Mappings,
}

impl Dimension {
    /// Each of them, in the order of the tables.
    pub(crate) const ALL: [Self; 6] =
        [Self::Reservations, Self::Pods, Self::Rules, Self::Links, Self::Attachments, Self::Mappings];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Reservations => "reservations",
            Self::Pods => "pods",
            Self::Rules => "rules",
            Self::Links => "links",
            Self::Attachments => "attachments",
            Self::Mappings => "mappings",
        }
    }

    fn sizes(self, is_quick: bool) -> &'static [usize] {
        match self {
            _ if is_quick => &[0, 20],
            Self::Reservations => &[0, 1_000, 10_000, 60_000],
            Self::Pods => &[0, 10, 100, 1_000],
            Self::Rules => &[0, 100, 1_000, 10_000],
            Self::Links => &[0, 100, 500, 2_000],
            Self::Attachments => &[0, 100, 1_000],
            Self::Mappings => &[0, 100, 1_000, 10_000],
        }
    }

    fn scene(self) -> Scene {
        match self {
            Self::Reservations => scene::host_local(),
            Self::Rules | Self::Attachments => scene::bridge_masq(),
            Self::Mappings => scene::portmap(),
            Self::Pods | Self::Links => scene::bridge(),
        }
    }
}

/// Takes subjects through the sizes of a dimension, with so many pods at each. A call that fails is an outcome, no
/// error.
pub(crate) fn measure(
    dimension: Dimension,
    subjects: &[Arc<Subject>],
    pods: usize,
    is_quick: bool,
) -> Result<Vec<Growth>, String> {
    let waits = |subject: &Arc<Subject>| matches!(subject.who, Who::Floor { waits: true, .. } | Who::Empty { .. });
    let subjects: Vec<_> = subjects.iter().filter(|subject| !waits(subject)).cloned().collect();
    let mut comparison = Comparison::new(dimension.scene(), &subjects)?;
    let (mut points, mut beside_churn) = (Vec::new(), Vec::new());
    warm_up(&mut comparison)?;
    for size in dimension.sizes(is_quick) {
        progress(&format!("{} {size} ...", dimension.name()));
        grow(&mut comparison, dimension, *size)?;
        // The first call of a size is each subject's own affair: it may build an index of what it finds.
        for pod in comparison.add_pods(1)? {
            comparison.life(pod, false);
        }
        let pods_of_size = comparison.add_pods(pods)?;
        comparison.lives_apart(pods_of_size);
        points.extend(points_of(&mut comparison, dimension.name(), *size, 0.0));
        if dimension == Dimension::Links {
            let churn = links::beside_churn(&mut comparison, pods)?;
            beside_churn.extend(points_of(&mut comparison, "links, churn", *size, churn));
        }
    }
    drop(comparison);
    settle()?;
    points.extend(beside_churn);
    Ok(points)
}

fn grow(comparison: &mut Comparison, dimension: Dimension, size: usize) -> Result<(), String> {
    match dimension {
        Dimension::Reservations => comparison
            .compared_subjects
            .iter()
            .try_for_each(|compared| compared.node.run(move |_| store::fill(size))?),
        Dimension::Rules => comparison
            .compared_subjects
            .iter()
            .try_for_each(|compared| compared.node.run(move |node| node.host().crowd_nft(size))),
        Dimension::Links => comparison
            .compared_subjects
            .iter()
            .try_for_each(|compared| compared.node.run(move |node| node.host().crowd_links(size))),
        Dimension::Attachments => comparison
            .compared_subjects
            .iter()
            .try_for_each(|one| one.node.run(move |node| rules::masquerade(node, size))?),
        Dimension::Mappings => comparison
            .compared_subjects
            .iter()
            .try_for_each(|one| one.node.run(move |node| rules::forward(node, size))?),
        Dimension::Pods => {
            let there = comparison.crowd;
            let pods = comparison.add_pods(size.saturating_sub(there))?;
            comparison.crowd = there.max(size);
            for compared in &mut comparison.compared_subjects {
                pods.clone().for_each(|pod| compared.call(Verb::Add, pod, false));
            }
            Ok(())
        }
    }
}

fn points_of(comparison: &mut Comparison, dimension: &str, size: usize, churn: f64) -> Vec<Growth> {
    let scene = comparison.scene.name;
    let point = |(verb, subject, outcome): (Verb, _, _)| Growth {
        dimension: dimension.to_owned(),
        size,
        churn,
        scene: scene.to_owned(),
        verb: verb.to_string(),
        subject,
        outcome,
    };
    comparison.outcomes().into_iter().map(point).collect()
}
