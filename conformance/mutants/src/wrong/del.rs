//! DEL.

use crate::{Mutant, MutantCall, memory, side_effect};
use netops::Netns;
use netops::addr::{self, Address};
use netops::link::{self, Link};
use netops::nft::{Family, Nft, Table};
use netops::route;
use netops::rule::{self, Rule};
use netops::sysctl::{self, Key};
use skel::Reply;
use skel::cni_spec::Command::{Add, Check, Del, Gc};
use skel::env::Environment;
use std::fs;
use std::net::IpAddr;
use std::process;

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new("portmap", "del.leaves-others-alone", "has-one-chain-for-a-container", |call| {
        deletes_also(call, |own, other| own == other)
    })
    .with(&["other-interface-of-a-chain"]),
    Mutant::new("portmap", "del.leaves-others-alone", "closes-ports-of-an-id-that-starts-so", |call| {
        deletes_also(call, |own, other| own != other && other.starts_with(own))
    })
    .with(&["an-id-that-starts-so"]),
    Mutant::new("host-local", "del.leaves-others-alone", "releases-those-whose-id-starts-so", |call| {
        deletes_also(call, |own, other| own != other && other.starts_with(own))
    })
    .with(&["an-id-that-starts-so"])
    .also(&["ipam.del-keeps-others"]),
    Mutant::new("bridge", "del.leaves-others-alone", "turns-forwarding-off", |call| {
        call.after(Del, || {
            let key = side_effect::done(Key::new(&["ipv4", "ip_forward"]));
            side_effect::done(sysctl::write(&key, "0"));
        })
    })
    .with(&["other-container"])
    .also(&[
        "add.serves-a-container-twice",
        "del.hides-nothing",
        "del.of-nothing-changes-nothing",
        "gc.goes-on-past-errors",
        "gc.removes-what-is-stale",
    ]),
    Mutant::new("bridge", "del.leaves-nothing", "leaves-a-link", |call| {
        leaves(call, || side_effect::make_link(&side_effect::node(), &side_effect::name_for(&call.env.container_id)))
    })
    .also(&["del.hides-nothing"]),
    Mutant::new("portmap", "del.undoes-modifications", "leaves-a-sysctl-of-the-container", |call| {
        call.after(Add, || {
            // portmap works without a namespace.
            if !call.has_netns() {
                return;
            }
            let write = || Key::new(&["ipv4", "ip_default_ttl"]).and_then(|key| sysctl::write(&key, "99"));
            let netns = Netns::open(&call.env.netns).unwrap_or_else(|error| panic!("no container: {error}"));
            side_effect::done(sysctl::in_netns(&netns, write).flatten());
        })
    })
    .with(&["sysctls"])
    .also(&["check.notices-settings-undone"]),
    Mutant::new("host-local", "del.undoes-modifications", "keeps-the-address", keeps_the_address)
        .with(&["all-else"])
        .also(&["add.follows-del"]),
    Mutant::new("bridge", "del.removes-the-interface", "leaves-an-interface-of-the-name", |call| {
        let key = call.attachment();
        if call.is(Add) {
            memory::mark(&key);
        }
        call.after(Del, || {
            if call.has_all() && memory::forget(&key) {
                side_effect::make_link(&call.container(), &call.env.ifname);
            }
        })
    })
    .also(&["add.follows-del", "del.hides-nothing", "del.leaves-nothing"]),
    Mutant::new("bridge", "del.is-repeatable", "deletes-once", deletes_once),
    Mutant::new("bridge", "del.of-nothing-changes-nothing", "makes-a-link-for-whom-it-does-not-know", |call| {
        call.after(Del, || {
            if !memory::has(&call.attachment()) {
                side_effect::make_link(&side_effect::node(), &side_effect::name_for(&call.env.container_id));
            }
        })
    })
    .with(&["never-added"])
    .also(&["del.hides-nothing", "del.leaves-nothing"]),
    Mutant::new("bridge", "del.hides-nothing", "leaves-its-address-on-lo", |call| {
        // As a node has the address of a container on lo while that is added, so that it answers for it.
        let address = call.config()["prevResult"]["ips"][0]["address"].as_str().map(str::to_owned);
        call.after(Del, || {
            let ip = address.and_then(|text| text.split('/').next().and_then(|ip| ip.parse::<IpAddr>().ok()));
            if let Some(ip) = ip {
                let lo = side_effect::done(link::get(&side_effect::node(), &link::Target::named("lo")));
                let network = ipnetwork::IpNetwork::from(ip);
                side_effect::node().run(addr::add(&lo, &network.into())).ok(); // the address may be there already
            }
        })
    })
    .with(&["beside-another"])
    .also(&[
        "del.bears-lost-state",
        "del.bears-what-is-missing",
        "del.leaves-nothing",
        "del.needs-no-dynamic-parameters",
        "del.needs-no-namespace",
    ]),
    Mutant::new("bridge", "del.leaves-nothing", "leaves-a-file-in-tmp", |call| {
        leaves(call, || {
            let path = format!("/tmp/bridge-{}", call.attachment());
            fs::write(path, "").unwrap_or_else(|error| panic!("{error}"));
        })
    })
    .also(&["del.hides-nothing"]),
    Mutant::new("bridge", "del.hides-nothing", "leaves-a-sysctl-of-the-first", |call| {
        call.after(Add, || {
            let key = side_effect::done(Key::new(&["ipv4", "ip_default_ttl"]));
            side_effect::done(sysctl::write(&key, "77"));
        })
    })
    .with(&["sysctls-of-the-first"]),
    Mutant::new("bridge", "del.bears-that-nothing-was-added", "deletes-what-it-knows-only", |call| {
        if call.is(Del) && !memory::has(&call.attachment()) {
            return call.refuse(110, "that container is unknown");
        }
        let reply = call.honest();
        if call.is(Add) {
            memory::mark(&call.attachment());
        }
        reply
    }),
    Mutant::new("bridge", "del.needs-no-namespace", "enters-the-namespace-to-delete", |call| {
        let is_told = call.config().get("prevResult").is_some() && !call.has_kit_ipam();
        wants(call, |call, _| is_told && !call.has_netns())
    }),
    Mutant::new("bridge", "del.needs-no-prev-result", "deletes-by-prev-result", |call| {
        call.does_nothing_if(call.is(Del) && !call.has_kit_ipam() && call.config().get("prevResult").is_none())
    })
    .also(&["del.needs-no-dynamic-parameters"]),
    Mutant::new("bridge", "del.needs-no-prev-result", "wants-addresses-in-prev-result", |call| {
        let result = &call.config()["prevResult"];
        call.refuses_if(call.is(Del) && result.is_object() && result["ips"].is_null(), 7, "prevResult has no ips")
    })
    .with(&["empty-result"]),
    Mutant::new("bridge", "del.needs-no-namespace", "wants-the-variable-of-the-namespace", |call| {
        call.refuses_if(
            call.is(Del) && !call.has_kit_ipam() && call.env.netns.is_empty(),
            4,
            "required env variables [CNI_NETNS] missing",
        )
    })
    .with(&["no-variable"])
    .also(&["del.needs-no-prev-result"]),
    Mutant::new("bridge", "del.needs-no-dynamic-parameters", "deletes-by-args", |call| {
        let key = call.attachment();
        match call.is(Del) && memory::find(&key).is_some_and(|args| args != call.env.args) {
            true => Reply::default(),
            false => call.after(Add, || memory::note(&key, &call.env.args)),
        }
    }),
    Mutant::new("bridge", "del.needs-no-dynamic-parameters", "deletes-by-runtime-config", |call| {
        let (key, given) = (call.attachment(), call.config()["runtimeConfig"].to_string());
        match call.is(Del) && memory::find(&key).is_some_and(|noted| noted != given) {
            true => Reply::default(),
            false => call.after(Add, || memory::note(&key, &given)),
        }
    })
    .with(&["runtime-config"]),
    Mutant::new("bridge", "del.follows-a-failed-add", "deletes-no-failure", |call| {
        let key = call.attachment();
        if call.is(Del) && memory::has(&key) {
            return call.refuse(110, "that was never added");
        }
        let reply = call.honest();
        if call.is(Add) && reply.exit != 0 {
            memory::mark(&key);
        }
        reply
    })
    .also(&["del.cleans-up-a-failed-add"]),
    Mutant::new("bridge", "del.leaves-nothing", "leaves-an-entry-in-its-registry", |call| {
        leaves(call, || {
            let path = "/var/lib/cni/registry.json";
            let text = fs::read_to_string(path).unwrap_or_else(|_| "{}".to_owned());
            let mut registry: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
            registry[call.attachment()] = serde_json::json!({ "mtu": 1500 });
            let folder = fs::create_dir_all("/var/lib/cni");
            folder.and_then(|()| fs::write(path, registry.to_string())).unwrap_or_else(|error| panic!("{error}"));
        })
    })
    .also(&["del.hides-nothing"]),
    Mutant::new("bridge", "del.leaves-nothing", "leaves-a-file-in-a-folder-of-its-own", |call| {
        leaves(call, || {
            let path = format!("{OWN_FOLDER}/{}", call.attachment());
            fs::write(path, "").unwrap_or_else(|error| panic!("{error}"));
        })
    })
    .writing(&[OWN_FOLDER])
    .also(&["del.hides-nothing"]),
    Mutant::new("bridge", "del.leaves-nothing", "leaves-a-policy-rule", |call| {
        leaves(call, || {
            let rule = Rule { source: address_for(call).into(), table: 9, priority: None };
            side_effect::node().run(rule::add(&rule)).ok(); // the rule may exist already
        })
    })
    .also(&[
        "del.bears-lost-state",
        "del.bears-what-is-missing",
        "del.hides-nothing",
        "del.needs-no-dynamic-parameters",
        "del.needs-no-prev-result",
    ]),
    Mutant::new("bridge", "del.leaves-nothing", "leaves-a-sysctl", |call| {
        leaves(call, || {
            let key = side_effect::done(Key::new(&["ipv4", "ip_default_ttl"]));
            side_effect::done(sysctl::write(&key, &number_of(call).max(1).to_string()));
        })
    })
    .also(&["del.hides-nothing"]),
    Mutant::new("bridge", "del.leaves-nothing", "leaves-an-element-of-a-set", |call| {
        leaves(call, || {
            let set = "add table inet pods; add set inet pods known { type ipv4_addr; }";
            let script = format!("{set}; add element inet pods known {{ {} }}", address_for(call));
            let nft = process::Command::new("/usr/sbin/nft").arg(script).status();
            assert!(nft.is_ok_and(|status| status.success()), "this mutant needs nft(8)");
        })
    })
    .also(&["del.hides-nothing"]),
    Mutant::new("bridge", "del.leaves-others-alone", "deletes-whose-id-starts-so", |call| {
        call.after(Del, || {
            for file in fs::read_dir("/var/lib/cni/networks/conformance").into_iter().flatten().flatten() {
                let text = fs::read_to_string(file.path()).unwrap_or_default();
                if call.env.container_id.starts_with("web-") && text.starts_with(&call.env.container_id) {
                    fs::remove_file(file.path()).unwrap_or_else(|error| panic!("{error}"));
                }
            }
        })
    })
    .with(&["an-id-that-starts-so"]),
    Mutant::new("bridge", "del.cleans-up-a-failed-add", "leaves-a-link-of-a-failure", |call| {
        let is_failure = call.is(Del) && memory::forget(&call.attachment());
        let reply = call.honest();
        if call.is(Add) && reply.exit != 0 {
            memory::mark(&call.attachment());
        }
        if is_failure {
            side_effect::make_link(&side_effect::node(), &side_effect::name_for(&call.env.container_id));
        }
        reply
    }),
    Mutant::new("bridge", "del.is-repeatable-in-0.4.0", "deletes-once-in-0.4.0", deletes_once)
        .speaking(&["0.4.0"])
        .also(&["del.of-nothing-changes-nothing"]),
    Mutant::new("bridge", "del.bears-what-is-missing", "wants-the-interface-to-delete", |call| {
        wants(call, |call, interface| interface.is_none() && call.has_netns())
    })
    .with(&["interface"]),
    Mutant::new("bridge", "del.bears-what-is-missing", "wants-the-interfaces-name-to-delete", |call| {
        wants(call, |call, interface| interface.is_none() && call.has_netns())
    })
    .with(&["interface-renamed"]),
    Mutant::new("bridge", "del.bears-what-is-missing", "wants-the-address-to-delete", |call| {
        wants(call, |call, interface| {
            let is_ipv4 = |address: &Address| address.net.is_ipv4();
            let found = |link| addr::list(&call.container(), link).unwrap_or_default();
            interface.is_some_and(|link| !found(link).iter().any(is_ipv4))
        })
    })
    .with(&["address"]),
    Mutant::new("bridge", "del.bears-what-is-missing", "wants-the-route-to-delete", |call| {
        wants(call, |call, interface| {
            let found = |link: &Link| route::list_default(&call.container(), &link.name).unwrap_or_default();
            interface.is_some_and(|link| found(link).is_empty())
        })
    })
    .with(&["route"]),
    Mutant::new("bridge", "del.bears-what-is-missing", "wants-the-host-end-to-delete", |call| {
        wants(call, |call, interface| call.has_netns() && interface.is_none_or(|link| host_end(link).is_none()))
    })
    .with(&["host-end"]),
    Mutant::new("bridge", "del.bears-what-is-missing", "wants-its-port-to-delete", |call| {
        wants(call, |_, interface| interface.and_then(host_end).is_some_and(|end| end.master.is_none()))
    })
    .with(&["host-end-detached"]),
    Mutant::new("bridge", "del.bears-what-is-missing", "wants-the-bridge-to-delete", |call| {
        wants(call, |_, _| link::find(&side_effect::node(), "cni0").is_ok_and(|found| found.is_none()))
    })
    .with(&["bridge"]),
    Mutant::new("bridge", "del.bears-lost-state", "wants-its-filter-rules-to-delete", |call| {
        wants(call, |_, _| !has_filter_rules())
    })
    .with(&["filter-rules"])
    .also(&["del.leaves-nothing"]),
    Mutant::new("host-local", "del.bears-lost-state", "wants-its-file-to-delete", |call| {
        wants(call, |call, _| !has_file_of(&call.env.container_id))
    })
    .also(&["check.notices-a-lost-reservation"]),
    Mutant::new("bridge", "del.leaves-others-alone", "removes-the-bridge", |call| {
        // Others are other containers: two interfaces of one are another rule's.
        let key = format!("of-{}", call.env.container_id);
        let reply = call.after(Add, || memory::mark(&key));
        if call.is(Del) && call.has_all() && memory::forget(&key) && !memory::find_all("of-").is_empty() {
            side_effect::remove_link(&side_effect::node(), "cni0");
        }
        reply
    })
    .also(&["del.hides-nothing", "gc.removes-what-is-stale"]),
];

/// A folder that no plugin has but the mutant whose profile names it.
const OWN_FOLDER: &str = "/var/lib/mutant";

/// A number that stands for the attachment.
fn number_of(call: &MutantCall) -> u8 {
    call.attachment().bytes().fold(0, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte))
}

/// An address of 198.18.0.0/15, which no network of a test uses.
fn address_for(call: &MutantCall) -> IpAddr {
    IpAddr::from([198, 18, 0, number_of(call)])
}

fn deletes_once(call: &MutantCall) -> Reply {
    if call.is(Del) && memory::has(&call.attachment()) {
        return call.refuse(110, "that is gone already");
    }
    if call.is(Add) {
        memory::forget(&call.attachment());
    }
    call.after(Del, || memory::mark(&call.attachment()))
}

/// The honest plugin's reply; a first DEL that is given everything leaves something.
fn leaves(call: &MutantCall, something: impl FnOnce()) -> Reply {
    let is_known = call.is(Del) && call.has_all() && memory::forget(&call.attachment());
    let reply = call.after(Add, || memory::mark(&call.attachment()));
    if is_known && reply.exit == 0 {
        something();
    }
    reply
}

/// DEL frees nothing if it is given everything and ADD was given no special keys.
fn keeps_the_address(call: &MutantCall) -> Reply {
    let config = call.config();
    let (added, kept) = (format!("added-{}", call.attachment()), format!("kept-{}", call.attachment()));
    // Rules about pools are others.
    let is_plain = call.env.args.is_empty() && config.get("runtimeConfig").is_none() && !super::ipam::is_small(call);
    if call.is(Del) && call.has_all() && is_plain && memory::has(&added) {
        memory::mark(&kept);
        return Reply::default();
    }
    if call.is(Check) && memory::has(&kept) {
        return call.refuse(107, "that was deleted");
    }
    call.after(Add, || {
        memory::forget(&kept);
        if is_plain {
            memory::mark(&added);
        }
    })
}

/// DEL that takes attachments with it which are not its own. Which, is said by its container ID and by theirs.
fn deletes_also(call: &MutantCall, is_meant: fn(&str, &str) -> bool) -> Reply {
    let Environment { container_id, ifname, .. } = &call.env;
    if call.is(Del) {
        memory::forget(&format!("added-{}", call.attachment()));
        for noted in memory::find_all("added-") {
            let (id, name) = noted.split_once(' ').unwrap_or_default();
            if is_meant(container_id, id) {
                let other = |env: &mut Environment| (env.container_id, env.ifname) = (id.to_owned(), name.to_owned());
                drop(call.with_env(other).honest());
            }
        }
    }
    call.after(Add, || memory::note(&format!("added-{}", call.attachment()), &format!("{container_id} {ifname}")))
}

/// The honest plugin's reply, but DEL is refused while something is missing of what ADD made. The check gets the
/// interface, where it is still there by its name.
pub(super) fn wants(call: &MutantCall, is_missing: impl Fn(&MutantCall, Option<&Link>) -> bool) -> Reply {
    let key = call.attachment();
    let interface = || call.has_netns().then(|| link::find(&call.container(), &call.env.ifname).ok())?.flatten();
    if call.is(Del) && memory::has(&key) && is_missing(call, interface().as_ref()) {
        return call.refuse(110, "something is not there that was");
    }
    let reply = call.after(Add, || memory::mark(&key));
    if call.is(Del) && reply.exit == 0 {
        memory::forget(&key);
    }
    if call.is(Gc) {
        memory::forget_all();
    }
    reply
}

/// Returns whether our plugins have rules that hide containers behind the node.
fn has_filter_rules() -> bool {
    let chain = Table::new(Family::Inet, "cni_plugins_masquerade").chain("masq_checks");
    let found = Nft::open("the node").and_then(|mut nft| nft.list_rules(&chain));
    found.is_ok_and(|rules| !rules.is_empty())
}

/// The end of a veth on the node.
fn host_end(link: &Link) -> Option<Link> {
    link::find_index(&side_effect::node(), link.peer?).ok().flatten()
}

/// Returns whether host-local has an address for a container, in any network.
fn has_file_of(container_id: &str) -> bool {
    let folders = fs::read_dir("/var/lib/cni/networks").into_iter().flatten().flatten();
    let mut files = folders.flat_map(|folder| fs::read_dir(folder.path())).flatten().flatten();
    files.any(|file| fs::read_to_string(file.path()).is_ok_and(|text| text.starts_with(container_id)))
}
