use super::*;
use cni_spec::{SpecVersion, json};
use expect_test::{Expect, expect};

fn conf(keys: &str) -> Result<Conf, CniError> {
    let text = format!(r#"{{"cniVersion":"1.1.0","name":"net","type":"macvlan"{keys}}}"#);
    Conf::from_conf(&ConfObject::parse(text.as_bytes())?)
}

#[expect(clippy::needless_pass_by_value, reason = "reads as a table")]
fn refused(keys: &str, expected: Expect) {
    expected.assert_eq(&conf(keys).unwrap_err().msg);
}

#[test]
fn bad_keys_are_named_with_their_value() {
    refused(
        r#","mode":"source""#,
        expect![[r#"cannot use network config: key mode = "source": it is none of bridge, private, vepa, passthru"#]],
    );
    refused(
        r#","master":"a b""#,
        expect![[
            r#"cannot use network config: key master = "a b": "a b" cannot be a link's name: 1 to 127 bytes without white space, /, : and %, and not . or .."#
        ]],
    );
    refused(
        r#","mac":"01:00:00:00:00:01""#,
        expect![[r#"cannot use mac = "01:00:00:00:00:01": it is a multicast address"#]],
    );
    assert!(conf(r#","mtu":-1"#).unwrap_err().msg.contains("mtu"));
}

#[test]
fn a_link_on_the_nodes_with_addresses_and_routes() {
    let lease = br#"{"ips":[{"address":"10.1.0.5/24","gateway":"10.1.0.1"},{"address":"fd00::5/64"}],
        "routes":[{"dst":"0.0.0.0/0"}]}"#;
    let lease = AddResult::from_value(&json::parse(lease).unwrap(), SpecVersion::LATEST).unwrap();
    let conf = conf(r#","master":"eth1","mode":"vepa","mtu":1400,"bcqueuelen":5000"#).unwrap();
    let master = Link { name: "eth1".into(), index: 2, ..Link::default() };
    let state = State { master: Some(master), mac: Some(Mac([10, 0, 0, 0, 0, 5])) };
    let plan = plan(&conf, &Attachment::parse("net", "c1", "eth0").unwrap(), &state, Some(lease)).unwrap();
    expect![[r#"
        ip link add eth0 link eth1 mtu 1400 address 0a:00:00:00:00:05 type macvlan mode vepa bcqueuelen 5000
        ip link set eth0 alias cni:net/c1/eth0
        sysctl net/ipv6/conf/lo/disable_ipv6=0
        sysctl net/ipv6/conf/eth0/disable_ipv6=0
        sysctl net/ipv6/conf/eth0/keep_addr_on_down=1
        sysctl net/ipv6/conf/eth0/ndisc_notify=1
        sysctl net/ipv4/conf/eth0/arp_notify=1
        ip address add 10.1.0.5/24 dev eth0
        ip link set eth0 up
        ip address add fd00::5/64 dev eth0
        ip route add default via 10.1.0.1 dev eth0
        wait until no address of eth0 is tentative
    "#]]
    .assert_eq(&plan.to_string());
}
