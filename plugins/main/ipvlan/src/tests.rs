use super::*;
use cni_spec::{SpecVersion, json};
use expect_test::expect;

fn conf(keys: &str) -> Result<Conf, CniError> {
    let text = format!(r#"{{"cniVersion":"1.1.0","name":"net","type":"ipvlan"{keys}}}"#);
    Conf::from_conf(&ConfObject::parse(text.as_bytes())?)
}

fn result(text: &str) -> AddResult {
    AddResult::from_value(&json::parse(text.as_bytes()).unwrap(), SpecVersion::LATEST).unwrap()
}

#[test]
fn bad_keys_are_named_with_their_value() {
    expect![[r#"cannot use network config: key mode = "l4": it is none of l2, l3, l3s"#]]
        .assert_eq(&conf(r#","mode":"l4""#).unwrap_err().msg);
    expect![[r#"cannot use network config: key flag = "x": it is none of bridge, private, vepa"#]]
        .assert_eq(&conf(r#","flag":"x""#).unwrap_err().msg);
}

#[test]
fn the_master_of_a_chain_is_the_one_interface_of_its_result() {
    let one = result(r#"{"interfaces":[{"name":"eni1"}]}"#);
    assert_eq!(chained_master(&one).unwrap().as_str(), "eni1");
    let two = result(r#"{"interfaces":[{"name":"eni1"},{"name":"eth0","sandbox":"/n"}]}"#);
    expect![
        "cannot find a master: prevResult has 2 interfaces (eni1, eth0), where key master is not set it must have the one that is the master"
    ]
    .assert_eq(&chained_master(&two).unwrap_err().msg);
}

#[test]
fn without_ipam_the_chains_addresses_are_the_links() {
    let attachment = Attachment::parse("net", "c1", "eth0").unwrap();
    let earlier = result(r#"{"interfaces":[{"name":"eni1"}],"ips":[{"interface":0,"address":"10.1.0.5/24"}]}"#);
    let chained = chained_lease(Verb::Add, &attachment, Some(&earlier)).unwrap();
    let master = Link { name: "eni1".into(), index: 2, ..Link::default() };
    let state = State { master: Some(master), chained: Some(chained) };
    let plan = plan(&conf(r#","mode":"l3s","flag":"private""#).unwrap(), &attachment, &state, None).unwrap();
    expect![[r#"
        ip link add eth0 link eni1 type ipvlan mode l3s private
        ip link set eth0 alias cni:net/c1/eth0
        sysctl net/ipv4/conf/eth0/arp_notify=1
        ip address add 10.1.0.5/24 dev eth0
        ip link set eth0 up
    "#]]
    .assert_eq(&plan.to_string());
    assert!(chained_lease(Verb::Add, &attachment, None).is_err());
    let of_other =
        result(r#"{"interfaces":[{"name":"net1","sandbox":"/n"}],"ips":[{"interface":0,"address":"10.1.0.5/24"}]}"#);
    assert!(chained_lease(Verb::Check, &attachment, Some(&of_other)).is_err());
}
