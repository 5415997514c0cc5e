//! The steps by which a node is laid and changed, as commands for a shell in which the same can be done by hand.

use crate::Namespace;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

/// The steps so far; none are kept until somebody wants them.
static STEPS: Mutex<Option<Vec<String>>> = Mutex::new(None);

fn kept() -> MutexGuard<'static, Option<Vec<String>>> {
    STEPS.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Keeps the steps of this process from now on.
pub fn keep_steps() {
    kept().get_or_insert_default();
}

/// Returns the steps since the last time; none if they are not [kept](keep_steps).
pub fn take_steps() -> Vec<String> {
    kept().as_mut().map(std::mem::take).unwrap_or_default()
}

/// Keeps a step of the caller's own, such as a file that it has removed.
pub fn step(command: impl Display) {
    if let Some(steps) = kept().as_mut() {
        steps.push(command.to_string());
    }
}

impl Namespace {
    /// The name for `ip netns`; none of the node's own.
    fn name(&self) -> Option<String> {
        let name = self.path().strip_prefix("/run/netns").ok()?;
        Some(name.display().to_string())
    }

    /// Keeps a step of a program that takes `-n NAMESPACE`: `ip` or `tc`.
    pub(crate) fn step(&self, program: &str, words: impl Display) {
        step(match self.name() {
            Some(name) => format!("{program} -n {name} {words}"),
            None => format!("{program} {words}"),
        });
    }

    pub(crate) fn step_inside(&self, command: impl Display) {
        step(match self.name() {
            Some(name) => format!("ip netns exec {name} {command}"),
            None => command.to_string(),
        });
    }

    /// The namespace as `ip link add ... netns` has it; the node's is that of the shell.
    pub(crate) fn as_target(&self) -> String {
        self.name().unwrap_or_else(|| "$$".to_owned())
    }
}

/// Keeps a step about the path of a namespace.
pub(crate) fn step_of_path(path: &Path, before: &str) {
    if let Some(name) = Namespace::at(path).name() {
        step(format!("{before}{name}"));
    }
}

/// Keeps the step by which a shell gets a node of its own: with empty folders as [`Node::new`](crate::Node::new) has, and more,
/// and with links to the `installed` executables, patterns of a shell, beside some that have other names.
pub fn step_of_node(folders: &[PathBuf], named: &[(&str, &Path)], installed: &[String]) {
    let folders = ["/run", "/var/lib/cni", "/etc/cni"].map(PathBuf::from).into_iter().chain(folders.iter().cloned());
    let folders: Vec<_> = folders.map(|folder| folder.display().to_string()).collect();
    let link = |(name, path): &(&str, &Path)| format!("ln -s {} $b/{name}; ", path.display());
    let lay = format!(
        "for d in {}; do p=$d; until [ -d $p ]; do p=$(dirname $p); done; mount -t tmpfs none $p; mkdir -p $d; done; \
         b=/run/testns/bin; mkdir -p /run/netns $b; {}for d in {}; do ln -s $d $b 2>/dev/null; done; ip link set lo up; exec bash",
        folders.join(" "),
        named.iter().map(link).collect::<String>(),
        installed.join(" "),
    );
    step(format!("unshare --map-root-user --mount --net sh -c '{}'", lay.replace('\'', r"'\''")));
}
