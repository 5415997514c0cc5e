//! Rules and changes of other programs.

use cni_filter::Filter;
use cni_filter::iptables::rule::{Rule, Target};
use cni_filter::iptables::{Edit, NewRule, TableName};
use netops::nft::Family;

use crate::node::{in_netns_with, sh};

/// The same rules in nf_tables' own expressions, which other versions of iptables and nft(8) use.
#[test]
fn native_rules_of_nf_tables_are_recognised() {
    in_netns_with("nft", || {
        let check = |family: Family, nft: &str, expected: &str| {
            sh(&format!(
                "nft 'add table {family} nat; add chain {family} nat CNI-B; add chain {family} nat CNI-A;
                      flush chain {family} nat CNI-A; add rule {family} nat CNI-A {nft}' 2>&1"
            ));
            let mut filter = Filter::open("").unwrap();
            let mut table = filter.iptables(family, TableName::Nat).unwrap().unwrap();
            let found = table.list("CNI-A").unwrap().unwrap();
            let says = found[0].rule.as_ref().map(|rule| rule.to_string());
            assert_eq!(says.as_deref().unwrap_or("nothing").trim_start(), expected, "{nft}");
        };
        let (ip, ip6) = (Family::Ip, Family::Ip6);
        check(
            ip,
            "ip saddr 10.1.0.2 counter jump CNI-B comment \"a b\"",
            "-s 10.1.0.2/32 -m comment --comment \"a b\" -j CNI-B",
        );
        check(ip, "ip saddr 0.0.0.0/8 ip daddr 10.1.2.0/23 counter accept", "-s 0.0.0.0/8 -d 10.1.2.0/23 -j ACCEPT");
        check(ip, "ip daddr != 224.0.0.0/4 counter masquerade", "! -d 224.0.0.0/4 -j MASQUERADE");
        check(ip6, "ip6 daddr != ff00::/8 masquerade", "! -d ff00::/8 -j MASQUERADE");
        check(ip6, "ip6 saddr fd00::/61 return", "-s fd00::/61 -j RETURN");
        check(ip, "fib daddr type local counter jump CNI-B", "-m addrtype --dst-type LOCAL -j CNI-B");
        check(
            ip,
            "tcp dport 8080 ip saddr 10.1.0.0/24 jump CNI-B",
            "-s 10.1.0.0/24 -p tcp -m tcp --dport 8080 -j CNI-B",
        );
        check(
            ip,
            "ip daddr 192.0.2.1 udp dport 53 dnat to 10.1.0.2:5353",
            "-d 192.0.2.1/32 -p udp -m udp --dport 53 -j DNAT --to-destination 10.1.0.2:5353",
        );
        check(
            ip6,
            "sctp dport 80 dnat to [fd01::2]:81",
            "-p sctp -m sctp --dport 80 -j DNAT --to-destination [fd01::2]:81",
        );
        check(ip, "dnat to 10.1.0.2", "-j DNAT --to-destination 10.1.0.2");
        check(ip, "meta mark & 0x2000 == 0x2000 masquerade", "-m mark --mark 0x2000/0x2000 -j MASQUERADE");
        check(ip, "meta mark 0x1 masquerade", "-m mark --mark 0x1 -j MASQUERADE");
        check(ip, "meta mark set mark or 0x2000", "-j MARK --set-xmark 0x2000/0x2000");
        check(ip, "meta mark set 0x5", "-j MARK --set-xmark 0x5/0xffffffff");
        check(ip, "ct state established,related accept", "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT");
        check(ip, "iifname \"cni0\" oifname != \"cni*\" drop", "-i cni0 ! -o cni+ -j DROP");
        // Rules that do more, or other things, are not taken for simpler ones.
        for nft in [
            "ip saddr 10.1.0.2 ip saddr 10.1.0.3 accept",
            "ip saddr 10.1.0.2 ip ttl 3 accept",
            "ip saddr { 10.1.0.2, 10.1.0.3 } accept",
            "ip saddr 10.1.0.2-10.1.0.9 accept",
            "ip saddr & 255.0.255.0 == 10.0.1.0 accept",
            "tcp sport 80 accept",
            "tcp dport != 80 accept",
            "meta mark != 0x1 accept",
            "ct state new accept",
            "ct state != established accept",
            "fib daddr type multicast accept",
            "fib saddr type local accept",
            "masquerade random",
            "dnat to 10.1.0.2-10.1.0.9",
            "snat to 10.1.0.2",
            "goto CNI-B",
            "ip saddr 10.1.0.2 limit rate 1/second accept",
            "ip saddr 10.1.0.2 meta mark set 0x1 accept",
        ] {
            check(ip, nft, "nothing");
        }
    });
}

/// A change of another process between a look and its change makes it look again; a policy that is there stays.
#[test]
fn a_change_is_refused_if_the_ruleset_changed_since_it_was_read() {
    in_netns_with("iptables-nft", || {
        sh("iptables -P FORWARD DROP");
        let mut filter = Filter::open("").unwrap();
        let mut table = filter.iptables(Family::Ip, TableName::Filter).unwrap().unwrap();
        let mut looks = 0;
        table
            .change(|_| {
                looks += 1;
                if looks == 1 {
                    sh("iptables -A FORWARD -s 192.0.2.1 -j ACCEPT");
                }
                let rule = Rule { target: Target::Return, ..Rule::default() };
                Ok(vec![Edit::Prepend(NewRule { chain: "FORWARD".to_owned(), rule, note: None })])
            })
            .unwrap();
        assert_eq!(looks, 2);
        let saved = sh("iptables -S FORWARD");
        assert_eq!(saved, "-P FORWARD DROP\n-A FORWARD -j RETURN\n-A FORWARD -s 192.0.2.1/32 -j ACCEPT\n");
    });
}
