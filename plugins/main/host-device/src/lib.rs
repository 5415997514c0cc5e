//! The host-device plugin: gives a network device of the node to a container, and brings it home.
//!
//! [`device`] finds what the config selects. [`record`] is what the node remembers of a device that is away, as the container
//! can change everything that is on the device itself. [`return_to_host`] brings it back, from wherever it is, as [`identity`] knows it. [`inventory()`] says what GC
//! would bring back.

pub mod conf;
pub mod device;
pub mod identity;
pub mod record;
pub mod return_to_host;
pub mod step;

use cni_spec::gc::Sweep;
use cni_spec::{AddResult, Attachment, CniError, NetworkName};
pub use conf::{Conf, Removal};
use interface::container::Options;
use interface::inventory::{Item, Sign};
use interface::plan::Uncompared;
use interface::{AddOrCheck, Detaching, InterfacePlugin, LinkKind, Plan, Side, Stage, Step, Uncollected, Verb, failed};
use netops::link::Link;
use netops::{Kernel, OpError};
use record::AwayDevice;
use return_to_host::Outcome;
use std::collections::BTreeSet;
use step::{Move, State};

pub struct HostDevice;

impl InterfacePlugin for HostDevice {
    const NAME: &'static str = "host-device";
    // Not asked for: this plugin removes nothing by kind.
    const LINK: LinkKind = LinkKind::ContainerOnly("");
    type Conf = Conf;
    type Removal = Removal;
    type State = State;
    type Step = Move;

    fn observe(call: &AddOrCheck<'_>, conf: &Conf) -> Result<State, CniError> {
        match call.verb {
            Verb::Add if !conf.is_for_userspace() => step::observe(conf, &call.sides.host),
            Verb::Add | Verb::Check => Ok(State::default()),
        }
    }

    fn require(conf: &Conf) -> Result<(), CniError> {
        if conf.selects() { Ok(()) } else { Err(device::selects_nothing()) }
    }

    fn plan(call: &AddOrCheck<'_>, conf: &Conf, _: &State, lease: Option<AddResult>) -> Result<Plan<Move>, CniError> {
        // IPAM's dns never counts, as in the reference; without IPAM neither does the config's.
        let dns = conf.dns.clone().filter(|_| lease.is_some());
        let mut plan = Plan::new(call.attachment, lease, dns);
        if !conf.is_for_userspace() {
            plan.push(Step::Own(Move { ifname: call.attachment.ifname.as_str().to_owned(), conf: conf.clone() }));
            plan.push_container(Options { announces: true, ..Options::default() })?;
            if !plan.lease.ips.is_empty() {
                plan.push(Uncompared::Announce);
            }
        }
        Ok(plan)
    }

    fn links(stage: &mut Stage<'_>, state: &State) -> Result<Vec<(Side, Link)>, CniError> {
        match state.is_moved() {
            true => Ok(vec![(Side::Container, stage.link(Side::Container)?.clone())]),
            // A program has the device: the interface is no link, and its addresses are reserved for the program.
            false => Ok(vec![(Side::Container, Link { name: stage.names.container.clone(), ..Link::default() })]),
        }
    }

    fn remove_link(detaching: &Detaching<'_>, removal: &Removal) -> Result<(), OpError> {
        let Some(record) = record::read(detaching.attachment)? else {
            return record::remove(record::names(detaching.attachment))
                .and(return_to_host::bring_unrecorded(detaching, removal));
        };
        take_home(&record, detaching.netns)
    }

    fn collect(network: &NetworkName, sweep: &Sweep<&Attachment>) -> Vec<Uncollected> {
        let records = match record::list_of(network) {
            Ok(records) => records,
            Err(error) => return vec![Uncollected { attachment: None, error }],
        };
        let stale = sweep.by(|attachment| record::names(attachment));
        let is_stale = |record: &&AwayDevice| stale.has(&record.names());
        let left = |record: &AwayDevice| {
            let error = take_home(record, None).err()?;
            let [network, container_id, ifname] = record.names();
            Some(Uncollected { attachment: Attachment::parse(network, container_id, ifname).ok(), error })
        };
        records.iter().filter(is_stale).filter_map(left).collect()
    }

    fn is_linkless(conf: &Conf) -> bool {
        conf.is_for_userspace()
    }

    fn status(conf: &Conf, _: &str) -> Result<(), CniError> {
        if conf.is_for_userspace() || !conf.selects() {
            return Ok(());
        }
        let host = Kernel::host().map_err(failed)?;
        if device::find(conf, &host)?.is_some() {
            return Ok(());
        }
        match step::holder(conf).map_err(failed)? {
            Some(record) if identity::has_namespace(&record) => Ok(()),
            holder => Err(device::absent(conf, holder.as_ref())),
        }
    }
}

/// Brings the device home, and forgets it then. One that is in a namespace that nothing leads to is not forgotten: the kernel
/// returns hardware when that ends, and the next DEL, GC, or ADD of the device finds it.
fn take_home(record: &AwayDevice, netns: Option<&netops::Netns>) -> Result<(), OpError> {
    match return_to_host::bring(record, netns)? {
        Outcome::Home | Outcome::Gone => record::remove(record.names()),
        // Not forgotten either, as long as the namespace is there: what the container puts in its place would count as a
        // device without a record the next time.
        Outcome::Lost => {
            let (device, netns) = (&record.device.name, &record.netns);
            tracing::warn!(
                device,
                netns,
                "the device does not come home: the container has deleted it, or moved it to a namespace that is not known"
            );
            Ok(())
        }
        Outcome::Away => {
            let (device, netns) = (&record.device.name, &record.netns);
            tracing::warn!(
                device,
                netns,
                "the device is in no namespace that is known: the kernel has not returned it yet"
            );
            Ok(())
        }
    }
}

/// Each device of the network that is away, or has come back without all that it had. Changes nothing.
pub fn inventory(network: &NetworkName) -> Result<Vec<Item>, CniError> {
    let records = record::list_of(network).map_err(failed)?;
    if records.is_empty() {
        return Ok(Vec::new());
    }
    let host = Kernel::host().map_err(failed)?;
    records.iter().filter_map(|record| item(record, &host).transpose()).collect()
}

fn item(record: &AwayDevice, host: &Kernel) -> Result<Option<Item>, CniError> {
    let [network, container, ifname] = record.names();
    let Ok(attachment) = Attachment::parse(network, container, ifname) else { return Ok(None) };
    let on_host = identity::find_on_host(host, record).map_err(failed)?;
    let mut signs = vec![Sign::Namespace { path: record.netns.clone().into(), numbers: record.netns_numbers }];
    // The kernel returns hardware when its namespace ends, so it is in one that is not known.
    if on_host.is_none() && record.device.is_hardware() && !record.device.is_unplugged() {
        signs.push(Sign::Unknown);
    }
    Ok(Some(Item { owner: (&attachment).into(), object: format!("device {}", record.device.name), signs }))
}

/// The names of the networks that have a record of this boot.
pub fn networks() -> Result<BTreeSet<String>, CniError> {
    let records = record::list().map_err(failed)?;
    Ok(records.iter().map(|record| record.names()[0].to_owned()).collect())
}
