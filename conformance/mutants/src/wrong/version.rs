//! VERSION.

use crate::Act;
use serde_json::json;
use skel::cni_spec::Command::{Add, Version};

pub(super) const ACTS: &[Act] = &[
    ("lists-one-version-as-a-text", |call| call.on(Version, |object| object["supportedVersions"] = json!("1.1.0"))),
    ("answers-in-its-own-version", |call| call.on(Version, |object| object["cniVersion"] = json!("1.0.0"))),
    ("wants-a-network-for-version", |call| {
        call.refuses_if(call.is(Version) && call.config().get("name").is_none(), 7, "missing network name")
    }),
    ("lists-what-it-was-asked-for", |call| {
        call.on(Version, |object| object["supportedVersions"] = json!([call.config()["cniVersion"]]))
    }),
    ("answers-in-versions-that-it-knows", |call| {
        call.refuses_if(call.is(Version) && call.config()["cniVersion"] == "99.0.0", 1, "incompatible CNI versions")
    }),
    ("lists-more-than-it-serves", |call| {
        let config = call.config();
        let is_plain = !call.has_kit_ipam() && !config.as_object().is_some_and(|all| all.keys().any(|key| is_odd(key)));
        call.refuses_if(
            call.is(Add) && call.has_netns() && !call.has_own_netns() && is_plain && config["cniVersion"] == "0.4.0",
            1,
            "incompatible CNI versions",
        )
    }),
];

/// Keys of rules that look at the error.
fn is_odd(key: &str) -> bool {
    key.starts_with("com.") || key.starts_with("zz")
}
