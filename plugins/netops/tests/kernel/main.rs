//! netops on real kernel objects: each test in namespaces of its own.

#![expect(clippy::unwrap_used, reason = "a test that cannot set up its objects fails")]

mod removal;

use std::cell::Cell;
use std::future::Future;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::task::Poll;
use std::time::Duration;

use netops::addr::{self, Address};
use netops::all_namespaces::AllNamespaces;
use netops::bridge_port::{self, Vlans};
use netops::error::Cause;
use netops::link::{self, Bridge, Link, Mac, Port, Settings, Target, Veth};
use netops::packet::LinkUdp;
use netops::route::{self, Route};
use netops::rule::{self, Rule};
use netops::tc::htb::{End, Htb};
use netops::tc::{self, Qdisc, Tbf};
use netops::watch::Watch;
use netops::{Errno, Family, Kernel, Netns, OpError, link_removal, veth_peer};
use testns::Feature;

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
        let made = container.run(|| Command::new("ip").args(forge).status().unwrap());
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

/// What `tc` or `ip` prints, in the test's namespace.
fn printed(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_free_table_has_no_rule_and_no_route() {
    on_node(|net, _| {
        let br0 = bridge(net, "br0");
        assert_eq!(rule::free_table(net, 100).unwrap(), Some(100));
        net.run(rule::add(&Rule { source: "fd00::5/128".parse().unwrap(), table: 100, priority: None })).unwrap();
        let route = Route::new("10.9.0.0/16".parse().unwrap(), None, Some(br0.index));
        net.run(route::add(&Route { table: Some(101), ..route })).unwrap();
        assert_eq!(rule::free_table(net, 100).unwrap(), Some(102));
        assert_eq!(rule::free_table(net, 253).unwrap(), Some(256));
    });
}

/// 8 Mbit/s, bursts of 100 kB, 25 ms: the numbers of the reference.
#[test]
fn a_token_bucket_reads_back_and_is_what_tc_prints() {
    on_node(|net, _| {
        let br0 = bridge(net, "br0");
        let tbf = Tbf::new(1_000_000, 100_000, 25_000);
        assert_eq!(tbf, Tbf { rate_bytes: 1_000_000, limit_bytes: 125_000, buffer_ticks: 1_562_500 });
        net.run(tc::add(&br0, &Qdisc::Tbf(tbf))).unwrap();
        assert_eq!(tc::find_root(net, &br0).unwrap(), Some(Qdisc::Tbf(tbf)));
        let shown = printed("tc", &["qdisc", "show", "dev", "br0"]);
        assert!(tbf.is_for(25_000) && !tbf.is_for(50_000));
        assert!(shown.contains("qdisc tbf 1: root") && shown.contains("rate 8Mbit burst 100000b"), "{shown}");
        net.run(tc::delete(&br0, &Qdisc::Tbf(tbf))).unwrap();
        // 40 Gbit/s do not fit 32 bits of bytes.
        let fast = Tbf::new(5_000_000_000, 10_000_000, 25_000);
        net.run(tc::add(&br0, &Qdisc::Tbf(fast))).unwrap();
        assert_eq!(tc::find_root(net, &br0).unwrap(), Some(Qdisc::Tbf(fast)));
    });
}

#[test]
fn a_limit_of_some_networks_reads_back_and_is_what_tc_prints() {
    on_node(|net, _| {
        let br0 = bridge(net, "br0");
        let networks = ["10.128.0.0/9", "fd00:1:2:3::/60", "0.0.0.0/0"].map(|text| text.parse().unwrap());
        for (rate, printed_rate) in [(1_000_000, "rate 8Mbit ceil 8Mbit"), (5_000_000_000, "rate 40Gbit ceil 40Gbit")] {
            let htb = Htb::new((rate, 1_562_500), true, End::Source, &networks);
            net.run_all([vec![tc::add(&br0, &htb.root())], htb.below_root(&br0)].concat()).unwrap();
            assert_eq!(Htb::find(net, &br0).unwrap(), Some(htb.clone()));
            let shown = ["class", "filter"].map(|what| printed("tc", &[what, "show", "dev", "br0"])).concat();
            for part in [printed_rate, "0a800000/ff800000 at 12", "fd000001/ffffffff at 8", "00020000/fffffff0 at 12"] {
                assert!(shown.contains(part), "{part}: {shown}");
            }
            net.run(tc::delete(&br0, &htb.root())).unwrap();
        }
    });
}

/// A flood would otherwise keep all other tasks of the thread from running.
#[test]
fn socket_that_is_never_empty_leaves_time_for_other_tasks() {
    on_node(|net, _| {
        let lo = up(net, &Target::named("lo"));
        block_on(async {
            let receiver = LinkUdp::open(&Netns::current().unwrap(), &lo, 68).unwrap();
            let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
            for _ in 0..200 {
                sender.send_to(b"x", ("127.0.0.1", 68)).unwrap();
            }
            let received = Cell::new(0);
            let all = async {
                while received.get() < 200 {
                    receiver.receive().await.unwrap();
                    received.set(received.get() + 1);
                }
            };
            let has_turn = std::future::poll_fn(|context| {
                context.waker().wake_by_ref();
                if (1..200).contains(&received.get()) { Poll::Ready(()) } else { Poll::Pending }
            });
            tokio::select! {
                biased;
                () = all => panic!("no other task had a turn before the socket was empty"),
                () = has_turn => (),
            }
        });
    });
}

/// A namespace without a process, which only another mount namespace has mounted.
const HOLDER: &str = "mount -t tmpfs tmpfs /mnt; : > /mnt/pod; unshare --net=/mnt/pod sh -ec \
    'ip tuntap add eth0 mode tap; ip address add 10.7.0.9/24 dev eth0'; echo ready; read -r _";

#[test]
fn a_namespace_that_another_mount_namespace_holds_is_searched() {
    if !Feature::Tun.is_here() {
        return testns::note("SKIPPED: there is no tun");
    }
    let address = "10.7.0.9".parse().unwrap();
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--propagation", "private", "sh", "-ec", HOLDER]);
    let mut holder = unshare.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    assert_eq!(AllNamespaces::read().find(&[address]), Some(true));
    drop(holder.stdin.take());
    holder.wait().unwrap();
    assert_eq!(AllNamespaces::read().find(&[address]), Some(false));
}
