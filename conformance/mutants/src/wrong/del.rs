//! DEL.

use crate::{Mutant, Scene, memory, side_effect};
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
    Mutant::new("portmap", "del.leaves-others-alone", "has-one-chain-for-a-container", |scene| {
        deletes_also(scene, |own, other| own == other)
    })
    .with(&["other-interface-of-a-chain"]),
    Mutant::new("portmap", "del.leaves-others-alone", "closes-ports-of-an-id-that-starts-so", |scene| {
        deletes_also(scene, |own, other| own != other && other.starts_with(own))
    })
    .with(&["an-id-that-starts-so"]),
    Mutant::new("host-local", "del.leaves-others-alone", "releases-those-whose-id-starts-so", |scene| {
        deletes_also(scene, |own, other| own != other && other.starts_with(own))
    })
    .with(&["an-id-that-starts-so"])
    .also(&["ipam.del-keeps-others"]),
    Mutant::new("bridge", "del.leaves-others-alone", "turns-forwarding-off", |scene| {
        scene.after(Del, || {
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
    Mutant::new("bridge", "del.leaves-nothing", "leaves-a-link", |scene| {
        leaves(scene, || side_effect::make_link(&side_effect::node(), &side_effect::name_for(&scene.env.container_id)))
    })
    .also(&["del.hides-nothing"]),
    Mutant::new("portmap", "del.undoes-modifications", "leaves-a-sysctl-of-the-container", |scene| {
        scene.after(Add, || {
            // portmap works without a namespace.
            if !scene.has_netns() {
                return;
            }
            let write = || Key::new(&["ipv4", "ip_default_ttl"]).and_then(|key| sysctl::write(&key, "99"));
            let netns = Netns::open(&scene.env.netns).unwrap_or_else(|error| panic!("no container: {error}"));
            side_effect::done(sysctl::in_netns(&netns, write).flatten());
        })
    })
    .with(&["sysctls"])
    .also(&["check.notices-settings-undone"]),
    Mutant::new("host-local", "del.undoes-modifications", "keeps-the-address", keeps_the_address)
        .with(&["all-else"])
        .also(&["add.follows-del"]),
    Mutant::new("bridge", "del.removes-the-interface", "leaves-an-interface-of-the-name", |scene| {
        let key = scene.attachment();
        if scene.is(Add) {
            memory::mark(&key);
        }
        scene.after(Del, || {
            if scene.has_all() && memory::forget(&key) {
                side_effect::make_link(&scene.container(), &scene.env.ifname);
            }
        })
    })
    .also(&["add.follows-del", "del.hides-nothing", "del.leaves-nothing"]),
    Mutant::new("bridge", "del.is-repeatable", "deletes-once", deletes_once),
    Mutant::new("bridge", "del.of-nothing-changes-nothing", "makes-a-link-for-whom-it-does-not-know", |scene| {
        scene.after(Del, || {
            if !memory::has(&scene.attachment()) {
                side_effect::make_link(&side_effect::node(), &side_effect::name_for(&scene.env.container_id));
            }
        })
    })
    .with(&["never-added"])
    .also(&["del.hides-nothing", "del.leaves-nothing"]),
    Mutant::new("bridge", "del.hides-nothing", "leaves-its-address-on-lo", |scene| {
        // As a node has the address of a container on lo while that is added, so that it answers for it.
        let address = scene.config()["prevResult"]["ips"][0]["address"].as_str().map(str::to_owned);
        scene.after(Del, || {
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
    Mutant::new("bridge", "del.leaves-nothing", "leaves-a-file-in-tmp", |scene| {
        leaves(scene, || {
            let path = format!("/tmp/bridge-{}", scene.attachment());
            fs::write(path, "").unwrap_or_else(|error| panic!("{error}"));
        })
    })
    .also(&["del.hides-nothing"]),
    Mutant::new("bridge", "del.hides-nothing", "leaves-a-sysctl-of-the-first", |scene| {
        scene.after(Add, || {
            let key = side_effect::done(Key::new(&["ipv4", "ip_default_ttl"]));
            side_effect::done(sysctl::write(&key, "77"));
        })
    })
    .with(&["sysctls-of-the-first"]),
    Mutant::new("bridge", "del.bears-that-nothing-was-added", "deletes-what-it-knows-only", |scene| {
        if scene.is(Del) && !memory::has(&scene.attachment()) {
            return scene.refuse(110, "that container is unknown");
        }
        let reply = scene.honest();
        if scene.is(Add) {
            memory::mark(&scene.attachment());
        }
        reply
    }),
    Mutant::new("bridge", "del.needs-no-namespace", "enters-the-namespace-to-delete", |scene| {
        let is_told = scene.config().get("prevResult").is_some() && !scene.has_kit_ipam();
        wants(scene, |scene, _| is_told && !scene.has_netns())
    }),
    Mutant::new("bridge", "del.needs-no-prev-result", "deletes-by-prev-result", |scene| {
        scene.does_nothing_if(scene.is(Del) && !scene.has_kit_ipam() && scene.config().get("prevResult").is_none())
    })
    .also(&["del.needs-no-dynamic-parameters"]),
    Mutant::new("bridge", "del.needs-no-prev-result", "wants-addresses-in-prev-result", |scene| {
        let result = &scene.config()["prevResult"];
        scene.refuses_if(scene.is(Del) && result.is_object() && result["ips"].is_null(), 7, "prevResult has no ips")
    })
    .with(&["empty-result"]),
    Mutant::new("bridge", "del.needs-no-namespace", "wants-the-variable-of-the-namespace", |scene| {
        scene.refuses_if(
            scene.is(Del) && !scene.has_kit_ipam() && scene.env.netns.is_empty(),
            4,
            "required env variables [CNI_NETNS] missing",
        )
    })
    .with(&["no-variable"])
    .also(&["del.needs-no-prev-result"]),
    Mutant::new("bridge", "del.needs-no-dynamic-parameters", "deletes-by-args", |scene| {
        let key = scene.attachment();
        match scene.is(Del) && memory::find(&key).is_some_and(|args| args != scene.env.args) {
            true => Reply::default(),
            false => scene.after(Add, || memory::note(&key, &scene.env.args)),
        }
    }),
    Mutant::new("bridge", "del.needs-no-dynamic-parameters", "deletes-by-runtime-config", |scene| {
        let (key, given) = (scene.attachment(), scene.config()["runtimeConfig"].to_string());
        match scene.is(Del) && memory::find(&key).is_some_and(|noted| noted != given) {
            true => Reply::default(),
            false => scene.after(Add, || memory::note(&key, &given)),
        }
    })
    .with(&["runtime-config"]),
    Mutant::new("bridge", "del.follows-a-failed-add", "deletes-no-failure", |scene| {
        let key = scene.attachment();
        if scene.is(Del) && memory::has(&key) {
            return scene.refuse(110, "that was never added");
        }
        let reply = scene.honest();
        if scene.is(Add) && reply.exit != 0 {
            memory::mark(&key);
        }
        reply
    })
    .also(&["del.cleans-up-a-failed-add"]),
    Mutant::new("bridge", "del.leaves-nothing", "leaves-an-entry-in-its-registry", |scene| {
        leaves(scene, || {
            let path = "/var/lib/cni/registry.json";
            let text = fs::read_to_string(path).unwrap_or_else(|_| "{}".to_owned());
            let mut registry: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
            registry[scene.attachment()] = serde_json::json!({ "mtu": 1500 });
            let folder = fs::create_dir_all("/var/lib/cni");
            folder.and_then(|()| fs::write(path, registry.to_string())).unwrap_or_else(|error| panic!("{error}"));
        })
    })
    .also(&["del.hides-nothing"]),
    Mutant::new("bridge", "del.leaves-nothing", "leaves-a-file-in-a-folder-of-its-own", |scene| {
        leaves(scene, || {
            let path = format!("{OWN_FOLDER}/{}", scene.attachment());
            fs::write(path, "").unwrap_or_else(|error| panic!("{error}"));
        })
    })
    .writing(&[OWN_FOLDER])
    .also(&["del.hides-nothing"]),
    Mutant::new("bridge", "del.leaves-nothing", "leaves-a-policy-rule", |scene| {
        leaves(scene, || {
            let rule = Rule { source: address_for(scene).into(), table: 9, priority: None };
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
    Mutant::new("bridge", "del.leaves-nothing", "leaves-a-sysctl", |scene| {
        leaves(scene, || {
            let key = side_effect::done(Key::new(&["ipv4", "ip_default_ttl"]));
            side_effect::done(sysctl::write(&key, &number_of(scene).max(1).to_string()));
        })
    })
    .also(&["del.hides-nothing"]),
    Mutant::new("bridge", "del.leaves-nothing", "leaves-an-element-of-a-set", |scene| {
        leaves(scene, || {
            let set = "add table inet pods; add set inet pods known { type ipv4_addr; }";
            let script = format!("{set}; add element inet pods known {{ {} }}", address_for(scene));
            let nft = process::Command::new("/usr/sbin/nft").arg(script).status();
            assert!(nft.is_ok_and(|status| status.success()), "this mutant needs nft(8)");
        })
    })
    .also(&["del.hides-nothing"]),
    Mutant::new("bridge", "del.leaves-others-alone", "deletes-whose-id-starts-so", |scene| {
        scene.after(Del, || {
            for file in fs::read_dir("/var/lib/cni/networks/conformance").into_iter().flatten().flatten() {
                let text = fs::read_to_string(file.path()).unwrap_or_default();
                if scene.env.container_id.starts_with("web-") && text.starts_with(&scene.env.container_id) {
                    fs::remove_file(file.path()).unwrap_or_else(|error| panic!("{error}"));
                }
            }
        })
    })
    .with(&["an-id-that-starts-so"]),
    Mutant::new("bridge", "del.cleans-up-a-failed-add", "leaves-a-link-of-a-failure", |scene| {
        let is_failure = scene.is(Del) && memory::forget(&scene.attachment());
        let reply = scene.honest();
        if scene.is(Add) && reply.exit != 0 {
            memory::mark(&scene.attachment());
        }
        if is_failure {
            side_effect::make_link(&side_effect::node(), &side_effect::name_for(&scene.env.container_id));
        }
        reply
    }),
    Mutant::new("bridge", "del.is-repeatable-in-0.4.0", "deletes-once-in-0.4.0", deletes_once)
        .speaking(&["0.4.0"])
        .also(&["del.of-nothing-changes-nothing"]),
    Mutant::new("bridge", "del.bears-what-is-missing", "wants-the-interface-to-delete", |scene| {
        wants(scene, |scene, interface| interface.is_none() && scene.has_netns())
    })
    .with(&["interface"]),
    Mutant::new("bridge", "del.bears-what-is-missing", "wants-the-interfaces-name-to-delete", |scene| {
        wants(scene, |scene, interface| interface.is_none() && scene.has_netns())
    })
    .with(&["interface-renamed"]),
    Mutant::new("bridge", "del.bears-what-is-missing", "wants-the-address-to-delete", |scene| {
        wants(scene, |scene, interface| {
            let is_ipv4 = |address: &Address| address.net.is_ipv4();
            let found = |link| addr::list(&scene.container(), link).unwrap_or_default();
            interface.is_some_and(|link| !found(link).iter().any(is_ipv4))
        })
    })
    .with(&["address"]),
    Mutant::new("bridge", "del.bears-what-is-missing", "wants-the-route-to-delete", |scene| {
        wants(scene, |scene, interface| {
            let found = |link: &Link| route::list_default(&scene.container(), &link.name).unwrap_or_default();
            interface.is_some_and(|link| found(link).is_empty())
        })
    })
    .with(&["route"]),
    Mutant::new("bridge", "del.bears-what-is-missing", "wants-the-host-end-to-delete", |scene| {
        wants(scene, |scene, interface| scene.has_netns() && interface.is_none_or(|link| host_end(link).is_none()))
    })
    .with(&["host-end"]),
    Mutant::new("bridge", "del.bears-what-is-missing", "wants-its-port-to-delete", |scene| {
        wants(scene, |_, interface| interface.and_then(host_end).is_some_and(|end| end.master.is_none()))
    })
    .with(&["host-end-detached"]),
    Mutant::new("bridge", "del.bears-what-is-missing", "wants-the-bridge-to-delete", |scene| {
        wants(scene, |_, _| link::find(&side_effect::node(), "cni0").is_ok_and(|found| found.is_none()))
    })
    .with(&["bridge"]),
    Mutant::new("bridge", "del.bears-lost-state", "wants-its-filter-rules-to-delete", |scene| {
        wants(scene, |_, _| !has_filter_rules())
    })
    .with(&["filter-rules"])
    .also(&["del.leaves-nothing"]),
    Mutant::new("host-local", "del.bears-lost-state", "wants-its-file-to-delete", |scene| {
        wants(scene, |scene, _| !has_file_of(&scene.env.container_id))
    })
    .also(&["check.notices-a-lost-reservation"]),
    Mutant::new("bridge", "del.leaves-others-alone", "removes-the-bridge", |scene| {
        // Others are other containers: two interfaces of one are another rule's.
        let key = format!("of-{}", scene.env.container_id);
        let reply = scene.after(Add, || memory::mark(&key));
        if scene.is(Del) && scene.has_all() && memory::forget(&key) && !memory::find_all("of-").is_empty() {
            side_effect::remove_link(&side_effect::node(), "cni0");
        }
        reply
    })
    .also(&["del.hides-nothing", "gc.removes-what-is-stale"]),
];

/// A folder that no plugin has but the mutant whose profile names it.
const OWN_FOLDER: &str = "/var/lib/mutant";

/// A number that stands for the attachment.
fn number_of(scene: &Scene) -> u8 {
    scene.attachment().bytes().fold(0, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte))
}

/// An address of 198.18.0.0/15, which no network of a test uses.
fn address_for(scene: &Scene) -> IpAddr {
    IpAddr::from([198, 18, 0, number_of(scene)])
}

fn deletes_once(scene: &Scene) -> Reply {
    if scene.is(Del) && memory::has(&scene.attachment()) {
        return scene.refuse(110, "that is gone already");
    }
    if scene.is(Add) {
        memory::forget(&scene.attachment());
    }
    scene.after(Del, || memory::mark(&scene.attachment()))
}

/// The honest plugin's reply; a first DEL that is given everything leaves something.
fn leaves(scene: &Scene, something: impl FnOnce()) -> Reply {
    let is_known = scene.is(Del) && scene.has_all() && memory::forget(&scene.attachment());
    let reply = scene.after(Add, || memory::mark(&scene.attachment()));
    if is_known && reply.exit == 0 {
        something();
    }
    reply
}

/// DEL frees nothing if it is given everything and ADD was given no special keys.
fn keeps_the_address(scene: &Scene) -> Reply {
    let config = scene.config();
    let (added, kept) = (format!("added-{}", scene.attachment()), format!("kept-{}", scene.attachment()));
    // Rules about pools are others.
    let is_plain = scene.env.args.is_empty() && config.get("runtimeConfig").is_none() && !super::ipam::is_small(scene);
    if scene.is(Del) && scene.has_all() && is_plain && memory::has(&added) {
        memory::mark(&kept);
        return Reply::default();
    }
    if scene.is(Check) && memory::has(&kept) {
        return scene.refuse(107, "that was deleted");
    }
    scene.after(Add, || {
        memory::forget(&kept);
        if is_plain {
            memory::mark(&added);
        }
    })
}

/// DEL that takes attachments with it which are not its own. Which, is said by its container ID and by theirs.
fn deletes_also(scene: &Scene, is_meant: fn(&str, &str) -> bool) -> Reply {
    let Environment { container_id, ifname, .. } = &scene.env;
    if scene.is(Del) {
        memory::forget(&format!("added-{}", scene.attachment()));
        for noted in memory::find_all("added-") {
            let (id, name) = noted.split_once(' ').unwrap_or_default();
            if is_meant(container_id, id) {
                let other = |env: &mut Environment| (env.container_id, env.ifname) = (id.to_owned(), name.to_owned());
                drop(scene.with_env(other).honest());
            }
        }
    }
    scene.after(Add, || memory::note(&format!("added-{}", scene.attachment()), &format!("{container_id} {ifname}")))
}

/// The honest plugin's reply, but DEL is refused while something is missing of what ADD made. The check gets the
/// interface, where it is still there by its name.
pub(super) fn wants(scene: &Scene, is_missing: impl Fn(&Scene, Option<&Link>) -> bool) -> Reply {
    let key = scene.attachment();
    let interface = || scene.has_netns().then(|| link::find(&scene.container(), &scene.env.ifname).ok())?.flatten();
    if scene.is(Del) && memory::has(&key) && is_missing(scene, interface().as_ref()) {
        return scene.refuse(110, "something is not there that was");
    }
    let reply = scene.after(Add, || memory::mark(&key));
    if scene.is(Del) && reply.exit == 0 {
        memory::forget(&key);
    }
    if scene.is(Gc) {
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
