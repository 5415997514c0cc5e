//! Each kind of damage, and what the doctor has to say of it.

/// The functions of the scripts: a reservation that is an hour old, a container that is gone without DEL, and a plugin behind the
/// network's.
pub(super) const FUNCTIONS: &str = r#"
cnitool() { $RUNTIME $CNI_PATH/cnitool "$@"; }
PATH=$CNI_PATH:$PATH conf=/etc/cni/net.d store=/var/lib/cni/networks/office results=/var/lib/cni/results
old() { printf "$2" > $store/$1; touch -d '1 hour ago' $store/$1; }
lose() { ip netns add gone; cnitool add office /run/netns/gone --container-id gone > /dev/null
    touch -d '1 hour ago' $store/A.3; ip netns del gone; }
chain() { sed -i 's/]}$/,{"type":"'$1'"}]}/' $conf/10-office.conflist; }
"#;

/// The findings that `--fix` mends.
pub(super) const LEFT_OVER: &str = r#"
# A container is gone without DEL.
lose
=> warning leftover: address 10.
# The cache has forgotten a container that is gone.
lose; rm $results/office-gone-eth0
=> warning leftover: address 10.
# A reservation of a container that never was.
old A.77 'c77\r\neth0'
=> warning leftover: c77/eth0
# A container is gone without DEL, and so is its reservation.
lose; rm $store/A.3
=> warning leftover: masquerade of 10.
# The cache was restored from a backup.
ip netns add back; cnitool add office /run/netns/back --container-id back > /dev/null; cp $results/office-back-eth0 /run/backup
cnitool del office /run/netns/back --container-id back; ip netns del back; mv /run/backup $results/office-back-eth0
=> warning leftover: only in the cache
# An empty reservation.
old A.9 ''
=> warning damaged-reservation: .9
"#;

/// What an operator has to decide on.
pub(super) const OTHERS: &str = r#"
# A configuration that no runtime can use.
printf '{"cniVersion": "1.0.0", "name": "bad"' > $conf/20-bad.conflist
=> error config: line 1
# A configuration behind another of the same name.
cp $conf/10-office.conflist $conf/20-office.conflist
=> warning config: 20-office
# A plugin is missing.
chain absent
=> error not-ready: absent
# A plugin of another project.
chain foreign; version='{"cniVersion": "1.1.0", "supportedVersions": ["1.1.0"]}'
printf '#!/bin/sh\n[ $CNI_COMMAND != VERSION ] || echo '"'$version'" > $CNI_PATH/foreign; chmod 755 $CNI_PATH/foreign
=> note mixed-makes: foreign
# A cache entry is damaged.
printf '{' > $results/office-c5-eth0
=> warning unreadable-entry: office-c5-eth0
# A killed process has left an unfinished file.
old .last_reserved_ip.0.new 10
=> note unfinished: .last_reserved_ip.0.new
# Reservations have no owner that can be read.
old A.9 'a/../b\r\neth0'; old A.10 '\033[2J'; mkdir $store/A.11; touch -d '1 hour ago' $store/A.11
=> warning damaged-reservation: 3 reservations whose owner cannot be read
# The reservation of a container that lives is gone.
rm $store/A.2
=> error unreserved: no reservation
# Another container has the reservation of one that lives.
old A.2 'c77\r\neth0'
=> error unreserved: reserved for c77
# A range is nearly full.
for last in $(seq 10 250); do old A.$last "an operator's"; done
=> warning range-full: 242 of 253
# A range is full.
for last in $(seq 3 254); do old A.$last "an operator's"; done
=> error range-full: 253 of 253
# Forwarding is off.
sysctl -qw net.ipv4.ip_forward=0
=> error forwarding-off: net.ipv4.ip_forward
# The MTU is above that of the way out.
ip link add out mtu 1400 type bridge; ip address add 192.168.7.2/24 dev out; ip link set out up
ip route add default via 192.168.7.1; sed -i 's/"type":"bridge"/"mtu":1500,&/' $conf/10-office.conflist
=> warning mtu: 1400
# Both variants of iptables have rules.
iptables-legacy -t filter -A FORWARD -s 203.0.113.1 -j DROP
=> warning two-rulesets: legacy
# The folder of configurations is no folder.
mv $conf /etc/cni/away; : > $conf
=> warning unseen: /etc/cni/net.d
"#;
