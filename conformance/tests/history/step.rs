//! What a history consists of: steps, each complete in itself, so that any of them can be left out.

use crate::lane::{LANES, SLOTS};
use crate::numbers::Numbers;

/// Who makes a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// Our library, by `cnitool`, on our plugins.
    Cnitool,
    /// The test itself, on our plugins, as another runtime does.
    Ours,
    /// The test itself, on the reference's plugins.
    Theirs,
}

/// Which living attachments of a lane are in GC's list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum List {
    /// All of them.
    True,
    /// All of them, and one that never was.
    Bogus,
    /// All but those of one slot.
    Without(usize),
    /// None, and one that never was.
    OnlyBogus,
    /// None.
    Empty,
}

/// A call of GC or of what calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Collector {
    /// Each plugin of the lane, with this list.
    Plugins(List),
    /// `cnitool gc`.
    Cnitool,
    /// `cnitool doctor --fix`.
    Doctor,
}

/// The parts of an attachment's name in a DEL that addresses no attachment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stranger {
    /// Another container ID, in the namespace of the slot's pod.
    Container,
    /// Another network, with the ID and the namespace of the slot's pod.
    Network,
}

/// One step. A slot is a place for a pod of a lane; what a step does to it depends on what is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// ADD into a new namespace; where a pod lives, ADD again into its own one, which has to be refused.
    Add(usize, By),
    /// ADD of the living pod's container and interface into another namespace, which has to be refused.
    AddElsewhere(usize, By),
    /// Two ADDs of one attachment at once.
    AddTwice(usize, By),
    /// ADD beside `cnitool gc` or `doctor --fix`, which our library's lock does not keep apart where another runtime adds.
    AddBeside(usize, By, Collector),
    /// ADD, killed before its `n`th state-changing system call, then DEL.
    KilledAdd(usize, u16),
    /// `cnitool add`, killed after this time, in microseconds, then `cnitool del`. The plugin is not killed.
    KilledRuntime(usize, u32),
    /// The pod's administrator renames its interface.
    Rename(usize),
    /// DEL. Where no pod is, DEL again.
    Del(usize, By),
    /// DEL, killed before its `n`th state-changing system call, then DEL again.
    KilledDel(usize, u16),
    /// The namespace ends; DEL comes later, or never.
    Die(usize),
    /// DEL of an attachment that never was.
    DelStranger(usize, By, Stranger),
    /// GC of a lane.
    Collect(usize, Collector),
}

impl Step {
    /// A random one.
    pub(crate) fn random(numbers: &mut Numbers, lanes: &[usize], has_reference: bool) -> Self {
        let slot = *numbers.pick(lanes) + LANES * numbers.below(SLOTS);
        let lane = slot % LANES;
        let anyone = |numbers: &mut Numbers| match numbers.below(if has_reference { 3 } else { 2 }) {
            0 => By::Cnitool,
            1 => By::Ours,
            _ => By::Theirs,
        };
        let us = |numbers: &mut Numbers| if numbers.one_in(2) { By::Cnitool } else { By::Ours };
        let point = |numbers: &mut Numbers| u16::try_from(1 + numbers.below(60)).unwrap_or(1);
        match numbers.below(32) {
            0..=7 => Self::Add(slot, anyone(numbers)),
            8..=9 => Self::AddElsewhere(slot, us(numbers)),
            10..=11 => Self::AddTwice(slot, us(numbers)),
            12 => Self::KilledAdd(slot, point(numbers)),
            13 => Self::KilledRuntime(slot, u32::try_from(500 + numbers.below(60_000)).unwrap_or(0)),
            14 => Self::Rename(slot),
            15..=18 => Self::Del(slot, anyone(numbers)),
            19 => Self::KilledDel(slot, point(numbers)),
            20..=21 => Self::Die(slot),
            22..=23 => {
                let stranger = if numbers.one_in(2) { Stranger::Container } else { Stranger::Network };
                Self::DelStranger(slot, us(numbers), stranger)
            }
            24..=25 => Self::Collect(lane, Collector::Cnitool),
            26 => Self::Collect(lane, Collector::Doctor),
            27..=28 => {
                let collector = if numbers.one_in(3) { Collector::Doctor } else { Collector::Cnitool };
                Self::AddBeside(slot, us(numbers), collector)
            }
            _ => {
                let list = match numbers.below(8) {
                    0..=1 => List::True,
                    2..=3 => List::Bogus,
                    4..=5 => List::Without(slot),
                    6 => List::OnlyBogus,
                    _ => List::Empty,
                };
                Self::Collect(lane, Collector::Plugins(list))
            }
        }
    }
}

/// A history: the lanes with an anchor, and the steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct History {
    pub(crate) steps: Vec<Step>,
}

impl History {
    /// The history of a seed: of one lane, or of all at once.
    pub(crate) fn of_seed(seed: u64, length: usize, has_reference: bool) -> Self {
        let mut numbers = Numbers::from_seed(seed);
        let all: Vec<usize> = (0..LANES).collect();
        let one = [numbers.below(LANES)];
        let lanes = if numbers.one_in(3) { all.as_slice() } else { &one };
        Self { steps: (0..length).map(|_| Step::random(&mut numbers, lanes, has_reference)).collect() }
    }
}
