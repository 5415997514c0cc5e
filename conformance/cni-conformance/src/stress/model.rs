//! Stress: what a node goes through in months, in minutes.
//!
//! Random operations on some containers, calls that are killed, namespaces that vanish, reboots; beside them a model
//! that knows who should have what. An address is no other container's while its owner lives, CHECK says what the model says,
//! and whenever all containers have been removed, nothing of them is left.

use crate::profile::Stage;
use crate::rules::prelude::*;
use crate::stress::operations::{Operations, within};
use crate::{addresses, spec_version};
use serde::Serialize;
use std::fs;
use std::path::Path;
use std::time::Duration;
use testns::trace::Fate;
use testns::{Namespace, Random};

pub(super) const CASES: &[Code] = &[
    ("model.random-operations/250-steps", |testbed| walk(testbed, 250)),
    ("model.random-operations/10000-steps", |testbed| walk(testbed, 10_000)),
];

/// Tried only if it is asked for by name: it takes minutes.
pub(super) const LONG: &str = "10000-steps";

/// The numbers of containers of a node, and of addresses in the pool.
const CONTAINERS: usize = 5;
const ADDRESSES: u32 = 5;
/// After so many steps, on average, everything is removed and looked at.
const LOOK_EVERY: usize = 25;

/// The longest time that the kernel may take to end a namespace.
const PATIENCE: Duration = Duration::from_secs(10);

/// The state that a container should be in.
enum State {
    Absent,
    /// The result of ADD.
    Attached(Value),
    /// A killed ADD or DEL: anything. DEL has to come next.
    Unknown,
}

impl State {
    fn result(&self) -> Option<&Value> {
        match self {
            Self::Attached(result) => Some(result),
            Self::Absent | Self::Unknown => None,
        }
    }
}

struct Member {
    pod: Container,
    state: State,
    is_alive: bool,
}

#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Step {
    Add(usize),
    Del(usize),
    Check(usize),
    Gc,
    KilledAdd(usize, usize),
    KilledDel(usize, usize),
    Vanish(usize),
    Reboot,
    Look,
}

struct Model<'a> {
    operations: Operations<'a>,
    members: Vec<Member>,
    /// Steps since nothing was there.
    trail: Vec<Step>,
    taken: usize,
    has_gc: bool,
    can_vanish: bool,
    hands_out: bool,
}

fn walk(testbed: &Testbed, steps: usize) -> Result<(), Stop> {
    let mut model = Model::new(testbed)?;
    let mut random = testbed.random();
    for _ in 0..steps {
        let step = model.draw(&mut random);
        model.walk(step).map_err(|stop| model.explained(stop))?;
    }
    model.walk(Step::Look).map_err(|stop| model.explained(stop))
}

impl<'a> Model<'a> {
    fn new(testbed: &'a Testbed) -> Result<Self, Stop> {
        let mut operations = Operations::with_pool(testbed, ADDRESSES);
        operations.warm_up()?;
        let hands_out = (0..testbed.plugin_count())
            .any(|index| addresses::hands_out(&testbed.profile.config(index, &testbed.version, 0)));
        let mut model = Self {
            operations,
            members: Vec::new(),
            trail: Vec::new(),
            taken: 0,
            has_gc: spec_version::is_from(&testbed.version, "1.1.0"),
            // The kit lays its parts of a container's namespace once, not again.
            can_vanish: !testbed.profile.stage.iter().any(|part| part.lays_in_containers()),
            hands_out,
        };
        for _ in 0..CONTAINERS {
            let member = model.new_member()?;
            model.members.push(member);
        }
        testbed.remember();
        Ok(model)
    }
}

impl Model<'_> {
    fn new_member(&self) -> Result<Member, Stop> {
        Ok(Member { pod: self.operations.used_pod()?, state: State::Absent, is_alive: true })
    }

    fn draw(&self, random: &mut Random) -> Step {
        let who = random.below(self.members.len());
        let point = 1 + random.below(80);
        if random.once_in(LOOK_EVERY) {
            return Step::Look;
        }
        if self.can_vanish && random.once_in(60) {
            return Step::Reboot;
        }
        let Some(member) = self.members.get(who) else {
            return Step::Look;
        };
        match (&member.state, random.below(10)) {
            (_, 0) if self.has_gc => Step::Gc,
            (_, 1) if self.can_vanish && member.is_alive => Step::Vanish(who),
            (State::Absent, 2 | 3) if member.is_alive => Step::KilledAdd(who, point),
            (State::Absent, 4..) if member.is_alive => Step::Add(who),
            (State::Attached(_), 2) => Step::KilledDel(who, point),
            (State::Attached(_), 3..7) if member.is_alive => Step::Check(who),
            _ => Step::Del(who),
        }
    }

    fn walk(&mut self, step: Step) -> Result<(), Stop> {
        self.operations.testbed.forget_calls();
        self.taken += 1;
        self.trail.push(step);
        self.take(step)?;
        if matches!(step, Step::Look) {
            self.trail.clear();
        }
        Ok(())
    }

    fn take(&mut self, step: Step) -> Result<(), Stop> {
        match step {
            Step::Add(who) => self.add(who),
            Step::Del(who) => self.del(who),
            Step::Check(who) => self.check(who),
            Step::Gc => self.gc(),
            Step::KilledAdd(who, point) => self.killed_add(who, point),
            Step::KilledDel(who, point) => self.killed_del(who, point),
            Step::Vanish(who) => {
                self.vanish(who);
                Ok(())
            }
            Step::Reboot => self.reboot(),
            Step::Look => self.look(),
        }
    }

    fn attachment(&self, who: usize) -> Attachment {
        self.members[who].pod.attachment()
    }

    fn add(&mut self, who: usize) -> Result<(), Stop> {
        let result = self.operations.testbed.add(&self.members[who].pod)?;
        if self.hands_out {
            self.is_not_taken(&result)?;
        }
        self.members[who].state = State::Attached(result);
        self.check(who)
    }

    fn is_not_taken(&self, result: &Value) -> Result<(), Stop> {
        let new = addresses::addresses(result);
        for Member { pod, state, .. } in &self.members {
            if let Some(other) = state.result()
                && let Some(address) = addresses::addresses(other).iter().find(|address| new.contains(address))
            {
                return Err(Finding::new("an address that no other has", format!("{} has {address}", pod.id())).into());
            }
        }
        Ok(())
    }

    fn del(&mut self, who: usize) -> Result<(), Stop> {
        self.remove(who)?;
        self.renew(who)
    }

    fn remove(&mut self, who: usize) -> Result<(), Stop> {
        self.operations.testbed.del(self.attachment(who), self.members[who].state.result())?;
        self.members[who].state = State::Absent;
        Ok(())
    }

    /// A container whose namespace vanished is no more once it is removed; another one takes its place.
    fn renew(&mut self, who: usize) -> Result<(), Stop> {
        if self.members[who].is_alive {
            return Ok(());
        }
        // The pool has one address for each.
        self.members[who] = self.new_member()?;
        Ok(())
    }

    fn check(&self, who: usize) -> Result<(), Stop> {
        let result = self.members[who].state.result();
        result.map_or(Ok(()), |result| self.operations.check(&self.attachment(who), result))
    }

    fn gc(&mut self) -> Result<(), Stop> {
        // Changes by a plugin in a namespace that the kit laid out may be left to DEL by GC: that of a killed call
        // comes first then.
        let waits = |member: &Member| !self.can_vanish && matches!(member.state, State::Unknown);
        let is_valid = |member: &&Member| member.state.result().is_some() || waits(member);
        let valid: Vec<_> = self.members.iter().filter(is_valid).map(|member| member.pod.attachment()).collect();
        for call in self.operations.testbed.gc_calls(&valid) {
            self.operations.testbed.make(&call)?.succeeds()?;
        }
        (0..self.members.len()).filter(|who| self.members[*who].is_alive).try_for_each(|who| self.check(who))
    }

    fn killed_add(&mut self, who: usize, point: usize) -> Result<(), Stop> {
        let attachment = self.attachment(who);
        let last = self.operations.testbed.plugin_count() - 1;
        let before = self.operations.testbed.add_until(last, &attachment)?;
        let call = self.operations.call(last, Verb::Add, &attachment, before.as_ref());
        self.operations.disturb(&call, Some((point, Fate::Kill)))?;
        self.members[who].state = State::Unknown;
        Ok(())
    }

    fn killed_del(&mut self, who: usize, point: usize) -> Result<(), Stop> {
        let attachment = self.attachment(who);
        let last = self.operations.testbed.plugin_count() - 1;
        let call = self.operations.call(last, Verb::Del, &attachment, self.members[who].state.result());
        self.operations.disturb(&call, Some((point, Fate::Kill)))?;
        self.members[who].state = State::Unknown;
        Ok(())
    }

    fn vanish(&mut self, who: usize) {
        self.members[who].pod.leave(Remains::Gone);
        self.members[who].is_alive = false;
    }

    /// Namespaces, links, rules and `/run` are gone; what is on the disk is there. The runtime removes what it knows of.
    fn reboot(&mut self) -> Result<(), Stop> {
        for who in 0..self.members.len() {
            if self.members[who].is_alive {
                self.vanish(who);
            }
        }
        let testbed = self.operations.testbed;
        clear(testbed);
        empty("/run");
        for who in 0..self.members.len() {
            let attachment = self.attachment(who);
            self.operations.testbed.del(&attachment, None).map_err(|stop| within(stop, "of DEL after a reboot"))?;
            self.members[who].state = State::Absent;
        }
        for who in 0..self.members.len() {
            self.renew(who)?;
        }
        testbed.remember();
        Ok(())
    }

    /// Removes all, and compares the node with what it was.
    fn look(&mut self) -> Result<(), Stop> {
        (0..self.members.len()).try_for_each(|who| self.remove(who))?;
        self.operations.nothing_is_left("the DEL of all containers")?;
        for Member { pod, .. } in self.members.iter().filter(|_| self.hands_out) {
            let named = self.operations.testbed.files_naming(pod);
            let seen = || format!("files name {}: {named:?}", pod.id());
            Finding::unless(named.is_empty(), "no file of a removed container", seen())?;
        }
        for who in 0..self.members.len() {
            self.renew(who)?;
        }
        // New containers are part of what is compared from now on.
        self.operations.testbed.remember();
        Ok(())
    }

    /// The finding with the steps that lead to it from where nothing was there.
    fn explained(&self, stop: Stop) -> Stop {
        let Stop::Fails(mut finding) = stop else {
            return stop;
        };
        let (Self { taken, trail, .. }, seed) = (self, self.operations.testbed.seed);
        let seen = format!("{}; the last steps were, with containers from 0: {}", finding.seen, json!(trail));
        finding.seen = format!("{seen}; found at step {taken} of seed {seed}");
        Stop::Fails(finding)
    }
}

/// Leaves only what the kit has laid: no links of plugins, no filter rules.
fn clear(testbed: &Testbed) {
    let host = testbed.node.host();
    let is_laid = |name: &str| {
        name == "lo"
            || testbed.profile.stage.iter().any(|part| matches!(part, Stage::Cable { name: cable } if cable == name))
    };
    // Links with an end in a namespace that vanished go with it, when the kernel gets round to it.
    let is_left =
        |namespace: &Namespace| namespace.links().iter().any(|link| link.kind == "veth" && !is_laid(&link.name));
    host.wait_within(PATIENCE, |namespace| !is_left(namespace));
    for link in host.links().iter().map(|link| link.name.clone()).filter(|name| !is_laid(name)) {
        if host.find_link(&link).is_some() {
            host.delete_link(&link); // unless it went with another one
        }
    }
    host.flush_nft();
}

/// Removes what is in a folder, but for what the kit has in `/run`.
fn empty(folder: &str) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if [Path::new("/run/netns"), Path::new("/run/testns")].contains(&path.as_path()) {
            continue;
        }
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let removed = if is_folder { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.unwrap_or_else(|error| panic!("cannot remove {}: {error}", path.display()));
    }
}
