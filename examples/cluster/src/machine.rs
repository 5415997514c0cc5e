//! A node: a thread with namespaces of its own, which does what it is asked to.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use libcni::{Attachment, NetworkConf, Runtime};
use testns::{Container, Namespace, Node, Subject};

const CONFLIST: &str = include_str!("../10-lan.conflist");
const WITHIN: Duration = Duration::from_secs(20);

type Task = Box<dyn FnOnce(&mut Machine) + Send>;

/// A node's end that the story holds.
pub(crate) struct Handle {
    pub(crate) name: &'static str,
    tasks: Sender<Task>,
    _thread: JoinHandle<()>,
}

/// What the thread has.
pub(crate) struct Machine {
    name: &'static str,
    node: Node,
    store: PathBuf,
    pods: Vec<Pod>,
}

struct Pod {
    attachment: Attachment,
    container: Container,
    address: IpAddr,
}

impl Handle {
    /// Starts a node.
    pub(crate) fn start(name: &'static str, store: PathBuf, executable: PathBuf) -> Self {
        let (tasks, todo) = channel();
        let thread = std::thread::spawn(move || serve(name, store, executable, &todo));
        Self { name, tasks, _thread: thread }
    }

    /// Begins something on the node; the result comes by the channel.
    pub(crate) fn begin<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Machine) -> T + Send + 'static,
    ) -> Receiver<T> {
        let (answer, result) = channel();
        // A node that has ended drops the channel, which the receiver notices.
        self.tasks.send(Box::new(move |machine| drop(answer.send(work(machine))))).ok();
        result
    }

    /// Does something on the node.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Machine) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.begin(work).recv().map_err(|_ended| anyhow!("{} has ended", self.name))?
    }
}

fn serve(name: &'static str, store: PathBuf, executable: PathBuf, todo: &Receiver<Task>) {
    let subject = Subject::Multicall(executable);
    let node = Node::with(&subject);
    node.install_one(&subject, "cluster");
    let mut machine = Machine { name, node, store, pods: Vec::new() };
    for task in todo {
        task(&mut machine);
    }
}

impl Machine {
    pub(crate) fn host(&self) -> &Namespace {
        self.node.host()
    }

    fn config(&self) -> String {
        CONFLIST.replace("NODE", self.name).replace("STORE", &self.store.display().to_string())
    }

    fn on_network<T>(&self, work: impl AsyncFnOnce(&Runtime, &NetworkConf) -> Result<T>) -> Result<T> {
        let cni = Runtime::builder().plugin_dirs([self.node.bin_dir()]).build();
        let network = NetworkConf::parse(self.config().as_bytes())?;
        let events = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        events.block_on(work(&cni, &network))
    }

    /// Adds a pod; its address.
    pub(crate) fn add(&mut self) -> Result<IpAddr> {
        let container = self.node.container();
        let netns = container.namespace().path().display().to_string();
        let attachment = Attachment::new(container.id(), "eth0")?.netns(netns);
        let result = self.on_network(async |cni, network| Ok(cni.add(network, &attachment).await?))?;
        let address = result.ips.first().context("ADD gave no address")?.address.ip();
        self.pods.push(Pod { attachment, container, address });
        Ok(address)
    }

    /// Pings from each pod all addresses but its own, which takes `lo`, and no network; the number of answers.
    pub(crate) fn ping(&self, targets: &[IpAddr]) -> Result<usize> {
        let mut answers = 0;
        for Pod { container, address, .. } in &self.pods {
            for target in targets.iter().filter(|target| *target != address) {
                let name = (container.id(), self.name);
                ensure!(container.namespace().pings(*target, WITHIN), "{name:?} got no answer from {target}");
                answers += 1;
            }
        }
        Ok(answers)
    }

    /// Deletes all pods.
    pub(crate) fn delete(&mut self) -> Result<()> {
        let pods = std::mem::take(&mut self.pods);
        self.on_network(async |cni, network| {
            for pod in &pods {
                cni.del(network, &pod.attachment).await?;
            }
            Ok(())
        })
    }

    /// An operator's command; its output.
    pub(crate) fn operate(&self, command: &str, words: &[&str]) -> Result<String> {
        let config = Path::new("/run/10-lan.conflist");
        std::fs::write(config, self.config())?;
        let mut process = Command::new(self.node.bin_dir().join("cluster"));
        let output = process.arg(command).arg(config).args(words).output()?;
        ensure!(output.status.success(), "cluster {command}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }
}
