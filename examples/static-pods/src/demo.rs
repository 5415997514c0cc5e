//! `--demo`: folders with sample pods and a sample network, gone with the program.

use crate::cli::Options;
use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

const MANIFESTS: [(&str, &str); 2] =
    [("web.yaml", include_str!("../manifests/web.yaml")), ("client.yaml", include_str!("../manifests/client.yaml"))];
const NETWORK: &str = include_str!("../net.d/10-pods.conflist");

/// The folders.
#[derive(Debug)]
pub(crate) struct Demo {
    dir: PathBuf,
    options: Options,
}

impl Demo {
    /// Makes the folders, with this executable as the plugins.
    pub(crate) fn new(options: &Options) -> Result<Self> {
        if !is_throwaway() {
            bail!("--demo makes bridges and routes: start it in a throwaway namespace, as \"unshare -rmn\" gives one");
        }
        // A name that no earlier run has left: one that was killed may have had this process's number.
        let dir = nix::unistd::mkdtemp(&std::env::temp_dir().join("static-pods-demo-XXXXXX"))
            .context("cannot create a folder for the demo")?;
        let executable = std::env::current_exe().context("cannot find this program's own file")?;
        let at = |name: &str| dir.join(name);
        let options = Options {
            manifests: at("manifests"),
            conf_dir: at("net.d"),
            plugin_dir: vec![at("bin")],
            cache_dir: at("cache"),
            state_dir: at("state"),
            ..options.clone()
        };
        let demo = Self { dir: dir.clone(), options };
        for folder in [&demo.options.manifests, &demo.options.conf_dir, &at("bin")] {
            fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        for entry in cni_plugins::ENTRIES {
            symlink(&executable, at("bin").join(entry.name)).context("cannot link a plugin")?;
        }
        // Addresses are kept with the rest, not on the node.
        let leases = format!("\"type\": \"host-local\", \"dataDir\": {:?}", at("leases"));
        write(&demo.options.conf_dir.join("10-pods.conflist"), &NETWORK.replace("\"type\": \"host-local\"", &leases))?;
        for (name, text) in MANIFESTS {
            write(&demo.options.manifests.join(name), text)?;
        }
        eprintln!("{}\n", demo.introduction());
        Ok(demo)
    }

    /// How the pods of the demo are run.
    pub(crate) fn options(&self) -> Options {
        self.options.clone()
    }

    fn introduction(&self) -> String {
        let (dir, pid) = (self.dir.display(), std::process::id());
        format!(
            "Pods of {dir}/manifests, on the network of {dir}/net.d.\n\
             Edit, add and remove manifests there and watch. To look around from another terminal:\n  \
             nsenter --target {pid} --user --mount --net --preserve-credentials ip -brief address\n\
             Ctrl-C takes all down."
        )
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.dir));
    }
}

/// Whether nothing on the machine can be harmed: no link but `lo` is here.
fn is_throwaway() -> bool {
    let links = fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    links.lines().skip(2).all(|line| line.trim_start().starts_with("lo:"))
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
