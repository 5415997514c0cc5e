//! Why packets of living attachments are dropped, gathered: attachments with one cause are one finding.

use std::collections::{BTreeMap, BTreeSet};

use crate::dropped_packets::{Cause, Found, Reason, Reasons, Survey};

use libcni::Runtime;

use crate::doctor::network_files::Makes;
use crate::doctor::removal_commands::COMMANDS_MAX;
use crate::doctor::{Finding, Kind, Node};

/// Looks at all attachments that live, and returns what was not examined, and what else may drop packets.
pub(crate) fn look(
    node: Node<'_>,
    survey: &Survey,
    runtime: &Runtime,
    findings: &mut Vec<Finding>,
) -> (Vec<String>, Vec<String>) {
    let Reasons { found, unseen, unexamined, beyond } =
        if node.probes { survey.proven_reasons() } else { survey.reasons() };
    for what in unseen.iter().filter(|what| !is_expected(what)) {
        let (place, error) = what.split_once(": ").unwrap_or((what, "not known"));
        findings.push(Kind::unseen(None, place, &error));
    }
    let of = |found: &Found<'_>| (found.network.name.clone(), found.attachment.id.clone());
    let broken = found.iter().filter(|found| is_of_links(found.reason.cause));
    let broken: BTreeSet<_> = broken.map(|found| (of(found), found.reason.level)).collect();
    // A link without carrier, a warning, does not hide that the node's route leads there.
    let is_consequence = |found: &Found<'_>| {
        matches!(found.reason.cause, Cause::Route | Cause::Refused | Cause::ReversePath)
            && broken.iter().any(|(broken, level)| *broken == of(found) && *level >= found.reason.level)
    };
    let mut gathered: BTreeMap<(Kind, String, String), Vec<Found<'_>>> = BTreeMap::new();
    for found in found {
        let Some(kind) = kind(&found.reason).filter(|_| !is_consequence(&found)) else { continue };
        let key = (kind, found.network.name.clone(), found.reason.what.clone());
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
        let mut commands: Vec<String> = Vec::new();
        for command in found.iter().flat_map(|found| &found.reason.remedy) {
            let is_said = |said: &String| said == command || is_sentence(said) && is_sentence(command);
            if !commands.iter().any(is_said) {
                commands.push(command.clone());
            }
        }
        finding.remedy = match commands.is_empty() {
            // A repair writes nothing for an address that another one may get.
            true if unreserved.iter().any(|(of, count)| of.as_deref() == Some(&network) && *count >= found.len()) => {
                "Start the container anew.".to_owned()
            }
            // Plugins of another project repair nothing.
            true if matches!(kind, Kind::MasqueradeGone | Kind::PortGone) && !has_repair(runtime, &found) => {
                "Start the container anew.".to_owned()
            }
            true => kind.advice(&network),
            false if commands.len() > COMMANDS_MAX && may_repair(kind, &found) && has_repair(runtime, &found) => {
                format!("cnitool repair {network}")
            }
            false => commands.join("; "),
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
        if let Some(network) = same.network.take() {
            same.evidence.iter_mut().for_each(|line| *line = format!("network {network}: {line}"));
        }
        let network = finding.network.unwrap_or_default();
        same.evidence.extend(finding.evidence.into_iter().map(|line| format!("network {network}: {line}")));
    }
    joined
}

/// No fault: rules with conditions that are not read, whose effect is not known, and an interface whose addresses a guest has.
fn is_expected(what: &str) -> bool {
    what.ends_with("that have further conditions")
        || what.contains("it has no link on the host")
        || what.contains("which may have its addresses")
}

/// Of the sentences for one cause, which name different addresses, one is enough.
fn is_sentence(remedy: &str) -> bool {
    remedy.starts_with(char::is_uppercase)
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

fn is_of_links(cause: Cause) -> bool {
    matches!(cause, Cause::LinkDown | Cause::LinkGone | Cause::Gateway)
}

/// The attachment, and the reason in full where it says more than the finding.
fn evidence(found: &Found<'_>) -> String {
    let name = found.attachment.full_name();
    if found.reason.why == found.reason.what { name } else { format!("{name}: {}", found.reason.why) }
}

/// `None`: no fault by itself, or a finding of another module.
fn kind(reason: &Reason) -> Option<Kind> {
    Some(match reason.cause {
        // A node without a link to other networks is meant to have no way there.
        Cause::WayOut if !reason.remedy.is_empty() => Kind::NoWayOut,
        // The other is of an ADD that may be under way.
        Cause::Unfinished if !reason.remedy.is_empty() => Kind::ContainerSide,
        Cause::Gone | Cause::Unfinished | Cause::WayOut => return None,
        Cause::LinkDown => Kind::LinkDown,
        Cause::LinkGone => Kind::LinkGone,
        Cause::Gateway => Kind::GatewayAddress,
        Cause::Route => Kind::RouteElsewhere,
        Cause::Refused => Kind::RouteElsewhere,
        Cause::ReversePath => Kind::ReversePath,
        Cause::Forwarding => Kind::ForwardingOff,
        Cause::Filtered | Cause::FilteredToNode => Kind::FirewallDrops,
        Cause::Mtu => Kind::Mtu,
        Cause::Masquerade => Kind::MasqueradeGone,
        Cause::PortGone => Kind::PortGone,
        Cause::PortTwice => Kind::PortTwice,
        Cause::PortTaken => Kind::PortTaken,
        Cause::Duplicate => Kind::DuplicateAddress,
        Cause::Inside => Kind::ContainerSide,
    })
}
