//! Filters for some packets of containers, told from those for all: what other programs and administrators write, and what of it is
//! no fault.

use super::cases::{cases, parse};
use super::lost_packets::{Sick, sh};

/// Filters whose findings have no remedy that opens them, and filters that are no fault.
const OTHERS: &str = r#"
iptables -w -A FORWARD -p tcp -j DROP
=> error firewall-drops: iptables -A FORWARD -p tcp -j DROP drops packets
iptables -w -t raw -A PREROUTING -j CT --notrack
=> error firewall-drops: iptables -t raw -A PREROUTING -j CT --notrack takes packets out of the usual connection tracking
nft add table inet guard; nft 'add chain inet guard early { type filter hook prerouting priority -300; }'
nft add rule inet guard early notrack
=> error firewall-drops: early notrack takes packets out of the usual connection tracking
iptables -w -P OUTPUT DROP; iptables -w -A OUTPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
=> warning firewall-drops: chain OUTPUT of iptables by its policy drops packets from the node
# A policy that marks what it accepts.
iptables -w -N policy; iptables -w -A FORWARD -i cni0 -j policy; iptables -w -A FORWARD -o cni0 -j policy
iptables -w -A policy -j MARK --set-xmark 0x10000/0x10000
iptables -w -A policy -m mark --mark 0x10000/0x10000 -j RETURN; iptables -w -A policy -j DROP
=> nothing
iptables -w -P FORWARD DROP; iptables -w -t mangle -A PREROUTING -j MARK --set-xmark 0x7
iptables -w -A FORWARD -m mark --mark 0x7 -j ACCEPT
=> nothing
# Containers of two bridges may be kept apart on purpose.
iptables -w -A FORWARD -i cni0 -o docker0 -j DROP; iptables -w -A FORWARD -i docker0 -o cni0 -j DROP
=> nothing
# In a base chain RETURN leaves packets to the policy.
iptables -w -A FORWARD -i cni0 -j RETURN; iptables -w -A FORWARD -i cni0 -j DROP
=> nothing
nft -f - <<'X'
table inet guard { chain pass { type filter hook forward priority 0; policy drop; iifname { "cni0", "veth*" } accept
oifname { "cni0", "veth*" } accept; }; }
X
=> nothing
# Behind the masquerade packets have the node's address.
nft 'table inet guard { chain out { type filter hook postrouting priority 300; oifname ens3 ip saddr 10.0.0.0/8 drop; }; }'
=> nothing
nft 'table inet guard { chain out { type filter hook postrouting priority 300; oifname ens3 ip saddr 192.168.1.7 drop; }; }'
=> error firewall-drops: ip saddr 192.168.1.7 drop drops packets
# A further address of the node is there for another use.
ip address add 192.168.1.9/32 dev ens3
iptables -w -t nat -I PREROUTING -d 192.168.1.9 -p tcp --dport 8080 -j DNAT --to 10.9.9.9:80
=> nothing
iptables -w -t raw -A PREROUTING -i ens3 -p tcp --dport 8080 -j DROP
=> error firewall-drops: --dport 8080 -j DROP drops packets from other hosts to the node (TCP port 8080)
nft 'table inet guard { chain early { type filter hook prerouting priority raw; tcp dport { 22, 8080 } drop; }; }'
=> error firewall-drops: drops packets from other hosts to the node (TCP port 8080)
iptables -w -t raw -A PREROUTING -i cni0 -j CT --zone 5
=> error firewall-drops: -j CT --zone 5 takes packets out of the usual connection tracking
# The port of a bridge is not what routed packets come in by, and another host may be kept out on purpose.
iptables -w -t raw -I PREROUTING -i $(ls /sys/class/net | grep ^veth) -j DROP
=> nothing
iptables -w -A FORWARD -i cni0 -d 203.0.113.66 -j REJECT
=> nothing
iptables -w -A FORWARD -i cni0 -p tcp --dport 25 -j REJECT
=> nothing
iptables -w -A FORWARD -i cni0 -p udp --dport 53 -j REJECT
=> warning firewall-drops: --dport 53 -j REJECT
iptables -w -t nat -I POSTROUTING -s 10.0.0.0/8 ! -d 10.0.0.0/8 -j RETURN
=> error masquerade-gone: ! -d 10.0.0.0/8 -j RETURN comes before the masquerade of containers
iptables -w -t nat -I PREROUTING -d 192.168.1.7/32 -j ACCEPT
=> error port-gone: -d 192.168.1.7/32 -j ACCEPT comes before the rule that forwards port 8080/tcp
iptables -w -P FORWARD DROP; iptables -w -A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED,DNAT -j ACCEPT
iptables -w -A FORWARD -i cni0 -o ens3 -j ACCEPT
=> nothing
# What goes to another chain does not come back.
iptables -w -N to-pods; iptables -w -N pod; iptables -w -A FORWARD -o cni0 -j to-pods
iptables -w -A to-pods -o cni0 -g pod; iptables -w -A to-pods -j DROP
=> nothing
nft 'table inet guard { chain pod { }; chain pass { type filter hook forward priority 0; oifname cni0 goto pod
iifname cni0 accept; drop; }; }'
=> nothing
# A chain of its own, whose last rule is for all others.
iptables -w -N pods; iptables -w -A FORWARD -o cni0 -j pods
iptables -w -A pods -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
iptables -w -A pods -p tcp --dport 80 -j ACCEPT; iptables -w -A pods -j DROP
=> nothing
iptables -w -P FORWARD DROP; iptables -w -A FORWARD -i cni0 -j ACCEPT
iptables -w -A FORWARD -o cni0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
iptables -w -A FORWARD -p tcp -m multiport --dports 80,443 -m conntrack --ctstate NEW -j ACCEPT
=> nothing
iptables -w -N policy; iptables -w -A FORWARD -o cni0 -j policy
iptables -w -A policy -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
iptables -w -A policy -j MARK --set-xmark 0x10000/0x10000
iptables -w -A policy -m mark --mark 0x10000/0x10000 -j ACCEPT; iptables -w -A policy -j DROP
=> nothing
iptables -w -N pods; iptables -w -A FORWARD -o cni0 -j pods; iptables -w -A pods -p tcp --dport 80 -j RETURN
iptables -w -A pods -m conntrack --ctstate RELATED,ESTABLISHED -j RETURN; iptables -w -A pods -j DROP
=> nothing
# The port by which other hosts know it is not its own any more.
iptables -w -N user; iptables -w -A FORWARD -i ens3 -j user
iptables -w -A user -m conntrack --ctstate RELATED,ESTABLISHED -j RETURN
iptables -w -A user -p tcp --dport 8080 -j RETURN; iptables -w -A user -j DROP
=> error firewall-drops: -A user -j DROP drops packets from other hosts
# One zone for all packets has their answers, too.
iptables -w -t raw -A PREROUTING -j CT --zone 5; iptables -w -t raw -A OUTPUT -j CT --zone 5
=> nothing
# A port of its own is kept from some on purpose.
iptables -w -A FORWARD ! -s 192.168.1.0/24 -d A.2 -i ens3 -p tcp --dport 80 -j DROP
=> nothing
# What the node gets is for its own addresses.
iptables -w -N not-local; iptables -w -A INPUT -j not-local
iptables -w -A not-local -m addrtype --dst-type LOCAL -j RETURN; iptables -w -A not-local -j DROP
=> nothing
nft 'table inet guard { chain early { type filter hook prerouting priority raw; iifname cni0 ct zone set 5; }; }'
=> error firewall-drops: ct zone set 5 takes packets out of the usual connection tracking
# Before connections are tracked, each packet is of none.
nft 'table inet guard { chain early { type filter hook prerouting priority raw; ct state invalid drop; }; }'
=> error firewall-drops: ct state invalid drop drops packets
iptables -w -A FORWARD -i cni0 -m state --state NEW -j REJECT
=> error firewall-drops: --state NEW -j REJECT
nft 'table inet guard { chain pass { type filter hook forward priority 0; iif { lo, cni0 } drop; }; }'
=> error firewall-drops: nft rule inet guard pass iif
iptables -w -t nat -I PREROUTING -i ens3 -p tcp -j DNAT --to 10.9.9.9
=> error port-twice: -j DNAT --to-destination 10.9.9.9 comes before the rule that forwards port 8080/tcp
"#;

#[test]
fn rules_for_some_packets_are_told_from_those_for_all() {
    for case in cases(OTHERS) {
        let sick = Sick::new();
        let _pod = sick.add("office", "web", Some(8080));
        let case = sick.tour.with_addresses(&case);
        let (script, expected) = parse(&case);
        sh(script);
        sick.expect(script, &expected);
    }
}
