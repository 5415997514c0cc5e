//! The index: it changes no answer, and keeps the cost of each verb the same in a full store.

use super::*;

/// Bytes and calls of read(2) and write(2) that this thread has made so far.
fn io_so_far() -> [u64; 4] {
    let text = fs::read_to_string("/proc/thread-self/io").unwrap();
    ["rchar", "wchar", "syscr", "syscw"].map(|name| {
        let line = text.lines().find(|line| line.split(':').next() == Some(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    })
}

fn io_of(work: impl FnOnce()) -> [u64; 4] {
    let before = io_so_far();
    work();
    let after = io_so_far();
    [0, 1, 2, 3].map(|place| after[place] - before[place])
}

/// What the verbs read and write is the same in an empty store and at 60,000 reservations in one run, which the
/// search has to pass; in a /64 too.
#[test]
fn the_cost_does_not_grow() {
    let costs = [0, 60_000].map(|count: u32| {
        let node = Node::large(r#""ranges":[[{"subnet":"10.0.0.0/8"}],[{"subnet":"fd00::/64"}]]"#);
        for number in 2..2 + count {
            let v4 = Address { family: crate::address::Family::V4, bits: (0x0a00_0000 + number).into() };
            node.write(&v4.to_string(), &format!("r{number}\r\neth0"));
        }
        node.write("fd00::2", "x\r\neth0");
        node.add("first").unwrap(); // reads the folder
        for name in ["last_reserved_ip.0", "last_reserved_ip.1"] {
            fs::remove_file(node.path(name)).unwrap(); // the search starts at the range's start
        }
        node.del("first");
        assert!(!node.store().scanned);
        [
            io_of(|| assert_eq!(node.add("c1").unwrap(), format!("{} fd00::3", ip_after(count)))),
            io_of(|| node.check("c1").unwrap()),
            io_of(|| node.status().unwrap()),
            io_of(|| node.del("c1")),
            io_of(|| node.del("c1")),
        ]
    });
    let [empty, full] = costs;
    for (verb, (empty, full)) in ["ADD", "CHECK", "STATUS", "DEL", "DEL again"].iter().zip(empty.iter().zip(&full)) {
        for (what, (empty, full)) in
            ["bytes read", "bytes written", "reads", "writes"].iter().zip(empty.iter().zip(full))
        {
            // A few more pages: words above full ones, and buckets that overflow.
            let slack = if what.starts_with("bytes") { 8 * 512 } else { 8 };
            assert!(*full <= empty + slack, "{verb}: {what} {empty} in the empty store, {full} in the full one");
        }
    }
}

fn ip_after(count: u32) -> std::net::Ipv4Addr {
    std::net::Ipv4Addr::from_bits(0x0a00_0002 + count)
}
