//! The steps of a history, each complete in itself, so that any of them can be left out.

use crate::network::{NETWORKS, SLOTS};
use faults::random::Random;

/// The caller of a plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// Our library, by `cnitool`, on our plugins.
    Cnitool,
    /// The test itself, on our plugins, as another runtime does.
    Ours,
    /// The test itself, on the reference's plugins.
    Theirs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum List {
    True,
    Bogus,
    Without(usize),
    /// No namespace, under an ID that no container ever had.
    OnlyBogus,
    Empty,
}

impl List {
    fn random(numbers: &mut Random, slot: usize) -> Self {
        match numbers.below(8) {
            0..=1 => Self::True,
            2..=3 => Self::Bogus,
            4..=5 => Self::Without(slot),
            6 => Self::OnlyBogus,
            _ => Self::Empty,
        }
    }

    pub(crate) fn omits(self, slot: usize) -> bool {
        match self {
            Self::True | Self::Bogus => false,
            Self::Without(other) => other == slot,
            Self::OnlyBogus | Self::Empty => true,
        }
    }

    pub(crate) fn has_bogus(self) -> bool {
        matches!(self, Self::Bogus | Self::OnlyBogus)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Collector {
    Plugins(List),
    Cnitool,
    Doctor,
}

/// The parts of an attachment's name in a DEL that addresses no attachment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stranger {
    Container,
    /// Another network, with the ID and the namespace of a pod.
    Network,
}

/// A step. A slot is a place for a pod of a network; what a step does to it depends on what is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// ADD into a new namespace; where a pod lives, ADD again into its own one, which has to be refused.
    Add(usize, By),
    /// ADD of the living pod's container and interface into another namespace, which has to be refused.
    AddElsewhere(usize, By),
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
    /// DEL of an attachment that never was, in the namespace of each pod of a network.
    DelStranger(usize, By, Stranger),
    /// A virtual machine in the pod's namespace gets its addresses; the namespace has none any more.
    Machine(usize),
    /// ADD of another container for the host port of the slot's pod, then its DEL.
    Contend(usize, By),
    /// `cnitool ipam release` of the living pod's addresses, which has to be refused.
    Release(usize),
    /// ADD between a look at the node and the GC that knows only what was seen then.
    AddAfterLook(usize, By),
    Collect(usize, Collector),
    /// GC of the address plugin alone, with such a list: all who live keep their addresses.
    CollectAddresses(usize, List),
    /// The network's key `rules` is `shared` from now on, or absent; its pods stay.
    Rules(usize, bool),
}

impl Step {
    pub(crate) fn random(numbers: &mut Random, networks: &[usize], has_reference: bool) -> Self {
        let slot = *numbers.pick(networks) + NETWORKS * numbers.below(SLOTS);
        let network = slot % NETWORKS;
        let anyone = |numbers: &mut Random| match numbers.below(if has_reference { 3 } else { 2 }) {
            0 => By::Cnitool,
            1 => By::Ours,
            _ => By::Theirs,
        };
        let us = |numbers: &mut Random| if numbers.one_in(2) { By::Cnitool } else { By::Ours };
        let point = |numbers: &mut Random| u16::try_from(1 + numbers.below(60)).unwrap_or(1);
        match numbers.below(40) {
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
                Self::DelStranger(network, us(numbers), stranger)
            }
            24..=25 => Self::Collect(network, Collector::Cnitool),
            26 => Self::Collect(network, Collector::Doctor),
            27..=28 => {
                let collector = if numbers.one_in(3) { Collector::Doctor } else { Collector::Cnitool };
                Self::AddBeside(slot, us(numbers), collector)
            }
            29..=31 => Self::Collect(network, Collector::Plugins(List::random(numbers, slot))),
            32..=33 => Self::Machine(slot),
            34..=35 => Self::Contend(slot, us(numbers)),
            36 => Self::Release(slot),
            37..=38 => Self::AddAfterLook(slot, anyone(numbers)),
            _ => Self::CollectAddresses(network, List::random(numbers, slot)),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct History {
    pub(crate) steps: Vec<Step>,
}

impl History {
    /// The history of a seed: of one network, or of all at once.
    pub(crate) fn of_seed(seed: u64, length: usize, has_reference: bool) -> Self {
        let mut numbers = Random::from_seed(seed);
        let all: Vec<usize> = (0..NETWORKS).collect();
        let one = [numbers.below(NETWORKS)];
        let networks = if numbers.one_in(3) { all.as_slice() } else { &one };
        let mut forms = Random::from_seed(seed ^ 1 << 40);
        let mut step = |at: usize| match (Step::random(&mut numbers, networks, has_reference), networks.get(at)) {
            (_, Some(network)) => Step::Rules(*network, forms.one_in(2)),
            (step, None) if forms.one_in(8) => Step::Rules(step.network(), forms.one_in(2)),
            (step, None) => step,
        };
        Self { steps: (0..length).map(&mut step).collect() }
    }
}

impl Step {
    pub(crate) fn network(self) -> usize {
        match self {
            Self::Add(slot, _)
            | Self::AddElsewhere(slot, _)
            | Self::AddTwice(slot, _)
            | Self::AddBeside(slot, _, _)
            | Self::KilledAdd(slot, _)
            | Self::KilledRuntime(slot, _)
            | Self::Rename(slot)
            | Self::Del(slot, _)
            | Self::KilledDel(slot, _)
            | Self::Die(slot)
            | Self::DelStranger(slot, _, _)
            | Self::Machine(slot)
            | Self::Contend(slot, _)
            | Self::Release(slot)
            | Self::AddAfterLook(slot, _)
            | Self::Collect(slot, _)
            | Self::CollectAddresses(slot, _)
            | Self::Rules(slot, _) => slot % NETWORKS,
        }
    }
}

impl History {
    pub(crate) fn only(&self, steps: &[usize]) -> Self {
        Self { steps: steps.iter().filter_map(|at| self.steps.get(*at)).copied().collect() }
    }

    pub(crate) fn networks(&self) -> Vec<usize> {
        let mut networks: Vec<_> = self.steps.iter().map(|step| step.network()).collect();
        networks.sort_unstable();
        networks.dedup();
        networks
    }
}
