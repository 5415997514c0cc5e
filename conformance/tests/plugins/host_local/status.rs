//! STATUS: whether an address is free, and the store can be written.

use super::{FOLDER, add, del, reservations};
use crate::prelude::*;
use nix::mount::{MsFlags, mount};
use std::fs;

fn at_1_1(ipam: Value) -> Value {
    with(host_local(ipam), json!({"cniVersion": "1.1.0"}))
}

/// SPEC 2, STATUS: an error if ADD cannot be served. By default a full range is a warning, as runtimes call the node not ready
/// after an error, and its pods are evicted.
#[test]
fn status_is_50_when_no_address_is_free_and_the_config_asks_for_it() {
    let node = node();
    let ipam = json!({"ranges": [[{"subnet": "10.7.0.0/24"}], [{"subnet": "fd07::/126"}]]}); // ::2 and ::3
    let letter = with(ipam.clone(), json!({"reportExhausted": true}));
    let status = || node.call(Verb::Status, at_1_1(letter.clone()), Attachment::none());
    status().ok();
    assert!(!fs::exists(FOLDER).unwrap(), "STATUS wrote something");
    add(&node, &ipam, "c1").unwrap();
    status().ok();
    add(&node, &ipam, "c2").unwrap();
    let failure = status().fails_with(50);
    assert!(failure.msg.contains("fd07::"), "{failure:?}");
    let reply = node.call(Verb::Status, at_1_1(ipam.clone()), Attachment::none());
    reply.ok();
    assert!(reply.output.stderr.contains("no IP address of a range set is free"), "{reply}");
    del(&node, &ipam, "c1");
    status().ok();
}

/// SPEC 2, STATUS: the store has to be usable too.
#[test]
fn status_is_50_when_the_store_cannot_be_written() {
    let node = node();
    let status = || node.call(Verb::Status, at_1_1(v4()), Attachment::none());
    for with_store in [false, true] {
        if with_store {
            add(&node, &v4(), "c1").unwrap();
        }
        remount("/var/lib/cni", MsFlags::MS_RDONLY);
        let failure = status().fails_with(50);
        assert!(failure.msg.contains("/var/lib/cni"), "{failure:?}");
        remount("/var/lib/cni", MsFlags::empty());
        status().ok();
    }
}

/// SPEC 2, STATUS: it names the cause that ADD would meet.
#[test]
fn status_names_a_file_in_the_place_of_the_store() {
    let node = node();
    std::fs::create_dir_all("/var/lib/cni").unwrap();
    std::fs::write("/var/lib/cni/networks", "").unwrap();
    let failure = node.call(Verb::Status, at_1_1(v4()), Attachment::none()).fails_with(50);
    assert!(format!("{failure:?}").contains("ENOTDIR"), "{failure:?}");
}

/// SPEC 2, STATUS: room for one file is not enough for an ADD that writes four.
#[test]
fn status_is_50_when_the_store_has_room_for_a_part_of_an_add() {
    let node = node();
    let status = || node.call(Verb::Status, at_1_1(dual()), Attachment::none());
    for with_store in [false, true] {
        // Inodes for the folders, the lock, and some more files.
        for room in 1..12 {
            mount(Some("none"), "/var/lib/cni", Some("tmpfs"), MsFlags::empty(), Some(&*format!("nr_inodes={room}")))
                .unwrap();
            if with_store {
                fs::create_dir_all(FOLDER).ok();
            }
            let before = node.snapshot();
            let can = status().output.code() == 0;
            let left = testns::changes(&before, &node.snapshot());
            assert!(left.lines().all(|line| line.contains("/lock ") || line.contains(" /run/cni")), "{left}");
            assert_eq!(add(&node, &dual(), "c1").is_ok(), can, "with {room} inodes");
            del(&node, &dual(), "c1");
            nix::mount::umount("/var/lib/cni").unwrap();
        }
    }
}

/// If something other than a file is in the place of the last address, ADD fails, and so does STATUS.
#[test]
fn status_is_50_when_a_last_address_cannot_be_written() {
    let node = node();
    for name in ["last_reserved_ip.0", "last_reserved_ip.1"] {
        fs::create_dir_all(format!("{FOLDER}/{name}")).unwrap();
        let failure = node.call(Verb::Status, at_1_1(dual()), Attachment::none()).fails_with(50);
        assert!(failure.msg.contains(name), "{failure:?}");
        add(&node, &dual(), "c1").unwrap_err();
        assert_eq!(reservations(), []);
        fs::remove_dir(format!("{FOLDER}/{name}")).unwrap();
    }
}

fn remount(path: &str, flags: MsFlags) {
    let none = None::<&str>;
    mount(none, path, none, MsFlags::MS_REMOUNT | MsFlags::MS_BIND | flags, none).expect("remount");
}

/// CONVENTIONS, "Dynamic Plugin specific Fields": a runtime gives the ranges to ADD and not to STATUS, which therefore cannot miss them.
#[test]
fn status_does_not_miss_ranges_that_the_runtime_gives() {
    let node = node();
    let status = |more: Value| {
        let config = with(at_1_1(json!({})), more);
        node.call(Verb::Status, config, Attachment::none())
    };
    status(json!({"capabilities": {"ipRanges": true}})).ok();
    for more in [json!({}), json!({"capabilities": {"ipRanges": false}}), json!({"capabilities": {"ips": true}})] {
        let failure = status(more).fails_with(7);
        assert!(failure.msg.contains("no IP ranges specified"), "{failure:?}");
    }
}
