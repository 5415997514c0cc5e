//! Links of each kind: made, read back, moved and removed, in throwaway namespaces.

#![expect(clippy::unwrap_used, reason = "a test that cannot set up its objects fails")]

use std::os::fd::{AsFd, AsRawFd};

use netops::addr::{self, Address};
use netops::error::Cause;
use netops::link::ipvlan::{self, Ipvlan};
use netops::link::macvlan::{self, Macvlan};
use netops::link::vlan::{Protocol, Vlan};
use netops::link::vrf::Vrf;
use netops::link::{self, Before, Bridge, Kind, Link, LinkName, Mac, NewLink, Place, Settings, Target, Veth};
use netops::{Errno, Feature, Kernel, Netns, link_removal};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, getsockname, sendto, socket,
};

/// Two open namespaces, each with a connection in it.
fn on_two(test: impl FnOnce(Place<'_>, Place<'_>)) {
    let open = |made: &Netns| Netns::open(format!("/proc/self/fd/{}", made.as_raw_fd())).unwrap();
    let (node, container) = (Netns::create().unwrap(), Netns::create().unwrap());
    let (node, container) = (open(&node), open(&container));
    let (host, inside) = (Kernel::in_netns(&node).unwrap(), Kernel::in_netns(&container).unwrap());
    test(Place { netns: &node, kernel: &host }, Place { netns: &container, kernel: &inside });
}

fn name(text: &str) -> LinkName {
    LinkName::parse(text).unwrap()
}

/// A bridge, up, for a link that others are stacked on.
fn lower(place: Place<'_>, name: &str) -> Link {
    place.kernel.run(link::create_bridge(name, &Bridge::default())).unwrap();
    let up = Settings { up: Some(true), ..Settings::default() };
    link::set_and_get(place.kernel, &Target::named(name), &up).unwrap()
}

/// Whether the kernel has the feature; if not, the refusal must name it.
fn has(test: &str, feature: Feature, made: &netops::error::Result<Link>) -> bool {
    match made {
        Err(error) if error.os_errno() == Some(Errno::EOPNOTSUPP) => {
            assert!(
                matches!(&error.cause, Cause::Unsupported { feature: found, .. } if *found == feature),
                "{error:?}"
            );
            testns::skip(test, &format!("the kernel has no {}", feature.option()));
            false
        }
        _ => true,
    }
}

/// Makes the link in the container, on a link of the node that has the same name, and looks at it from there.
fn check_made_in_container(test: &str, feature: Feature, kind: Kind) {
    on_two(|node, container| {
        let below = lower(node, "eth0");
        let eth0 = name("eth0");
        let has_mac = !matches!(kind, Kind::Ipvlan(_) | Kind::Vrf(_));
        let new = NewLink {
            lower: matches!(kind, Kind::Macvlan(_) | Kind::Ipvlan(_) | Kind::Vlan(_)).then_some(below.index),
            mtu_bytes: Some(1400),
            mac: has_mac.then_some(Mac([2, 0, 0, 0, 0, 7])),
            alias: Some("cni:net/c1/eth0"),
            ..NewLink::new(&eth0, kind.clone())
        };
        let made = link::create(node.kernel, &new, Some(container));
        testns::needs!(has(test, feature, &made));
        let made = made.unwrap();
        assert_eq!(link::get(container.kernel, &Target::named("eth0")).unwrap(), made);
        assert_eq!((&made.kind, made.mtu_bytes, made.up), (&kind, 1400, false));
        assert_eq!(made.alias.as_deref(), Some("cni:net/c1/eth0"));
        assert_eq!(made.peer, new.lower);
        if has_mac {
            assert_eq!(made.mac, new.mac);
        }
        assert_eq!(link::list(node.kernel, None).unwrap().len(), 2);
        let again = link::create(node.kernel, &new, Some(container)).unwrap_err();
        assert_eq!(again.os_errno(), Some(Errno::EEXIST));
        assert_eq!(link::list(container.kernel, None).unwrap().len(), 2);
    });
}

#[test]
fn a_macvlan_is_made_in_the_containers_namespace() {
    let test = "a_macvlan_is_made_in_the_containers_namespace";
    for mode in [macvlan::Mode::Bridge, macvlan::Mode::Private, macvlan::Mode::Vepa] {
        let kind = Kind::Macvlan(Macvlan { mode, no_promisc: false, bc_queue_len: Some(77) });
        check_made_in_container(test, Feature::Macvlan, kind);
    }
}

#[test]
fn an_ipvlan_is_made_in_the_containers_namespace() {
    let test = "an_ipvlan_is_made_in_the_containers_namespace";
    for (mode, flags) in [
        (ipvlan::Mode::L2, ipvlan::Flags::Bridge),
        (ipvlan::Mode::L3, ipvlan::Flags::Private),
        (ipvlan::Mode::L3s, ipvlan::Flags::Vepa),
    ] {
        check_made_in_container(test, Feature::Ipvlan, Kind::Ipvlan(Ipvlan { mode, flags }));
    }
}

#[test]
fn a_vlan_is_made_in_the_containers_namespace() {
    let test = "a_vlan_is_made_in_the_containers_namespace";
    for (id, protocol) in [(0, Protocol::Dot1q), (4094, Protocol::Dot1ad)] {
        check_made_in_container(test, Feature::Vlan, Kind::Vlan(Vlan { id, protocol }));
    }
}

#[test]
fn links_without_a_lower_link_are_made_in_the_containers_namespace() {
    let test = "links_without_a_lower_link_are_made_in_the_containers_namespace";
    check_made_in_container(test, Feature::Dummy, Kind::Dummy);
    check_made_in_container(test, Feature::Ifb, Kind::Ifb);
    check_made_in_container(test, Feature::Vrf, Kind::Vrf(Vrf { table: 1001 }));
}

#[test]
fn a_refused_setting_leaves_no_link() {
    on_two(|node, container| {
        let below = lower(node, "eth0");
        let eth0 = name("eth0");
        let too_large = NewLink {
            lower: Some(below.index),
            mtu_bytes: Some(below.mtu_bytes + 1),
            ..NewLink::new(&eth0, Kind::Macvlan(Macvlan::default()))
        };
        link::create(node.kernel, &too_large, Some(container)).unwrap_err();
        let alias = "x".repeat(256);
        let long = NewLink { alias: Some(&alias), ..NewLink::new(&eth0, Kind::Bridge(link::bridge::Vlans::default())) };
        let error = link::create(node.kernel, &long, Some(container)).unwrap_err();
        assert_eq!(error.op, "set");
        assert_eq!(link::list(container.kernel, None).unwrap().len(), 1);
    });
}

#[test]
fn a_kind_that_no_kernel_has_is_refused_with_its_name() {
    on_two(|node, _| {
        let odd = name("odd0");
        let error = link::create(node.kernel, &NewLink::new(&odd, Kind::Other("nosuch".into())), None).unwrap_err();
        assert!(error.to_string().starts_with("cannot create nosuch odd0 on "), "{error}");
        assert!(error.to_string().ends_with("operation not supported (Unknown device type)"), "{error}");
    });
}

#[test]
fn a_link_moves_with_a_new_name_and_back() {
    on_two(|node, container| {
        let below = lower(node, "br0");
        let mac0 = name("hw0");
        let new = NewLink {
            lower: Some(below.index),
            mtu_bytes: Some(1300),
            up: true,
            ..NewLink::new(&mac0, Kind::Macvlan(Macvlan::default()))
        };
        let hardware = link::create(node.kernel, &new, None).unwrap();
        let address = Address::from("10.1.0.5/24".parse::<ipnetwork::IpNetwork>().unwrap());
        node.kernel.run(addr::add(&hardware, &address)).unwrap();
        let before = Before::read(node.kernel, &hardware).unwrap();

        let moved = link::transfer(&hardware, node, container, &name("eth0"), Some("hw0")).unwrap();
        assert_eq!((moved.name.as_str(), moved.alias.as_deref()), ("eth0", Some("hw0")));
        assert_eq!((moved.mac, moved.mtu_bytes, moved.up), (hardware.mac, 1300, false));
        assert_eq!(addr::list(container.kernel, &moved).unwrap(), []);
        assert_eq!(link::find(node.kernel, "hw0").unwrap(), None);

        let back = link::transfer(&moved, container, node, &mac0, Some("")).unwrap();
        assert_eq!((back.name.as_str(), back.alias.as_deref(), back.up), ("hw0", None, false));
        assert_eq!(link::list(container.kernel, None).unwrap().len(), 1);
        node.kernel.run_all(before.restore(&back)).unwrap();
        assert!(link::get(node.kernel, &(&back).into()).unwrap().up);
        assert!(addr::list(node.kernel, &back).unwrap().contains(&address));
    });
}

#[test]
fn a_link_stays_where_the_new_name_is_taken() {
    on_two(|node, container| {
        let below = lower(node, "br0");
        lower(container, "eth0");
        let mac0 = name("hw0");
        let new =
            NewLink { lower: Some(below.index), up: true, ..NewLink::new(&mac0, Kind::Macvlan(Macvlan::default())) };
        let hardware = link::create(node.kernel, &new, None).unwrap();
        let error = link::transfer(&hardware, node, container, &name("eth0"), None).unwrap_err();
        assert_eq!(error.os_errno(), Some(Errno::EEXIST));
        assert_eq!(link::get(node.kernel, &Target::named("hw0")).unwrap(), hardware);
        // A bridge cannot leave.
        let error = link::transfer(&below, node, container, &name("eth7"), None).unwrap_err();
        assert_eq!(error.os_errno(), Some(Errno::EINVAL), "{error}");
        let stayed = link::get(node.kernel, &Target::named("br0")).unwrap();
        assert_eq!((stayed.index, stayed.up), (below.index, true));
    });
}

#[test]
fn a_link_in_a_container_is_removed_from_there_and_a_second_removal_succeeds() {
    // A removal notes its helper in `/run`, which is the node's own here.
    let _node = testns::Node::new();
    on_two(|node, container| {
        let below = lower(node, "br0");
        let eth0 = name("eth0");
        let new = NewLink { lower: Some(below.index), ..NewLink::new(&eth0, Kind::Macvlan(Macvlan::default())) };
        let made = link::create(node.kernel, &new, Some(container)).unwrap();
        // The same index on the node is another link's.
        assert!(link::find_index(node.kernel, made.index).unwrap().is_some());
        for _ in 0..2 {
            link_removal::remove_in(container.netns, Kernel::in_netns(container.netns).unwrap(), &made).unwrap();
            assert_eq!(link::find(container.kernel, "eth0").unwrap(), None);
        }
        assert_eq!(link::list(node.kernel, None).unwrap().len(), 2);
        let lo = link::get(container.kernel, &Target::named("lo")).unwrap();
        let error =
            link_removal::remove_in(container.netns, Kernel::in_netns(container.netns).unwrap(), &lo).unwrap_err();
        assert_eq!((error.os_errno(), error.place.as_str()), (Some(Errno::EOPNOTSUPP), container.kernel.place()));
    });
}

/// The container chose neither the question nor the answer, though it can send to the socket in its namespace.
#[test]
fn messages_that_the_kernel_did_not_send_are_dropped() {
    on_two(|_, container| {
        let port = getsockname::<NetlinkAddr>(container.kernel.as_fd().as_raw_fd()).unwrap();
        // NLMSG_ERROR, sequence 1: no such device.
        let mut forged = Vec::new();
        forged.extend(36_u32.to_ne_bytes());
        forged.extend([2_u16.to_ne_bytes(), 0_u16.to_ne_bytes()].concat());
        forged.extend([1_u32.to_ne_bytes(), [0; 4], (-19_i32).to_ne_bytes()].concat());
        forged.resize(36, 0);
        let send = || {
            let flags = SockFlag::SOCK_CLOEXEC;
            let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkRoute).unwrap();
            sendto(socket.as_raw_fd(), &forged, &port, MsgFlags::empty()).unwrap();
        };
        container.netns.run(send).unwrap();
        let lo = link::get(container.kernel, &Target::named("lo")).unwrap();
        assert!(lo.loopback);
    });
}

#[test]
fn a_pattern_is_not_a_link_name() {
    on_two(|node, container| {
        assert!(LinkName::parse("eth%d").is_err());
        let veth = Veth { peer_netns: Some(container.netns), ..Veth::new("vethx", "eth%d") };
        link::create_veth(node.kernel, &veth).unwrap_err();
        assert_eq!(link::list(node.kernel, None).unwrap().len(), 1);
        assert_eq!(link::list(container.kernel, None).unwrap().len(), 1);
    });
}
