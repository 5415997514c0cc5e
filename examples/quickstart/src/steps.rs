//! The steps and their output.

use crate::drawing::draw;
use anyhow::{Context, Result, ensure};
use libcni::cni_spec::AddResult;
use libcni::{NetworkConf, Runtime, RuntimeConf};
use std::io::Write;
use std::net::IpAddr;
use std::time::{Duration, Instant};
use testns::{Container, Namespace, Node, Subject, Transport, exchange};

/// The network, as a node has it in /etc/cni/net.d.
const CONFLIST: &str = include_str!("../10-pods.conflist");
const WITHIN: Duration = Duration::from_secs(10);
/// Documentation addresses (RFC 5737, RFC 3849) for the node and a machine outside that knows no pod.
const UPLINK: [(&str, &str); 2] = [("192.0.2.1/24", "192.0.2.2/24"), ("2001:db8::1/64", "2001:db8::2/64")];

/// A pod that has its network.
struct Pod {
    name: &'static str,
    container: Container,
    attachment: RuntimeConf,
    result: AddResult,
}

impl Pod {
    fn ips(&self) -> impl Iterator<Item = IpAddr> {
        self.result.ips.iter().map(|ip| ip.address.ip())
    }
}

/// Runs all steps and prints them on `out`.
pub(crate) fn run(out: &mut impl Write) -> Result<()> {
    let executable = std::env::current_exe().context("cannot find this program's own file")?;
    let node = Node::with(&Subject::Multicall(executable));
    let outside = outside(&node);
    // As on any node with pods. Turned on by the first ADD instead, it would change other sysctls and routes too.
    for family in ["ipv4", "ipv6"] {
        node.host().set_sysctl(&format!("net/{family}/conf/all/forwarding"), "1");
    }
    // The kernel's own objects on the uplink are no pod's.
    node.host().wait_until_settled("uplink0");
    node.remember();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run_on(out, &node, &outside))
}

/// A machine outside: it knows the node, and has no route to any pod.
fn outside(node: &Node) -> Namespace {
    let outside = node.remote("outside");
    node.host().add_veth("uplink0", &outside, "eth0");
    for (near, far) in UPLINK {
        node.host().add_address("uplink0", near);
        outside.add_address("eth0", far);
    }
    outside
}

async fn run_on(out: &mut impl Write, node: &Node, outside: &Namespace) -> Result<()> {
    writeln!(out, "A throwaway node, with the network of examples/quickstart/10-pods.conflist.\n")?;
    let network = NetworkConf::parse(CONFLIST.as_bytes())?;
    let cni = Runtime::builder().plugin_dirs([node.bin_dir()]).build();
    let mut pods = Vec::new();
    let mut took = Vec::new();
    for name in ["pod1", "pod2"] {
        let start = Instant::now();
        pods.push(add(node, &cni, &network, name).await?);
        took.push(format!("{name} in {}", millis(start)));
    }
    writeln!(out, "ADD    {}", took.join(", "))?;
    writeln!(out, "\n{}", draw(node.host(), &pods.iter().map(|pod| (pod.name, &pod.result)).collect::<Vec<_>>()))?;
    for pod in &pods {
        reach(out, pod, &pods, outside)?;
    }
    took.clear();
    for pod in &pods {
        let start = Instant::now();
        cni.check(&network, &pod.attachment).await?;
        took.push(format!("{} in {}", pod.name, millis(start)));
    }
    writeln!(out, "\nCHECK  {}: as ADD left them", took.join(", "))?;
    took.clear();
    for pod in &pods {
        let start = Instant::now();
        cni.del(&network, &pod.attachment).await?;
        took.push(format!("{} in {}", pod.name, millis(start)));
    }
    writeln!(out, "DEL    {}", took.join(", "))?;
    drop(pods);
    leftovers(out, node)
}

async fn add(node: &Node, cni: &Runtime, network: &NetworkConf, name: &'static str) -> Result<Pod> {
    let container = node.container_named(name);
    let netns = container.namespace().path().display().to_string();
    let attachment = RuntimeConf::new(container.id(), "eth0")?.netns(netns);
    let result = cni.add(network, &attachment).await?;
    Ok(Pod { name, container, attachment, result })
}

/// Pings from a pod in every direction, and asks the machine outside for the source address that it sees.
fn reach(out: &mut impl Write, from: &Pod, pods: &[Pod], outside: &Namespace) -> Result<()> {
    for other in pods.iter().filter(|pod| pod.name != from.name) {
        writeln!(out, "{} pings {}:        {}", from.name, other.name, pings(from, other.ips())?)?;
    }
    let gateways = from.result.ips.iter().filter_map(|ip| ip.gateway);
    writeln!(out, "{} pings its gateway: {}", from.name, pings(from, gateways)?)?;
    let mut seen = Vec::new();
    for (near, far) in UPLINK {
        let (near, far) = (bare(near)?, bare(far)?);
        let source = exchange(Transport::Udp, from.container.namespace(), (outside, far), WITHIN)
            .with_context(|| format!("{} got no answer from outside ({far})", from.name))?;
        ensure!(source.ip() == near, "outside saw {}, not the node's {near}", source.ip());
        seen.push(format!("{far} sees {near}"));
    }
    Ok(writeln!(out, "{} asks outside:      {}", from.name, seen.join(", "))?)
}

fn pings(from: &Pod, targets: impl Iterator<Item = IpAddr>) -> Result<String> {
    let mut answers = Vec::new();
    for ip in targets {
        let start = Instant::now();
        ensure!(from.container.namespace().pings(ip, WITHIN), "{} got no answer from {ip}", from.name);
        answers.push(format!("{ip} in {}", millis(start)));
    }
    Ok(answers.join(", "))
}

fn bare(address: &str) -> Result<IpAddr> {
    let ip = address.split('/').next().unwrap_or_default();
    ip.parse().with_context(|| format!("cannot read {address}"))
}

fn millis(start: Instant) -> String {
    format!("{:.1} ms", start.elapsed().as_secs_f64() * 1e3)
}

/// Shows what the pods left, and what stays on purpose for the next ones.
fn leftovers(out: &mut impl Write, node: &Node) -> Result<()> {
    let changes = node.changes();
    let left: Vec<&str> = changes.lines().filter(|line| !is_the_networks(line)).collect();
    ensure!(left.is_empty(), "the pods left something on the node:\n  {}", left.join("\n  "));
    writeln!(out, "\nLeft of the pods: nothing. Kept for the network's next pods: the bridge with its")?;
    writeln!(out, "gateway addresses, host-local's folders, iptables' empty POSTROUTING chains.")?;
    Ok(())
}

/// The objects that an interface plugin makes once for all pods of a network, as the reference does.
fn is_the_networks(line: &str) -> bool {
    let is_empty_nat = line.starts_with("+ nft table ip") || line.contains("3=\"POSTROUTING\"");
    is_empty_nat || ["cni0", "/var/lib/cni", "/run/cni"].iter().any(|word| line.contains(word))
}
