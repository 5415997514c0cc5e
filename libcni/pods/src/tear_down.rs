//! Tear-down: from the cache alone, newest first, continuing after errors.

use crate::error::Error;
use crate::handle::Pods;
use crate::lock::Operation;
use crate::loopback::{self, Loopback};
use crate::pod::{Pod, PodId};
use crate::pod_attachments::{self, Choice};
use crate::pod_spans;
use crate::set_up::network_error;
use cni_spec::exec::GRACE;
use cni_spec::{CniArgs, Code, IfName};
use libcni::{AttachmentId, Cached, RuntimeConf};
use std::time::Instant;

/// The pod that is to be taken down: its [`PodId`], or the whole [`Pod`] of the set-up, which helps where the cache has
/// no entry.
#[derive(Debug, Clone)]
pub struct TearDown(Pod);

impl From<&PodId> for TearDown {
    fn from(id: &PodId) -> Self {
        Self(Pod::new(id.clone(), ""))
    }
}

impl From<&Pod> for TearDown {
    fn from(pod: &Pod) -> Self {
        Self(pod.clone())
    }
}

impl Pods {
    /// Removes a pod's network: all of the sandbox's attachments in the cache, with the configuration, arguments and
    /// namespace of their set-up, newest first, `lo` last. So it works after a restart, with the namespace gone, and
    /// with the configuration changed or removed. It finishes an interrupted set-up, after ending the plugins that are
    /// still running.
    ///
    /// An error, such as a missing plugin, does not keep the rest from being taken down. Entries that failed stay in
    /// the cache, so a repetition finishes them. A network that takes long leaves the others their share of the time.
    ///
    /// When the cache has no entry, DEL is called all the same for the networks that the pod requests (or the default
    /// one): another runtime may have set it up, or the cache may be lost. So it may be repeated, and succeeds where
    /// there is no network at all.
    /// Errors: [`Error::Busy`]; [`Error::Cache`]; each network's error, as one or as [`Error::Several`].
    pub async fn tear_down(&self, pod: impl Into<TearDown>) -> Result<(), Error> {
        let TearDown(pod) = pod.into();
        pod_spans::pod(Operation::TearDown, &pod.id, async { self.tear_down_in_span(&pod).await }).await
    }

    async fn tear_down_in_span(&self, pod: &Pod) -> Result<(), Error> {
        let until = self.deadline();
        let _turn = self.inner.locks.pod(Operation::TearDown, &pod.id, until).await?;
        let networks = self.networks().await;
        let choice = self.choice(&networks);
        let cached = self.cached(Some(&pod.id.sandbox))?;
        let mut errors = if cached.is_empty() {
            self.del_requested(pod, &choice, until).await
        } else {
            self.del_all(&cached, &choice, until).await
        };
        errors.extend(self.del_lost(pod, &cached, &choice, until).await);
        Error::all(errors)
    }

    /// DEL for cached attachments, which are in the order of set-up: the last one first.
    pub(crate) async fn del_all(&self, cached: &[Cached], choice: &Choice<'_>, until: Instant) -> Vec<Error> {
        let mut errors = Vec::new();
        for (left, cached) in cached.iter().enumerate().rev() {
            let now = Instant::now();
            // A network that never ends must leave time for the others, however often it is tried.
            let share = until.saturating_duration_since(now) / u32::try_from(left + 1).unwrap_or(u32::MAX);
            // Ending it takes time too, if it does not end by itself.
            let share = if left > 0 && share > 2 * GRACE { share - GRACE } else { share };
            let runtime = self.runtime(now + share);
            let outcome = Box::pin(runtime.del_cached_or(cached, choice.find(&cached.network))).await;
            errors
                .extend(outcome.err().map(|error| network_error(&cached.network, &cached.attachment.id.ifname, error)));
        }
        errors
    }

    /// DEL for a pod's request, as far as that is known.
    async fn del_requested(&self, pod: &Pod, choice: &Choice<'_>, until: Instant) -> Vec<Error> {
        let (asks, pod) = (!pod.networks.is_empty(), pod_attachments::usable_part(pod, choice));
        if asks && pod.networks.is_empty() {
            tracing::warn!("nothing is cached, and there is none of the networks that the pod asks for");
            return Vec::new();
        }
        let planned = match pod_attachments::plan(&pod, choice, &self.settings().prefix) {
            Ok(planned) => planned,
            Err(reason) => {
                tracing::warn!(%reason, "nothing is cached, and it is unknown what there was to delete");
                return Vec::new();
            }
        };
        let mut errors = Vec::new();
        for planned in planned.iter().rev() {
            let outcome = Box::pin(self.runtime(until).del(planned.conf, &planned.attachment)).await;
            let Err(error) =
                outcome.map_err(|error| network_error(&planned.network, &planned.attachment.id.ifname, error))
            else {
                continue;
            };
            if error.code().is_some_and(Code::is_refusal) {
                // An ADD with this configuration was refused, too: there is nothing to delete.
                tracing::warn!(%error, "nothing is cached, and the network's configuration is refused");
            } else {
                errors.push(error);
            }
        }
        if self.settings().loopback == Loopback::Plugin {
            match loopback::attachment(&pod) {
                Ok((conf, attachment)) => {
                    let outcome = Box::pin(self.runtime(until).del(&conf, &attachment)).await;
                    errors.extend(outcome.err().map(|error| loopback::failed("set down", &error)));
                }
                Err(error) => errors.push(error),
            }
        }
        errors
    }

    /// DEL for attachments with broken cache files: their names identify them, and the folder may still have their
    /// networks.
    async fn del_lost(&self, pod: &Pod, cached: &[Cached], choice: &Choice<'_>, until: Instant) -> Vec<Error> {
        let netns = cached.first().map_or(&pod.netns, |cached| &cached.attachment.netns);
        let names = self.broken(Some(&pod.id.sandbox)).unwrap_or_default();
        let mut errors = Vec::new();
        for conf in &choice.usable {
            let start = format!("{}-{}-", conf.name, pod.id.sandbox);
            let ifnames = names.iter().filter_map(|name| IfName::parse(name.strip_prefix(&start)?).ok());
            for ifname in ifnames {
                let Ok(network) = conf.network_name() else { continue };
                let id = AttachmentId { container_id: pod.id.sandbox.clone(), ifname };
                let mut attachment = RuntimeConf::from(id).netns(netns);
                attachment.args = CniArgs::from_pairs(
                    pod_attachments::pod_args(&pod.id)
                        .into_iter()
                        .map(|(key, value)| (key.to_owned(), value))
                        .collect(),
                );
                let outcome = Box::pin(self.runtime(until).del(conf, &attachment)).await;
                errors.extend(outcome.err().map(|error| network_error(&network, &attachment.id.ifname, error)));
            }
        }
        errors
    }
}
