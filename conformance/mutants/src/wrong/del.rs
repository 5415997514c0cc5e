//! DEL.

use crate::{Act, MutantCall, memory, side_effect};
use netops::addr::{self, Address};
use netops::link::{self, Link, Settings, Target};
use netops::nft::{Family, Nft, Table};
use netops::sysctl::{self, Key};
use netops::{Netns, route};
use serde_json::Value;
use skel::Reply;
use skel::cni_spec::Command::{Add, Check, Del, Gc, Status};
use skel::env::Environment;
use std::fs;
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;

pub(super) const ACTS: &[Act] = &[
    // DEL.
    ("has-one-chain-for-a-container", |call| deletes_also(call, |own, other| own == other)),
    ("releases-those-whose-id-starts-so", |call| {
        deletes_also(call, |own, other| own != other && other.starts_with(own))
    }),
    ("compares-ids-without-case", |call| {
        deletes_also(call, |own, other| own != other && own.eq_ignore_ascii_case(other))
    }),
    ("stops-at-its-delegate", |call| {
        call.refuses_if(call.is(Del) && !call.order(Del).is_null(), 117, "kit-ipam is out of order")
    }),
    ("turns-forwarding-off", |call| {
        call.after(Del, || {
            let key = side_effect::done(Key::new(&["ipv4", "ip_forward"]));
            side_effect::done(sysctl::ensure(&key, "0"));
        })
    }),
    ("leaves-a-link", |call| {
        leaves(call, || side_effect::make_link(&side_effect::node(), &side_effect::name_for(&call.env.container_id)))
    }),
    ("leaves-a-sysctl-of-the-container", |call| {
        call.after(Add, || {
            // portmap works without a namespace.
            if !call.has_netns() {
                return;
            }
            let write = || Key::new(&["ipv4", "ip_default_ttl"]).and_then(|key| sysctl::ensure(&key, "99"));
            let netns = Netns::open(&call.env.netns).unwrap_or_else(|error| panic!("no container: {error}"));
            side_effect::done(sysctl::in_netns(&netns, write).flatten());
        })
    }),
    ("keeps-the-address", keeps_the_address),
    ("leaves-an-interface-of-the-name", |call| {
        let key = call.attachment();
        if call.is(Add) {
            memory::mark(&key);
        }
        call.after(Del, || {
            if call.has_all() && memory::forget(&key) {
                side_effect::make_link(&call.container(), &call.env.ifname);
            }
        })
    }),
    ("deletes-once", deletes_once),
    ("makes-a-link-for-whom-it-does-not-know", |call| {
        call.after(Del, || {
            if !memory::has(&call.attachment()) {
                side_effect::make_link(&side_effect::node(), &side_effect::name_for(&call.env.container_id));
            }
        })
    }),
    ("leaves-its-address-on-lo", |call| {
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
    }),
    ("leaves-a-sysctl-of-the-first", |call| {
        call.after(Add, || {
            let key = side_effect::done(Key::new(&["ipv4", "ip_default_ttl"]));
            side_effect::done(sysctl::ensure(&key, "77"));
        })
    }),
    ("deletes-what-it-knows-only", |call| {
        if call.is(Del) && !memory::has(&call.attachment()) {
            return call.refuse(110, "that container is unknown");
        }
        let reply = call.honest();
        if call.is(Add) {
            memory::mark(&call.attachment());
        }
        reply
    }),
    ("enters-the-namespace-to-delete", |call| {
        let is_told = call.config().get("prevResult").is_some() && !call.has_kit_ipam();
        wants(call, |call, _| is_told && !call.has_netns())
    }),
    ("deletes-by-prev-result", |call| {
        call.does_nothing_if(call.is(Del) && !call.has_kit_ipam() && call.config().get("prevResult").is_none())
    }),
    ("wants-addresses-in-prev-result", |call| {
        let result = &call.config()["prevResult"];
        call.refuses_if(call.is(Del) && result.is_object() && result["ips"].is_null(), 7, "prevResult has no ips")
    }),
    ("wants-the-variable-of-the-namespace", |call| {
        call.refuses_if(
            call.is(Del) && !call.has_kit_ipam() && call.env.netns.is_empty(),
            4,
            "required env variables [CNI_NETNS] missing",
        )
    }),
    ("deletes-by-args", |call| {
        let key = call.attachment();
        match call.is(Del) && memory::find(&key).is_some_and(|args| args != call.env.args) {
            true => Reply::default(),
            false => call.after(Add, || memory::note(&key, &call.env.args)),
        }
    }),
    ("deletes-by-runtime-config", |call| {
        let (key, given) = (call.attachment(), call.config()["runtimeConfig"].to_string());
        match call.is(Del) && memory::find(&key).is_some_and(|noted| noted != given) {
            true => Reply::default(),
            false => call.after(Add, || memory::note(&key, &given)),
        }
    }),
    ("deletes-no-failure", |call| {
        let key = call.attachment();
        if call.is(Del) && memory::has(&key) {
            return call.refuse(110, "that was never added");
        }
        let reply = call.honest();
        if call.is(Add) && reply.exit != 0 {
            memory::mark(&key);
        }
        reply
    }),
    ("leaves-a-file-in-a-folder-of-its-own", |call| {
        leaves(call, || {
            let path = format!("{OWN_FOLDER}/{}", call.attachment());
            fs::write(path, "").unwrap_or_else(|error| panic!("{error}"));
        })
    }),
    ("leaves-a-link-of-a-failure", |call| {
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
    ("wants-the-interface-to-delete", |call| wants(call, |call, interface| interface.is_none() && call.has_netns())),
    ("wants-the-address-to-delete", |call| {
        wants(call, |call, interface| {
            let is_ipv4 = |address: &Address| address.net.is_ipv4();
            let found = |link| addr::list(&call.container(), link).unwrap_or_default();
            interface.is_some_and(|link| !found(link).iter().any(is_ipv4))
        })
    }),
    ("wants-the-route-to-delete", |call| {
        wants(call, |call, interface| {
            let found = |link: &Link| route::list_default(&call.container(), &link.name).unwrap_or_default();
            interface.is_some_and(|link| found(link).is_empty())
        })
    }),
    ("wants-the-host-end-to-delete", |call| {
        wants(call, |call, interface| call.has_netns() && interface.is_none_or(|link| host_end(link).is_none()))
    }),
    ("wants-its-port-to-delete", |call| {
        wants(call, |_, interface| interface.and_then(host_end).is_some_and(|end| end.master.is_none()))
    }),
    ("wants-the-bridge-to-delete", |call| {
        wants(call, |_, _| link::find(&side_effect::node(), "cni0").is_ok_and(|found| found.is_none()))
    }),
    ("wants-its-filter-rules-to-delete", |call| wants(call, |_, _| !has_filter_rules())),
    ("wants-its-file-to-delete", |call| wants(call, |call, _| !has_file_of(&call.env.container_id))),
    ("removes-the-bridge", |call| {
        // Others are other containers: two interfaces of one are another rule's.
        let key = format!("of-{}", call.env.container_id);
        let reply = call.after(Add, || memory::mark(&key));
        if call.is(Del) && call.has_all() && memory::forget(&key) && !memory::find_all("of-").is_empty() {
            side_effect::remove_link(&side_effect::node(), "cni0");
        }
        reply
    }),
    // Interface plugins whose link depends on another of the node, its master, or is one of the node itself.
    ("wants-its-master-to-delete", |call| wants(call, |call, _| !has_master(&call.config()))),
    ("does-not-miss-its-master", |call| call.does_nothing_if(call.is(Check) && !has_master(&call.config()))),
    ("is-ready-without-its-master", |call| call.does_nothing_if(call.is(Status) && !has_master(&call.config()))),
    ("brings-its-device-home-down", |call| {
        call.after(Del, || {
            let device = call.config()["device"].as_str().unwrap_or_default().to_owned();
            if side_effect::done(link::find(&side_effect::node(), &device)).is_some() {
                let down = Settings { up: Some(false), ..Settings::default() };
                side_effect::run(&side_effect::node(), link::set(&Target::named(&device), &down));
            }
        })
    }),
    // A plugin that needs a daemon: dhcp.
    ("is-ready-without-its-daemon", |call| call.does_nothing_if(call.is(Status) && !has_daemon())),
    ("checks-without-its-daemon", |call| call.does_nothing_if(call.is(Check) && !has_daemon())),
    ("wants-its-daemon-to-delete", |call| wants(call, |_, _| !has_daemon())),
    ("starts-where-no-socket-is-only", crate::MutantCall::honest),
];

/// A folder that no plugin has but the mutant whose profile names it.
const OWN_FOLDER: &str = "/var/lib/mutant";

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

fn host_end(link: &Link) -> Option<Link> {
    link::find_index(&side_effect::node(), link.peer?).ok().flatten()
}

pub(super) fn has_file_of(container_id: &str) -> bool {
    let folders = fs::read_dir("/var/lib/cni/networks").into_iter().flatten().flatten();
    let mut files = folders.flat_map(|folder| fs::read_dir(folder.path())).flatten().flatten();
    files.any(|file| fs::read_to_string(file.path()).is_ok_and(|text| text.starts_with(container_id)))
}

fn has_master(config: &Value) -> bool {
    let master = config["master"].as_str().unwrap_or_default();
    link::find(&side_effect::node(), master).is_ok_and(|found| found.is_some())
}

/// The socket on which the daemon of the kit's profile listens.
const SOCKET: &str = "/run/cni/dhcp.sock";

/// Whether a mutant's daemon starts, by the words of its command line.
pub(crate) fn starts(mutant: &str, words: &[String]) -> bool {
    let is_daemon = words.get(1).is_some_and(|word| word == "daemon");
    mutant != "starts-where-no-socket-is-only" || !is_daemon || !Path::new(SOCKET).exists()
}

fn has_daemon() -> bool {
    UnixStream::connect(SOCKET).is_ok()
}
