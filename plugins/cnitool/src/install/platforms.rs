//! The folders of platforms: where their runtimes look for executables and configurations, and where results are kept.

use super::executables::Source;
use crate::output::Output;
use crate::runtime_settings::{
    CONTAINERD, CRI_O, K3S, NERDCTL, NETWORKS, PODMAN, RKE2, ROOTLESS_NERDCTL, ROOTLESS_PODMAN, Runtime, on_node,
};
use crate::validate::plugin_executables::is_of_this_suite;
use anyhow::bail;
use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};
use std::path::{Path, PathBuf};

const OPT: &[&str] = &["/opt/cni/bin"];
const CACHE: &str = "/var/lib/cni";

/// Names of files that are shown.
const FILES_MAX: usize = 5;

/// A platform's folders. One that begins with `~/` is in the caller's home folder.
pub(super) struct Platform {
    name: &'static str,
    /// Folders of executables in the order in which they are searched, unless settings name others. The first that is there and can
    /// be written to is used.
    plugins: &'static [&'static str],
    /// The folder that is made if none is there; empty: the first that can be made.
    made: &'static str,
    networks: &'static str,
    cache: &'static str,
    /// The runtimes whose settings may name folders of executables; those of the first that does are used.
    runtimes: &'static [Runtime],
    /// Whether the platform itself makes the folder, so that without one it is not on this node.
    makes_folder: bool,
    /// Further facts about the platform.
    more: &'static str,
}

/// Folders of Kubernetes nodes, unless the platform has its own.
const fn usual(name: &'static str) -> Platform {
    Platform {
        name,
        plugins: OPT,
        made: "",
        networks: NETWORKS,
        cache: CACHE,
        runtimes: &[CONTAINERD, CRI_O],
        makes_folder: false,
        more: "",
    }
}

const PLATFORMS: &[Platform] = &[
    Platform { more: "in a container, with the node's folder mounted", ..usual("bottlerocket") },
    Platform { runtimes: &[CONTAINERD], ..usual("containerd") },
    Platform { runtimes: &[CRI_O], ..usual("cri-o") },
    Platform {
        plugins: &["/usr/libexec/cni", "/opt/cni/bin"],
        more: "where /usr is read-only, the runtime has to be set to /opt/cni/bin",
        ..usual("fedora")
    },
    Platform { more: "/usr is read-only, /opt is not", ..usual("flatcar") },
    Platform {
        plugins: &["/var/lib/rancher/k3s/data/cni", "/var/lib/rancher/k3s/data/current/bin"],
        networks: "/var/lib/rancher/k3s/agent/etc/cni/net.d",
        runtimes: &[K3S],
        makes_folder: true,
        more: "its own plugins are links, which it makes anew at each start: --replace-foreign, and --watch",
        ..usual("k3s")
    },
    usual("kind"),
    usual("kubeadm"),
    Platform {
        plugins: &["/var/snap/microk8s/current/opt/cni/bin"],
        networks: "/var/snap/microk8s/current/args/cni-network",
        runtimes: &[],
        makes_folder: true,
        more: "the folder is another one after each refresh of the snap",
        ..usual("microk8s")
    },
    Platform {
        plugins: &["/usr/local/libexec/cni", "/usr/local/lib/cni", "/usr/libexec/cni", "/usr/lib/cni", "/opt/cni/bin"],
        made: "/opt/cni/bin",
        runtimes: &[NERDCTL],
        more: "it looks in the first of these folders that is there, and in no other",
        ..usual("nerdctl")
    },
    Platform {
        networks: "/opt/cni/config",
        runtimes: &[],
        more: "cni_path and cni_config_dir of the client may name others",
        ..usual("nomad")
    },
    Platform {
        plugins: &["/var/lib/cni/bin"],
        networks: "/etc/kubernetes/cni/net.d",
        runtimes: &[CRI_O],
        more: "Multus and the network operator write there, too",
        ..usual("openshift")
    },
    Platform {
        plugins: &["/usr/local/libexec/cni"],
        runtimes: &[PODMAN],
        more: "podman 4 with network_backend = \"cni\" looks there first; podman 5 has no CNI",
        ..usual("podman")
    },
    Platform {
        plugins: &["/usr/libexec/cni", "/opt/cni/bin"],
        more: "where /usr is read-only, the runtime has to be set to /opt/cni/bin",
        ..usual("rhel")
    },
    Platform { runtimes: &[RKE2], more: "flannel's and Canal's installers write there, too", ..usual("rke2") },
    Platform {
        plugins: &["~/.local/libexec/cni", "~/.local/lib/cni", "~/opt/cni/bin"],
        networks: "~/.config/cni/net.d",
        cache: "~/.local/share/cni",
        runtimes: &[ROOTLESS_NERDCTL, ROOTLESS_PODMAN],
        more: "nerdctl looks in the first of these folders that is there, podman 4 where cni_plugin_dirs says",
        ..usual("rootless")
    },
    Platform { more: "in a container, with the node's folder mounted", ..usual("talos") },
];

pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    PLATFORMS.iter().map(|platform| platform.name)
}

/// The platforms that have a folder of networks of their own, with that folder.
pub(crate) fn networks() -> impl Iterator<Item = (&'static str, &'static str)> {
    let own = PLATFORMS.iter().filter(|platform| platform.networks != NETWORKS && !platform.networks.starts_with("~/"));
    own.map(|platform| (platform.name, platform.networks))
}

impl Platform {
    pub(super) fn find(name: &str) -> Option<&'static Self> {
        PLATFORMS.iter().find(|platform| platform.name == name)
    }

    /// The folder of executables, below the folder in which the node's file system is mounted; says what all folders have.
    /// Errors: the platform is not on this node, or no folder can be written to.
    pub(super) fn target(&self, root: &Path, source: &Source, output: Output) -> anyhow::Result<PathBuf> {
        let on_node = |path: &str| on_node(root, path);
        let named = self.runtimes.iter().filter_map(|runtime| runtime.read(root)?.plugins).next();
        let candidates: Vec<PathBuf> = match &named {
            Some((dirs, _)) => dirs.iter().map(|dir| on_node(dir)).collect(),
            None => self.plugins.iter().map(|dir| on_node(dir)).collect(),
        };
        let say = |what, text: String| output.note(&format!("{}: {what} {text}", self.name));
        for dir in &candidates {
            say("plugins", plugins_in(dir, source));
        }
        if let Some((dirs, file)) = &named {
            say("plugins", format!("{} as {} says", dirs.join(", "), file.display()));
        }
        say("networks", networks_in(&on_node(self.networks)));
        say("cache", there(&on_node(self.cache)));
        if !self.more.is_empty() {
            output.note(&format!("{}: {}", self.name, self.more));
        }
        let made = Some(self.made).filter(|dir| named.is_none() && !dir.is_empty()).map(on_node);
        let chosen = self.choose(&candidates, made)?;
        let mut without = Vec::new();
        for dir in candidates.iter().take_while(|dir| **dir != chosen) {
            let there = source.names().iter().filter(|name| dir.join(name).is_file()).map(String::as_str);
            let (there, dir) = (there.collect::<Vec<_>>().join(", "), dir.display().to_string());
            match there.is_empty() {
                true => without.push(dir),
                false => tracing::warn!("{dir} is searched before {}, and has {there}", chosen.display()),
            }
        }
        if !without.is_empty() {
            say("plugins", format!("are searched before {} in {}", chosen.display(), without.join(", ")));
        }
        Ok(chosen)
    }

    fn choose(&self, candidates: &[PathBuf], made: Option<PathBuf>) -> anyhow::Result<PathBuf> {
        let found = || candidates.iter().filter(|dir| dir.is_dir());
        let list = || candidates.iter().map(|dir| dir.display().to_string()).collect::<Vec<_>>().join(" and ");
        if self.makes_folder && found().next().is_none() {
            bail!(
                "cannot install for {}: {} not found; nothing was changed. Has {0} started on this node? --bin-dir takes any \
                 other folder",
                self.name,
                list(),
            );
        }
        let new = made.iter().chain(candidates).filter(|_| !self.makes_folder);
        let usable = found().chain(new).find(|dir| is_writable(dir));
        usable.cloned().ok_or_else(|| {
            anyhow::anyhow!(
                "cannot install for {}: {} cannot be written to, {}; nothing was changed. Name another folder with --bin-dir, \
                 and in the runtime's configuration",
                self.name,
                list(),
                candidates.first().and_then(|dir| write_error(dir)).map_or("for no reason".to_owned(), |errno| errno.desc().to_owned()),
            )
        })
    }
}

/// The reason why a folder, or the one in which it would be made, cannot be written to.
fn write_error(dir: &Path) -> Option<Errno> {
    let there = dir.ancestors().find(|path| path.exists())?;
    access(there, AccessFlags::W_OK | AccessFlags::X_OK).err()
}

fn is_writable(dir: &Path) -> bool {
    write_error(dir).is_none()
}

/// What a folder of executables has, and whether it can be written to.
fn plugins_in(dir: &Path, source: &Source) -> String {
    let is_plugin = |name: &&String| dir.join(name).is_file();
    let plugins: Vec<&String> = source.names().iter().filter(is_plugin).collect();
    let ours = plugins.iter().filter(|name| is_of_this_suite(&dir.join(name)).unwrap_or(false)).count();
    let link = std::fs::read_link(dir).map(|to| format!(", a link to {}", to.display())).unwrap_or_default();
    let error = write_error(dir).map(|errno| format!(", not writable: {}", errno.desc())).unwrap_or_default();
    let there = match dir.is_dir() {
        true => format!("{} of our names, {ours} of these ours", plugins.len()),
        false => "no such folder".to_owned(),
    };
    format!("{}: {there}{link}{error}", dir.display())
}

/// The configurations of a folder.
fn networks_in(dir: &Path) -> String {
    let files = match libcni::conflist::search_order(dir) {
        Ok(files) if files.is_empty() => "no configuration".to_owned(),
        Ok(files) => {
            let names =
                files.iter().take(FILES_MAX).filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
            let more = files.len().saturating_sub(FILES_MAX);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("{}{more}", names.collect::<Vec<_>>().join(", "))
        }
        Err(_) => "no such folder".to_owned(),
    };
    format!("{}: {files}", dir.display())
}

fn there(dir: &Path) -> String {
    format!("{}: {}", dir.display(), if dir.is_dir() { "is there" } else { "no such folder" })
}
