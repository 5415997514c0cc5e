use super::*;
use expect_test::{Expect, expect};

/// The keys of `text`, beside a name, as a Conf's differences from the default.
fn check(text: &str, expected: &Expect) {
    let parse = |text: &str| Conf::from_conf(&ConfObject::parse(format!("{{\"name\":\"n\"{text}}}").as_bytes())?);
    let default = format!("{:#?}", parse("").unwrap());
    let shown = match parse(&format!(",{text}")) {
        Ok(conf) => {
            let conf = format!("{conf:#?}");
            let known: Vec<&str> = default.lines().collect();
            let new: Vec<&str> = conf.lines().filter(|line| !known.contains(line)).map(str::trim_start).collect();
            if new.is_empty() { "as the default".to_owned() } else { new.join(" ") }
        }
        Err(error) => format!("code {}: {error}", error.code.0),
    };
    expected.assert_eq(&shown);
}

#[test]
fn defaults() {
    expect![[r#"
        Conf {
            bridge: "cni0",
            gateway: None,
            force_address: false,
            masquerade: None,
            mtu_bytes: None,
            promisc: false,
            group_forward_mask: None,
            multicast_snooping: None,
            port: Port {
                hairpin: false,
                isolated: false,
            },
            vlans: None,
            mac_spoof_check: false,
            dad: Off,
            routers: Kernels,
            leave_down: false,
            mac: None,
            has_ipam: false,
            dns: None,
        }
    "#]]
    .assert_debug_eq(&Conf::from_conf(&ConfObject::parse(br#"{"name":"n"}"#).unwrap()).unwrap());
}

#[test]
fn every_key_is_understood_in_any_case() {
    check(r#""bridge":"br0","isGateway":true"#, &expect![[r#"bridge: "br0", gateway: Address, routers: Refused,"#]]);
    check(
        r#""ISDEFAULTGATEWAY":true,"forceaddress":true"#,
        &expect!["gateway: DefaultRoute, force_address: true, routers: Refused,"],
    );
    check(r#""ipMasq":true"#, &expect!["masquerade: Some( Masquerade { backend: Default, spared: [], }, ),"]);
    check(
        r#""ipMasq":true,"ipMasqBackend":"iptables""#,
        &expect!["masquerade: Some( Masquerade { backend: Iptables, spared: [], }, ),"],
    );
    check(r#""ipMasqBackend":"nftables""#, &expect!["as the default"]);
    check(
        r#""mtu":1400,"hairpinMode":true,"portIsolation":true"#,
        &expect!["mtu_bytes: Some( 1400, ), hairpin: true, isolated: true,"],
    );
    check(
        r#""promiscMode":true,"macspoofchk":true,"enabledad":true"#,
        &expect!["promisc: true, mac_spoof_check: true, dad: Enhanced,"],
    );
    check(r#""disableContainerInterface":true,"ipam":{}"#, &expect!["leave_down: true,"]);
    check(
        r#""dns":{"search":[]}"#,
        &expect![[r#"dns: Some( Dns { nameservers: [], domain: "", search: [], options: [], }, ),"#]],
    );
    check(r#""dns":{}"#, &expect!["as the default"]);
    check(r#""dns":{"domain":"","search":null}"#, &expect!["as the default"]);
}

#[test]
fn the_runtimes_mac_is_stronger_than_the_conventional_one() {
    check(
        r#""args":{"cni":{"mac":"02:00:00:00:00:01"}},"runtimeConfig":{"mac":"02:00:00:00:00:02"}"#,
        &expect!["mac: Some( 02:00:00:00:00:02, ),"],
    );
    check(
        r#""args":{"cni":{"mac":"02:00:00:00:00:01"}},"runtimeConfig":{"mac":""}"#,
        &expect!["mac: Some( 02:00:00:00:00:01, ),"],
    );
    check(
        r#""runtimeConfig":{"mac":"01:00:00:00:00:02"}"#,
        &expect![[r#"code 7: cannot use runtimeConfig.mac = "01:00:00:00:00:02": it is a multicast address"#]],
    );
}

#[test]
fn vlans() {
    check(
        r#""vlan":100"#,
        &expect![
            "vlans: Some( PortVlans { member_of: [ Vlans { first: 100, last: 100, pvid: true, untagged: true, }, ], access: Some( 100, ), keep_default: false, }, ),"
        ],
    );
    check(r#""vlanTrunk":[]"#, &expect!["as the default"]);
    check(
        r#""vlan":7,"vlanTrunk":[{"minID":5,"maxID":9,"id":12},{"id":4094}],"preserveDefaultVlan":true"#,
        &expect![
            "vlans: Some( PortVlans { member_of: [ Vlans { first: 5, last: 9, pvid: false, untagged: false, }, Vlans { first: 12, last: 12, pvid: false, untagged: false, }, Vlans { first: 4094, last: 4094, pvid: false, untagged: false, }, Vlans { first: 7, last: 7, pvid: true, untagged: true, }, ], access: Some( 7, ), keep_default: true, }, ),"
        ],
    );
}

#[test]
fn what_is_refused() {
    check(
        r#""disableContainerInterface":true,"ipam":{"type":"host-local"}"#,
        &expect![
            "code 7: cannot use network config: disableContainerInterface needs a network without ipam. An interface that stays down cannot use its addresses."
        ],
    );
    check(
        r#""groupForwardMask":5"#,
        &expect![
            "code 7: cannot use network config: key groupForwardMask = 5: Linux forwards no group of the bits 1, 2 and 4"
        ],
    );
    check(
        r#""bridge":"far-too-long-a-name""#,
        &expect![[
            r#"code 7: cannot use network config: key bridge = "far-too-long-a-name": interface name is too long: at most 15 bytes"#
        ]],
    );
    check(
        r#""ipMasqBackend":"pf""#,
        &expect![[
            r#"code 2: cannot use network config: key ipMasqBackend = "pf": it is neither iptables nor nftables"#
        ]],
    );
    check(
        r#""mtu":-1"#,
        &expect!["code 7: cannot use network config: key mtu = -1: expected a whole number from 0 to 65535"],
    );
    check(
        r#""vlan":-1"#,
        &expect!["code 7: cannot use network config: key vlan = -1: expected a whole number from 0 to 4094"],
    );
    check(
        r#""vlanTrunk":[{"minID":5}]"#,
        &expect!["code 7: cannot use network config: key vlanTrunk[0]: minID has no maxID"],
    );
    check(
        r#""vlanTrunk":[{"id":1},{"maxID":5}]"#,
        &expect!["code 7: cannot use network config: key vlanTrunk[1]: maxID has no minID"],
    );
    check(
        r#""isGatway":"yes","isGateway":"yes""#,
        &expect![[
            r#"code 7: cannot use network config: key isGateway = "yes": expected true or false. Key isGatway is unknown and was ignored: did you mean isGateway?"#
        ]],
    );
}
