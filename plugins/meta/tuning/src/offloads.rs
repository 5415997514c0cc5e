//! Offloads of the interface, by the kernel's names.

use std::collections::BTreeMap;

use chained::{all, differs, failed};
use cni_spec::{CniError, Code};
use netops::Netns;
use netops::ethtool::Ethtool;
use netops::link::Link;

/// Whether each offload of `wanted` is to be on now; before ADD.
/// Errors: code 7: the interface has none of that name that can be changed. The error names those that it has.
pub fn find(netns: &Netns, link: &Link, wanted: &BTreeMap<String, bool>) -> Result<BTreeMap<String, bool>, CniError> {
    if wanted.is_empty() {
        return Ok(BTreeMap::new());
    }
    let features = Ethtool::in_netns(netns).and_then(|ethtool| ethtool.features(link)).map_err(failed)?;
    if let Some((name, on)) = wanted.iter().find(|(name, _)| !features.changeable.contains(*name)) {
        let names: Vec<&str> = features.changeable.iter().map(String::as_str).collect();
        let why = match features.known.contains(name) {
            true => format!("it is fixed on link {}", link.name),
            false => "the kernel knows no such offload".to_owned(),
        };
        return Err(CniError::invalid_key(&format!("offloads.{name:?}"), on, &why)
            .detail(format!("Those that can be changed: {}.", names.join(", "))));
    }
    Ok(wanted.keys().map(|name| (name.clone(), features.wanted.contains(name))).collect())
}

/// Sets the offloads. One that depends on another, which is off, stays off: that is an error.
pub fn set(netns: &Netns, link: &Link, wanted: &BTreeMap<String, bool>) -> Result<(), CniError> {
    if wanted.is_empty() {
        return Ok(());
    }
    Ethtool::in_netns(netns).and_then(|ethtool| ethtool.set(link, wanted)).map_err(failed)?;
    let differing = find_differing(netns, link, wanted)?;
    differing.map_or(Ok(()), |(name, on)| {
        let msg = format!("cannot set offload {name} of link {} {}: the kernel keeps it as it is", link.name, word(on));
        Err(CniError::new(Code::KERNEL, msg).detail("It depends on another one: see the kernel's log."))
    })
}

pub fn compare(netns: &Netns, link: &Link, wanted: &BTreeMap<String, bool>) -> Result<(), CniError> {
    if wanted.is_empty() {
        return Ok(());
    }
    all(find_differing(netns, link, wanted)?.into_iter().map(|(name, on)| {
        let how = format!("its offload {name} is {}, not {}", word(!on), word(on));
        Err(differs(format!("link {}", link.name), how))
    }))
}

/// The first offload that is not as wanted.
fn find_differing<'a>(
    netns: &Netns,
    link: &Link,
    wanted: &'a BTreeMap<String, bool>,
) -> Result<Option<(&'a str, bool)>, CniError> {
    let features = Ethtool::in_netns(netns).and_then(|ethtool| ethtool.features(link)).map_err(failed)?;
    let mut differing = wanted.iter().filter(|(name, on)| features.active.contains(*name) != **on);
    Ok(differing.next().map(|(name, on)| (name.as_str(), *on)))
}

pub fn word(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}
