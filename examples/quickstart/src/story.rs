//! The steps and their output.

use crate::drawing::draw;
use anyhow::{Context, Result, ensure};
use libcni::cni_spec::{AddResult, SpecVersion};
use libcni::{Attachment, NetworkConf, Runtime};
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
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
    attachment: Attachment,
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
    writeln!(
        out,
        "A node in a throwaway namespace, with this network in /etc/cni/net.d/10-pods.conflist:\n\n{CONFLIST}"
    )?;
    let network = NetworkConf::parse(CONFLIST.as_bytes())?;
    let cni = Runtime::builder().plugin_dirs([node.bin_dir()]).build();
    let mut pods = Vec::new();
    for name in ["pod1", "pod2"] {
        pods.push(add(out, node, &cni, &network, name).await?);
    }
    writeln!(
        out,
        "The node now:\n\n{}",
        draw(node.host(), &pods.iter().map(|pod| (pod.name, &pod.result)).collect::<Vec<_>>())
    )?;
    reach(out, &pods, outside)?;
    for pod in &pods {
        let start = Instant::now();
        cni.check(&network, &pod.attachment).await?;
        writeln!(out, "CHECK {}: as ADD left it ({})", pod.name, millis(start))?;
    }
    writeln!(out)?;
    for pod in &pods {
        let start = Instant::now();
        cni.del(&network, &pod.attachment).await?;
        writeln!(out, "DEL {} ({})", pod.name, millis(start))?;
    }
    drop(pods);
    leftovers(out, node)
}

async fn add(
    out: &mut impl Write,
    node: &Node,
    cni: &Runtime,
    network: &NetworkConf,
    name: &'static str,
) -> Result<Pod> {
    let container = node.container_named(name);
    let netns = container.namespace().path().display().to_string();
    let attachment = Attachment::new(container.id(), "eth0")?.netns(netns);
    let start = Instant::now();
    let result = cni.add(network, &attachment).await?;
    writeln!(out, "ADD {name} ({}):\n{}\n", millis(start), result.to_json(SpecVersion::LATEST)?)?;
    Ok(Pod { name, container, attachment, result })
}

/// Pings in every direction, and asks the machine outside for the source address that it sees.
fn reach(out: &mut impl Write, pods: &[Pod], outside: &Namespace) -> Result<()> {
    for from in pods {
        let others = pods.iter().filter(|pod| pod.name != from.name);
        let mut targets: Vec<(String, IpAddr)> =
            others.flat_map(|pod| pod.ips().map(|ip| (pod.name.to_owned(), ip))).collect();
        let gateways = from.result.ips.iter().filter_map(|ip| ip.gateway);
        targets.extend(gateways.map(|ip| ("the gateway".to_owned(), ip)));
        for (to, ip) in targets {
            let start = Instant::now();
            ensure!(from.container.namespace().pings(ip, WITHIN), "{} got no answer from {to} ({ip})", from.name);
            writeln!(out, "ping {} to {to:<12} {ip:<16} answered ({})", from.name, millis(start))?;
        }
        for (near, far) in UPLINK {
            let (near, far) = (bare(near)?, bare(far)?);
            let seen = exchange(Transport::Udp, from.container.namespace(), (outside, far), WITHIN)
                .with_context(|| format!("{} got no answer from outside ({far})", from.name))?;
            ensure!(seen.ip() == near, "outside saw {}, not the node's {near}", seen.ip());
            writeln!(out, "udp  {} to outside      {far:<16} answered; outside saw {}", from.name, quote(seen))?;
        }
    }
    Ok(writeln!(out)?)
}

fn quote(seen: SocketAddr) -> String {
    format!("the node's {}", seen.ip())
}

/// `192.0.2.1/24` without its prefix.
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
    let (stays, left): (Vec<&str>, Vec<&str>) = changes.lines().partition(|line| is_the_networks(line));
    writeln!(out, "\nLeft of the pods: {}", if left.is_empty() { "nothing".to_owned() } else { left.join("\n  ") })?;
    writeln!(
        out,
        "The network's own, kept for its next pods: the bridge with its gateway addresses, host-local's folders,"
    )?;
    writeln!(out, "and iptables' empty POSTROUTING chains ({} lines of the node's state)", stays.len())?;
    ensure!(left.is_empty(), "the pods left something behind");
    Ok(())
}

/// The objects that an interface plugin makes once for all pods of a network, as the reference does.
fn is_the_networks(line: &str) -> bool {
    let is_empty_nat = line.starts_with("+ nft table ip") || line.contains("3=\"POSTROUTING\"");
    is_empty_nat || ["cni0", "/var/lib/cni", "/run/cni"].iter().any(|word| line.contains(word))
}
