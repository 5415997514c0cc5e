//! The source of the executables.

use crate::error_remedies::refused;
use crate::validate::plugin_executables::is_of_this_suite;
use crate::verify::refuse_damaged;
use anyhow::Context;
use libcni::cni_spec::json::resembling;
use libcni::cni_spec::{Code, PluginType};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const CNI_PLUGINS: &str = "cni-plugins";
/// The name of this program where plugins are.
pub(super) const CNITOOL: &str = crate::OWN_NAME;

const CLUSTER: &str = "cluster";

/// Plugins that belong on no production node: noop writes what a caller's arguments say to any path, as root.
pub(super) const FOR_TESTS: &[&str] = &["noop"];

pub(super) struct Source {
    plugins: PathBuf,
    cnitool: PathBuf,
    /// The executable `cluster`, if it is beside `plugins`.
    cluster: Option<PathBuf>,
    /// The plugins in `plugins`, and `cluster`.
    names: Vec<String>,
}

impl Source {
    /// `from`, or the executable beside this program, built or installed; and this program, unless the plugins'
    /// executable is `cnitool`, too.
    pub(super) fn find(from: Option<&Path>) -> anyhow::Result<Self> {
        let cnitool = std::env::current_exe().context("cannot find the file of this program")?;
        let plugins = from.map_or_else(|| beside(&cnitool), Path::to_owned);
        for file in [&plugins, &cnitool] {
            check_ours(file)?;
        }
        // Any plugin's name: one file has all.
        refuse_damaged("loopback", &plugins)?;
        refuse_damaged(CNITOOL, &cnitool)?;
        let mut names = list(&plugins)?;
        let count = names.len();
        names.retain(|name| name != CNITOOL);
        let cnitool = if names.len() < count { plugins.clone() } else { cnitool };
        let cluster = Some(plugins.with_file_name(CLUSTER)).filter(|path| is_ours(path));
        cluster.iter().try_for_each(|file| refuse_damaged(CLUSTER, file))?;
        names.extend(cluster.iter().map(|_| CLUSTER.to_owned()));
        Ok(Self { plugins, cnitool, cluster, names })
    }

    /// The file that is installed as `name`.
    pub(super) fn of(&self, name: &str) -> &Path {
        match name {
            CNITOOL => &self.cnitool,
            CLUSTER => self.cluster.as_ref().unwrap_or(&self.plugins),
            _ => &self.plugins,
        }
    }

    /// Whether an executable is in this folder, under whatever path.
    pub(super) fn is_in(&self, dir: &Path) -> bool {
        let real = |path: &Path| path.canonicalize().ok();
        let dir = real(dir);
        let folder = |file: &Path| real(file).and_then(|file| file.parent().map(Path::to_owned));
        let mut files = [&self.plugins, &self.cnitool].into_iter().chain(&self.cluster);
        dir.is_some() && files.any(|file| folder(file) == dir)
    }

    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// The requested plugins; by default all except those for tests.
    pub(super) fn choose(&self, wanted: &[String]) -> anyhow::Result<Vec<String>> {
        if let Some(absent) = wanted.iter().find(|name| !self.names.contains(name)) {
            let msg = format!("cannot install plugin {absent}: {} does not contain it", self.plugins.display());
            let meant = resembling(absent, self.names.iter().map(String::as_str));
            let meant = meant.map(|meant| format!("Did you mean {meant}? ")).unwrap_or_default();
            return Err(refused(
                Code::INVALID_ENVIRONMENT,
                msg,
                format!("{meant}It contains {}.", self.names.join(", ")),
            ));
        }
        let is_wanted = |name: &&String| match wanted.is_empty() {
            true => !FOR_TESTS.contains(&name.as_str()),
            false => wanted.contains(name),
        };
        Ok(self.names.iter().filter(is_wanted).cloned().collect())
    }
}

/// `cni-plugins` beside `cnitool`; in an installation any plugin, as each file contains all of them.
fn beside(cnitool: &Path) -> PathBuf {
    let built = cnitool.with_file_name(CNI_PLUGINS);
    let is_plugin = |path: &&PathBuf| path.as_path() != cnitool && !path.ends_with(CLUSTER) && is_ours(path);
    let installed = || {
        let entries = std::fs::read_dir(cnitool.parent()?).ok()?;
        let mut paths: Vec<_> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
        paths.sort_unstable();
        paths.iter().find(is_plugin).cloned()
    };
    if built.exists() { built } else { installed().unwrap_or(built) }
}

fn is_ours(file: &Path) -> bool {
    file.is_file() && is_of_this_suite(file).unwrap_or(false)
}

fn check_ours(file: &Path) -> anyhow::Result<()> {
    match is_of_this_suite(file) {
        Ok(true) => Ok(()),
        Ok(false) => {
            let msg = format!("cannot install from {}: it is no executable of this suite", file.display());
            Err(refused(Code::INVALID_ENVIRONMENT, msg, "Name the executable cni-plugins of a release by --from."))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let msg = format!("cannot install from {}: it does not exist", file.display());
            let help = "Name the executable cni-plugins by --from. cargo build --release -p cni-plugins makes it.";
            Err(refused(Code::INVALID_ENVIRONMENT, msg, help))
        }
        Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
    }
}

/// The list of plugins that the executable prints when it is called by another name than a plugin's and without a verb.
fn list(plugins: &Path) -> anyhow::Result<Vec<String>> {
    use std::os::unix::process::CommandExt;
    let failed = || format!("cannot ask {} what it contains", plugins.display());
    let output = Command::new(plugins)
        .arg0(CNI_PLUGINS)
        .env_remove("CNI_COMMAND")
        .stdin(Stdio::null())
        .output()
        .with_context(failed)?;
    let text = String::from_utf8(output.stdout).with_context(failed)?;
    let names: Vec<String> = text.lines().map(str::to_owned).collect();
    if !output.status.success() || names.is_empty() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let msg = format!("{}: {}, {} names, stderr {:?}", failed(), output.status, names.len(), stderr.trim());
        let help =
            "The file may be cut short or damaged: take it from the release again, and compare that with SHA256SUMS.";
        return Err(refused(Code::INVALID_ENVIRONMENT, msg, help));
    }
    for name in &names {
        PluginType::parse(name).with_context(failed)?;
    }
    Ok(names)
}
