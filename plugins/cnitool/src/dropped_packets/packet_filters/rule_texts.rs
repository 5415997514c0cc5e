//! Rules and chains in the words of the program that writes them, and the commands that open a chain for an attachment.

use cni_filter::iptables::Rule;
use cni_filter::packet_path::{At, Gate, Maker};
use ipnetwork::IpNetwork;
use netops::Family;
use netops::nft::Hook;

use crate::dropped_packets::way_to_container::Bridge;
use crate::node_networks::Attachment;
use crate::shell_words::word;

/// A rule of a gate as a command or sentence.
pub(super) fn in_words(gate: &Gate, chain: &str, rule: &Rule) -> String {
    match &gate.maker {
        Maker::Iptables(_) | Maker::LegacyIptables => format!("{} -A {chain}{rule}", program(gate)),
        Maker::Nftables(name) => {
            let table = name.rsplit_once(' ').map_or(name.as_str(), |(table, _)| table);
            format!("the rule of nft chain {table} {chain} that iptables would write as{rule}")
        }
    }
}

/// The program of a chain of iptables, with the table where that is not `filter`.
pub(super) fn program(gate: &Gate) -> String {
    let name = if gate.family == Some(Family::V6) { "ip6tables" } else { "iptables" };
    match &gate.maker {
        Maker::Iptables(table) if table != "filter" => format!("{name} -t {table}"),
        Maker::LegacyIptables => format!("{name}-legacy"),
        Maker::Iptables(_) | Maker::Nftables(_) => name.to_owned(),
    }
}

/// The command that shows the chain.
pub(super) fn show(gate: &Gate) -> String {
    match &gate.maker {
        Maker::Iptables(_) | Maker::LegacyIptables => format!("{} -S {}", program(gate), gate.chain),
        Maker::Nftables(name) => format!("nft list chain {name}"),
    }
}

/// Commands that accept packets of the attachment's subnets at the beginning of the chain.
pub(super) fn accept(gate: &Gate, attachment: &Attachment, family: Family) -> Vec<String> {
    // Neighbours have to be found, too, by frames without an address of IP; and an answer that arrives for the container has
    // the node's address until it is translated back.
    let is_before_addresses = matches!(gate.at, At::Ingress(_) | At::Egress(_)) || gate.is_of_frames;
    if is_before_addresses || gate.at == At::Hook(Hook::Prerouting) && gate.drops {
        return match &gate.maker {
            Maker::Nftables(name) if gate.drops && !gate.is_owned => {
                let table = name.rsplit_once(' ').map_or(name.as_str(), |(table, _)| table);
                vec![format!("nft 'add chain {table} {} {{ policy accept; }}'", gate.chain)]
            }
            Maker::Iptables(_) if gate.drops => vec![format!("{} -P {} ACCEPT", program(gate), gate.chain)],
            _ => vec![show(gate)],
        };
    }
    // A legacy table without rules is there for its policy alone, which iptables-nft does not show.
    let is_empty = gate.chains.get(&gate.chain).is_none_or(Vec::is_empty);
    if gate.maker == Maker::LegacyIptables && gate.drops && is_empty {
        return vec![format!("{} -P {} ACCEPT", program(gate), gate.chain)];
    }
    let sides = match gate.at {
        At::Hook(Hook::Output) => ["daddr"].as_slice(),
        _ => &["saddr", "daddr"],
    };
    rules(gate, attachment, family, sides, false)
}

/// Commands that accept packets of the attachment alone: what is closed to others stays so.
pub(super) fn accept_one(gate: &Gate, attachment: &Attachment, family: Family) -> Vec<String> {
    let mut alone = attachment.clone();
    alone.result.ips.clear();
    accept(gate, &alone, family)
}

/// The command that accepts what containers on one bridge send each other.
pub(super) fn accept_among(gate: &Gate, bridge: &Bridge) -> String {
    let name = word(&bridge.name);
    match &gate.maker {
        _ if gate.is_owned => show(gate),
        Maker::Iptables(_) | Maker::LegacyIptables => {
            format!("{} -I {} -i {name} -o {name} -j ACCEPT", program(gate), gate.chain)
        }
        Maker::Nftables(place) => format!("nft insert rule {place} iifname {name} oifname {name} accept"),
    }
}

/// Commands that accept answers of the attachment's subnets to the node.
pub(super) fn accept_answers(gate: &Gate, attachment: &Attachment, family: Family) -> Vec<String> {
    rules(gate, attachment, family, &["saddr"], true)
}

/// The command that accepts what finds addresses of IPv6.
pub(super) fn accept_discovery(gate: &Gate) -> String {
    accept_kind(gate, "-p icmpv6", "meta l4proto ipv6-icmp", "ICMPv6")
}

/// The command that accepts connections to forwarded ports.
pub(super) fn accept_translated(gate: &Gate) -> String {
    accept_kind(gate, "-m conntrack --ctstate DNAT", "ct status dnat", "packets with ct status dnat")
}

/// The command that accepts packets of a kind, by its condition in the words of iptables, of nft, and of a sentence.
fn accept_kind(gate: &Gate, iptables: &str, nft: &str, kind: &str) -> String {
    match &gate.maker {
        Maker::Iptables(_) | Maker::LegacyIptables => {
            format!("{} -I {} {iptables} -j ACCEPT", program(gate), gate.chain)
        }
        Maker::Nftables(_) if gate.is_owned => {
            format!("Have the program that owns the table of {} accept {kind}.", gate.place)
        }
        Maker::Nftables(name) => format!("nft insert rule {name} {nft} accept"),
    }
}

/// A table with an owner: only its program can change it.
fn opened_by_owner(gate: &Gate, net: &IpNetwork) -> String {
    let net = format!("{}/{}", net.network(), net.prefix());
    match &gate.maker {
        Maker::Nftables(name) if name.starts_with("inet firewalld ") => {
            format!("firewall-cmd --permanent --zone=trusted --add-source={net} && firewall-cmd --reload")
        }
        _ => format!("Have the program that owns the table of {} accept packets of {net}.", gate.place),
    }
}

fn rules(gate: &Gate, attachment: &Attachment, family: Family, sides: &[&str], of_answers: bool) -> Vec<String> {
    let of_result = attachment.result.ips.iter().map(|ip| ip.address);
    let single = attachment.addresses.iter().map(|address| IpNetwork::from(*address));
    let mut nets: Vec<IpNetwork> = of_result.filter(|net| Family::from(*net) == family).collect();
    if nets.is_empty() {
        nets = single.filter(|net| Family::from(*net) == family).collect();
    }
    if gate.is_owned {
        return nets.iter().map(|net| opened_by_owner(gate, net)).collect();
    }
    let keyword = if family == Family::V6 { "ip6" } else { "ip" };
    let rule = |net: &IpNetwork, side: &str| {
        let net = format!("{}/{}", net.network(), net.prefix());
        match &gate.maker {
            Maker::Iptables(_) | Maker::LegacyIptables => {
                let option = if side == "saddr" { "-s" } else { "-d" };
                let answers = if of_answers { " -m conntrack --ctstate RELATED,ESTABLISHED" } else { "" };
                format!("{} -I {} {option} {net}{answers} -j ACCEPT", program(gate), gate.chain)
            }
            Maker::Nftables(name) => {
                let answers = if of_answers { " ct state established,related" } else { "" };
                format!("nft insert rule {name} {keyword} {side} {net}{answers} accept")
            }
        }
    };
    nets.iter().flat_map(|net| sides.iter().map(|side| rule(net, side))).collect()
}
