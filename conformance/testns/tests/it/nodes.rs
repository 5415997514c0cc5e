//! What a node shows, hides and remembers.

use std::fs;
use std::thread;
use std::time::Duration;

use testns::{Feature, Node, Remains};

#[test]
fn a_node_is_empty_at_first() {
    let node = Node::new();
    let names: Vec<_> = node.host().links().into_iter().map(|link| link.name).collect();
    assert_eq!(names, ["lo"]);
    assert!(node.host().link("lo").up);
    assert_eq!(node.host().sysctl("net/ipv4/ip_forward"), "0");
    assert_eq!(fs::read_dir("/var/lib/cni").unwrap().count(), 0);
    assert_eq!(fs::read_dir("/etc/cni").unwrap().count(), 0);
    node.host().ping([127, 0, 0, 1]);
    node.host().ping(std::net::Ipv6Addr::LOCALHOST);
    node.assert_as_before();
}

#[test]
fn nodes_do_not_see_each_other() {
    let node = Node::new();
    node.host().add_link("only-here", "bridge");
    fs::write("/run/only-here", "").unwrap();
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let other = Node::new();
            assert!(other.host().find_link("only-here").is_none());
            assert!(!fs::exists("/run/only-here").unwrap());
            other.host().add_link("only-there", "bridge");
        });
        other.join().unwrap();
    });
    assert!(node.host().find_link("only-there").is_none());
    assert!(fs::exists("/run/only-here").unwrap());
}

#[test]
fn a_second_node_on_a_thread_comes_after_the_first() {
    let first = Node::new();
    assert!(std::panic::catch_unwind(Node::new).is_err());
    first.host().add_link("br0", "bridge");
    drop(first);
    assert!(Node::new().host().find_link("br0").is_none());
}

#[test]
fn changes_names_everything_that_was_left() {
    let node = Node::new();
    let host = node.host();
    host.add_link("br0", "bridge");
    host.add_address("br0", "10.1.0.1/24");
    host.add_address("br0", "fd01::1/64");
    host.add_route("10.9.0.0/16", "10.1.0.2", "br0");
    host.set_sysctl("net/ipv4/ip_forward", "1");
    fs::write("/var/lib/cni/left", "c1\r\neth0").unwrap();
    let changes = node.changes();
    for line in [
        "+ link br0 kind \"bridge\" mtu 1500 txqlen 1000 up vlan_filtering false",
        "+ address 10.1.0.1/24 on br0 scope 0 flags 0x0",
        "+ route 10.9.0.0/16 table 254 via 10.1.0.2 dev br0 metric 0 scope 0 proto 4 type 1",
        "- sysctl net/ipv4/ip_forward = 0",
        "+ sysctl net/ipv4/ip_forward = 1",
        "+ file /var/lib/cni/left 0644 \"c1\\r\\neth0\"",
    ] {
        assert!(changes.lines().any(|change| change == line), "no line {line} in:\n{changes}");
    }
    assert!(changes.contains("+ address fd01::1/64 on br0"), "{changes}");
    assert!(std::panic::catch_unwind(|| node.assert_as_before()).is_err());

    host.delete_link("br0");
    host.set_sysctl("net/ipv4/ip_forward", "0");
    node.assert_as_before_except(|line| line.contains("/var/lib/cni/left"));
    fs::remove_file("/var/lib/cni/left").unwrap();
    node.assert_as_before();
}

#[test]
fn remember_moves_the_mark() {
    let node = Node::new();
    node.host().add_link("br0", "bridge");
    node.remember();
    node.assert_as_before();
    node.host().set_mtu("br0", 1400);
    let (gone, new) = (node.changes().contains("- link br0"), node.changes().contains("mtu 1400"));
    assert!(gone && new, "{}", node.changes());
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

#[test]
fn a_container_ends_as_requested() {
    for remains in Remains::ALL {
        let node = Node::new();
        let pod = node.container();
        node.host().add_veth("host", pod.namespace(), "eth0");
        let left = pod.leave(remains);
        let path = pod.namespace().path();
        match remains {
            Remains::Alive => assert!(pod.namespace().link("eth0").up),
            Remains::Gone => assert!(!path.exists()),
            Remains::PlainFile => assert_eq!(fs::read(path).unwrap(), b""),
            Remains::EmptyPath => assert_eq!(left.netns, ""),
        }
        if matches!(remains, Remains::Gone | Remains::PlainFile) {
            let gone = |host: &testns::Namespace| host.find_link("host").is_none();
            node.host().wait_for("the veth to end with its namespace", gone);
            node.assert_as_before();
        }
    }
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

/// A namespace with a link that is slow to go ends before the wait does.
#[test]
fn settling_waits_for_namespaces_that_ended() {
    let node = Node::new();
    let pod = node.container();
    node.host().add_veth("to-pod", pod.namespace(), "eth0");
    pod.leave(Remains::Gone);
    node.settle(Duration::from_secs(60));
    assert_eq!(node.host().find_link("to-pod"), None);
    assert_eq!(node.host().find_link("settle0"), None);
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
