//! Repair: CHECK by which this suite's plugins write anew what a node has lost of an attachment that lives.
//!
//! The node may have lost rules, links and addresses by the hand of an administrator or another program, and the runtime knows
//! nothing of it: the cache has what each ADD was, and plugins compare. No plugin's ADD or DEL is called, so a plugin of another
//! make, whose CHECK is the usual one, changes nothing.

use crate::call_log::Operation;
use crate::chain::Chain;
use crate::deadlines::Limits;
use crate::error::Error;
use crate::{Cached, Namespace, Runtime, operation_spans};
use cni_spec::Command;
use cni_suite::{Repair, Repaired};

/// The repairs of one plugin of the list.
#[derive(Debug)]
pub struct PluginRepair {
    /// The plugin's type.
    pub plugin: String,
    /// The report. `None`: the plugin does not know of repairs, and its CHECK finds no difference.
    ///
    /// # Errors
    /// [`Error::Plugin`]: the plugin could not look, or does not know of repairs and its CHECK fails.
    pub outcome: Result<Option<Repaired>, Error>,
}

impl Runtime {
    /// Has the plugins of an attachment's ADD report how the node differs from what they made, and write what is missing anew.
    /// Nothing that is right is changed, and nothing in the container. [`Repair::Show`] changes nothing at all.
    ///
    /// The repair runs under the locks of ADD, by the configuration, arguments and result of that ADD. `None`: the attachment is not as
    /// `cached` has it any more, is not complete, or its namespace is not certain to exist.
    ///
    /// # Errors
    /// [`Error::CachedConf`]; [`Error::CachedResult`]; [`Error::Locked`]; [`Error::Plugin`] if an executable is missing, before
    /// any plugin is run, or the operation was cancelled.
    pub async fn repair(&self, cached: &Cached, how: Repair) -> Result<Option<Vec<PluginRepair>>, Error> {
        let (name, id) = (&cached.network, &cached.attachment.id);
        let about =
            Operation { runtime: self, command: Command::Check, network: name.as_str(), log: None, id: Some(id) };
        operation_spans::operation(about, async {
            let network = self.cached_conf(cached)?;
            let version = network.version().map_err(Error::Invalid)?;
            let cache = &self.settings.cache;
            let _held = match how {
                Repair::Show => None,
                Repair::Write => Some(cache.locks.for_add(name, id, &Limits::of(self)).await?),
            };
            let now = cache.find(name, id)?;
            let is_as_before = now.is_some_and(|now| now.is_unchanged(cached));
            if !is_as_before || !cached.is_complete() || cached.namespace() != Namespace::Present {
                return Ok(None);
            }
            let prev_result = self.prev_result(Some(cached), version)?;
            let chain = Chain::new(self, &network, Command::Check);
            chain.repair(&cached.attachment, prev_result.as_deref(), how).await.map(Some)
        })
        .await
    }
}
