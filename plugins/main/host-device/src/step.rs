//! The move: made by ADD, compared by CHECK, taken back when ADD fails.

use std::fmt;

use cni_spec::{CniError, Code};
use interface::check::differs;
use interface::plan::Turn;
use interface::sides::Sides;
use interface::undo::{Left, OwnUndo, Undo};
use interface::{Look, OwnStep, Shown, Stage, conf::invalid, failed};
use netops::link::{self, Before, Link, LinkName, Place, transfer};
use netops::{Kernel, Netns, OpError};

use crate::conf::{Conf, Selector};
use crate::identity;
use crate::record::{self, AwayDevice};
use crate::{
    device,
    return_to_host::{self, is_returned},
};

/// The device that ADD moves.
#[derive(Debug, Default)]
pub struct State {
    before: Option<Before>,
    master: Option<Link>,
    /// What the node loses with the device.
    loses: Vec<String>,
    /// Records of earlier ADDs of the device, which the kernel has returned: it gets back what it had, and they end.
    returned: Vec<AwayDevice>,
    is_moved: bool,
}

impl State {
    pub fn is_moved(&self) -> bool {
        self.is_moved
    }
}

/// Finds the device and reads what it will lose.
pub fn observe(conf: &Conf, host: &Kernel) -> Result<State, CniError> {
    let found = device::find(conf, host)?;
    // Of a device that is on the host every record is an earlier ADD's: its DEL must not take it from this one.
    let records = match &found {
        Some(link) => {
            let records =
                record::list().map_err(failed)?.into_iter().filter(|record| identity::is_on_host(record, link));
            let (mut records, others): (Vec<_>, Vec<_>) = records.partition(|record| is_returned(host, record, link));
            records.extend(others);
            records
        }
        None => holder(conf).map_err(failed)?.into_iter().collect(),
    };
    for record in &records {
        if identity::find_on_host(host, record).map_err(failed)?.is_none() {
            return Err(device::absent(conf, Some(record)));
        }
    }
    match records.is_empty() {
        true => look_at(conf, host, found),
        false => Ok(State { returned: records, ..State::default() }),
    }
}

/// Gives a device that the kernel has returned its name and settings back: the move would otherwise take the container's name
/// for the device's.
fn take_back(records: &[AwayDevice], conf: &Conf, host: &Kernel) -> Result<State, CniError> {
    for record in records {
        let on_host = identity::find_on_host(host, record).map_err(failed)?;
        let Some(link) = on_host else { return Err(device::absent(conf, Some(record))) };
        return_to_host::recover(host, record, &link).and_then(|()| record::remove(record.names())).map_err(failed)?;
    }
    look_at(conf, host, device::find(conf, host)?)
}

fn look_at(conf: &Conf, host: &Kernel, found: Option<Link>) -> Result<State, CniError> {
    let link = found.ok_or_else(|| device::absent(conf, None))?;
    if link.loopback {
        return Err(invalid(format_args!("link {} is the loopback link, which no container can have", link.name)));
    }
    let before = Before::read(host, &link).map_err(failed)?;
    let uses = device::uses(host, &before).map_err(failed)?;
    if !uses.is_empty() && conf.refuse_in_use {
        let loses = uses.join(", ");
        let msg = format!("cannot move device {}: the node uses it, and refuseInUse is set", link.name);
        return Err(CniError::new(Code::EXISTS, msg).detail(format!("The node would lose {loses}.")));
    }
    let master = before.link.master.map(|index| link::find_index(host, index)).transpose().map_err(failed)?.flatten();
    Ok(State { before: Some(before), master, loses: uses, ..State::default() })
}

/// The record of the device that the config selects by name, if a container has it.
pub fn holder(conf: &Conf) -> Result<Option<AwayDevice>, OpError> {
    let selector = conf.selector();
    let is_selected = |record: &AwayDevice| match &selector {
        Selector::Name(name) => record.device.has_name(name.as_str()),
        Selector::Mac(mac) => record.device.mac == Some(mac.to_string()),
        Selector::Pci(id) => record.device.parent.as_deref() == Some(&*format!("pci/{id}")),
        Selector::Auxiliary(id) => record.device.parent.as_deref() == Some(&*format!("auxiliary/{id}")),
        Selector::KernelPath(_) | Selector::None | Selector::Unknown(_) => false,
    };
    Ok(record::list()?.into_iter().find(is_selected))
}

/// The device becomes the container's interface.
#[derive(Debug)]
pub struct Move {
    pub ifname: String,
    /// The keys that select the device.
    pub conf: Conf,
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "ip link set DEVICE netns CONTAINER name {} alias DEVICE", self.ifname)
    }
}

impl OwnStep for Move {
    type State = State;

    fn turn(&self) -> Turn {
        Turn::BeforeAddresses
    }

    fn name(&self) -> &'static str {
        "move device"
    }

    async fn apply(&self, stage: &mut Stage<'_>, state: &mut State) -> Result<(), CniError> {
        let Sides { host, netns, container } = stage.sides;
        if !state.returned.is_empty() {
            *state = take_back(&state.returned, &self.conf, host)?;
        }
        let before = state.before.as_ref().ok_or_else(|| device::absent(&self.conf, None))?;
        if !state.loses.is_empty() {
            let (device, loses) = (&before.link.name, state.loses.join(", "));
            tracing::warn!(device, loses, "the device leaves the node, which used it");
        }
        let name = LinkName::parse(&self.ifname).map_err(|error| invalid(error.to_string()))?;
        let own = Netns::current()
            .map_err(|error| failed(OpError::state("open", "the host's namespace", error.to_string())))?;
        let mut record = AwayDevice::new(stage.attachment, netns, before, state.master.as_ref()).map_err(failed)?;
        // Both before the move: killed at any moment, the node knows whose the device is.
        stage.txn.push(Undo::Own(Box::new(GoHome(record.clone()))));
        note(&record)?;
        let (from, to) = (Place { netns: &own, kernel: host }, Place { netns, kernel: container });
        // The reference finds the device's own name in the alias.
        let moved = transfer(&before.link, from, to, &name, Some(&before.link.name)).map_err(failed)?;
        record.index = Some(moved.index);
        note(&record)?;
        stage.set_container(moved);
        state.is_moved = true;
        Ok(())
    }

    fn preview(&self, _: &mut Look<'_>, state: &mut State) -> Result<Vec<Shown>, CniError> {
        let mut steps = Vec::new();
        for record in &state.returned {
            let text = format!("give {} its name, settings and addresses back", record.device.name);
            steps.push(Shown::new(text).uncompared());
        }
        let before = state.before.as_ref().map(|before| before.link.name.clone());
        let returned = state.returned.first().map(|record| record.device.name.clone());
        if let Some(device) = before.or(returned) {
            let text = format!("ip link set {device} netns CONTAINER name {} alias {device}", self.ifname);
            steps.push(Shown::new(text));
        }
        if !state.loses.is_empty() {
            let text = format!("the node uses the device, and loses {}", state.loses.join(", "));
            steps.push(Shown::new(text).uncompared());
        }
        Ok(steps)
    }

    fn check(&self, look: &mut Look<'_>, _: &mut State) -> Result<(), CniError> {
        let entry = look.entry;
        let record = record::read(look.attachment).map_err(failed)?;
        let link = look.container()?;
        interface::check::mac(link, entry)?;
        match record.and_then(|record| record.index).filter(|index| *index != link.index) {
            Some(_) => Err(differs(format!("link {}", link.name), "it is not the device that ADD moved")),
            None => Ok(()),
        }
    }
}

/// Writes the record. Where nothing can be written the device has its name in its alias, as the reference has it, and no more.
fn note(record: &AwayDevice) -> Result<(), CniError> {
    match record.write() {
        Err(error) if error.is_unwritable() => {
            let device = &record.device.name;
            tracing::warn!(%error, device, "DEL will find the device by its alias, and not give it all its settings back");
            Ok(())
        }
        written => written.map_err(failed),
    }
}

/// Takes the move back.
#[derive(Debug)]
struct GoHome(AwayDevice);

impl OwnUndo for GoHome {
    fn text(&self) -> String {
        format!("device {} back on the host", self.0.device.name)
    }

    fn run(&self, sides: &Sides) -> Result<(), Left> {
        // With the index, if the move came so far.
        let Self(planned) = self;
        let written = record::list().unwrap_or_default().into_iter().find(|record| record.names() == planned.names());
        let record = written.as_ref().unwrap_or(planned);
        return_to_host::bring(record, Some(&sides.netns))?;
        Ok(record::remove(record.names())?)
    }
}
