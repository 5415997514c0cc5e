//! Profiles of the reference set.

use super::{Profile, Role, Stage};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The link that is the master of others.
const UPLINK: &str = "uplink";

/// The socket on which the daemon of `dhcp` listens by default.
const DHCP_SOCKET: &str = "/run/cni/dhcp.sock";

/// The reason why DEL of `tuning` need not undo all that its ADD changed, though SPEC 2 says that it should.
const SYSCTLS_STAY: &str = "sysctls end with the container's namespace: DEL of the reference's tuning leaves them, and a \
                            plugin in its place does as it does";

/// Plugins of the reference set that drop the dns of their IPAM plugin, and why that is no finding here.
const OWN_DNS: [&str; 5] = ["macvlan", "ipvlan", "vlan", "host-device", "tap"];
const OWN_DNS_ALONE: &str = "the reference's plugin reports the dns of its own configuration alone, and a plugin in its place \
                             must not give containers other name servers than it does";

/// The reason why DEL of `host-device` leaves its record of a deleted device until the container's namespace ends.
const RECORD_STAYS: &str = "the record of a device that was deleted stays until the container's namespace ends: without it the \
                            next DEL would take home what the container puts in the device's place";

pub(super) fn profiles() -> Vec<Profile> {
    let all = [interfaces(), address_plugins(), chained()].concat();
    all.into_iter()
        .map(|profile| match OWN_DNS.contains(&profile.executable.as_str()) {
            true => profile
                .unbound("delegation.ips-and-dns-in-0.4.0", OWN_DNS_ALONE)
                .unbound("delegation.result-is-used/gateway-and-dns", OWN_DNS_ALONE),
            false => profile,
        })
        .collect()
}

fn profile(name: &str, executable: &str, role: Role, object: Value) -> Profile {
    Profile {
        name: name.to_owned(),
        role,
        plugins: vec![object],
        executable: executable.to_owned(),
        stage: Vec::new(),
        needs: Vec::new(),
        oldest: None,
        pool: None,
        samples: serde_json::Map::new(),
        prev_result: serde_json::Map::new(),
        delegate: None,
        unbound: BTreeMap::new(),
    }
}

impl Profile {
    fn on(mut self, stage: Stage) -> Self {
        self.stage.push(stage);
        self
    }

    fn from(mut self, oldest: &str) -> Self {
        self.oldest = Some(oldest.to_owned());
        self
    }

    fn unbound(mut self, case: &str, why: &str) -> Self {
        self.unbound.insert(case.to_owned(), why.to_owned());
        self
    }

    fn needs(mut self, feature: &str) -> Self {
        self.needs.push(feature.to_owned());
        self
    }
}

fn range() -> Value {
    json!({ "type": "host-local", "ranges": [[{ "subnet": "10.77.0.0/16" }]], "routes": [{ "dst": "0.0.0.0/0" }] })
}

fn ranges() -> Value {
    json!({
        "type": "host-local",
        "ranges": [[{ "subnet": "10.77.0.0/16" }], [{ "subnet": "fd77::/64" }]],
        "routes": [{ "dst": "0.0.0.0/0" }, { "dst": "::/0" }],
    })
}

fn interfaces() -> Vec<Profile> {
    let interface = |name: &str, object| profile(name, name, Role::Interface, object);
    let cable = || Stage::Cable { name: UPLINK.to_owned() };
    let gateway = |ipam: Value| {
        // Without routes: the plugin makes the default routes itself.
        let ranges = ipam["ranges"].clone();
        let ipam = json!({ "type": "host-local", "ranges": ranges });
        json!({ "type": "bridge", "bridge": "cni0", "isDefaultGateway": true, "ipMasq": true, "ipam": ipam })
    };
    vec![
        interface("bridge", gateway(range())),
        profile("bridge-dual-stack", "bridge", Role::Interface, gateway(ranges())),
        profile("bridge-layer-2", "bridge", Role::Interface, json!({ "type": "bridge", "bridge": "cni0", "ipam": {} }))
            .from("0.3.0"),
        interface("ptp", json!({ "type": "ptp", "ipMasq": true, "ipam": range() })),
        interface("macvlan", json!({ "type": "macvlan", "master": UPLINK, "ipam": range() }))
            .on(cable())
            .needs("macvlan"),
        interface("ipvlan", json!({ "type": "ipvlan", "master": UPLINK, "ipam": range() })).on(cable()).needs("ipvlan"),
        interface("vlan", json!({ "type": "vlan", "master": UPLINK, "vlanId": "{99+n}", "ipam": range() }))
            .on(cable())
            .needs("8021q"),
        interface("host-device", json!({ "type": "host-device", "device": "dev{n}", "ipam": range() }))
            .on(Stage::Device { name: "dev{n}".to_owned() })
            .unbound("del.bears-what-is-missing/interface", RECORD_STAYS),
        interface("dummy", json!({ "type": "dummy", "ipam": range() })).needs("dummy"),
        interface("tap", json!({ "type": "tap", "ipam": range() })).needs("tun"),
        profile(
            "tap-with-owner",
            "tap",
            Role::Interface,
            json!({ "type": "tap", "owner": 0, "group": 0, "ipam": range() }),
        )
        .needs("tun"),
        interface("loopback", json!({ "type": "loopback" })),
    ]
}

fn address_plugins() -> Vec<Profile> {
    let ipam = |name: &str, executable: &str, ipam: Value| {
        profile(name, executable, Role::Ipam, json!({ "type": "kit-user", "ipam": ipam }))
    };
    let dhcp_daemon = Stage::Daemon {
        executable: "dhcp".to_owned(),
        // A request without an answer ends before the deadline of a call.
        arguments: ["daemon", "-socketpath", DHCP_SOCKET, "-timeout", "2s", "-resendmax", "4s"]
            .map(str::to_owned)
            .to_vec(),
        socket: DHCP_SOCKET.to_owned(),
    };
    // The names under which rules attach a container.
    let links = ["eth0", "eth1", "eth10"].map(str::to_owned).to_vec();
    vec![
        ipam("host-local", "host-local", range()),
        ipam("host-local-dual-stack", "host-local", ranges()),
        ipam(
            "static",
            "static",
            json!({
                "type": "static",
                "addresses": [{ "address": "10.78.0.5/16", "gateway": "10.78.0.1" }],
                "routes": [{ "dst": "0.0.0.0/0" }],
            }),
        ),
        ipam("dhcp", "dhcp", json!({ "type": "dhcp" })).on(Stage::DhcpServer { links }).on(dhcp_daemon),
    ]
}

fn chained() -> Vec<Profile> {
    let chained = |name: &str, object| profile(name, name, Role::Chained, object).on(Stage::Attached).from("0.3.0");
    let limits = json!({
        "type": "bandwidth",
        "ingressRate": 8_000_000, "ingressBurst": 8_000_000, "egressRate": 8_000_000, "egressBurst": 8_000_000,
    });
    let same_bridge = json!({ "type": "firewall", "backend": "iptables", "ingressPolicy": "same-bridge" });
    let same_bridge =
        profile("firewall-same-bridge", "firewall", Role::Chained, same_bridge).on(Stage::Attached).from("0.3.0");
    vec![
        chained("portmap", json!({ "type": "portmap", "capabilities": { "portMappings": true } })),
        chained("bandwidth", limits).needs("ifb"),
        chained("firewall", json!({ "type": "firewall", "backend": "iptables" })),
        same_bridge,
        chained("tuning", json!({ "type": "tuning", "sysctl": { "net.core.somaxconn": "500" }, "mtu": 1400 }))
            .unbound("del.undoes-modifications/sysctls", SYSCTLS_STAY),
        chained("sbr", json!({ "type": "sbr" })),
        chained("vrf", json!({ "type": "vrf", "vrfname": "blue" })).needs("vrf"),
    ]
}
