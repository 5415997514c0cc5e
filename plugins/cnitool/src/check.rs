//! `cnitool check`: CHECK of an attachment that the cache has.

use crate::args::{Attached, Target};
use crate::error_remedies::{refused, with_place_of_key};
use crate::settings::Settings;
use crate::settings::container_id_and_netns::each;
use libcni::cni_spec::Code;

pub(crate) async fn run(settings: &Settings, words: &Attached) -> anyhow::Result<()> {
    settings.refuse_part_of_id("check")?;
    each(settings.targets("check", words)?, check).await
}

async fn check(settings: &Settings, target: &Target) -> anyhow::Result<()> {
    let (network, mut attachment, cached) = settings.target(target)?;
    let given = attachment.clone();
    if let Some(cached) = &cached {
        settings.complete(&mut attachment, cached);
    } else if !network.disable_check {
        settings.find_cached(&network.name, &attachment)?;
        // SPEC 2, CHECK: not for a container that was not added, or was deleted. Plugins would only report a missing
        // prevResult.
        let (id, name) = (&attachment.id, &network.name);
        let target = format!("{}/{} in network {name}", id.container_id, id.ifname);
        let msg = format!("cannot check {target}: it was not added, or was deleted");
        return Err(refused(Code::CHECK_FAILED, msg, "cnitool list shows what the cache has."));
    }
    let checked = settings.runtime.check(&network, &attachment).await;
    checked.map_err(|error| with_place_of_key(&network, Some(&given), error))
}
