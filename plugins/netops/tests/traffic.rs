//! Rules, tables and queues, in throwaway namespaces.

#![expect(clippy::unwrap_used, reason = "a test that cannot set up its objects fails")]

use std::process::Command;

use netops::link::{self, Bridge, Link, Settings, Target};
use netops::route::{self, Route};
use netops::rule::{self, Rule};
use netops::tc::htb::{End, Htb};
use netops::tc::{self, Qdisc, Tbf};
use netops::{Kernel, Netns};

fn on_node(test: impl FnOnce(&Kernel) + Send) {
    Netns::run_in_new(|| test(&Kernel::host().unwrap())).unwrap();
}

fn bridge(net: &Kernel, name: &str) -> Link {
    net.run(link::create_bridge(name, &Bridge::default())).unwrap();
    let up = Settings { up: Some(true), ..Settings::default() };
    link::set_and_get(net, &Target::named(name), &up).unwrap()
}

/// What `tc` or `ip` prints, in the test's namespace.
fn printed(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_free_table_has_no_rule_and_no_route() {
    on_node(|net| {
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
    on_node(|net| {
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
    on_node(|net| {
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
