use expect_test::expect;

use super::*;
use crate::gateways::{AddressChanges, address_changes};
use cni_spec::{ConfObject, FromConf};

#[test]
fn what_no_interface_can_have() {
    let refusal = |(keys, ip, routes): (&str, &str, &str)| {
        let conf = format!(r#"{{"name":"net"{keys}}}"#);
        let conf = Conf::from_conf(&ConfObject::parse(conf.as_bytes()).unwrap()).unwrap();
        let lease = cni_spec::json::parse(format!(r#"{{"ips":[{{{ip}}}],"routes":[{routes}]}}"#).as_bytes()).unwrap();
        let lease = AddResult::from_value(&lease, cni_spec::SpecVersion::LATEST).unwrap();
        let attachment = Attachment::parse("net", "c1", "eth0").unwrap();
        let error = plan(&conf, &attachment, conf.mac, Some(lease)).unwrap_err();
        format!("code {}: {error}\n", error.code.0)
    };
    let gateway = r#","isGateway":true"#;
    let long = r#","bridge":"averylongname0","vlan":100,"isGateway":true"#;
    let plain = r#""address":"10.1.0.5/24""#;
    let refusals = [
        (gateway, r#""address":"10.1.0.5/32""#, ""),
        (gateway, r#""address":"255.255.255.255/31""#, ""),
        (gateway, r#""address":"10.1.0.5/24","gateway":"fd00::1""#, ""),
        ("", plain, r#"{"dst":"::/0","gw":"10.1.0.1"}"#),
        (long, plain, ""),
    ]
    .map(refusal);
    expect![[r#"
        code 110: cannot derive a gateway for 10.1.0.5/32: the subnet has no room for one. Set the gateway in the ipam section, or turn off isGateway.
        code 110: cannot derive a gateway for 255.255.255.255/31: the subnet has no room for one. Set the gateway in the ipam section, or turn off isGateway.
        code 110: cannot use gateway fd00::1 for 10.1.0.5/24: they are of different families
        code 110: cannot use route ::/0 via 10.1.0.1: they are of different families
        code 7: cannot use network config: interface averylongname0.100 for the gateway has more than 15 bytes. Choose a shorter name for key bridge.
    "#]]
    .assert_eq(&refusals.concat());
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
