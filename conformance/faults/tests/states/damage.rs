//! The faults that are drawn.

/// The pods' subnet, without its last byte.
pub(crate) const SUBNET: &str = "10.209.7";

#[derive(Debug)]
pub(crate) struct Damage {
    pub(crate) name: &'static str,
    /// The place of the damage: of several damages with one place, a node gets one.
    pub(crate) place: &'static str,
    pub(crate) script: &'static str,
    /// The kind of the finding, and a text of it.
    pub(crate) kind: &'static str,
    pub(crate) text: &'static str,
}

/// Faults that undo others, so that nothing of these is left to be found: the place of those, and the name of the one.
pub(crate) const UNDOING: [(&str, &str); 4] = [
    ("policy", "flushed rules of all tables"),
    ("table", "flushed rules of all tables"),
    // The setting of all links covers that of one.
    ("forwarding", "no forwarding of the bridge"),
    ("arp", "a bridge that is gone"),
];

pub(crate) fn damages() -> Vec<Damage> {
    TABLE.split("== ").skip(1).map(|fault| parse(fault).expect(fault)).collect()
}

fn parse(fault: &'static str) -> Option<Damage> {
    let (head, damage) = fault.split_once('\n')?;
    let (script, finding) = damage.trim_end().split_once("\n=> ")?;
    let ((place, name), (kind, text)) = (head.split_once(": ")?, finding.split_once(": ")?);
    Some(Damage { name, place, script, kind, text })
}

/// In the order in which they happen: a bridge that is gone takes settings and routes with it. A fault is its place and name, lines for
/// a shell, and the finding.
const TABLE: &str = r#"
== leftover: a pod that is gone without DEL
ip netns add gone; cnitool add office /run/netns/gone --container-id gone > /run/gone; ip netns del gone
address=$(sed -n 's|.*"address": *"\([0-9.]*\)/.*|\1|p' /run/gone | head -1)
touch -d '1 hour ago' /var/lib/cni/networks/office/$address
=> leftover: gone/eth0
== stale: a reservation of a pod that never was
printf 'c77\r\neth0' > /var/lib/cni/networks/office/10.209.7.77
touch -d '1 hour ago' /var/lib/cni/networks/office/10.209.7.77
=> leftover: c77/eth0
== empty: an empty reservation
: > /var/lib/cni/networks/office/10.209.7.99; touch -d '1 hour ago' /var/lib/cni/networks/office/10.209.7.99
=> damaged-reservation: 10.209.7.99
== unfinished: a file that a killed process has left
cd /var/lib/cni/networks/office; echo 10 > .last_reserved_ip.0.new; touch -d '1 hour ago' .last_reserved_ip.0.new
=> unfinished: .last_reserved_ip.0.new
== arp: a bridge that answers no ARP
sysctl -qw net.ipv4.conf.cni0.arp_ignore=8
=> gateway-address: net.ipv4.conf.cni0.arp_ignore is 8
== policy: a rule that rejects all
iptables -w -A FORWARD -j REJECT
=> firewall-drops: iptables -A FORWARD -j REJECT
== policy: docker's policy
iptables -w -P FORWARD DROP
=> firewall-drops: chain FORWARD of iptables by its policy drops
== table: a firewall of its own table
nft add table inet guard; nft 'add chain inet guard pass { type filter hook forward priority 0; policy drop; }'
=> firewall-drops: nft chain inet guard pass by its policy drops
== route: a VPN's route to a part of the subnet
ip link add vpn type bridge; ip link set vpn up; ip route add 10.209.7.0/25 dev vpn
=> route-elsewhere: vpn
== route: a VPN's route by a gateway, and a strict filter of ways back
sysctl -qw net.ipv4.conf.all.rp_filter=1
ip link add vpn type bridge; ip address add 10.250.0.1/24 dev vpn; ip link set vpn up
ip route add 10.209.7.0/25 via 10.250.0.9 dev vpn onlink
=> route-elsewhere: vpn
== refusing: a blackhole in the subnet
ip route add blackhole 10.209.7.0/26
=> route-elsewhere: route blackhole 10.209.7.0/26 refuses packets
== forwarding: no forwarding of the way out
sysctl -qw net.ipv4.conf.ens3.forwarding=0
=> forwarding-off: net.ipv4.conf.ens3.forwarding is 0
== nat: ports that do not answer at 127.0.0.1
sysctl -qw net.ipv4.conf.cni0.route_localnet=0
=> port-gone: net.ipv4.conf.cni0.route_localnet is 0
== table: a firewall whose set has other subnets
nft add table inet known; nft 'add set inet known pods { type ipv4_addr; flags interval; elements = { 10.1.0.0/16 } ; }'
nft 'add chain inet known pass { type filter hook forward priority 5; policy drop; }'
nft add rule inet known pass ip saddr @pods accept; nft add rule inet known pass ip daddr @pods accept
=> firewall-drops: nft chain inet known pass by its policy drops
== mtu: a narrow way out
ip link set ens3 mtu 1400
=> mtu: that of ens3, the way out, 1400
== forwarding: no forwarding
sysctl -qw net.ipv4.ip_forward=0
=> forwarding-off: net.ipv4.ip_forward is 0
== bridge: no forwarding of the bridge
sysctl -qw net.ipv4.conf.cni0.forwarding=0
=> forwarding-off: net.ipv4.conf.cni0.forwarding is 0
== nat: a flushed table of iptables
iptables -w -t nat -F; iptables -w -t nat -X
=> port-gone: no rule forwards port 8080/tcp
== nat: flushed rules of all tables
nft flush ruleset
=> masquerade-gone: no rule masquerades packets of living
== pod: a pod's interface that is down
nsenter --net=/run/netns/web ip link set eth0 down
=> container-side: eth0 in the container is down
== pod: a pod without address
nsenter --net=/run/netns/web ip address flush dev eth0
=> container-side: does not have 10.209.7.2
== pod: a pod without route
nsenter --net=/run/netns/web ip route del default
=> container-side: the container has no IPv4 route out
== pod: a pod without interface
nsenter --net=/run/netns/web ip link delete eth0
=> container-side: the container has no interface eth0
== bridge: a bridge that is gone
ip link delete cni0
=> link-gone: bridge cni0 is gone
== bridge: a bridge that is down
ip link set cni0 down
=> link-down: link cni0 is down
== bridge: veths off their bridge
for link in $(ip -o link show master cni0 | cut -d' ' -f2 | cut -d@ -f1); do ip link set $link nomaster; done
=> link-down: is no port of bridge cni0
== bridge: a bridge without address
ip address flush dev cni0 scope global
=> gateway-address: cni0 does not have the gateway's address 10.209.7.1/24
== bridge: an old address of the bridge
ip address flush dev cni0 scope global; ip address add 10.244.1.1/24 dev cni0
=> gateway-address: and has 10.244.1.1/24 instead
== bridge: a bridge without its route
ip route del 10.209.7.0/24 dev cni0
=> route-elsewhere: leads to ens3 and not to cni0
== bridge: a veth that is down
ip link set $(ip -o link show master cni0 | cut -d' ' -f2 | cut -d@ -f1 | head -1) down
=> link-down: link veth
"#;
