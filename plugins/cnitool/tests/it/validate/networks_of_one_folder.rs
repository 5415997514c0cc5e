//! Networks of one node that do not fit together.

use crate::validate::marked_places::find;
use expect_test::{Expect, expect};

/// The findings in two files: a network of each plugin object.
#[track_caller]
fn two(names: [&str; 2], objects: [&str; 2], expected: &Expect) {
    let text = |index: usize| {
        format!(r#"{{"cniVersion": "1.0.0", "name": {}, "plugins": [{}]}}"#, names[index], objects[index])
    };
    let texts = [text(0), text(1)];
    expected.assert_eq(&find(&[("10-a.conflist", &texts[0]), ("20-b.conflist", &texts[1])]));
}

const NAMES: [&str; 2] = [r#""a""#, r#""b""#];

#[test]
fn a_network_that_an_earlier_file_has() {
    two(
        [r#""a""#, r#"«"a"»"#],
        [r#"{"type": "loopback"}"#; 2],
        &expect!["warning: network a is in 10-a.conflist, too, which is found first [Runtimes never use this file.]"],
    );
}

#[test]
fn a_file_of_one_plugin_before_a_list_of_the_same_name() {
    let single = r#"{"cniVersion": "1.0.0", "name": "a", "type": "loopback"}"#;
    let list = r#"{"cniVersion": "1.0.0", "name": «"a"», "plugins": [{"type": "loopback"}]}"#;
    expect![
        "warning: network a is in 05-a.conf, too, which is found first [containerd, CRI-O and kubelets use 05-a.conf; podman and the reference's cnitool use this file. Remove one.]"
    ]
    .assert_eq(&find(&[("05-a.conf", single), ("10-a.conflist", list)]));
}

#[test]
fn ranges_that_overlap() {
    let one = r#"{"type": "ptp", "ipam": {"type": "host-local", "subnet": "10.1.0.0/16"}}"#;
    let other = r#"{"type": "ptp", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.2.0.0/16"}], [{"subnet": «"10.1.7.0/24"»}]]}}"#;
    two(
        NAMES,
        [one, other],
        &expect![
            "warning: 10.1.7.0/24 overlaps 10.1.0.0/16 of network a in 10-a.conflist [Each network reserves addresses for itself: two containers may get the same one.]"
        ],
    );
}

/// No address is in both ranges, or the containers of one bridge never meet those of the other.
#[test]
fn ranges_of_one_subnet_that_do_not_overlap() {
    let part = |bounds: &str| {
        format!(
            r#"{{"type": "bridge", "isGateway": true, "ipam": {{"type": "host-local", "ranges": [[{{"subnet": "10.1.0.0/24", {bounds}}}]]}}}}"#
        )
    };
    let (low, high) = (part(r#""rangeEnd": "10.1.0.99""#), part(r#""rangeStart": "10.1.0.100""#));
    two(NAMES, [&low, &high], &expect![""]);
    let switch = |name: &str, subnet: &str| {
        format!(r#"{{"type": "bridge", "bridge": "{name}", "ipam": {{"type": "host-local", "subnet": {subnet}}}}}"#)
    };
    let (right, found) = (r#""10.1.0.0/24""#, r#"«"10.1.0.0/24"»"#);
    two(NAMES, [&switch("br-a", right), &switch("br-b", right)], &expect![""]);
    let overlaps = &expect![
        "warning: 10.1.0.0/24 overlaps 10.1.0.0/24 of network a in 10-a.conflist [Each network reserves addresses for itself: two containers may get the same one.]"
    ];
    two(NAMES, [&switch("br-a", right), &switch("br-a", found)], overlaps);
    let routed = r#"{"type": "ptp", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}}"#;
    two(NAMES, [routed, &switch("br-a", found)], overlaps);
}

#[test]
fn gateways_of_one_bridge() {
    let one = r#"{"type": "bridge", "isGateway": true, "ipam": {"type": "host-local", "subnet": "10.1.0.0/16"}}"#;
    let other = r#"{"type": "bridge", "bridge": «"cni0"», "isDefaultGateway": true, "ipam": {"type": "host-local", "subnet": "10.2.0.0/16"}}"#;
    two(
        NAMES,
        [one, other],
        &expect![
            "warning: bridge cni0 would be the gateway of 10.2.0.0/16, and of other subnets in 10-a.conflist [Give network b a bridge of its own: ADD of the later one fails.]"
        ],
    );
    let forced = other.replace("\"isDefault", "\"forceAddress\": true, \"isDefault").replace(['«', '»'], "");
    two(NAMES, [one, &forced], &expect![[r#""#]]);
}
