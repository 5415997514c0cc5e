//! Two containers that ask for one port of the node.

use super::{LONG, at, bridged, config, mapped_in, mapping, routed, tcp};
use crate::chained::comes_and_goes;
use crate::prelude::*;
use conformance::shell::sh;
use nix::mount::{MsFlags, mount};
use std::ffi::OsStr;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The keys of each form of rules.
const FORMS: [fn() -> Value; 3] =
    [|| json!({"backend": "iptables"}), || json!({"backend": "nftables"}), || json!({"rules": "shared"})];

fn ports(own: Value) -> Value {
    config(&[mapping(8080, 80, "tcp")], own)
}

fn answers<'a>(node: &Node, pods: &[&'a Container]) -> Option<&'a str> {
    answers_at("10.7.0.1", node, pods)
}

fn answers_at<'a>(address: &str, node: &Node, pods: &[&'a Container]) -> Option<&'a str> {
    let servers = pods.iter().filter(|pod| {
        let short = std::time::Duration::from_millis(300);
        tcp(node.host(), at(address, 8080), pod.namespace(), 80, short).is_some()
    });
    servers.map(|pod| pod.id()).next()
}

#[test]
fn the_first_container_keeps_the_port_and_the_log_names_it() {
    for backend in ["iptables", "nftables"] {
        let node = node();
        let (one, two) = (node.container_named("c1"), node.container_named("c2"));
        bridged(&node, &ports(json!({"backend": backend})), &one);
        let network = routed(&dual());
        let made = node.call(Verb::Add, &network, &two).ok();
        let config = with(ports(json!({"backend": backend})), json!({"prevResult": made}));
        let reply = node.call(Verb::Add, &config, &two);
        reply.ok();
        let log = &reply.output.stderr;
        assert!(log.contains("host port 8080/tcp is held by") && log.contains("c1"), "{log}");
        assert_eq!(answers(&node, &[&one, &two]), Some("c1"), "{backend}");
        // With the key it is an error, and nothing is changed.
        node.call(Verb::Del, &config, &two).ok();
        node.remember();
        let strict = with(config, json!({"onPortInUse": "error"}));
        let error = node.call(Verb::Add, &strict, &two).fails_with(103);
        assert!(error.msg.contains("8080/tcp") && error.msg.contains("c1"), "{error:?}");
        node.assert_as_before_except(comes_and_goes);
    }
}

/// The kernel decides by which backend's chains were made first.
#[test]
fn containers_of_the_other_backend_hold_ports_too() {
    for [first, second] in [["iptables", "nftables"], ["nftables", "iptables"]] {
        let node = node();
        let [one, two] = ["c1", "c2"].map(|id| node.container_named(id));
        let mapped = bridged(&node, &ports(json!({"backend": first})), &one);
        let network = routed(&dual());
        let made = node.call(Verb::Add, &network, &two).ok();
        let config = with(ports(json!({"backend": second})), json!({"prevResult": made}));
        node.remember();
        let strict = with(config.clone(), json!({"onPortInUse": "error"}));
        let error = node.call(Verb::Add, &strict, &two).fails_with(103);
        assert!(error.msg.contains("8080/tcp") && error.msg.contains("c1"), "{error:?}");
        assert!(error.msg.ends_with(&format!("in backend {first}")), "{error:?}");
        node.assert_as_before_except(comes_and_goes);
        assert_eq!(answers(&node, &[&one, &two]), Some("c1"));
        let reply = node.call(Verb::Add, &config, &two);
        reply.ok();
        let log = &reply.output.stderr;
        assert!(log.contains("host port 8080/tcp is held by") && log.contains("c1"), "{log}");
        assert!(log.contains("which of the two containers answers"), "{log}");
        // The container's own rules in the other backend are no holder's, nor are those of one that is gone.
        node.call(Verb::Del, &config, &two).ok();
        let own = with(ports(json!({"backend": second, "onPortInUse": "error"})), json!({"prevResult": mapped.result}));
        node.call(Verb::Add, &own, &one).ok();
        node.call(Verb::Del, &own, &one).ok();
        node.call(Verb::Add, &strict, &two).ok();
    }
}

/// Two networks forward one port, each for packets of its own.
#[test]
fn a_rule_with_conditions_holds_no_port() {
    let all = [
        ("iptables", ["-s"].as_slice(), ["!", "-s"].as_slice()),
        ("nftables", &["ip", "saddr"], &["ip", "saddr", "!="]),
        ("nftables", &["ip", "daddr"], &["ip", "daddr", "!="]),
    ];
    for (backend, one, two) in all {
        let node = node();
        let pods = [node.container(), node.container()];
        for (pod, words) in pods.iter().zip([one, two]) {
            let of = |ip: &str, network| {
                words.iter().map(|word| word.replace("ip", ip)).chain([network]).collect::<Vec<_>>()
            };
            let own = json!({"backend": backend, "onPortInUse": "error",
                "conditionsV4": of("ip", "192.0.2.0/24".to_owned()), "conditionsV6": of("ip6", "2001:db8::/64".to_owned())});
            bridged(&node, &ports(own), pod);
        }
    }
}

/// A runtime has forgotten the ports of the first container, and its address is the second one's, which maps none, or asks for them
/// itself.
#[test]
fn rules_do_not_count_whose_address_is_another_containers() {
    for (form, asks_itself) in FORMS.into_iter().flat_map(|form| [(form, false), (form, true)]) {
        let node = node();
        let [one, two, three] = ["c1", "c2", "c3"].map(|id| node.container_named(id));
        let unshared = unshared();
        let network = routed(&unshared.dual());
        let own = with(form(), json!({"onPortInUse": "error"}));
        mapped_in(&node, &network, &ports(own.clone()), &one);
        node.call(Verb::Del, &network, &one).ok();
        let again = Call::new(Verb::Add, &network, &two).args(&format!("IgnoreUnknown=1;IP={}", unshared.address(2)));
        let made = again.run(&node).ok();
        assert_eq!(two.namespace().global_addresses("eth0")[0], format!("{}/24", unshared.address(2)));
        let holder = if asks_itself {
            node.call(Verb::Add, with(ports(own.clone()), json!({"prevResult": made})), &two).ok();
            &two
        } else {
            mapped_in(&node, &network, &ports(own.clone()), &three);
            &three
        };
        assert_eq!(answers_at(&unshared.address(1), &node, &[&two, &three]), Some(holder.id()), "{own}");
    }
}

/// No DEL has come for the first container, and its namespace is gone. What is mounted at a place whose name is no text
/// hides no other place.
#[test]
fn rules_of_a_container_that_is_gone_do_not_count() {
    let place = Path::new(OsStr::from_bytes(b"/run/a\xff"));
    for form in FORMS {
        let node = node();
        std::fs::create_dir(place).unwrap();
        mount(Some("tmpfs"), place, Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
        let (one, two) = (node.container_named("c1"), node.container_named("c2"));
        let own = with(form(), json!({"onPortInUse": "error"}));
        let unshared = unshared();
        let network = routed(&unshared.dual());
        let mapped = mapped_in(&node, &network, &ports(own.clone()), &one);
        one.end();
        let again = mapped_in(&node, &network, &ports(own.clone()), &two);
        assert!(tcp(node.host(), at(&unshared.address(1), 8080), two.namespace(), 80, LONG).is_some(), "{own}");
        again.check().ok();
        mapped.call(Verb::Del).without("CNI_NETNS").run(&node).ok();
        again.check_and_del();
        node.call(Verb::Status, with(ports(form()), json!({"cniVersion": "1.1.0"})), Attachment::none()).ok();
    }
}

/// A virtual machine behind the veth has the address, and the namespace none: by our mark, and without one, as the reference
/// makes the veth. Another container takes the address, which its root may do.
#[test]
fn a_machine_behind_a_veth_keeps_its_port() {
    for (form, is_marked) in FORMS.into_iter().flat_map(|form| [(form, true), (form, false)]) {
        let node = node();
        let [machine, two, thief] = ["c1", "c2", "c3"].map(|id| node.container_named(id));
        let network = routed(&unshared().dual());
        mapped_in(&node, &network, &ports(form()), &machine);
        node.call(Verb::Add, &network, &thief).ok();
        for address in machine.namespace().global_addresses("eth0") {
            machine.namespace().delete_address("eth0", &address);
            thief.namespace().add_address("eth0", &address);
        }
        if !is_marked {
            let links = node.host().links();
            let veth = links.iter().find(|link| link.alias.as_deref() == Some("cni:net/c1/eth0")).unwrap();
            node.host().set_alias(&veth.name, "");
        }
        let made = node.call(Verb::Add, &network, &two).ok();
        let config = with(ports(form()), json!({"prevResult": made}));
        let reply = node.call(Verb::Add, &config, &two);
        // Shared rules have one holder of a port.
        let (said, holds) = match form().get("rules") {
            None => (reply.output.stderr.clone(), "host port 8080/tcp is held by"),
            Some(_) => (reply.fails().msg, "port 8080/tcp to"),
        };
        assert!(said.contains(holds) && said.contains("c1"), "{} {is_marked}: {said}", form());
        assert_eq!(reply.output.code() == 0, form().get("rules").is_none(), "{reply}");
        node.call(Verb::Del, &config, &two).ok();
        // When the machine has ended, the port is free.
        machine.end();
        let reply = node.call(Verb::Add, &config, &two);
        reply.ok();
        assert!(!reply.output.stderr.contains("is held by"), "{} {is_marked}: {reply}", form());
    }
}

/// The same behind a macvlan or a tap, of which the node has no link: the container's has the mark.
#[test]
fn a_machine_behind_a_link_in_the_container_alone_keeps_its_port() {
    for (kind, feature) in [("macvlan", Feature::Macvlan), ("tap", Feature::Tun)] {
        testns::needs!(feature.or_skip());
        let node = node();
        node.host().add_link("uplink", "bridge");
        // Other tests see its mark, which names no container of theirs.
        let [machine, two] = ["vm1", "c2"].map(|id| node.container_named(id));
        let own =
            json!({"cniVersion": "1.0.0", "name": "net", "type": kind, "master": "uplink", "ipam": unshared().v4()});
        mapped_in(&node, &own, &ports(json!({})), &machine);
        sh(machine.namespace(), "ip address flush dev eth0");
        let made = node.call(Verb::Add, routed(&dual()), &two).ok();
        let config = with(ports(json!({})), json!({"prevResult": made}));
        let reply = node.call(Verb::Add, &config, &two);
        reply.ok();
        let log = &reply.output.stderr;
        assert!(log.contains("host port 8080/tcp is held by") && log.contains("vm1"), "{kind}: {log}");
        node.call(Verb::Del, &config, &two).ok();
        machine.end();
        let reply = node.call(Verb::Add, &config, &two);
        reply.ok();
        assert!(!reply.output.stderr.contains("is held by"), "{kind}: {reply}");
    }
}

/// A repeated ADD that is refused because another container holds a port leaves the attachment's own port.
#[test]
fn a_repeated_add_that_is_refused_a_port_leaves_the_ports_as_they_were() {
    for backend in ["iptables", "nftables"] {
        let node = node();
        let [one, two] = ["c1", "c2"].map(|id| node.container_named(id));
        let own = json!({"backend": backend, "onPortInUse": "error"});
        bridged(&node, &ports(own.clone()), &one);
        let mapped = bridged(&node, &config(&[mapping(8081, 80, "tcp")], own.clone()), &two);
        node.remember();
        let both = config(&[mapping(8081, 80, "tcp"), mapping(8080, 80, "tcp")], own);
        let previous = json!({"prevResult": mapped.result});
        node.call(Verb::Add, with(both, previous), &two).fails_with(103);
        node.assert_as_before_except(comes_and_goes);
        mapped.check().ok();
    }
}

/// The kernel forwards before it looks for a socket: sshd's clients would reach the container.
#[test]
fn a_program_of_the_node_that_listens_is_named_or_keeps_its_port() {
    let own = |host_ip: &str, port: u16, protocol: &str| {
        let mut mapping = mapping(port, 80, protocol);
        mapping["hostIP"] = json!(host_ip);
        config(&[mapping], json!({}))
    };
    for (backend, listens_on, host_ip, is_taken) in [
        ("iptables", "0.0.0.0", "", true),
        ("nftables", "[::]", "", true),
        ("iptables", "192.0.2.1", "", true),
        ("nftables", "192.0.2.1", "192.0.2.1", true),
        ("iptables", "192.0.2.1", "192.0.2.7", false),
        ("iptables", "[::1]", "127.0.0.1", false),
    ] {
        let node = node();
        node.host().add_link("uplink", "bridge");
        node.host().add_address("uplink", "192.0.2.1/24");
        let pod = node.container();
        let made = node.call(Verb::Add, routed(&dual()), &pod).ok();
        let (tcp, udp) = node.host().enter(|| {
            let any = format!("{listens_on}:0");
            (TcpListener::bind(&any).unwrap(), UdpSocket::bind(any).unwrap())
        });
        let ports = [(tcp.local_addr().unwrap().port(), "tcp"), (udp.local_addr().unwrap().port(), "udp")];
        for (port, protocol) in ports {
            let config = with(own(host_ip, port, protocol), json!({"backend": backend, "prevResult": made}));
            node.remember();
            let strict = with(config.clone(), json!({"onPortInUse": "error"}));
            let said = format!("host port {port}/{protocol}: process ");
            if is_taken {
                let error = node.call(Verb::Add, &strict, &pod).fails_with(103);
                assert!(error.msg.contains(&said), "{error:?}");
                node.assert_as_before_except(comes_and_goes);
            } else {
                node.call(Verb::Add, &strict, &pod).ok();
            }
            let reply = node.call(Verb::Add, &config, &pod);
            reply.ok();
            assert_eq!(reply.output.stderr.contains(&said), is_taken, "{listens_on} {host_ip}: {reply}");
            node.call(Verb::Del, &config, &pod).ok();
        }
    }
}

/// A resolver listens on 127.0.0.53, and a container asks for port 53 of all addresses.
#[test]
fn a_program_on_another_loopback_address_keeps_its_packets() {
    for backend in ["iptables", "nftables"] {
        let node = node();
        let pod = node.container();
        let resolver = node.host().enter(|| TcpListener::bind("127.0.0.53:8080").unwrap());
        let own = json!({"backend": backend, "onPortInUse": "error"});
        let mapped = bridged(&node, &ports(own), &pod);
        mapped.check().ok();
        mapped.call(Verb::Add).run(&node).ok();
        assert_eq!(answers_at("127.0.0.1", &node, &[&pod]), Some(pod.id()), "{backend}");
        let client = node.host().enter(|| TcpStream::connect_timeout(&at("127.0.0.53", 8080), LONG).unwrap());
        assert_eq!(resolver.accept().unwrap().1, client.local_addr().unwrap());
        // The program has ended: CHECK finds nothing lost, and the next ADD forwards that address, too.
        drop((client, resolver));
        mapped.check().ok();
        mapped.call(Verb::Add).run(&node).ok();
        assert_eq!(answers_at("127.0.0.53", &node, &[&pod]), Some(pod.id()), "{backend}");
        mapped.check_and_del();
    }
}
