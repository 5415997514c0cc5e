//! The config: what each verb refuses, and the effect of `routes` and `resolvConf`.

use super::pod;
use crate::configs::{host_local, v4, with};
use crate::subjects::{each, same};
use serde_json::{Value, json};
use testns::{Node, Verb};

fn refusals(node: &Node, config: &Value) -> Vec<String> {
    [Verb::Add, Verb::Check].map(|verb| node.call(verb, config, pod("c1")).fails().msg).into()
}

/// All rules about ranges, with the reference's error texts. DEL does not use ranges; the reference refuses them all
/// the same.
#[test]
fn ranges_that_break_a_rule_are_refused_but_not_at_del() {
    for ipam in [
        json!({"x": 1}),
        json!({"ranges": []}),
        json!({"ranges": [[]]}),
        json!({"subnet": "10.7.0.1/24"}),
        json!({"subnet": "10.7.0.0/24", "rangeStart": "10.8.0.9"}),
        json!({"subnet": "10.7.0.0/24", "rangeEnd": "10.8.0.9"}),
        json!({"ranges": [[{"subnet": "10.7.0.0/24"}, {"subnet": "fd07::/64"}]]}),
        json!({"ranges": [[{"subnet": "10.7.0.0/24"}, {"subnet": "10.7.0.128/25"}]]}),
        json!({"ranges": [[{"subnet": "10.7.0.0/24"}], [{"subnet": "10.7.0.0/25"}]]}),
        json!({"subnet": "10.7.0.0/24", "ranges": [[{"subnet": "10.7.0.0/24", "rangeStart": "10.7.0.9"}]]}),
    ] {
        let texts = same(|node| refusals(node, &host_local(ipam.clone())));
        assert!(texts.iter().all(|text| !text.is_empty()), "{texts:?}");
        each(|who, node| {
            let del = node.call(Verb::Del, host_local(ipam.clone()), pod("c1"));
            assert_eq!(del.output.code() == 0, who.is_ours(), "{del}");
        });
    }
}

/// `resolvConf` is parsed into `dns`.
#[test]
fn resolv_conf_becomes_dns() {
    let dns = same(|node| {
        let path = node.work_dir().join("resolv.conf");
        let text = "# comment\n; comment\nnameserver 10.7.0.1\nnameserver fd07::1\ndomain first\ndomain a.b\n\
                    search a.b c.d\nsearch e.f\noptions ndots:5 timeout:1\noptions rotate\nunknown x\n\n";
        std::fs::write(&path, text).unwrap();
        let config = host_local(with(v4(), json!({"resolvConf": path})));
        node.call(Verb::Add, config, pod("c1")).ok()["dns"].clone()
    });
    let expected = json!({"nameservers": ["10.7.0.1", "fd07::1"], "domain": "a.b", "search": ["a.b", "c.d", "e.f"],
        "options": ["ndots:5", "timeout:1", "rotate"]});
    assert_eq!(dns, expected);
}

/// A `resolvConf` that never ends is an error; the reference reads `/dev/zero` until it runs out of memory.
#[test]
fn a_resolv_conf_that_is_no_file_is_an_error() {
    let node = crate::subjects::node();
    let fifo = node.work_dir().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    for (path, why) in [("/dev/zero", "larger than 1 MiB"), (fifo.to_str().unwrap(), "no regular file")] {
        let config = host_local(with(v4(), json!({"resolvConf": path})));
        let failure = node.call(Verb::Add, config, pod("c1")).fails_with(5);
        assert_eq!(failure.msg, format!("cannot read {path}: it is {why}"));
    }
    assert_eq!(super::reservations(), []);
}

/// `/etc/resolv.conf` is often a link into `/run`.
#[test]
fn a_resolv_conf_may_be_a_link() {
    each(|_, node| {
        let path = node.work_dir().join("resolv.conf");
        std::fs::write(node.work_dir().join("stub"), "nameserver 10.7.0.1\n").unwrap();
        std::os::unix::fs::symlink("stub", &path).unwrap();
        let config = host_local(with(v4(), json!({"resolvConf": path})));
        assert_eq!(node.call(Verb::Add, config, pod("c1")).ok()["dns"], json!({"nameservers": ["10.7.0.1"]}));
    });
}
