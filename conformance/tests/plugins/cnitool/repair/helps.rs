//! The findings of CHECK and `cnitool doctor` about objects that a repair makes again.

use super::*;

/// Doctor's help is a command, and mends what it is about.
#[test]
fn the_help_of_a_check_that_fails_mends_it() {
    let site = Site::new(&bridge());
    site.tour.node.host().flush_nft();
    let finding = site.find("check-fails").expect("a finding about CHECK");
    let help = finding["remedy"].as_str().unwrap();
    assert_eq!(help, "cnitool repair office");
    site.tour.cnitool(&help.split(' ').skip(1).collect::<Vec<_>>());
    assert_eq!(site.find("check-fails"), None);
}

/// A repair changes nothing in the container.
#[test]
fn the_help_of_a_check_that_fails_in_the_container_is_no_repair() {
    let site = Site::new(&bridge());
    sh(site.pod.namespace(), "ip link set eth0 address 02:00:00:00:00:09");
    assert_eq!(site.find("check-fails").unwrap()["remedy"], "Start the container anew.");
}

#[test]
fn a_version_without_check_is_no_fault_of_containers() {
    let mut plugins = bridge();
    plugins.as_array_mut().unwrap().retain(|plugin| plugin["type"] != "firewall");
    let site = Site::of("0.3.1", &plugins);
    assert_eq!(site.find("check-fails"), None);
    let note = site.find("unseen").expect("a note about CHECK");
    assert_eq!(note["what"], "CHECK is not called: there is none in version 0.3.1 of network office");
    assert_eq!((&note["level"], &note["remedy"]), (&json!("note"), &json!("cnitool repair office --dry-run")));
    assert_eq!(site.run(&["office", "--dry-run"]).0, Some(0));
}

/// The port works from the node, and not from other hosts.
#[test]
fn a_port_that_lost_its_way_from_outside_is_found_and_repaired() {
    let site = Site::new(&bridge());
    let jump = "PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT";
    sh(site.tour.node.host(), &format!("iptables -w -t nat -D {jump}; ip6tables -w -t nat -D {jump}"));
    assert!(!site.gets_in(SHORT));
    assert_eq!(site.find("port-gone").expect("a finding about the port")["remedy"], "cnitool repair office");
    assert_eq!(site.run(&["office"]).0, Some(0));
    assert!(site.gets_in(LONG));
    assert_eq!(site.find("port-gone"), None);
}

/// CHECK names all that a plugin misses, the first as before.
#[test]
fn check_names_all_differences() {
    let site = Site::new(&bridge());
    let veth = site.veth();
    sh(site.tour.node.host(), "ip link del office0");
    let output = site.check();
    let said = String::from_utf8(output.stderr).unwrap();
    for part in [
        "bridge office0 is not as ADD left it: it is not found",
        &format!("link {veth} is not as ADD left it: it is no port of bridge office0"),
        "interface office0 is not as ADD left it: it is not found",
    ] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
}
