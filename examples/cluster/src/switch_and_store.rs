//! The switch and the store, which all nodes share.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::{Value, json};
use testns::{Etcd, Namespace, Node};

use crate::node_thread::NodeHandle;

/// The address by which nodes reach etcd: one of the switch's machine, on the network of the nodes.
const ETCD: &str = "10.200.0.1";

pub(crate) struct SwitchAndStore {
    switch: Node,
    pub(crate) store: Store,
    folder: tempfile::TempDir,
}

/// The store that all nodes share.
pub(crate) enum Store {
    Folder(PathBuf),
    /// Three members.
    Etcd(Box<Etcd>),
}

impl SwitchAndStore {
    /// A switch that all nodes are plugged into, and a store.
    pub(crate) fn new(is_etcd: bool) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let switch = Node::new();
        switch.host().add_link("lan", "bridge");
        let store = if is_etcd {
            switch.host().add_address("lan", &format!("{ETCD}/16"));
            let etcd = Etcd::start(folder.path(), ETCD).map_err(|why| anyhow!(why))?;
            Store::Etcd(Box::new(etcd))
        } else {
            let path = folder.path().join("store");
            std::fs::create_dir(&path)?;
            Store::Folder(path)
        };
        Ok(Self { switch, store, folder })
    }

    fn store_key(&self) -> Value {
        match &self.store {
            Store::Folder(path) => json!({ "path": path }),
            Store::Etcd(etcd) => {
                let mut key = etcd.store();
                key["timeoutSeconds"] = json!(2);
                key
            }
        }
    }

    /// Starts nodes and plugs them in; with etcd, waits until it serves them, and restricts them to their key.
    pub(crate) fn start_nodes(&self, count: usize, mut keys: Value) -> Result<Vec<NodeHandle>> {
        let executable = std::env::current_exe().context("cannot find this program's own file")?;
        keys["store"] = self.store_key();
        let node = |number: usize| NodeHandle::start(format!("node{number}"), keys.clone(), executable.clone());
        let nodes: Vec<NodeHandle> = (1..=count).map(node).collect();
        for (number, node) in nodes.iter().enumerate() {
            let path = node.run(|thread| Ok(thread.host().path().to_owned()))?;
            let host = Namespace::at(path);
            self.switch.host().add_veth(&node.name, &host, "eth0");
            self.switch.host().set_master(&node.name, "lan");
            host.add_address("eth0", &format!("10.200.1.{}/16", number + 1));
        }
        if let Store::Folder(_) = &self.store {
            nodes.first().map(|node| node.run(|thread| thread.operate("init", &[]))).transpose()?;
        }
        if let Store::Etcd(etcd) = &self.store {
            self.wait()?;
            etcd.enable_auth(&["--prefix", "/cni/lan/"]);
        }
        Ok(nodes)
    }

    pub(crate) fn wait(&self) -> Result<()> {
        if let Store::Etcd(etcd) = &self.store {
            ensure!(
                etcd.is_ready("/cni/lan/"),
                "etcd has no leader; its logs were in {}",
                self.folder.path().display()
            );
        }
        Ok(())
    }

    /// Takes the store away, by what the nodes find then; a second call brings it back.
    pub(crate) fn turn_store(&mut self, is_on: bool) -> Result<()> {
        match &mut self.store {
            Store::Folder(path) => {
                let away = path.with_extension("away");
                let (from, to) = if is_on { (&away, &*path) } else { (&*path, &away) };
                std::fs::rename(from, to)?;
            }
            Store::Etcd(etcd) => {
                for at in [1, 2] {
                    if is_on { etcd.restart(at) } else { etcd.kill(at) }
                }
                if is_on {
                    self.wait()?;
                }
            }
        }
        Ok(())
    }
}
