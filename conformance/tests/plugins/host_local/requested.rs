//! Addresses that the runtime requests.

use super::{FOLDER, add, add_with, pod, reservations};
use crate::configs::{addresses, dual, host_local, v4, with};
use crate::subjects::{each, same};
use serde_json::{Value, json};
use testns::{Call, Node, Verb};

fn add_args(node: &Node, config: &Value, args: &str) -> Result<Vec<String>, String> {
    let reply = Call::new(Verb::Add, config, pod("c1")).args(args).run(node);
    if reply.output.code() == 0 { Ok(addresses(&reply.ok())) } else { Err(reply.fails().msg) }
}

/// Each of the three channels alone: `CNI_ARGS`, `args.cni.ips`, `runtimeConfig.ips`; a prefix is ignored.
#[test]
fn each_channel_asks_for_an_address() {
    each(|_, node| {
        let config = host_local(v4());
        let release = || node.call(Verb::Del, &config, pod("c1")).ok();
        assert_eq!(add_args(node, &config, "IP=10.7.0.77").unwrap(), ["10.7.0.77/24"]);
        release();
        for own in [
            json!({"args": {"cni": {"ips": ["10.7.0.77"]}}}),
            json!({"runtimeConfig": {"ips": ["10.7.0.77"]}}),
            json!({"runtimeConfig": {"ips": ["10.7.0.77/16"]}}),
        ] {
            assert_eq!(add_with(node, &with(config.clone(), own), pod("c1")).unwrap(), ["10.7.0.77/24"]);
            release();
        }
        assert_eq!(reservations(), []);
    });
}

/// The channels are combined: one set's address may come from one, the other's from another.
#[test]
fn the_channels_are_taken_together() {
    each(|_, node| {
        let both = json!({"args": {"cni": {"ips": ["10.7.0.50"]}}, "runtimeConfig": {"ips": ["fd07::50"]}});
        let config = with(host_local(dual()), both);
        assert_eq!(add_with(node, &config, pod("c1")).unwrap(), ["10.7.0.50/24", "fd07::50/64"]);
        node.call(Verb::Del, &config, pod("c1")).ok();
        let config = with(host_local(dual()), json!({"runtimeConfig": {"ips": ["fd07::51"]}}));
        assert_eq!(add_args(node, &config, "IP=10.7.0.51").unwrap(), ["10.7.0.51/24", "fd07::51/64"]);
    });
}

/// A set without a requested address gives its next one.
#[test]
fn the_other_sets_go_on_as_usual() {
    each(|_, node| {
        assert_eq!(add_args(node, &host_local(dual()), "IP=fd07::99").unwrap(), ["10.7.0.2/24", "fd07::99/64"]);
    });
}

/// A requested address is also recorded as the last address of its set.
#[test]
fn the_search_goes_on_from_a_requested_address() {
    same(|node| {
        add_args(node, &host_local(v4()), "IP=10.7.0.77").unwrap();
        add(node, &v4(), "c2").unwrap()
    });
}

/// The gateway, an address that is taken, one outside all ranges, more than the sets can give: errors, and nothing is
/// reserved.
#[test]
fn what_cannot_be_given_is_an_error_and_nothing_is_kept() {
    let errors = same(|node| {
        add(node, &dual(), "other").unwrap(); // has .2 and ::2
        let config = host_local(dual());
        let ask = |args: &str| {
            let error = add_args(node, &config, args).unwrap_err();
            assert_eq!(reservations().len(), 2, "{args} left something");
            error
        };
        ["IP=10.7.0.1", "IP=10.7.0.2", "IP=10.9.0.5", "IP=fd07::2"].map(ask)
    });
    let taken = "requested IP address fd07::2 is not available in range set fd07::1-fd07::ffff:ffff:ffff:ffff";
    assert_eq!(errors[0], "failed to allocate for range 0: requested ip 10.7.0.1 is subnet's gateway");
    assert_eq!(errors[3], format!("failed to allocate for range 1: {taken}"));
    assert!(errors[2].contains("10.9.0.5"), "{errors:?}");
}

/// Two addresses of one set cannot both be given.
#[test]
fn an_address_that_no_set_has_left_is_an_error() {
    each(|_, node| {
        let config = with(host_local(v4()), json!({"runtimeConfig": {"ips": ["10.7.0.50", "10.7.0.51"]}}));
        add_with(node, &config, pod("c1")).unwrap_err();
        assert_eq!(reservations(), []);
    });
}

/// Malformed `CNI_ARGS` are an error, unless `IgnoreUnknown` covers them; a malformed address always is.
#[test]
fn cni_args_are_read_strictly() {
    each(|_, node| {
        let config = host_local(v4());
        for args in ["IP=nonsense", "K=V", "IP=10.7.0.9;", "IP", "IP=1=2", "ip=10.7.0.9"] {
            add_args(node, &config, args).unwrap_err();
        }
        assert_eq!(reservations(), []);
        let args = "K8S_POD_NAME=x;IP=10.7.0.9;IgnoreUnknown=True";
        assert_eq!(add_args(node, &config, args).unwrap(), ["10.7.0.9/24"]);
    });
}

/// The reference gives a container that requests an address a second one of the same set.
#[test]
fn a_requested_second_address_is_refused_as_a_duplicate() {
    each(|who, node| {
        add(node, &v4(), "c1").unwrap();
        let second = add_args(node, &host_local(v4()), "IP=10.7.0.9");
        assert_eq!(second.is_err(), who.is_ours(), "{second:?}");
        assert_eq!(std::path::Path::new(FOLDER).join("10.7.0.9").exists(), !who.is_ours());
    });
}
