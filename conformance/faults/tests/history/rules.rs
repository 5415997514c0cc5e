//! The rules that hold whatever happens: each says in words what is wrong.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use testns::Node;

use crate::network::{self, Network};
use crate::pod::PodInSlot;

type Outcome = Result<(), String>;

pub(crate) fn addresses(result: &Value) -> Vec<IpAddr> {
    let ips = result["ips"].as_array().into_iter().flatten();
    let texts = ips.filter_map(|ip| ip["address"].as_str()?.split('/').next());
    texts.filter_map(|text| text.parse().ok()).collect()
}

/// No address of a new pod is one that another pod has, by its result or on its links.
pub(crate) fn addresses_are_no_others<'a>(
    slot: usize,
    pod: &PodInSlot,
    others: impl Iterator<Item = (usize, &'a PodInSlot)>,
) -> Outcome {
    let own = addresses(&pod.result);
    for (other, holder) in others {
        let on_links = holder.addresses_on_links();
        if let Some(twice) = own.iter().find(|ip| on_links.contains(ip)) {
            return Err(format!("{twice} of slot {slot} is that of the living slot {other}"));
        }
    }
    Ok(())
}

/// The addresses of a living pod are on its interface.
pub(crate) fn addresses_are_there(slot: usize, pod: &PodInSlot) -> Outcome {
    let all = pod.addresses_on_links();
    match addresses(&pod.result).iter().find(|ip| !all.contains(ip)) {
        Some(missing) => Err(format!("the pod of slot {slot} has lost {missing}")),
        None => Ok(()),
    }
}

pub(crate) fn addresses_are_reserved(slot: usize, pod: &PodInSlot) -> Outcome {
    are_reserved(slot, &pod.result)
}

/// The addresses of a result are reserved for the slot's pod.
pub(crate) fn are_reserved(slot: usize, result: &Value) -> Outcome {
    addresses(result).into_iter().try_for_each(|ip| is_reserved(slot, ip))
}

/// An address that the link of a pod still has, though GC's list was without it, is not given out again.
pub(crate) fn addresses_in_use_are_reserved(slot: usize, pod: &PodInSlot) -> Outcome {
    let on_links = pod.addresses_on_links();
    let mut in_use = addresses(&pod.result).into_iter().filter(|ip| on_links.contains(ip));
    in_use.try_for_each(|ip| is_reserved(slot, ip))
}

fn is_reserved(slot: usize, ip: IpAddr) -> Outcome {
    // As host-local names its files, also where a colon may not be in a name.
    let text = std::fs::read_to_string(PathBuf::from(Network::of(slot).store()).join(ip.to_string()));
    let holder = text.unwrap_or_else(|error| error.to_string());
    match holder.starts_with(&format!("{}\r\n", network::attachment(slot, "").container_id)) {
        true => Ok(()),
        false => Err(format!("the reservation of {ip} of the living slot {slot}: {holder:?}")),
    }
}

/// No address is reserved for a slot that is free.
pub(crate) fn nothing_is_reserved(slot: usize) -> Outcome {
    let id = network::attachment(slot, "").container_id;
    let entries = std::fs::read_dir(Network::of(slot).store()).into_iter().flatten().flatten();
    let is_its = |path: &Path| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.split("\r\n").next() == Some(&id)
    };
    match entries.map(|entry| entry.path()).find(|path| is_its(path)) {
        Some(path) => Err(format!("after DEL of slot {slot} {} is reserved for it", path.display())),
        None => Ok(()),
    }
}

/// The node is as before its pods, and no process is left.
pub(crate) fn nothing_is_left(node: &Node) -> Outcome {
    let changes = node.changes();
    let left: Vec<_> = changes.lines().filter(|line| !is_expected(line)).collect();
    if !left.is_empty() {
        return Err(format!("the node is not as before:\n{}", left.join("\n")));
    }
    testns::orphans::wait(Duration::from_secs(10)).map(drop)
}

/// Objects that calls may change for good, and state that the kernel changes by itself.
fn is_expected(line: &str) -> bool {
    const NOTES: [&str; 4] = ["/last_reserved_ip.", " /run/cni", "/var/lib/cni/results", "/var/lib/cni/locks"];
    const KERNELS: [&str; 4] = ["fe80::", " ff00::/8 ", "neighbour ", " table 255 "];
    let is_entry = line.contains("/var/lib/cni/results/") && !line.contains("/.");
    !is_entry && (NOTES.iter().chain(&KERNELS).any(|words| line.contains(words)))
}
