//! The private decoders, for the targets of conformance/fuzz. Not a public interface: it changes with them.

use crate::attachment::{AttachmentId, RuntimeConf};
use crate::cache_entry::{self, Cached};
use crate::conflist::NetworkConf;
use crate::execution_conf::{self, Added};
use crate::raw_object::PluginObject;
use crate::versions::VersionInfo;
use cni_spec::{CniError, NetworkName};
use serde_json::value::RawValue;

/// The form in which the cache keeps a network's configuration.
#[must_use]
pub fn bytes(network: &NetworkConf) -> &[u8] {
    &network.bytes
}

/// A plugin's keys and the JSON of their values, as written.
pub fn keys(plugin: &PluginObject) -> impl Iterator<Item = (&str, &str)> {
    plugin.keys.iter().map(|(key, value)| (key, value.get()))
}

/// A plugin's stdin.
#[must_use]
pub fn stdin(
    network: &NetworkConf,
    plugin: &PluginObject,
    prev_result: Option<&str>,
    attachment: Option<&RuntimeConf>,
    valid: Option<&[AttachmentId]>,
) -> Vec<u8> {
    execution_conf::stdin(network, plugin, &Added { prev_result, attachment, valid, ..Added::default() })
}

/// Reads a cache file under this attachment's name.
///
/// # Errors
/// The reason why it counts as missing.
pub fn cached(bytes: &[u8], network: &NetworkName, id: &AttachmentId) -> Result<Cached, String> {
    cache_entry::parse(bytes, network, id).and_then(|cached| {
        let is_own = (&cached.network, &cached.attachment.id) == (network, id);
        is_own.then_some(cached).ok_or_else(|| "it is another attachment's".to_owned())
    })
}

/// The file that an ADD of this network leaves, or, without a result, begins with; `None` if it cannot be written.
#[must_use]
pub fn cache_file(
    network: &NetworkConf,
    name: &NetworkName,
    attachment: &RuntimeConf,
    result: Option<Box<RawValue>>,
) -> Option<Vec<u8>> {
    Cached::of(network, name, attachment, result).to_bytes(None).ok()
}

/// Reads a plugin's answer to VERSION.
///
/// # Errors
/// The same as in the library.
pub fn version_info(stdout: &[u8]) -> Result<VersionInfo, CniError> {
    VersionInfo::parse(stdout)
}
