//! Delegated plugins.

use super::says;
use crate::{Mutant, Scene, delegate};
use serde_json::json;
use skel::Reply;
use skel::cni_spec::Command::{Add, Check, Del, Gc};
use std::path::Path;

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new("bridge", "delegation.looks-in-cni-path", "looks-in-a-folder-of-its-own", |scene| {
        match scene.env.path.is_empty() {
            true => scene.honest(),
            false => scene.with_env(|env| env.path = "/run/testns/bin".to_owned()).honest(),
        }
    })
    .also(&["delegation.looks-in-order"]),
    Mutant::new("bridge", "delegation.same-environment", "keeps-args-to-itself", |scene| {
        scene.with_env_if(scene.has_kit_ipam(), |env| env.args.clear())
    }),
    Mutant::new("bridge", "delegation.complete-config", "keeps-args-of-the-config-to-itself", |scene| {
        let less = scene.with_config(|config| drop(config.as_object_mut().map(|all| all.shift_remove("args"))));
        less.honest()
    }),
    Mutant::new("bridge", "delegation.forwards", "forgets-its-delegate-without-a-namespace", |scene| {
        scene.with_config_if(scene.is(Del) && scene.env.netns.is_empty(), |config| config["ipam"] = json!({}))
    })
    .also(&["del.needs-no-namespace", "del.needs-no-prev-result"]),
    Mutant::new("bridge", "delegation.stderr", "swallows-stderr", |scene| {
        if scene.env.command.is_empty() {
            return scene.honest();
        }
        let nowhere = std::fs::File::create("/dev/null").unwrap_or_else(|error| panic!("{error}"));
        nix::unistd::dup2_stderr(nowhere).unwrap_or_else(|errno| panic!("{errno}"));
        scene.honest()
    }),
    Mutant::new("bridge", "delegation.error", "deletes-whatever-its-delegate-says", |scene| {
        let reply = scene.honest();
        match scene.is(Del) && is_of_delegate(&reply) {
            true => Reply::default(),
            false => reply,
        }
    }),
    Mutant::new("bridge", "delegation.same-error", "has-an-error-of-its-own-for-all-delegates", |scene| {
        let reply = scene.honest();
        match scene.is(Add) && reply.exit != 0 && is_of_delegate(&reply) {
            true => scene.refuse(108, "the delegate failed"),
            false => reply,
        }
    }),
    Mutant::new("bridge", "delegation.del-after-failed-add", "does-not-release-what-failed", |scene| {
        if !scene.is(Add) || scene.order(Add).is_null() {
            return scene.honest();
        }
        // In place of the honest plugin, which would call DEL.
        let tried = delegate::run(&Path::new(&scene.env.path).join("kit-ipam"), scene, Add);
        match tried.status.success() {
            true => scene.refuse(109, "the delegate printed no result"),
            false => Reply { stdout: tried.stdout, exit: 1 },
        }
    }),
    Mutant::new("bridge", "delegation.result-is-used", "reports-no-index-of-its-interface", |scene| {
        if !scene.has_kit_ipam() {
            return scene.honest();
        }
        scene.on(Add, |result| {
            for ip in result["ips"].as_array_mut().into_iter().flatten() {
                ip.as_object_mut().map(|ip| ip.shift_remove("interface"));
            }
        })
    })
    .also(&["check.passes-after-add"]),
    Mutant::new("bridge", "delegation.result-is-used", "drops-the-dns-of-its-delegate", |scene| {
        drops_of_delegate(scene, "dns")
    })
    .with(&["gateway-and-dns"]),
    Mutant::new("bridge", "delegation.result-is-used", "drops-the-gateway-of-its-delegate", |scene| {
        drops_of_delegate(scene, "gateway")
    })
    .with(&["gateway-and-dns"]),
    Mutant::new("bridge", "delegation.result-is-used", "keeps-the-nameservers-of-its-delegate-alone", |scene| {
        if !scene.has_kit_ipam() {
            return scene.honest();
        }
        scene.on(Add, |result| {
            result["dns"].as_object_mut().map(|dns| dns.shift_remove("options"));
        })
    })
    .with(&["gateway-and-dns"]),
    Mutant::new("bridge", "delegation.ips-and-dns-in-0.4.0", "drops-the-dns-of-its-delegate-in-0.4.0", |scene| {
        drops_of_delegate(scene, "dns")
    })
    .speaking(&["0.4.0"]),
    Mutant::new("bridge", "delegation.complete-config", "collects-with-a-part-of-the-config", |scene| {
        match scene.is(Gc) && scene.has_kit_ipam() {
            true => {
                scene.with_config(|config| drop(config.as_object_mut().map(|all| all.shift_remove("bridge")))).honest()
            }
            false => scene.honest(),
        }
    })
    .with(&["gc"]),
    Mutant::new("bridge", "delegation.route-attributes", "reports-an-mtu-that-it-does-not-set", |scene| {
        if !scene.has_kit_ipam() {
            return scene.honest();
        }
        let wanted = scene.config()["ipam"]["routes"].clone();
        let less = scene.with_config(|config| {
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
    Mutant::new("bridge", "delegation.looks-in-order", "looks-from-the-end", |scene| {
        let reversed: Vec<_> = scene.env.path.split(':').rev().collect();
        scene.with_env(|env| env.path = reversed.join(":")).honest()
    }),
    Mutant::new("bridge", "delegation.forwards", "deletes-and-checks-alone", |scene| {
        scene.with_config_if(scene.has_kit_ipam() && (scene.is(Del) || scene.is(Check)), |config| {
            config["ipam"] = json!({})
        })
    }),
    Mutant::new("bridge", "delegation.error", "adds-without-its-delegate", |scene| {
        let reply = scene.honest();
        match scene.is(Add) && scene.has_kit_ipam() && reply.exit != 0 {
            true => scene.with_config(|config| config["ipam"] = json!({})).honest(),
            false => reply,
        }
    }),
    Mutant::new("bridge", "delegation.error", "checks-whatever-its-delegate-says", |scene| {
        let reply = scene.honest();
        match scene.is(Check) && scene.has_kit_ipam() && is_of_delegate(&reply) {
            true => Reply::default(),
            false => reply,
        }
    })
    .also(&["check.asks-the-delegate"]),
];

/// A result without what the kit's IPAM plugin said: its dns, or the gateways of its addresses.
fn drops_of_delegate(scene: &Scene, key: &str) -> Reply {
    if !scene.has_kit_ipam() || scene.config()["ipam"]["dns"].is_null() {
        return scene.honest();
    }
    scene.on(Add, |result| {
        for ip in result["ips"].as_array_mut().into_iter().flatten() {
            ip.as_object_mut().map(|ip| ip.shift_remove(key));
        }
        result.as_object_mut().map(|result| result.shift_remove(key));
    })
}

fn is_of_delegate(reply: &Reply) -> bool {
    says(reply, "Reported by plugin ")
}
