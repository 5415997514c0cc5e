//! Measures slots on a throwaway node: `cargo run --release --locked -p netslot --example bench`.

#![expect(clippy::print_stdout, reason = "prints its figures")]
#![expect(unsafe_code, reason = "counts what is allocated")]
#![allow(clippy::unwrap_used, reason = "a measurement that cannot be made ends the program")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;
use std::net::TcpListener;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use netops::Kernel;
use netops::link::{Veth, create_free_veth};
use netslot::{Egress, Netns, Pool, Slot, Spec};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use testns::{Namespace, Node};

const LONG: Duration = Duration::from_secs(600);
const MANY: usize = 4000;
/// The limit of namespaces of the user namespace that this program is in.
const NAMESPACES_MAX: &str = "/proc/sys/user/max_net_namespaces";

/// The bytes that are allocated at present.
static ALLOCATED: AtomicUsize = AtomicUsize::new(0);
#[global_allocator]
static COUNTED: Counted = Counted;
struct Counted;

// SAFETY: the system's allocator does all.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size(), Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }
}

fn main() {
    let load = fs::read_to_string("/proc/loadavg").unwrap();
    println!("load {}", load.split(' ').take(3).collect::<Vec<_>>().join(" "));
    let node = Node::new();
    let outside = node.remote("outside");
    node.host().add_veth("uplink0", &outside, "eth0");
    node.host().add_address("uplink0", "192.0.2.1/24");
    outside.add_address("eth0", "192.0.2.2/24");
    take();
    at_once();
    floor();
    refill();
    destroy();
    many(&node, &outside);
}

fn pool(ready: usize) -> Pool {
    let spec = Spec::new("bench", "10.88.0.0/16".parse().unwrap());
    let pool = Pool::open(spec.ready(ready).egress(Egress::public())).unwrap();
    assert_eq!(pool.wait_ready(LONG).unwrap(), ready);
    pool
}

/// Median, 99th percentile and maximum, in microseconds.
fn spread(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)].as_secs_f64() * 1e6;
    format!("median {:.1} us, p99 {:.1} us, max {:.1} us", at(50), at(99), at(100))
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let done = work();
    (done, start.elapsed())
}

fn take() {
    let pool = pool(200);
    let (slots, times): (Vec<Slot>, Vec<_>) = (0..200).map(|_| timed(|| pool.take().unwrap())).unzip();
    println!("take a ready slot, 200 one after the other: {}", spread(times));
    pool.destroy(slots).unwrap();
    pool.close().unwrap();
}

fn at_once() {
    let (pool, gate) = (pool(64), Barrier::new(64));
    let one = || {
        gate.wait();
        timed(|| pool.take().unwrap())
    };
    let taken = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..64).map(|_| scope.spawn(one)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    let (slots, times): (Vec<Slot>, Vec<_>) = taken.into_iter().unzip();
    println!("take a ready slot, 64 threads at once: {}", spread(times));
    pool.destroy(slots).unwrap();
    pool.close().unwrap();
}

/// CPU time of this process, in microseconds.
fn cpu() -> i64 {
    let used = getrusage(UsageWho::RUSAGE_SELF).unwrap();
    (used.user_time() + used.system_time()).num_microseconds()
}

/// Makes 500, and prints how many a second that is.
fn print_rate<T>(what: &str, make: impl FnOnce() -> T) -> T {
    let before = cpu();
    let (made, time) = timed(make);
    let (rate, each) = (500.0 / time.as_secs_f64(), (cpu() - before) / 500);
    println!("make 500 {what}: {rate:.0} a second, {each} us of CPU each");
    made
}

/// What the kernel needs in any case.
fn floor() {
    let host = Kernel::host().unwrap();
    let one = |n| {
        let (netns, name) = (Netns::create().unwrap(), format!("floor{n}"));
        let veth = Veth { peer_netns: Some(&netns), queues: Some(1), ..Veth::new(&name, "eth0") };
        create_free_veth(&host, &veth).unwrap();
        netns
    };
    print_rate("namespaces with a veth each and nothing else", || (0..500).map(one).collect::<Vec<_>>());
}

fn refill() {
    print_rate("slots ahead of demand", || pool(500)).close().unwrap();
}

/// Sets the limit of namespaces to the number of those that there are; returns the limit before.
fn limit_namespaces() -> String {
    let max = fs::read_to_string(NAMESPACES_MAX).unwrap();
    let is_room = |limit: u64| fs::write(NAMESPACES_MAX, limit.to_string()).is_ok() && Netns::create().is_ok();
    let there = (0..100_000).find(|there| is_room(there + 1)).unwrap();
    // The one that was just made goes, too.
    while Netns::create().is_err() {}
    fs::write(NAMESPACES_MAX, there.to_string()).unwrap();
    max.trim().to_owned()
}

fn destroy() {
    let pool = pool(0);
    let slots: Vec<_> = (0..66).map(|_| pool.take().unwrap()).collect();
    // The kernel counts a namespace until it has freed it: as many can be made again when all are gone.
    let max = limit_namespaces();
    let (mut made, start) = (Vec::new(), Instant::now());
    pool.destroy(slots).unwrap();
    let returned = start.elapsed();
    while made.len() < 66 {
        made.extend(Netns::create().ok());
    }
    let freed = start.elapsed();
    fs::write(NAMESPACES_MAX, max).unwrap();
    println!("destroy 66 slots: returned after {returned:.1?}, all freed by the kernel after {freed:.1?}");
    pool.close().unwrap();
}

fn rules(node: &Node) -> usize {
    node.host().nft().iter().filter(|line| line.starts_with("nft rule ")).count()
}

fn connect(slot: &Slot, outside: &Namespace) -> String {
    let listener = outside.enter(|| TcpListener::bind("192.0.2.2:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let netns = slot.netns().unwrap();
    let once = |_| timed(|| (std::net::TcpStream::connect(address).unwrap(), listener.accept().unwrap())).1;
    spread(netns.run(|| (0..500).map(once).collect()).unwrap())
}

fn many(node: &Node, outside: &Namespace) {
    let pool = pool(0);
    let first = pool.take().unwrap();
    let (few, start, before) = (rules(node), Instant::now(), ALLOCATED.load(Relaxed));
    let mut slots: Vec<_> = (1..MANY).map(|_| pool.take().unwrap()).collect();
    println!("{MANY} slots, made one by one in {:.1?}", start.elapsed());
    println!("memory of a slot in the library: {} bytes", (ALLOCATED.load(Relaxed) - before).div_ceil(MANY - 1));
    println!("rules on the node: {few} with 1 slot, {} with {MANY}", rules(node));
    println!("connect from the first slot: {}", connect(&first, outside));
    println!("connect from the last slot:  {}", connect(slots.last().unwrap(), outside));
    slots.push(first);
    let (_, time) = timed(|| pool.destroy(slots).unwrap());
    println!("destroy {MANY} slots: {time:.1?}");
    pool.close().unwrap();
}
