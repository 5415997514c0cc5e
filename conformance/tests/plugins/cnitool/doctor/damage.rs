//! Each kind of damage, and what the doctor has to say of it.

use super::{Ward, run, store, write_old};
use crate::cnitool::netns;
use serde_json::json;
use std::fs;

/// The damage of the node, the kind of the finding, the exit code of doctor, and what of the finding names it.
pub(crate) type Damage = (&'static str, fn(&Ward), &'static str, i32, &'static str);

pub(super) const WARNING: i32 = 3;
pub(super) const ERROR: i32 = 4;

/// The findings that `--fix` mends.
pub(crate) const LEFT_OVER: [Damage; 6] = [
    ("a container is gone without DEL", Ward::lose_a_container, "leftover", WARNING, "address 10."),
    (
        "the cache has forgotten a container that is gone",
        |ward| {
            ward.lose_a_container();
            let living = ward.cached_entry_of(&ward.pod);
            let entries = fs::read_dir("/var/lib/cni/results").unwrap().map(|entry| entry.unwrap().path());
            let others: Vec<_> = entries.filter(|path| *path != living).collect();
            assert_eq!(others.len(), 1);
            fs::remove_file(&others[0]).unwrap();
        },
        "leftover",
        WARNING,
        "address 10.",
    ),
    (
        "a reservation of a container that never was",
        |ward| write_old(&store().join(ward.tour.address(77)), "c77\r\neth0"),
        "leftover",
        WARNING,
        "c77/eth0",
    ),
    (
        "a container is gone without DEL, and so is its reservation",
        |ward| {
            ward.lose_a_container();
            fs::remove_file(store().join(ward.tour.address(3))).unwrap();
        },
        "leftover",
        WARNING,
        "masquerade of 10.",
    ),
    (
        "the cache was restored from a backup",
        |ward| {
            let pod = ward.tour.node.container();
            let netns = netns(&pod);
            ward.tour.cnitool(&["add", "office", &netns]);
            let entry = ward.cached_entry_of(&pod);
            let backup = fs::read(&entry).unwrap();
            ward.tour.cnitool(&["del", "office", &netns]);
            pod.end();
            fs::write(entry, backup).unwrap();
        },
        "leftover",
        WARNING,
        "only in the cache",
    ),
    (
        "an empty reservation",
        |ward| write_old(&store().join(ward.tour.address(9)), ""),
        "damaged-reservation",
        WARNING,
        ".9",
    ),
];

/// What an operator has to decide on.
pub(crate) const OTHERS: [Damage; 15] = [
    (
        "a configuration that no runtime can use",
        |_| fs::write("/etc/cni/net.d/20-bad.conflist", r#"{"cniVersion": "1.0.0", "name": "bad""#).unwrap(),
        "config",
        ERROR,
        "line 1",
    ),
    (
        "a configuration behind another of the same name",
        |_| {
            let copied = fs::copy("/etc/cni/net.d/10-office.conflist", "/etc/cni/net.d/20-office.conflist");
            copied.unwrap();
        },
        "config",
        WARNING,
        "20-office",
    ),
    (
        "a plugin is missing",
        |ward| ward.edit_network(|network| network["plugins"].as_array_mut().unwrap().push(json!({"type": "absent"}))),
        "not-ready",
        ERROR,
        "absent",
    ),
    (
        "a plugin of another project",
        |ward| {
            ward.edit_network(|network| network["plugins"].as_array_mut().unwrap().push(json!({"type": "foreign"})));
            let script = "#!/bin/sh\n[ $CNI_COMMAND != VERSION ] || echo '{\"cniVersion\": \"1.1.0\", \"supportedVersions\": [\"1.1.0\"]}'\n";
            testns::write_executable(ward.tour.bin_dir.join("foreign"), script).unwrap();
        },
        "mixed-makes",
        0,
        "foreign",
    ),
    (
        "a cache entry is damaged",
        |_| fs::write("/var/lib/cni/results/office-c5-eth0", "{").unwrap(),
        "unreadable-entry",
        WARNING,
        "office-c5-eth0",
    ),
    (
        "a killed process has left an unfinished file",
        |_| write_old(&store().join(".last_reserved_ip.0.new"), "10"),
        "unfinished",
        0,
        ".last_reserved_ip.0.new",
    ),
    (
        "reservations have no owner that can be read",
        |ward| {
            for (last, content) in [(9, "a/../b\r\neth0"), (10, "\u{1b}[2J")] {
                write_old(&store().join(ward.tour.address(last)), content);
            }
            fs::create_dir(store().join(ward.tour.address(11))).unwrap();
            run(&format!("touch -d @0 {}", store().join(ward.tour.address(11)).display()));
        },
        "damaged-reservation",
        WARNING,
        "3 reservations whose owner cannot be read",
    ),
    (
        "the reservation of a container that lives is gone",
        |ward| fs::remove_file(store().join(ward.tour.address(2))).unwrap(),
        "unreserved",
        ERROR,
        "no reservation",
    ),
    (
        "another container has the reservation of one that lives",
        |ward| write_old(&store().join(ward.tour.address(2)), "c77\r\neth0"),
        "unreserved",
        ERROR,
        "reserved for c77",
    ),
    (
        "a range is nearly full",
        |ward| {
            for last in 10..=250 {
                write_old(&store().join(ward.tour.address(last)), "an operator's");
            }
        },
        "range-full",
        WARNING,
        "242 of 253",
    ),
    (
        "a range is full",
        |ward| {
            for last in 3..=254 {
                write_old(&store().join(ward.tour.address(last)), "an operator's");
            }
        },
        "range-full",
        ERROR,
        "253 of 253",
    ),
    ("forwarding is off", |_| run("sysctl -qw net.ipv4.ip_forward=0"), "forwarding-off", ERROR, "net.ipv4.ip_forward"),
    (
        "the MTU is above that of the way out",
        |ward| {
            for words in [
                "ip link add out mtu 1400 type bridge",
                "ip address add 192.168.7.2/24 dev out",
                "ip link set out up",
                "ip route add default via 192.168.7.1",
            ] {
                run(words);
            }
            ward.edit_network(|network| network["plugins"][0]["mtu"] = json!(1500));
        },
        "mtu",
        WARNING,
        "1400",
    ),
    (
        "both variants of iptables have rules",
        |_| run("iptables-legacy -t filter -A FORWARD -s 203.0.113.1 -j DROP"),
        "two-rulesets",
        WARNING,
        "legacy",
    ),
    (
        "the folder of configurations is no folder",
        |_| {
            fs::rename("/etc/cni/net.d", "/etc/cni/away").unwrap();
            fs::write("/etc/cni/net.d", "").unwrap();
        },
        "unseen",
        WARNING,
        "/etc/cni/net.d",
    ),
];
