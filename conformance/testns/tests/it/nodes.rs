//! What a node shows, hides and remembers.

use std::fs;

use testns::{Feature, Node};

#[test]
fn a_second_node_on_a_thread_comes_after_the_first() {
    let first = Node::new();
    assert!(std::panic::catch_unwind(Node::new).is_err());
    first.host().add_link("br0", "bridge");
    drop(first);
    assert!(Node::new().host().find_link("br0").is_none());
}

#[test]
fn nft_rules_are_seen() {
    let node = Node::new();
    let ruleset = "add table inet t
        add set inet t s { type ipv4_addr; elements = { 10.1.0.7 }; }
        add chain inet t c { type nat hook postrouting priority 100; }
        add rule inet t c ip saddr @s counter masquerade comment \"why\"";
    let nft = std::process::Command::new("/usr/sbin/nft").arg(ruleset).status();
    let Ok(status) = nft else {
        testns::skip("nft_rules_are_seen", "no nft to make rules with");
        return;
    };
    assert!(status.success());
    let lines = node.host().nft();
    for part in [
        "nft table inet 1=\"t\"",
        "nft chain inet 1=\"t\" 3=\"c\"",
        "nft rule inet 1=\"t\" 2=\"c\" meta(",
        " counter() masq() 7=\"\\x00\\x04why\\x00\"",
        "nft set inet t s",
        "nft element inet t s 1={1=0a010007}",
    ] {
        assert!(lines.iter().any(|line| line.contains(part)), "no {part} in:\n{}", lines.join("\n"));
    }
    let delete = std::process::Command::new("/usr/sbin/nft").arg("delete table inet t").status();
    assert!(delete.unwrap().success());
    node.assert_as_before();
}

/// Each feature is either made use of or reported: the list is part of the outcome.
#[test]
fn features_of_this_kernel() {
    for feature in Feature::ALL {
        if feature.is_here() {
            testns::note(&format!("FEATURE {feature}"));
        } else {
            testns::skip("features_of_this_kernel", &format!("the kernel has no {feature}"));
        }
    }
    assert!(Feature::Macvlan.is_here() || Feature::Ifb.is_here() || Feature::Dummy.is_here());
}

/// A busy host: what was there counts, so a second crowd adds the difference.
#[test]
fn crowds_grow_to_a_number() {
    let node = Node::new();
    let host = node.host();
    let links = || host.links().iter().filter(|link| link.name.starts_with("crowd")).count();
    host.crowd_links(4);
    host.crowd_links(10);
    assert_eq!(links(), 10);
    assert_eq!(host.pass_links(6), 6);
    assert_eq!(links(), 10);
    assert_eq!(host.links().len(), 11, "nothing of what passed is left: {:?}", host.links());

    let rules = || host.nft().iter().filter(|line| line.starts_with("nft rule")).count();
    host.crowd_nft(300);
    host.crowd_nft(700);
    assert_eq!(rules(), 700);
}

#[test]
fn changes_names_each_sysctl_of_a_link_by_its_file() {
    let node = Node::new();
    let host = node.host();
    host.add_link("br0", "bridge");
    for folder in ["ipv4/conf/br0", "ipv6/conf/br0", "ipv4/neigh/br0", "ipv6/neigh/br0"] {
        let files = fs::read_dir(format!("/proc/sys/net/{folder}")).unwrap();
        let keys = files.map(|file| format!("net/{folder}/{}", file.unwrap().file_name().into_string().unwrap()));
        let mut changed = 0;
        for key in keys {
            let path = format!("/proc/sys/{key}");
            let Ok(text) = fs::read_to_string(&path) else { continue };
            let Ok(value) = text.trim_end().parse::<i64>() else { continue };
            node.remember();
            // The kernel refuses some, and some are for reading only.
            let mut others = [value + 1, value - 1, value + 100].into_iter();
            if !others.any(|other| fs::write(&path, other.to_string()).is_ok() && host.sysctl(&key) != text.trim_end())
            {
                continue;
            }
            changed += 1;
            let changes = node.changes();
            assert!(changes.contains(&format!("+ sysctl {key} = ")), "{key} is not in:\n{changes}");
            // A change shows in one sysctl only; neighbours have some in two units.
            let own = format!("{key} = ");
            let is_link = |change: &str| change.starts_with("+ sysctl ") && change.contains("/conf/br0/");
            let link = |change: &&str| is_link(change) && !change.contains(&own);
            let also: Vec<_> = changes.lines().filter(link).collect();
            assert!(also.is_empty(), "{key} changes {also:?}");
        }
        assert!(changed > 10, "only {changed} sysctls of {folder} can be changed");
    }
}
