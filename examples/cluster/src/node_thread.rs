//! A node: a thread with namespaces of its own, which does what it is asked to.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use libcni::cni_spec::Code;
use libcni::{NetworkConf, Runtime, RuntimeConf};
use serde_json::{Value, json};
use testns::{Container, Namespace, Node, Subject};

const CONFLIST: &str = include_str!("../10-lan.conflist");
const WITHIN: Duration = Duration::from_secs(20);

type Task = Box<dyn FnOnce(&mut NodeThread) + Send>;

/// The sender of tasks to a node's thread.
pub(crate) struct NodeHandle {
    pub(crate) name: String,
    tasks: Sender<Task>,
    _thread: JoinHandle<()>,
}

/// What the thread has.
pub(crate) struct NodeThread {
    name: String,
    node: Node,
    /// Keys of `ipam`, beside those of the file.
    keys: Value,
    pods: Vec<Pod>,
}

struct Pod {
    attachment: RuntimeConf,
    container: Container,
    address: IpAddr,
    mac: String,
}

/// The outcome of many ADDs, as a runtime sees it.
#[derive(Debug, Default)]
pub(crate) struct Adds {
    /// Address and Ethernet address of each pod.
    pub(crate) given: Vec<(Ipv4Addr, String)>,
    pub(crate) longest: Duration,
    /// The number of ADDs that were called again, as code 11 says.
    pub(crate) repeated: usize,
}

impl NodeHandle {
    pub(crate) fn start(name: String, keys: Value, executable: PathBuf) -> Self {
        let (tasks, todo) = channel();
        let own = name.clone();
        let thread = std::thread::spawn(move || serve(own, keys, executable, &todo));
        Self { name, tasks, _thread: thread }
    }

    /// Begins something on the node; the result comes by the channel.
    pub(crate) fn begin<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut NodeThread) -> T + Send + 'static,
    ) -> Receiver<T> {
        let (answer, result) = channel();
        // A node that has ended drops the channel, which the receiver notices.
        self.tasks.send(Box::new(move |thread| drop(answer.send(work(thread))))).ok();
        result
    }

    pub(crate) fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut NodeThread) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.begin(work).recv().map_err(|_ended| anyhow!("{} has ended", self.name))?
    }
}

pub(crate) fn on_all<T: Send + 'static>(
    nodes: &[NodeHandle],
    work: impl Fn(&mut NodeThread) -> Result<T> + Clone + Send + 'static,
) -> Result<Vec<T>> {
    let begun: Vec<_> = nodes.iter().map(|node| node.begin(work.clone())).collect();
    let ended = |(node, answer): (&NodeHandle, Receiver<Result<T>>)| {
        answer.recv().map_err(|_ended| anyhow!("{} has ended", node.name))?
    };
    nodes.iter().zip(begun).map(ended).collect()
}

fn serve(name: String, keys: Value, executable: PathBuf, todo: &Receiver<Task>) {
    let subject = Subject::Multicall(executable);
    let node = Node::with(&subject);
    node.install_one(&subject, "cluster");
    let mut thread = NodeThread { name, node, keys, pods: Vec::new() };
    for task in todo {
        task(&mut thread);
    }
}

impl NodeThread {
    pub(crate) fn host(&self) -> &Namespace {
        self.node.host()
    }

    fn config(&self) -> Result<String> {
        let mut list: Value = serde_json::from_str(CONFLIST)?;
        let ipam = list["plugins"][0]["ipam"].as_object_mut().context("10-lan.conflist has no ipam")?;
        ipam.insert("node".to_owned(), json!(self.name));
        ipam.extend(self.keys.as_object().cloned().unwrap_or_default());
        Ok(list.to_string())
    }

    fn on_network<T>(&self, work: impl AsyncFnOnce(&Runtime, &NetworkConf) -> Result<T>) -> Result<T> {
        let cni = Runtime::builder().plugin_dirs([self.node.bin_dir()]).build();
        let network = NetworkConf::parse(self.config()?.as_bytes())?;
        let events = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        events.block_on(work(&cni, &network))
    }

    pub(crate) fn add(&mut self) -> Result<IpAddr> {
        self.try_add(self.node.container()).map(|(address, _)| address)
    }

    fn try_add(&mut self, container: Container) -> Result<(IpAddr, String)> {
        let netns = container.namespace().path().display().to_string();
        let attachment = RuntimeConf::new(container.id(), "eth0")?.netns(netns);
        let result = self.on_network(async |cni, network| Ok(cni.add(network, &attachment).await?))?;
        let address = result.ips.first().context("ADD gave no address")?.address.ip();
        let mac = result.interfaces.iter().map(|interface| interface.mac.clone()).find(|mac| !mac.is_empty());
        let mac = mac.unwrap_or_default();
        self.pods.push(Pod { attachment, container, address, mac: mac.clone() });
        Ok((address, mac))
    }

    /// Adds pods one after the other, and calls again what code 11 says may be called again, as runtimes do.
    pub(crate) fn add_many(&mut self, count: usize) -> Result<Adds> {
        let mut adds = Adds::default();
        while adds.given.len() < count {
            let container = self.node.container_without_probes();
            loop {
                let begin = Instant::now();
                let answer = self.try_add(container.clone());
                adds.longest = adds.longest.max(begin.elapsed());
                match answer {
                    Ok((IpAddr::V4(address), mac)) => {
                        adds.given.push((address, mac));
                        break;
                    }
                    Err(error) if code(&error) == Some(Code::TRY_AGAIN) => adds.repeated += 1,
                    other => return Err(other.err().unwrap_or_else(|| anyhow!("an address of IPv6"))),
                }
            }
        }
        Ok(adds)
    }

    /// Pings from each pod all addresses but its own, which takes `lo`, and no network; the number of answers.
    pub(crate) fn ping(&self, targets: &[IpAddr]) -> Result<usize> {
        let mut answers = 0;
        for Pod { container, address, .. } in &self.pods {
            for target in targets.iter().filter(|target| *target != address) {
                let name = (container.id(), &self.name);
                ensure!(container.namespace().pings(*target, WITHIN), "{name:?} got no answer from {target}");
                answers += 1;
            }
        }
        Ok(answers)
    }

    /// Tells each pod the Ethernet addresses of all others: a kernel keeps 1,024 that it has asked for, for all its namespaces.
    pub(crate) fn introduce(&self, all: &[(Ipv4Addr, String)]) {
        for pod in &self.pods {
            let others: Vec<_> = all.iter().filter(|(_, mac)| *mac != pod.mac).cloned().collect();
            pod.container.namespace().add_neighbours("eth0", &others);
        }
    }

    /// As [`NodeThread::ping`], many requests at a time.
    pub(crate) fn ping_all(&self, all: &[(Ipv4Addr, String)]) -> Result<usize> {
        let mut answers = 0;
        for pod in &self.pods {
            let others: Vec<_> = all.iter().map(|(ip, _)| *ip).filter(|ip| IpAddr::from(*ip) != pod.address).collect();
            let silent = pod.container.namespace().find_silent(&others, WITHIN);
            ensure!(silent.is_empty(), "{} of {} got no answer from {silent:?}", pod.address, self.name);
            answers += others.len();
        }
        Ok(answers)
    }

    pub(crate) fn delete(&mut self) -> Result<()> {
        let pods = std::mem::take(&mut self.pods);
        self.on_network(async |cni, network| {
            for pod in &pods {
                cni.del(network, &pod.attachment).await?;
            }
            Ok(())
        })
    }

    pub(crate) fn operate(&self, command: &str, words: &[&str]) -> Result<String> {
        let config = Path::new("/run/10-lan.conflist");
        std::fs::write(config, self.config()?)?;
        let mut process = Command::new(self.node.bin_dir().join("cluster"));
        let output = process.arg(command).arg(config).args(words).output()?;
        ensure!(output.status.success(), "cluster {command}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }
}

fn code(error: &anyhow::Error) -> Option<Code> {
    error.downcast_ref::<libcni::Error>().and_then(libcni::Error::code)
}
