//! Packets that measure what the shapers let pass, and how late.

use crate::prelude::*;
use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::sockopt::ReceiveTimestampns;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt};
use nix::sys::time::TimeSpec;
use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The limits of [`conformance::chained_plugins::bandwidth`].
const RATE_BYTES: f64 = 1_000_000.0;
const BURST_BYTES: f64 = 100_000.0;

/// Ends the sender, however its receiver ends.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// When the kernel received the next packet, whenever this process reads it.
fn arrival(receiver: &UdpSocket) -> Duration {
    let (mut buffer, mut control) = ([0; 2048], cmsg_space!(TimeSpec));
    let mut parts = [IoSliceMut::new(&mut buffer)];
    let message = loop {
        match recvmsg::<()>(receiver.as_raw_fd(), &mut parts, Some(&mut control), MsgFlags::empty()) {
            // A read with a deadline is not begun again after a signal, such as the end of another test's child.
            Err(Errno::EINTR) => {}
            message => break message.expect("a packet within the deadline"),
        }
    };
    let stamp = message.cmsgs().expect("its stamp").find_map(|all| match all {
        ControlMessageOwned::ScmTimestampns(stamp) => Some(stamp.into()),
        _ => None,
    });
    stamp.expect("a stamp")
}

/// A socket that stamps what comes to the address, one that sends, and where to.
fn sockets(from: &Namespace, to: &Namespace, address: IpAddr) -> (UdpSocket, UdpSocket, SocketAddr) {
    const DEADLINE: Duration = Duration::from_secs(10);
    let any: IpAddr = if address.is_ipv4() { ip("0.0.0.0") } else { ip("::") };
    let receiver = to.enter(|| UdpSocket::bind((address, 0)).expect("bind"));
    let sender = from.enter(|| UdpSocket::bind((any, 0)).expect("bind"));
    receiver.set_read_timeout(Some(DEADLINE)).expect("a deadline");
    setsockopt(&receiver, ReceiveTimestampns, &true).expect("stamps");
    let target = receiver.local_addr().expect("its address");
    (receiver, sender, target)
}

/// Sends as much as the shaper takes until packets have arrived at the limit for a second. All times are the kernel's, so it
/// does not matter how often a busy machine lets this process run.
fn assert_limited_between(what: &str, from: &Namespace, to: &Namespace, address: IpAddr) {
    const PAYLOAD: [u8; 1300] = [0; 1300];
    const WINDOW: Duration = Duration::from_secs(1);
    const DEADLINE: Duration = Duration::from_secs(10);
    // Ethernet, IP and UDP.
    let headers = if address.is_ipv4() { 14 + 20 + 8 } else { 14 + 40 + 8 };
    let frame = f64::from(u16::try_from(PAYLOAD.len() + headers).expect("a small frame"));
    let (receiver, sender, target) = sockets(from, to, address);
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Packets that wait in the shaper fill the socket's buffer, so sending waits, too.
        let send = || {
            while !is_done.load(Ordering::Relaxed) {
                sender.send_to(&PAYLOAD, target).ok();
            }
        };
        scope.spawn(send);
        let end = Done(&is_done);
        // The burst. Meanwhile the kernel begins to stamp packets.
        let mut passed = 0.0;
        while passed < 3.0 * BURST_BYTES {
            arrival(&receiver);
            passed += frame;
        }
        let first = arrival(&receiver);
        let mut arrivals = VecDeque::from([first]);
        let (mut bytes, mut rate) = (0.0, 0.0);
        while !(0.9..1.1).contains(&rate) {
            let now = arrival(&receiver);
            bytes += frame;
            let time = now.saturating_sub(first);
            let most = BURST_BYTES + frame + 1.1 * RATE_BYTES * time.as_secs_f64();
            assert!(bytes <= most, "{what}: {bytes} bytes in {time:?}, where {most} may pass");
            assert!(time < DEADLINE, "{what}: {rate} of the limit");
            arrivals.push_back(now);
            while arrivals.get(1).is_some_and(|start| now.saturating_sub(*start) >= WINDOW) {
                arrivals.pop_front();
            }
            let window = now.saturating_sub(arrivals[0]);
            if window >= WINDOW {
                let count = f64::from(u32::try_from(arrivals.len() - 1).expect("some thousand packets"));
                rate = count * frame / window.as_secs_f64() / RATE_BYTES;
            }
        }
        testns::note(&format!("RATE {what}: {rate:.3} of the limit"));
        drop(end);
    });
}

/// Asserts the limits of both directions.
pub(super) fn assert_limited(node: &Node, pod: &Namespace, pods: IpAddr, nodes: IpAddr) {
    assert_limited_between(&format!("to the pod at {pods}"), node.host(), pod, pods);
    assert_limited_between(&format!("from the pod at {pods}"), pod, node.host(), nodes);
}

/// The time between the first and the last of some packets, by the kernel's stamps, of a sender that sends all it can.
pub(super) fn time_of(packets: usize, from: &Namespace, to: &Namespace, address: IpAddr) -> Duration {
    let (receiver, sender, target) = sockets(from, to, address);
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                sender.send_to(&[0; 1300], target).ok();
            }
        });
        let _end = Done(&is_done);
        // The kernel begins to stamp packets.
        arrival(&receiver);
        let first = arrival(&receiver);
        (1..packets).fold(first, |_, _| arrival(&receiver)).saturating_sub(first)
    })
}

/// How long a small packet of another flow takes while others send all they can, in milliseconds: the middle of some.
pub(super) fn delay_under_load(from: &Namespace, to: &Namespace, address: IpAddr) -> u128 {
    const DEADLINE: Duration = Duration::from_secs(20);
    // Each has about 120 kB on the way, and then has to wait: the queue of 525 kB is nearly full, and drops nothing.
    const BUSY: usize = 4;
    let bind = |port: u16| UdpSocket::bind((address, port)).expect("bind");
    let (bulk, probes) = to.enter(|| (bind(7001), bind(7002)));
    let senders = || (0..=BUSY).map(|_| UdpSocket::bind(("0.0.0.0", 0)).expect("bind")).collect::<Vec<_>>();
    let senders = from.enter(senders);
    bulk.set_read_timeout(Some(DEADLINE)).expect("a deadline");
    probes.set_read_timeout(Some(DEADLINE)).expect("a deadline");
    let (prober, busy) = senders.split_first().expect("sockets");
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for sender in busy {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    sender.send_to(&[0; 1300], (address, 7001)).ok();
                }
            });
        }
        let mut buffer = [0; 2048];
        // The burst, and then the queue, twice.
        let mut passed = 0;
        while passed < 1_500_000 {
            passed += bulk.recv(&mut buffer).expect("a packet");
        }
        let mut delay = || {
            let sent = Instant::now();
            prober.send_to(&[0; 8], (address, 7002)).expect("a small packet on its way");
            probes.recv(&mut buffer).expect("the small packet");
            sent.elapsed().as_millis()
        };
        let mut delays: Vec<u128> = (0..7).map(|_| delay()).collect();
        is_done.store(true, Ordering::Relaxed);
        testns::note(&format!("DELAYS to {address}: {delays:?} ms"));
        delays.sort_unstable();
        delays[delays.len() / 2]
    })
}
