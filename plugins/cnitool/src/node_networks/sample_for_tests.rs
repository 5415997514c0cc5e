//! A node that has something of everything, for tests.

use std::time::{Duration, SystemTime};

use host_local::inventory::Usage;
use libcni::cni_spec::AddResult;
use libcni::inventory::Life;

use crate::node_networks::{
    Attachment, Forward, HostLink, IsDefault, Limits, Maker, Names, Network, Origin, Protocol, Shared, View,
};

pub(crate) fn range(first: &str, last: &str, used: u128, total: u128) -> Usage {
    Usage { set: 0, first: first.parse().unwrap(), last: last.parse().unwrap(), total, used }
}

pub(crate) fn attachment(container: &str, address: &str) -> Attachment {
    Attachment {
        id: libcni::RuntimeConf::new(container, "eth0").unwrap().id,
        name: container.to_owned(),
        pod: None,
        netns: "/run/netns/web".to_owned(),
        addresses: vec![address.parse().unwrap()],
        links: Vec::new(),
        ports: Vec::new(),
        limits: Limits::default(),
        rules: Vec::new(),
        others: Vec::new(),
        since: Some(SystemTime::UNIX_EPOCH),
        maker: Maker::ThisSuite,
        faults: Vec::new(),
        life: Life::Lives,
        is_complete: Some(true),
        conf: None,
        result: AddResult::default(),
        asked: Vec::new(),
    }
}

pub(crate) fn network(name: &str) -> Network {
    Network {
        name: name.to_owned(),
        origin: Origin::File(format!("/etc/cni/net.d/10-{name}.conflist").into()),
        is_default: IsDefault::No,
        plugins: vec!["bridge".to_owned(), "portmap".to_owned()],
        links: Vec::new(),
        ranges: Vec::new(),
        cluster: None,
        is_read: true,
        masquerades: false,
        faults: Vec::new(),
        by_hand: Vec::new(),
        unreadable: Vec::new(),
        attachments: Vec::new(),
        nameless: Vec::new(),
    }
}

pub(crate) fn view(networks: Vec<Network>) -> View {
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(3 * 3600 + 5);
    View {
        host: "node-1".to_owned(),
        ways_out: vec!["IPv4 by 192.168.1.1 on ens3".to_owned()],
        names: Names::default(),
        networks,
        unowned: Vec::new(),
        broken: Vec::new(),
        unseen: Vec::new(),
        at,
    }
}

pub(crate) fn full() -> Network {
    let mut office = network("office");
    office.links.push(Shared {
        name: "cni0".into(),
        kind: "bridge".into(),
        up: true,
        mtu_bytes: 1500,
        addresses: vec!["10.7.0.1/24".parse().unwrap(), "fe80::1/64".parse().unwrap()],
        ports: 2,
    });
    office.ranges = vec![
        range("10.7.0.1", "10.7.0.254", 2, 253),
        range("fd00::1", "fd00::a", 9, 10),
        range("10.8.0.1", "10.8.0.2", 2, 2),
    ];
    office.by_hand.push("10.7.0.9".parse().unwrap());
    let mut web = attachment("web", "10.7.0.2");
    web.links.push(HostLink { name: "veth1f2e3d4c".into(), master: Some("cni0".into()), up: true });
    let to = "10.7.0.2:80".parse().unwrap();
    web.ports.push(Forward {
        protocol: Protocol::Tcp,
        address: None,
        port: 8080,
        to,
        is_conditional: false,
        is_entered: true,
        lost: None,
        owner: String::new(),
    });
    web.limits = Limits { to_bytes: Some(125_000), from_bytes: Some(1) };
    web.rules.push(on_node::Rule { text: "iptables masquerade of 10.7.0.2".into(), ..Default::default() });
    let mut other = attachment("cnitool-82e215debf7df4651d36", "10.7.0.3");
    other.addresses.push("fd00:1234:5678:9abc:def0:1234:5678:9abc".parse().unwrap());
    (other.netns, other.is_complete, other.maker) = (String::new(), None, Maker::Reference);
    (other.life, other.since) = (Life::Gone, None);
    office.attachments = vec![web, other];
    office.nameless.push("link veth00000000 (no container was found that uses it)".into());
    office
}
