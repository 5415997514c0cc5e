//! netops on real kernel objects: each test in namespaces of its own.

#![expect(clippy::unwrap_used, reason = "a test that cannot set up its objects fails")]

mod removal;

use std::future::Future;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::time::Duration;

use netops::addr::{self, Address};
use netops::bridge_port::{self, Vlans};
use netops::error::Cause;
use netops::link::{self, Bridge, Link, Mac, Port, Settings, Target, Veth};
use netops::route::{self, Route};
use netops::watch::Watch;
use netops::{Errno, Family, Kernel, Netns, OpError, link_removal, veth_peer};

/// A node namespace, and a container's namespace seen from it.
fn on_node(test: impl FnOnce(&Kernel, &Netns) + Send) {
    let container = Netns::create().unwrap();
    let container = Netns::open(format!("/proc/self/fd/{}", container.as_raw_fd())).unwrap();
    Netns::run_in_new(|| test(&Kernel::host().unwrap(), &container)).unwrap();
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(work)
}

fn bridge(net: &Kernel, name: &str) -> Link {
    net.run(link::create_bridge(name, &Bridge::default())).unwrap();
    up(net, &Target::named(name))
}

fn up(net: &Kernel, target: &Target) -> Link {
    let settings = Settings { up: Some(true), ..Settings::default() };
    link::set_and_get(net, target, &settings).unwrap()
}

fn veth(net: &Kernel, container: &Netns, master: &Link) -> Link {
    let veth = Veth {
        master: Some(master.index),
        alias: "cni:net/c1/eth0",
        mtu_bytes: Some(1400),
        peer_mac: Some(Mac([2, 0, 0, 0, 0, 5])),
        peer_netns: Some(container),
        ..Veth::new("vethx", "eth0")
    };
    link::create_veth(net, &veth).unwrap()
}

#[test]
fn a_veth_is_made_in_place_with_everything_asked_for() {
    on_node(|net, container| {
        let br0 = bridge(net, "br0");
        let host = veth(net, container, &br0);
        assert_eq!((host.kind.name(), host.mtu_bytes, host.up), ("veth", 1400, false));
        assert_eq!(host.master, Some(br0.index));
        assert_eq!(host.alias.as_deref(), Some("cni:net/c1/eth0"));
        let inside = Kernel::in_netns(container).unwrap();
        let eth0 = link::find(&inside, "eth0").unwrap().unwrap();
        assert_eq!(eth0.mac, Some(Mac([2, 0, 0, 0, 0, 5])));
        assert_eq!(eth0.mtu_bytes, 1400);
        assert_eq!((eth0.peer, host.peer), (Some(host.index), Some(eth0.index)));
        assert!(host.peer_netns_id.is_some());
        assert_eq!(link::list(net, Some(br0.index)).unwrap(), [host]);
    });
}

#[test]
fn a_taken_name_leaves_nothing_and_the_error_names_both() {
    on_node(|net, container| {
        let br0 = bridge(net, "br0");
        veth(net, container, &br0);
        let second = Veth { peer_netns: Some(container), ..Veth::new("vethy", "eth0") };
        let error = link::create_veth(net, &second).unwrap_err();
        assert_eq!(error.os_errno(), Some(Errno::EEXIST));
        let start = "cannot create veth vethy with peer eth0 in /proc/";
        assert!(error.to_string().starts_with(start), "{error}");
        assert_eq!(link::find(net, "vethy").unwrap(), None);
    });
}

/// DEL knows by the mark whose a link is, and deletes it.
#[test]
fn another_link_with_the_name_does_not_get_the_alias() {
    on_node(|net, container| {
        net.run(link::create_bridge("vethx", &Bridge::default())).unwrap();
        let taken = Veth { alias: "cni:net/c1/eth0", peer_netns: Some(container), ..Veth::new("vethx", "eth0") };
        assert_eq!(link::create_veth(net, &taken).unwrap_err().os_errno(), Some(Errno::EEXIST));
        assert_eq!(link::get(net, &Target::named("vethx")).unwrap().alias, None);
    });
}

#[test]
fn an_error_quotes_the_extended_ack() {
    on_node(|net, _| {
        let lo = link::get(net, &Target::named("lo")).unwrap();
        let gateway: IpAddr = "10.9.9.9".parse().unwrap();
        let route = Route::new("10.1.0.0/16".parse().unwrap(), Some(gateway), Some(lo.index));
        up(net, &(&lo).into());
        let error = net.run(route::add(&route)).unwrap_err();
        let Cause::Kernel { extended_ack: Some(extended_ack), .. } = &error.cause else {
            panic!("no extended ack in {error:?}");
        };
        assert!(extended_ack.contains("gateway"), "{extended_ack}");
        assert!(error.to_string().starts_with("cannot add route 10.1.0.0/16 via 10.9.9.9 on the host: "), "{error}");
        assert!(error.details().starts_with("RTM_NEWROUTE 10.1.0.0/16 via 10.9.9.9 oif=1: "), "{}", error.details());
    });
}

#[test]
fn several_requests_at_once_keep_their_own_outcomes() {
    on_node(|net, _| {
        let outcome = net.run_all(vec![
            link::create_bridge("br0", &Bridge::default()),
            link::create_bridge("br0", &Bridge::default()),
            link::create_bridge("br1", &Bridge::default()),
        ]);
        assert_eq!(outcome.unwrap_err().os_errno(), Some(Errno::EEXIST));
        assert!(link::find(net, "br1").unwrap().is_some());
    });
}

#[test]
fn a_wait_for_a_link_to_come_up_ends_with_its_announcement() {
    on_node(|net, container| {
        let br0 = bridge(net, "br0");
        let host = veth(net, container, &br0);
        let inside = Kernel::in_netns(container).unwrap();
        block_on(async {
            let mut watch = Watch::host().unwrap();
            let host = up(net, &(&host).into());
            let early = watch.until_up(net, &host, Duration::from_millis(30)).await.unwrap_err();
            assert!(matches!(early.cause, Cause::Timeout(_)), "{early}");
            up(&inside, &Target::named("eth0"));
            watch.until_up(net, &host, Duration::from_secs(10)).await.unwrap();
        });
    });
}

#[test]
fn a_wait_ends_by_the_announcement_alone() {
    on_node(|net, container| {
        let br0 = bridge(net, "br0");
        let host = veth(net, container, &br0);
        let target = Target::from(&host);
        block_on(async {
            let mut watch = Watch::host().unwrap();
            let mut looks = 0;
            let object = String::from("for the alias");
            let found = watch.until(net, host.index, object, Duration::from_secs(10), |net| {
                looks += 1;
                if looks == 1 {
                    // Changed after the first look: only the announcement can bring the second.
                    let settings = Settings { mtu_bytes: Some(1300), ..Settings::default() };
                    net.run(link::set(&target, &settings))?;
                    return Ok(None);
                }
                Ok(Some(link::get(net, &target)?.mtu_bytes))
            });
            assert_eq!(found.await.unwrap(), 1300);
        });
    });
}

/// Only what both ends say of each other counts: a container chooses the indexes of its own links.
#[test]
fn the_host_end_of_a_veth_is_found_only_if_both_ends_name_each_other() {
    on_node(|net, container| {
        let br0 = bridge(net, "br0");
        let host = veth(net, container, &br0);
        let inside = Kernel::in_netns(container).unwrap();
        let eth0 = link::get(&inside, &Target::named("eth0")).unwrap();
        assert_eq!(veth_peer::find_host_end(net, &inside, container, &eth0).unwrap(), Some(host.clone()));
        // In the container, with the numbers of the host's.
        net.run(link_removal::request(&(&host).into())).unwrap();
        let victim = veth(net, &Netns::create().unwrap(), &br0);
        let (own, peer) = (victim.peer.unwrap().to_string(), victim.index.to_string());
        let forge = ["link", "add", "eth0", "index", &own, "type", "veth", "peer", "name", "zz", "index", &peer];
        let made = container.run(|| std::process::Command::new("ip").args(forge).status().unwrap());
        assert!(made.unwrap().success());
        let forged = link::get(&inside, &Target::named("eth0")).unwrap();
        assert_eq!((forged.peer, Some(forged.index)), (Some(victim.index), victim.peer));
        assert_eq!(veth_peer::find_host_end(net, &inside, container, &forged).unwrap(), None);
        // The victim's own container is another one.
        assert_eq!(
            veth_peer::find_host_end(net, &inside, container, &Link { peer_netns_id: Some(0), ..forged }).unwrap(),
            None
        );
    });
}

#[test]
fn a_text_that_cannot_be_a_link_name_finds_no_link() {
    on_node(|net, _| {
        let long = "v".repeat(70_000);
        for text in ["sixteen-letters-", "", ".", "..", "a/b", "a:b", "a b", "a\0", "a\u{a0}", &long] {
            assert!(!link::is_name(text));
            assert_eq!(link::find(net, text).unwrap(), None);
        }
        assert!(link::is_name("fifteen-letters") && link::is_name("lo"));
    });
}

#[test]
fn settings_and_port_flags_read_back() {
    on_node(|net, container| {
        let br0 = bridge(net, "br0");
        let host = veth(net, container, &br0);
        let settings = Settings {
            mac: Some(Mac([2, 0, 0, 0, 0, 9])),
            mtu_bytes: Some(1300),
            promisc: Some(true),
            allmulti: Some(true),
            tx_queue_len: Some(77),
            group: Some(7),
            ..Settings::default()
        };
        let link = link::set_and_get(net, &(&host).into(), &settings).unwrap();
        assert_eq!((link.mac, link.mtu_bytes, link.promisc), (settings.mac, 1300, true));
        assert_eq!((link.allmulti, link.tx_queue_len, link.group), (true, 77, 7));
        let port = Port { hairpin: true, isolated: true };
        net.run(bridge_port::set(&(&host).into(), port)).unwrap();
        assert_eq!(link::find_index(net, host.index).unwrap().unwrap().port, Some(port));
        let free = Settings { master: Some(0), promisc: Some(false), allmulti: Some(false), ..Settings::default() };
        let link = link::set_and_get(net, &(&host).into(), &free).unwrap();
        assert_eq!((link.master, link.port, link.promisc, link.allmulti), (None, None, false, false));
    });
}

#[test]
fn addresses_of_one_link_are_listed_with_their_flags() {
    on_node(|net, _| {
        let br0 = bridge(net, "br0");
        let br1 = bridge(net, "br1");
        let v4 = Address::from("10.1.0.1/24".parse::<ipnetwork::IpNetwork>().unwrap());
        let v6 = Address { nodad: true, ..Address::from("fd00::1/64".parse::<ipnetwork::IpNetwork>().unwrap()) };
        net.run_all(vec![
            addr::add(&br0, &v4),
            addr::add(&br0, &v6),
            addr::add(&br1, &"10.2.0.1/24".parse::<ipnetwork::IpNetwork>().unwrap().into()),
        ])
        .unwrap();
        let again = net.run(addr::add(&br0, &v4)).unwrap_err();
        assert_eq!(again.os_errno(), Some(Errno::EEXIST));
        let listed = addr::list(net, &br0).unwrap();
        assert!(listed.contains(&v4) && listed.contains(&v6), "{listed:?}");
        assert!(!listed.iter().any(|address| address.net.to_string() == "10.2.0.1/24"));
        net.run(addr::delete(&br0, v4.net)).unwrap();
        let gone = net.run(addr::delete(&br0, v4.net)).unwrap_err();
        assert!(gone.is_absent());
    });
}

#[test]
fn routes_keep_table_metric_mtu_and_equal_destinations() {
    on_node(|net, container| {
        let br0 = bridge(net, "br0");
        let host = veth(net, container, &br0);
        let inside = Kernel::in_netns(container).unwrap();
        up(net, &(&host).into());
        let eth0 = up(&inside, &Target::named("eth0"));
        let address = "10.1.0.5/24".parse::<ipnetwork::IpNetwork>().unwrap();
        inside.run(addr::add(&eth0, &address.into())).unwrap();
        let via = |last: u8| Some(IpAddr::from([10, 1, 0, last]));
        let mut rich = Route::new("10.9.0.0/16".parse().unwrap(), via(1), Some(eth0.index));
        rich.table = Some(1000);
        rich.metric = Some(50);
        rich.mtu_bytes = Some(1200);
        rich.advmss_bytes = Some(1160);
        inside.run(route::add(&rich)).unwrap();
        let listed = route::list(&inside, Some(eth0.index), Some(1000), Family::V4).unwrap();
        rich.scope = Some(0);
        assert_eq!(listed, [rich.clone()]);
        assert_eq!(route::list(&inside, Some(eth0.index), Some(77), Family::V4).unwrap(), []);

        let default = |last| Route::new("0.0.0.0/0".parse().unwrap(), via(last), Some(eth0.index));
        inside.run_all(vec![route::add(&default(1)), route::add(&default(2))]).unwrap();
        let twice = inside.run(route::add(&default(1))).unwrap_err();
        assert_eq!(twice.os_errno(), Some(Errno::EEXIST));
        let main = route::list(&inside, Some(eth0.index), Some(route::MAIN_TABLE), Family::V4).unwrap();
        assert_eq!(main.iter().filter(|route| route.dst.prefix() == 0).count(), 2);
        let there = route::lookup(&inside, [192, 0, 2, 1].into()).unwrap();
        assert_eq!(there.link, Some(eth0.index));
        inside.run(route::delete(&rich)).unwrap();
        assert!(inside.run(route::delete(&rich)).unwrap_err().is_absent());
    });
}

#[test]
fn routes_are_replaced_all_or_none() {
    on_node(|net, container| {
        let br0 = bridge(net, "br0");
        veth(net, container, &br0);
        up(net, &Target::named("vethx"));
        let inside = Kernel::in_netns(container).unwrap();
        let eth0 = up(&inside, &Target::named("eth0"));
        for address in ["10.1.0.5/24", "fd01::5/64"] {
            inside
                .run(addr::add(
                    &eth0,
                    &Address { nodad: true, ..Address::from(address.parse::<ipnetwork::IpNetwork>().unwrap()) },
                ))
                .unwrap();
        }
        let default =
            |dst: &str, via: &str| Route::new(dst.parse().unwrap(), Some(via.parse().unwrap()), Some(eth0.index));
        let routes = [default("0.0.0.0/0", "10.1.0.1"), default("::/0", "fd01::1")];
        inside.run_all(routes.iter().map(route::add).collect()).unwrap();
        let old = route::list_default(&inside, "eth0").unwrap();
        assert_eq!(old.len(), 2);
        let smaller: Vec<Route> = old.iter().map(|old| Route { mtu_bytes: Some(1300), ..old.clone() }).collect();
        route::replace(&inside, &old, &smaller).unwrap();
        assert_eq!(route::list_default(&inside, "eth0").unwrap(), smaller);
        // The second has a gateway that no link leads to.
        let mut refused = old;
        refused[1].gateway = Some("fd99::1".parse().unwrap());
        let error = route::replace(&inside, &smaller, &refused).unwrap_err();
        assert!(error.to_string().contains("via fd99::1"), "{error}");
        assert_eq!(route::list_default(&inside, "eth0").unwrap(), smaller);
        assert_eq!(route::list_default(&inside, "eth7").unwrap_err().os_errno(), Some(Errno::ENODEV));
    });
}

#[test]
fn vlans_of_a_port() {
    on_node(|net, container| {
        let made = net.run(link::create_bridge("br0", &Bridge { vlan_filtering: true, ..Bridge::default() }));
        if let Err(error) = made {
            assert_eq!(error.os_errno(), Some(Errno::EOPNOTSUPP), "{error}");
            testns::skip("vlans_of_a_port", "the kernel has no bridge VLAN filtering");
            return;
        }
        let br0 = link::get(net, &Target::named("br0")).unwrap();
        assert_eq!(br0.kind.bridge_vlans().filtering, Some(true));
        let host = veth(net, container, &br0);
        net.run_all(vec![
            bridge_port::delete_vlans(&host, Vlans::tagged(1, 1)),
            bridge_port::add_vlans(&host, Vlans::access(100)),
            bridge_port::add_vlans(&host, Vlans::tagged(200, 202)),
        ])
        .unwrap();
        let texts: Vec<String> =
            bridge_port::list_vlans(net, br0.index, host.index).unwrap().iter().map(Vlans::to_string).collect();
        assert_eq!(texts, ["vid 100 pvid untagged", "vid 200", "vid 201", "vid 202"]);
    });
}

#[test]
fn errors_in_a_container_name_its_namespace() {
    on_node(|_, container| {
        let inside = Kernel::in_netns(container).unwrap();
        let error: OpError = link::get(&inside, &Target::named("eth9")).unwrap_err();
        let expected = format!("cannot get link eth9 on {}: no such device", container.path().display());
        assert_eq!(error.to_string(), expected);
        assert_eq!(error.details(), "RTM_GETLINK dev=eth9: ENODEV (19)");
    });
}
