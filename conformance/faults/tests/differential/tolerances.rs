//! The intended differences, each with its row of the plugins' pages.

use serde_json::{Map, Value};

use crate::compare::{Difference, DifferenceContext};
use crate::run::Line;
use faults::subjects::Who;

pub(crate) struct Tolerance {
    pub(crate) name: &'static str,
    pub(crate) row: &'static str,
    pub(crate) how: How,
}

pub(crate) enum How {
    /// Rewrites the lines of both runs to what they have in common; `None` drops a line.
    Common(fn(&str) -> Option<String>),
    Excuse(fn(&DifferenceContext<'_>) -> bool),
}

const fn common(name: &'static str, row: &'static str, common: fn(&str) -> Option<String>) -> Tolerance {
    Tolerance { name, row, how: How::Common(common) }
}

const fn excuse(name: &'static str, row: &'static str, excuses: fn(&DifferenceContext<'_>) -> bool) -> Tolerance {
    Tolerance { name, row, how: How::Excuse(excuses) }
}

/// The result of an ADD, without what the reference's never has.
fn result_without_mtu(seen: &DifferenceContext<'_>, who: Who) -> Option<Value> {
    let place = seen.difference.line.place;
    let said = seen.said(who, place).filter(|_| place.ends_with(" ADD"))?;
    let mut result: Value = serde_json::from_str(&said.text).ok()?;
    for interface in result["interfaces"].as_array_mut()? {
        interface.as_object_mut()?.remove("mtu");
    }
    Some(result)
}

pub(crate) const ALL: &[Tolerance] = &[
    common("notes about a store", "An index in `/run/cni/host-local` saves that", |line| without(line, &[" /run/cni"])),
    common("mark on a rule", "a note that iptables does not show", |line| {
        Some(
            if line.starts_with("nft rule ip") { line.split(" 7=\"").next().unwrap_or_default() } else { line }
                .to_owned(),
        )
    }),
    common("mark on the host veth", "and an alias `cni:<network>/<container>/<ifname>`", |line| {
        Some(without_word(line, "alias"))
    }),
    common("queue of a veth", "A veth's queue has length 0", |line| {
        Some(if line.contains("kind \"veth\"") { without_word(line, "txqlen") } else { line.to_owned() })
    }),
    common("queue of an ifb", "The ifb has no alias, and a queue of length 0", |line| {
        Some(if line.contains("kind \"ifb\"") { without_word(line, "txqlen") } else { line.to_owned() })
    }),
    excuse(
        "rules of a policy that the last container leaves",
        "Rules of a policy stay when no container of the bridge is left",
        |seen| {
            let is_of_policy =
                ["(ingressPolicy: same-bridge|isolated)", "\"br0\""].iter().all(|word| seen.is_state(word));
            seen.difference.who == Who::Reference && seen.difference.line.place == "node after DEL" && is_of_policy
        },
    ),
    excuse("CHECK without limits", "CHECK without limits crashes", |seen| {
        let has_none = seen.case.config()["bandwidth"].as_object().is_some_and(Map::is_empty);
        has_none && seen.is_only_refused_by(Who::Reference, "CHECK", "bandwidth: no error object")
    }),
    common("announced IPv6 addresses", "`ndisc_notify` is set where there is no IPv6 address, too", |line| {
        without(line, &["sysctl ", "/eth0/ndisc_notify "])
    }),
    common("announced IPv4 addresses", "Only macvlan announces addresses", |line| {
        without(line, &["sysctl ", "/eth0/arp_notify "])
    }),
    excuse("MTU in the result", "The result has no `mtu` of interfaces", |seen| {
        let rest = |who| result_without_mtu(seen, who);
        rest(Who::Ours).is_some() && rest(Who::Ours) == rest(Who::Reference)
    }),
    excuse("DNS of the address plugin", "The address plugin's `dns` is lost", |seen| {
        let rest = |who| {
            let mut result = result_without_mtu(seen, who)?;
            result.as_object_mut()?.remove("dns");
            Some(result)
        };
        let theirs = || result_without_mtu(seen, Who::Reference).is_some_and(|result| result["dns"].is_null());
        theirs() && rest(Who::Ours) == rest(Who::Reference)
    }),
    excuse("a chain of two addresses", "or two addresses of one family, share an iptables chain", |seen| {
        seen.is_only_refused_by(Who::Reference, "DEL", "Device or resource busy")
    }),
    excuse(
        "DEL looks for rules of iptables",
        "DEL with `ipMasqBackend: nftables` also looks for rules of iptables",
        |seen| {
            let has_nftables = seen.case.config()["ipMasqBackend"] == "nftables";
            has_nftables && seen.is_only_refused_by(Who::Reference, "DEL", "does not exist")
        },
    ),
    common(
        "the gateway's address",
        "The gateway's IPv6 address on the bridge is looked for on the link first",
        |line| {
            Some(if line.starts_with("address ") { line.replace(" flags 0x2", " flags 0x0") } else { line.to_owned() })
        },
    ),
    common("router advertisements", "listens to router advertisements", |line| {
        without(line, &["sysctl ", "/eth0/accept_ra "])
    }),
    excuse("bridge without a name", "`\"bridge\": \"\"` is an error", |seen| {
        seen.is_only_refused_by(Who::Reference, "ADD", "Name cannot be empty")
    }),
    excuse("a failed ADD keeps what was held before", "A failed ADD releases all that the container held", |seen| {
        // What the case put there, and no reservation of the ADD that failed.
        let path = seen.difference.line.text.strip_prefix("file ").and_then(|file| file.split(' ').next());
        let was_there = path.is_some_and(|path| seen.case.before().any(|command| command.contains(path)));
        let fails = |who| seen.said(who, "pod1 ADD").is_some_and(Line::fails);
        seen.difference.who == Who::Ours && seen.is_state("\"pod1\\r\\neth0\"") && was_there && fails(Who::Ours)
    }),
    excuse("earlier result", "Passed on without loopback addresses", |seen| {
        let place = seen.difference.line.place;
        let result = |who| seen.said(who, place).and_then(|line| serde_json::from_str(&line.text).ok());
        let (Some(ours), Some(theirs)) = (result(Who::Ours), result(Who::Reference)) else { return false };
        place.ends_with(" ADD") && own_part(&ours, &theirs) == theirs
    }),
    excuse("CHECK beside an earlier result's interface of that name", "Passed on without loopback addresses", |seen| {
        let earlier = |key: &str, value: &Value| key.eq_ignore_ascii_case("prevResult") && names_eth0(value);
        let has_earlier = || seen.case.config().as_object().is_some_and(|all| all.iter().any(|(k, v)| earlier(k, v)));
        seen.is_only_refused_by(Who::Reference, "CHECK", "") && has_earlier()
    }),
    excuse("CHECK of a gateway that moved", "CHECK checks no masquerade, spoof rule, gateway address", |seen| {
        let may_move = seen.case.config().to_string().to_lowercase().contains("\"forceaddress\":true");
        may_move && seen.is_only_refused_by(Who::Ours, "CHECK", "gateway ") && seen.is_failure(" is not found")
    }),
    excuse("DEL of another's link", "DEL deletes any link of the name", |seen| {
        let is_left = seen.difference.who == Who::Ours && !seen.difference.line.text.contains("veth");
        is_left
            && seen.difference.line.place == "pod1 after DEL"
            && seen.case.before().any(|command| command.contains("add eth0"))
    }),
    excuse(
        "CHECK of a hardware address that moves",
        "CHECK compares the hardware address of a bridge without addresses",
        |seen| seen.is_failure("Mac doesn't match"),
    ),
    excuse("a device that comes home", "A device comes home down", |seen| {
        // On both sides it is there.
        let text = &seen.difference.line.text;
        let device = ["dev1", "dev2"].into_iter().find(|device| {
            [" ", "/"]
                .iter()
                .any(|before| [" ", "/"].iter().any(|after| text.contains(&format!("{before}{device}{after}"))))
        });
        let is_home = |lines: &[Line], device: &str| {
            let start = format!("link {device} ");
            lines.iter().any(|line| line.place == "node after DEL" && line.text.starts_with(&start))
        };
        seen.difference.line.place == "node after DEL"
            && device.is_some_and(|device| is_home(seen.ours, device) && is_home(seen.theirs, device))
    }),
    excuse("a device that a failed ADD of the reference leaves in the container", "A device comes home down", |seen| {
        let is_of_device = ["dev1", "dev2"].iter().any(|device| seen.is_state(device));
        let is_there = seen.difference.who == Who::Ours && seen.difference.line.place == "node after ADD";
        seen.case.plugin() == "host-device" && is_there && is_of_device && seen.fails(Who::Reference)
    }),
    excuse(
        "a device that a failed ADD of the reference keeps from the next container",
        "A device comes home down",
        |seen| {
            let fails = |who| seen.said(who, "pod1 ADD").is_some_and(Line::fails);
            let words = "failed to find host device: Link not found";
            let is_next = seen.difference.line.place == "pod2 ADD" && fails(Who::Ours) && fails(Who::Reference);
            seen.case.plugin() == "host-device" && is_next && seen.is_only_refused_by(Who::Reference, "ADD", words)
        },
    ),
    excuse("DEL reads only what it needs", "DEL reads the whole config, and is refused for a type", |seen| {
        REFUSALS_OF_KEYS.iter().any(|words| seen.is_only_refused_by(Who::Reference, "DEL", words))
    }),
    excuse(
        "DEL of a device that is not there",
        "DEL of host-device fails when it is repeated, or the namespace is gone",
        |seen| seen.is_only_refused_by(Who::Reference, "DEL", "failed to find \"eth0\" in containerNS: Link not found"),
    ),
    excuse("DEL of a link that is no device", "DEL moves whatever link has the interface's name", |seen| {
        let words = "failed to restore \"eth0\" to original name \"\"";
        let is_there = seen.case.before().any(|command| command.contains("add eth0"));
        is_there && seen.is_only_refused_by(Who::Reference, "DEL", words)
    }),
    excuse("a PCI device beside another key", "A `pciBusID` that is on no bus fails ADD", |seen| {
        seen.is_only_refused_by(Who::Reference, "ADD", "lstat /sys/bus/pci/devices/")
    }),
    excuse("CHECK of a config that ADD took", "CHECK is refused for a key that ADD takes", |seen| {
        let words = "failed to load netconf: json: cannot unmarshal";
        seen.case.plugin() == "static" && seen.is_only_refused_by(Who::Reference, "CHECK", words)
    }),
    excuse("a mix of families", "A gateway of one family for an address or a route of the other", |seen| {
        seen.case.plugin() == "static" && seen.is_only_refused_by(Who::Ours, "ADD", "is of the other family")
    }),
    excuse("GATEWAY of CNI_ARGS", "`GATEWAY` of `CNI_ARGS` counts for the addresses of `IP` only", |seen| {
        let Difference { who, line } = seen.difference;
        let is_other = |other: &Line| without_gateways(&other.text) == without_gateways(&line.text);
        let is_gateway = || seen.said(who.other(), line.place).is_some_and(is_other);
        // The reference's CHECK compares with the addresses of its own ADD, of which some had no gateway.
        let is_checked = || seen.is_only_refused_by(Who::Reference, "CHECK", "Failed to match addr ");
        let has_gateway = seen.case.plugin() == "static" && seen.case.to_string().contains("GATEWAY=");
        has_gateway && (is_gateway() || is_checked())
    }),
    excuse("default route without gateway", "`isDefaultGateway` with a default route of IPAM without `gw`", |seen| {
        seen.is_only_refused_by(Who::Reference, "ADD", "file exists")
    }),
    excuse("two subnets of a family", "A second IPv4 subnet's gateway on one bridge", |seen| {
        seen.is_only_refused_by(Who::Reference, "ADD", "already has an IP address different from")
    }),
    excuse(
        "CHECK of an ipvlan on the default route's interface",
        "that of ipvlan without `master` always fails",
        |seen| seen.is_only_refused_by(Who::Reference, "CHECK", "failed to lookup master \"\": "),
    ),
    excuse("DEL that looks for a master", "DEL of vlan fails once the master is gone", |seen| {
        seen.is_only_refused_by(Who::Reference, "DEL", "chained master failure. PrevResult lacks")
    }),
    excuse("CHECK without IPAM", "CHECK without IPAM: `no plugin name provided`", |seen| {
        seen.is_only_refused_by(Who::Reference, "CHECK", "no plugin name provided")
    }),
    excuse("IPAM is asked first", "The link is made before IPAM is called", |seen| {
        let fails = |place| seen.said(Who::Ours, place).is_some_and(|line| line.fails());
        let is_store = ["/networks 0755", "/data 0755", "/net 0755", "/lock ", "/last_reserved_ip."]
            .iter()
            .any(|name| seen.is_state(name));
        // The reference makes these links first.
        let any = ["macvlan", "ipvlan", "vlan"].contains(&seen.case.plugin()) && fails("pod2 ADD");
        seen.difference.who == Who::Ours && is_store && (any || fails("pod1 ADD") && fails("pod2 ADD"))
    }),
    excuse("router advertisements on a bridge after a failed ADD", "A failed ADD leaves the veth", |seen| {
        let is_as_before = seen.is_state("sysctl net/ipv6/conf/br0/accept_ra = 1");
        seen.difference.who == Who::Ours && is_as_before && seen.fails(Who::Reference)
    }),
    excuse("master of a macvlan that a failed ADD left", "macvlan and vlan leave it when IPAM fails", |seen| {
        // A veth has no list of addresses to receive, so a macvlan on it makes it promiscuous.
        let is_plain = seen.is_state("link up") && !seen.is_state("promiscuity");
        seen.case.plugin() == "macvlan" && seen.difference.who == Who::Ours && is_plain && seen.fails(Who::Reference)
    }),
    excuse("forwarding after a failed ADD", "Forwarding is turned on first, and stays when ADD fails", |seen| {
        // Forwarding changes the defaults of what belongs to a router.
        let is_routing = ["forward", "accept_redirects"].iter().any(|word| seen.is_state(word));
        let is_sysctl = seen.difference.line.text.starts_with("sysctl ");
        let is_ptp = seen.case.plugin() == "ptp";
        is_ptp && seen.difference.who == Who::Ours && is_sysctl && is_routing && seen.fails(Who::Reference)
    }),
    excuse(
        "a taken name is refused before IPAM is asked",
        "A taken interface name is noticed after IPAM has given an address",
        |seen| {
            // The next pod gets the address that the reference has asked for in vain.
            let is_taken = seen.case.before().any(|command| command.starts_with("ip -n pod1 link add eth0"));
            let has_address =
                ["10.7.0.", "10.8.0.", "fd07::"].iter().any(|all| seen.difference.line.text.contains(all));
            let is_later = seen.difference.line.place == "pod2 ADD" || seen.is_state("");
            let fails = |who| seen.said(who, "pod1 ADD").is_some_and(Line::fails);
            let is_refused = fails(Who::Ours) && fails(Who::Reference);
            seen.case.plugin() == "ptp" && is_taken && is_refused && is_later && has_address
        },
    ),
    excuse(
        "requested second address",
        "A container that asks for an address gets a second one of the same set",
        |seen| seen.is_only_refused_by(Who::Ours, "ADD", "duplicate allocation is not allowed"),
    ),
    excuse(
        "an address of CNI_ARGS beside one of runtimeConfig",
        "An address in `CNI_ARGS` and another of the same range set",
        |seen| {
            // All that follows such an ADD of the reference differs.
            let config = seen.case.config();
            let lists = [&config["runtimeConfig"]["ips"], &config["args"]["cni"]["ips"]];
            let has_both = seen.case.args().contains("IP=") && lists.iter().any(|list| list.is_array());
            let is_refused = |place: &&str| {
                let theirs = seen.said(Who::Reference, place).filter(|line| line.fails());
                theirs.is_some_and(|line| line.words.contains("failed to allocate all requested IPs"))
            };
            has_both && ["pod1 ADD", "pod2 ADD"].iter().any(is_refused)
        },
    ),
    excuse("ADD all or nothing", "A failed ADD leaves the veth", |seen| {
        // What the reference has set before it failed is as before in ours, which failed, too.
        let is_as_before = || seen.fails(Who::Ours);
        seen.is_state("") && seen.fails(Who::Reference) && (seen.difference.who == Who::Reference || is_as_before())
    }),
];

fn without_gateways(text: &str) -> String {
    let mut parts = text.split(r#","gateway":""#);
    let first = parts.next().unwrap_or_default().to_owned();
    first + &parts.filter_map(|part| Some(part.split_once('"')?.1)).collect::<String>()
}

/// How the reference refuses DEL for keys that it does not use for it.
const REFUSALS_OF_KEYS: &[&str] = &[
    "json: cannot unmarshal",
    "ARGS: ",
    "CNI version ",
    "IPAM config missing 'ipam' key",
    "no IP ranges specified",
    "failed to parse config: ",
    "invalid IP address ",
    "invalid plugin name: ",
    "invalid range set ",
    "no plugin name provided",
    "\"master\" field is required",
    "could not parse prevResult: ",
    "specify either \"device\", \"hwaddr\", \"kernelpath\" or \"pciBusID\"",
];

/// The last items of each list of `whole`, as many as the list of `part` has: a result without the part that comes from
/// prevResult.
fn own_part(whole: &Value, part: &Value) -> Value {
    let length = |result: &Value, key: &str| result[key].as_array().map_or(0, Vec::len);
    let earlier = |key: &str| length(whole, key).saturating_sub(length(part, key));
    let mut own = whole.clone();
    for key in ["interfaces", "ips", "routes"] {
        match own[key].as_array_mut() {
            Some(list) if earlier(key) < list.len() => drop(list.drain(..earlier(key))),
            _ => drop(own.as_object_mut().and_then(|object| object.remove(key))),
        }
    }
    for ip in own.get_mut("ips").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(index) = ip["interface"].as_u64() {
            ip["interface"] = index.saturating_sub(earlier("interfaces") as u64).into();
        }
    }
    own
}

fn names_eth0(result: &Value) -> bool {
    result["interfaces"].as_array().into_iter().flatten().any(|interface| interface["name"] == "eth0")
}

fn without(line: &str, words: &[&str]) -> Option<String> {
    (!words.iter().all(|word| line.contains(word))).then(|| line.to_owned())
}

fn without_word(line: &str, name: &str) -> String {
    if !line.contains(name) {
        return line.to_owned();
    }
    let mut words = line.split(' ');
    let mut rest = Vec::new();
    while let Some(word) = words.next() {
        if word == name {
            words.next();
        } else {
            rest.push(word);
        }
    }
    rest.join(" ")
}
