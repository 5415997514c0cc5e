use super::*;
use cni_spec::{Code, SpecVersion, json};
use expect_test::expect;

fn planned(lease: &str, conf: &Conf) -> Result<Plan, CniError> {
    let lease = AddResult::from_value(&json::parse(lease.as_bytes()).unwrap(), SpecVersion::LATEST).unwrap();
    plan(conf, &Attachment::parse("net", "c1", "eth0").unwrap(), Some(lease))
}

const PLAIN: Conf = Conf { masquerade: None, mtu_bytes: None, dns: None };

#[test]
fn a_route_of_the_lease_to_the_subnet_stands_instead() {
    let lease = r#"{"ips":[{"address":"10.1.0.5/24","gateway":"10.1.0.1"}],
        "routes":[{"dst":"10.1.0.0/24","gw":"10.1.0.1"},{"dst":"10.9.0.0/16","gw":"10.1.0.7"}]}"#;
    expect![[r#"
        ip link add veth0b29d7cd type veth peer eth0
        ip link set veth0b29d7cd alias cni:net/c1/eth0
        sysctl net/ipv6/conf/veth0b29d7cd/accept_ra=0
        ip link set veth0b29d7cd up
        ip address add 10.1.0.1/32 dev veth0b29d7cd
        ip route add 10.1.0.5/32 scope 254 dev veth0b29d7cd
        ip address add 10.1.0.5/24 dev eth0
        ip link set eth0 up
        ip route add 10.1.0.1/32 scope 253 src 10.1.0.5 dev eth0
        ip route add 10.1.0.0/24 via 10.1.0.1 dev eth0
        ip route add 10.9.0.0/16 via 10.1.0.7 dev eth0
        ip route del 10.1.0.0/24 scope 253 dev eth0
        wait until eth0 can carry packets
        wait until veth0b29d7cd can carry packets
        sysctl net/ipv4/ip_forward=1
    "#]]
    .assert_eq(&planned(lease, &PLAIN).unwrap().to_string());
}

#[test]
fn each_address_needs_a_gateway_of_its_family() {
    let refused = |ip: &str| {
        let error = planned(&format!(r#"{{"ips":[{ip}]}}"#), &PLAIN).unwrap_err();
        assert_eq!(error.code, Code::UNUSABLE_RESULT);
        error.msg
    };
    let texts = [
        refused(r#"{"address":"10.1.0.5/24"}"#),
        refused(r#"{"address":"10.1.0.5/24","gateway":"0.0.0.0"}"#),
        refused(r#"{"address":"10.1.0.5/24","gateway":"fd00::1"}"#),
        refused(r#"{"address":"fd00::1/64","gateway":"fd00::1"}"#),
    ];
    expect![[r#"
        cannot use address 10.1.0.5/24: the IPAM plugin gave no gateway for it
        cannot use address 10.1.0.5/24: the IPAM plugin gave no gateway for it
        cannot use gateway fd00::1 for 10.1.0.5/24: they are of different families
        cannot use gateway fd00::1 for fd00::1/64: both ends cannot have one address"#]]
    .assert_eq(&texts.join("\n"));
}
