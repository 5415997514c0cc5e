//! VERSION.

use crate::Mutant;
use serde_json::json;
use skel::cni_spec::Command::{Add, Version};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new("bridge", "version.lists-versions", "lists-one-version-as-a-text", |call| {
        call.on(Version, |object| object["supportedVersions"] = json!("1.1.0"))
    }),
    Mutant::new("bridge", "version.echoes", "answers-in-its-own-version", |call| {
        call.on(Version, |object| object["cniVersion"] = json!("1.0.0"))
    }),
    Mutant::new("bridge", "version.needs-the-command-only", "wants-a-network-for-version", |call| {
        call.refuses_if(call.is(Version) && call.config().get("name").is_none(), 7, "missing network name")
    })
    .also(&[
        "version.echoes",
        "version.answers-a-newer-one",
        "version.same-list-for-any-input",
        "relied.version-probe",
    ]),
    Mutant::new("bridge", "version.same-list-for-any-input", "lists-what-it-was-asked-for", |call| {
        call.on(Version, |object| object["supportedVersions"] = json!([call.config()["cniVersion"]]))
    })
    .also(&["version.answers-a-newer-one"]),
    Mutant::new("bridge", "version.answers-a-newer-one", "answers-in-versions-that-it-knows", |call| {
        call.refuses_if(call.is(Version) && call.config()["cniVersion"] == "99.0.0", 1, "incompatible CNI versions")
    }),
    Mutant::new("bridge", "version.serves-what-it-lists", "lists-more-than-it-serves", |call| {
        let config = call.config();
        let is_plain = !call.has_kit_ipam() && !config.as_object().is_some_and(|all| all.keys().any(|key| is_odd(key)));
        call.refuses_if(
            call.is(Add) && call.has_netns() && !call.has_own_netns() && is_plain && config["cniVersion"] == "0.4.0",
            1,
            "incompatible CNI versions",
        )
    })
    .also(&["add.prints-a-result", "del.of-nothing-changes-nothing"])
    .speaking(&["0.4.0"]),
];

/// Keys of rules that look at the error.
fn is_odd(key: &str) -> bool {
    key.starts_with("com.") || key.starts_with("zz")
}
