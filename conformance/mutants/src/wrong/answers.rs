//! Faults of what a plugin answers: results, errors, STATUS, and what it does with the answers of others.

use super::{push, put, says};
use crate::{Act, MutantCall, delegate, memory, side_effect};
use ipnetwork::IpNetwork;
use netops::link::{self, Kind};
use serde_json::json;
use skel::Reply;
use skel::cni_spec::Command::{Add, Del, Gc, Status};
use std::net::IpAddr;
use std::path::Path;

pub(super) const ACTS: &[Act] = &[
    // The fate of prevResult.
    ("echoes-no-address-in-0.4.0", |call| {
        call.on(Add, |result| drop(result.as_object_mut().map(|result| result.shift_remove("ips"))))
    }),
    ("drops-dns", |call| call.on(Add, |result| drop(result.as_object_mut().map(|result| result.shift_remove("dns"))))),
    ("drops-gateways", |call| drops_of(call, "ips", "gateway")),
    ("makes-up-a-mac", |call| call.on(Add, |result| put(result, "/interfaces/0", "mac", json!("0a:99:99:99:99:99")))),
    ("drops-what-it-does-not-know", |call| {
        call.on(Add, |result| drop(result.as_object_mut().map(|result| result.shift_remove("newer"))))
    }),
    ("forgets-an-interface", |call| {
        // The bridge, which is the first: indices are one less then.
        call.on(Add, |result| {
            result["interfaces"].as_array_mut().map(|interfaces| interfaces.remove(0));
            for ip in result["ips"].as_array_mut().into_iter().flatten() {
                ip["interface"] = json!(ip["interface"].as_u64().unwrap_or(1) - 1);
            }
        })
    }),
    ("drops-mtus", |call| drops_of(call, "interfaces", "mtu")),
    ("drops-sockets-and-devices", |call| drops_of(call, "interfaces", "pciID")),
    ("drops-the-table-of-routes", |call| drops_of(call, "routes", "table")),
    ("doubles-addresses", |call| doubles(call, "ips")),
    ("doubles-routes", |call| doubles(call, "routes")),
    // Promises of ADD's result, broken.
    ("reports-a-link-that-is-not-there", |call| {
        call.reports(|result| push(result, "interfaces", json!({ "name": "cni7", "mac": "0a:00:00:00:00:07" })))
    }),
    ("keeps-its-host-end-to-itself", |call| {
        call.reports(|result| result["interfaces"][1] = result["interfaces"][0].clone())
    }),
    ("cleans-the-path-of-the-sandbox", |call| {
        call.reports(|result| {
            let sandbox = &mut result["interfaces"][2]["sandbox"];
            *sandbox = json!(sandbox.as_str().unwrap_or_default().replace("/./", "/").replace("//", "/"));
        })
    }),
    ("reports-another-mac", |call| {
        call.reports(|result| put(result, "/interfaces/2", "mac", json!("0a:00:00:00:00:07")))
    }),
    ("reports-another-mtu", |call| call.reports(|result| put(result, "/interfaces/2", "mtu", json!(9000)))),
    ("reports-another-prefix", |call| {
        call.reports(|result| {
            let address = &mut result["ips"][0]["address"];
            *address = json!(address.as_str().unwrap_or_default().replace("/16", "/24"));
        })
    }),
    ("counts-no-interfaces-of-others", |call| {
        let earlier = call.config()["prevResult"]["interfaces"].as_array().map_or(0, Vec::len);
        call.reports(|result| {
            let last = result["ips"].as_array_mut().and_then(|ips| ips.last_mut());
            if let Some(ip) = last.filter(|_| earlier > 0) {
                ip["interface"] = json!(ip["interface"].as_u64().unwrap_or_default().saturating_sub(earlier as u64));
            }
        })
    }),
    ("sets-one-address-more", |call| {
        call.after(Add, || {
            let network = IpNetwork::from(IpAddr::from([198, 51, 100, 7]));
            side_effect::add_address(&call.container(), &call.env.ifname, &network.into());
        })
    }),
    ("reports-a-gateway-elsewhere", |call| {
        call.reports(|result| put(result, "/ips/0", "gateway", json!("203.0.113.254")))
    }),
    ("reports-a-route-that-is-not-there", |call| {
        call.reports(|result| push(result, "routes", json!({ "dst": "198.51.100.0/24", "gw": "10.77.0.1" })))
    }),
    ("reports-no-route", |call| {
        call.reports(|result| drop(result.as_object_mut().map(|result| result.shift_remove("routes"))))
    }),
    // STATUS.
    ("is-always-ready", |call| call.does_nothing_if(call.is(Status) && call.config()["ipam"]["type"] == "host-local")),
    ("is-ready-without-its-delegate", |call| {
        call.does_nothing_if(call.is(Status) && call.config()["ipam"]["type"] == "no-such-plugin")
    }),
    ("takes-any-link-for-its-bridge", |call| {
        let config = call.config();
        let name = config["bridge"].as_str().unwrap_or_default();
        let found = link::find(&side_effect::node(), name).ok().flatten();
        call.does_nothing_if(call.is(Status) && found.is_some_and(|link| !matches!(link.kind, Kind::Bridge(_))))
    }),
    ("takes-51-for-a-word-of-its-delegate", |call| {
        call.does_nothing_if(call.is(Status) && call.order(Status).to_string().contains("51"))
    }),
    ("is-not-ready-with-code-5", |call| match call.is(Status) {
        true => call.on_error(|error| error["code"] = json!(5)),
        false => call.honest(),
    }),
    ("asks-no-delegate", |call| {
        call.with_config_if(call.is(Status) && call.has_kit_ipam(), |config| config["ipam"] = json!({}))
    }),
    ("asks-and-does-not-listen", |call| {
        let reply = call.honest();
        match call.is(Status) && call.has_kit_ipam() && says(&reply, "Reported by plugin ") {
            true => Reply::default(),
            false => reply,
        }
    }),
    ("adds-only-when-status-was-good", |call| {
        if call.is(Add) && memory::has("not-ready") {
            return call.refuse(50, "it was not ready");
        }
        let reply = call.honest();
        if call.is(Status) && reply.exit != 0 {
            memory::mark("not-ready");
        }
        reply
    }),
    ("tries-things-out", |call| call.after(Status, || side_effect::make_link(&side_effect::node(), "tried0"))),
    ("wants-a-path-for-status", |call| {
        call.refuses_if(call.is(Status) && call.env.path.is_empty(), 4, "required env variables [CNI_PATH] missing")
    }),
    ("is-ready-after-the-first-container-only", |call| {
        if call.is(Status) && !memory::has("added") {
            return call.refuse(50, "there is no container yet");
        }
        call.after(Add, || memory::mark("added"))
    }),
    // The form of results.
    ("answers-in-another-version", |call| call.reports(|result| result["cniVersion"] = json!("1.0.0"))),
    ("gives-addresses-in-another-version", |call| call.on(Add, |result| result["cniVersion"] = json!("1.0.0"))),
    ("gives-addresses-in-another-version-in-0.4.0", |call| {
        call.on(Add, |result| result["cniVersion"] = json!("1.0.0"))
    }),
    ("says-of-no-interface-where-it-is", |call| {
        call.reports(|result| drop(result["interfaces"][2].as_object_mut().map(|own| own.shift_remove("sandbox"))))
    }),
    ("routes-by-the-other-family-in-0.4.0", |call| {
        call.reports(|result| put(result, "/routes/0", "gw", json!("fd77::1")))
    }),
    ("reports-addresses-by-number", |call| {
        match call.config().get("prevResult").is_some() && call.is(Add) {
            true => call.honest(), // whether it passes on what others made is another rule's
            false => call.reports(|result| result["ips"] = json!({ "0": result["ips"][0] })),
        }
    }),
    ("reports-half-a-mac", |call| call.reports(|result| put(result, "/interfaces/1", "mac", json!("0a:00:00")))),
    ("names-an-interface-that-is-not-there", |call| {
        call.reports(|result| put(result, "/ips/0", "interface", json!(7)))
    }),
    ("reports-no-prefix-of-a-route", |call| call.reports(|result| put(result, "/routes/0", "dst", json!("0.0.0.0")))),
    ("reports-one-nameserver-as-a-text", |call| {
        call.reports(|result| result["dns"] = json!({ "nameservers": "10.77.0.1" }))
    }),
    ("invents-a-key", |call| call.reports(|result| result["bridge"] = json!("cni0"))),
    // Error objects.
    ("says-the-code-as-a-text", |call| call.on_error(|error| error["code"] = json!(error["code"].to_string()))),
    ("fails-in-its-own-version", |call| call.on_error(|error| error["cniVersion"] = json!("1.0.0"))),
    ("calls-a-version-invalid", |call| other_code(call, 1, 7)),
    ("names-no-value-of-a-field", |call| {
        let config = call.config();
        let is_unknown = config["zzConformance"].is_string();
        call.refuses_if(call.is(Add) && is_unknown, 2, "unsupported field zzConformance")
    }),
    ("knows-no-container-and-leaves-a-link", |call| {
        if call.is(Add) && !call.has_netns() {
            side_effect::make_link(&side_effect::node(), &side_effect::name_for(&call.env.container_id));
            return call.refuse(3, "container unknown: no such file or directory");
        }
        call.honest()
    }),
    ("says-that-some-variable-is-wrong", |call| {
        call.on_error(|error| {
            if error["code"] == 4 && error["msg"].as_str().is_some_and(|msg| msg.starts_with("required ")) {
                error["msg"] = json!("the environment is not as it should be");
            }
        })
    }),
    ("calls-a-missing-variable-code-7", |call| other_code(call, 4, 7)),
    ("has-one-code-for-reading-and-decoding", |call| other_code(call, 5, 6)),
    ("calls-no-json-invalid", |call| other_code(call, 6, 7)),
    ("calls-a-config-undecodable", |call| other_code(call, 7, 6)),
    ("fails-with-0", |call| Reply { exit: 0, ..call.honest() }),
    ("refuses-versions-with-0", |call| {
        let reply = call.honest();
        if super::says(&reply, "\"code\": 1,") { Reply { exit: 0, ..reply } } else { reply }
    }),
    ("uses-a-reserved-code-for-configs", |call| other_code(call, 7, 42)),
    ("uses-a-reserved-code-in-0.4.0", |call| other_code(call, 7, 42)),
    // Delegated plugins.
    ("looks-in-a-folder-of-its-own", |call| match call.env.path.is_empty() {
        true => call.honest(),
        false => call.with_env(|env| env.path = "/run/testns/bin".to_owned()).honest(),
    }),
    ("keeps-args-to-itself", |call| call.with_env_if(call.has_kit_ipam(), |env| env.args.clear())),
    ("keeps-args-of-the-config-to-itself", |call| {
        let less = call.with_config(|config| drop(config.as_object_mut().map(|all| all.shift_remove("args"))));
        less.honest()
    }),
    ("forgets-its-delegate-without-a-namespace", |call| {
        call.with_config_if(call.is(Del) && call.env.netns.is_empty(), |config| config["ipam"] = json!({}))
    }),
    ("swallows-stderr", |call| {
        if call.env.command.is_empty() {
            return call.honest();
        }
        let nowhere = std::fs::File::create("/dev/null").unwrap_or_else(|error| panic!("{error}"));
        nix::unistd::dup2_stderr(nowhere).unwrap_or_else(|errno| panic!("{errno}"));
        call.honest()
    }),
    ("deletes-whatever-its-delegate-says", |call| {
        let reply = call.honest();
        match call.is(Del) && is_of_delegate(&reply) {
            true => Reply::default(),
            false => reply,
        }
    }),
    ("has-an-error-of-its-own-for-all-delegates", |call| {
        let reply = call.honest();
        match call.is(Add) && reply.exit != 0 && is_of_delegate(&reply) {
            true => call.refuse(108, "the delegate failed"),
            false => reply,
        }
    }),
    ("does-not-release-what-failed", |call| {
        if !call.is(Add) || call.order(Add).is_null() {
            return call.honest();
        }
        // In place of the honest plugin, which would call DEL.
        let tried = delegate::run(&Path::new(&call.env.path).join("kit-ipam"), call, Add);
        match tried.status.success() {
            true => call.refuse(109, "the delegate printed no result"),
            false => Reply { stdout: tried.stdout, exit: 1 },
        }
    }),
    ("reports-no-index-of-its-interface", |call| {
        if !call.has_kit_ipam() {
            return call.honest();
        }
        call.on(Add, |result| {
            for ip in result["ips"].as_array_mut().into_iter().flatten() {
                ip.as_object_mut().map(|ip| ip.shift_remove("interface"));
            }
        })
    }),
    ("drops-the-dns-of-its-delegate", |call| drops_of_delegate(call, "dns")),
    ("collects-with-a-part-of-the-config", |call| match call.is(Gc) && call.has_kit_ipam() {
        true => call.with_config(|config| drop(config.as_object_mut().map(|all| all.shift_remove("bridge")))).honest(),
        false => call.honest(),
    }),
    ("reports-an-mtu-that-it-does-not-set", |call| {
        if !call.has_kit_ipam() {
            return call.honest();
        }
        let wanted = call.config()["ipam"]["routes"].clone();
        let less = call.with_config(|config| {
            for route in config["ipam"]["routes"].as_array_mut().into_iter().flatten() {
                route.as_object_mut().map(|route| route.shift_remove("mtu"));
            }
        });
        less.on(Add, |result| {
            if wanted.to_string().contains("mtu") {
                result["routes"] = wanted;
            }
        })
    }),
    ("looks-from-the-end", |call| {
        let reversed: Vec<_> = call.env.path.split(':').rev().collect();
        call.with_env(|env| env.path = reversed.join(":")).honest()
    }),
];

/// The entries of a list come without a key.
fn drops_of(call: &MutantCall, list: &str, key: &str) -> Reply {
    call.on(Add, |result| {
        for entry in result[list].as_array_mut().into_iter().flatten() {
            entry.as_object_mut().map(|entry| entry.shift_remove(key));
        }
    })
}

/// Each entry comes twice, as of a plugin that appends what it was given to what it was given.
fn doubles(call: &MutantCall, list: &str) -> Reply {
    call.on(Add, |result| {
        let again = result[list].as_array().cloned().unwrap_or_default();
        result[list].as_array_mut().into_iter().for_each(|entries| entries.extend(again.clone()));
    })
}

fn other_code(call: &MutantCall, code: u32, other: u32) -> Reply {
    call.on_error(|error| {
        if error["code"] == code {
            error["code"] = json!(other);
        }
    })
}

/// A result without what the kit's IPAM plugin said: its dns, or the gateways of its addresses.
fn drops_of_delegate(call: &MutantCall, key: &str) -> Reply {
    if !call.has_kit_ipam() || call.config()["ipam"]["dns"].is_null() {
        return call.honest();
    }
    call.on(Add, |result| {
        for ip in result["ips"].as_array_mut().into_iter().flatten() {
            ip.as_object_mut().map(|ip| ip.shift_remove(key));
        }
        result.as_object_mut().map(|result| result.shift_remove(key));
    })
}

fn is_of_delegate(reply: &Reply) -> bool {
    says(reply, "Reported by plugin ")
}
