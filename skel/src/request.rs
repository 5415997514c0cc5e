//! The requests of the verbs: names parsed, config checked, nothing optional that the specification requires.

use crate::call::Call;
use crate::delegate::{self, Delegate};
use crate::netns::NetnsPath;
use cni_spec::collection::Sweep;
use cni_spec::{AddResult, Attachment, CniArgs, CniError, NetConf, PluginConf};
use std::collections::BTreeSet;
use std::rc::Rc;

/// The raw call, for plugins that pass it on.
#[derive(Clone)]
pub struct Raw {
    pub(crate) call: Call,
    pub(crate) stdin: Rc<[u8]>,
}

impl Raw {
    /// The call.
    #[must_use]
    pub fn call(&self) -> &Call {
        &self.call
    }

    /// stdin, unchanged.
    #[must_use]
    pub fn stdin(&self) -> &Rc<[u8]> {
        &self.stdin
    }

    /// `PATH`, for plugins that run programs of the node.
    #[must_use]
    pub fn search_path(&self) -> &str {
        &self.call.env.search_path
    }

    /// The network's address plugin, if it has one. `conf` is of this call.
    #[must_use]
    pub fn ipam<'a>(&'a self, conf: &'a NetConf) -> Option<Delegate<'a>> {
        Some(Delegate::new(self, conf.ipam.as_ref()?, conf.cni_version))
    }

    /// Calls the address plugin to release its addresses, if the network has one. `conf` is of this DEL.
    ///
    /// Where no folder has that plugin, its ADD has given no address either, as far as prevResult does not say otherwise: a
    /// misspelt `ipam.type` is then no reason to fail for ever.
    ///
    /// # Errors
    /// The address plugin's own. Code 108: it is not installed, and prevResult has addresses, or a config of that version has
    /// no prevResult. Code 7: prevResult has addresses, and `ipam` does not name their plugin, so they stay
    /// reserved until DEL is called with a corrected config.
    pub async fn release(&self, conf: &NetConf) -> Result<(), CniError> {
        if let Some(ipam) = self.ipam(conf) {
            if ipam.is_missing() && has_no_addresses(conf) {
                tracing::warn!(network = %conf.name, "no address is released: plugin {} is not installed", ipam.name());
                return Ok(());
            }
            return ipam.del().await;
        }
        let usable = |plugin: Option<_>| plugin.map_or(Ok(()), |plugin| delegate::check(&self.call, &plugin));
        match conf.object().ipam_type().and_then(usable) {
            Err(error) if conf.find_prev_result().is_some_and(|prev| !prev.ips.is_empty()) => {
                Err(error.detail("The addresses of prevResult stay taken: mend the key, and call DEL again."))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Parses `CNI_ARGS`. Plugins that do not use it do not call this, and so accept anything in it.
    ///
    /// # Errors
    /// Code 4 if it is malformed.
    pub fn parse_args(&self) -> Result<CniArgs, CniError> {
        CniArgs::parse(&self.call.env.args)
    }
}

/// Whether the ADD that this DEL undoes has ended without addresses, or without a result.
fn has_no_addresses(conf: &NetConf) -> bool {
    let has = |prev: Option<AddResult>| prev.is_some_and(|prev| !prev.ips.is_empty());
    conf.cni_version.has_check() && conf.prev_result().is_ok_and(|prev| !has(prev))
}

/// Declares a request with `conf` and `raw`, and its way to the IPAM plugin.
macro_rules! request {
    ($(#[$doc:meta])* $Name:ident { $($(#[$field_doc:meta])* $field:ident: $Type:ty,)* }) => {
        $(#[$doc])*
        pub struct $Name<C> {
            $($(#[$field_doc])* pub $field: $Type,)*
            /// The network config.
            pub conf: PluginConf<C>,
            /// The call as it came.
            pub raw: Raw,
        }

        impl<C> $Name<C> {
            /// The network's address plugin, if it has one.
            #[must_use]
            pub fn ipam(&self) -> Option<Delegate<'_>> {
                self.raw.ipam(&self.conf)
            }

            /// The same request with other keys of the plugin's own.
            pub(crate) fn with_own<U>(self, own: U) -> $Name<U> {
                $Name { $($field: self.$field,)* conf: self.conf.with_own(own), raw: self.raw }
            }
        }
    };
}

request! {
    /// ADD.
    AddRequest {
        /// The attachment to make.
        attachment: Attachment,
        /// The container's namespace, which is not the plugin's own.
        netns: NetnsPath,
    }
}
request! {
    /// DEL. Without a namespace, or with one that is gone, everything outside the namespace is removed all the same.
    DelRequest {
        /// The attachment.
        attachment: Attachment,
        /// The container's namespace, if the runtime still has one. Never the plugin's own, which counts as one that is
        /// gone.
        netns: Option<NetnsPath>,
    }
}
request! {
    /// CHECK.
    CheckRequest {
        /// The attachment.
        attachment: Attachment,
        /// The container's namespace.
        netns: NetnsPath,
    }
}
request! {
    /// GC.
    GcRequest {
        /// The attachments that must stay; all others of this network are removed.
        valid: Vec<Attachment>,
        /// The attachments that were on the node when the list of valid ones was made, if the runtime says so: what came
        /// later must stay, too. Attachments in both lists stay.
        seen: Option<BTreeSet<Attachment>>,
    }
}
request! {
    /// STATUS.
    StatusRequest {}
}

impl<C> GcRequest<C> {
    /// The attachments whose objects GC removes, for objects that are found by less than the attachment, or by a hash of it.
    #[must_use]
    pub fn sweep(&self) -> Sweep<&Attachment> {
        Sweep { valid: self.valid.iter().collect(), seen: self.seen.as_ref().map(|seen| seen.iter().collect()) }
    }

    /// Whether GC has to remove what this attachment has on the node: it is not valid, and came before the runtime
    /// examined the node, as far as the runtime says when that was.
    #[must_use]
    pub fn is_stale(&self, attachment: &Attachment) -> bool {
        !self.valid.contains(attachment) && self.seen.as_ref().is_none_or(|seen| seen.contains(attachment))
    }
}

impl<C> DelRequest<C> {
    /// Calls the address plugin to release its addresses, if the network has one.
    ///
    /// # Errors
    /// As [`Raw::release`].
    pub async fn release(&self) -> Result<(), CniError> {
        self.raw.release(&self.conf).await
    }
}
