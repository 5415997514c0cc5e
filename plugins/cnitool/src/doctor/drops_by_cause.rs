//! Why packets of living attachments are dropped, gathered: attachments with one cause are one finding.

use std::collections::{BTreeMap, BTreeSet};

use crate::dropped_packets::{Found, Reason, Reasons, Sight};

use libcni::Runtime;

use crate::doctor::network_files::Makes;
use crate::doctor::remedy::COMMANDS_MAX;
use crate::doctor::{ANEW, Finding, Kind, Line, Node, Remedy, Subject, advice, tool};

/// Looks at all attachments that live, and returns what was not examined, and what else may drop packets.
pub(crate) fn look(
    node: Node<'_>,
    sight: &Sight<'_>,
    runtime: &Runtime,
    findings: &mut Vec<Finding>,
) -> (Vec<String>, Vec<String>) {
    let Reasons { found, unseen, unexamined, beyond } =
        if node.probes { sight.proven_reasons() } else { sight.reasons() };
    findings.extend(unseen.iter().filter(|unread| !unread.is_expected).map(|unread| Kind::unread(None, unread)));
    let of = |found: &Found<'_>| (found.network.name.clone(), found.attachment.id.clone());
    let broken = found.iter().filter(|found| is_of_links(found.reason.kind));
    let broken: BTreeSet<_> = broken.map(|found| (of(found), found.reason.level)).collect();
    // A link without carrier, a warning, does not hide that the node's route leads there.
    let is_consequence = |found: &Found<'_>| {
        matches!(found.reason.kind, Kind::RouteElsewhere | Kind::ReversePath)
            && broken.iter().any(|(broken, level)| *broken == of(found) && *level >= found.reason.level)
    };
    let mut gathered: BTreeMap<(Kind, String, String), Vec<Found<'_>>> = BTreeMap::new();
    for found in found {
        if !is_finding(&found.reason) || is_consequence(&found) {
            continue;
        }
        let key = (found.reason.kind, found.network.name.clone(), found.reason.what.clone());
        gathered.entry(key).or_default().push(found);
    }
    let unreserved: Vec<(Option<String>, usize)> = findings
        .iter()
        .filter(|finding| finding.kind == Kind::Unreserved)
        .map(|finding| (finding.network.clone(), finding.evidence.len().max(1)))
        .collect();
    let of_networks = gathered.into_iter().filter_map(|((kind, network, what), found)| {
        let level = found.iter().map(|found| found.reason.level).max()?;
        let mut finding = kind.finding(level, Some(&network), what);
        finding.evidence = found.iter().map(evidence).collect();
        // One rule may be for both families.
        finding.evidence.dedup();
        finding.object = found.iter().find_map(|found| found.reason.object.clone());
        let mut steps = Remedy::default();
        found.iter().flat_map(|found| &found.reason.remedy.0).for_each(|step| steps.join(step));
        finding.remedy = match steps.0.is_empty() {
            // A repair writes nothing for an address that another one may get.
            true if unreserved.iter().any(|(of, count)| of.as_deref() == Some(&network) && *count >= found.len()) => {
                advice(ANEW).into()
            }
            // Plugins of another project repair nothing.
            true if matches!(kind, Kind::MasqueradeGone | Kind::PortGone) && !has_repair(runtime, &found) => {
                advice(ANEW).into()
            }
            true => kind.remedy(&network),
            false if steps.0.len() > COMMANDS_MAX && may_repair(kind, &found) && has_repair(runtime, &found) => {
                tool(["repair", &network]).into()
            }
            false => steps,
        };
        Some(finding)
    });
    findings.extend(joined(of_networks.collect()));
    (unexamined, beyond)
}

/// A fault that several networks share, with one remedy, is the node's.
fn joined(of_networks: Vec<Finding>) -> Vec<Finding> {
    let mut joined: Vec<Finding> = Vec::new();
    for finding in of_networks {
        let is_same = |other: &&mut Finding| {
            (other.kind, &other.what, &other.remedy) == (finding.kind, &finding.what, &finding.remedy)
        };
        let Some(same) = joined.iter_mut().find(is_same) else {
            joined.push(finding);
            continue;
        };
        same.level = same.level.max(finding.level);
        same.network = None;
        same.evidence.extend(finding.evidence);
    }
    joined
}

/// Whether a repair makes what these attachments have lost: the cache has all of them.
fn may_repair(kind: Kind, found: &[Found<'_>]) -> bool {
    let is_made = matches!(kind, Kind::LinkGone | Kind::LinkDown | Kind::GatewayAddress);
    is_made && found.iter().all(|found| found.attachment.is_complete == Some(true))
}

/// Whether the plugins of the attachments, which are of one network, are of this suite.
fn has_repair(runtime: &Runtime, found: &[Found<'_>]) -> bool {
    let conf = found.iter().find_map(|found| found.attachment.conf.as_ref());
    conf.is_some_and(|conf| Makes::are_own(runtime, conf))
}

fn is_of_links(kind: Kind) -> bool {
    matches!(kind, Kind::LinkDown | Kind::LinkGone | Kind::GatewayAddress)
}

/// The attachment, and the reason in full where it says more than the finding.
fn evidence(found: &Found<'_>) -> Line {
    let text = found.reason.evidence.first().map_or("", |line| &line.text);
    Subject::of(found.network, found.attachment).line(text)
}

/// Others are no faults by themselves, or findings of other modules. A node without a link to other networks is meant to have no way there.
fn is_finding(reason: &Reason) -> bool {
    match reason.kind {
        Kind::Leftover | Kind::Undecided => false,
        Kind::NoWayOut => !reason.remedy.0.is_empty(),
        _ => true,
    }
}
