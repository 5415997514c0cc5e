//! A throwaway folder of networks and one of plugins.

use libcni::Runtime;
use pods::networks::{Folder, Networks};
use std::borrow::Borrow;
use std::fs::{self, Permissions};
use std::future::Future;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::timeout;

/// The time limit of noticing a change on a busy machine, far longer than usual.
pub(super) const DEADLINE: Duration = Duration::from_secs(20);

/// A plugin's answer to VERSION; each call is counted in the folder `asked`.
pub(super) const ALL_VERSIONS: &str = r#"echo '{"cniVersion":"1.1.0","supportedVersions":["0.4.0","1.0.0","1.1.0"]}'"#;

/// The folders; a clone is the same node.
#[derive(Clone)]
pub(super) struct TestFolders {
    dir: Arc<TempDir>,
}

impl TestFolders {
    /// Empty folders `net.d` and `bin`.
    pub(super) fn new() -> Self {
        let node = Self::bare();
        fs::create_dir(node.path("net.d")).unwrap();
        fs::create_dir(node.path("bin")).unwrap();
        node
    }

    /// Nothing.
    pub(super) fn bare() -> Self {
        Self { dir: Arc::new(tempfile::tempdir().unwrap()) }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(super) fn write(&self, name: &str, text: &str) -> Self {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        testns::write_unshared(path, text).unwrap();
        self.clone()
    }

    /// A network of this name with one plugin, `type` "a".
    pub(super) fn network(&self, file: &str, name: &str) -> Self {
        self.write(file, &network(name))
    }

    /// Installs an executable by rename, as installers do. It records each call in `asked`.
    pub(super) fn plugin(&self, file: &str, script: &str) -> Self {
        let asked = self.path("asked");
        let text = format!("#!/bin/sh\necho ${{0##*/}} >> {}\n{script}\n", asked.display());
        let new = format!("{file}.new");
        self.write(&new, &text).mode(&new, 0o755);
        fs::rename(self.path(&new), self.path(file)).unwrap();
        self.clone()
    }

    pub(super) fn link(&self, target: &str, link: &str) -> Self {
        std::os::unix::fs::symlink(target, self.path(link)).unwrap();
        self.clone()
    }

    pub(super) fn make_dir(&self, name: &str) -> Self {
        fs::create_dir_all(self.path(name)).unwrap();
        self.clone()
    }

    pub(super) fn remove(&self, name: &str) -> Self {
        let path = self.path(name);
        if path.is_dir() && !path.is_symlink() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
        self.clone()
    }

    pub(super) fn mode(&self, name: &str, mode: u32) -> Self {
        fs::set_permissions(self.path(name), Permissions::from_mode(mode)).unwrap();
        self.clone()
    }

    /// The plugins that were asked since the last call, sorted.
    pub(super) fn asked(&self) -> String {
        let text = fs::read_to_string(self.path("asked")).unwrap_or_default();
        fs::remove_file(self.path("asked")).ok();
        let mut names: Vec<_> = text.lines().collect();
        names.sort_unstable();
        names.join(" ")
    }

    pub(super) fn runtime(&self) -> Runtime {
        Runtime::builder().plugin_dirs([self.path("bin"), self.path("more/bin")]).stderr(|_, _| {}).build()
    }

    pub(super) fn open(&self) -> Folder {
        self.open_at(&self.path("net.d"))
    }

    pub(super) fn open_at(&self, dir: &Path) -> Folder {
        Folder::new(dir, self.runtime())
    }

    /// The networks, read once.
    pub(super) async fn read(&self) -> Networks {
        Networks::read(&self.path("net.d"), &self.runtime()).await
    }

    /// The reading, a line each, without what differs from run to run.
    pub(super) fn show(&self, networks: &impl Borrow<Networks>) -> String {
        let networks = networks.borrow();
        let usable = networks.usable.iter().map(|network| format!("{} {}", network.conf.name, types(network)));
        let other = networks.passed_over.iter().map(ToString::to_string);
        let problem = networks.problem.iter().map(ToString::to_string);
        let lines: Vec<_> = usable.chain(other).chain(problem).collect();
        lines.join("\n").replace(self.dir.path().to_str().unwrap(), "$DIR")
    }

    /// Makes a change that must be noticed, and expects these networks after it.
    pub(super) async fn after<T>(&self, folder: &Folder, change: impl FnOnce(&Self) -> T, expected: &str) {
        self.unmoved(folder, |_| ()).await;
        change(self);
        let networks = folder.networks().await;
        assert_eq!(names(&networks), expected, "{}", self.show(&networks));
        let fresh = Networks::read(folder.dir(), &self.runtime()).await;
        assert_eq!(self.show(&networks), self.show(&fresh));
    }

    /// Waits until the networks are as expected.
    pub(super) async fn until(&self, folder: &Folder, is_expected: impl Fn(&Arc<Networks>) -> bool) {
        let mut ticks = tokio::time::interval(Duration::from_millis(10));
        let until = async {
            while !is_expected(&folder.networks().await) {
                ticks.tick().await;
            }
        };
        assert!(timeout(DEADLINE, until).await.is_ok(), "not noticed: {}", self.show(&folder.networks().await));
    }

    /// Makes a change that must not count.
    pub(super) async fn unmoved<T>(&self, folder: &Folder, change: impl FnOnce(&Self) -> T) {
        let before = folder.networks().await;
        change(self);
        assert!(Arc::ptr_eq(&before, &folder.networks().await), "read again without a reason");
    }
}

fn types(network: &pods::networks::Network) -> String {
    network.conf.plugins.iter().map(|plugin| plugin.plugin_type.to_string()).collect::<Vec<_>>().join("+")
}

pub(super) fn network(name: &str) -> String {
    format!(r#"{{"cniVersion":"1.0.0","name":"{name}","plugins":[{{"type":"a"}}]}}"#)
}

/// The usable networks in order.
pub(super) fn names(networks: &impl Borrow<Networks>) -> String {
    networks.borrow().usable.iter().map(|network| network.conf.name.as_str()).collect::<Vec<_>>().join(" ")
}

pub(super) fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}
