//! Folders that the settings of container runtimes name: for `install`, doctor, and the search for plugins.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use toml::{Table, Value};

/// The folder of networks of containerd, CRI-O and kubelets, if their settings name no other.
pub(crate) const NETWORKS: &str = "/etc/cni/net.d";

pub(crate) const CONTAINERD: Runtime = Runtime {
    name: "containerd",
    files: &["/etc/containerd/config.toml"],
    tables: &["plugins.*.cni"],
    plugins: &["bin_dirs", "bin_dir"],
    networks: "conf_dir",
    default: NETWORKS,
};
pub(crate) const K3S: Runtime = Runtime {
    name: "k3s",
    files: &["/var/lib/rancher/k3s/agent/etc/containerd/config.toml"],
    default: "/var/lib/rancher/k3s/agent/etc/cni/net.d",
    ..CONTAINERD
};
pub(crate) const RKE2: Runtime =
    Runtime { name: "RKE2", files: &["/var/lib/rancher/rke2/agent/etc/containerd/config.toml"], ..CONTAINERD };
/// Reads every file of its folder, whatever its name ends in (OpenShift's is `00-default`).
pub(crate) const CRI_O: Runtime = Runtime {
    name: "CRI-O",
    files: &["/etc/crio/crio.conf", "/etc/crio/crio.conf.d/*"],
    tables: &["crio.network"],
    plugins: &["plugin_dirs", "plugin_dir"],
    networks: "network_dir",
    default: NETWORKS,
};
pub(crate) const NERDCTL: Runtime = Runtime {
    name: "nerdctl",
    files: &["/etc/nerdctl/nerdctl.toml"],
    tables: &[""],
    plugins: &["cni_path"],
    networks: "cni_netconfpath",
    default: NETWORKS,
};
pub(crate) const ROOTLESS_NERDCTL: Runtime =
    Runtime { files: &["~/.config/nerdctl/nerdctl.toml"], default: "~/.config/cni/net.d", ..NERDCTL };
pub(crate) const PODMAN: Runtime = Runtime {
    name: "podman",
    files: &[
        "/usr/share/containers/containers.conf",
        "/etc/containers/containers.conf",
        "/etc/containers/containers.conf.d/*.conf",
    ],
    tables: &["network"],
    plugins: &["cni_plugin_dirs"],
    networks: "network_config_dir",
    default: NETWORKS,
};

pub(crate) const ROOTLESS_PODMAN: Runtime = Runtime { files: &["~/.config/containers/containers.conf"], ..PODMAN };

/// The runtimes of a node whose networks all are in one folder. podman 5 has networks of another kind in the folder that its settings name.
const OF_NODE: [Runtime; 5] = [CONTAINERD, K3S, RKE2, CRI_O, NERDCTL];

/// As many links as the kernel follows in a path.
const LINKS_MAX: u8 = 40;

/// Names of containerd's plugin that reads networks: of its versions 1 to 3 of settings.
const CRI: [&str; 4] = ["cri", "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime", "io.containerd.cri.v1"];

#[derive(Debug)]
pub(crate) struct Runtime {
    pub(crate) name: &'static str,
    /// Files and patterns of files, of which a later one overrides. One that begins with `~/` is in the caller's home folder. Key
    /// `imports` names more of them.
    files: &'static [&'static str],
    tables: &'static [&'static str],
    /// Keys of the folders of plugins, a list or a string. Of two in one file the first counts.
    plugins: &'static [&'static str],
    /// The key of the folder of networks.
    networks: &'static str,
    /// The folder of networks if no settings name one.
    default: &'static str,
}

/// What a runtime's settings say.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) runtime: &'static str,
    /// The folders of plugins in the order in which they are searched, and the file that names them.
    pub(crate) plugins: Option<(Vec<String>, PathBuf)>,
    pub(crate) networks: Option<String>,
    default: &'static str,
}

/// The settings of a node's runtimes. A runtime without settings, or whose settings disable networks, is left out.
pub(crate) fn of_node(root: &Path) -> Vec<Named> {
    OF_NODE.iter().filter_map(|runtime| runtime.read(root)).collect()
}

/// The folders in which the runtimes that read this folder of networks look for plugins, each once; none if no settings name any.
pub(crate) fn plugin_dirs(root: &Path, networks: &Path) -> Vec<PathBuf> {
    let mut readers = of_node(root);
    readers.retain(|named| Path::new(named.networks.as_deref().unwrap_or(named.default)) == networks);
    let mut found: Vec<PathBuf> = Vec::new();
    if readers.iter().all(|named| named.plugins.is_none()) {
        return found;
    }
    for named in readers {
        let dirs = named.plugins.map_or_else(|| vec![libcni::DEFAULT_PLUGIN_DIR.to_owned()], |(dirs, _)| dirs);
        let new: Vec<PathBuf> = dirs.into_iter().map(PathBuf::from).filter(|dir| !found.contains(dir)).collect();
        found.extend(new);
    }
    found
}

/// A path of a node below the folder in which its file system is mounted; one that begins with `~/` is below its home folder of the
/// caller.
pub(crate) fn on_node(root: &Path, path: &str) -> PathBuf {
    below(root, &at_home(path))
}

fn at_home(path: &str) -> PathBuf {
    let home = || std::env::home_dir().unwrap_or_default();
    path.strip_prefix("~/").map_or_else(|| PathBuf::from(path), |rest| home().join(rest))
}

/// The place of a node's path, links resolved as on the node: an absolute one begins at `root` again, and none leads out of it.
fn below(root: &Path, path: &Path) -> PathBuf {
    if root == Path::new("/") {
        return root.join(path);
    }
    let parts = |path: &Path| path.iter().rev().map(OsStr::to_owned).collect::<Vec<_>>();
    let (mut place, mut pending, mut links) = (PathBuf::new(), parts(path), 0);
    while let Some(part) = pending.pop() {
        match part.to_str() {
            Some("/" | ".") => {}
            Some("..") => drop(place.pop()),
            _ => match std::fs::read_link(root.join(&place).join(&part)) {
                Ok(target) if links < LINKS_MAX => {
                    links += 1;
                    if target.has_root() {
                        place.clear();
                    }
                    pending.extend(parts(&target));
                }
                Ok(_) | Err(_) => place.push(part),
            },
        }
    }
    root.join(place)
}

impl Runtime {
    /// Reads the settings; `None`: there are none, or they disable networks.
    pub(crate) fn read(&self, root: &Path) -> Option<Named> {
        let mut pending: VecDeque<PathBuf> =
            self.files.iter().flat_map(|pattern| matching(root, &at_home(pattern))).collect();
        let mut named = Named { runtime: self.name, plugins: None, networks: None, default: self.default };
        let mut seen = Vec::new();
        while let Some(file) = pending.pop_front() {
            let place = below(root, &file);
            let Some(bytes) = libcni::plain_file::read(&place).ok().filter(|_| !seen.contains(&file)) else { continue };
            let settings = match String::from_utf8_lossy(&bytes).parse::<Table>() {
                Ok(settings) => settings,
                Err(error) => {
                    warn_once(&place, &error);
                    continue;
                }
            };
            if strings(settings.get("disabled_plugins")).iter().any(|name| CRI.contains(&name.as_str())) {
                return None;
            }
            for pattern in strings(settings.get("imports")) {
                pending.extend(matching(root, &file.parent().unwrap_or(root).join(pattern)));
            }
            for table in self.tables.iter().flat_map(|path| tables(&settings, path)) {
                let dirs = self.plugins.iter().map(|key| strings(table.get(*key))).find(|dirs| !dirs.is_empty());
                if let Some(dirs) = dirs {
                    named.plugins = Some((dirs.iter().map(|dir| clean(dir)).collect(), file.clone()));
                }
                if let Some(dir) = strings(table.get(self.networks)).first() {
                    named.networks = Some(clean(dir));
                }
            }
            seen.push(file);
        }
        (!seen.is_empty()).then_some(named)
    }
}

fn tables<'a>(table: &'a Table, path: &str) -> Vec<&'a Table> {
    let Some(name) = path.split('.').next().filter(|name| !name.is_empty()) else { return vec![table] };
    let rest = path.get(name.len() + 1..).unwrap_or_default();
    let below = table.iter().filter(|(key, _)| name == "*" || key.as_str() == name);
    below.filter_map(|(_, value)| value.as_table()).flat_map(|below| tables(below, rest)).collect()
}

/// The texts of a list, or the one text, without those that are empty.
fn strings(value: Option<&Value>) -> Vec<String> {
    let all = match value {
        Some(Value::Array(values)) => values.as_slice(),
        Some(value) => std::slice::from_ref(value),
        None => &[],
    };
    all.iter().filter_map(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned).collect()
}

/// A folder's path without a slash at its end.
fn clean(dir: &str) -> String {
    let clean = dir.trim_end_matches('/');
    if clean.is_empty() { dir.to_owned() } else { clean.to_owned() }
}

/// Says once in the log that a file is no TOML: verbs read it for several reasons.
fn warn_once(file: &Path, error: &toml::de::Error) {
    static NAMED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
    let mut named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
    if !named.iter().any(|it| it == file) {
        tracing::warn!(
            "{} is not TOML, so the folders that it names are not known: {}",
            file.display(),
            error.message()
        );
        named.push(file.to_owned());
    }
}

/// The node's files that a pattern names, sorted: `*` is any part of a name.
fn matching(root: &Path, pattern: &Path) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::new()];
    for part in pattern {
        let Some(part) = part.to_str().filter(|part| part.contains('*')) else {
            found.iter_mut().for_each(|path| path.push(part));
            continue;
        };
        let entries = found.iter().filter_map(|folder| Some((folder, std::fs::read_dir(below(root, folder)).ok()?)));
        let names =
            entries.flat_map(|(folder, entries)| entries.flatten().map(move |entry| (folder, entry.file_name())));
        found = names
            .filter(|(_, name)| is_like(&name.to_string_lossy(), part))
            .map(|(folder, name)| folder.join(name))
            .collect();
        found.sort();
    }
    found
}

fn is_like(name: &str, pattern: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return name == pattern };
    let Some(name) = name.strip_prefix(start) else { return false };
    name.char_indices()
        .map(|(at, _)| at)
        .chain([name.len()])
        .any(|at| name.get(at..).is_some_and(|end| is_like(end, rest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The files of a node, and the plugins' folders, the file that names them, and the networks' folder that a runtime has by them.
    #[track_caller]
    fn check(runtime: &Runtime, files: &[(&str, &str)], expected: Option<(&[&str], &str, &str)>) {
        let root = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let path = root.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let named = runtime.read(root.path());
        let (plugins, file) = named.as_ref().and_then(|named| named.plugins.clone()).unwrap_or_default();
        let file = file.strip_prefix("/").unwrap_or(&file).to_str().unwrap().to_owned();
        let networks = named.as_ref().and_then(|named| named.networks.clone()).unwrap_or_default();
        let plugins: Vec<&str> = plugins.iter().map(String::as_str).collect();
        assert_eq!(named.map(|_| (&plugins[..], file.as_str(), networks.as_str())), expected, "{files:?}");
    }

    #[test]
    fn folders_are_read_in_each_form_of_toml() {
        let main = "etc/containerd/config.toml";
        for text in [
            "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.cni]\nbin_dirs = ['/a', \"/b/\"]\nconf_dir = '/n'\n",
            "[plugins.\"io.containerd.grpc.v1.cri\"]\n [plugins.\"io.containerd.grpc.v1.cri\".cni] # here\n bin_dirs = [\n  # \"/x\",\n  \"/a\", # ]\n  \"/b\",\n ]\n conf_dir = \"/n\"\n",
            "plugins.cri.cni = { bin_dirs = [\"/a\", '/b'], conf_dir = \"/n/\" }",
            "[plugins]\ncri.cni.bin_dirs = [\"\\u002fa\", '''/b''']\ncri.cni.conf_dir = '/n'\n",
        ] {
            check(&CONTAINERD, &[(main, text)], Some((&["/a", "/b"], main, "/n")));
        }
        check(&CONTAINERD, &[], None);
        let (crio, more) = ("etc/crio/crio.conf", "etc/crio/crio.conf.d/00-default");
        let dirs = "[crio.network]\nplugin_dirs = ['/a']\n";
        let networks = "[crio.network]\nnetwork_dir = '/n'\nplugin_dirs = []\n";
        check(&CRI_O, &[(crio, dirs), (more, networks)], Some((&["/a"], crio, "/n")));
    }

    #[test]
    fn plugins_are_those_of_the_runtimes_that_read_the_networks() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let found = |networks: &str| plugin_dirs(root.path(), Path::new(networks));
        assert!(found(NETWORKS).is_empty());
        write("etc/containerd/config.toml", "version = 2\n");
        assert!(found(NETWORKS).is_empty(), "settings that name no folder");
        write("etc/crio/crio.conf", "[crio.network]\nplugin_dirs = ['/a', '/opt/cni/bin/']\n");
        write("var/lib/rancher/k3s/agent/etc/containerd/config.toml", "[plugins.cri.cni]\nbin_dir = '/k'\n");
        assert_eq!(found(NETWORKS), ["/opt/cni/bin", "/a"].map(PathBuf::from));
        assert_eq!(found(K3S.default), ["/k"].map(PathBuf::from));
        assert!(found("/srv").is_empty());
    }
}
