//! A call with more requests in a row than the answers of one send have room for.

#![expect(clippy::unwrap_used, reason = "a test that cannot set up its objects fails")]

use ipnetwork::IpNetwork;
use netops::addr::{self, Address};
use netops::link::{self, Bridge, Settings, Target};
use netops::route::{self, Route};
use netops::{Errno, Kernel, Netns};

const COUNT: u32 = 600;

fn networks(first: u32, prefix: u8) -> impl Iterator<Item = IpNetwork> {
    let address = move |n: u32| std::net::Ipv4Addr::from_bits(first + (n << 8)).into();
    (0..COUNT).map(move |n| IpNetwork::new(address(n), prefix).unwrap())
}

#[test]
fn hundreds_of_addresses_and_routes_are_set_and_deleted_in_one_go() {
    Netns::run_in_new(|| {
        let net = Kernel::host().unwrap();
        net.run(link::create_bridge("br0", &Bridge::default())).unwrap();
        let up = Settings { up: Some(true), ..Settings::default() };
        let br0 = link::set_and_get(&net, &Target::named("br0"), &up).unwrap();
        let addresses: Vec<Address> = networks(0x0a00_0001, 24).map(Address::from).collect();
        net.run_all(addresses.iter().map(|address| addr::add(&br0, address)).collect()).unwrap();
        let kept = addr::list(&net, &br0).unwrap();
        assert_eq!(kept.iter().filter(|address| address.net.is_ipv4()).count(), COUNT as usize);
        let routes: Vec<Route> = networks(0x0c00_0000, 24).map(|to| Route::new(to, None, Some(br0.index))).collect();
        net.run_all(routes.iter().map(route::add).collect()).unwrap();
        let found = || route::list(&net, Some(br0.index), Some(route::MAIN_TABLE), netops::Family::V4).unwrap().len();
        assert_eq!(found(), 2 * COUNT as usize);
        // The first refusal is reported, wherever it is.
        let last = routes.last().unwrap();
        net.run(route::delete(last)).unwrap();
        let error = net.run_all(routes.iter().map(route::delete).collect()).unwrap_err();
        assert_eq!((error.os_errno(), error.object), (Some(Errno::ESRCH), format!("route {last}")));
        assert_eq!(found(), COUNT as usize);
    })
    .unwrap();
}
