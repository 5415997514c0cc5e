//! host-local's folders: damaged files, ranges, locks.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cluster_keys::NodeView;
use cni_spec::{ConfObject, SpecVersion};
use host_local::inventory::{self, Flaw, Usage};
use libcni::{Cache, NetworkConf};
use netops::lock;
use on_node::networks::{Known, Origin};

use crate::doctor::{Finding, Fix, Kind, Level, Step, advice, tool};
use crate::output::count;
use crate::shell_words::word;

/// A lock that is held for longer is worth a finding: an ADD holds it for about a millisecond.
const PATIENCE: Duration = Duration::from_secs(1);

/// The share of a range above which it counts as nearly full, in percent.
const NEARLY_FULL_PERCENT: u128 = 90;

/// Looks at the folders of all networks, and at the ranges of those that have a file: only these give addresses.
pub(crate) async fn look(networks: &[&Known], cache: &Cache, findings: &mut Vec<Finding>) {
    let mut locks: BTreeSet<PathBuf> = BTreeSet::from(["/run/xtables.lock".into()]);
    for Known { conf: network, requests, origin, .. } in networks {
        for folder in requests.stores() {
            flaws(network, &folder, findings);
            locks.insert(folder.join("lock"));
        }
        for object in requests.host_locals().filter(|_| matches!(origin, Origin::File(_))) {
            match inventory::usage(object) {
                Ok(ranges) => {
                    let sets = ranges.chunk_by(|one, next| one.set == next.set);
                    findings.extend(sets.filter_map(|set| full(network, set)));
                }
                Err(error) => findings.push(Kind::unseen(
                    Some(&network.name),
                    &format!("the ranges of network {}", network.name),
                    &error,
                )),
            }
        }
    }
    for Known { conf: network, requests, .. } in networks.iter().filter(|known| matches!(known.origin, Origin::File(_)))
    {
        for object in requests.clusters() {
            findings.extend(of_cluster(network, object));
        }
    }
    held(&locks, findings).await;
    let of_library = networks.iter().map(|known| cache.folder().with_file_name("locks").join(&*known.conf.name));
    stopped(of_library, findings);
}

/// A network whose addresses nodes share: its store is away, this node's runs are used up and none is left, or it holds what host-local gave. STATUS
/// says none of it before ADD fails.
pub(crate) fn of_cluster(network: &NetworkConf, object: &ConfObject) -> Vec<Finding> {
    let NodeView { memory, standing, left } = on_node::memory(object).unwrap_or_default();
    let name = &network.name;
    let finding = |kind: Kind, level, what: String, steps: &[Step]| {
        kind.finding(level, Some(name), what).steps(steps.iter().cloned())
    };
    let show = tool(["cluster", "show", name]);
    let held: u128 = inventory::usage_of(object, None).iter().flatten().map(|range| range.used).sum();
    let not_adopted = (held > 0 && !standing.is_recorded).then(|| {
        let what = format!("this node holds {held} addresses that were given without the store");
        let (begin, end) = (tool(["cluster", "adopt", name, "--begin"]), tool(["cluster", "adopt", name, "--end"]));
        let adopt = tool(["cluster", "adopt", name]);
        let steps = [advice("Once:"), begin, advice("on each node:"), adopt, advice("at last, once:"), end];
        finding(Kind::NotReady, Level::Error, what, &steps)
    });
    let away = (standing.away_until_ms > 0).then(|| {
        let back = format!(
            "Bring the store back: {} s after its last write this node gives no address.",
            standing.trust_seconds
        );
        let what = format!("the store was away when a call asked it last: {}", standing.away_why);
        finding(Kind::NotReady, Level::Warning, what, &[advice(back), show.clone()])
    });
    let ranges = inventory::usage_of(object, Some(&memory.held())).unwrap_or_default();
    let is_full =
        |set: &&[Usage]| left == 0 && memory.claims.is_empty() && set.iter().all(|range| range.used >= range.total);
    let full = ranges.chunk_by(|one, next| one.set == next.set).find(is_full).map(|set| {
        let what = format!(
            "all {} addresses of this node's runs are held, and none is in no run",
            sum(set, |range| range.total)
        );
        finding(Kind::RangeFull, Level::Warning, what, &[tool(["gc", name]), show.clone()])
    });
    not_adopted.into_iter().chain(away).chain(full).collect()
}

/// Locks of the library's operations on a network, which may take long: a stopped process ends none.
fn stopped(locks: impl Iterator<Item = PathBuf>, findings: &mut Vec<Finding>) {
    for path in locks {
        let Some(holder) = lock::find_stopped_holder(&path) else { continue };
        let what = format!("lock {} is held by {holder}, which is stopped", path.display());
        let end = advice("Continue that process (kill -CONT), or end it; its end releases the lock.");
        findings.push(Kind::LockHeld.finding(Level::Warning, None, what).help(end));
    }
}

fn flaws(network: &NetworkConf, folder: &Path, findings: &mut Vec<Finding>) {
    let name = Some(&*network.name);
    let found = match inventory::flaws(folder) {
        Ok(found) => found,
        Err(error) => {
            findings.push(Kind::unseen(name, &folder.display().to_string(), &error));
            return;
        }
    };
    let of = |flaw: Flaw| found.iter().filter(move |(_, one)| *one == flaw).map(|(path, _)| path.display().to_string());
    let empty: Vec<String> = of(Flaw::Empty).collect();
    if !empty.is_empty() {
        let what = format!("{} without a container's name", count(empty.len(), "reservation"));
        // DEL removes only what names an attachment.
        let (remedy, fix) = match network.version().is_ok_and(SpecVersion::has_gc) && !network.disable_gc {
            true => (tool(["gc", &network.name]), Some(Fix::Collect { network: network.name.clone() })),
            false => (rm("", &empty), None),
        };
        let finding = Kind::DamagedReservation.finding(Level::Warning, name, what).help(remedy);
        findings.push(Finding { fix, ..finding.shown_by(empty) });
    }
    let unowned: Vec<String> = of(Flaw::Unowned).collect();
    if !unowned.is_empty() {
        let what = format!("{} whose owner cannot be read", count(unowned.len(), "reservation"));
        let finding = Kind::DamagedReservation.finding(Level::Warning, name, what);
        let steps = [advice("If no administrator made them:"), rm("-r ", &unowned)];
        findings.push(finding.steps(steps).shown_by(unowned));
    }
    let unfinished: Vec<String> = of(Flaw::Unfinished).collect();
    if !unfinished.is_empty() {
        let what = format!("{} that a killed process has not finished", count(unfinished.len(), "file"));
        let finding = Kind::Unfinished.finding(Level::Note, name, what).help(rm("", &unfinished));
        findings.push(finding.shown_by(unfinished));
    }
}

fn rm(options: &str, paths: &[String]) -> Step {
    format!("rm {options}{}", paths.iter().map(|path| word(path)).collect::<Vec<_>>().join(" ")).into()
}

fn sum(set: &[Usage], of: fn(&Usage) -> u128) -> u128 {
    set.iter().map(of).fold(0, u128::saturating_add)
}

/// The finding about the ranges of one set: a container gets an address of any of them.
fn full(network: &NetworkConf, set: &[Usage]) -> Option<Finding> {
    let (total, used) = (sum(set, |range| range.total), sum(set, |range| range.used));
    let spans = set.iter().map(|Usage { first, last, .. }| format!("{first} to {last}"));
    let spans = spans.collect::<Vec<_>>().join(" and ");
    if total == 0 {
        let what = format!("range {spans} has no address that a container can get");
        let give = advice("Give the range further addresses: gateways and excluded addresses are for no container.");
        return Some(Kind::Config.finding(Level::Error, Some(&network.name), what).help(give));
    }
    if used.saturating_mul(100) < total.saturating_mul(NEARLY_FULL_PERCENT) {
        return None;
    }
    let level = match total {
        // A network of one or two containers is made for them.
        1 | 2 => Level::Note,
        _ if used >= total => Level::Error,
        _ => Level::Warning,
    };
    let what = format!("{used} of {total} addresses of {spans} are held");
    let steps = [tool(["gc", &network.name]), tool(["ipam", "list", &network.name])];
    let fix = (!network.disable_gc).then(|| Fix::Collect { network: network.name.clone() });
    Some(Finding { fix, ..Kind::RangeFull.finding(level, Some(&network.name), what).steps(steps) })
}

/// Locks that one process holds now and a second later.
async fn held(locks: &BTreeSet<PathBuf>, findings: &mut Vec<Finding>) {
    let look = || locks.iter().filter_map(|path| Some((path, lock::find_holder(path)?))).collect::<Vec<_>>();
    let before = look();
    if before.is_empty() {
        return;
    }
    wait(PATIENCE).await;
    let after = look();
    for (path, holder) in before.into_iter().filter(|held| after.contains(held)) {
        let what = format!("lock {} is held by {holder} for more than {} s", path.display(), PATIENCE.as_secs());
        let see = advice("Look at what that process waits for; its end releases the lock.");
        findings.push(Kind::LockHeld.finding(Level::Warning, None, what).help(see));
    }
}

#[expect(clippy::disallowed_methods, reason = "the time itself is what is asked for")]
async fn wait(duration: Duration) {
    tokio::time::sleep(duration).await;
}
