use super::*;
use expect_test::{Expect, expect};

fn check(ipams: &[&str], expected: &Expect) {
    let config = |ipam| show(&format!(r#"{{"cniVersion":"1.0.0","name":"n","ipam":{ipam}}}"#));
    expected.assert_eq(&ipams.iter().map(config).collect::<Vec<_>>().join("\n"));
}

fn show(config: &str) -> String {
    match Conf::from_conf(&ConfObject::parse(config.as_bytes()).unwrap()) {
        Ok(conf) => render(&conf).trim_end().to_owned(),
        Err(error) => format!("{}: {}\n{}", error.code.0, error.msg, error.details).trim_end().to_owned(),
    }
}

fn render(conf: &Conf) -> String {
    let mut text = format!("{}\n", conf.place.folder.display());
    for set in &conf.sets {
        let range = |range: &Range| format!("{range} of {} gateway {}", range.subnet, range.gateway);
        text += &format!("{}\n", set.ranges().iter().map(range).collect::<Vec<_>>().join(", "));
    }
    let list = |addresses: &[Address]| addresses.iter().map(Address::to_string).collect::<Vec<_>>().join(" ");
    if !conf.requested.is_empty() {
        text += &format!("requested {}\n", list(&conf.requested));
    }
    for span in &conf.barred.excluded {
        text += &format!("excluded {span}\n");
    }
    for route in &conf.routes {
        text += &format!("route {} {:?}\n", route.dst, route.gw);
    }
    if let Some(path) = &conf.resolv_conf {
        text += &format!("resolvConf {}\n", path.display());
    }
    if conf.reclaim != Reclaim::Never || conf.reuse_address || !conf.cool_down.is_zero() {
        text += &format!("reclaim {:?}, reuse {}, cool down {:?}\n", conf.reclaim, conf.reuse_address, conf.cool_down);
    }
    text
}

#[test]
fn defaults_are_the_references() {
    check(
        &[
            r#"{"subnet":"10.1.0.0/24"}"#,
            r#"{"ranges":[[{"subnet":"fd00::/64"}],[{"subnet":"10.1.0.0/30"}]],"dataDir":"/x"}"#,
        ],
        &expect![[r#"
            /var/lib/cni/networks/n
            10.1.0.1-10.1.0.254 of 10.1.0.0/24 gateway 10.1.0.1
            /x/n
            fd00::1-fd00::ffff:ffff:ffff:ffff of fd00::/64 gateway fd00::1
            10.1.0.1-10.1.0.2 of 10.1.0.0/30 gateway 10.1.0.1"#]],
    );
}

#[test]
fn sets_come_in_the_references_order_and_keys_in_any_case() {
    expect![[r#"
            /var/lib/cni/networks/n
            10.1.0.1-10.1.0.254 of 10.1.0.0/24 gateway 10.1.0.1
            10.2.0.5-10.2.0.9 of 10.2.0.0/24 gateway 10.2.0.254
            10.3.0.1-10.3.0.254 of 10.3.0.0/24 gateway 10.3.0.1, 10.4.0.1-10.4.0.254 of 10.4.0.0/24 gateway 10.4.0.1
            requested 10.3.0.9 10.2.0.7 fd00::5
            route 10.0.0.9/8 Some(1.2.3.4)
            route ::/0 None
            resolvConf /etc/r"#]]
    .assert_eq(&show(
        r#"{"cniVersion":"1.0.0","name":"n","args":{"CNI":{"IPS":["10.3.0.9/8"]}},
            "runtimeConfig":{"IPRanges":[[{"Subnet":"10.1.0.0/24"}]],"ips":["10.2.0.7","fd00::5/64"]},
            "IPAM":{"SUBNET":"10.2.0.0/24","RangeStart":"10.2.0.5","rangeend":"10.2.0.9","GateWay":"10.2.0.254",
            "ranges":[[{"subnet":"10.3.0.0/24"},{"subnet":"10.4.0.0/24"}]],
            "routes":[{"dst":"10.0.0.9/8","GW":"1.2.3.4"},{"dst":"::/0"}],"resolvConf":"/etc/r"}}"#,
    ));
}

#[test]
fn opt_in_keys() {
    check(
        &[
            r#"{"subnet":"10.1.0.0/24","exclude":["10.1.0.7","10.1.0.16/30","10.1.0.100-10.1.0.120","fd00::/64"],
            "reclaimEarlierBoot":"exhausted","reuseAddress":true,"releaseCooldownSeconds":30}"#,
            r#"{"subnet":"10.1.0.0/24","exclude":["10.1.0.9-10.1.0.1"]}"#,
            r#"{"subnet":"10.1.0.0/24","reclaimEarlierBoot":"yes"}"#,
            r#"{"subnet":"10.1.0.0/24","releaseCooldownSeconds":-1}"#,
        ],
        &expect![[r#"
            /var/lib/cni/networks/n
            10.1.0.1-10.1.0.254 of 10.1.0.0/24 gateway 10.1.0.1
            excluded 10.1.0.7-10.1.0.7
            excluded 10.1.0.16-10.1.0.19
            excluded 10.1.0.100-10.1.0.120
            excluded fd00::-fd00::ffff:ffff:ffff:ffff
            reclaim Exhausted, reuse true, cool down 30s
            7: cannot use network config: key ipam.exclude[0] = "10.1.0.9-10.1.0.1": "10.1.0.9-10.1.0.1" is no address, no network a/n and no stretch a-b: its end is not above its start
            7: cannot use network config: key ipam.reclaimEarlierBoot = "yes": "yes" is none of "never", "exhausted", "always"
            7: cannot use network config: key ipam.releaseCooldownSeconds = -1: expected a whole number from 0 to 4294967295"#]],
    );
}

#[test]
fn no_ranges() {
    expect!["7: IPAM config missing 'ipam' key"].assert_eq(&show(r#"{"cniVersion":"1.0.0","name":"n"}"#));
    check(
        &[
            "{}",
            r#"{"subnt":"10.0.0.0/24"}"#,
            r#"{"ranges":[]}"#,
            r#"{"ranges":[[]]}"#,
            r#"{"ranges":[[{"subnet":"10.1.0.0/24"}],[{}]]}"#,
        ],
        &expect![[r#"
            7: no IP ranges specified
            Set ipam.ranges, ipam.subnet or runtimeConfig.ipRanges.
            7: no IP ranges specified
            Set ipam.ranges, ipam.subnet or runtimeConfig.ipRanges. Key ipam.subnt is unknown and was ignored: did you mean subnet?
            7: no IP ranges specified
            Set ipam.ranges, ipam.subnet or runtimeConfig.ipRanges.
            7: invalid range set 0: empty range set
            It is key ipam.ranges[0].
            7: invalid range set 1: key subnet is missing
            It is key ipam.ranges[1]."#]],
    );
}

#[test]
fn bad_subnets() {
    check(
        &[
            r#"{"subnet":"10.0.0.7/32"}"#,
            r#"{"subnet":"fd00::1/128","gateway":"fd00::1"}"#,
            r#"{"subnet":"10.0.0.1/24"}"#,
            r#"{"subnet":"10.0.0.0"}"#,
            r#"{"subnet":"10.0.0.0/255.255.255.0"}"#,
            r#"{"subnet":"::ffff:10.1.0.0/120"}"#,
            r#"{"subnet":5}"#,
        ],
        &expect![[r#"
            7: invalid range set 0: Network 10.0.0.7/32 too small to allocate from: its only address is the gateway, unless key gateway names another
            It is key ipam.subnet.
            7: invalid range set 0: Network fd00::1/128 too small to allocate from: its only address is the gateway, unless key gateway names another
            It is key ipam.subnet.
            7: invalid range set 0: Network has host bits set. For a subnet mask of length 24 the network address is 10.0.0.0
            It is key ipam.subnet.
            7: cannot use network config: key ipam.subnet = "10.0.0.0": "10.0.0.0" is no address with prefix, such as 10.1.0.5/24 or fd00::5/64
            7: cannot use network config: key ipam.subnet = "10.0.0.0/255.255.255.0": "10.0.0.0/255.255.255.0" is no address with prefix, such as 10.1.0.5/24 or fd00::5/64
            7: invalid range set 0: subnet ::ffff:10.1.0.0/120 is an IPv4 network written as IPv6: write it as IPv4
            It is key ipam.subnet.
            7: cannot use network config: key ipam.subnet = 5: expected a string"#]],
    );
}

#[test]
fn bad_bounds() {
    check(
        &[
            r#"{"subnet":"10.0.0.0/24","rangeStart":"10.0.0.9","rangeEnd":"10.0.0.5"}"#,
            r#"{"subnet":"10.0.0.0/24","rangeStart":"10.0.1.5"}"#,
            r#"{"subnet":"10.0.0.0/24","rangeEnd":"10.0.1.5"}"#,
            r#"{"subnet":"10.0.0.0/24","rangeEnd":"fd00::1"}"#,
            r#"{"subnet":"10.0.0.0/24","rangeEnd":"10.0.0.0"}"#,
            r#"{"subnet":"10.0.0.0/24","rangeStart":"10.0.0.255"}"#,
            r#"{"subnet":"10.0.0.0/24","rangeEnd":"x"}"#,
            r#"{"subnet":"10.0.0.0/24","gateway":"10.0.0.01"}"#,
            r#"{"subnet":"10.0.0.0/24","rangeStart":"10.0.0.255","rangeEnd":"10.0.0.255"}"#,
            r#"{"subnet":"10.0.0.0/24","rangeStart":"10.0.0.0","rangeEnd":"10.0.0.255","gateway":"fd00::1"}"#,
        ],
        &expect![[r#"
            7: invalid range set 0: RangeStart 10.0.0.9 not in network 10.0.0.0/24: rangeStart is above rangeEnd 10.0.0.5
            It is key ipam.rangeStart.
            7: invalid range set 0: RangeStart 10.0.1.5 not in network 10.0.0.0/24
            It is key ipam.rangeStart.
            7: invalid range set 0: RangeEnd 10.0.1.5 not in network 10.0.0.0/24
            It is key ipam.rangeEnd.
            7: invalid range set 0: RangeEnd fd00::1 not in network 10.0.0.0/24
            It is key ipam.rangeEnd.
            7: invalid range set 0: RangeEnd 10.0.0.0 not in network 10.0.0.0/24 from rangeStart 10.0.0.1
            It is key ipam.rangeEnd.
            7: invalid range set 0: RangeStart 10.0.0.255 is above the last address to hand out, 10.0.0.254
            It is key ipam.rangeStart.
            7: cannot use network config: key ipam.rangeEnd = "x": "x" is no IP address (invalid IP address syntax)
            7: cannot use network config: key ipam.gateway = "10.0.0.01": "10.0.0.01" is no IP address (invalid IP address syntax)
            7: invalid range set 0: RangeStart 10.0.0.255 is the network's own or its broadcast address, and the range has no other
            It is key ipam.rangeStart.
            /var/lib/cni/networks/n
            10.0.0.1-10.0.0.254 of 10.0.0.0/24 gateway fd00::1"#]],
    );
}

#[test]
fn overlaps_and_families() {
    check(
        &[
            r#"{"ranges":[[{"subnet":"10.1.0.0/24"},{"subnet":"10.1.0.0/25"}]]}"#,
            r#"{"subnet":"10.1.0.0/24","ranges":[[{"subnet":"10.1.0.0/25"}]]}"#,
            r#"{"ranges":[[{"subnet":"10.1.0.0/24"},{"subnet":"fd00::/64"}]]}"#,
        ],
        &expect![[r#"
            7: invalid range set 0: subnets 10.1.0.1-10.1.0.254 and 10.1.0.1-10.1.0.126 overlap
            It is key ipam.ranges[0].
            7: range set 0 overlaps with 1
            Key ipam.subnet is 10.1.0.1-10.1.0.254, key ipam.ranges[0] is 10.1.0.1-10.1.0.126.
            7: invalid range set 0: mixed address families
            It is key ipam.ranges[0]."#]],
    );
    let two = r#""name":"n","ipam":{"ranges":[[{"subnet":"10.1.0.0/24"}],[{"subnet":"10.2.0.0/24"}]]}}"#;
    for version in ["0.2.0", "0.1.0"] {
        assert_eq!(
            show(&format!(r#"{{"cniVersion":"{version}",{two}"#)),
            format!("7: CNI version {version} does not support more than 1 address per family")
        );
    }
}

/// CONVENTIONS, "CNI_ARGS".
#[test]
fn args_win_over_cni_args_within_a_range_set() {
    let object = r#"{"cniVersion":"1.1.0","name":"n","type":"t","args":{"cni":{"ips":["10.0.0.7"]}},
        "ipam":{"type":"host-local","ranges":[[{"subnet":"10.0.0.0/24"}],[{"subnet":"fd00::/64"}]]}}"#;
    let requested = |text: &str| {
        let mut conf = Conf::from_conf(&ConfObject::parse(object.as_bytes()).unwrap()).unwrap();
        conf.request_by_cni_args(Address::from_file_name(text).unwrap());
        conf.requested.iter().map(Address::to_string).collect::<Vec<_>>()
    };
    assert_eq!(requested("10.0.0.9"), ["10.0.0.7"]);
    assert_eq!(requested("fd00::9"), ["fd00::9", "10.0.0.7"], "of another set");
    assert_eq!(requested("10.9.0.9"), ["10.9.0.9", "10.0.0.7"], "of none, which is refused later");
}

#[test]
fn requests_in_cni_args() {
    let requested = |text: &str| requested_by(&CniArgs::parse(text).unwrap(), &[]);
    assert_eq!(requested("").unwrap(), None);
    assert_eq!(requested("IP=").unwrap(), None);
    assert_eq!(requested("IP=10.0.0.5/24").unwrap(), Address::from_file_name("10.0.0.5"));
    assert_eq!(requested("IgnoreUnknown=1;X=1;IP=fd00::5").unwrap(), Address::from_file_name("fd00::5"));
    expect![[r#"cannot use CNI_ARGS: key IP: "zz" is no IP address (invalid IP address syntax)"#]]
        .assert_eq(&requested("IP=zz").unwrap_err().to_string());
    expect![[r#"cannot use CNI_ARGS: unknown key "X" (value "1"). Known keys: IP. Add IgnoreUnknown=1 to have others ignored."#]].assert_eq(&requested("X=1").unwrap_err().to_string());
}
