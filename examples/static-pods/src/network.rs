//! The pods' networks: all that this program asks of crate `pods`, and the folder of the namespaces.
//!
//! The cache of crate `pods` knows each sandbox from before its first plugin runs until its last one has undone its work.
//! So this program has no records: after a kill at any point, the cache and the namespaces tell what is left.

use crate::Options;
use crate::manifest::{Key, Manifest};
use anyhow::{Context, Result, anyhow};
use netops::lock::Lock;
use netops::{Netns, netns};
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use pods::libcni::Cancellation;
use pods::pod::{Pod, PodId};
use pods::{Pods, Status};
use std::collections::BTreeMap;
use std::fs;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The networks and the namespaces; no other instance has them at the same time.
#[derive(Debug)]
pub(crate) struct Network {
    pods: Pods,
    namespaces: PathBuf,
    _lock: Lock,
}

/// The objects that were made for a pod.
#[derive(Debug)]
pub(crate) struct Sandbox {
    pub(crate) id: PodId,
    /// The network, once it is complete.
    pub(crate) up: Option<Status>,
}

/// A program that was killed may have left a child that holds the lock until it becomes another program.
const LOCK_DEADLINE: Duration = Duration::from_secs(2);

impl Network {
    pub(crate) fn open(options: &Options) -> Result<Self> {
        let dir = &options.state_dir;
        let namespaces = dir.join("netns");
        fs::create_dir_all(&namespaces).with_context(|| format!("cannot create {}", namespaces.display()))?;
        let lock = Lock::take(&dir.join("lock"), 0o600, LOCK_DEADLINE).with_context(|| {
            let dir = dir.display();
            format!("{dir} is in use: stop the other static-pods first, or give this one its own --state-dir")
        })?;
        let pods = Pods::builder()
            .conf_dir(&options.conf_dir)
            .plugin_dirs(&options.plugin_dir)
            .cache_dir(&options.cache_dir)
            .build()?;
        Ok(Self { pods, namespaces, _lock: lock })
    }

    /// The sandboxes that an earlier run left, by pod. Namespaces that no network uses are removed.
    pub(crate) async fn recover(&self) -> Result<BTreeMap<Key, Vec<Sandbox>>> {
        let mut sandboxes = BTreeMap::<Key, Vec<Sandbox>>::new();
        let known = self.pods.known()?;
        for entry in fs::read_dir(&self.namespaces).context("cannot list the namespaces")? {
            let entry = entry?;
            if !known.iter().any(|id| entry.file_name() == id.sandbox.as_str()) {
                remove(&entry.path())?;
            }
        }
        for id in known {
            let up = self.pods.status(&id).await.ok();
            // A set-up that was interrupted has no result, and a restart of the machine leaves no namespace.
            let is_whole = |status: &Status| status.networks.iter().all(|network| network.result.is_some());
            let up = up.filter(|status| is_whole(status) && Netns::open(self.netns(&id)).is_ok());
            let key = Key { namespace: id.namespace.clone(), name: id.name.clone() };
            sandboxes.entry(key).or_default().push(Sandbox { id, up });
        }
        Ok(sandboxes)
    }

    pub(crate) fn sandbox(&self, manifest: &Manifest) -> Result<Sandbox> {
        let Key { namespace, name } = manifest.key();
        let id = PodId::new(&namespace, &name, &manifest.uid()?, &new_id()?)?;
        create(&self.netns(&id))?;
        Ok(Sandbox { id, up: None })
    }

    /// Gives a sandbox its networks, all or none; also when it is called off, so this must not be dropped.
    pub(crate) async fn set_up(&self, id: &PodId, manifest: &Manifest, call_off: Cancellation) -> Result<Status> {
        let mut pod = Pod::new(id.clone(), self.netns(id).display().to_string());
        pod.annotations = manifest.metadata.annotations.clone();
        pod.networks = manifest.networks()?;
        pod.port_mappings = manifest.ports();
        let status = self.pods.cancelled_by(call_off).set_up(&pod).await;
        let lines = |errors: &[pods::Error]| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        // Only the networks' errors: the pod's name precedes them in each line.
        status.map_err(|error| match &error.left[..] {
            [] => anyhow!("{}", lines(&error.errors)),
            left => anyhow!("{}; left behind: {}", lines(&error.errors), lines(left)),
        })
    }

    pub(crate) async fn tear_down(&self, id: &PodId) -> Result<()> {
        self.pods.tear_down(id).await?;
        remove(&self.netns(id))
    }

    /// The names of the networks that pods can have now, or why they can have none.
    pub(crate) async fn readiness(&self) -> Result<String, String> {
        self.pods.ready().await.map_err(|reason| reason.to_string())?;
        let networks = self.pods.networks().await;
        let names: Vec<_> = networks.usable.iter().map(|network| network.conf.name.as_str()).collect();
        let unusable: String = networks.passed_over.iter().map(|file| format!("; {file}")).collect();
        Ok(format!("{}{unusable}", names.join(", ")))
    }

    /// Removes what belongs to no sandbox that is known. Pods of other runtimes on the same networks stay.
    pub(crate) async fn collect(&self) -> Result<()> {
        let live: Vec<_> = self.pods.known()?.into_iter().map(|id| id.sandbox).collect();
        #[expect(clippy::disallowed_methods, reason = "PATH, as a plugin's caller has it")]
        let inventory = on_node::Node { search_path: std::env::var("PATH").unwrap_or_default() };
        for (network, found) in self.pods.gc(&live, inventory).await?.kept {
            let (objects, life) = (found.objects.join(", "), found.life);
            eprintln!("static-pods: network {network}: kept what another runtime may have made: {objects}: {life}");
        }
        Ok(())
    }

    pub(crate) fn netns(&self, id: &PodId) -> PathBuf {
        self.namespaces.join(id.sandbox.as_str())
    }
}

/// An ID as container runtimes make them: 32 random bytes in hex.
pub(crate) fn new_id() -> Result<String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).context("cannot get random bytes")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

pub(crate) fn create(path: &Path) -> Result<()> {
    let shown = path.display();
    File::create_new(path).with_context(|| format!("cannot create {shown}"))?;
    let none = None::<&str>;
    Netns::run_in_new(|| mount(Some(netns::own_file()), path, none, MsFlags::MS_BIND, none))?
        .with_context(|| format!("cannot mount a network namespace at {shown}"))
}

/// Removes a network namespace, or what a program that was killed has left of one.
pub(crate) fn remove(path: &Path) -> Result<()> {
    match umount2(path, MntFlags::MNT_DETACH) {
        // EINVAL: nothing is mounted.
        Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => Ok(netops::file::remove(path)?),
        Err(errno) => Err(errno).with_context(|| format!("cannot unmount {}", path.display())),
    }
}
