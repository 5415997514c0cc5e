//! Folders of networks: whether there is a network at all. Runtimes read one folder each, and not all read the same.

use std::fs::DirEntry;
use std::path::{Path, PathBuf};

use crate::install::platforms;
use crate::runtime_settings::{self, NETWORKS};
use crate::validate::Report;
use libcni::{Namespace, conflist};

use crate::doctor::{Finding, Kind, Level, Node, advice, tool};

/// A network of this name is its runtime's, which makes the configuration itself.
const WITHOUT_FILE: &str = "nomad";

/// Names of files that are shown.
const FILES_MAX: usize = 5;

pub(crate) fn look(node: Node<'_>, report: &Report, findings: &mut Vec<Finding>) {
    let asked = settings();
    // A caller that names another folder means that one.
    let others = if node.conf_dir == Path::new(NETWORKS) { others(node.conf_dir, &asked) } else { Vec::new() };
    let has_files = |folder: &Folder| conflist::search_order(&folder.path).is_ok_and(|files| !files.is_empty());
    let (with_files, empty): (Vec<Folder>, Vec<Folder>) = others.into_iter().partition(has_files);
    if report.networks.is_empty() {
        findings.push(none(node, report, &with_files));
    } else {
        findings.extend(with_files.iter().map(not_examined));
        findings.extend(empty.iter().filter(|folder| asked.contains(folder)).map(asked_and_empty));
    }
}

/// The finding that another runtime has networks.
fn not_examined(Folder { runtime, path }: &Folder) -> Finding {
    let what = format!("{runtime} reads networks from {}, which this report is not about", path.display());
    Kind::Unseen.finding(Level::Note, None, what).help(tool(["doctor", "--conf-dir", &path.display().to_string()]))
}

/// The finding that a runtime's settings name a folder without networks.
fn asked_and_empty(Folder { runtime, path }: &Folder) -> Finding {
    let what = format!("{runtime} reads networks from {}, as its settings say, and there is none", path.display());
    let put = advice(format!("Put the network's file there, or correct the settings of {runtime}."));
    Kind::NoNetwork.finding(Level::Error, None, what).help(put)
}

/// The finding that no file of the folder can be used. `others` are folders that have files.
fn none(node: Node<'_>, report: &Report, others: &[Folder]) -> Finding {
    let dir = node.conf_dir.display();
    let (what, mut evidence, mut remedy) = match std::fs::read_dir(node.conf_dir) {
        Err(_) => (
            format!("no network: there is no folder {dir}"),
            Vec::new(),
            advice(
                "Install a network add-on, which makes the folder. If your runtime reads another, name that by --conf-dir.",
            ),
        ),
        Ok(_) if !report.sources.is_empty() => (
            format!("no network: no file in {dir} can be used"),
            report.sources.iter().map(|source| source.name.clone()).collect(),
            tool(["validate", "--conf-dir", &dir.to_string()]),
        ),
        Ok(entries) => {
            let evidence = ignored(&entries.flatten().collect::<Vec<_>>());
            let what = match evidence.is_empty() {
                true => format!("no network: folder {dir} is empty"),
                false => format!("no network: folder {dir} has no file *.conflist, *.conf or *.json"),
            };
            let remedy = advice(
                "The network add-on writes its file there when its pod on this node has started: see that pod's \
                log. By hand, put a file there whose name ends in .conflist.",
            );
            (what, evidence, remedy)
        }
    };
    if let Some(Folder { path, .. }) = others.first() {
        remedy = tool(["doctor", "--conf-dir", &path.display().to_string()]);
    }
    evidence.extend(
        others.iter().map(|Folder { runtime, path }| format!("{runtime} reads {}, which has networks", path.display())),
    );
    Kind::NoNetwork.finding(level(node), None, what).help(remedy).shown_by(evidence)
}

/// Names that no runtime reads, sorted, of many the first.
fn ignored(entries: &[DirEntry]) -> Vec<String> {
    let why = |entry: &DirEntry| match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
        true => "it is a folder",
        false => "its name does not end in .conflist, .conf or .json",
    };
    let name = |entry: &DirEntry| entry.file_name().to_string_lossy().into_owned();
    let mut lines: Vec<String> =
        entries.iter().map(|entry| format!("{} is not read: {}", name(entry), why(entry))).collect();
    lines.sort();
    let more = lines.len().saturating_sub(FILES_MAX);
    let shown = lines.into_iter().take(FILES_MAX);
    shown.chain((more > 0).then(|| format!("likewise {more} more"))).collect()
}

/// The level of the finding: a runtime may have its networks without a file.
fn level(node: Node<'_>) -> Level {
    let cached = node.runtime.cache().list(None).map(|listing| listing.cached).unwrap_or_default();
    let lives = |entry: &libcni::Cached| entry.namespace() == Namespace::Present;
    match cached.iter().any(|entry| entry.network.as_str() == WITHOUT_FILE && lives(entry)) {
        true => Level::Note,
        false => Level::Error,
    }
}

/// A folder that a runtime reads.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Folder {
    runtime: &'static str,
    path: PathBuf,
}

/// Folders that runtimes read beside this one, each once.
fn others(own: &Path, asked: &[Folder]) -> Vec<Folder> {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut seen = vec![real(own)];
    let usual = platforms::networks().chain([("containerd, CRI-O and kubelets", NETWORKS)]);
    let usual = usual.map(|(runtime, path)| Folder { runtime, path: path.into() });
    let mut found: Vec<Folder> = asked.iter().cloned().chain(usual).collect();
    found.retain(|folder| {
        let path = real(&folder.path);
        let is_new = !seen.contains(&path);
        seen.push(path);
        is_new
    });
    found
}

/// The folders that the settings of runtimes name.
fn settings() -> Vec<Folder> {
    let named = runtime_settings::of_node(Path::new("/")).into_iter();
    named.filter_map(|named| Some(Folder { runtime: named.runtime, path: named.networks?.into() })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_with_another_folder_is_named_with_the_command_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path();
        let (runtime, inventory) = (libcni::Runtime::builder().cache_dir(base).build(), on_node::Node::default());
        let node = Node {
            runtime: &runtime,
            conf_dir: base,
            known: &[],
            inventory: &inventory,
            probes: false,
            checks: crate::doctor::Checks::No,
        };
        let report = crate::validate::validate_folder(base, &[]).unwrap();
        let finding = none(node, &report, &[Folder { runtime: "k3s", path: "/srv/k3s".into() }]);
        assert_eq!(finding.level, Level::Error);
        assert_eq!(finding.what, format!("no network: folder {} is empty", base.display()));
        assert_eq!(finding.lines().collect::<Vec<_>>(), ["k3s reads /srv/k3s, which has networks"]);
        assert_eq!(finding.remedy.to_string(), "cnitool doctor --conf-dir /srv/k3s");
    }

    /// RKE2's containerd has the usual folder, for which `install --platform rke2` also installs.
    #[test]
    fn the_folders_are_those_that_install_knows() {
        let found = others(Path::new(NETWORKS), &[]);
        let found: Vec<_> = found.iter().map(|folder| (folder.runtime, folder.path.to_str().unwrap())).collect();
        assert_eq!(
            found,
            [
                ("k3s", "/var/lib/rancher/k3s/agent/etc/cni/net.d"),
                ("microk8s", "/var/snap/microk8s/current/args/cni-network"),
                ("nomad", "/opt/cni/config"),
                ("openshift", "/etc/kubernetes/cni/net.d"),
            ]
        );
    }

    #[test]
    fn a_folder_is_another_only_if_its_real_path_is() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path();
        std::fs::create_dir_all(base.join("real")).unwrap();
        std::os::unix::fs::symlink("real", base.join("link")).unwrap();
        let asked = [("a", "link"), ("b", "other")].map(|(runtime, name)| Folder { runtime, path: base.join(name) });
        let found = others(&base.join("real"), &asked);
        assert!(!found.contains(&asked[0]) && found.contains(&asked[1]), "{found:?}");
    }
}
