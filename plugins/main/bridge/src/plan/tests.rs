use expect_test::{Expect, expect};

use super::*;
use crate::gateways::{AddressChanges, address_changes};
use cni_spec::{ConfObject, FromConf};

/// The plan for these keys and this lease, or its error.
fn check(keys: &str, lease: Option<&str>, expected: &Expect) {
    let shown = match plan(keys, lease) {
        Ok(plan) => plan.to_string(),
        Err(error) => format!("code {}: {error}", error.code.0),
    };
    expected.assert_eq(&shown);
}

fn plan(keys: &str, lease: Option<&str>) -> Result<Plan, CniError> {
    let conf = Conf::from_conf(&ConfObject::parse(format!("{{\"name\":\"net\"{keys}}}").as_bytes())?)?;
    let lease = match lease {
        Some(lease) => {
            Some(AddResult::from_value(&cni_spec::json::parse(lease.as_bytes())?, cni_spec::SpecVersion::LATEST)?)
        }
        None => None,
    };
    super::plan(&conf, &Attachment::parse("net", "c1", "eth0")?, conf.mac, lease)
}

const V4: &str = r#"{"ips":[{"address":"10.1.0.5/24"}]}"#;
const DUAL: &str = r#"{"ips":[{"address":"10.1.0.5/24","gateway":"10.1.0.254"},{"address":"fd00::5/64"}],
    "routes":[{"dst":"0.0.0.0/0"},{"dst":"10.9.0.0/16","gw":"10.1.0.7","mtu":1400,"advmss":1360,"priority":50,"table":100,"scope":0}]}"#;

#[test]
fn layer_2() {
    check(
        "",
        None,
        &expect![[r#"
            ip link add cni0 type bridge
            sysctl net/ipv6/conf/cni0/accept_ra=0
            ip link set cni0 up
            ip link add veth0b29d7cd master cni0 type veth peer eth0
            ip link set veth0b29d7cd alias cni:net/c1/eth0
            ip link set veth0b29d7cd up
            sysctl net/ipv6/conf/veth0b29d7cd/accept_ra=0
            ip link set eth0 up
            wait until eth0 can carry packets
            wait until the port can carry packets
        "#]],
    );
    check(
        r#","disableContainerInterface":true,"promiscMode":true,"groupForwardMask":16384,"multicastSnooping":false"#,
        None,
        &expect![[r#"
            ip link add cni0 type bridge group_fwd_mask 16384 mcast_snooping 0
            sysctl net/ipv6/conf/cni0/accept_ra=0
            ip link set cni0 up promisc on
            ip link add veth0b29d7cd master cni0 type veth peer eth0
            ip link set veth0b29d7cd alias cni:net/c1/eth0
            ip link set veth0b29d7cd up
            sysctl net/ipv6/conf/veth0b29d7cd/accept_ra=0
            eth0 stays down
        "#]],
    );
    check(
        r#","ipMasq":true,"isGateway":true,"vlan":5"#,
        None,
        &expect![[r#"
            ip link add cni0 type bridge vlan_filtering 1
            sysctl net/ipv6/conf/cni0/accept_ra=0
            ip link set cni0 up
            ip link add veth0b29d7cd master cni0 type veth peer eth0
            ip link set veth0b29d7cd alias cni:net/c1/eth0
            sysctl net/ipv6/conf/veth0b29d7cd/accept_ra=0
            bridge vlan del vid 1 dev veth0b29d7cd
            bridge vlan add vid 5 pvid untagged dev veth0b29d7cd
            ip link set veth0b29d7cd up
            sysctl net/ipv6/conf/eth0/accept_ra=0
            ip link set eth0 up
            wait until eth0 can carry packets
            wait until the port can carry packets
        "#]],
    );
}

#[test]
fn a_gateway_of_both_families() {
    check(
        r#","isDefaultGateway":true,"ipMasq":true,"mtu":1400"#,
        Some(DUAL),
        &expect![[r#"
            ip link add cni0 mtu 1400 type bridge
            sysctl net/ipv6/conf/cni0/accept_ra=0
            ip link set cni0 up
            ip link add veth0b29d7cd mtu 1400 master cni0 type veth peer eth0
            ip link set veth0b29d7cd alias cni:net/c1/eth0
            ip link set veth0b29d7cd up
            masquerade 10.1.0.5/24 fd00::5/64 by rules of iptables, or of nf_tables where those cannot be
            sysctl net/ipv6/conf/veth0b29d7cd/accept_ra=0
            sysctl net/ipv6/conf/eth0/accept_ra=0
            sysctl net/ipv6/conf/eth0/accept_dad=0
            sysctl net/ipv6/conf/lo/disable_ipv6=0
            sysctl net/ipv6/conf/eth0/disable_ipv6=0
            sysctl net/ipv6/conf/eth0/keep_addr_on_down=1
            sysctl net/ipv6/conf/eth0/ndisc_notify=1
            sysctl net/ipv4/conf/eth0/arp_notify=1
            ip address add 10.1.0.5/24 dev eth0
            ip link set eth0 up
            ip address add fd00::5/64 dev eth0
            ip route add default via 10.1.0.254 dev eth0
            ip route add 10.9.0.0/16 via 10.1.0.7 table 100 scope 0 metric 50 mtu 1400 advmss 1360 dev eth0
            ip route add default (IPv6) via fd00::1 dev eth0
            wait until eth0 can carry packets
            wait until the port can carry packets
            wait until no address of eth0 is tentative
            announce the addresses of eth0
            ip address add 10.1.0.254/24 dev cni0
            ip address add fd00::1/64 dev cni0 nodad
            ip neigh del 10.1.0.5 dev cni0
            ip neigh del fd00::5 dev cni0
            wait until new gateways answer
            sysctl net/ipv4/ip_forward=1
            sysctl net/ipv6/conf/all/forwarding=1
        "#]],
    );
}

#[test]
fn a_port_in_vlans() {
    check(
        r#","vlan":100,"vlanTrunk":[{"minID":200,"maxID":210}],"isGateway":true,"hairpinMode":true,"macspoofchk":true,
          "runtimeConfig":{"mac":"02:00:00:00:00:05"}"#,
        Some(V4),
        &expect![[r#"
            ip link add cni0 type bridge vlan_filtering 1
            sysctl net/ipv6/conf/cni0/accept_ra=0
            ip link set cni0 up
            ip link add veth0b29d7cd master cni0 type veth peer eth0 address 02:00:00:00:00:05
            ip link set veth0b29d7cd alias cni:net/c1/eth0
            drop what veth0b29d7cd sends from another address than eth0's
            sysctl net/ipv6/conf/veth0b29d7cd/accept_ra=0
            bridge vlan del vid 1 dev veth0b29d7cd
            bridge vlan add vid 200-210 dev veth0b29d7cd
            bridge vlan add vid 100 pvid untagged dev veth0b29d7cd
            bridge link set dev veth0b29d7cd hairpin 1 isolated 0
            ip link set veth0b29d7cd up
            sysctl net/ipv6/conf/eth0/accept_ra=0
            sysctl net/ipv6/conf/eth0/accept_dad=0
            sysctl net/ipv4/conf/eth0/arp_notify=1
            ip address add 10.1.0.5/24 dev eth0
            ip link set eth0 up
            wait until eth0 can carry packets
            wait until the port can carry packets
            announce the addresses of eth0
            ip link add cni0.100 type veth, peer in cni0, vid 100 pvid untagged
            ip address add 10.1.0.1/24 dev cni0.100
            ip neigh del 10.1.0.5 dev cni0.100
            sysctl net/ipv4/ip_forward=1
        "#]],
    );
    check(
        r#","vlanTrunk":[],"preserveDefaultVlan":true,"portIsolation":true"#,
        Some(V4),
        &expect![[r#"
            ip link add cni0 type bridge
            sysctl net/ipv6/conf/cni0/accept_ra=0
            ip link set cni0 up
            ip link add veth0b29d7cd master cni0 type veth peer eth0
            ip link set veth0b29d7cd alias cni:net/c1/eth0
            sysctl net/ipv6/conf/veth0b29d7cd/accept_ra=0
            bridge link set dev veth0b29d7cd hairpin 0 isolated 1
            ip link set veth0b29d7cd up
            sysctl net/ipv6/conf/eth0/accept_dad=0
            sysctl net/ipv4/conf/eth0/arp_notify=1
            ip address add 10.1.0.5/24 dev eth0
            ip link set eth0 up
            wait until eth0 can carry packets
            wait until the port can carry packets
            announce the addresses of eth0
        "#]],
    );
}

#[test]
fn what_no_interface_can_have() {
    check(
        r#","isGateway":true"#,
        Some(r#"{"ips":[{"address":"10.1.0.5/32"}]}"#),
        &expect![
            "code 110: cannot derive a gateway for 10.1.0.5/32: the subnet has no room for one. Set the gateway in the ipam section, or turn off isGateway."
        ],
    );
    check(
        r#","isGateway":true"#,
        Some(r#"{"ips":[{"address":"255.255.255.255/31"}]}"#),
        &expect![
            "code 110: cannot derive a gateway for 255.255.255.255/31: the subnet has no room for one. Set the gateway in the ipam section, or turn off isGateway."
        ],
    );
    check(
        r#","isGateway":true"#,
        Some(r#"{"ips":[{"address":"10.1.0.5/24","gateway":"fd00::1"}]}"#),
        &expect!["code 110: cannot use gateway fd00::1 for 10.1.0.5/24: they are of different families"],
    );
    check(
        "",
        Some(r#"{"ips":[{"address":"10.1.0.5/24"}],"routes":[{"dst":"::/0","gw":"10.1.0.1"}]}"#),
        &expect!["code 110: cannot use route ::/0 via 10.1.0.1: they are of different families"],
    );
    check(
        r#","bridge":"averylongname0","vlan":100,"isGateway":true"#,
        Some(V4),
        &expect![
            "code 7: cannot use network config: interface averylongname0.100 for the gateway has more than 15 bytes. Choose a shorter name for key bridge."
        ],
    );
}

#[test]
fn addresses_in_the_way_of_a_gateway() {
    let rows: [(&[&str], &[&str], bool); 9] = [
        (&[], &["10.1.0.1/24"], false),
        (&["10.1.0.1/24"], &["10.1.0.1/24"], false),
        (&["10.1.0.1/16"], &["10.1.0.1/24"], false),
        (&["10.9.0.1/16"], &["10.1.0.1/24"], false),
        (&["10.9.0.1/16"], &["10.1.0.1/24"], true),
        (&["10.1.0.1/24"], &["10.1.0.1/24", "10.2.0.1/24"], false),
        (&["fe80::1/64", "fd01::1/64"], &["fd00::1/64"], false),
        (&["fd00::9/48"], &["fd00::1/64"], false),
        (&["fd00::9/48", "fe80::1/64"], &["fd00::1/64"], true),
    ];
    let addresses = |texts: &[&str]| -> Vec<Address> {
        texts.iter().map(|text| Address::from(text.parse::<IpNetwork>().unwrap())).collect()
    };
    let shown =
        rows.map(|(found, wanted, force)| match address_changes("br0", &addresses(found), &addresses(wanted), force) {
            Ok(AddressChanges { delete, add }) => {
                let add = add.into_iter().map(|address| address.net).collect();
                let [delete, add] =
                    [delete, add].map(|all: Vec<_>| all.iter().map(|net| format!(" {net}")).collect::<String>());
                format!("delete{delete} add{add}\n")
            }
            Err(error) => format!("code {}: {error}\n", error.code.0),
        });
    expect![[r#"
        delete add 10.1.0.1/24
        delete add
        code 103: cannot add gateway 10.1.0.1/24 to br0: it has address 10.1.0.1/16 already. Give this network a bridge of its own: forceAddress would remove 10.1.0.1/16 from br0, with its routes.
        code 103: cannot add gateway 10.1.0.1/24 to br0: it has address 10.9.0.1/16 already. Give this network a bridge of its own: forceAddress would remove 10.9.0.1/16 from br0, with its routes.
        delete 10.9.0.1/16 add 10.1.0.1/24
        delete add 10.2.0.1/24
        delete add fd00::1/64
        code 103: cannot add gateway fd00::1/64 to br0: it has address fd00::9/48 already. Give this network a bridge of its own: forceAddress would remove fd00::9/48 from br0, with its routes.
        delete fd00::9/48 add fd00::1/64
    "#]]
    .assert_eq(&shown.concat());
}
