//! A device of the node that host-device has moved to a container, as other plugins see it: theirs is not to delete it.

use std::path::{Path, PathBuf};

use cni_spec::Attachment;
use netops::error::Result;
use netops::link::{Kind, Link};
use netops::{Netns, OpError};

use crate::alias::hex;

/// The folder of host-device's records. It ends with the boot, as devices' places do.
pub const RECORDS: &str = "/run/cni/host-device";

/// The file of an attachment's record: `of` is network, container and interface. These can be longer than a file's name, which is
/// a hash of all three.
pub fn record_path(of: [&str; 3]) -> PathBuf {
    Path::new(RECORDS).join(hex(&of.join("\0"), 16))
}

/// Refuses to delete a link that host-device brings home: hardware, which the kernel does not delete, and the device of the
/// attachment's record.
pub(crate) fn refuse(attachment: &Attachment, netns: &Netns, link: &Link, is_marked: bool) -> Result<()> {
    let Attachment { network, container_id, ifname } = attachment;
    let has_record = || record_path([network.as_str(), container_id.as_str(), ifname.as_str()]).exists();
    if link.kind != Kind::None && (is_marked || !has_record()) {
        return Ok(());
    }
    let why = "it is a device of the node, which DEL of plugin host-device brings home: set the network's type to host-device, \
               with the keys that ADD had, and repeat DEL";
    Err(OpError::state("remove", format!("link {} in {}", link.name, netns.path().display()), why))
}
