//! Folders of networks: whether there is a network at all. Runtimes read one folder each, and not all read the same.

use std::fs::DirEntry;
use std::path::{Path, PathBuf};

use crate::install::platforms;
use crate::validate::Report;
use libcni::{Namespace, conflist};

use crate::doctor::{Finding, Kind, Level, Node};
use crate::shell_words::word;

/// The folder of containerd, CRI-O and kubelets, if their settings name no other.
const USUAL: &str = "/etc/cni/net.d";

/// Settings that name a folder: the runtime, the file, the key.
const SETTINGS: [(&str, &str, &str); 4] = [
    ("containerd", "etc/containerd/config.toml", "conf_dir"),
    ("k3s", "var/lib/rancher/k3s/agent/etc/containerd/config.toml", "conf_dir"),
    ("RKE2", "var/lib/rancher/rke2/agent/etc/containerd/config.toml", "conf_dir"),
    (CRI_O, "etc/crio/crio.conf", "network_dir"),
];

/// The runtime whose settings are also in files of a folder.
const CRI_O: &str = "CRI-O";

/// The files of that folder (crio.conf.d(5)). Settings of containerd name more files themselves, by key `imports`.
const DROP_INS: &str = "crio.conf.d/*.conf";

/// A network of this name is its runtime's, which makes the configuration itself.
const WITHOUT_FILE: &str = "nomad";

/// Names of files that are shown.
const FILES_MAX: usize = 5;

pub(crate) fn look(node: Node<'_>, report: &Report, findings: &mut Vec<Finding>) {
    let asked = settings(Path::new("/"));
    // A caller that names another folder means that one.
    let others = if node.conf_dir == Path::new(USUAL) { others(node.conf_dir, &asked) } else { Vec::new() };
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
    let mut finding = Kind::Unseen.finding(Level::Note, None, what);
    finding.remedy = format!("cnitool doctor --conf-dir {}", word(&path.display().to_string()));
    finding
}

/// The finding that a runtime's settings name a folder without networks.
fn asked_and_empty(Folder { runtime, path }: &Folder) -> Finding {
    let what = format!("{runtime} reads networks from {}, as its settings say, and there is none", path.display());
    let mut finding = Kind::NoNetwork.finding(Level::Error, None, what);
    finding.remedy = format!("Put the network's file there, or correct the settings of {runtime}.");
    finding
}

/// The finding that no file of the folder can be used. `others` are folders that have files.
fn none(node: Node<'_>, report: &Report, others: &[Folder]) -> Finding {
    let dir = node.conf_dir.display();
    let (what, mut evidence, mut remedy) = match std::fs::read_dir(node.conf_dir) {
        Err(_) => (
            format!("no network: there is no folder {dir}"),
            Vec::new(),
            "Install a network add-on, which makes the folder. If your runtime reads another, name that by --conf-dir."
                .to_owned(),
        ),
        Ok(_) if !report.sources.is_empty() => (
            format!("no network: no file in {dir} can be used"),
            report.sources.iter().map(|source| source.name.clone()).collect(),
            format!("cnitool validate --conf-dir {}", word(&dir.to_string())),
        ),
        Ok(entries) => {
            let evidence = ignored(&entries.flatten().collect::<Vec<_>>());
            let what = match evidence.is_empty() {
                true => format!("no network: folder {dir} is empty"),
                false => format!("no network: folder {dir} has no file *.conflist, *.conf or *.json"),
            };
            let remedy =
                "The network add-on writes its file there when its pod on this node has started: see that pod's \
                log. By hand, put a file there whose name ends in .conflist."
                    .to_owned();
            (what, evidence, remedy)
        }
    };
    if let Some(Folder { path, .. }) = others.first() {
        remedy = format!("cnitool doctor --conf-dir {}", word(&path.display().to_string()));
    }
    evidence.extend(
        others.iter().map(|Folder { runtime, path }| format!("{runtime} reads {}, which has networks", path.display())),
    );
    let mut finding = Kind::NoNetwork.finding(level(node), None, what);
    (finding.evidence, finding.remedy) = (evidence, remedy);
    finding
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
    let usual = platforms::networks().chain([("containerd, CRI-O and kubelets", USUAL)]);
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

/// The folders that the settings of runtimes below `root` name.
fn settings(root: &Path) -> Vec<Folder> {
    let read = |(runtime, file, key): &(&'static str, &str, &str)| {
        let texts = texts(runtime, &root.join(file));
        if texts.iter().any(|text| has_no_cri(text)) {
            return None;
        }
        // The last file that has the key counts.
        let path = texts.iter().rev().find_map(|text| value(text, key))?.into();
        Some(Folder { runtime, path })
    };
    SETTINGS.iter().filter_map(read).collect()
}

/// The file's text, and after it those of the files that override it.
fn texts(runtime: &str, file: &Path) -> Vec<String> {
    let read = |path: &Path| String::from_utf8(libcni::plain_file::read(path).ok()?).ok();
    let text = read(file).unwrap_or_default();
    let folder = file.parent().unwrap_or(Path::new("/"));
    let patterns = if runtime == CRI_O { vec![DROP_INS] } else { strings(&text, "imports") };
    let more: Vec<String> = patterns
        .into_iter()
        .flat_map(|pattern| matching(&folder.join(pattern)))
        .filter_map(|path| read(&path))
        .collect();
    std::iter::once(text).chain(more).collect()
}

/// The files whose name has the form of the pattern's last part, with one `*` at most, in the order of their names.
fn matching(pattern: &Path) -> Vec<PathBuf> {
    let name = pattern.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let Some((start, end)) = name.split_once('*') else { return vec![pattern.to_owned()] };
    let is_it = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end)
    };
    let entries = pattern.parent().and_then(|folder| std::fs::read_dir(folder).ok()).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_it).collect();
    paths.sort();
    paths
}

/// Whether containerd's settings disable the plugin that reads networks, as those of docker's packages do.
fn has_no_cri(text: &str) -> bool {
    strings(text, "disabled_plugins").iter().any(|name| matches!(*name, "cri" | "io.containerd.grpc.v1.cri"))
}

/// The text behind a key of TOML and `=`, in any table.
fn after<'a>(text: &'a str, key: &str) -> impl Iterator<Item = &'a str> {
    let behind = move |(at, _): (usize, &str)| {
        let before = text.get(..at)?.rsplit('\n').next()?;
        let rest = text.get(at..)?.strip_prefix(key)?.trim_start_matches([' ', '\t']).strip_prefix('=')?;
        before.trim().is_empty().then(|| rest.trim_start_matches([' ', '\t']))
    };
    text.match_indices(key).filter_map(behind)
}

/// The string that TOML gives a key, in any table.
pub(crate) fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    after(text, key).find_map(|rest| {
        let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
        let value = rest.get(1..)?.split(quote).next()?;
        (!value.is_empty()).then_some(value)
    })
}

/// The strings of the list that TOML gives a key, in any table.
fn strings<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    let list = after(text, key).find_map(|rest| rest.strip_prefix('[')?.split(']').next()).unwrap_or_default();
    let lines = list.lines().filter(|line| !line.trim_start().starts_with('#'));
    lines.flat_map(|line| line.split(['"', '\'']).skip(1).step_by(2)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_found_in_any_table() {
        let text = "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".cni]\n  bin_dir = \"/opt/cni/bin\"\n  conf_dir = \"/srv/net\" # here\n";
        assert_eq!(value(text, "conf_dir"), Some("/srv/net"));
        assert_eq!(
            value("#conf_dir = \"/x\"\nconf_dir_more = \"/y\"\nconf_dir=''\nconf_dir = '/z'\n", "conf_dir"),
            Some("/z")
        );
        assert_eq!(value("conf_dir = [\"/x\"]", "conf_dir"), None);
    }

    #[test]
    fn containerd_without_cri_reads_no_network() {
        assert!(has_no_cri("disabled_plugins = [\"cri\"]\nversion = 2\n"));
        assert!(has_no_cri("disabled_plugins = ['x', 'io.containerd.grpc.v1.cri']"));
        assert!(has_no_cri("disabled_plugins = [\n  # \"x\",\n  \"cri\",\n]\n"));
        for other in ["disabled_plugins = []", "#disabled_plugins = [\"cri\"]", "disabled_plugins = [\"cri-x\"]", ""] {
            assert!(!has_no_cri(other), "{other}");
        }
    }

    #[test]
    fn of_several_files_of_settings_the_last_that_has_the_key_counts() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let found =
            || settings(root.path()).into_iter().map(|folder| (folder.runtime, folder.path)).collect::<Vec<_>>();
        assert_eq!(found(), []);
        write("etc/crio/crio.conf.d/20-cni.conf", "[crio.network]\nnetwork_dir = \"/b\"\n");
        assert_eq!(found(), [(CRI_O, "/b".into())], "without crio.conf");
        write("etc/crio/crio.conf", "[crio.network]\nnetwork_dir = \"/a\"\n");
        write("etc/crio/crio.conf.d/10-cni.conf", "[crio.network]\nnetwork_dir = \"/c\"\n");
        write("etc/crio/crio.conf.d/30-cni.conf~", "[crio.network]\nnetwork_dir = \"/d\"\n");
        assert_eq!(found(), [(CRI_O, "/b".into())]);
        std::fs::remove_dir_all(root.path().join("etc/crio")).unwrap();
        let main = "imports = ['conf.d/*.toml', \"/none/*.toml\"]\n[cni]\n conf_dir = '/a'\n";
        write("etc/containerd/config.toml", main);
        assert_eq!(found(), [("containerd", "/a".into())]);
        write("etc/containerd/conf.d/cni.toml", "[cni]\nconf_dir = \"/b\"\n");
        assert_eq!(found(), [("containerd", "/b".into())]);
        write("etc/containerd/conf.d/other.toml", "disabled_plugins = [\"cri\"]\n");
        assert_eq!(found(), []);
    }

    #[test]
    fn a_runtime_with_another_folder_is_named_with_the_command_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path();
        let (runtime, inventory) = (libcni::Runtime::builder().cache_dir(base).build(), on_node::Node::default());
        let node = Node { runtime: &runtime, conf_dir: base, known: &[], inventory: &inventory, checks: false };
        let report = crate::validate::validate_folder(base, &[]).unwrap();
        let finding = none(node, &report, &[Folder { runtime: "k3s", path: "/srv/k3s".into() }]);
        assert_eq!(finding.level, Level::Error);
        assert_eq!(finding.what, format!("no network: folder {} is empty", base.display()));
        assert_eq!(finding.evidence, ["k3s reads /srv/k3s, which has networks"]);
        assert_eq!(finding.remedy, "cnitool doctor --conf-dir /srv/k3s");
    }

    /// RKE2's containerd has the usual folder, for which `install --platform rke2` also installs.
    #[test]
    fn the_folders_are_those_that_install_knows() {
        let found = others(Path::new(USUAL), &[]);
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
