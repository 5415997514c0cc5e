//! Packets of all pods, all the time: each is numbered and has to be answered.
//!
//! A thread in the other machine's namespace sends, answers and counts; no process is started for a packet. A flow
//! begins when its first packet is answered: neighbours have to be resolved first. From then on each packet counts, until
//! the flow is closed.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use testns::Namespace;

const PACE: Duration = Duration::from_millis(20);
/// An answer that takes longer is lost, once the thread has looked for it so many times: a busy machine delays the thread.
const LATE: Duration = Duration::from_secs(1);
const LATE_LOOKS: u64 = 40;
/// The first answer takes at most so long.
const FIRST: Duration = Duration::from_secs(8);

#[derive(Debug, Clone)]
pub(crate) struct Loss {
    pub(crate) slot: usize,
    pub(crate) words: String,
}

pub(crate) enum Source {
    /// A single socket, as of a connection that lasts.
    Lasting(UdpSocket),
    /// A new port of the other machine for each packet, as of many clients.
    Fresh,
}

struct Waiting {
    number: u32,
    sent: Instant,
    look: u64,
    fresh: Option<UdpSocket>,
}

struct Flow {
    slot: usize,
    name: &'static str,
    source: Source,
    to: SocketAddr,
    next: u32,
    due: Instant,
    waiting: VecDeque<Waiting>,
    began: Option<Instant>,
    made: Instant,
    is_closing: bool,
}

#[derive(Default)]
struct State {
    flows: Vec<Flow>,
    servers: Vec<(usize, UdpSocket)>,
    losses: Vec<Loss>,
    looks: u64,
    is_over: bool,
}

pub(crate) struct Traffic {
    state: Arc<(Mutex<State>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

pub(crate) fn open(namespace: &Namespace, address: SocketAddr) -> std::io::Result<UdpSocket> {
    let socket = namespace.enter(|| UdpSocket::bind(address))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

impl Traffic {
    pub(crate) fn start(outside: &Namespace) -> Self {
        let state: Arc<(Mutex<State>, Condvar)> = Arc::default();
        let (shared, outside) = (Arc::clone(&state), outside.clone());
        let thread = std::thread::spawn(move || outside.enter(|| exchange(&shared)));
        Self { state, thread: Some(thread) }
    }

    /// Answers with this socket until the slot is closed.
    pub(crate) fn serve(&self, slot: usize, socket: UdpSocket) {
        self.state.0.lock().unwrap().servers.push((slot, socket));
    }

    pub(crate) fn begin(&self, slot: usize, name: &'static str, source: Source, to: SocketAddr) {
        let now = Instant::now();
        let waiting = VecDeque::new();
        let flow =
            Flow { slot, name, source, to, next: 0, due: now, waiting, began: None, made: now, is_closing: false };
        self.state.0.lock().unwrap().flows.push(flow);
    }

    pub(crate) fn wait_for_first(&self) {
        self.wait_until(|state| state.flows.iter().all(|flow| flow.began.is_some()) || !state.losses.is_empty());
    }

    /// Waits for the answers that are due, and ends the slot's flows.
    pub(crate) fn close(&self, slot: usize) {
        let mut state = self.state.0.lock().unwrap();
        state.flows.iter_mut().filter(|flow| flow.slot == slot).for_each(|flow| flow.is_closing = true);
        drop(state);
        self.wait_until(|state| state.flows.iter().all(|flow| flow.slot != slot));
        self.state.0.lock().unwrap().servers.retain(|(of, _)| *of != slot);
    }

    /// Waits until each flow has sent some more packets, whose answers are due, and takes what was lost until then.
    pub(crate) fn take_losses(&self, packets: u32) -> Vec<Loss> {
        let goals: Vec<_> = {
            let state = self.state.0.lock().unwrap();
            state.flows.iter().map(|flow| (flow.slot, flow.name, flow.next + packets)).collect()
        };
        self.wait_until(|state| {
            let is_through = |flow: &Flow, goal: u32| {
                flow.next >= goal && flow.waiting.front().is_none_or(|first| first.number >= goal)
            };
            !state.losses.is_empty()
                || goals.iter().all(|(slot, name, goal)| {
                    let flow = state.flows.iter().find(|flow| flow.slot == *slot && flow.name == *name);
                    flow.is_none_or(|flow| is_through(flow, *goal))
                })
        });
        std::mem::take(&mut self.state.0.lock().unwrap().losses)
    }

    fn wait_until(&self, condition: impl Fn(&State) -> bool) {
        let (state, looked) = &*self.state;
        let state = state.lock().unwrap();
        let limit = Duration::from_secs(60);
        let (_state, timeout) = looked.wait_timeout_while(state, limit, |state| !condition(state)).unwrap();
        assert!(!timeout.timed_out(), "the thread of the packets does not go on");
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        if let Ok(mut state) = self.state.0.lock() {
            state.is_over = true;
        }
        self.thread.take().map(JoinHandle::join);
    }
}

fn exchange(shared: &(Mutex<State>, Condvar)) {
    loop {
        let mut state = shared.0.lock().unwrap();
        if state.is_over {
            return;
        }
        state.look();
        drop(state);
        shared.1.notify_all();
        // The pace of the packets; nothing is waited for.
        std::thread::sleep(PACE / 4);
    }
}

impl State {
    fn look(&mut self) {
        self.looks += 1;
        for (_, server) in &self.servers {
            answer(server);
        }
        let Self { flows, losses, looks, .. } = self;
        for flow in flows.iter_mut() {
            flow.receive();
            flow.send(*looks, losses);
            flow.judge(*looks, losses);
        }
        flows.retain(|flow| !flow.is_closing || !flow.waiting.is_empty());
    }
}

fn answer(server: &UdpSocket) {
    let mut packet = [0; 64];
    loop {
        match server.recv_from(&mut packet) {
            // An answer that cannot be sent is missed by the flow.
            Ok((length, from)) => drop(server.send_to(&packet[..length], from)),
            // An ICMP error for an earlier answer.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
            Err(_) => return,
        }
    }
}

impl Flow {
    fn receive(&mut self) {
        let mut packet = [0; 4];
        if let Source::Lasting(socket) = &self.source {
            while let Ok(4) = socket.recv(&mut packet) {
                let number = u32::from_be_bytes(packet);
                self.waiting.retain(|waiting| waiting.number != number);
                self.began.get_or_insert_with(Instant::now);
            }
        }
        let before = self.waiting.len();
        self.waiting.retain(|waiting| waiting.fresh.as_ref().is_none_or(|socket| socket.recv(&mut [0; 4]).is_err()));
        if self.waiting.len() < before {
            self.began.get_or_insert_with(Instant::now);
        }
    }

    fn send(&mut self, look: u64, losses: &mut Vec<Loss>) {
        let now = Instant::now();
        if self.is_closing || now < self.due {
            return;
        }
        // Until the first answer, few: each waits for a neighbour.
        self.due = now + if self.began.is_some() { PACE } else { PACE * 5 };
        let number = self.next;
        self.next += 1;
        let sent = match &self.source {
            Source::Lasting(socket) => socket.send(&number.to_be_bytes()).map(|_| None),
            Source::Fresh => fresh(self.to).and_then(|socket| {
                socket.send(&number.to_be_bytes())?;
                Ok(Some(socket))
            }),
        };
        match sent {
            Ok(fresh) => self.waiting.push_back(Waiting { number, sent: now, look, fresh }),
            Err(error) if self.began.is_some() => losses.push(self.loss(&format!("cannot be sent: {error}"))),
            Err(_) => {}
        }
    }

    fn judge(&mut self, look: u64, losses: &mut Vec<Loss>) {
        let is_late = |waiting: &Waiting| waiting.sent.elapsed() > LATE && look > waiting.look + LATE_LOOKS;
        while let Some(late) = self.waiting.pop_front_if(|waiting| is_late(waiting)) {
            // Packets sent before the flow began may have been lost to a neighbour that was not resolved.
            if self.began.is_some_and(|began| late.sent >= began) {
                losses.push(self.loss(&format!("number {} is not answered", late.number)));
            }
        }
        if self.began.is_none() && !self.is_closing && self.made.elapsed() > FIRST {
            losses.push(self.loss("none is answered"));
            self.made = Instant::now();
        }
    }

    fn loss(&self, words: &str) -> Loss {
        let (name, to) = (self.name, self.to);
        Loss { slot: self.slot, words: format!("packet {name} to {to}: {words}") }
    }
}

fn fresh(to: SocketAddr) -> std::io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.set_nonblocking(true)?;
    socket.connect(to)?;
    Ok(socket)
}
