//! A store that is full, or cannot be written to.

use super::{PLAIN, Scenario, assert_clean};
use crate::subjects::node;
use nix::mount::{MsFlags, mount};
use std::fs;
use std::path::Path;
use testns::Node;

const STORE: &str = "/var/lib/cni/networks";
const PAGE: usize = 4096;

fn mount_store(options: &str, flags: MsFlags) {
    fs::create_dir_all(STORE).expect("a folder for the store");
    mount(Some("tmpfs"), STORE, Some("tmpfs"), flags, Some(options)).expect("mount a small tmpfs");
}

/// ADD on a store with limited room; true if it succeeded.
fn add_where_little_fits(scenario: Scenario, options: &str) -> bool {
    let node = node();
    mount_store(options, MsFlags::empty());
    node.remember();
    let pod = node.container();
    let reply = scenario.add(&pod).run(&node);
    if reply.output.code() == 0 {
        let result = reply.ok();
        scenario.del(&pod).prev_result(&result).run(&node).ok();
        return true;
    }
    let failure = reply.fails_with(106);
    let about = format!("{failure:?}");
    assert!(about.contains("ENOSPC"), "{options}: {about}");
    assert_clean(&node, &format!("store with {options}"));
    make_room(&node);
    scenario.assert_addresses_are_free(&node, "after room was made");
    false
}

fn make_room(_: &Node) {
    let flags = MsFlags::MS_REMOUNT;
    mount(None::<&str>, STORE, None::<&str>, flags, Some("size=1m,nr_inodes=1k")).expect("make the tmpfs larger");
}

/// Each file and folder of the store in turn is the first that does not fit.
#[test]
fn add_on_a_full_store_leaves_nothing() {
    let by_inodes = (1..20).take_while(|inodes| !add_where_little_fits(PLAIN, &format!("nr_inodes={inodes}")));
    let by_inodes = by_inodes.count();
    assert!((2..19).contains(&by_inodes), "{by_inodes} failures for want of inodes");
    let by_bytes = (1..20).take_while(|pages| !add_with_room(PLAIN, *pages));
    let by_bytes = by_bytes.count();
    testns::note(&format!("POINTS full store: {by_inodes} by inodes, {by_bytes} by bytes"));
}

/// ADD with so many pages free; a full tmpfs has one page less than its size.
fn add_with_room(scenario: Scenario, pages: usize) -> bool {
    add_where_little_fits(scenario, &format!("size={}", pages * PAGE))
}

#[test]
fn add_on_a_read_only_store_leaves_nothing() {
    let node = node();
    mount_store("size=1m", MsFlags::MS_RDONLY);
    node.remember();
    let pod = node.container();
    let failure = PLAIN.add(&pod).run(&node).fails_with(106);
    assert!(format!("{failure:?}").contains("EROFS"), "{failure:?}");
    node.assert_as_before();
    assert!(!Path::new(STORE).join("net").exists());
    // Nothing was reserved, so there is nothing to release.
    PLAIN.del(&pod).run(&node).ok();
}
