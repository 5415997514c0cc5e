//! Delegated plugins.

use super::says;
use crate::{Act, MutantCall, delegate};
use serde_json::json;
use skel::Reply;
use skel::cni_spec::Command::{Add, Del, Gc};
use std::path::Path;

pub(super) const ACTS: &[Act] = &[
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
