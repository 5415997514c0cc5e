use super::*;
use cni_spec::{SpecVersion, json};
use expect_test::{Expect, expect};

fn conf(keys: &str) -> Result<Conf, CniError> {
    let text = format!(r#"{{"cniVersion":"1.1.0","name":"net","type":"vlan"{keys}}}"#);
    Conf::from_conf(&ConfObject::parse(text.as_bytes())?)
}

#[expect(clippy::needless_pass_by_value, reason = "reads as a table")]
fn refused(keys: &str, expected: Expect) {
    expected.assert_eq(&conf(keys).unwrap_err().msg);
}

#[test]
fn bad_keys_are_named_with_their_value() {
    refused(r#","vlanId":5"#, expect!["cannot use network config: key master is not set"]);
    refused(
        r#","master":"eth1","vlanId":4095"#,
        expect!["cannot use network config: key vlanId = 4095: VLANs are numbered 0 to 4094"],
    );
    assert!(conf(r#","master":"eth1","vlanId":-1"#).unwrap_err().msg.contains("vlanId"));
    assert_eq!(conf(r#","master":"eth1""#).unwrap().settings.id, 0);
}

#[test]
fn a_vlan_of_the_nodes_link() {
    let lease = br#"{"ips":[{"address":"10.1.0.5/24","gateway":"10.1.0.1"}]}"#;
    let lease = AddResult::from_value(&json::parse(lease).unwrap(), SpecVersion::LATEST).unwrap();
    let conf = conf(r#","master":"eth1","vlanId":100,"mtu":1400"#).unwrap();
    let state = State { master: Some(Link { name: "eth1".into(), index: 2, ..Link::default() }) };
    let plan = plan(&conf, &Attachment::parse("net", "c1", "eth0").unwrap(), &state, Some(lease)).unwrap();
    expect![[r#"
        ip link add eth0 link eth1 mtu 1400 type vlan id 100
        ip link set eth0 alias cni:net/c1/eth0
        ip address add 10.1.0.5/24 dev eth0
        ip link set eth0 up
    "#]]
    .assert_eq(&plan.to_string());
}
