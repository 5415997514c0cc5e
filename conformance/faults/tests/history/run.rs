//! A history on a fresh node: its steps are made, and after each one the rules are checked.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde_json::Value;
use testns::{Attachment, Container, Namespace, Node, Remains, Subject, Verb};

use crate::calls::{self, Target};
use crate::network::{self, NETWORKS, Network, OUTSIDE, SLOTS};
use crate::pod::PodInSlot;
use crate::rules;
use crate::step::{By, Collector, History, Step, Stranger};
use crate::traffic::{self, Source, Traffic};

/// The pod of each network with which the others exchange packets: a slot that no step addresses.
pub(crate) const fn anchor(network: usize) -> usize {
    network + NETWORKS * SLOTS
}

/// How often two ADDs at once are tried in a step: they meet at another moment each time.
const ROUNDS: usize = 4;

/// A rule that was broken.
#[derive(Debug, Clone)]
pub(crate) struct Fault {
    /// The step, from 0; the number of steps for what is left at the end.
    pub(crate) at: usize,
    pub(crate) words: String,
}

#[derive(Debug)]
pub(crate) enum SlotState {
    /// DEL was the last call, and succeeded.
    Free,
    /// ADD succeeded, and no call has addressed the attachment since.
    Living(PodInSlot),
    /// GC had a list without it; DEL follows.
    Omitted(PodInSlot),
    /// The namespace ended without DEL; the maker, and the result, which a runtime has in its cache.
    Dead(By, Value),
}

pub(crate) struct Run<'a> {
    pub(crate) node: &'a Node,
    pub(crate) traffic: Traffic,
    places: BTreeMap<usize, SlotState>,
}

pub(crate) type Outcome = Result<(), String>;

pub(crate) fn run(history: &History, has_reference: bool) -> Result<(), Fault> {
    let history = history.clone();
    // A node is for one thread, and the namespaces end with it.
    std::thread::spawn(move || on_fresh_node(&history, has_reference)).join().unwrap_or_else(|panic| {
        let words = panic.downcast::<String>().map_or_else(|_| "a panic".to_owned(), |words| *words);
        Err(Fault { at: usize::MAX, words })
    })
}

fn on_fresh_node(history: &History, has_reference: bool) -> Result<(), Fault> {
    let node = Node::with(&Subject::ours());
    let outside = network::prepare(&node);
    let networks = history.networks();
    let end = history.steps.len();
    let fault = |at, words| Fault { at, words };
    warm_up(&node, &networks, has_reference).map_err(|words| fault(0, words))?;
    node.remember();
    let mut run = Run { node: &node, traffic: Traffic::start(&outside), places: BTreeMap::new() };
    for network in &networks {
        run.answer_outside(&outside, *network);
        run.attach(anchor(*network), By::Ours).map_err(|words| fault(0, words))?;
    }
    for (at, step) in history.steps.iter().enumerate() {
        run.make(*step).and_then(|()| run.check(step.network())).map_err(|words| fault(at, words))?;
    }
    run.end(&networks).map_err(|words| fault(end, words))
}

/// Objects that pods of a network share are made by the first one, and stay.
fn warm_up(node: &Node, networks: &[usize], has_reference: bool) -> Outcome {
    let makers = if has_reference { &[By::Theirs, By::Ours][..] } else { &[By::Ours] };
    for network in networks {
        for (by, is_shared) in makers.iter().map(|by| (by, false)).chain([(&By::Ours, true)]) {
            Network(*network).configure(is_shared);
            let container = node.container_without_probes();
            let attachment = network::attachment(*network, &container.attachment().netns);
            let target = Target { node, slot: *network, other_network: None, attachment };
            let result = target.add(*by)?;
            target.del(*by, Some(&result))?;
            container.leave(Remains::Gone);
        }
        Network(*network).configure(false);
    }
    node.settle(Duration::from_secs(60));
    Ok(())
}

impl<'a> Run<'a> {
    fn answer_outside(&self, outside: &Namespace, network: usize) {
        let port = outside_port(network);
        self.traffic.serve(anchor(network), traffic::open(outside, (Network(network).outside(), port).into()).unwrap());
    }

    pub(crate) fn target(&self, slot: usize, container: &Container) -> Target<'a> {
        let attachment = network::attachment(slot, &container.attachment().netns);
        Target { node: self.node, slot, other_network: None, attachment }
    }

    /// As [`Run::target`], when the namespace is gone.
    fn without_namespace(&self, slot: usize, by: By) -> Target<'a> {
        let netns = if by == By::Cnitool { "/run/netns/gone" } else { "" };
        Target { node: self.node, slot, other_network: None, attachment: network::attachment(slot, netns) }
    }

    pub(crate) fn place(&mut self, slot: usize) -> &mut SlotState {
        self.places.entry(slot).or_insert(SlotState::Free)
    }

    pub(crate) fn take(&mut self, slot: usize) -> SlotState {
        std::mem::replace(self.place(slot), SlotState::Free)
    }

    pub(crate) fn living(&self) -> impl Iterator<Item = (usize, &PodInSlot)> {
        self.places.iter().filter_map(|(slot, place)| match place {
            SlotState::Living(pod) => Some((*slot, pod)),
            SlotState::Free | SlotState::Omitted(_) | SlotState::Dead(..) => None,
        })
    }

    /// Returns the pods that may have an address on a link.
    pub(crate) fn present(&self) -> impl Iterator<Item = (usize, &PodInSlot)> {
        self.living().chain(self.omitted())
    }

    pub(crate) fn omitted(&self) -> impl Iterator<Item = (usize, &PodInSlot)> {
        self.places.iter().filter_map(|(slot, place)| match place {
            SlotState::Omitted(pod) => Some((*slot, pod)),
            SlotState::Free | SlotState::Living(_) | SlotState::Dead(..) => None,
        })
    }

    fn make(&mut self, step: Step) -> Outcome {
        match step {
            Step::Add(slot, by) => match self.ready(slot)? {
                true => self.refused(slot, by, false),
                false => self.attach(slot, by),
            },
            Step::AddElsewhere(slot, by) => match self.ready(slot)? {
                true => self.refused(slot, by, true),
                false => Ok(()),
            },
            Step::AddTwice(slot, by) => match self.ready(slot)? {
                true => self.refused(slot, by, false),
                false => self.bury(slot, &[By::Theirs]).and_then(|()| self.attach_twice(slot, by)),
            },
            Step::AddBeside(slot, by, collector) => match self.ready(slot)? {
                true => self.collect(slot % NETWORKS, collector),
                false => self.attach_beside(slot, by, collector),
            },
            Step::KilledAdd(slot, n) => match self.ready(slot)? {
                true => Ok(()),
                false => self.killed(slot, |target| target.killed(Verb::Add, n.into()), By::Ours),
            },
            Step::KilledRuntime(slot, microseconds) => match self.ready(slot)? {
                true => Ok(()),
                false => {
                    let time = Duration::from_micros(microseconds.into());
                    self.killed(slot, |target| target.killed_runtime(time), By::Cnitool)
                }
            },
            Step::Rename(slot) => self.rename(slot),
            Step::Del(slot, by) => self.del(slot, by, None),
            Step::KilledDel(slot, n) => self.del(slot, By::Ours, Some(n)),
            Step::Die(slot) => self.die(slot),
            Step::DelStranger(network, by, stranger) => self.del_stranger(network, by, stranger),
            Step::Machine(slot) => self.hand_over(slot),
            Step::Contend(slot, by) => self.contend(slot, by),
            Step::Release(slot) => self.release(slot),
            Step::AddAfterLook(slot, by) => match self.ready(slot)? {
                true => Ok(()),
                false => self.attach_after_look(slot, by),
            },
            Step::Collect(network, collector) => self.collect(network, collector),
            Step::CollectAddresses(network, list) => self.collect_addresses(network, list),
            Step::Rules(network, is_shared) => {
                Network(network).configure(is_shared);
                Ok(())
            }
        }
    }

    /// The slot if a pod lives there, else the anchor, for steps that address no attachment.
    pub(crate) fn living_or_anchor(&mut self, slot: usize) -> usize {
        if matches!(self.place(slot), SlotState::Living(_)) { slot } else { anchor(slot % NETWORKS) }
    }

    /// Makes a slot one that is free or has a living pod; whether it has.
    fn ready(&mut self, slot: usize) -> Result<bool, String> {
        if matches!(self.place(slot), SlotState::Omitted(_)) {
            self.del(slot, By::Ours, None)?;
        }
        Ok(matches!(self.place(slot), SlotState::Living(_)))
    }

    fn attach(&mut self, slot: usize, by: By) -> Outcome {
        // host-local refuses the ID of a container that ended without DEL. Our library makes up for it where ADD was its own.
        self.bury(
            slot,
            if by == By::Cnitool { &[By::Ours, By::Theirs] } else { &[By::Cnitool, By::Ours, By::Theirs] },
        )?;
        let container = self.node.container_without_probes();
        let result = self.target(slot, &container).add(by)?;
        self.admit(slot, PodInSlot::new(container, result, by))
    }

    /// DEL of a container that ended without it, of these makers. After GC has freed its address, only the result leads to the rules of the reference's firewall.
    fn bury(&mut self, slot: usize, makers: &[By]) -> Outcome {
        match self.place(slot) {
            SlotState::Dead(maker, _) if makers.contains(maker) => self.del(slot, By::Ours, None),
            _ => Ok(()),
        }
    }

    /// A pod is there: no other has its addresses, and it exchanges packets from now on.
    pub(crate) fn admit(&mut self, slot: usize, mut pod: PodInSlot) -> Outcome {
        pod.has_shared_rules |= pod.by != By::Theirs && Network::of(slot).is_shared();
        rules::addresses_are_no_others(slot, &pod, self.present())?;
        let anchor_addresses = match self.places.get(&anchor(slot % NETWORKS)) {
            Some(SlotState::Living(anchor)) => rules::addresses(&anchor.result),
            Some(SlotState::Free | SlotState::Omitted(_) | SlotState::Dead(..)) | None => Vec::new(),
        };
        self.begin_flows(slot, &pod, &anchor_addresses).map_err(|error| format!("no socket for a new pod: {error}"))?;
        self.places.insert(slot, SlotState::Living(pod));
        self.traffic.wait_for_first();
        Ok(())
    }

    fn begin_flows(&self, slot: usize, pod: &PodInSlot, anchor: &[IpAddr]) -> std::io::Result<()> {
        let (network, inside) = (Network::of(slot), pod.holder());
        let lasting = |from: IpAddr, to: SocketAddr| {
            let socket = traffic::open(inside, (from, 0).into())?;
            socket.connect(to).map(|()| socket)
        };
        let own = rules::addresses(&pod.result);
        for (own, port) in [(own.iter().find(|ip| ip.is_ipv4()), 7), (own.iter().find(|ip| ip.is_ipv6()), 8)] {
            let Some(own) = own else { continue };
            self.traffic.serve(slot, traffic::open(inside, (*own, port).into())?);
            if let Some(ip) = anchor.iter().find(|ip| ip.is_ipv4() == own.is_ipv4()) {
                let name = if own.is_ipv4() { "between pods" } else { "between pods (IPv6)" };
                let to = SocketAddr::new(*ip, port);
                self.traffic.begin(slot, name, Source::Lasting(lasting(*own, to)?), to);
            }
            if own.is_ipv4() {
                let to = SocketAddr::new(network.outside(), outside_port(network.0));
                self.traffic.begin(slot, "to another machine", Source::Lasting(lasting(*own, to)?), to);
            }
        }
        if network.is_routed() {
            let to = SocketAddr::new(network::NODE.parse().unwrap(), network::host_port(slot));
            self.traffic.begin(slot, "to the host port", Source::Fresh, to);
        }
        Ok(())
    }

    fn refused(&mut self, slot: usize, by: By, is_elsewhere: bool) -> Outcome {
        let SlotState::Living(pod) = self.place(slot) else { return Ok(()) };
        // Refusals of the reference are not tested, and one runtime's container IDs are not another's.
        let by = if by == By::Cnitool && pod.by == By::Cnitool { by } else { By::Ours };
        let own = pod.container.clone();
        let container = if is_elsewhere { self.node.container_without_probes() } else { own };
        let outcome = self.target(slot, &container).add(by);
        if is_elsewhere {
            container.leave(Remains::Gone);
        }
        match outcome {
            Ok(_) => Err("ADD of an attachment that lives succeeds".to_owned()),
            Err(_) => Ok(()),
        }
    }

    /// Two ADDs of one attachment: not both succeed, and the one that does has all that ADD promises.
    fn attach_twice(&mut self, slot: usize, by: By) -> Outcome {
        let container = self.node.container_without_probes();
        let target = self.target(slot, &container);
        for _ in 1..ROUNDS {
            let result = only_success(target.add_twice(by), by)?;
            if let Some(result) = &result {
                target.check(result).map_err(|words| format!("two ADDs at once: {words}"))?;
                rules::are_reserved(slot, result)?;
            }
            target.del(by, result.as_ref())?;
        }
        match only_success(target.add_twice(by), by)? {
            Some(result) => self.admit(slot, PodInSlot::new(container, result, by)),
            None => self.clean(slot, &container, by, None),
        }
    }

    /// ADD while GC is at work, which must take nothing from it.
    fn attach_beside(&mut self, slot: usize, by: By, collector: Collector) -> Outcome {
        self.del(slot, By::Ours, None)?;
        let container = self.node.container_without_probes();
        let target = self.target(slot, &container);
        let words: &[&str] =
            if collector == Collector::Doctor { &["doctor", "--fix"] } else { &["gc", Network::of(slot).name()] };
        let added = std::thread::scope(|scope| {
            let adding = scope.spawn(|| target.add(by));
            drop(calls::cnitool(self.node, words));
            adding.join().expect("an outcome")
        });
        self.admit(slot, PodInSlot::new(container, added?, by))
    }

    /// A call that is cut off, and the DEL that follows.
    fn killed(&mut self, slot: usize, call: impl FnOnce(&Target<'_>), by: By) -> Outcome {
        self.bury(slot, &[By::Theirs])?;
        let container = self.node.container_without_probes();
        call(&self.target(slot, &container));
        self.clean(slot, &container, by, None)
    }

    fn clean(&mut self, slot: usize, container: &Container, by: By, result: Option<&Value>) -> Outcome {
        self.target(slot, container).del(by, result)?;
        container.leave(Remains::Gone);
        *self.place(slot) = SlotState::Free;
        rules::nothing_is_reserved(slot)
    }

    fn rename(&mut self, slot: usize) -> Outcome {
        let SlotState::Living(pod) = self.place(slot) else { return Ok(()) };
        if pod.is_changed() {
            return Ok(());
        }
        let name = pod.container.id().to_owned();
        // While it is up, so that no route is lost; kernels before 6.2 refuse that.
        let command = ["-n", &name, "link", "set", "eth0", "name", "net7"];
        let status =
            std::process::Command::new("/usr/bin/ip").args(command).stderr(std::process::Stdio::null()).status();
        pod.is_renamed |= status.is_ok_and(|status| status.success());
        Ok(())
    }

    pub(crate) fn del(&mut self, slot: usize, by: By, killed: Option<u16>) -> Outcome {
        // The reference finds what it removes only by the namespace and the name.
        let own = if by == By::Theirs { By::Ours } else { by };
        self.traffic.close(slot);
        match self.take(slot) {
            SlotState::Free => self.without_namespace(slot, own).del(own, None)?,
            SlotState::Dead(By::Cnitool, _) => self.without_namespace(slot, By::Cnitool).del(By::Cnitool, None)?,
            SlotState::Dead(_, result) => self.without_namespace(slot, By::Ours).del(By::Ours, Some(&result))?,
            SlotState::Omitted(pod) => {
                self.target(slot, &pod.container).del(By::Ours, Some(&pod.result))?;
                pod.leave();
            }
            SlotState::Living(pod) => {
                let target = self.target(slot, &pod.container);
                if let Some(n) = killed {
                    target.killed(Verb::Del, n.into());
                }
                let by = match by {
                    // `cnitool` has no result of what the reference made, which bears no mark.
                    By::Cnitool if pod.by == By::Theirs => By::Ours,
                    By::Theirs if pod.is_changed() => By::Ours,
                    by => by,
                };
                let deleted = target.del(by, Some(&pod.result));
                pod.leave();
                // The reference misses the chain of its masquerade at last, and leaves elements.
                match by == By::Theirs && pod.has_shared_rules {
                    true => self.collect(slot % NETWORKS, Collector::Cnitool)?,
                    false => deleted?,
                }
            }
        }
        rules::nothing_is_reserved(slot)
    }

    fn die(&mut self, slot: usize) -> Outcome {
        self.traffic.close(slot);
        match self.take(slot) {
            SlotState::Living(pod) | SlotState::Omitted(pod) => {
                pod.leave();
                *self.place(slot) = SlotState::Dead(pod.by, pod.result);
            }
            other @ (SlotState::Free | SlotState::Dead(..)) => *self.place(slot) = other,
        }
        Ok(())
    }

    fn del_stranger(&self, network: usize, by: By, stranger: Stranger) -> Outcome {
        for (slot, pod) in self.living().filter(|(slot, _)| slot % NETWORKS == network) {
            let mut target = self.target(slot, &pod.container);
            match stranger {
                Stranger::Container => target.attachment.container_id = "stranger".to_owned(),
                Stranger::Network => target.other_network = Some(network::other_network(network)),
            }
            // Neither a rule of the reference's sbr nor its table shows for which attachment it was made.
            let is_in_danger = pod.by == By::Theirs && !Network(network).is_routed();
            // The call may be refused; it changes nothing.
            drop(if is_in_danger { target.del_interface() } else { target.del(by, None) });
        }
        Ok(())
    }

    fn collect(&mut self, network: usize, collector: Collector) -> Outcome {
        let list = match collector {
            Collector::Plugins(list) => list,
            // Both report by their status what they keep.
            Collector::Cnitool => {
                return calls::cnitool(self.node, &["gc", Network(network).name()]).map(drop).or(Ok(()));
            }
            Collector::Doctor => return calls::cnitool(self.node, &["doctor", "--fix"]).map(drop).or(Ok(())),
        };
        let is_omitted = |slot: usize| slot != anchor(network) && list.omits(slot);
        let slots: Vec<_> = self.living().map(|(slot, _)| slot).filter(|slot| slot % NETWORKS == network).collect();
        let (omitted, listed): (Vec<_>, Vec<_>) = slots.into_iter().partition(|slot| is_omitted(*slot));
        for slot in omitted {
            self.traffic.close(slot);
            if let SlotState::Living(pod) = self.take(slot) {
                *self.place(slot) = SlotState::Omitted(pod);
            }
        }
        let mut valid: Vec<Attachment> = listed.iter().map(|slot| network::attachment(*slot, "")).collect();
        valid.extend(list.has_bogus().then(network::bogus));
        calls::collect(self.node, Network(network), &valid, None);
        Ok(())
    }

    pub(crate) fn no_packet_is_lost(&self) -> Outcome {
        match self.traffic.take_losses(2).first() {
            Some(loss) => Err(format!("slot {}: {}", loss.slot, loss.words)),
            None => Ok(()),
        }
    }

    /// The rules that hold after each step.
    fn check(&mut self, network: usize) -> Outcome {
        self.no_packet_is_lost()?;
        for (slot, pod) in self.living() {
            rules::addresses_are_there(slot, pod)?;
            rules::addresses_are_reserved(slot, pod)?;
        }
        for (slot, pod) in self.omitted() {
            rules::addresses_in_use_are_reserved(slot, pod)?;
        }
        for (slot, pod) in self.living().filter(|(slot, pod)| slot % NETWORKS == network && !pod.is_changed()) {
            let checked = self.target(slot, &pod.container).check(&pod.result);
            checked.map_err(|words| format!("slot {slot}, added by {:?}: {words}", pod.by))?;
        }
        Ok(())
    }

    fn end(mut self, networks: &[usize]) -> Outcome {
        let slots: Vec<_> = self.places.keys().copied().collect();
        for slot in slots {
            let by = [By::Cnitool, By::Ours, By::Theirs][slot / NETWORKS % 3];
            let can = by != By::Theirs || testns::find_reference().is_some();
            self.del(slot, if can { by } else { By::Ours }, None)?;
        }
        if let Some(loss) = self.traffic.take_losses(0).first() {
            return Err(format!("slot {}: {}", loss.slot, loss.words));
        }
        let node = self.node;
        drop(self);
        node.settle(Duration::from_secs(60));
        for network in networks {
            // Entries of the cache, of pods whose DEL was another runtime's.
            calls::cnitool(node, &["gc", Network(*network).name()])?;
            Network(*network).configure(false);
        }
        rules::nothing_is_left(node)
    }
}

/// The result of two ADDs of one attachment at once. Both may fail, but for those of our library, which makes them in turn.
fn only_success(outcomes: [Result<Value, String>; 2], by: By) -> Result<Option<Value>, String> {
    match outcomes {
        [Ok(_), Ok(_)] => Err("two ADDs of one attachment both succeed".to_owned()),
        [Ok(result), Err(_)] | [Err(_), Ok(result)] => Ok(Some(result)),
        [Err(one), Err(other)] if by == By::Cnitool => Err(format!("both of two ADDs fail: {one}; {other}")),
        [Err(_), Err(_)] => Ok(None),
    }
}

fn outside_port(network: usize) -> u16 {
    30_000 + u16::try_from(network).unwrap_or_default()
}

impl Network {
    /// An address of the other machine that its pods reach.
    fn outside(self) -> IpAddr {
        match self.is_routed() {
            true => OUTSIDE.parse().unwrap(),
            false => format!("10.66.{}.1", self.0).parse().unwrap(),
        }
    }
}
