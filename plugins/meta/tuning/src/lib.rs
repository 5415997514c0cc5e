//! The tuning plugin: sysctls of the container's network, and settings of its interface.

pub mod allowlist;
pub mod conf;
pub mod offloads;
pub mod record;
pub mod sysctls;

use chained::{
    AddOrCheck, ChainedPlugin, Collecting, LazySides, Left, Preview, Removing, Shown, Timer, Txn, Undo, all, differs,
    failed,
};
use cni_spec::{AddResult, CniError, Code};
use interface::conf::refuse_mtu_below_least;
use netops::ethtool::Ethtool;
use netops::link::{self, Link, Settings};
use netops::{Kernel, Netns};

use crate::conf::{Conf, DataDir};
use crate::record::{Old, RecordFile};

#[derive(Debug)]
pub struct Tuning;

impl ChainedPlugin for Tuning {
    const NAME: &'static str = "tuning";
    type Conf = Conf;
    type Removal = DataDir;

    async fn add(call: &AddOrCheck<'_>, own: &Conf, txn: &Txn, result: &mut AddResult) -> Result<(), CniError> {
        let wanted = own.wanted(call.raw)?;
        let sysctls = own.sysctls(&call.attachment.ifname)?;
        allowlist::require(&own.sysctls)?;
        let sides = call.sides.open()?;
        if wanted != Settings::default() || !own.offloads.is_empty() {
            let link = call.attached.link(sides)?;
            refuse_mtu_below_least(wanted.mtu_bytes, call.attached.ips().map(|ip| ip.address.ip()))?;
            let mut old = Old::of(&link, &wanted);
            old.offloads = offloads::find(&sides.netns, &link, &own.offloads)?;
            let record = RecordFile::of(&own.data_dir, call.attachment);
            txn.push(Box::new(Unrecord(record.read_bytes()?, record.clone())));
            record.keep(&old, &(&sides.netns).into())?;
            txn.checkpoint().await;
            let timer = Timer::start();
            txn.push(Box::new(Untune { old, link: link.clone() }));
            let requests = parts(&wanted).iter().map(|part| link::set(&(&link).into(), part)).collect();
            sides.container.run_all(requests).map_err(failed)?;
            offloads::set(&sides.netns, &link, &own.offloads)?;
            timer.end("set interface");
        }
        note(&wanted, call.attached.place(), result);
        // Last: what a sysctl does cannot always be undone by writing the old value.
        let timer = Timer::start();
        let written = sysctls::write(&sides.netns, &sysctls, txn);
        timer.end("write sysctls");
        written
    }

    fn preview(call: &AddOrCheck<'_>, own: &Conf, preview: &mut Preview) -> Result<(), CniError> {
        let wanted = own.wanted(call.raw)?;
        allowlist::require(&own.sysctls)?;
        refuse_mtu_below_least(wanted.mtu_bytes, call.attached.ips().map(|ip| ip.address.ip()))?;
        let ifname = call.attachment.ifname.as_str();
        if wanted != Settings::default() || !own.offloads.is_empty() {
            let record = RecordFile::of(&own.data_dir, call.attachment);
            preview.push(Shown::new(format!("write {}", record.path().display())).uncompared());
        }
        for part in parts(&wanted) {
            preview.step(format!("ip link set {ifname}{}", words(&part)));
        }
        for (name, on) in &own.offloads {
            preview.step(format!("ethtool -K {ifname} {name} {}", offloads::word(*on)));
        }
        note(&wanted, call.attached.place(), &mut preview.result);
        let sysctls = own.sysctls(&call.attachment.ifname)?;
        // Those of the interface come with it.
        let of_interface = format!("/{ifname}/");
        let others = sysctls.iter().filter(|(key, _)| !key.name().contains(&of_interface));
        sysctls::find_all(&call.sides.open()?.netns, others.map(|(key, _)| key))?;
        for (key, value) in sysctls {
            preview.step(format!("{key}={value}"));
        }
        Ok(())
    }

    async fn check(call: &AddOrCheck<'_>, own: &Conf) -> Result<(), CniError> {
        let wanted = own.wanted(call.raw)?;
        let sides = call.sides.open()?;
        let link = call.attached.link(sides)?;
        let wanted = Settings { promisc: Some(wanted.promisc == Some(true)), ..wanted };
        let sysctls = own.sysctls(&call.attachment.ifname)?;
        let offloads = offloads::compare(&sides.netns, &link, &own.offloads);
        all([compare(&link, &wanted), offloads, sysctls::compare(&sides.netns, &sysctls)])
    }

    async fn del(removing: &Removing<'_, DataDir>) -> Vec<CniError> {
        let record = RecordFile::of(removing.removal, removing.attachment);
        let kept = match record.read() {
            Ok(Some(kept)) => kept,
            // Remove the temporary file of a killed ADD.
            Ok(None) => return record.remove().err().into_iter().collect(),
            // As the reference, DEL does not fail for ever where there is no record to be used.
            Err(error) => {
                tracing::warn!(%error, "the interface keeps its settings");
                if let Err(error) = record.remove() {
                    tracing::warn!(%error, "left");
                }
                return Vec::new();
            }
        };
        if !kept.is_of(removing.attachment) {
            tracing::warn!(record = %record.path().display(), "left alone: it is another attachment's");
            return Vec::new();
        }
        // Once more, as a failure may have passed.
        match find_interface(removing).or_else(|_| find_interface(removing)) {
            // Such as of memory or of open files: the next DEL finds the record. What this process may not open stays closed to it.
            Err(error) if !matches!(error.code, Code::PERMISSION | Code::INVALID_NETNS) => return vec![error],
            Err(error) => tracing::warn!(%error, "the interface keeps its settings"),
            Ok(None) => {}
            // The interface is about to be removed by the plugin that made it, or to go home: what the kernel refuses is no error.
            Ok(Some((netns, inside, link))) => {
                let again = |_| set(&netns, &inside, &link, &kept.old);
                if let Err(error) = set(&netns, &inside, &link, &kept.old).or_else(again) {
                    tracing::warn!(%error, "the interface keeps its settings");
                }
            }
        }
        record.remove().err().into_iter().collect()
    }

    async fn gc(collecting: &Collecting<'_, DataDir>) -> Vec<CniError> {
        record::collect(collecting.removal, collecting.network, collecting.sweep)
    }

    fn status(conf: &Conf, _search_path: &str) -> Result<(), CniError> {
        allowlist::require(&conf.sysctls)?;
        if conf.offloads.is_empty() { Ok(()) } else { Ethtool::host().map(drop).map_err(failed) }
    }
}

/// Writes the settings of the interface at `place` into the result.
fn note(wanted: &Settings, place: Option<usize>, result: &mut AddResult) {
    let Some(entry) = place.and_then(|place| result.interfaces.get_mut(place)) else { return };
    if let Some(mac) = wanted.mac {
        entry.mac = mac.to_string();
    }
    // Results contain MTUs since version 1.1.0.
    if let Some(mtu) = wanted.mtu_bytes.filter(|_| entry.mtu != 0) {
        entry.mtu = mtu;
    }
}

/// A request for each setting, so that an error names the one that the kernel refuses.
fn parts(all: &Settings) -> Vec<Settings> {
    let none = Settings::default;
    let parts = [
        Settings { mac: all.mac, ..none() },
        Settings { promisc: all.promisc, ..none() },
        Settings { mtu_bytes: all.mtu_bytes, ..none() },
        Settings { allmulti: all.allmulti, ..none() },
        Settings { tx_queue_len: all.tx_queue_len, ..none() },
    ];
    parts.into_iter().filter(|part| *part != none()).collect()
}

/// Settings in the words of `ip link set`.
fn words(settings: &Settings) -> String {
    let Settings { mac, promisc, mtu_bytes, allmulti, tx_queue_len, .. } = settings;
    let word = |key: &str, value: Option<String>| value.map(|value| format!(" {key} {value}")).unwrap_or_default();
    let on = |flag: bool| if flag { "on" } else { "off" }.to_owned();
    [
        word("address", mac.map(|mac| mac.to_string())),
        word("promisc", promisc.map(on)),
        word("mtu", mtu_bytes.map(|mtu| mtu.to_string())),
        word("allmulticast", allmulti.map(on)),
        word("txqueuelen", tx_queue_len.map(|length| length.to_string())),
    ]
    .concat()
}

fn compare(link: &Link, wanted: &Settings) -> Result<(), CniError> {
    let text = |value: Option<String>| value.unwrap_or_else(|| "none".to_owned());
    let settings = [
        ("Ethernet address", wanted.mac.map(|mac| mac.to_string()), text(link.mac.map(|mac| mac.to_string()))),
        ("MTU", wanted.mtu_bytes.map(|mtu| mtu.to_string()), link.mtu_bytes.to_string()),
        ("promiscuous mode", wanted.promisc.map(|on| on.to_string()), link.promisc.to_string()),
        ("allmulti", wanted.allmulti.map(|on| on.to_string()), link.allmulti.to_string()),
        ("queue length", wanted.tx_queue_len.map(|length| length.to_string()), link.tx_queue_len.to_string()),
    ];
    all(settings.into_iter().map(|(what, wanted, found)| match wanted.filter(|wanted| *wanted != found) {
        Some(wanted) => Err(differs(format!("link {}", link.name), format!("its {what} is {found}, not {wanted}"))),
        None => Ok(()),
    }))
}

/// The container's interface; `None`: it or its namespace is gone.
fn find_interface(removing: &Removing<'_, DataDir>) -> Result<Option<(Netns, Kernel, Link)>, CniError> {
    let Some(netns) = removing.find_netns()? else { return Ok(None) };
    let inside = Kernel::in_netns(&netns).map_err(failed)?;
    let found = removing.find_link(&netns, &inside).map_err(failed)?;
    Ok(found.map(|link| (netns, inside, link)))
}

fn set(netns: &Netns, inside: &Kernel, link: &Link, old: &Old) -> netops::error::Result<()> {
    inside.run_all(parts(&old.settings()).iter().map(|part| link::set(&link.into(), part)).collect())?;
    if old.offloads.is_empty() { Ok(()) } else { Ethtool::in_netns(netns)?.set(link, &old.offloads) }
}

#[derive(Debug)]
struct Untune {
    old: Old,
    link: Link,
}

impl Undo for Untune {
    fn text(&self) -> String {
        format!("settings of link {} restored", self.link.name)
    }

    fn run(&self, sides: &LazySides<'_>) -> Result<(), Left> {
        let sides = sides.open()?;
        match set(&sides.netns, &sides.container, &self.link, &self.old) {
            Err(error) if !error.is_absent() => Err(error.into()),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

#[derive(Debug)]
struct Unrecord(Option<Vec<u8>>, RecordFile);

impl Undo for Unrecord {
    fn text(&self) -> String {
        format!("file {} as before", self.1.path().display())
    }

    fn run(&self, _: &LazySides<'_>) -> Result<(), Left> {
        match &self.0 {
            Some(bytes) => self.1.write(bytes)?,
            None => self.1.remove()?,
        }
        Ok(())
    }
}
