//! Input of host-local: its keys, its files, resolv.conf.

use crate::invariants;
use crate::netlink::Draw;
use cni_spec::{Attachment, CniArgs, ConfObject, ContainerId, FromAnyConf, FromConf, IfName, NetworkName};
use host_local::address::{Address, Family};
use host_local::conf::{Conf, Removal};
use host_local::fuzzing;
use host_local::range::Span;
use std::path::{Path, PathBuf};

/// Reads host-local's network config. Its ranges are what the search through them relies on.
pub fn host_local_conf(data: &[u8]) {
    let Ok(object) = ConfObject::parse(data) else { return };
    let conf = match Conf::from_conf(&object) {
        Ok(conf) => conf,
        Err(error) => return invariants::is_sound(&error),
    };
    let removal = Removal::from_any_conf(&object);
    assert_eq!((removal.place.folder, removal.cool_down), (conf.place.folder.clone(), conf.cool_down), "what ADD uses");
    assert_eq!(conf.place.folder.file_name().and_then(|name| name.to_str()), Some(object.name().as_str()));
    assert!(!conf.sets.is_empty());
    for (index, set) in conf.sets.iter().enumerate() {
        assert!(conf.sets.iter().skip(index + 1).all(|other| !set.overlaps(other)));
        for range in set.ranges() {
            assert!(range.first <= range.last && range.first.family == range.last.family);
            assert!(range.subnet.contains(range.first.ip()) && range.subnet.contains(range.last.ip()));
            assert!(conf.barred.is_gateway(range.gateway) && conf.barred.end(range.gateway) >= Some(range.gateway));
            for last in [None, Some(range.first), Some(range.last), Some(range.gateway), range.first.next()] {
                goes_round(&set.order(last), set.ranges().iter().map(|range| range.span()));
            }
        }
    }
    conf.requested.iter().copied().for_each(address_holds);
}

/// The spans to try hold every address of the ranges, once each.
fn goes_round(order: &[Span], ranges: impl Iterator<Item = Span>) {
    let mut order = order.to_vec();
    order.sort_by_key(|span| span.first);
    let mut parts = order.into_iter().peekable();
    let mut ranges: Vec<Span> = ranges.collect();
    ranges.sort_by_key(|span| span.first);
    for range in ranges {
        let mut part = parts.next().expect("a range is tried");
        assert_eq!(part.first, range.first);
        while part.last < range.last {
            let next = parts.next().expect("a range is tried to its end");
            assert_eq!(Some(next.first), part.last.next(), "no gap, no address twice");
            part = next;
        }
        assert_eq!(part.last, range.last);
    }
    assert!(parts.next().is_none());
}

fn address_holds(address: Address) {
    let name = address.to_string();
    invariants::stays_in_its_folder(&name);
    assert_eq!(Address::from_file_name(&name), Some(address));
    assert_eq!(Address::from(address.ip()), address);
    assert!(address.next().is_none_or(|next| next > address));
}

/// Names and contents of the files in a store, and what `CNI_ARGS` may ask for.
pub fn reservation(data: &[u8]) {
    let text = &*invariants::text(data);
    if let Some(owner) = fuzzing::reserved_for(data) {
        assert!(text.contains(&owner) && owner == owner.trim());
        // White space holds an address, too, though no call is for it.
        if owner.bytes().any(|byte| byte != 0) {
            assert_eq!(fuzzing::reserved_for(owner.as_bytes()).as_ref(), Some(&owner));
        }
    }
    let (first, second) = text.split_once('\n').unwrap_or((text, "eth0"));
    if let (Ok(container_id), Ok(ifname)) = (ContainerId::parse(first), IfName::parse(second)) {
        let content = fuzzing::reservation(&Attachment {
            network: NetworkName::parse("n").expect("it is a valid name"),
            container_id,
            ifname,
        });
        assert_eq!(fuzzing::reserved_for(content.as_bytes()), Some(content), "what ADD writes is what DEL looks for");
    }
    if let Some(address) = Address::from_file_name(text) {
        assert_eq!(address.to_string(), text);
        address_holds(address);
    }
    for (address, line) in text.lines().filter_map(fuzzing::released) {
        address_holds(address);
        let own = line.strip_suffix('\n').expect("a line is ended");
        assert_eq!(fuzzing::released(own).as_ref(), Some(&(address, line.clone())));
    }
    if let Ok(args) = CniArgs::parse(text) {
        match fuzzing::requested_by(&args) {
            Ok(address) => address.into_iter().for_each(address_holds),
            Err(error) => invariants::is_sound(&error),
        }
    }
}

/// A file like resolv.conf(5): a result can carry what is read of it.
pub fn resolv_conf(data: &[u8]) {
    let text = &*invariants::text(data);
    let dns = fuzzing::resolv_conf(text);
    let words = dns.nameservers.iter().chain([&dns.domain]).chain(&dns.search).chain(&dns.options);
    for word in words {
        assert!(!word.contains(char::is_whitespace) && text.contains(word.as_str()));
    }
    let lines = |keyword: &str, values: &[String]| {
        values.iter().map(|value| format!("{keyword} {value}\n")).collect::<String>()
    };
    let written = [
        lines("nameserver", &dns.nameservers),
        lines("domain", std::slice::from_ref(&dns.domain)),
        lines("search", &dns.search),
        lines("options", &dns.options),
    ];
    assert_eq!(fuzzing::resolv_conf(&written.concat()), dns);
}

/// The index beside the reservations, damaged: it says so, or its answers are right.
pub fn index(data: &[u8]) {
    let mut draw = Draw::new(data);
    let address = |draw: &mut Draw<'_>| match draw.flag() {
        true => Address { family: Family::V6, bits: u128::from(draw.number16()) << (draw.byte() % 112) },
        false => Address { family: Family::V4, bits: u128::from(draw.number16()) },
    };
    let mut taken: Vec<(Address, &str)> = Vec::new();
    for _ in 0..draw.byte() % 64 {
        let (address, owner) = (address(&mut draw), ["c1\r\neth0", "c2\r\neth0", "c3"][usize::from(draw.byte() % 3)]);
        if taken.iter().all(|(other, _)| *other != address) {
            taken.push((address, owner));
        }
    }
    let damage: Vec<(u64, u8)> = (0..draw.byte() % 4).map(|_| (draw.number().into(), draw.byte())).collect();
    let spans: Vec<Span> = (0..draw.byte() % 8)
        .map(|_| {
            let first = address(&mut draw);
            let length = u128::from(draw.number16());
            let most = if first.family == Family::V4 { u32::MAX.into() } else { u128::MAX };
            Span { first, last: Address { bits: first.bits.saturating_add(length).min(most), ..first } }
        })
        .collect();
    let folder = scratch();
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    let answers = fuzzing::index_answers(&folder, &taken, &damage, &spans).expect("the folder can be read and written");
    remove(&folder);
    let Some(answers) = answers else { return assert!(damage.iter().any(|(_, bits)| *bits != 0)) };
    for ((_, owner), answer) in taken.iter().zip(&answers.owned) {
        let mut right: Vec<Address> = taken.iter().filter(|(_, other)| other == owner).map(|(own, _)| *own).collect();
        right.sort();
        assert!(answer.as_ref().is_none_or(|answer| *answer == right));
    }
    for (span, answer) in spans.iter().zip(&answers.free) {
        let mut right = Some(span.first);
        while let Some(address) = right.filter(|address| taken.iter().any(|(other, _)| other == address)) {
            right = address.next().filter(|next| span.contains(*next));
        }
        assert!(answer.is_none_or(|answer| answer == right), "{span:?}: {answer:?}, but {right:?} is right");
    }
}

/// A folder's name that no other process uses, in memory where possible.
fn scratch() -> PathBuf {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    parent.join(format!("fuzz-index-{}-{:?}", std::process::id(), std::thread::current().id()))
}

fn remove(folder: &Path) {
    std::fs::remove_dir_all(folder).expect("the folder can be removed");
}
