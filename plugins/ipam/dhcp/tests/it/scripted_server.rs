//! A DHCP server whose answers a test writes: what no real server sends.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use crate::lan::{Lan, SERVER};

pub(crate) const DISCOVER: u8 = 1;
pub(crate) const OFFER: u8 = 2;
pub(crate) const REQUEST: u8 = 3;
pub(crate) const ACK: u8 = 5;
pub(crate) const NAK: u8 = 6;

/// What a client sent.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) kind: u8,
    pub(crate) xid: [u8; 4],
    pub(crate) mac: [u8; 6],
    pub(crate) ciaddr: Ipv4Addr,
    /// Option 50.
    pub(crate) wanted: Option<Ipv4Addr>,
    pub(crate) broadcast: bool,
    pub(crate) options: BTreeMap<u8, Vec<u8>>,
    /// The time at which it came.
    pub(crate) at: Instant,
}

impl Asked {
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let mut options = BTreeMap::new();
        let mut rest = &bytes[240..];
        while let [code @ 1..=254, length, tail @ ..] = rest {
            let (value, tail) = tail.split_at((*length).into());
            options.insert(*code, value.to_vec());
            rest = tail;
        }
        let address = |value: &[u8]| Ipv4Addr::from(<[u8; 4]>::try_from(value).unwrap());
        Self {
            kind: options[&53][0],
            xid: bytes[4..8].try_into().unwrap(),
            mac: bytes[28..34].try_into().unwrap(),
            ciaddr: address(&bytes[12..16]),
            wanted: options.get(&50).map(|value| address(value)),
            broadcast: bytes[10] & 0x80 != 0,
            options,
            at: Instant::now(),
        }
    }

    /// The answer of a plain server; none to messages that want none.
    pub(crate) fn plain(&self) -> Option<DhcpReply> {
        match self.kind {
            DISCOVER => Some(self.answer(OFFER)),
            REQUEST => Some(self.answer(ACK)),
            _ => None,
        }
    }

    /// An answer that gives 10.8.0.77 for two minutes.
    pub(crate) fn answer(&self, kind: u8) -> DhcpReply {
        let server = SERVER.parse::<Ipv4Addr>().unwrap().octets();
        let options: [(u8, &[u8]); 4] = [(53, &[kind]), (54, &server), (1, &[255, 255, 255, 0]), (51, &[0, 0, 0, 120])];
        let options = options.map(|(code, value)| (code, value.to_vec())).to_vec();
        DhcpReply { op: 2, xid: self.xid, mac: self.mac, yiaddr: Ipv4Addr::new(10, 8, 0, 77), options }
    }
}

/// An answer, to be changed.
#[derive(Debug, Clone)]
pub(crate) struct DhcpReply {
    pub(crate) op: u8,
    pub(crate) xid: [u8; 4],
    pub(crate) mac: [u8; 6],
    pub(crate) yiaddr: Ipv4Addr,
    pub(crate) options: Vec<(u8, Vec<u8>)>,
}

impl DhcpReply {
    /// The same with this option, or without it.
    pub(crate) fn with(mut self, code: u8, value: Option<&[u8]>) -> Self {
        self.options.retain(|(other, _)| *other != code);
        self.options.extend(value.map(|value| (code, value.to_vec())));
        self
    }

    /// Values longer than 255 bytes are split.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; 240];
        bytes[..3].copy_from_slice(&[self.op, 1, 6]);
        bytes[4..8].copy_from_slice(&self.xid);
        bytes[16..20].copy_from_slice(&self.yiaddr.octets());
        bytes[28..34].copy_from_slice(&self.mac);
        bytes[236..].copy_from_slice(&[99, 130, 83, 99]);
        for (code, value) in &self.options {
            for part in value.chunks(255) {
                bytes.extend([*code, u8::try_from(part.len()).unwrap()]);
                bytes.extend(part);
            }
        }
        bytes.push(255);
        bytes
    }
}

pub(crate) struct Server {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Broadcasts what `answers` returns for each message; and all that it is asked.
    pub(crate) fn start(
        lan: &Lan,
        mut answers: impl FnMut(&Asked) -> Vec<DhcpReply> + Send + 'static,
    ) -> (Self, Receiver<Asked>) {
        let (asks, asked) = channel();
        let socket = lan.server.enter(|| socket(67));
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let ends = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&ends);
        let thread = thread::spawn(move || {
            let mut buffer = [0; 1500];
            while !is_over.load(Ordering::Relaxed) {
                match socket.recv(&mut buffer) {
                    Ok(length) => {
                        let message = Asked::parse(&buffer[..length]);
                        let answers = answers(&message);
                        asks.send(message).ok();
                        for answer in answers {
                            socket.send_to(&answer.bytes(), CLIENTS).unwrap();
                        }
                    }
                    Err(error) => assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)),
                }
            }
        });
        (Self { ends, thread: Some(thread) }, asked)
    }

    /// Broadcasts what `change` makes of a plain server's answers.
    pub(crate) fn changing(
        lan: &Lan,
        mut change: impl FnMut(DhcpReply) -> DhcpReply + Send + 'static,
    ) -> (Self, Receiver<Asked>) {
        Self::start(lan, move |asked| asked.plain().map(&mut change).into_iter().collect())
    }
}

pub(crate) const CLIENTS: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::BROADCAST, 68);

pub(crate) fn socket(port: u16) -> UdpSocket {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
    socket.set_broadcast(true).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.bind_device(Some(b"lan0")).unwrap();
    socket.bind(&SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port).into()).unwrap();
    socket.into()
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}
