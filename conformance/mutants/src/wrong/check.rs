//! CHECK.

use crate::{Mutant, Scene, memory};
use netops::link::{self, Link};
use netops::{addr, route};
use serde_json::{Value, json};
use skel::Reply;
use skel::cni_spec::Command::{Add, Check, Del};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new("bridge", "check.passes-after-add", "needs-its-time", |scene| {
        if scene.is(Check) && memory::forget(&scene.attachment()) {
            return scene.refuse(107, "the interface has not settled yet");
        }
        scene.after(Add, || memory::mark(&scene.attachment()))
    })
    .speaking(&["0.4.0", "1.1.0"]),
    Mutant::new("bridge", "check.passes-after-add", "is-ready-at-the-second-check", |scene| {
        match scene.is(Check) && memory::forget(&scene.attachment()) {
            true => scene.refuse(107, "the link is not ready"),
            false => scene.after(Add, || memory::mark(&scene.attachment())),
        }
    })
    .with(&["newest"]),
    Mutant::new("bridge", "check.prints-nothing", "prints-what-it-checked", |scene| {
        let reply = scene.honest();
        match scene.is(Check) && reply.exit == 0 {
            true => Reply::success(scene.config()["prevResult"].to_string()),
            false => reply,
        }
    }),
    Mutant::new("bridge", "check.passes-after-add", "looks-for-routes-in-the-main-table-alone", |scene| {
        let has_table = scene.config()["prevResult"]["routes"].to_string().contains("\"table\"");
        scene.refuses_if(scene.is(Check) && has_table, 110, "a route is not in the main table")
    })
    .with(&["route-in-a-table"]),
    Mutant::new("tuning", "check.passes-after-add", "compares-macs-by-their-letters", |scene| {
        let mac = scene.config()["runtimeConfig"]["mac"].as_str().unwrap_or_default().to_owned();
        scene.refuses_if(scene.is(Check) && mac != mac.to_lowercase(), 110, "the link has another mac")
    })
    .with(&["mac-in-capitals"]),
    Mutant::new("bridge", "check.returns-nothing-or-an-error", "prints-what-it-checked-in-0.4.0", |scene| {
        let reply = scene.honest();
        match scene.is(Check) && reply.exit == 0 {
            true => Reply::success(scene.config()["prevResult"].to_string()),
            false => reply,
        }
    })
    .speaking(&["0.4.0"]),
    Mutant::new("bridge", "check.needs-prev-result", "checks-nothing-without-prev-result", |scene| {
        scene.does_nothing_if(scene.is(Check) && scene.config().get("prevResult").is_none())
    }),
    Mutant::new("bridge", "check.changes-nothing", "repairs-what-it-finds", |scene| {
        let reply = scene.honest();
        if scene.is(Check) && reply.exit != 0 {
            let config =
                scene.with_config(|config| drop(config.as_object_mut().map(|all| all.shift_remove("prevResult"))));
            drop((config.with_verb(Del).honest(), config.with_verb(Add).honest()));
        }
        reply
    }),
    Mutant::new("bridge", "check.consults-prev-result", "checks-what-it-remembers", |scene| {
        let key = scene.attachment();
        match remembered(&key).filter(|_| scene.is(Check) && scene.config().get("prevResult").is_some()) {
            Some(result) => scene.with_config(|config| config["prevResult"] = result).honest(),
            None => remembers(scene),
        }
    })
    .also(&["check.bears-later-plugins", "check.expects-what-prev-result-has"]),
    Mutant::new("bridge", "check.expects-what-prev-result-has", "expects-the-addresses-that-it-made", |scene| {
        let key = scene.attachment();
        match remembered(&key).filter(|_| scene.is(Check) && scene.config()["prevResult"].is_object()) {
            Some(result) => scene.with_config(|config| config["prevResult"]["ips"] = result["ips"].clone()).honest(),
            None => remembers(scene),
        }
    })
    .with(&["another-address"])
    .also(&["check.consults-prev-result"]),
    Mutant::new("bridge", "check.bears-later-plugins", "wants-its-own-result-back", |scene| {
        match remembered(&scene.attachment()).filter(|_| scene.is(Check)) {
            Some(result) if result != scene.config()["prevResult"] => scene.refuse(107, "the result was changed"),
            _ => remembers(scene),
        }
    })
    .also(&["check.consults-prev-result"]),
    Mutant::new("bridge", "check.notices-a-harmed-interface", "does-not-look-at-the-interface", |scene| {
        // An interface that is gone has taken its end on the node with it, which is left to another rule.
        scene.does_nothing_if(scene.is(Check) && find_interface(scene).is_some() && !is_interface_well(scene))
    }),
    Mutant::new("bridge", "check.notices-a-harmed-host-end", "does-not-look-at-the-host-end", |scene| {
        scene.does_nothing_if(scene.is(Check) && !is_host_end_well(scene))
    }),
    Mutant::new("bridge", "check.notices-a-missing-address", "does-not-look-at-addresses", |scene| {
        scene.does_nothing_if(scene.is(Check) && !has_addresses(scene))
    })
    .also(&["check.expects-what-prev-result-has"]),
    Mutant::new("bridge", "check.notices-a-missing-route", "does-not-look-at-routes", |scene| {
        // Other harm takes the route with it.
        let is_well = is_interface_well(scene) && is_host_end_well(scene) && has_addresses(scene);
        scene.does_nothing_if(scene.is(Check) && is_well && !has_default_route(scene))
    }),
    Mutant::new("bridge", "check.notices-missing-filter-rules", "does-not-look-at-filter-rules", |scene| {
        scene.with_config_if(scene.is(Check) && !scene.has_kit_ipam(), |config| config["ipMasq"] = json!(false))
    }),
    Mutant::new("host-local", "check.notices-a-lost-reservation", "does-not-look-at-reservations", |scene| {
        scene.does_nothing_if(scene.is(Check))
    })
    .also(&["ipam.check-misses-a-reservation"]),
    Mutant::new("tuning", "check.notices-settings-undone", "does-not-look-at-sysctls", |scene| {
        checks_without(scene, "/sysctl")
    }),
    Mutant::new("tuning", "check.notices-settings-undone", "does-not-look-at-the-mtu", |scene| {
        checks_without(scene, "/mtu")
    }),
    Mutant::new("bandwidth", "check.notices-missing-traffic-shaping", "does-not-look-at-traffic-shaping", |scene| {
        scene.does_nothing_if(scene.is(Check))
    }),
    Mutant::new("bridge", "check.asks-the-delegate", "checks-alone", |scene| {
        scene.with_config_if(scene.is(Check) && scene.has_kit_ipam(), |config| config["ipam"] = json!({}))
    })
    .also(&["delegation.forwards"]),
    Mutant::new("bridge", "check.changes-nothing", "checks-with-a-link-of-its-own", |scene| {
        scene.after(Check, || crate::side_effect::make_link(&crate::side_effect::node(), "checked0"))
    }),
    Mutant::new("bridge", "check.bears-later-plugins", "wants-no-address-more", |scene| {
        wants_as_added(scene, addresses)
    })
    .with(&["more-addresses"])
    .also(&["check.consults-prev-result"]),
    Mutant::new("bridge", "check.bears-later-plugins", "wants-no-route-more", |scene| wants_as_added(scene, routes))
        .with(&["more-routes"]),
    Mutant::new("bridge", "check.bears-later-plugins", "wants-no-interface-more", |scene| {
        wants_as_added(scene, interfaces)
    })
    .with(&["more-interfaces"]),
    Mutant::new("bridge", "check.bears-later-plugins", "wants-the-mac-that-it-gave", |scene| {
        wants_as_added(scene, mac)
    })
    .with(&["other-mac"]),
    Mutant::new("bridge", "check.bears-later-plugins", "wants-the-mtu-that-it-gave", |scene| {
        wants_as_added(scene, mtu)
    })
    .with(&["other-mtu"]),
];

fn remembered(key: &str) -> Option<Value> {
    serde_json::from_str(&memory::find(key)?).ok()
}

/// The honest plugin's reply; the result of ADD is kept.
fn remembers(scene: &Scene) -> Reply {
    let reply = scene.honest();
    if scene.is(Add) && reply.exit == 0 {
        memory::note(&scene.attachment(), &String::from_utf8_lossy(&reply.stdout));
    }
    reply
}

/// The honest plugin's reply, but CHECK wants something of the container to be as ADD left it.
fn wants_as_added(scene: &Scene, what: fn(&Scene, &Link) -> String) -> Reply {
    let key = scene.attachment();
    let now = || find_interface(scene).map(|link| what(scene, &link)).unwrap_or_default();
    match memory::find(&key).filter(|_| scene.is(Check) && find_interface(scene).is_some()) {
        Some(then) if then != now() => scene.refuse(107, "that is not as it was left"),
        _ => scene.after(Add, || memory::note(&key, &now())),
    }
}

fn addresses(scene: &Scene, link: &Link) -> String {
    let found = addr::list(&scene.container(), link).unwrap_or_default();
    found.iter().filter(|address| address.net.is_ipv4()).count().to_string()
}

fn routes(scene: &Scene, link: &Link) -> String {
    let found = route::list(&scene.container(), Some(link.index), Some(MAIN), netops::Family::V4).unwrap_or_default();
    found.len().to_string()
}

fn interfaces(scene: &Scene, _: &Link) -> String {
    link::list(&scene.container(), None).unwrap_or_default().len().to_string()
}

fn mac(_: &Scene, link: &Link) -> String {
    format!("{:?}", link.mac)
}

fn mtu(_: &Scene, link: &Link) -> String {
    format!("{:?}", link.mtu_bytes)
}

/// RT_TABLE_MAIN of linux/rtnetlink.h.
const MAIN: u32 = 254;

/// CHECK with a part of the config less.
fn checks_without(scene: &Scene, path: &str) -> Reply {
    let Some((place, key)) = path.rsplit_once('/').filter(|_| scene.is(Check)) else {
        return scene.honest();
    };
    let less = scene.with_config(|config| {
        let object = config.pointer_mut(place).and_then(Value::as_object_mut);
        object.map(|object| object.shift_remove(key));
    });
    less.honest()
}

fn find_interface(scene: &Scene) -> Option<Link> {
    scene.has_netns().then(|| link::find(&scene.container(), &scene.env.ifname).ok())??
}

fn is_interface_well(scene: &Scene) -> bool {
    let config = scene.config();
    let interfaces = config["prevResult"]["interfaces"].as_array();
    let reported = interfaces.into_iter().flatten().find(|entry| entry["name"] == scene.env.ifname.as_str());
    let is_as_told = |link: &Link| {
        let mac = link.mac.map(|mac| mac.to_string()).unwrap_or_default();
        reported.is_none_or(|entry| entry["mac"] == mac.as_str())
    };
    find_interface(scene).is_some_and(|link| link.up && is_as_told(&link))
}

/// True also if there is no interface whose other end it could be.
fn is_host_end_well(scene: &Scene) -> bool {
    let Some(peer) = find_interface(scene).and_then(|link| link.peer) else {
        return true;
    };
    let end = link::find_index(&crate::side_effect::node(), peer).ok().flatten();
    end.is_some_and(|end| end.up && end.master.is_some())
}

/// Whether the interface has each address of the result that is not another's. True without an interface.
fn has_addresses(scene: &Scene) -> bool {
    let Some(link) = find_interface(scene) else {
        return true;
    };
    let found = addr::list(&scene.container(), &link).unwrap_or_default();
    let config = scene.config();
    let mut reported = config["prevResult"]["ips"].as_array().into_iter().flatten();
    reported.all(|ip| found.iter().any(|address| ip["address"] == address.net.to_string().as_str()))
}

/// Whether the interface has a default route. True without an interface.
fn has_default_route(scene: &Scene) -> bool {
    let routes = || route::list_default(&scene.container(), &scene.env.ifname).unwrap_or_default();
    find_interface(scene).is_none() || !routes().is_empty()
}
