//! The config: what each verb refuses, and the effect of `routes` and `resolvConf`.

use super::{FOLDER, add, del, pod, reservations};
use crate::prelude::*;
use std::fs::{self, File};
use std::time::SystemTime;

/// A `resolvConf` that never ends is an error; the reference reads `/dev/zero` until it runs out of memory.
#[test]
fn a_resolv_conf_that_is_no_file_is_an_error() {
    let node = crate::subjects::node();
    let fifo = node.work_dir().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    for (path, why) in [("/dev/zero", "larger than 1 MiB"), (fifo.to_str().unwrap(), "no regular file")] {
        let config = host_local(with(v4(), json!({"resolvConf": path})));
        let failure = node.call(Verb::Add, config, pod("c1")).fails_with(5);
        assert_eq!(failure.msg, format!("cannot read {path}: it is {why}"));
    }
    assert_eq!(super::reservations(), []);
}

/// `/etc/resolv.conf` is often a link into `/run`.
#[test]
fn a_resolv_conf_may_be_a_link() {
    each(|_, node| {
        let path = node.work_dir().join("resolv.conf");
        std::fs::write(node.work_dir().join("stub"), "nameserver 10.7.0.1\n").unwrap();
        std::os::unix::fs::symlink("stub", &path).unwrap();
        let config = host_local(with(v4(), json!({"resolvConf": path})));
        assert_eq!(node.call(Verb::Add, config, pod("c1")).ok()["dns"], json!({"nameservers": ["10.7.0.1"]}));
    });
}

/// Five addresses, .2 to .6.
fn small(own: Value) -> Value {
    with(json!({"subnet": "10.7.0.0/29"}), own)
}

/// A reservation that the reference made before the last boot.
fn reserve_before_boot(address: &str, id: &str) {
    fs::create_dir_all(FOLDER).unwrap();
    let path = format!("{FOLDER}/{address}");
    fs::write(&path, format!("{id}\r\neth0")).unwrap();
    File::options().write(true).open(&path).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
}

/// `releaseCooldownSeconds`: a released address is given again last, the one that was released first before the others.
#[test]
fn a_released_address_is_given_again_last() {
    let node = node();
    let cool = small(json!({"releaseCooldownSeconds": 3600}));
    for id in ["a", "b", "c", "d"] {
        add(&node, &cool, id).unwrap();
    }
    del(&node, &cool, "c");
    del(&node, &cool, "b");
    let next = ["f", "g", "h"].map(|id| add(&node, &cool, id).unwrap());
    assert_eq!(next, [["10.7.0.6/29"], ["10.7.0.4/29"], ["10.7.0.3/29"]]);
    let failure = add(&node, &cool, "i").unwrap_err();
    assert!(failure.contains("no IP addresses available"), "{failure}");
    del(&node, &cool, "f");
    del(&node, &cool, "g");
    let reuse = small(json!({"releaseCooldownSeconds": 3600, "reuseAddress": true}));
    assert_eq!(add(&node, &reuse, "g").unwrap(), ["10.7.0.4/29"], "its own");
    let short = small(json!({"releaseCooldownSeconds": 0}));
    assert_eq!(add(&node, &short, "i").unwrap(), ["10.7.0.6/29"]);
}

/// `reclaimEarlierBoot`: reservations made before the last boot are reclaimed never, when needed, or always.
#[test]
fn reservations_of_an_earlier_boot_are_reclaimed_as_configured() {
    for (mode, first, stay) in [(None, 6, 3), (Some("never"), 6, 3), (Some("exhausted"), 6, 3), (Some("always"), 6, 0)]
    {
        let node = node();
        let ipam = small(mode.map_or_else(|| json!({}), |mode| json!({"reclaimEarlierBoot": mode})));
        for (address, id) in [("10.7.0.2", "old1"), ("10.7.0.3", "old2"), ("10.7.0.4", "old3")] {
            reserve_before_boot(address, id);
        }
        fs::write(format!("{FOLDER}/10.7.0.5"), "new\r\neth0").unwrap();
        fs::write(format!("{FOLDER}/last_reserved_ip.0"), "10.7.0.5").unwrap();
        assert_eq!(add(&node, &ipam, "a").unwrap(), [format!("10.7.0.{first}/29")], "{mode:?}");
        let old = || reservations().iter().filter(|(_, owner)| owner.starts_with("old")).count();
        assert_eq!(old(), stay, "{mode:?}");
        let next = add(&node, &ipam, "b");
        match mode {
            None | Some("never") => assert!(next.unwrap_err().contains("no IP addresses available")),
            _ => assert_eq!((next.unwrap(), old()), (vec!["10.7.0.2/29".to_owned()], 0), "{mode:?}"),
        }
        assert!(fs::exists(format!("{FOLDER}/10.7.0.5")).unwrap(), "{mode:?} took one of this boot");
    }
}
